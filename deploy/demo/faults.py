"""What happens to the workers, planned beforehand: pure, seeded, printable.

A plan is a list of rounds; a round is a list of steps at seconds since its begin. The plan knows who lives,
so that every step has a worker that it can be done to.
"""

from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Literal, get_args

FaultKind = Literal["kill", "pause", "add", "remove"]
FAULT_KINDS: tuple[FaultKind, ...] = get_args(FaultKind)

WORKERS_MIN = 2
WORKERS_MAX = 5
_ROUND_S = 10.0
_SETTLE_S = 2.0  # from the last step of a round to the next round


class Action(Enum):
    """What is done to a worker."""

    START = "start"
    KILL = "SIGKILL"
    PAUSE = "SIGSTOP"
    RESUME = "SIGCONT"
    TERMINATE = "SIGTERM"


@dataclass(frozen=True, slots=True)
class Step:
    """One action, at seconds since the begin of its round."""

    at_s: float
    action: Action
    worker: str

    def __str__(self) -> str:
        return f"{self.action.value} {self.worker} at {self.at_s:.1f} s"


@dataclass(frozen=True, slots=True)
class Round:
    """Steps in the order of their times; the next round begins after `length_s`."""

    number: int
    steps: tuple[Step, ...]
    length_s: float

    def __str__(self) -> str:
        return ", ".join(map(str, self.steps)) or "nothing"


def first_workers(count: int) -> list[str]:
    """Return the names of the workers that are there at the begin."""
    return [_name(number) for number in range(1, count + 1)]


def plan_demo(*, session_timeout_s: float) -> tuple[Round, ...]:
    """Plan the demo's one round: a kill and its replacement, then a pause past the session."""
    steps = (
        Step(5.0, Action.KILL, _name(1)),
        Step(7.0, Action.START, _name(4)),
        Step(11.0, Action.PAUSE, _name(2)),
        Step(11.0 + session_timeout_s + 4.0, Action.RESUME, _name(2)),
    )
    return (Round(1, steps, steps[-1].at_s + _SETTLE_S),)


def plan_rounds(
    *, seed: int, rounds: int, kinds: tuple[FaultKind, ...], workers: int, session_timeout_s: float
) -> tuple[Round, ...]:
    """Plan rounds of one to three random faults each; equal arguments make equal plans."""
    planner = _Planner(Random(seed), workers=workers, session_timeout_s=session_timeout_s)
    return tuple(planner.plan(number, kinds) for number in range(1, rounds + 1))


class _Planner:
    """Keeps account of who lives while it plans round after round."""

    def __init__(self, rng: Random, *, workers: int, session_timeout_s: float) -> None:
        self._rng = rng
        self._session_timeout_s = session_timeout_s
        self._live = first_workers(workers)
        self._named = workers

    def plan(self, number: int, kinds: tuple[FaultKind, ...]) -> Round:
        steps: list[Step] = []
        untouched = list(self._live)  # nobody meets two faults in one round
        for _ in range(self._rng.choice((1, 1, 2, 2, 3))):
            at_s = self._rng.uniform(0.5, 6.0)
            match self._rng.choice(kinds):
                case "kill" if untouched:
                    steps += self._kill(at_s, self._take(untouched))
                case "pause" if untouched:
                    steps += self._pause(at_s, self._take(untouched))
                case "remove" if untouched and len(self._live) > WORKERS_MIN:
                    worker = self._take(untouched)
                    self._live.remove(worker)
                    steps.append(Step(at_s, Action.TERMINATE, worker))
                case "add" if len(self._live) < WORKERS_MAX:
                    steps.append(Step(at_s, Action.START, self._new_worker()))
                case _:
                    pass
        steps.sort(key=lambda step: step.at_s)
        length_s = max(_ROUND_S, steps[-1].at_s + _SETTLE_S) if steps else _ROUND_S
        return Round(number, tuple(steps), length_s)

    def _kill(self, at_s: float, worker: str) -> list[Step]:
        """Plan a kill and a replacement: under the same name, as a StatefulSet does it, or a new one."""
        self._live.remove(worker)
        back_at_s = at_s + self._rng.uniform(0.2, 4.0)
        if self._rng.getrandbits(1):
            self._live.append(worker)
            replacement = worker
        else:
            replacement = self._new_worker()
        return [Step(at_s, Action.KILL, worker), Step(back_at_s, Action.START, replacement)]

    def _pause(self, at_s: float, worker: str) -> list[Step]:
        """Plan a pause: shorter than the session, about as long, or well past it."""
        shares = self._rng.choice(((0.1, 0.5), (0.8, 1.2), (1.3, 2.0)))
        pause_s = self._session_timeout_s * self._rng.uniform(*shares)
        return [Step(at_s, Action.PAUSE, worker), Step(at_s + pause_s, Action.RESUME, worker)]

    def _take(self, untouched: list[str]) -> str:
        return untouched.pop(self._rng.randrange(len(untouched)))

    def _new_worker(self) -> str:
        self._named += 1
        self._live.append(_name(self._named))
        return self._live[-1]


def _name(number: int) -> str:
    return f"worker-{number}"
