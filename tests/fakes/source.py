"""The source, read again by offset over a fake broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Self

from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import CouldNotTellError
from log_partitioner.formats.model import OffsetRanges, SourceRecord
from tests.fakes.broker import FakeBroker
from tests.fakes.consumer import Point, no_point


class FakeSource:
    """Fulfils `log_partitioner.proof.live.RangeReader`."""

    def __init__(self, broker: FakeBroker, wait: Callable[[], Deadline], *, point: Point = no_point) -> None:
        self._broker = broker
        self._wait = wait
        self._point = point

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of it."""

    def read(self, ranges: OffsetRanges) -> Iterator[SourceRecord]:
        """Yield the records of the ranges."""
        for tp, (first, end) in ranges.items():
            until = self._wait()
            self._point("reread")
            log = self._broker.logs[tp]
            if until.has_passed() or (first < end and (log.first_offset > first or log.broken_at(first, end))):
                raise CouldNotTellError(f"{tp}: cannot be read from {first}")
            yield from (one for one in log.read(first, end - first) if one.offset < end)
