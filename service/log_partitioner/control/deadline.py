"""One time budget shared by all steps of one flush, so that their sum is bounded and not each part."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

ANSWER_MIN_S = 0.1
_STOPPED_S = 1.0


class Deadline(NamedTuple):
    """An instant of the monotonic clock, in seconds, and the clock to compare it with."""

    at_s: float
    now_s: Callable[[], float]

    @classmethod
    def after(cls, seconds: float, now_s: Callable[[], float]) -> Deadline:
        """Make a deadline that is `seconds` away."""
        return cls(now_s() + seconds, now_s)

    def remaining_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.at_s - self.now_s())

    def timeout_s(self) -> float:
        """Seconds left for an answer, ANSWER_MIN_S at least, because the answer may be there already."""
        return max(ANSWER_MIN_S, self.remaining_s())

    def has_passed(self) -> bool:
        """Return whether the budget is spent."""
        return self.now_s() >= self.at_s

    def is_long_past(self) -> bool:
        """Return whether the process must have been stopped: nothing with a deadline overruns it so far by itself."""
        return self.now_s() >= self.at_s + _STOPPED_S

    def at_most(self, seconds: float) -> Deadline:
        """Return this deadline or one that is `seconds` away, whichever is nearer."""
        return Deadline(min(self.at_s, self.now_s() + seconds), self.now_s)
