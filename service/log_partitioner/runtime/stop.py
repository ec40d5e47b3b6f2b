"""Signals -> flags. Handlers do nothing else: an exception would lose records that were taken (KAFKA_FACTS F4).

The first SIGTERM or SIGINT asks for a flush and an orderly leave; the second abandons the flush, which is as safe.
"""

from __future__ import annotations

import signal
from types import FrameType


class StopFlag:
    """The requests of signals so far."""

    def __init__(self) -> None:
        self.requests = 0

    @property
    def requested(self) -> bool:
        """Whether to stop."""
        return self.requests > 0

    @property
    def abandoned(self) -> bool:
        """Whether to stop without finishing the flush."""
        return self.requests > 1

    def request(self) -> None:
        """Ask once more."""
        self.requests += 1

    def install(self) -> None:
        """Handle SIGTERM and SIGINT from now on; main thread only."""
        signal.signal(signal.SIGTERM, self._handle)
        signal.signal(signal.SIGINT, self._handle)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.request()
