"""Faults of workers, brokers, network and store, and plans of faults: pure, seeded, printable."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Literal, NamedTuple

from tools.demo.options import SESSION_TIMEOUT_S

Target = Literal["worker", "broker", "network", "store"]

WORKERS = 3
BROKERS: Final = 3
_MEAN_PAUSE_S = SESSION_TIMEOUT_S
# A killed worker may leave a transaction open: its time-out (20 s), the scan for it (1 s), and ten seconds more.
_KILL_GOAL_S = 31.0
_STOP_GOAL_S = 15.0
_BROKER_GOAL_S = 30.0
_SHARE_OF_TWO = 0.2  # of the turns: two faults at once
_SHARE_OF_NONE = 0.05


class Kind(NamedTuple):
    """One kind of fault: whom it meets and how long it lasts, from and to; `is_over_at_begin`: it is done at once.

    Recovery from a fault that is over at once counts from its begin, else from its end; `goal_s` is what it should take
    at most on a machine with room.
    """

    target: Target
    seconds: tuple[float, float]
    is_over_at_begin: bool = False
    goal_s: float = 60.0


KINDS: dict[str, Kind] = {
    # A worker is gone at once; how long until it is started again is a part of what the others have to bear.
    "worker-kill": Kind("worker", (0.2, 8.0), is_over_at_begin=True, goal_s=_KILL_GOAL_S),
    "worker-stop": Kind("worker", (0.2, 8.0), is_over_at_begin=True, goal_s=_STOP_GOAL_S),
    "worker-pause-short": Kind("worker", (0.1 * _MEAN_PAUSE_S, 0.5 * _MEAN_PAUSE_S)),
    "worker-pause-past-session": Kind("worker", (0.8 * _MEAN_PAUSE_S, 2.5 * _MEAN_PAUSE_S)),
    "worker-joins-and-leaves": Kind("worker", (4.0, 15.0)),
    "workers-all-killed": Kind("worker", (0.2, 4.0), goal_s=_KILL_GOAL_S),
    "broker-kill": Kind("broker", (0.5, 8.0), is_over_at_begin=True, goal_s=_BROKER_GOAL_S),
    "broker-stop": Kind("broker", (0.5, 8.0), is_over_at_begin=True, goal_s=_BROKER_GOAL_S),
    "broker-pause": Kind("broker", (1.0, 12.0)),
    "two-brokers-killed": Kind("broker", (0.5, 5.0)),
    "brokers-all-killed": Kind("broker", (0.5, 5.0)),
    "connections-cut": Kind("network", (0.0, 0.0), is_over_at_begin=True),
    "network-silent": Kind("network", (1.0, 12.0)),
    "network-slow": Kind("network", (5.0, 15.0)),
    "commit-not-arrived": Kind("network", (4.0, 8.0)),
    "commit-answer-lost": Kind("network", (4.0, 8.0)),
    "commit-out-of-reach": Kind("network", (4.0, 12.0)),
    "store-refuses": Kind("store", (2.0, 20.0)),
    "store-some-faults": Kind("store", (5.0, 30.0)),
    "store-throttles": Kind("store", (5.0, 30.0)),
    "store-silent": Kind("store", (2.0, 15.0)),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: at seconds since the run's begin, for so long, on the so-manieth of its targets."""

    at_s: float
    kind: str
    number: int
    length_s: float

    @property
    def target(self) -> Target:
        """Whom it meets."""
        return KINDS[self.kind].target

    def __str__(self) -> str:
        return f"{self.kind} {self.number + 1} at {self.at_s:.0f} s for {self.length_s:.1f} s"


def plan_chaos(
    *, seed: int, begin_s: float, until_s: float, every_s: float, spared: int | None = None
) -> Iterator[Fault]:
    """Yield random faults, about one each `every_s`; a worker that is `spared` is never killed nor stopped.

    Two at once meet different targets.
    """
    rng = Random(seed)
    at_s = begin_s
    while at_s < until_s:
        chance = rng.random()
        count = 0 if chance < _SHARE_OF_NONE else 2 if chance < _SHARE_OF_NONE + _SHARE_OF_TWO else 1
        targets: Sequence[Target] = rng.sample(("worker", "broker", "network", "store"), count)
        for target in targets:
            kind = rng.choice([name for name, one in KINDS.items() if one.target == target and _may(name, spared)])
            others = [number for number in range(WORKERS) if number != spared or "pause" in kind]
            number = rng.choice(others) if target == "worker" else rng.randrange(BROKERS)
            yield Fault(at_s + rng.uniform(0.0, every_s / 3), kind, number, rng.uniform(*KINDS[kind].seconds))
        at_s += every_s


def _may(kind: str, spared: int | None) -> bool:
    return spared is None or kind != "workers-all-killed"


def plan_bounces(*, target: Literal["worker", "broker"], how: Literal["kill", "stop"], seed: int) -> list[Fault]:
    """Return nine bounces of workers or three of brokers, one after the other, each of them in turn."""
    rng = Random(seed)
    count, every_s, back_s = (9, 7.0, (1.0, 3.0)) if target == "worker" else (3, 21.0, (3.0, 6.0))
    return [
        Fault(4.0 + every_s * number + rng.uniform(0.0, 1.5), f"{target}-{how}", number % 3, rng.uniform(*back_s))
        for number in range(count)
    ]
