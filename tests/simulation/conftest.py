"""A function that runs a seed; a failure prints the seed and what happened last."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.simulation.seeds import run_seed as run_one
from tests.simulation.seeds import telling
from tests.simulation.world import World

Run = Callable[..., World]


@pytest.fixture
def run_seed() -> Iterator[Run]:
    """Give a function that runs one seed and says, if it fails, how to see it again."""
    with telling() as current:
        yield partial(run_one, current)
