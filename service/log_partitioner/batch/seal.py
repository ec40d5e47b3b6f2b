"""Rows of a closed batch -> finished objects in its spool: each row is written once, under its final schema.

    object    header · block · block · ...        a block holds rows of one PartitionKey; those of one stand together

Used by the worker's flush and by the backfill. Pure but for the spool that it is given.
"""

from __future__ import annotations

import hashlib
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from log_partitioner.avro import container
from log_partitioner.avro.container import SYNC_BYTES, Codec
from log_partitioner.avro.entry_types import SchemaBounds
from log_partitioner.avro.schema import RowSchema, row_schema
from log_partitioner.avro.schema_types import RecordType
from log_partitioner.batch.chunk import Blocks, Chunk, Unwritten, joined
from log_partitioner.batch.compiled_lines import CompiledLines, Numbered
from log_partitioner.batch.describe import Describing
from log_partitioner.batch.pack_plan import Hour, LayoutRules, Part, Plan, plan_objects
from log_partitioner.batch.pack_schema import MergedFields
from log_partitioner.batch.reference_lines import LineGroup, LineWriter, Spans
from log_partitioner.batch.row_writer import CompiledWriter, PythonWriter, RowWriter, WriteRules
from log_partitioner.batch.rows import Rows
from log_partitioner.boundary import BatchSpool, ObjectFile, SealedFile
from log_partitioner.formats.model import PartitionKey, TopicPartition


class SealRules(NamedTuple):
    """The rules of sealing; sizes in bytes. `decode` reads the text of an entry as the recorder's decoder did."""

    bounds: SchemaBounds
    layout: LayoutRules
    codec: Codec
    block_bytes: int
    group_bytes_max: int
    decode: Callable[[bytes], Any]


class SealedObject(NamedTuple):
    """A finished object: its number in the batch, its schema, its contents and the lines that announce it.

    `key` is the PartitionKey of an object of its own; a pack has none, and an `hour` if it is one hour's. `sources`
    counts its rows by TopicPartition, as they were written.
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


COMPILED_TYPES_MAX = 20_000  # in a batch: compiled code asks what each type of rows lacks in each exact type
ROWS_AT_ONCE, PARTS_AT_ONCE = 1024, 256  # at most, of what is written between two steps

_Sealed = Generator[SealedObject, None, int]
"""Objects that are finished, and how far in the chunk its blocks are written."""


class _Writing:
    """An object while it is written; `pieces` are those of a part that has not ended."""

    def __init__(
        self,
        number: int,
        file: ObjectFile,
        entry_type: RecordType,
        schema: RowSchema,
        lines: LineWriter | CompiledLines,
    ) -> None:
        self.number = number
        self.file = file
        self.entry_type = entry_type
        self.schema = schema
        self.header_bytes = file.size
        self.lines = lines
        self.rows_of: Counter[int] = Counter()  # by number of their TopicPartition
        self.pieces: list[Blocks] = []

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


def seal(
    rows: Rows, spool: BatchSpool, spans: Spans, rules: SealRules, *, batch_id: str, is_one_record: bool
) -> Iterator[Step]:
    """Write all objects of a batch, some rows at a time; the caller may stop between two steps.

    Raises:
        SpoolError: the disk refused.
    """
    plan = plan_objects(rows, rules.bounds, rules.layout, is_one_record=is_one_record)
    return Sealing(rows, spool, spans, rules, plan, batch_id).run()


class Sealing:
    """The sealing of one batch."""

    def __init__(
        self, rows: Rows, spool: BatchSpool, spans: Spans, rules: SealRules, plan: Plan, batch_id: str
    ) -> None:
        self._rows = rows
        self._spool = spool
        self._spans = spans
        self._rules = rules
        self._plan = plan
        self._batch_id = batch_id
        self._sync = hashlib.sha256(batch_id.encode()).digest()[:SYNC_BYTES]
        self._next_number = 0
        self._own: _Writing | None = None  # the object of its own of a part that has not ended
        self._packs: dict[tuple[int, Hour | None], _Writing] = {}
        self._hour: Hour | None = None
        self._describing = Describing(rows, plan)
        self._with_beside = {group for group, one in enumerate(plan.merged) if MergedFields(one).are_beside}
        self._numbered: Numbered | None = None
        if rows.is_fast and not rows.roots and len(rows.types) <= COMPILED_TYPES_MAX:
            self._numbered = Numbered(rows.tps, spans, rows.types, bytes_max=rules.group_bytes_max)
        compress = container.compressor(rules.codec)
        self._writer: RowWriter = (CompiledWriter if rows.is_fast else PythonWriter)(
            rows,
            plan.order,
            WriteRules(rules.bounds.limits, rules.block_bytes, rules.decode, spool.read, compress, self._sync),
        )

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
            for finished in self._distribute(chunk, written, is_whole=is_whole):
                yield Step(rows, finished)
            yield Step(rows, None)
            first += len(written) - (not is_whole)
        for finished in [one for hour in (self._hour, None) for one in self._finish(hour)]:
            yield Step(rows, finished)

    def _unwritten(self, part: Part) -> Unwritten:
        key, numbered, hour, exact_type = self._rows.keys[part.key], self._numbered, 0, 0
        if part.group is None:
            return Unwritten(part.begin, part.end, key.user, hour, exact_type, part.entry_type, is_divisible=True)
        if numbered is not None:
            hour, exact_type = numbered.hour(key[1:]), numbered.exact_type(part.entry_type)
        merged, own = self._plan.merged[part.group], part.entry_type if part.group in self._with_beside else None
        return Unwritten(part.begin, part.end, key.user, hour, exact_type, merged, is_divisible=False, own=own)

    def _distribute(self, chunk: Chunk, parts: Sequence[Part], *, is_whole: bool) -> Iterator[SealedObject]:
        """Write a chunk into the objects of its parts, the last of which may go on; yields finished objects."""
        first = begin = 0
        for (hour, group), stretch in groupby(parts, self._destination):
            if hour != self._hour:  # parts stand by hour: it is over
                yield from self._finish(self._hour) if self._hour else ()
                self._hour = hour
            last = first + len(list(stretch))
            if group is not None:
                begin = yield from self._write_packed(chunk, parts, (group, parts[first].hour), first, last, begin)
            else:
                for number in range(first, last):
                    ends = is_whole or number < len(parts) - 1
                    begin = yield from self._write_own(chunk, parts[number], number, begin, ends=ends)
            first = last
        assert begin == len(chunk.data), f"W3: {len(chunk.data)} bytes of blocks, {begin} of them are a part's"

    def _destination(self, part: Part) -> tuple[Hour, int | None]:
        return self._rows.keys[part.key][1:], part.group

    def _finish(self, hour: Hour | None) -> list[SealedObject]:
        places = [place for place in self._packs if place[1] == hour]
        return [self._packs.pop(place).finish(None, hour, self._rows.tps) for place in places]

    def _finish_passed(self, group: int) -> list[SealedObject]:
        """Finish the packs of groups that end when this one begins."""
        places = [place for place in self._packs if self._plan.passing <= place[0] < group]
        return [self._packs.pop(place).finish(None, place[1], self._rows.tps) for place in places]

    def _write_own(self, chunk: Chunk, part: Part, number: int, begin: int, *, ends: bool) -> _Sealed:
        """Write the chunk's blocks of a part into an object of its own."""
        writing = self._own = self._own or self._begin(part.entry_type, is_pack=False)
        blocks = Blocks._make(chunk.blocks(number))
        writing.write(chunk.data[begin : begin + blocks.length], chunk.rows_of(number, number + 1))
        writing.pieces.append(blocks)
        if ends:
            self._own = None
            self._add_lines(writing, [(part, joined(writing.pieces))], writing.header_bytes)
            yield writing.finish(self._rows.keys[part.key], None, self._rows.tps)
        return begin + blocks.length

    def _write_packed(
        self, chunk: Chunk, parts: Sequence[Part], place: tuple[int, Hour | None], first: int, last: int, begin: int
    ) -> _Sealed:
        """Write the chunk's parts [first, last) into the pack of their place, and into a next one when it is full."""
        while first < last:
            writing = self._packs.get(place)
            if writing is None:
                yield from self._finish_passed(place[0])
                writing = self._packs[place] = self._begin(self._plan.merged[place[0]], is_pack=True)
            start, is_empty = writing.file.size, not writing.rows_of
            behind, size = chunk.fitting(first, last, max(0, self._rules.layout.pack_bytes_max - start))
            if is_empty and behind == first:
                behind, size = chunk.fitting(first, first + 1, sys.maxsize)  # it has room nowhere
            writing.write(chunk.data[begin : begin + size], chunk.rows_of(first, behind))
            if isinstance(writing.lines, CompiledLines):
                writing.lines.add(chunk, first, behind, start)
            else:
                written = ((parts[one], Blocks._make(chunk.blocks(one))) for one in range(first, behind))
                self._add_lines(writing, written, start)
            if behind < last:
                yield self._packs.pop(place).finish(None, place[1], self._rows.tps)
            first, begin = behind, begin + size
        return begin

    def _begin(self, entry_type: RecordType, *, is_pack: bool) -> _Writing:
        number = self._next_number
        self._next_number += 1
        schema, rules = row_schema(entry_type), self._rules
        file = self._spool.create(number)
        metadata = {"lp-batch-id": self._batch_id}
        file.write(container.header(schema.text, codec=rules.codec, sync=self._sync, metadata=metadata))
        lines: LineWriter | CompiledLines
        if is_pack and self._numbered is not None:
            lines = CompiledLines(entry_type, self._numbered)
        else:
            lines = LineWriter(entry_type, self._spans, bytes_max=rules.group_bytes_max)
        return _Writing(number, file, entry_type, schema, lines)

    def _add_lines(self, writing: _Writing, written: Iterable[tuple[Part, Blocks]], start: int) -> None:
        """Write the lines of parts whose blocks stand from `start` on."""
        assert isinstance(writing.lines, LineWriter), "compiled code describes what it has written"
        for part, blocks in written:
            writing.lines.add(self._describing.describe(part, blocks, start))
            start += blocks.length
