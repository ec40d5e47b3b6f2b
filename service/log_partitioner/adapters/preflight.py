"""Before a worker joins, it asks for everything outside that it needs, until nothing is missing.

`check-config --connect` asks the same once. A worker that lacks something does not join: it takes no partitions from
others, is not ready, and says why. It ends if no operator mends that in time, or if waiting cannot help.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import structlog

from log_partitioner.errors import LogPartitionerError, StopError, StoreBusyError, UnmetError
from log_partitioner.pace import Pace
from log_partitioner.patience import Patience

_AGAIN_FIRST_S, _AGAIN_MAX_S = 1.0, 5.0
_LOOK_S = 0.1


class Need(NamedTuple):
    """A need in a few words, and its problem in a sentence; `is_warning`: the worker can do without it."""

    subject: str
    problem: str | None = None
    is_warning: bool = False

    @property
    def is_missing(self) -> bool:
        """Whether a worker cannot do without."""
        return self.problem is not None and not self.is_warning


Ask = Callable[[], Iterable[Need]]


def asked(subject: str, ask: Callable[[], None]) -> Ask:
    """Make a question of a call that raises UnmetError; a busy store is a warning, because flushes wait for it (I9)."""

    def answer() -> Iterator[Need]:
        try:
            ask()
        except UnmetError as error:
            yield Need(subject, str(error), is_warning=isinstance(error, StoreBusyError))
        else:
            yield Need(subject)

    return answer


def ask_once(asks: Iterable[Ask]) -> Iterator[Need]:
    """Ask once; an error that would end a worker is an answer, too."""
    for ask in asks:
        try:
            yield from ask()
        except LogPartitionerError as error:
            yield Need("", str(error))


@dataclass(eq=False, repr=False, kw_only=True)
class Preflight:
    """Asks, waits and reports; used by the loop thread, others read `unmet`."""

    patience: Patience
    budget_s: float
    beat: Callable[[], None]
    now_s: Callable[[], float]
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        self.unmet: str | None = None
        self._pace = Pace(self.now_s)
        self._log = structlog.get_logger("preflight")

    def require(self, asks: Sequence[Ask]) -> None:
        """Ask until nothing is missing, and log each missing thing at growing intervals. Blocks.

        Raises:
            StopError: something is still missing when the budget is spent, or waiting cannot help.
            LeavingError: asked to leave meanwhile.
        """
        begun_s, again_s = self.now_s(), _AGAIN_FIRST_S
        while True:
            answers = self.patience.ask(lambda: [answer for ask in asks for answer in ask()])
            for answer in answers:
                self._tell(answer)
            missing = [str(answer.problem) for answer in answers if answer.is_missing]
            self.unmet = "; ".join(missing) or None
            if not missing:
                return
            if self.now_s() - begun_s >= self.budget_s:
                raise StopError(f"after {self.budget_s:.0f} s: {self.unmet}")
            self._wait(again_s)
            again_s = min(_AGAIN_MAX_S, 2 * again_s)

    def _tell(self, answer: Need) -> None:
        if answer.problem is None or not (times := self._pace.times(answer.problem)):
            return
        if answer.is_warning:
            self._log.warning("outside_doubted", message=answer.problem, times=times)
        else:
            self._log.warning("outside_unmet", message=answer.problem, times=times)

    def _wait(self, seconds: float) -> None:
        until_s = self.now_s() + seconds
        while self.now_s() < until_s:
            self.beat()
            self.patience.require()
            self.sleep(_LOOK_S)
