"""`--seed` replays seeds, `--seeds` says how many; a failure prints the seed and what happened last."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog
from structlog.typing import EventDict, WrappedLogger

from tests.fakes.worker import Parts
from tests.simulation.swarm import Style, Swarm
from tests.simulation.world import World

SEEDS_DEFAULT = 260
STEPS = 150


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    parser.addoption("--seed", action="append", type=int, default=[], help="simulation: run this seed (repeatable)")
    parser.addoption("--seeds", type=int, default=SEEDS_DEFAULT, help="simulation: how many seeds")
    parser.addoption("--first-seed", type=int, default=0, help="simulation: the first seed")


Run = Callable[..., World]


@pytest.fixture
def run_seed() -> Iterator[Run]:
    """Give a function that runs one seed and says, where it fails, how to see it again."""
    current: list[World] = []

    def remember(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
        if current:
            name = event.pop("event")
            event.pop("step_seconds", None)
            current[-1].note(f"  {name} " + " ".join(f"{key}={value}" for key, value in event.items()))
        raise structlog.DropEvent

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        processors=[remember],
        logger_factory=structlog.ReturnLoggerFactory(),
    )

    def run(
        seed: int, *, style: Style | None = None, swarm: Swarm | None = None, parts: Parts | None = None, **how: Any
    ) -> World:
        world = World(seed, style=style, swarm=swarm, parts=parts, **how)
        current.append(world)
        try:
            world.run(STEPS)
        except Exception as error:
            trace = "\n".join(world.trace)
            error.add_note(f"{trace}\nseed {seed}, {world.style.value}; again: pytest tests/simulation --seed {seed}")
            raise
        return world

    yield run
    structlog.reset_defaults()
