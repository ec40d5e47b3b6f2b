"""Objects and the messages that announce them, written by hand: by fastavro, without the worker's encoder and sealing.

One PartitionKey makes a file, several a pack: the writer is the same.
"""

import hashlib
import io
import json
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from functools import reduce
from typing import Any, NamedTuple

import fastavro
import msgspec

from log_partitioner.avro.container import SYNC_BYTES, Codec, block, compressor, header
from log_partitioner.avro.names import avro_names
from log_partitioner.avro.pack_schema import merge, projection
from log_partitioner.avro.schema import RowSchema, row_schema
from log_partitioner.avro.schema_types import ArrayType, MapType, RecordType, Scalar, Type, join_entries
from log_partitioner.config.settings import SchemaBounds
from log_partitioner.formats.model import PartitionKey, RootLink
from log_partitioner.formats.reference import (
    Checksum,
    CoveredRange,
    Line,
    ObjectPlace,
    Reference,
    ReferenceMessage,
    SchemaLocation,
    decode_references,
    encode_message,
)
from log_partitioner.formats.values import encode_json
from tests.inferred import infer_entry

BUCKET, TOPIC = "data", "logs"
KEY = PartitionKey("ann", "2026-03-04", 5)
TIME_US = 1_772_600_400_000_000  # within the hour of KEY
LIMITS = SchemaBounds(4, 20, 64)
_RESERVED = ("_meta",)
_SYNC = b"\x5a" * SYNC_BYTES


class Entry(NamedTuple):
    """An entry, and where it stands in the source."""

    key: PartitionKey
    values: dict[str, Any]
    offset: int = 0
    partition: int = 0
    index: int = 0
    time_us: int = TIME_US
    timestamp_ms: int = TIME_US // 1000
    root: RootLink | None = None


class Written(NamedTuple):
    """An object, its schema, and the message that announces it."""

    content: bytes
    schema: RowSchema
    message: ReferenceMessage

    @property
    def references(self) -> list[Reference]:
        """The references that readers get from the message."""
        return decode_references(encode_message(self.message))


def write_object(
    entries: Iterable[Entry],
    *,
    object_key: str = "p/pack/b-0.avro",
    batch_id: str = "b",
    first_number: int = 0,
    bucket: str = BUCKET,
    topic: str = TOPIC,
    covered: dict[int, tuple[int, int]] | None = None,
    codec: Codec = "null",
    rows_per_block: int = 1000,
    with_text: bool = False,
) -> Written:
    """Write entries into one object, by PartitionKey, and announce it in one message."""
    parts: dict[PartitionKey, list[Entry]] = {}
    for entry in entries:
        parts.setdefault(entry.key, []).append(entry)
    types = {key: type_of_entries(some) for key, some in parts.items()}
    merged = reduce(merge, types.values())
    schema = row_schema(merged)
    head = header(schema.text, codec=codec, sync=_SYNC, metadata={"lp-batch-id": batch_id})
    covered = covered or {entry.partition: (0, 1_000_000) for some in parts.values() for entry in some}
    content, lines = bytearray(head), []
    hours = sorted({(key.date, key.hour) for key in parts})
    projections = [projection(one, merged) for one in types.values()]
    distinct = [one for at, one in enumerate(projections) if one not in projections[:at]]
    for (key, some), projected in zip(parts.items(), projections, strict=True):
        start = len(content)
        for at in range(0, len(some), rows_per_block):
            content += _block(some[at : at + rows_per_block], merged, schema, topic, codec)
        lines.append(
            Line(
                user=key.user,
                hour=hours.index((key.date, key.hour)),
                entries=len(some),
                event_time_us=min(one.time_us for one in some) - TIME_US,
                event_time_span_us=max(one.time_us for one in some) - min(one.time_us for one in some),
                schema=distinct.index(projected),
                start=start,
                length=len(content) - start,
                sources=_sources(some, covered),
            )
        )
    message = ReferenceMessage(
        batch_id=batch_id,
        group_id="log-partitioner",
        worker="w",
        generation=1,
        first_number=first_number,
        object=ObjectPlace(
            bucket=bucket,
            key=object_key,
            etag=None,
            version_id=None,
            size=len(content),
            checksum=Checksum("sha256", hashlib.sha256(content).hexdigest()),
            header_bytes=len(head),
        ),
        schema=SchemaLocation(
            schema.fingerprint, f"p/_schemas/{schema.fingerprint}.avsc", schema.text if with_text else None
        ),
        sources=tuple(CoveredRange(topic, number, *span) for number, span in sorted(covered.items())),
        event_time_us=TIME_US,
        hours=tuple(hours),
        schemas=tuple(distinct),
        references=tuple(lines),
    )
    return Written(bytes(content), schema, message)


def split_message(message: ReferenceMessage, *, lines_max: int) -> list[ReferenceMessage]:
    """Announce the same object in several messages, as if one were too large."""
    return [
        msgspec.structs.replace(
            message,
            first_number=message.first_number + at,
            references=message.references[at : at + lines_max],
        )
        for at in range(0, len(message.references), lines_max)
    ]


def type_of_entries(entries: Iterable[Entry]) -> RecordType:
    """Give the exact type of entries."""
    types = [infer_entry(entry.values, LIMITS) for entry in entries]
    return join_entries(types, object_keys_max=LIMITS.object_keys_max)


def _block(entries: list[Entry], merged: RecordType, schema: RowSchema, topic: str, codec: Codec) -> bytes:
    parsed = fastavro.parse_schema(json.loads(schema.text))
    data = io.BytesIO()
    for entry in entries:
        row = {"_meta": _meta(entry, topic), **_record(merged, entry.values, _RESERVED)}
        fastavro.schemaless_writer(data, parsed, row)
    return block(len(entries), data.getvalue(), compress=compressor(codec), sync=_SYNC)


def _meta(entry: Entry, topic: str) -> dict[str, Any]:
    return {
        "user": entry.key.user,
        "event_time": entry.time_us,
        "id": found if type(found := entry.values.get("id")) is str else None,
        "topic": topic,
        "partition": entry.partition,
        "offset": entry.offset,
        "index": entry.index,
        "timestamp": entry.timestamp_ms,
        "root": None if entry.root is None else entry.root._asdict(),
    }


def _record(kind: RecordType, values: dict[str, Any], reserved: tuple[str, ...] = ()) -> dict[str, Any]:
    names = avro_names(kind.by_name, reserved=reserved)
    return {names[name]: _value(child, values.get(name)) for name, child in kind.by_name.items()}


def _value(kind: Type, value: Any) -> Any:
    """Give what fastavro writes for a value of this type."""
    if value is None:
        return None
    if kind is Scalar.JSON:
        return encode_json(value).decode()
    if isinstance(kind, RecordType):
        return _record(kind, value)
    if isinstance(kind, ArrayType):
        return [_value(kind.item, item) for item in value]
    if isinstance(kind, MapType):
        return {name: _value(kind.value, item) for name, item in value.items()}
    return _WRITTEN[kind](value) if kind in _WRITTEN else value


_WRITTEN: dict[Scalar, Callable[[Any], Any]] = {
    Scalar.DOUBLE: float,
    Scalar.BYTES: b64decode,
    Scalar.TIMESTAMP: datetime.fromisoformat,
    Scalar.DATE: date.fromisoformat,
}


def _sources(entries: list[Entry], covered: dict[int, tuple[int, int]]) -> tuple[int, ...]:
    numbers = sorted(covered)
    found: list[int] = []
    for number in sorted({entry.partition for entry in entries}):
        offsets = [entry.offset for entry in entries if entry.partition == number]
        low, high = min(offsets), max(offsets)
        found += (numbers.index(number), low - covered[number][0], high - low, len(offsets))
    return tuple(found)


def messages_of(references: Iterable[Reference], header_bytes: Mapping[str, int]) -> list[ReferenceMessage]:
    """Announce references anew, as they are: those of one object whose numbers follow each other in one message.

    `header_bytes` are those of objects, by key.
    """
    runs: list[list[Reference]] = []
    for one in references:
        if runs and _shared(runs[-1][0]) == _shared(one) and _number(one) == _number(runs[-1][-1]) + 1:
            runs[-1].append(one)
        else:
            runs.append([one])
    return [_message_of(run, header_bytes[run[0].location.object]) for run in runs]


def _shared(one: Reference) -> tuple[object, ...]:
    location = msgspec.structs.replace(one.location, ranges=())
    return one.batch_id, one.worker, one.generation, location, one.schema


def _number(one: Reference) -> int:
    return int(one.reference_id.removeprefix(f"{one.batch_id}-"))


def _message_of(references: list[Reference], header_bytes: int) -> ReferenceMessage:
    first = references[0]
    place = first.location
    sources = list(
        dict.fromkeys(
            CoveredRange(source.topic, source.partition, source.first_offset, source.next_offset)
            for one in references
            for source in one.sources
        )
    )
    hours = list(dict.fromkeys((one.partition_key.date, one.partition_key.hour) for one in references))
    schemas: list[Any] = []
    for one in references:
        if one.projection not in schemas:
            schemas.append(one.projection)
    lines = tuple(_line_of(one, header_bytes, sources, hours, schemas) for one in references)
    return ReferenceMessage(
        batch_id=first.batch_id,
        group_id=first.group_id,
        worker=first.worker,
        generation=first.generation,
        first_number=_number(first),
        object=ObjectPlace(
            bucket=place.bucket,
            key=place.object,
            etag=place.etag,
            version_id=place.version_id,
            size=place.size,
            checksum=place.checksum,
            header_bytes=header_bytes,
        ),
        schema=first.schema,
        sources=tuple(sources),
        event_time_us=0,
        hours=tuple(hours),
        schemas=tuple(schemas),
        references=lines,
    )


def _line_of(
    one: Reference, header_bytes: int, sources: list[CoveredRange], hours: list[tuple[str, int]], schemas: list[Any]
) -> Line:
    start, length = one.location.ranges[-1]
    numbers: list[int] = []
    for source in one.sources:
        covered = CoveredRange(source.topic, source.partition, source.first_offset, source.next_offset)
        low, high = source.min_offset, source.max_offset
        numbers += (sources.index(covered), low - covered.first_offset, high - low, source.entries)
    return Line(
        user=one.partition_key.user,
        hour=hours.index(one.partition_key[1:]),
        entries=one.entries,
        event_time_us=one.event_time_min_us,
        event_time_span_us=one.event_time_max_us - one.event_time_min_us,
        schema=schemas.index(one.projection),
        start=start or header_bytes,
        length=length if start else length - header_bytes,
        sources=tuple(numbers),
    )
