"""Rows -> blocks of an object file, each of one PartitionKey, under the object's schema; by Python, or compiled code.

Both write the same bytes. The compiled writer asks Python for entries whose text is not plain.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from log_partitioner import native
from log_partitioner.avro import container
from log_partitioner.avro.binary import encode_string
from log_partitioner.avro.bounded_cache import BoundedCache
from log_partitioner.avro.row_encoder import (
    CACHED_FIELDS_MAX,
    WALKED_ENTRIES,
    EncodeEntry,
    encode_some,
    entry_encoder,
    exact_encoder,
)
from log_partitioner.avro.row_meta import encode_id, encode_meta, encode_origin, encode_root
from log_partitioner.avro.schema_types import EMPTY_RECORD, RecordType, Scalar
from log_partitioner.batch.fast_lane import described
from log_partitioner.batch.pack_schema import MergedFields
from log_partitioner.batch.rows import PythonTexts, Rows
from log_partitioner.boundary import Piece
from log_partitioner.config.settings import SchemaBounds

if TYPE_CHECKING:
    import log_partitioner_native

CHUNK_BYTES = 1024 * 1024  # of rows are written at once, and what is left of the last part that is in one piece


class Unwritten(NamedTuple):
    """A part to write: rows [begin, end) in the order of sealing, for an object whose schema is that of `written`.

    `hour` and `exact_type` are the numbers by which lines name them. A divisible part may be written in pieces. `own`
    is the part's exact type if the object has fields beside each other.
    """

    begin: int
    end: int
    user: str
    hour: int
    exact_type: int
    written: RecordType
    is_divisible: bool
    own: RecordType | None = None


Source = tuple[int, int, int, int]
"""The number of a TopicPartition, the lowest and the highest offset of its rows, and the number of rows."""


class Blocks(NamedTuple):
    """Blocks of one part, `length` bytes of them, and counts of their rows; the first three are the part's."""

    user: str
    hour: int
    exact_type: int
    length: int
    rows: int
    earliest_us: int
    latest_us: int
    sources: Sequence[Source]


class PythonChunk:
    """Blocks of some parts, one behind the other, that Python has written; compiled code makes the same of its own.

    A divisible part that stands last may go on in the next chunk.
    """

    def __init__(self, data: bytes, parts: Sequence[Blocks]) -> None:
        self.data = data
        self.rows = sum(blocks.rows for blocks in parts)
        self._parts = parts

    def __len__(self) -> int:
        return len(self._parts)

    def blocks(self, number: int) -> Blocks:
        """Return the blocks of a part that are in this chunk."""
        return self._parts[number]

    def fitting(self, first: int, last: int, room: int) -> tuple[int, int]:
        """Take the first of parts [first, last) that fit into `room` bytes: the number behind them, and their bytes."""
        size = 0
        for number in range(first, last):
            if size + self._parts[number].length > room:
                return number, size
            size += self._parts[number].length
        return last, size

    def rows_of(self, first: int, last: int) -> Iterable[tuple[int, int]]:
        """Count the rows of parts [first, last) by number of their TopicPartition."""
        found: Counter[int] = Counter()
        for blocks in self._parts[first:last]:
            for number, _, _, rows in blocks.sources:
                found[number] += rows
        return found.items()


Chunk: TypeAlias = "PythonChunk | log_partitioner_native.Chunk"


def joined(written: Sequence[Blocks]) -> Blocks:
    """Add up several pieces of one part."""
    if len(written) == 1:
        return written[0]
    sources: dict[int, list[int]] = {}
    for blocks in written:
        for number, low, high, count in blocks.sources:
            if (span := sources.get(number)) is None:
                sources[number] = [low, high, count]
            else:
                span[:] = min(span[0], low), max(span[1], high), span[2] + count
    return written[0]._replace(
        length=sum(blocks.length for blocks in written),
        rows=sum(blocks.rows for blocks in written),
        earliest_us=min(blocks.earliest_us for blocks in written),
        latest_us=max(blocks.latest_us for blocks in written),
        sources=[(number, low, high, count) for number, (low, high, count) in sources.items()],
    )


SPARSE = 8  # times the fields of an entry are those of an object in which it is not walked through them all
_NO_ID, _NO_ROOT = encode_id(None), encode_root(None)


class WriteRules(NamedTuple):
    """How entries are read, cut and written; `decode` reads a text as the recorder's decoder did, `read` reads a piece.

    `compress` compresses the rows of a block; `sync` is the marker behind each block.
    """

    limits: SchemaBounds
    block_bytes: int
    decode: Callable[[bytes], Any]
    read: Callable[[Piece], bytes]
    compress: container.Compress
    sync: bytes


class EntryWriter:
    """Decodes the texts of entries, and encodes them."""

    def __init__(self, rows: Rows, rules: WriteRules) -> None:
        self._rows = rows
        self._rules = rules
        self._encoders: dict[RecordType, _Encoders] = {}
        # Of the last one: they come in rows, and there may be very many.
        self._fields_of: tuple[RecordType | None, MergedFields] = None, MergedFields(EMPTY_RECORD)
        self._beside: tuple[RecordType | None, Mapping[int, EncodeEntry]] = None, {}

    def write(self, row: int, text: bytes, part: Unwritten, out: bytearray) -> None:
        """Write the entry of a row."""
        self.encoders_of(part)[self._rows.type_of[row]](self._rules.decode(text), out)

    def encoders_of(self, part: Unwritten) -> Mapping[int, EncodeEntry]:
        """Return the encoders of the rows of a part, by the number of their type."""
        if part.own is not None:
            return self._beside_encoders(part.own, part.written)
        written = part.written
        encoders = self._encoders.get(written)
        if encoders is None:
            types, counts, limits = self._rows.types, self._rows_of_type, self._rules.limits
            encoders = self._encoders[written] = _Encoders(written, types, counts, limits)
        return encoders

    def _beside_encoders(self, own: RecordType, written: RecordType) -> Mapping[int, EncodeEntry]:
        """Return the encoder of entries within one exact type, for an object with fields beside each other."""
        if written is not self._fields_of[0]:
            self._fields_of = written, MergedFields(written)
        if own is not self._beside[0]:
            fields, limits = self._fields_of[1], self._rules.limits
            encode = partial(encode_some, fields.of(own), len(fields), limits)
            self._beside = own, defaultdict(lambda: encode)
        return self._beside[1]

    @cached_property
    def _rows_of_type(self) -> Counter[int]:
        return Counter(self._rows.type_of)


class PythonWriter:
    """Writes each entry by an `EntryWriter`."""

    def __init__(self, rows: Rows, order: Sequence[int], rules: WriteRules) -> None:
        assert isinstance(rows.texts, PythonTexts), "what compiled code has kept it seals"
        self._rows = rows
        self._order = order
        self._rules = rules
        self._texts = rows.texts.read(order, rows.text_sizes, rules.read)
        self._origins = [encode_origin(tp) for tp in rows.tps]
        self._entries = EntryWriter(rows, rules)
        self._next = 0

    def write(self, parts: Sequence[Unwritten]) -> Chunk:
        """Write parts, which follow each other in the order of sealing, until there are CHUNK_BYTES of rows.

        Raises:
            SpoolError: the disk refused a text.
        """
        size, out, found = 0, bytearray(), []
        for part in parts:
            if size >= CHUNK_BYTES:
                break
            assert part.begin == self._next, f"W3: row {self._next} is next, a part begins with {part.begin}"
            start, user = len(out), encode_string(part.user)
            while self._next < part.end and not (part.is_divisible and size >= CHUNK_BYTES):
                rows, data = self._block(self._next, part, user)
                out += container.block(rows, data, compress=self._rules.compress, sync=self._rules.sync)
                self._next += rows
                size += len(data)
            found.append(self._count(part, len(out) - start))
        return PythonChunk(bytes(out), found)

    def _block(self, at: int, part: Unwritten, user: bytes) -> tuple[int, bytearray]:
        """Write rows until a block is full; returns how many, and the block, not compressed."""
        rows, out, texts, rules = self._rows, bytearray(), self._texts, self._rules
        type_of, tp_of, offsets, times_us = rows.type_of, rows.tp_of, rows.offsets, rows.event_times_us
        indexes, timestamps_ms, ids, roots, origins = (
            rows.indexes,
            rows.timestamps_ms,
            rows.ids,
            rows.roots,
            self._origins,
        )
        encoders, count = self._entries.encoders_of(part), 0
        for row in self._order[at : part.end]:
            out += encode_meta(
                user,
                times_us[row],
                encode_id(ids[row]) if row in ids else _NO_ID,
                origins[tp_of[row]],
                offsets[row],
                indexes[row],
                timestamps_ms[row],
                encode_root(roots[row]) if row in roots else _NO_ROOT,
            )
            encoders[type_of[row]](rules.decode(next(texts)), out)
            count += 1
            if len(out) >= rules.block_bytes:
                break
        return count, out

    def _count(self, part: Unwritten, length: int) -> Blocks:
        rows, order = self._rows, self._order[part.begin : self._next]
        times = [rows.event_times_us[row] for row in order]
        offsets_of: dict[int, list[int]] = {}
        for row in order:
            offsets_of.setdefault(rows.tp_of[row], []).append(rows.offsets[row])
        sources = [(tp, min(found), max(found), len(found)) for tp, found in offsets_of.items()]
        return Blocks(part.user, part.hour, part.exact_type, length, len(order), min(times), max(times), sources)


class _Encoders(dict[int, EncodeEntry]):
    """The encoders of rows in one object, by the number of their type; made as they are asked for.

    Knows nothing of the writer: in a cycle with it the rows of a batch would outlive it.
    """

    def __init__(
        self, written: RecordType, types: Sequence[RecordType], rows_of_type: Mapping[int, int], limits: SchemaBounds
    ) -> None:
        super().__init__()
        self._written = written
        self._fields = MergedFields(written)
        self._types = types
        self._rows_of_type = rows_of_type
        self._limits = limits

    def __missing__(self, number: int) -> EncodeEntry:
        own, rows = self._types[number], self._rows_of_type[number]
        if rows < WALKED_ENTRIES and SPARSE * len(own.by_name) < len(self._fields):  # not kept: there may be very many
            return partial(encode_some, self._fields.of(own), len(self._fields), self._limits)
        encode = self[number] = self._choose(number)
        return encode

    def _choose(self, number: int) -> EncodeEntry:
        """Choose the encoder for rows of one type; compiling pays if many rows have the type."""
        if self._rows_of_type[number] >= WALKED_ENTRIES:
            return exact_encoder(self._types[number], self._written, self._limits)
        wide = entry_encoder(self._written, self._limits)

        def encode(entry: dict[str, Any], out: bytearray) -> None:
            wide.encode(entry, out)

        return encode


class CompiledWriter:
    """Writes texts as they are read, without parsing them into values."""

    def __init__(self, rows: Rows, order: array[int], rules: WriteRules) -> None:
        assert native.module is not None, "the fast lane is not installed"
        assert not isinstance(rows.texts, PythonTexts), "compiled code reads what it has kept"
        self._entries = EntryWriter(rows, rules)
        self._written: BoundedCache[RecordType, log_partitioner_native.Written] = BoundedCache(
            _compile, weigh=lambda written: 1 + written.fields, weight_max=CACHED_FIELDS_MAX
        )
        self._last: tuple[RecordType | None, log_partitioner_native.Written | None] = None, None
        self._sealer: log_partitioner_native.Sealer = native.module.Sealer(
            order,
            rows.tp_of,
            rows.offsets,
            rows.indexes,
            rows.event_times_us,
            rows.timestamps_ms,
            [encode_origin(tp) for tp in rows.tps],
            rows.texts,
            rows.text_sizes,
            rules.read,
            {
                "block_bytes": rules.block_bytes,
                "chunk_bytes": CHUNK_BYTES,
                "ids": rows.ids,
                "roots": {row: encode_root(root) for row, root in rows.roots.items()},
                "compress": rules.compress,
                "sync": rules.sync,
            },
        )

    def write(self, parts: Sequence[Unwritten]) -> Chunk:
        """Write the same as `PythonWriter.write`."""

        def slow(row: int, text: bytes, number: int) -> bytes:
            out = bytearray()
            self._entries.write(row, text, parts[number], out)
            return bytes(out)

        compiled = [(*part[:5], self._compiled(part.written), part.is_divisible) for part in parts]
        return self._sealer.write(compiled, slow)

    def _compiled(self, written: RecordType) -> log_partitioner_native.Written:
        last, compiled = self._last
        if compiled is None or written is not last:
            compiled = self._written.get(written)
            self._last = written, compiled
        return compiled


def _compile(written: RecordType) -> log_partitioner_native.Written:
    """Compile the type of an object; if it has fields beside each other, Python writes all its values."""
    assert native.module is not None, "the fast lane is not installed"
    if MergedFields(written).are_beside:
        nobodys = "x" * (1 + max(map(len, written.by_name)))  # longer than every key of the object's entries
        written = RecordType({f"{nobodys}{number}": Scalar.NULL for number in range(len(written.by_name))})
    compiled: log_partitioner_native.Written = native.module.Written(described(written))
    return compiled
