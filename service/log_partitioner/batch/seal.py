"""Rows of a closed batch -> finished objects in its spool: each row is written once, under its final schema.

    object    header · block · block · ...        a block holds rows of one PartitionKey; its blocks stand together

Used by the worker's flush and by the backfill. Pure but for the spool that it is given.
"""

from __future__ import annotations

import hashlib
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from log_partitioner.avro import container
from log_partitioner.avro.container import SYNC_BYTES
from log_partitioner.avro.schema import RowSchema, row_schema
from log_partitioner.avro.schema_types import RecordType
from log_partitioner.batch.pack_plan import Hour, Part, Plan, SealRules, plan_objects
from log_partitioner.batch.reference_lines import BatchNumbers, CompiledLines, LineGroup, LineWriter, Spans
from log_partitioner.batch.row_writer import (
    Blocks,
    Chunk,
    CompiledWriter,
    PartToWrite,
    PythonWriter,
    WriteRules,
    joined,
)
from log_partitioner.batch.rows import Rows
from log_partitioner.boundary import BatchSpool, ObjectFile, SealedFile
from log_partitioner.formats.model import PartitionKey, TopicPartition


class SealedObject(NamedTuple):
    """A finished object: its number in the batch, its schema, its contents and the lines that announce it.

    `key` is the PartitionKey of an object of its own; a pack has none. `hour` is set if a pack holds one hour only.
    `sources` counts the rows by TopicPartition, as they were written.
    """

    number: int
    file: SealedFile
    header_bytes: int
    entry_type: RecordType
    schema: RowSchema
    key: PartitionKey | None
    hour: Hour | None
    sources: tuple[tuple[TopicPartition, int], ...]
    references: int
    groups: list[LineGroup]

    @property
    def entries(self) -> int:
        """The number of its rows."""
        return sum(rows for _, rows in self.sources)


class Step(NamedTuple):
    """The rows written so far, and an object that is finished, if any; several steps may have the same rows."""

    rows: int
    finished: SealedObject | None


ROWS_AT_ONCE, PARTS_AT_ONCE = 1024, 256  # at most, between two steps

_Place = tuple[int, Hour | None]
"""The pack that is open for a group: one hour's, or of several."""
_Sealed = Generator[SealedObject, None, int]
"""Objects that are finished, and how far in the chunk its blocks are written."""


@dataclass(slots=True)
class _Writing:
    """An object while it is written; `pieces` are the blocks of a part that has not ended."""

    number: int
    file: ObjectFile
    entry_type: RecordType
    schema: RowSchema
    header_bytes: int
    lines: LineWriter | CompiledLines
    rows_of: Counter[int] = field(default_factory=Counter)  # by number of their TopicPartition
    pieces: list[Blocks] = field(default_factory=list)

    def write(self, data: bytes, rows_of: Iterable[tuple[int, int]]) -> None:
        """Write blocks, and count their rows by TopicPartition."""
        self.file.write(data)
        for number, rows in rows_of:
            self.rows_of[number] += rows

    def finish(self, key: PartitionKey | None, hour: Hour | None, tps: Sequence[TopicPartition]) -> SealedObject:
        """Close the object; `tps` are the TopicPartitions by number."""
        return SealedObject(
            number=self.number,
            file=self.file.finish(),
            header_bytes=self.header_bytes,
            entry_type=self.entry_type,
            schema=self.schema,
            key=key,
            hour=hour,
            sources=tuple((tps[number], rows) for number, rows in self.rows_of.items()),
            references=self.lines.lines,
            groups=self.lines.groups(),
        )


def seal(rows: Rows, spool: BatchSpool, spans: Spans, rules: SealRules, *, batch_id: str) -> Iterator[Step]:
    """Write all objects of a batch, some rows at a time; the caller may stop between two steps.

    Raises:
        SpoolError: the disk refused.
    """
    return Sealing(rows, spool, spans, rules, plan_objects(rows, rules), batch_id).run()


class Sealing:
    """The sealing of one batch."""

    def __init__(
        self, rows: Rows, spool: BatchSpool, spans: Spans, rules: SealRules, plan: Plan, batch_id: str
    ) -> None:
        self._rows = rows
        self._spool = spool
        self._rules = rules
        self._plan = plan
        self._batch_id = batch_id
        self._sync = hashlib.sha256(batch_id.encode()).digest()[:SYNC_BYTES]
        self._next_number = 0
        self._own: _Writing | None = None  # the object of its own of a part that has not ended
        self._packs: dict[_Place, _Writing] = {}
        self._hour: Hour | None = None
        self._numbered = BatchNumbers(rows.tps, spans, rows.types, bytes_max=rules.group_bytes_max)
        compress = container.compressor(rules.codec)
        write_rules = WriteRules(rules.bounds, rules.block_bytes, rules.decode, spool.read, compress, self._sync)
        self._writer = (CompiledWriter if rows.is_fast else PythonWriter)(rows, plan.order, write_rules)
        self._pack_lines = CompiledLines if rows.is_fast else LineWriter

    def run(self) -> Iterator[Step]:
        """Write part by part, in order."""
        parts, first, rows, is_whole = self._plan.parts, 0, 0, True
        while first < len(parts):
            behind = bisect_left(parts, rows + ROWS_AT_ONCE, first, key=attrgetter("end")) + 1
            some = parts[first : min(behind, first + PARTS_AT_ONCE)]
            unwritten = list(map(self._unwritten, some))
            if not is_whole:
                unwritten[0] = unwritten[0]._replace(begin=rows)
            chunk = self._writer.write(unwritten)
            written, rows = some[: len(chunk)], rows + chunk.rows
            is_whole = rows == written[-1].end
            is_right = is_whole or (written[-1].group is None and rows < written[-1].end)
            assert is_right and chunk.rows, f"W3: {rows} rows are written, a part ends with {written[-1].end}"  # noqa: PT018
            for finished in self._distribute(chunk, written):
                yield Step(rows, finished)
            yield Step(rows, None)
            first += len(written) - (not is_whole)
        for finished in self._finish(self._of_hour(self._hour) + self._of_hour(None)):
            yield Step(rows, finished)
        assert self._own is None, "W3: a part has not ended"

    def _unwritten(self, part: Part) -> PartToWrite:
        key = self._rows.keys[part.key]
        return PartToWrite(
            part.begin,
            part.end,
            key.user,
            self._numbered.hour(key[1:]),
            part.entry_type,
            part.entry_type if part.group is None else self._plan.merged[part.group],
            is_divisible=part.group is None,
        )

    def _distribute(self, chunk: Chunk, parts: Sequence[Part]) -> Iterator[SealedObject]:
        """Write a chunk into the objects of its parts, the last of which may go on; yields finished objects."""
        first = begin = 0
        for (hour, group), stretch in groupby(parts, self._destination):
            if hour != self._hour:  # parts stand by hour: it is over
                yield from self._finish(self._of_hour(self._hour)) if self._hour else ()
                self._hour = hour
            last = first + len(list(stretch))
            if group is not None:
                begin = yield from self._write_packed(chunk, (group, parts[first].hour), first, last, begin)
            else:
                for number in range(first, last):
                    begin = yield from self._write_own(chunk, parts[number], number, begin)
            first = last
        assert begin == len(chunk.data), f"W3: {len(chunk.data)} bytes of blocks, {begin} of them are a part's"

    def _destination(self, part: Part) -> tuple[Hour, int | None]:
        return self._rows.keys[part.key][1:], part.group

    def _finish(self, places: list[_Place]) -> Iterator[SealedObject]:
        for place in places:
            yield self._packs.pop(place).finish(None, place[1], self._rows.tps)

    def _of_hour(self, hour: Hour | None) -> list[_Place]:
        return [place for place in self._packs if place[1] == hour]

    def _write_own(self, chunk: Chunk, part: Part, number: int, begin: int) -> _Sealed:
        """Write the chunk's blocks of a part into an object of its own, which ends with the part."""
        writing = self._own = self._own or self._begin(part.entry_type, LineWriter)
        blocks = Blocks._make(chunk.blocks(number))
        writing.write(chunk.data[begin : begin + blocks.length], chunk.rows_of(number, number + 1))
        writing.pieces.append(blocks)
        if sum(piece.rows for piece in writing.pieces) == part.end - part.begin:
            self._own = None
            assert isinstance(writing.lines, LineWriter), "it began with one"
            writing.lines.add_line(joined(writing.pieces), writing.header_bytes)
            yield writing.finish(self._rows.keys[part.key], None, self._rows.tps)
        return begin + blocks.length

    def _write_packed(self, chunk: Chunk, place: _Place, first: int, last: int, begin: int) -> _Sealed:
        """Write the chunk's parts [first, last) into the pack of their place, and into a next one when it is full."""
        while first < last:
            writing = self._packs.get(place)
            if writing is None:
                replaced = self._plan.replaces.get(place[0])
                yield from self._finish([one for one in self._packs if one[0] == replaced])
                writing = self._packs[place] = self._begin(self._plan.merged[place[0]], self._pack_lines)
            start, is_empty = writing.file.size, not writing.rows_of
            behind, size = chunk.fitting(first, last, max(0, self._rules.pack_bytes_max - start))
            if is_empty and behind == first:
                behind, size = chunk.fitting(first, first + 1, sys.maxsize)  # it has room nowhere
            writing.write(chunk.data[begin : begin + size], chunk.rows_of(first, behind))
            writing.lines.add(chunk, first, behind, start)
            if behind < last:
                yield self._packs.pop(place).finish(None, place[1], self._rows.tps)
            first, begin = behind, begin + size
        return begin

    def _begin(self, merged: int, lines: type[LineWriter | CompiledLines]) -> _Writing:
        number = self._next_number
        self._next_number += 1
        entry_type = self._rows.types.type_of(merged)
        schema, rules = row_schema(entry_type), self._rules
        file = self._spool.create(number)
        metadata = {"lp-batch-id": self._batch_id}
        file.write(container.header(schema.text, codec=rules.codec, sync=self._sync, metadata=metadata))
        return _Writing(number, file, entry_type, schema, file.size, lines(merged, self._numbered))
