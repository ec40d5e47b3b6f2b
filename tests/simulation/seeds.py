"""One seed of the simulation with its story, and the least of its faults that still fails."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import structlog
from structlog.typing import EventDict, WrappedLogger

from tests.fakes.worker import Parts
from tests.simulation.swarm import Style, Swarm, names
from tests.simulation.telling import heard_by
from tests.simulation.world import World

STEPS = 150
_GARBAGE_MAX = 50_000  # objects; 60 MiB more of memory


class SeedTold(NamedTuple):
    """One seed's outcome: `failed` is the error's text, `story` the digest of all that its workers said and did."""

    seed: int
    style: str
    happened: Counter[str]
    rebalances: int
    cpu_s: float
    failed: str | None
    story: str


@contextmanager
def telling() -> Iterator[list[World]]:
    """Add what workers log to the story of the world that runs, the last one of the list."""
    current: list[World] = []

    def remember(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
        if current:
            name = event.pop("event")
            event.pop("step_seconds", None)
            current[-1].note(f"  {name} " + " ".join(f"{key}={value}" for key, value in event.items()))
        raise structlog.DropEvent

    with heard_by(remember):
        yield current


def run_seed(
    current: list[World],
    seed: int,
    *,
    style: Style | None = None,
    swarm: Swarm | None = None,
    parts: Parts | None = None,
    steps: int = STEPS,
    **how: Any,
) -> World:
    """Run a seed; an error says how to repeat it, and what happened last."""
    world = World(seed, style=style, swarm=swarm, parts=parts, **how)
    current[:] = [world]
    try:
        world.run(steps)
    except Exception as error:
        trace = "\n".join(world.trace)
        error.add_note(f"{trace}\nseed {seed}, {world.style.value}; again: make sim SEED={seed}")
        raise
    return world


def collect_rarely() -> None:
    """Have the collector of cycles pass the modules by, and look less often: it took a seventh of a seed."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GARBAGE_MAX)


def tell_seed(seed: int) -> SeedTold:
    """Run a seed, whatever comes of it."""
    begun = time.process_time()
    failed = None
    with telling() as current:
        try:
            run_seed(current, seed)
        except Exception as error:  # noqa: BLE001 - any is a finding
            failed = f"{type(error).__name__}: {error}"
        world = current[0]
    cpu_s = time.process_time() - begun
    return SeedTold(seed, world.style.value, world.happened, world.rebalances, cpu_s, failed, world.story.hexdigest())


def shrink(current: list[World], seed: int) -> Exception | None:
    """Return the failure of a seed with as few kinds of faults, then as few steps, as still fail alike."""
    first = _failure(current, seed, None, STEPS)
    if first is None:
        return None
    least, swarm, steps = first, World(seed).swarm, STEPS
    for name in names():
        fewer = replace(swarm, **{name: 0.0})
        if fewer != swarm and (found := _failure(current, seed, fewer, steps)) and type(found) is type(first):
            least, swarm = found, fewer
    part = STEPS // 2
    while part:
        if steps > part and (found := _failure(current, seed, swarm, steps - part)) and type(found) is type(first):
            least, steps = found, steps - part
        else:
            part //= 2
    kinds = [name for name in names() if getattr(swarm, name)]
    least.add_note(f"{steps} of {STEPS} steps and these faults are enough: {', '.join(kinds) or 'none'}")
    return least


def _failure(current: list[World], seed: int, swarm: Swarm | None, steps: int) -> Exception | None:
    try:
        run_seed(current, seed, swarm=swarm, steps=steps)
    except Exception as error:  # noqa: BLE001 - any is a finding
        return error
    return None
