"""Rows of a closed batch -> finished objects in its spool: each row is written once, under its final schema.

    object    header · block · block · ...        a block holds rows of one PartitionKey; those of one stand together

Used by the worker's flush and by the backfill. Pure but for the spool that it is given.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from service.avro import container
from service.avro.container import SYNC_BYTES, Codec
from service.avro.entry_types import SchemaBounds
from service.avro.row_meta import encode_user
from service.avro.schema import RowSchema, row_schema
from service.avro.schema_types import RecordType
from service.batch.pack_plan import Hour, LayoutRules, Part, Plan, plan_objects
from service.batch.reference_lines import Described, LineGroup, LineWriter, Spans, absent_fields, root_place, widen
from service.batch.row_writer import CompiledWriter, PythonWriter, RowWriter, WriteRules, WrittenBlock
from service.batch.rows import Rows
from service.boundary import BatchSpool, ObjectFile, SealedFile
from service.formats.model import PartitionKey, TopicPartition


class SealRules(NamedTuple):
    """What sealing is made of; sizes in bytes. `decode` reads the text of an entry as the recorder's decoder did."""

    bounds: SchemaBounds
    layout: LayoutRules
    codec: Codec
    block_bytes: int
    group_bytes_max: int
    decode: Callable[[bytes], Any]


class SealedObject(NamedTuple):
    """A finished object: its number in the batch, its schema, what it holds and the lines that announce it.

    `key` is the PartitionKey of an object of its own; a pack has none, and an `hour` where it is one hour's.
    `sources` are how many of its rows are of which TopicPartition, counted as they were written.
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
        """How many rows it holds."""
        return sum(rows for _, rows in self.sources)


class Step(NamedTuple):
    """How many rows are written so far, and the object that was finished with the last of them, if one was."""

    rows: int
    finished: SealedObject | None


CACHED_FIELDS_MAX = 200_000

_Block = tuple[bytes, WrittenBlock]
"""A block of an object, compressed, and what is in it."""


class _Writing:
    """An object while it is written."""

    def __init__(
        self, number: int, file: ObjectFile, entry_type: RecordType, schema: RowSchema, lines: LineWriter
    ) -> None:
        self.number = number
        self.file = file
        self.entry_type = entry_type
        self.schema = schema
        self.header_bytes = file.size
        self.lines = lines
        self.rows_of: Counter[int] = Counter()  # by number of their TopicPartition

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
    """Write all objects of a batch, part by part; a caller may stop between two.

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
        self._compress = container.compressor(rules.codec)
        self._open: dict[tuple[int, Hour | None], _Writing] = {}
        self._next_number = 0
        # Fields without a value in entries of a type (by number) in a part of another (by identity: the plan keeps it).
        self._absent: dict[tuple[int, int], tuple[str, ...]] = {}
        self._writer: RowWriter = (CompiledWriter if rows.is_fast else PythonWriter)(
            rows, plan.order, WriteRules(rules.bounds.limits, rules.block_bytes, rules.decode, spool.read)
        )

    def run(self) -> Iterator[Step]:
        """Write part by part, in order."""
        hour: Hour | None = None
        rows = 0
        for part in self._plan.parts:
            key = self._rows.keys[part.key]
            if (key.date, key.hour) != hour:
                for finished in self._finish(hour) if hour else ():  # parts stand by hour: it is over
                    yield Step(rows, finished)
                hour = key.date, key.hour
            written = self._own(part) if part.group is None else self._packed(part, part.group)
            rows = part.end
            yield Step(rows, written)
        for finished in [one for place in (hour, None) for one in self._finish(place)]:
            yield Step(rows, finished)

    def _finish(self, hour: Hour | None) -> list[SealedObject]:
        places = [place for place in self._open if place[1] == hour]
        return [self._open.pop(place).finish(None, hour, self._rows.tps) for place in places]

    def _own(self, part: Part) -> SealedObject:
        writing = self._begin(part.entry_type)
        self._write(part, writing, self._blocks(part, part.entry_type))
        return writing.finish(self._rows.keys[part.key], None, self._rows.tps)

    def _packed(self, part: Part, group: int) -> SealedObject | None:
        """Write into the pack of the group; gives the one before where that has no more room."""
        place, merged, full = (group, part.hour), self._plan.merged[group], None
        writing = self._open.get(place)
        if writing is None:
            writing = self._open[place] = self._begin(merged)
        blocks = list(self._blocks(part, merged))
        size = writing.file.size + sum(len(data) for data, _ in blocks)
        if writing.rows_of and size > self._rules.layout.pack_bytes_max:
            full = writing.finish(None, part.hour, self._rows.tps)
            writing = self._open[place] = self._begin(merged)
        self._write(part, writing, blocks)
        return full

    def _begin(self, entry_type: RecordType) -> _Writing:
        number = self._next_number
        self._next_number += 1
        schema, rules = row_schema(entry_type), self._rules
        file = self._spool.create(number)
        metadata = {"lp-batch-id": self._batch_id}
        file.write(container.header(schema.text, codec=rules.codec, sync=self._sync, metadata=metadata))
        return _Writing(
            number, file, entry_type, schema, LineWriter(entry_type, self._spans, bytes_max=rules.group_bytes_max)
        )

    def _write(self, part: Part, writing: _Writing, blocks: Iterable[_Block]) -> None:
        """Write the blocks of one part, and its line."""
        file, written = writing.file, []
        start = file.size
        for data, block in blocks:
            file.write(data)
            written.append(block)
            for number, _, _, rows in block.sources:
                writing.rows_of[number] += rows
        writing.lines.add(self._describe(part, written, start, file.size - start))

    def _blocks(self, part: Part, entry_type: RecordType) -> Iterator[_Block]:
        """Make the blocks of one part; those of one batch fit into every object of the same schema."""
        user, at = encode_user(self._rows.keys[part.key].user), part.begin
        while at < part.end:
            block = self._writer.block(at, part.end, user, entry_type)
            at += block.rows
            yield container.block(block.rows, block.data, compress=self._compress, sync=self._sync), block

    def _describe(self, part: Part, blocks: list[WrittenBlock], start: int, length: int) -> Described:
        rows = self._rows
        block = blocks[0] if len(blocks) == 1 else _joined(blocks)
        roots: dict[Any, list[int]] = {}
        if rows.roots:
            for row in self._plan.order[part.begin : part.end]:
                if (root := rows.roots.get(row)) is not None:
                    widen(roots, root_place(root), root.offset)
        return Described(
            rows.keys[part.key],
            part.entry_type,
            part.end - part.begin,
            block.earliest_us,
            block.latest_us,
            self._nulls_of(block.types, part.entry_type),
            start,
            length,
            {rows.tps[number]: [low, high, count] for number, low, high, count in block.sources},
            roots,
        )

    def _nulls_of(self, types: Sequence[tuple[int, int]], entry_type: RecordType) -> Mapping[str, int]:
        """Count the entries without a value by field, ascending by name; what is null follows from an entry's type."""
        nulls: dict[str, int] = {}
        for number, count in types:
            absent = self._absent.get((number, id(entry_type)))
            for name in self._absent_in(number, entry_type) if absent is None else absent:
                nulls[name] = nulls.get(name, 0) + count
        return nulls if len(types) == 1 else dict(sorted(nulls.items()))

    def _absent_in(self, number: int, entry_type: RecordType) -> tuple[str, ...]:
        if len(self._absent) * entry_type.fields > CACHED_FIELDS_MAX:  # a hostile schema has a thousand
            self._absent.clear()
        absent = self._absent[number, id(entry_type)] = absent_fields(self._rows.types[number], entry_type)
        return absent


def _joined(blocks: Sequence[WrittenBlock]) -> WrittenBlock:
    """Return what the blocks of one part say together; their bytes are written already."""
    sources: dict[int, list[int]] = {}
    types: Counter[int] = Counter()
    for block in blocks:
        for number, low, high, count in block.sources:
            if (span := sources.get(number)) is None:
                sources[number] = [low, high, count]
            else:
                span[:] = min(span[0], low), max(span[1], high), span[2] + count
        for number, count in block.types:
            types[number] += count
    return WrittenBlock(
        b"",
        sum(block.rows for block in blocks),
        min((block.earliest_us for block in blocks), default=0),
        max((block.latest_us for block in blocks), default=0),
        [(number, low, high, count) for number, (low, high, count) in sources.items()],
        [*types.items()],
    )
