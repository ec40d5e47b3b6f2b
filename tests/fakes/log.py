"""The log of one source TopicPartition: data records and legal holes."""

from __future__ import annotations

from log_partitioner.formats.model import Headers, SourceRecord, TopicPartition


class FakeLog:
    """Offsets from 0; a slot without a record is a hole: a control record, an aborted one, or compacted away."""

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.first_offset = 0
        self.leader_epoch = 0
        self.broken: list[range] = []
        self.open_at: int | None = None
        """The offset at which an open transaction begins: nothing from there on is read."""
        self._slots: list[SourceRecord | None] = []

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return len(self._slots)

    def end_of(self, leader_epoch: int) -> int:
        """Give the end offset of an epoch as a broker does: where the next one begins; none has one not begun yet."""
        if leader_epoch > self.leader_epoch:
            return -1
        later = (one.offset for one in self._slots if one is not None and (one.leader_epoch or 0) > leader_epoch)
        return next(later, self.end)

    @property
    def records(self) -> list[SourceRecord]:
        """All data records that are still there."""
        return [record for record in self._slots[self.first_offset :] if record is not None]

    def append(
        self, value: bytes | None, *, timestamp_ms: int | None = None, key: bytes | None = None, headers: Headers = ()
    ) -> SourceRecord:
        """Append a data record."""
        record = SourceRecord(self.tp, self.end, timestamp_ms, key, value, headers, self.leader_epoch)
        self._slots.append(record)
        return record

    def append_hole(self) -> None:
        """Append what no read_committed consumer gets to see."""
        self._slots.append(None)

    def broken_at(self, first: int, end: int) -> range | None:
        """Give the first broken record batch that reaches into [first, end)."""
        found = (one for one in sorted(self.broken, key=lambda one: one.start) if one.stop > first and one.start < end)
        return next(found, None)

    def read(self, position: int, records_max: int) -> list[SourceRecord]:
        """Read data records from a position on."""
        found: list[SourceRecord] = []
        for record in self._slots[position : self.open_at]:
            if len(found) == records_max:
                break
            if record is not None:
                found.append(record)
        return found
