"""Parts of one object -> lines of its messages, encoded as they are written, in groups that fit into a message.

Owns the values that lines share, and their numbers; `log_partitioner.batch.messages` adds the object once it is stored.
Compiled code and Python write the same lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from log_partitioner import native
from log_partitioner.batch.row_writer import Blocks, Chunk
from log_partitioner.batch.types import CompiledTypes, Types
from log_partitioner.formats.model import TopicPartition
from log_partitioner.formats.reference import CoveredRange

if TYPE_CHECKING:
    import log_partitioner_native

SOURCE_BYTES = 120  # of one TopicPartition beside its topic
HOUR_BYTES = 20

Spans = Mapping[TopicPartition, tuple[int, int]]
"""[first_offset, next_offset) of the batch by TopicPartition."""

encode = msgspec.json.Encoder().encode


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


class BatchNumbers:
    """The things of a batch that blocks name by number: TopicPartitions, types, and hours in the order of parts."""

    def __init__(self, tps: Sequence[TopicPartition], spans: Spans, types: Types, *, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.types = types
        self.hours: list[tuple[str, int]] = []
        self.covered = [CoveredRange(tp.topic, tp.partition, *spans[tp]) for tp in tps]
        self.ranks = [0] * len(tps)  # by TopicPartition, its place among all in order
        for rank, number in enumerate(sorted(range(len(tps)), key=tps.__getitem__)):
            self.ranks[number] = rank
        self._hours: dict[tuple[str, int], int] = {}

    def hour(self, hour: tuple[str, int]) -> int:
        """Return the number of an hour."""
        number = self._hours.get(hour)
        if number is None:
            number = self._hours[hour] = len(self.hours)
            self.hours.append(hour)
        return number


class LineWriter:
    """Writes the lines of one object, whose header has the type `merged`."""

    def __init__(self, merged: int, numbered: BatchNumbers) -> None:
        self.lines = 0
        self._merged = merged
        self._numbered = numbered
        self._projections: dict[int, bytes] = {}  # by number of the exact type
        self._groups: list[LineGroup] = []
        self._begin()

    def _begin(self) -> None:
        self._size = 0
        self._event_time_us = 0
        # The numbers that things have in the group, by those that they have in the batch; of schemas by their JSON.
        self._sources: dict[int, int] = {}
        self._hours: dict[int, int] = {}
        self._schemas: dict[bytes, int] = {}
        self._entries: Counter[int] = Counter()
        self._count = 0
        self._lines = bytearray()  # one text: an object for each of a million lines would weigh more than they

    def add(self, chunk: Chunk, first: int, last: int, start: int) -> None:
        """Write the lines of parts [first, last) of a chunk, whose blocks stand from `start` on."""
        for number in range(first, last):
            blocks = Blocks._make(chunk.blocks(number))
            self.add_line(blocks, start)
            start += blocks.length

    def add_line(self, blocks: Blocks, start: int) -> None:
        """Write the line of all blocks of a part; it begins the next group if this one has no room for it."""
        lengths = len(self._sources), len(self._hours), len(self._schemas)
        line = self._line(blocks, start)
        if self._count and self._size + len(line) > self._numbered.bytes_max:
            self._end(*lengths)
            line = self._line(blocks, start)
        self._lines += b"," if self._count else b"["
        self._lines += line
        for tp, _, _, rows in blocks.sources:
            self._entries[tp] += rows
        self.lines += 1
        self._count += 1
        self._size += len(line) + 1

    def groups(self) -> list[LineGroup]:
        """Return all lines, in their order; call once, at the end."""
        if self._count:
            self._end(len(self._sources), len(self._hours), len(self._schemas))
        return self._groups

    def _end(self, sources: int, hours: int, schemas: int) -> None:
        """End a group, with so many of its things: only the next line has the others."""
        numbered = self._numbered
        group = LineGroup(
            tuple(numbered.covered[tp] for tp in islice(self._sources, sources)),
            tuple(self._entries[tp] for tp in islice(self._sources, sources)),
            self._event_time_us,
            tuple(numbered.hours[hour] for hour in islice(self._hours, hours)),
            tuple(map(msgspec.Raw, islice(self._schemas, schemas))),
            self._count,
            msgspec.Raw(b"%b]" % bytes(self._lines)),
        )
        self._groups.append(group)
        self._begin()

    def _line(self, blocks: Blocks, start: int) -> bytes:
        if not self._count:
            self._event_time_us = blocks.earliest_us
        line: list[Any] = [
            blocks.user,
            self._number(self._hours, blocks.hour, HOUR_BYTES),
            blocks.rows,
            blocks.earliest_us - self._event_time_us,
            blocks.latest_us - blocks.earliest_us,
            self._schema(blocks.exact_type),
            start,
            blocks.length,
            self._sources_of(blocks),
        ]
        return encode(line)

    def _schema(self, exact_type: int) -> int:
        projection = self._projections.get(exact_type)
        if projection is None:
            projection = self._numbered.types.projection(exact_type, self._merged)
            self._projections[exact_type] = projection
        return self._number(self._schemas, projection, len(projection) + 1)

    def _sources_of(self, blocks: Blocks) -> list[int]:
        ranks = self._numbered.ranks
        found: list[int] = []
        for tp, low, high, entries in sorted(blocks.sources, key=lambda source: ranks[source[0]]):
            covered = self._numbered.covered[tp]
            number = self._number(self._sources, tp, SOURCE_BYTES + len(covered.topic))
            found += (number, low - covered.first_offset, high - low, entries)
        return found

    def _number(self, numbers: dict[Any, int], thing: int | bytes, size: int) -> int:
        """Return the number of a thing in the group; a new one is added, and its size counted."""
        number = numbers.get(thing)
        if number is None:
            number = numbers[thing] = len(numbers)
            self._size += size
        return number


class CompiledLines:
    """Writes the same lines of a pack by compiled code."""

    def __init__(self, merged: int, numbered: BatchNumbers) -> None:
        assert native.module is not None, "the fast lane is not installed"
        assert isinstance(numbered.types, CompiledTypes), "compiled code has the types"
        self._numbered = numbered
        covered = numbered.covered
        rules = {
            "bytes_max": numbered.bytes_max,
            "hour_bytes": HOUR_BYTES,
            "source_bytes": [SOURCE_BYTES + len(one.topic) for one in covered],
            "span_starts": [one.first_offset for one in covered],
            "ranks": numbered.ranks,
        }
        self._native: log_partitioner_native.Lines = native.module.Lines(rules, numbered.types.compiled, merged)

    @property
    def lines(self) -> int:
        """The number of lines."""
        return self._native.lines

    def add(self, chunk: Any, first: int, last: int, start: int) -> None:
        """Write the lines of parts [first, last) of a chunk, whose blocks stand from `start` on."""
        self._native.add(chunk, first, last, start)

    def groups(self) -> list[LineGroup]:
        """Return all lines, in their order; call once, at the end."""
        covered, hours = self._numbered.covered, self._numbered.hours
        return [
            LineGroup(
                tuple(covered[tp] for tp, _ in sources),
                tuple(named for _, named in sources),
                event_time_us,
                tuple(hours[hour] for hour in its_hours),
                tuple(map(msgspec.Raw, schemas)),
                count,
                msgspec.Raw(lines),
            )
            for sources, event_time_us, its_hours, schemas, count, lines in self._native.groups()
        ]
