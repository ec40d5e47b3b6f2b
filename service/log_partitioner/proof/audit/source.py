"""The source side of one flush, compact: a row of numbers per entry (about 40 bytes), with a count of its sightings.

Owns the identity of entries: (topic, partition, offset, index) to row. PartitionKey, type and reasons, which many
entries share, are held once.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from log_partitioner.proof.accounting import Counted
from log_partitioner.proof.oracle.equal import DIGEST_BYTES
from log_partitioner.proof.oracle.judge import JudgedRecord, record_digest, value_digest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from log_partitioner.formats.model import PartitionKey, RootLink, SourceRecord, TopicPartition
    from log_partitioner.proof.oracle.expected_schema import Type
    from log_partitioner.proof.oracle.format import Reasons

_SEEN_MAX = 255


class GivenUp(StrEnum):
    """Why no reader has the entries of a reference any more; values are names of counts."""

    ERASED = "entries_erased"
    """The user was erased, and the object is gone."""
    ACKNOWLEDGED = "entries_acknowledged"
    """A person has acknowledged the loss of the object."""


class EntryShape(NamedTuple):
    """The part of entries that many share, once in memory. Those without `key` and `type` must be dead."""

    key: PartitionKey | None
    type: Type | None
    reasons: Reasons


class Found(NamedTuple):
    """A record of the source: its rows, the digest of its bytes; `is_whole` as of a judged one."""

    rows: range
    is_whole: bool
    digest: bytes


class SourceColumn:
    """The records and entries of one TopicPartition, in offset order."""

    def __init__(self) -> None:
        self._offsets, self._timestamps, self._first_rows = array("q"), array("q"), array("q", [0])
        self._wholes, self._record_digests = bytearray(), bytearray()
        self._digests, self._metas = bytearray(), array("q")
        self.shapes: list[EntryShape] = []
        # How often each entry was seen in files and in dead letters.
        self.files, self.letters = bytearray(), bytearray()
        self.given_up: dict[int, GivenUp] = {}
        """Rows that nobody needs to have, by the reason."""
        self.ids: list[str | None] = []
        """The unique id of each entry, if they are kept."""

    def add(self, record: SourceRecord, judged: JudgedRecord, shared: dict[Hashable, Any]) -> None:
        """Take the next record; `shared` has the parts that entries share."""
        self._offsets.append(record.offset)
        self._timestamps.append(-1 if record.timestamp_ms is None else record.timestamp_ms)
        self._wholes.append(judged.is_whole)
        self._record_digests += record_digest(value=value_digest(record.value), key=record.key, headers=record.headers)
        for entry, reasons in judged.entries:
            key, kind, meta = None, None, 0
            if entry is not None:
                key, kind = entry.key, shared.setdefault(entry.type, entry.type)
                meta = hash((entry.event_time_us, entry.id, entry.timestamp_ms, entry.root))
            self._digests += entry.digest if entry else bytes(DIGEST_BYTES)
            self._metas.append(meta)
            self.shapes.append(shared.setdefault((key, id(kind), reasons), EntryShape(key, kind, reasons)))
        self._first_rows.append(len(self.shapes))
        self.files.extend(bytes(len(judged.entries)))
        self.letters.extend(bytes(len(judged.entries)))

    def records(self, first_offset: int, next_offset: int) -> Iterator[tuple[int | None, range]]:
        """Yield the timestamp and the rows of each record of an OffsetRange."""
        begin, end = bisect_left(self._offsets, first_offset), bisect_left(self._offsets, next_offset)
        for at in range(begin, end):
            timestamp_ms = self._timestamps[at]
            yield None if timestamp_ms < 0 else timestamp_ms, range(self._first_rows[at], self._first_rows[at + 1])

    def find(self, offset: int) -> Found | None:
        """Find a record."""
        at = bisect_left(self._offsets, offset)
        if at == len(self._offsets) or self._offsets[at] != offset:
            return None
        digest = bytes(self._record_digests[at * DIGEST_BYTES : (at + 1) * DIGEST_BYTES])
        return Found(range(self._first_rows[at], self._first_rows[at + 1]), bool(self._wholes[at]), digest)

    def place_of(self, row: int) -> tuple[int, int]:
        """Return offset and index of an entry."""
        at = bisect_left(self._first_rows, row + 1) - 1
        return self._offsets[at], row - self._first_rows[at]

    def rows(self, first_offset: int, next_offset: int) -> range:
        """Return the rows of an OffsetRange."""
        begin, end = bisect_left(self._offsets, first_offset), bisect_left(self._offsets, next_offset)
        return range(self._first_rows[begin], self._first_rows[max(begin, end)])

    def totals(self, first_offset: int, next_offset: int) -> Counted:
        """Count the records and entries of an OffsetRange."""
        begin, end = bisect_left(self._offsets, first_offset), bisect_left(self._offsets, next_offset)
        if begin >= end:
            return Counted(0, 0, None, None, None)
        entries, timestamp = self._first_rows[end] - self._first_rows[begin], max(self._timestamps[begin:end])
        offsets = self._offsets[begin], self._offsets[end - 1]
        return Counted(end - begin, entries, *offsets, None if timestamp < 0 else timestamp)

    def has_digest(self, row: int, digest: bytes) -> bool:
        """Return whether the entry's values have this digest."""
        return self._digests[row * DIGEST_BYTES : (row + 1) * DIGEST_BYTES] == digest

    def has_meta(self, row: int, meta: tuple[int, str | None, int, RootLink | None]) -> bool:
        """Return whether the entry has this event time, id, timestamp and root."""
        return self._metas[row] == hash(meta)


class FlushSource:
    """The columns of all TopicPartitions of one flush; one of which nothing is known is empty."""

    def __init__(self, *, keeps_ids: bool = False) -> None:
        self.columns: dict[TopicPartition, SourceColumn] = defaultdict(SourceColumn)
        self._shared: dict[Hashable, Any] = {}
        self._keeps_ids = keeps_ids

    def add(self, record: SourceRecord, judged: JudgedRecord) -> None:
        """Take a record; those of one TopicPartition come in offset order."""
        column = self.columns[record.tp]
        column.add(record, judged, self._shared)
        if self._keeps_ids:
            column.ids += [None if entry is None else entry.id for entry, _ in judged.entries]


def count_seen(counts: bytearray, row: int) -> None:
    """Count that an entry was seen once more."""
    counts[row] = min(counts[row] + 1, _SEEN_MAX)
