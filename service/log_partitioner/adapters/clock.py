"""The system's clocks: monotonic for durations, wall time for recorded instants."""

from __future__ import annotations

import time


class SystemClock:
    """Fulfils `boundary.Clock`."""

    def now_s(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Block for so long."""
        time.sleep(seconds)
