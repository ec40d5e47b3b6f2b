"""`--seed` replays seeds, `--seeds` says how many; a failure prints the seed and what happened last."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.simulation.seeds import run_seed as run_one
from tests.simulation.seeds import telling
from tests.simulation.world import World

SEEDS_DEFAULT = 60  # `make sim` runs a thousand


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    parser.addoption("--seed", action="append", type=int, default=[], help="simulation: run this seed (repeatable)")
    parser.addoption("--seeds", type=int, default=SEEDS_DEFAULT, help="simulation: how many seeds")
    parser.addoption("--first-seed", type=int, default=0, help="simulation: the first seed")


Run = Callable[..., World]


@pytest.fixture
def run_seed() -> Iterator[Run]:
    """Give a function that runs one seed and says, where it fails, how to see it again."""
    with telling() as current:
        yield partial(run_one, current)
