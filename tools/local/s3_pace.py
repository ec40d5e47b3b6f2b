"""How fast the S3 fault proxy lets requests through: PUTs and bytes of bodies a second, in all.

Thread-safe; s3_fault_server.py asks. PUTs over the rate are refused, as S3 does it, or have to wait.
"""

import threading
import time
from collections.abc import Callable

_BURST_S = 1.0  # what was not used in the last second may come at once


class Pace:
    """Rates in force; without any, everything passes at once."""

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._sleep = sleep
        self.set()

    def set(
        self, *, puts_per_s: float | None = None, bytes_per_s: float | None = None, is_refusing: bool = True
    ) -> None:
        """Replace the rates; None lifts one."""
        with self._lock:
            self._puts = _Rate(puts_per_s, self._clock())
            self._bytes = _Rate(bytes_per_s, self._clock())
            self._is_refusing = is_refusing

    def admit_put(self) -> bool:
        """Say whether a PUT may pass now; if the pace refuses none, block until it may."""
        with self._lock:
            if self._is_refusing:
                return self._puts.take(1, self._clock())
            wait_s = self._puts.reserve(1, self._clock())
        self._sleep(wait_s)
        return True

    def pass_bytes(self, count: int) -> None:
        """Block until so many bytes of a body may have passed."""
        with self._lock:
            wait_s = self._bytes.reserve(count, self._clock())
        if wait_s:
            self._sleep(wait_s)


class _Rate:
    """A bucket of tokens, kept as the time at which all taken tokens are paid for."""

    def __init__(self, per_s: float | None, now_s: float) -> None:
        self._per_s = per_s
        self._paid_at_s = now_s - _BURST_S

    def take(self, amount: float, now_s: float) -> bool:
        """Take the amount if it is there."""
        if self._per_s is None:
            return True
        paid_at_s = max(self._paid_at_s, now_s - _BURST_S) + amount / self._per_s
        if paid_at_s > now_s:
            return False
        self._paid_at_s = paid_at_s
        return True

    def reserve(self, amount: float, now_s: float) -> float:
        """Take the amount and return the seconds to wait for it."""
        if self._per_s is None:
            return 0.0
        self._paid_at_s = max(self._paid_at_s, now_s) + amount / self._per_s
        return self._paid_at_s - now_s
