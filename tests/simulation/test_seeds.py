"""A seed that fails says with which of its faults, and after how many steps, it still fails."""

from __future__ import annotations

import pytest

from tests.fakes.check import InvariantError
from tests.simulation.seeds import STEPS, shrink, tell_seed, telling
from tests.simulation.world import World

SEED = 5


def test_failure_is_told_with_the_least_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The world fails from the 41st step on if batches are damaged, whatever else happens."""

    def run(world: World, steps: int) -> None:
        if world.swarm.damage and steps > 40:
            raise InvariantError("I1: lost")

    monkeypatch.setattr(World, "run", run)
    assert tell_seed(SEED).failed == "InvariantError: I1: lost"
    with telling() as current:
        least = shrink(current, SEED)
    assert least is not None
    assert least.__notes__[-1] == f"41 of {STEPS} steps and these faults are enough: damage"
    assert f"make sim SEED={SEED}" in least.__notes__[0]


def test_seed_that_holds_is_told_with_what_it_did() -> None:
    """Figures of a seed are those that the summary adds up; its story is the same again."""
    told = tell_seed(0)
    assert (told.failed, told.happened["commit"] > 0, told.rebalances > 0, told.cpu_s > 0) == (None, True, True, True)
    assert tell_seed(0).story == told.story
