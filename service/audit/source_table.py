"""What the source holds, compact: per TopicPartition columns of numbers, one row per entry (about 60 bytes).

    records   offset · first row · digest of its bytes
    rows      digest of values · event time · PartitionKey · id, timestamp, root · type · reasons · times seen

Owns the identity of entries: (topic, partition, offset, index) to row. PartitionKeys, types and reasons are
interned, so that a million alike cost a million small numbers.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Hashable
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from service.accounting import Counted
from service.oracle.equal import DIGEST_BYTES
from service.oracle.judge import JudgedEntry, JudgedRecord, record_digest, value_digest

if TYPE_CHECKING:
    from service.formats.model import PartitionKey, RootLink, SourceRecord, TopicPartition
    from service.oracle.decode import Reasons
    from service.oracle.expected_schema import Type

_DEAD = -1
_SEEN_MAX = 255

T = TypeVar("T", bound=Hashable)


class Interned(Generic[T]):
    """Values by small numbers, each value once."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._numbers: dict[T, int] = {}

    def number(self, value: T) -> int:
        """Return the number of a value."""
        number = self._numbers.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


class RecordAt(NamedTuple):
    """One source record: the rows of its entries and the digest of its bytes."""

    offset: int
    first_row: int
    next_row: int
    is_whole: bool
    digest: bytes

    @property
    def entries(self) -> int:
        """How many entries it counts as."""
        return self.next_row - self.first_row


class SourceColumns:
    """The records and entries of one TopicPartition, in offset order."""

    def __init__(self, tp: TopicPartition, table: SourceTable) -> None:
        self.tp = tp
        self._table = table
        self._offsets = array("q")
        self._timestamps = array("q")
        self._first_rows = array("q", [0])
        self._wholes = bytearray()
        self._record_digests = bytearray()
        self._digests = bytearray()
        self._event_times = array("q")
        self._keys = array("i")
        self._extras = array("q")
        self._types = array("i")
        self._reasons = array("h")
        # Below it the source is gone; what the worker says of it cannot be checked.
        self.low_offset = 0
        self.in_files = bytearray()
        self.in_dead_letters = bytearray()
        # Of these, the ones in references and dead letters of backfills.
        self.files_of_backfills = bytearray()
        self.dead_letters_of_backfills = bytearray()

    @property
    def records(self) -> int:
        """How many records it holds."""
        return len(self._offsets)

    @property
    def entries(self) -> int:
        """How many entries it holds, dead ones too."""
        return len(self._keys)

    def add(self, record: SourceRecord, judged: JudgedRecord) -> None:
        """Take the next record."""
        headers = record.headers
        self._offsets.append(record.offset)
        self._timestamps.append(-1 if record.timestamp_ms is None else record.timestamp_ms)
        self._wholes.append(judged.is_whole)
        self._record_digests += record_digest(value=value_digest(record.value), key=record.key, headers=headers)
        for entry in judged.entries:
            self._add_entry(entry)
        self._first_rows.append(len(self._keys))

    def find(self, offset: int) -> RecordAt | None:
        """Find a record by its offset."""
        at = bisect_left(self._offsets, offset)
        if at == len(self._offsets) or self._offsets[at] != offset:
            return None
        return self._record(at)

    def record_of_row(self, row: int) -> RecordAt:
        """Find the record that a row belongs to."""
        return self._record(bisect_left(self._first_rows, row + 1) - 1)

    def totals(self, first_offset: int, next_offset: int) -> Counted:
        """Count what an OffsetRange holds."""
        begin, end = bisect_left(self._offsets, first_offset), bisect_left(self._offsets, next_offset)
        if begin >= end:
            return Counted(0, 0, None, None, None)
        entries = self._first_rows[end] - self._first_rows[begin]
        timestamp = max(self._timestamps[begin:end])
        return Counted(
            end - begin,
            entries,
            self._offsets[begin],
            self._offsets[end - 1],
            None if timestamp < 0 else timestamp,
        )

    def rows(self, first_offset: int, next_offset: int) -> range:
        """Return the rows of an OffsetRange."""
        begin, end = bisect_left(self._offsets, first_offset), bisect_left(self._offsets, next_offset)
        return range(self._first_rows[begin], self._first_rows[end]) if begin < end else range(0)

    def is_deliverable(self, row: int) -> bool:
        """Return whether the entry must, or may, stand in a file."""
        return self._keys[row] != _DEAD

    def reasons(self, row: int) -> Reasons:
        """Return the reasons for which the entry may be dead."""
        return self._table.reasons.values[self._reasons[row]]

    def key(self, row: int) -> PartitionKey:
        """Return the PartitionKey of a deliverable entry."""
        return self._table.keys.values[self._keys[row]]

    def type_number(self, row: int) -> int:
        """Return the number of a deliverable entry's type."""
        return self._types[row]

    def event_time_us(self, row: int) -> int:
        """Return the event time of a deliverable entry."""
        return self._event_times[row]

    def has_digest(self, row: int, digest: bytes) -> bool:
        """Return whether the entry's values are those of the digest."""
        return self._digests[row * DIGEST_BYTES : (row + 1) * DIGEST_BYTES] == digest

    def has_extras(self, row: int, *, entry_id: str | None, timestamp_ms: int, root: RootLink | None) -> bool:
        """Return whether the entry has this id, and its record this timestamp and root."""
        return self._extras[row] == _extras(entry_id, timestamp_ms, root)

    def _record(self, at: int) -> RecordAt:
        return RecordAt(
            self._offsets[at],
            self._first_rows[at],
            self._first_rows[at + 1],
            bool(self._wholes[at]),
            bytes(self._record_digests[at * DIGEST_BYTES : (at + 1) * DIGEST_BYTES]),
        )

    def _add_entry(self, entry: JudgedEntry) -> None:
        deliverable = entry.deliverable
        self._reasons.append(self._table.reasons.number(entry.reasons))
        self.in_files.append(0)
        self.in_dead_letters.append(0)
        self.files_of_backfills.append(0)
        self.dead_letters_of_backfills.append(0)
        if deliverable is None:
            self._digests += bytes(DIGEST_BYTES)
            self._event_times.append(0)
            self._keys.append(_DEAD)
            self._extras.append(0)
            self._types.append(_DEAD)
            return
        self._digests += deliverable.digest
        self._event_times.append(deliverable.event_time_us)
        self._keys.append(self._table.keys.number(deliverable.key))
        self._extras.append(_extras(deliverable.id, deliverable.timestamp_ms, deliverable.root))
        self._types.append(self._table.types.number(deliverable.type))


class SourceTable:
    """All TopicPartitions of the source."""

    def __init__(self) -> None:
        self.columns: dict[TopicPartition, SourceColumns] = {}
        self.keys: Interned[PartitionKey] = Interned()
        self.types: Interned[Type] = Interned()
        self.reasons: Interned[Reasons] = Interned()

    def add(self, record: SourceRecord, judged: JudgedRecord) -> None:
        """Take a record; those of one TopicPartition come in offset order."""
        self.of(record.tp).add(record, judged)

    def of(self, tp: TopicPartition) -> SourceColumns:
        """Return the columns of a TopicPartition, empty ones if nothing is known of it."""
        columns = self.columns.get(tp)
        if columns is None:
            columns = self.columns[tp] = SourceColumns(tp, self)
        return columns


def count_seen(counts: bytearray, row: int) -> None:
    """Count that an entry was seen once more."""
    if counts[row] < _SEEN_MAX:
        counts[row] += 1


def _extras(entry_id: str | None, timestamp_ms: int, root: RootLink | None) -> int:
    return hash((entry_id, timestamp_ms, root))
