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
from service.avro.row_encoder import WALKED_ENTRIES, EncodeEntry, entry_encoder, exact_encoder
from service.avro.row_meta import encode_id, encode_meta, encode_origin, encode_root, encode_user
from service.avro.schema import RowSchema, row_schema
from service.avro.schema_types import RecordType
from service.batch.pack_plan import Hour, LayoutRules, Part, Plan, plan_objects
from service.batch.reference_lines import Described, LineGroup, LineWriter, Spans, nulls_of, root_place, widen
from service.batch.rows import Rows
from service.boundary import BatchSpool, ObjectFile, SealedFile
from service.formats.model import PartitionKey, TopicPartition

_NO_ID, _NO_ROOT = encode_id(None), encode_root(None)


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


_Block = tuple[bytes, list[int]]
"""A block of an object, and the number of the TopicPartition of each row in it; one for every entry or two."""


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
        self.encoders: dict[int, EncodeEntry] = {}

    def write(self, blocks: Iterable[_Block]) -> None:
        """Append blocks and count what is in them."""
        for data, tps in blocks:
            self.file.write(data)
            for number in tps:  # `update` costs more for the one or two that most blocks have
                self.rows_of[number] += 1

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
        self._texts = rows.texts(plan.order, spool.read)
        self._origins = [encode_origin(tp) for tp in rows.tps]
        self._open: dict[tuple[int, Hour | None], _Writing] = {}
        self._next_number = 0
        self._rows_of_type = Counter(rows.type_of)

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
        self._write(part, writing, self._blocks(part, writing))
        return writing.finish(self._rows.keys[part.key], None, self._rows.tps)

    def _packed(self, part: Part, group: int) -> SealedObject | None:
        """Write into the pack of the group; gives the one before where that has no more room."""
        place, merged, full = (group, part.hour), self._plan.merged[group], None
        writing = self._open.get(place)
        if writing is None:
            writing = self._open[place] = self._begin(merged)
        blocks = list(self._blocks(part, writing))
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
        file = writing.file
        start = file.size
        writing.write(blocks)
        writing.lines.add(self._describe(part, self._rows.keys[part.key], start, file.size - start))

    def _blocks(self, part: Part, writing: _Writing) -> Iterator[_Block]:
        """Make the blocks of one part; those of one batch fit into every object of the same schema."""
        rows, rules = self._rows, self._rules
        user = encode_user(rows.keys[part.key].user)
        out = bytearray()
        waiting: list[int] = []
        for at in range(part.begin, part.end):
            row = self._plan.order[at]
            number = rows.type_of[row]
            encode = writing.encoders.get(number) or self._encoder(number, writing)
            out += self._meta(row, user)
            encode(rules.decode(next(self._texts)), out)
            waiting.append(rows.tp_of[row])
            if len(out) >= rules.block_bytes or at + 1 == part.end:
                yield container.block(len(waiting), out, compress=self._compress, sync=self._sync), waiting
                out, waiting = bytearray(), []

    def _encoder(self, number: int, writing: _Writing) -> EncodeEntry:
        """Choose the encoder of rows of one type in one object: what many rows have is worth compiling for."""
        written, limits = writing.entry_type, self._rules.bounds.limits
        if self._rows_of_type[number] >= WALKED_ENTRIES:
            encode = exact_encoder(self._rows.types[number], written, limits)
        else:
            wide = entry_encoder(written, limits)

            def encode(entry: dict[str, Any], out: bytearray) -> None:
                wide.encode(entry, out)

        writing.encoders[number] = encode
        return encode

    def _meta(self, row: int, user: bytes) -> bytes:
        rows = self._rows
        unique_id, root = rows.ids.get(row), rows.roots.get(row)
        return encode_meta(
            user=user,
            event_time_us=rows.event_times_us[row],
            unique_id=_NO_ID if unique_id is None else encode_id(unique_id),
            origin=self._origins[rows.tp_of[row]],
            offset=rows.offsets[row],
            index=rows.indexes[row],
            timestamp_ms=rows.timestamps_ms[row],
            root=_NO_ROOT if root is None else encode_root(root),
        )

    def _describe(self, part: Part, key: PartitionKey, start: int, length: int) -> Described:
        rows = self._rows
        sources: dict[Any, list[int]] = {}
        roots: dict[Any, list[int]] = {}
        order, times = self._plan.order, rows.event_times_us
        earliest = latest = times[order[part.begin]]
        for at in range(part.begin, part.end):
            row = order[at]
            time_us = times[row]
            if time_us < earliest:
                earliest = time_us
            elif time_us > latest:
                latest = time_us
            widen(sources, rows.tps[rows.tp_of[row]], rows.offsets[row])
            if row in rows.roots:
                root = rows.roots[row]
                widen(roots, root_place(root), root.offset)
        nulls = self._nulls_of(part)
        return Described(
            key, part.entry_type, part.end - part.begin, earliest, latest, nulls, start, length, sources, roots
        )

    def _nulls_of(self, part: Part) -> Mapping[str, int]:
        """Count the entries without a value: what is null in an entry follows from its type."""
        rows, order = self._rows, self._plan.order
        if part.end - part.begin == 1:
            return nulls_of({rows.types[rows.type_of[order[part.begin]]]: 1}, part.entry_type)
        counts: Counter[RecordType] = Counter()
        for number, count in Counter(rows.type_of[order[at]] for at in range(part.begin, part.end)).items():
            counts[rows.types[number]] += count
        return nulls_of(counts, part.entry_type)
