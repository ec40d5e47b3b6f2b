"""Whole workers under random faults: whatever happens, no entry is lost, none is doubled, and work goes on."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.conftest import Run
from tests.simulation.options import seeds_of
from tests.simulation.swarm import Style, Swarm

SEEDS_OF_A_TEST = 2
CHAINED_SEEDS = 3
# Places of a worker at which every run of the suite must have let something else happen.
PLACES = {
    "init", "consume", "callback_served", "committed", "offsets_at", "unstable", "seek", "put",
    "put_acknowledged", "begin", "produced", "offsets_sent", "ending", "ended", "close",
    "get", "open", "append", "read", "create", "write", "finish", "load",
}  # fmt: skip
FAULTS = {"kill", "zombie", "stall", "commit", "ended itself", "full disk", "slow store", "slow sealing", "damage"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Share the seeds out."""
    if "seeds" in metafunc.fixturenames:
        seeds = seeds_of(metafunc.config)
        groups = [seeds[at : at + SEEDS_OF_A_TEST] for at in range(0, len(seeds), SEEDS_OF_A_TEST)]
        metafunc.parametrize("seeds", groups, ids=[f"{group[0]}-{group[-1]}" for group in groups])


def test_workers_under_faults_lose_and_double_nothing(seeds: list[int], run_seed: Run) -> None:
    """I1-I5, W3 and I9 hold for every seed, after healing and draining, and at every commit on the way."""
    for seed in seeds:
        run_seed(seed)


def test_replays_under_faults_are_discarded_and_nothing_else(run_seed: Run) -> None:
    """Each output of republishers that die is recorded once, whatever happens to the workers meanwhile."""
    happened = sum((run_seed(seed, chained=True).happened for seed in range(CHAINED_SEEDS)), Counter())
    assert happened["replay"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("style", list(Style))
def test_swarm_reaches_every_place_with_every_fault(style: Style, run_seed: Run) -> None:
    """A simulation that never gets there proves nothing: all places and kinds of faults occur, in every style."""
    happened: Counter[str] = Counter()
    for seed in range(60):
        happened += run_seed(seed, style=style, swarm=Swarm(at_kill=0.006, at_zombie=0.009, members=0.1)).happened
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
    """Without faults no batch is discarded, no commit is refused by the broker, and no worker ends."""
    world = run_seed(1, style=style, swarm=Swarm().healed())
    assert world.broker.aborted == 0
    assert world.happened["ended itself"] == 0
