"""Rows of one PartitionKey -> the bytes of a block, under the schema of its object; by Python, or by compiled code.

Both write the same bytes. The compiled writer asks the other one for entries whose text is not plain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from service import native
from service.avro.row_encoder import WALKED_ENTRIES, EncodeEntry, entry_encoder, exact_encoder
from service.avro.row_meta import encode_id, encode_meta, encode_origin, encode_root
from service.avro.schema_types import Limits, RecordType
from service.batch.fast_lane import described
from service.batch.reference_lines import widen
from service.batch.rows import Rows

if TYPE_CHECKING:
    import log_partitioner_native

_NO_ID, _NO_ROOT = encode_id(None), encode_root(None)


class WriteRules(NamedTuple):
    """How entries are read and cut; `decode` reads a text as the recorder's decoder did."""

    limits: Limits
    block_bytes: int
    decode: Callable[[bytes], Any]


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


class PythonWriter:
    """Decodes each text, and encodes the entry."""

    def __init__(self, rows: Rows, order: Sequence[int], texts: Iterator[bytes], rules: WriteRules) -> None:
        self._rows = rows
        self._order = order
        self._texts = texts
        self._rules = rules
        self._origins = [encode_origin(tp) for tp in rows.tps]
        self._rows_of_type = Counter(rows.type_of)
        self._encoders: dict[tuple[int, RecordType], EncodeEntry] = {}

    def block(self, at: int, end: int, user: bytes, written: RecordType) -> WrittenBlock:
        """Write one block."""
        rows, out = self._rows, bytearray()
        sources: dict[int, list[int]] = {}
        types: Counter[int] = Counter()
        earliest = latest = rows.event_times_us[self._order[at]]
        for place in range(at, end):
            row = self._order[place]
            time_us = rows.event_times_us[row]
            earliest, latest = min(earliest, time_us), max(latest, time_us)
            widen(sources, rows.tp_of[row], rows.offsets[row])
            types[rows.type_of[row]] += 1
            out += self._meta(row, user)
            self.write_entry(row, next(self._texts), written, out)
            if len(out) >= self._rules.block_bytes:
                break
        spans = [(tp, low, high, count) for tp, (low, high, count) in sources.items()]
        return WrittenBlock(out, types.total(), earliest, latest, spans, [*types.items()])

    def write_entry(self, row: int, text: bytes, written: RecordType, out: bytearray) -> None:
        """Write the entry of a row."""
        number = self._rows.type_of[row]
        encode = self._encoders.get((number, written)) or self._encoder(number, written)
        encode(self._rules.decode(text), out)

    def _encoder(self, number: int, written: RecordType) -> EncodeEntry:
        """Choose the encoder of rows of one type in one object: what many rows have is worth compiling for."""
        limits = self._rules.limits
        if self._rows_of_type[number] >= WALKED_ENTRIES:
            encode = exact_encoder(self._rows.types[number], written, limits)
        else:
            wide = entry_encoder(written, limits)

            def encode(entry: dict[str, Any], out: bytearray) -> None:
                wide.encode(entry, out)

        self._encoders[number, written] = encode
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


class CompiledWriter:
    """Writes texts as they are read, without values in between."""

    def __init__(self, rows: Rows, order: Sequence[int], texts: Iterator[bytes], rules: WriteRules) -> None:
        assert native.module is not None, "the fast lane is not installed"
        self._native = native.module
        self._texts = texts
        self._block_bytes = rules.block_bytes
        self._ids: Mapping[int, str] = rows.ids
        self._roots = {row: encode_root(root) for row, root in rows.roots.items()}
        self._python = PythonWriter(rows, order, texts, rules)
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
        )

    def block(self, at: int, end: int, user: bytes, written: RecordType) -> WrittenBlock:
        """Write one block."""
        compiled = self._written.get(id(written))
        if compiled is None:
            compiled = self._written[id(written)] = self._native.Written(described(written))

        def slow(row: int, text: bytes) -> bytes:
            out = bytearray()
            self._python.write_entry(row, text, written, out)
            return bytes(out)

        return WrittenBlock._make(
            self._sealer.block(at, end, self._texts, user, compiled, self._block_bytes, self._ids, self._roots, slow)
        )
