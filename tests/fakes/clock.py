"""A clock that moves only when it is told to."""

from __future__ import annotations

START_S = 1_000.0
START_MS = 1_790_000_000_000


class FakeClock:
    """Both clocks of `boundary.Clock`, moving together."""

    def __init__(self) -> None:
        self._passed_s = 0.0

    def now_s(self) -> float:
        """Monotonic seconds."""
        return START_S + self._passed_s

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return START_MS + round(self._passed_s * 1000)

    def sleep(self, seconds: float) -> None:
        """Let time pass, as a caller that blocks does."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        assert seconds >= 0, "time does not run backwards"
        self._passed_s += seconds
