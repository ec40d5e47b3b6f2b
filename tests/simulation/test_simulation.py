"""Whole workers under random faults: whatever happens, no entry is lost, none is doubled, and work goes on."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.conftest import SEEDS_DEFAULT, Run
from tests.simulation.swarm import Style, Swarm

GROUPS = 20
# Places of a worker at which every run of the suite must have let something else happen.
PLACES = {
    "init", "consume", "callback_served", "committed", "watermarks", "unstable", "seek", "put",
    "put_acknowledged", "begin", "produced", "offsets_sent", "ending", "ended", "close",
    "get", "open", "append", "read", "create", "write", "finish", "load",
}  # fmt: skip
FAULTS = {"kill", "zombie", "stall", "commit", "ended itself", "full disk", "slow store", "slow sealing", "damage"}


@pytest.mark.parametrize("group", range(GROUPS))
def test_workers_under_faults_lose_and_double_nothing(
    group: int, run_seed: Run, request: pytest.FixtureRequest
) -> None:
    """I1-I5, W3 and I9 hold for every seed, after healing and draining, and at every commit on the way."""
    chosen = request.config.getoption("--seed", [])
    first, count = request.config.getoption("--first-seed", 0), request.config.getoption("--seeds", SEEDS_DEFAULT)
    seeds = chosen if chosen and group == 0 else [] if chosen else range(first + group, first + count, GROUPS)
    for seed in seeds:
        run_seed(seed)


@pytest.mark.parametrize("style", list(Style))
def test_swarm_reaches_every_place_with_every_fault(style: Style, run_seed: Run) -> None:
    """A simulation that never gets there proves nothing: all places and kinds of faults occur, in every style."""
    happened: Counter[str] = Counter()
    for seed in range(60):
        happened += run_seed(seed, style=style, swarm=Swarm(at_kill=0.006, members=0.1)).happened
        if happened.keys() >= PLACES | FAULTS:
            break
    assert happened.keys() >= PLACES | FAULTS, (PLACES | FAULTS) - happened.keys()


@pytest.mark.parametrize("style", list(Style))
def test_same_seed_does_the_same_again(style: Style, run_seed: Run) -> None:
    """A failure is worth something only if its seed shows it again."""
    first, second = run_seed(7, style=style, swarm=Swarm()), run_seed(7, style=style, swarm=Swarm())
    assert first.happened == second.happened
    assert [one.offsets for one in first.broker.transactions] == [one.offsets for one in second.broker.transactions]


@pytest.mark.parametrize("style", list(Style))
def test_no_fault_no_discard(style: Style, run_seed: Run) -> None:
    """Without faults nothing is ever discarded, refused by the broker, and nobody ends."""
    world = run_seed(1, style=style, swarm=Swarm().healed())
    assert world.broker.aborted == 0
    assert world.happened["ended itself"] == 0
