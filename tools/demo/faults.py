"""Planned faults of the demo's workers: pure, printable. For random faults see `tools.chaos`."""

from dataclasses import dataclass
from enum import Enum

_SETTLE_S = 2.0  # from the last step on


class Action(Enum):
    """An action on a worker."""

    START = "start"
    KILL = "SIGKILL"
    PAUSE = "SIGSTOP"
    RESUME = "SIGCONT"
    TERMINATE = "SIGTERM"


@dataclass(frozen=True, slots=True)
class Step:
    """One action, at seconds since the plan's begin."""

    at_s: float
    action: Action
    worker: str

    def __str__(self) -> str:
        return f"{self.action.value} {self.worker} at {self.at_s:.1f} s"


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in the order of their times, all of it over after `length_s`."""

    steps: tuple[Step, ...]
    length_s: float

    def __str__(self) -> str:
        return ", ".join(map(str, self.steps))


def first_workers(count: int) -> list[str]:
    """Return the names of the workers that are there at the begin."""
    return [name_of(number) for number in range(count)]


def plan_demo(*, session_timeout_s: float, workers: int) -> Plan:
    """Plan a kill and its replacement, then a pause past the session."""
    steps = (
        Step(5.0, Action.KILL, name_of(0)),
        Step(7.0, Action.START, name_of(workers)),
        Step(11.0, Action.PAUSE, name_of(min(1, workers))),
        Step(11.0 + session_timeout_s + 4.0, Action.RESUME, name_of(min(1, workers))),
    )
    return Plan(steps, steps[-1].at_s + _SETTLE_S)


def name_of(number: int) -> str:
    """Return the name of the so-manieth worker, from 0."""
    return f"worker-{number + 1}"
