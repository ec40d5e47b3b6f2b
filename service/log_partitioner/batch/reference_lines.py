"""Parts of one object -> lines of its messages, encoded as they are written, in groups that fit into a message.

Owns the values that lines share, and their numbers; `log_partitioner.batch.messages` adds the object once it is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from log_partitioner.avro.schema_types import RecordType, Scalar
from log_partitioner.batch.pack_schema import MergedFields
from log_partitioner.formats.model import PartitionKey, RootLink, TopicPartition
from log_partitioner.formats.reference import CoveredRange, RootRange

ROOTS_MAX = 1000  # of one reference; more are cut, and the line says so
SOURCE_BYTES = 120  # of one TopicPartition beside its topic
HOUR_BYTES = 20

Spans = Mapping[TopicPartition, tuple[int, int]]
"""[first_offset, next_offset) of the batch by TopicPartition."""
Sources = dict[TopicPartition, list[int]]
"""[min_offset, max_offset, entries] by TopicPartition."""

encode = msgspec.json.Encoder().encode


class Described(NamedTuple):
    """The content of a line, for one part; `nulls` counts the entries without a value by field of the exact type."""

    key: PartitionKey
    entry_type: RecordType
    entries: int
    event_time_min_us: int
    event_time_max_us: int
    nulls: Mapping[str, int]
    start: int
    length: int
    sources: Sources
    roots: Mapping[tuple[str, int], list[int]]


class LineGroup(NamedTuple):
    """The lines of one message, encoded as its list, and the lists that they point into.

    `entries` counts the entries of the lines by source.
    """

    sources: tuple[CoveredRange, ...]
    entries: tuple[int, ...]
    event_time_us: int
    hours: tuple[tuple[str, int], ...]
    schemas: tuple[msgspec.Raw, ...]
    references: int
    lines: msgspec.Raw


class LineWriter:
    """Writes the lines of one object, whose header has the type `merged`."""

    def __init__(self, merged: RecordType, spans: Spans, *, bytes_max: int) -> None:
        self.lines = 0
        self._fields = MergedFields(merged)
        self._spans = spans
        self._bytes_max = bytes_max
        self._projections: dict[RecordType, bytes] = {}
        self._groups: list[LineGroup] = []
        self._begin()

    def _begin(self) -> None:
        self._size = 0
        self._event_time_us: int | None = None
        self._sources: dict[TopicPartition, list[int]] = {}  # its number, where its span begins, entries named
        self._hours: dict[tuple[str, int], int] = {}
        self._schemas: dict[bytes, int] = {}
        self._last: tuple[RecordType | None, int] = (None, 0)
        self._new: list[dict[Any, Any]] = []  # one for each thing that the last line alone has brought into it
        self._count = 0
        self._lines = bytearray()  # one text: an object for each of a million lines would weigh more than they

    def add(self, part: Described) -> None:
        """Write the line of one part."""
        if self._new:
            self._new.clear()
        size = self._size
        line = self._line(part)
        if self._size + len(line) > self._bytes_max:
            line = self._fit(part, line, size)
        if self._count:
            self._lines += b","
        self._lines += line
        known = self._sources
        for tp, span in part.sources.items():
            known[tp][2] += span[2]
        self.lines += 1
        self._count += 1
        self._size += len(line) + 1

    def _fit(self, part: Described, line: bytes, size: int) -> bytes:
        """Begin the next group with this line, and shorten it if that is not enough; `size` is without it."""
        if self._count:
            self._size = size
            for table in self._new:
                table.popitem()
            self._last = None, 0
            self._end()
            line = self._line(part)
        for roots_max in (ROOTS_MAX, ROOTS_MAX // 10, 0):  # by topics of a hostile header, too
            if self._size + len(line) > self._bytes_max:
                line = self._line(part, with_nulls=False, roots_max=roots_max)
        return line

    def groups(self) -> list[LineGroup]:
        """Return all lines, in their order; call once, at the end."""
        if self._count:
            self._end()
        return self._groups

    def _end(self) -> None:
        covered = tuple(CoveredRange(tp.topic, tp.partition, *self._spans[tp]) for tp in self._sources)
        schemas = tuple(map(msgspec.Raw, self._schemas))
        lines = msgspec.Raw(b"[%b]" % bytes(self._lines))
        hours = tuple(self._hours)
        entries = tuple(named for _, _, named in self._sources.values())
        group = LineGroup(covered, entries, self._event_time_us or 0, hours, schemas, self._count, lines)
        self._groups.append(group)
        self._begin()

    def _line(self, part: Described, *, with_nulls: bool = True, roots_max: int = ROOTS_MAX) -> bytes:
        key, entry_type, entries, min_us, max_us, counted, start, length, sources, roots = part
        if self._event_time_us is None:
            self._event_time_us = min_us
        nulls: list[int] | None = None
        if with_nulls:
            nulls = []
            numbers = self._fields.numbers(entry_type)
            for number, count in sorted((numbers[name], count) for name, count in counted.items()):
                nulls += (number, count)
        line: list[Any] = [
            key[0],
            self._hour(key[1:]),
            entries,
            min_us - self._event_time_us,
            max_us - min_us,
            self._schema(entry_type),
            nulls,
            start,
            length,
            self._sources_of(sources),
        ]
        if roots:
            ranges = [RootRange(*root, *span) for root, span in sorted(roots.items())]
            line += (ranges[:roots_max], len(ranges) > roots_max)
        return encode(line)

    def _hour(self, hour: tuple[str, int]) -> int:
        number = self._hours.get(hour)
        if number is None:
            number = self._hours[hour] = len(self._hours)
            self._new.append(self._hours)
            self._size += HOUR_BYTES
        return number

    def _schema(self, entry_type: RecordType) -> int:
        if entry_type is self._last[0]:  # most entries of a pack are of few types, of which most come in rows
            return self._last[1]
        projection = self._projections.get(entry_type)
        if projection is None:
            projection = self._projections[entry_type] = encode(self._fields.projection(entry_type))
        number = self._schemas.get(projection)
        if number is None:
            number = self._schemas[projection] = len(self._schemas)
            self._new.append(self._schemas)
            self._size += len(projection) + 1
        self._last = entry_type, number
        return number

    def _sources_of(self, sources: Sources) -> list[int]:
        found: list[int] = []
        for tp, (low, high, entries) in sorted(sources.items()) if len(sources) > 1 else sources.items():
            known = self._sources.get(tp)
            if known is None:
                known = self._sources[tp] = [len(self._sources), self._spans[tp][0], 0]
                self._new.append(self._sources)
                self._size += SOURCE_BYTES + len(tp.topic)
            found += (known[0], low - known[1], high - low, entries)
        return found


def absent_fields(one: RecordType, entry_type: RecordType) -> tuple[str, ...]:
    """Name the fields of a type in which entries of another have no value; ascending."""
    return tuple(name for name in entry_type.by_name if one.by_name.get(name, Scalar.NULL) is Scalar.NULL)


def widen(spans: dict[Any, list[int]], place: Any, offset: int) -> None:
    """Count one more entry of an offset in [min, max, entries] of its place."""
    span = spans.get(place)
    if span is None:
        spans[place] = [offset, offset, 1]
    else:
        if offset > span[1]:
            span[1] = offset
        elif offset < span[0]:
            span[0] = offset
        span[2] += 1


def root_place(root: RootLink) -> tuple[str, int]:
    """Return the root TopicPartition of a link."""
    return root.topic, root.partition
