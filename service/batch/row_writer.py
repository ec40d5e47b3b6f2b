"""Rows of one PartitionKey -> the bytes of a block, under the schema of its object; by Python, or by compiled code.

Both write the same bytes. The compiled writer asks Python for entries whose text is not plain.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from service import native
from service.avro.row_encoder import WALKED_ENTRIES, EncodeEntry, entry_encoder, exact_encoder
from service.avro.row_meta import encode_id, encode_meta, encode_origin, encode_root
from service.avro.schema_types import Limits, RecordType
from service.batch.fast_lane import described
from service.batch.rows import Rows
from service.batch.texts import PythonTexts
from service.boundary import Piece

if TYPE_CHECKING:
    import log_partitioner_native

_NO_ID, _NO_ROOT = encode_id(None), encode_root(None)


class WriteRules(NamedTuple):
    """How entries are read and cut; `decode` reads a text as the recorder's decoder did, `read` reads a piece."""

    limits: Limits
    block_bytes: int
    decode: Callable[[bytes], Any]
    read: Callable[[Piece], bytes]


class WrittenBlock(NamedTuple):
    """Rows as bytes, not compressed, and what they are: counted as they were written.

    `sources` are (number of a TopicPartition, lowest and highest offset, rows), `types` (number of a type, rows).
    """

    data: bytes | bytearray
    rows: int
    earliest_us: int
    latest_us: int
    sources: Sequence[tuple[int, int, int, int]]
    types: Sequence[tuple[int, int]]


class RowWriter(Protocol):
    """Writes rows, which it gets in the order of sealing."""

    def block(self, at: int, end: int, user: bytes, written: RecordType) -> WrittenBlock:
        """Write rows from `at` on until a block is full or `end` is reached; all are of one user, which is encoded.

        Raises:
            SpoolError: the disk refused a text.
        """
        ...


class EntryWriter:
    """Decodes the texts of entries, and encodes them."""

    def __init__(self, rows: Rows, rules: WriteRules) -> None:
        self._rows = rows
        self._rules = rules
        self._encoders: dict[RecordType, _Encoders] = {}

    def write(self, row: int, text: bytes, written: RecordType, out: bytearray) -> None:
        """Write the entry of a row."""
        self.encoders_of(written)[self._rows.type_of[row]](self._rules.decode(text), out)

    def encoders_of(self, written: RecordType) -> _Encoders:
        """Return the encoders of rows in objects of one type, by the number of their own."""
        encoders = self._encoders.get(written)
        if encoders is None:
            types, counts, limits = self._rows.types, self._rows_of_type, self._rules.limits
            encoders = self._encoders[written] = _Encoders(written, types, counts, limits)
        return encoders

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

    def block(self, at: int, end: int, user: bytes, written: RecordType) -> WrittenBlock:
        """Write one block."""
        rows, out, texts, rules = self._rows, bytearray(), self._texts, self._rules
        type_of, tp_of, offsets, times_us = rows.type_of, rows.tp_of, rows.offsets, rows.event_times_us
        indexes, timestamps_ms, ids, roots, origins = (
            rows.indexes,
            rows.timestamps_ms,
            rows.ids,
            rows.roots,
            self._origins,
        )
        order, encoders = self._order[at:end], self._entries.encoders_of(written)
        for row in order:
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
            if len(out) >= rules.block_bytes:
                order = order[: order.index(row) + 1]
                break
        times = [times_us[row] for row in order]
        offsets_of: dict[int, list[int]] = {}
        for row in order:
            offsets_of.setdefault(tp_of[row], []).append(offsets[row])
        sources = [(tp, min(found), max(found), len(found)) for tp, found in offsets_of.items()]
        types = Counter([type_of[row] for row in order])
        return WrittenBlock(out, len(order), min(times), max(times), sources, [*types.items()])


class _Encoders(dict[int, EncodeEntry]):
    """The encoders of rows in one object, by the number of their type; made as they are asked for.

    Knows nothing of the writer: in a cycle with it the rows of a batch would outlive it.
    """

    def __init__(
        self, written: RecordType, types: Sequence[RecordType], rows_of_type: Mapping[int, int], limits: Limits
    ) -> None:
        super().__init__()
        self._written = written
        self._types = types
        self._rows_of_type = rows_of_type
        self._limits = limits

    def __missing__(self, number: int) -> EncodeEntry:
        encode = self[number] = self._choose(number)
        return encode

    def _choose(self, number: int) -> EncodeEntry:
        """Choose the encoder of rows of one type: what many rows have is worth compiling for."""
        if self._rows_of_type[number] >= WALKED_ENTRIES:
            return exact_encoder(self._types[number], self._written, self._limits)
        wide = entry_encoder(self._written, self._limits)

        def encode(entry: dict[str, Any], out: bytearray) -> None:
            wide.encode(entry, out)

        return encode


class CompiledWriter:
    """Writes texts as they are read, without values in between."""

    def __init__(self, rows: Rows, order: array[int], rules: WriteRules) -> None:
        assert native.module is not None, "the fast lane is not installed"
        assert not isinstance(rows.texts, PythonTexts), "compiled code reads what it has kept"
        self._native = native.module
        self._block_bytes = rules.block_bytes
        self._ids: Mapping[int, str] = rows.ids
        self._roots = {row: encode_root(root) for row, root in rows.roots.items()}
        self._entries = EntryWriter(rows, rules)
        self._written: dict[int, log_partitioner_native.Written] = {}  # by identity: the plan keeps the types
        self._sealer: log_partitioner_native.Sealer = native.module.Sealer(
            order,
            rows.type_of,
            rows.tp_of,
            rows.offsets,
            rows.indexes,
            rows.event_times_us,
            rows.timestamps_ms,
            [encode_origin(tp) for tp in rows.tps],
            rows.texts,
            rows.text_sizes,
            rules.read,
        )

    def block(self, at: int, end: int, user: bytes, written: RecordType) -> WrittenBlock:
        """Write one block."""
        compiled = self._written.get(id(written))
        if compiled is None:
            compiled = self._written[id(written)] = self._native.Written(described(written))

        def slow(row: int, text: bytes) -> bytes:
            out = bytearray()
            self._entries.write(row, text, written, out)
            return bytes(out)

        return WrittenBlock._make(
            self._sealer.block(at, end, user, compiled, self._block_bytes, self._ids, self._roots, slow)
        )
