"""Rows -> blocks of an object file, each of one PartitionKey, under the object's schema; by Python, or compiled code.

Both write the same bytes. The compiled writer asks Python for entries whose text is not plain.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from log_partitioner import native
from log_partitioner.avro import container
from log_partitioner.avro.binary import encode_string
from log_partitioner.avro.bounded_cache import BoundedCache
from log_partitioner.avro.row_encoder import Encode, entry_encoder
from log_partitioner.avro.row_meta import encode_id, encode_meta, encode_origin, encode_root
from log_partitioner.batch.rows import PythonTexts, Rows
from log_partitioner.batch.types import CompiledTypes
from log_partitioner.boundary import Piece
from log_partitioner.config.settings import SchemaBounds

if TYPE_CHECKING:
    import log_partitioner_native

ENCODED_FIELDS_MAX = 200_000  # of all encoders that are kept
CHUNK_BYTES = 1024 * 1024  # of rows are written at once, and the rest of an indivisible last part


class PartToWrite(NamedTuple):
    """A part to write: rows [begin, end) in the order of sealing, of an exact type, for an object of the type `merged`.

    Hour and types are numbers, by which lines name them. A divisible part may be written in pieces.
    """

    begin: int
    end: int
    user: str
    hour: int
    exact_type: int
    merged: int
    is_divisible: bool


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
        types, limits = rows.types, rules.limits
        self._decode = rules.decode
        self._encoders: BoundedCache[tuple[int, int], Encode] = BoundedCache(
            lambda pair: entry_encoder(types.type_of(pair[0]), types.type_of(pair[1]), limits),
            weigh=lambda pair: 1 + types.type_of(pair[0]).fields,
            weight_max=ENCODED_FIELDS_MAX,
        )

    def write(self, text: bytes, part: PartToWrite, out: bytearray) -> None:
        """Write the entry of a row."""
        self.encoder_of(part)(self._decode(text), out)

    def encoder_of(self, part: PartToWrite) -> Encode:
        """Return the encoder of the entries of a part."""
        return self._encoders.get((part.exact_type, part.merged))


class PythonWriter:
    """Writes each entry by an `EntryWriter`."""

    def __init__(self, rows: Rows, order: Sequence[int], rules: WriteRules) -> None:
        assert isinstance(rows.texts, PythonTexts), "Python has kept the texts"
        self._rows = rows
        self._order = order
        self._rules = rules
        self._texts = rows.texts.read(order, rows.text_sizes, rules.read)
        self._origins = [encode_origin(tp) for tp in rows.tps]
        self._entries = EntryWriter(rows, rules)
        self._next = 0

    def write(self, parts: Sequence[PartToWrite]) -> Chunk:
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

    def _block(self, at: int, part: PartToWrite, user: bytes) -> tuple[int, bytearray]:
        """Write rows until a block is full; returns how many, and the block, not compressed."""
        rows, out, texts, rules = self._rows, bytearray(), self._texts, self._rules
        tp_of, offsets, times_us = rows.tp_of, rows.offsets, rows.event_times_us
        indexes, timestamps_ms, ids, roots, origins = (
            rows.indexes,
            rows.timestamps_ms,
            rows.ids,
            rows.roots,
            self._origins,
        )
        encode, count = self._entries.encoder_of(part), 0
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
            encode(rules.decode(next(texts)), out)
            count += 1
            if len(out) >= rules.block_bytes:
                break
        return count, out

    def _count(self, part: PartToWrite, length: int) -> Blocks:
        rows, order = self._rows, self._order[part.begin : self._next]
        times = [rows.event_times_us[row] for row in order]
        offsets_of: dict[int, list[int]] = {}
        for row in order:
            offsets_of.setdefault(rows.tp_of[row], []).append(rows.offsets[row])
        sources = [(tp, min(found), max(found), len(found)) for tp, found in offsets_of.items()]
        return Blocks(part.user, part.hour, part.exact_type, length, len(order), min(times), max(times), sources)


class CompiledWriter:
    """Writes texts as they are read, without parsing them into values."""

    def __init__(self, rows: Rows, order: array[int], rules: WriteRules) -> None:
        assert native.module is not None, "the fast lane is not installed"
        assert not isinstance(rows.texts, PythonTexts), "compiled code has kept the texts"
        assert isinstance(rows.types, CompiledTypes), "compiled code has the types"
        self._entries = EntryWriter(rows, rules)
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
            rows.types.compiled,
            {
                "block_bytes": rules.block_bytes,
                "chunk_bytes": CHUNK_BYTES,
                "ids": rows.ids,
                "roots": {row: encode_root(root) for row, root in rows.roots.items()},
                "compress": rules.compress,
                "sync": rules.sync,
            },
        )

    def write(self, parts: Sequence[PartToWrite]) -> Chunk:
        """Write the same as `PythonWriter.write`."""

        def slow(text: bytes, number: int) -> bytes:
            out = bytearray()
            self._entries.write(text, parts[number], out)
            return bytes(out)

        return self._sealer.write(parts, slow)
