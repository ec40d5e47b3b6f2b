"""One file in the making: the rows of one PartitionKey, in segments, under a schema that grows (DESIGN 3.3).

    entries of the first rows     decoded; their schema is joined, they are encoded when there are more
    segments                      encoded rows, one segment per schema in force when they were written
    blocks                        compressed Avro blocks that left memory (`take_block`), with their schema

A row encoded under an earlier schema is not valid under a later one, so rows are re-encoded when they leave memory
and, for blocks that left before the schema grew, when the file is sealed. Pure: the caller owns disk and clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from service.core import container
from service.core.avro_binary import decode_long
from service.core.avro_schema import row_schema
from service.core.container import Codec
from service.core.lattice import EMPTY_RECORD, Limits, RecordType, join_records
from service.core.model import PartitionKey, RootLink, TopicPartition
from service.core.row_decoder import decode_entry
from service.core.row_encoder import EntryEncoder, Misfit, entry_encoder
from service.core.row_meta import skip_meta
from service.core.schema_infer import fit_entry, infer_entry

DECODED_ROWS_MAX = 16
DECODED_BYTES_MAX = 16 * 1024
DECODED_WEIGHT = 4  # what a decoded row takes in memory, in its bytes on the wire


class FileBounds(NamedTuple):
    """What one file may hold: the lattice's limits, fields and bytes of its schema, bytes of its rows."""

    limits: Limits
    fields_max: int
    schema_bytes_max: int
    block_bytes: int
    object_bytes_max: int


class SchemaFullError(Exception):
    """The joined schema would pass a limit: seal this file, go on in a new one. Nothing was appended."""


class OffsetSpan:
    """The offsets of one TopicPartition (or root) that rows of a file come from."""

    __slots__ = ("entries", "max_offset", "min_offset")

    def __init__(self, offset: int) -> None:
        self.min_offset = offset
        self.max_offset = offset
        self.entries = 1

    def add(self, offset: int) -> None:
        """Count one more entry; offsets may come again, never go back within a TopicPartition."""
        self.min_offset = min(self.min_offset, offset)
        self.max_offset = max(self.max_offset, offset)
        self.entries += 1


class _Segment:
    """Encoded rows under one schema; `masks` counts their null masks."""

    __slots__ = ("data", "encoder", "entry_type", "masks", "rows")

    def __init__(self, entry_type: RecordType, encoder: EntryEncoder) -> None:
        self.entry_type = entry_type
        self.encoder = encoder
        self.data = bytearray()
        self.rows = 0
        self.masks: Counter[int] = Counter()


class _Block(NamedTuple):
    """A compressed block outside memory: its schema and where it lies in the local file."""

    entry_type: RecordType
    start: int
    length: int


class PartitionFile:
    """Collects the rows of one PartitionKey; not to be used after `seal`."""

    __slots__ = (
        "_blocks",
        "_bounds",
        "_codec",
        "_decoded",
        "_decoded_bytes",
        "_entry_type",
        "_segments",
        "_sync",
        "event_time_max_us",
        "event_time_min_us",
        "key",
        "non_nulls",
        "number",
        "origins",
        "roots",
        "row_bytes",
        "rows",
        "spilled_bytes",
    )  # fmt: skip

    def __init__(self, key: PartitionKey, *, number: int, bounds: FileBounds, codec: Codec, sync: bytes) -> None:
        self.key = key
        self.number = number
        self._bounds = bounds
        self._codec = codec
        self._sync = sync
        self._entry_type = EMPTY_RECORD
        self._decoded: list[tuple[bytes, dict[str, Any]]] = []
        self._decoded_bytes = 0
        self._segments: list[_Segment] = []
        self._blocks: list[_Block] = []
        self.spilled_bytes = 0
        self.rows = 0
        self.row_bytes = 0
        self.event_time_min_us = 2**63
        self.event_time_max_us = -(2**63)
        self.origins: dict[TopicPartition, OffsetSpan] = {}
        self.roots: dict[tuple[str, int], OffsetSpan] = {}
        self.non_nulls: Counter[str] = Counter()

    @property
    def entry_type(self) -> RecordType:
        """The aggregated schema so far."""
        return self._entry_type

    @property
    def memory_bytes(self) -> int:
        """Bytes of rows in memory; decoded rows are counted by DECODED_WEIGHT."""
        return DECODED_WEIGHT * self._decoded_bytes + sum(len(segment.data) for segment in self._segments)

    @property
    def block_is_full(self) -> bool:
        """Whether enough rows are in memory for a block on disk."""
        return sum(len(segment.data) for segment in self._segments) >= self._bounds.block_bytes

    @property
    def is_full(self) -> bool:
        """Whether the object has as many bytes of rows as one object may have."""
        return self.row_bytes >= self._bounds.object_bytes_max

    def append(
        self,
        meta: bytes,
        entry: dict[str, Any],
        *,
        tp: TopicPartition,
        offset: int,
        event_time_us: int,
        root: RootLink | None,
        wire_bytes: int,
    ) -> None:
        """Add one row.

        Raises:
            SchemaFullError: the schema has no room for this entry; nothing was appended.
            TooDeepError, TooManyFieldsError: no schema has room for this entry; nothing was appended.
        """
        if self._segments:
            self.row_bytes += self._append_encoded(meta, entry)
        else:
            self._grow(entry)
            self._decoded.append((meta, entry))
            self._decoded_bytes += wire_bytes + len(meta)
            self.row_bytes += wire_bytes + len(meta)
            if len(self._decoded) >= DECODED_ROWS_MAX or self._decoded_bytes >= DECODED_BYTES_MAX:
                self._encode_decoded()
        self.rows += 1
        self.event_time_min_us = min(self.event_time_min_us, event_time_us)
        self.event_time_max_us = max(self.event_time_max_us, event_time_us)
        _count(self.origins, tp, offset)
        if root is not None:
            _count(self.roots, (root.topic, root.partition), root.offset)

    def take_block(self) -> bytes:
        """Move the rows in memory into one compressed block, which the caller appends to the local file.

        Returns b"" where no rows are in memory.
        """
        self._encode_decoded()
        rows, data = self._normalise()
        if not rows:
            return b""
        packed = container.block(rows, data, codec=self._codec, sync=self._sync)
        self._blocks.append(_Block(self._entry_type, self.spilled_bytes, len(packed)))
        self.spilled_bytes += len(packed)
        self._segments = [self._new_segment()]
        return packed

    def seal(self, read: Callable[[int, int], bytes], *, metadata: Mapping[str, str]) -> Iterator[bytes]:
        """Yield the finished Avro container file piece by piece; `read(start, length)` gives spilled bytes back."""
        self._encode_decoded()
        schema = row_schema(self._entry_type)
        yield container.header(schema.text, codec=self._codec, sync=self._sync, metadata=metadata)
        for spilled in self._blocks:
            packed = read(spilled.start, spilled.length)
            yield (packed if spilled.entry_type == self._entry_type else self._rewrite(packed, spilled.entry_type))
        rows, data = self._normalise()
        if rows:
            yield container.block(rows, data, codec=self._codec, sync=self._sync)

    def _append_encoded(self, meta: bytes, entry: dict[str, Any]) -> int:
        """Append to the newest segment, under its schema or the next; returns the bytes of the row."""
        segment = self._segments[-1]
        start = len(segment.data)
        segment.data += meta
        try:
            mask = segment.encoder.encode(entry, segment.data)
        except Misfit:
            del segment.data[start:]
            self._grow(entry)
            assert self._entry_type != segment.entry_type, f"{entry!r} misfits a type that holds it"
            self._segments.append(self._new_segment())
            return self._append_encoded(meta, entry)
        except BaseException:
            del segment.data[start:]
            raise
        segment.rows += 1
        segment.masks[mask] += 1
        return len(segment.data) - start

    def _grow(self, entry: dict[str, Any]) -> None:
        bounds = self._bounds
        entry_type = infer_entry(entry, bounds.limits)
        entry_type = fit_entry(entry_type, fields_max=bounds.fields_max, bytes_max=bounds.schema_bytes_max)
        joined = join_records(self._entry_type, entry_type, object_keys_max=bounds.limits.object_keys_max)
        if self.rows and (joined.fields > bounds.fields_max or joined.size > bounds.schema_bytes_max):
            raise SchemaFullError
        self._entry_type = joined

    def _new_segment(self) -> _Segment:
        return _Segment(self._entry_type, entry_encoder(self._entry_type, self._bounds.limits))

    def _encode_decoded(self) -> None:
        if not self._segments:
            self._segments.append(self._new_segment())
        decoded, self._decoded, self._decoded_bytes = self._decoded, [], 0
        for meta, entry in decoded:
            self._append_encoded(meta, entry)

    def _normalise(self) -> tuple[int, bytearray]:
        """Bring all rows in memory under the newest schema and count their values; returns rows and bytes."""
        rows, out = 0, bytearray()
        for segment in self._segments:
            rows += segment.rows
            self._count_values(segment)
            if segment.entry_type == self._entry_type:
                out += segment.data
            else:
                out += self._reencode(bytes(segment.data), segment.rows, segment.entry_type)
        return rows, out

    def _count_values(self, segment: _Segment) -> None:
        counts = self.non_nulls
        for mask, count in segment.masks.items():
            for number, name in enumerate(segment.entry_type.by_name):
                if not mask >> number & 1:
                    counts[name] = counts.get(name, 0) + count

    def _rewrite(self, packed: bytes, entry_type: RecordType) -> bytes:
        rows, at = decode_long(packed, 0)
        length, at = decode_long(packed, at)
        data = container.decompress(packed[at : at + length], self._codec)
        return container.block(rows, self._reencode(data, rows, entry_type), codec=self._codec, sync=self._sync)

    def _reencode(self, data: bytes, rows: int, entry_type: RecordType) -> bytearray:
        """Write rows of an earlier schema under the newest one."""
        encoder = entry_encoder(self._entry_type, self._bounds.limits)
        out = bytearray()
        at = 0
        for _ in range(rows):
            fields_at = skip_meta(data, at)
            out += data[at:fields_at]
            entry, at = decode_entry(entry_type, data, fields_at)
            encoder.encode(entry, out)
        assert at == len(data), f"{rows} rows end at byte {at} of {len(data)}"
        return out


_K = TypeVar("_K")


def _count(spans: dict[_K, OffsetSpan], key: _K, offset: int) -> None:
    span = spans.get(key)
    if span is None:
        spans[key] = OffsetSpan(offset)
    else:
        span.add(offset)
