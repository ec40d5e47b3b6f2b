"""Which faults a seed has, and how often: a random subset, none included (swarm testing)."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import Enum
from random import Random


class Style(Enum):
    """The two ways a group hands out TopicPartitions."""

    COOPERATIVE = "cooperative"
    KIP848 = "kip848"


@dataclass(frozen=True)
class Swarm:
    """Probabilities: those called `at_` per place in the code where other things may happen, the others per turn.

    `throttle` is of a world: its store stays slow for ever, whatever heals. `coordinator`: per turn, it answers
    from a part of its log for a while.
    """

    at_kill: float = 0.002
    at_zombie: float = 0.003
    at_interleave: float = 0.06
    at_stall: float = 0.004
    put: float = 0.05
    outcome: float = 0.12
    spool: float = 0.0015
    full: float = 0.01
    slow: float = 0.03
    damage: float = 0.01
    members: float = 0.05
    stop: float = 0.01
    store_refused: float = 0.001
    old_library: float = 1.0
    throttle: float = 0.1
    coordinator: float = 0.01

    def healed(self) -> Swarm:
        """Give the same world without faults."""
        return Swarm(**dict.fromkeys(names(), 0.0))


def names() -> list[str]:
    """Name all kinds of faults."""
    return [field.name for field in fields(Swarm)]


def choose(random: Random) -> Swarm:
    """Choose a random subset of the faults, each at a random share of its rate."""
    if random.random() < 0.05:
        return Swarm().healed()
    swarm = Swarm()
    for name in names()[:-2]:  # a world draws these two by itself: seeds from before it are what they were
        share = random.choice((0.0, 0.3, 1.0, 2.5))
        swarm = replace(swarm, **{name: min(1.0, getattr(swarm, name) * share)})
    return swarm
