"""Committed offsets while faults come: how long until all that was written before a fault is committed."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tools.demo.lag import GroupLag, behind

_TURN_S = 0.25


@dataclass(slots=True)
class Recovery:
    """The recovery from one fault: `seconds` until everything written before its begin is committed, or None.

    `counts_from` is the time from which these seconds count.
    """

    kind: str
    before: Mapping[int, int]
    counts_from: float | None
    seconds: float | None = None


class CommitWatch:
    """Asks for committed offsets all the time, in a thread; a context manager.

    `lag` is asked, past all proxies; `written` returns the offsets behind the last acknowledged record.
    """

    def __init__(self, lag: GroupLag, written: Callable[[], Mapping[int, int]]) -> None:
        self.recoveries: list[Recovery] = []
        self.committed: Mapping[int, int] = {}
        self.still_s_max = 0.0
        """The longest time without any advance while records waited."""
        self._lag = lag
        self._written = written
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="commit-watch", daemon=True)

    def begin(self, kind: str, *, is_over: bool) -> Recovery:
        """Remember what is written at the begin of a fault; its time counts from now if it `is_over` at once."""
        recovery = Recovery(kind, dict(self._written()), time.monotonic() if is_over else None)
        self.recoveries.append(recovery)
        return recovery

    def end(self, recovery: Recovery) -> None:
        """Let the time of a fault count from now, if it does not yet."""
        if recovery.counts_from is None:
            recovery.counts_from = time.monotonic()

    @property
    def has_recovered(self) -> bool:
        """Whether everything that was written before any fault is committed."""
        return all(one.seconds is not None for one in self.recoveries)

    @property
    def lag_records(self) -> int | None:
        """Return the number of records that the group is behind the written ones."""
        return sum(behind(self._written(), self.committed).values()) if self.committed else None

    def __enter__(self) -> Self:
        """Begin to watch."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End, and close the connection."""
        self._ended.set()
        self._thread.join()
        self._lag.close()

    def _watch(self) -> None:
        advanced_at, reached = time.monotonic(), -1
        while not self._ended.wait(_TURN_S):
            written = dict(self._written())
            committed = self._lag.committed(written)
            now = time.monotonic()
            if not committed:
                continue  # Kafka did not answer, which counts as time without an advance
            self.committed = committed
            if sum(committed.values()) > reached or not any(behind(written, committed).values()):
                self.still_s_max = max(self.still_s_max, now - advanced_at)
                advanced_at, reached = now, sum(committed.values())
            for one in self.recoveries:
                self._settle(one, committed, now)

    def _settle(self, one: Recovery, committed: Mapping[int, int], now: float) -> None:
        counts_from = one.counts_from
        if one.seconds is None and counts_from is not None and not any(behind(one.before, committed).values()):
            one.seconds = max(0.0, now - counts_from)
