"""KIP-848 without the client library's order of events: a member that was put out is in again before it hears of it.

librdkafka waits for the application first, but the promise must not depend on it (`runtime.controller`);
tests/unit/runtime/test_fencing.py shows step by step what happens otherwise.
"""

from __future__ import annotations

import pytest

from tests.fakes.member import HastyMember848
from tests.fakes.worker import Parts
from tests.simulation.conftest import Run
from tests.simulation.swarm import Style, Swarm

PUT_OUT = Swarm(at_zombie=0.006, members=0.08, outcome=0.2, store_refused=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 15, 30, 45])
def test_hasty_library_doubles_nothing(first: int, run_seed: Run) -> None:
    """Other faults change nothing; test_fencing.py shows what each half of the proof refuses."""
    for seed in range(first, first + 15):
        run_seed(seed, style=Style.KIP848, swarm=PUT_OUT, parts=Parts(member848=HastyMember848))
