"""The references topic: one message announces data of one object, one line of it the data of one PartitionKey.

    message      batch · group · worker · generation · object, its schema · offset ranges · hours · exact schemas
    └── line     user · hour · entries · event times · exact schema · byte range · offsets per TopicPartition

The message holds once the values that its lines share; a line is an array that points to them by number
(docs/FORMATS.md). Each line is a reference of its own: `decode_references` returns them whole. Owns the messages'
fields and their JSON form. Readers outside the service (audit, pipeline) may import this file, `projection` and
`flush_record`, nothing else of the worker.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Protocol, TypeVar

import msgspec

from log_partitioner.formats.model import PartitionKey

FORMAT_VERSION = 1
CONTENT_TYPE = "application/json"
_BEGUN_CHARS = len("20260304T050607Z")  # of a batch id
SOURCE_NUMBERS = 4  # of one TopicPartition in a line: its number, first offset, further offsets, entries

Number = Annotated[int, msgspec.Meta(ge=0)]


class Checksum(msgspec.Struct, frozen=True):
    """A checksum of the whole object; `value` is lower-case hex."""

    algorithm: str
    value: str


def checksum_of(algorithm: str, data: bytes) -> str:
    """Return the `value` of a checksum of these bytes; for an unknown algorithm, a text that equals no checksum."""
    if algorithm == "sha256":
        return hashlib.sha256(data).hexdigest()
    return f"{zlib.crc32(data):08x}" if algorithm == "crc32" else f"of an unknown algorithm {algorithm}"


class ObjectPlace(msgspec.Struct, frozen=True, kw_only=True):
    """An object: its place, its size, and how many of its bytes are the Avro header."""

    bucket: str
    key: str
    etag: str | None
    version_id: str | None
    size: Number
    checksum: Checksum
    header_bytes: Number


class SchemaLocation(msgspec.Struct, frozen=True):
    """The schema in an object's header, by which its rows are decoded: its fingerprint, its own object, maybe its text.

    `fingerprint` is the lower-case hex SHA-256 of the schema text, which is what the object holds.
    """

    fingerprint: str
    object: str
    text: str | None = None


class CoveredRange(msgspec.Struct, frozen=True):
    """The offsets of one TopicPartition that the whole batch covers: [first_offset, next_offset)."""

    topic: str
    partition: int
    first_offset: int
    next_offset: int


class Line(msgspec.Struct, frozen=True, array_like=True):
    """One reference inside its message; numbers point into the message's lists.

    `event_time_us` counts from the message's, `event_time_span_us` from the first to the last entry. `start` and
    `length` are the bytes of the reference's blocks. `sources` are SOURCE_NUMBERS numbers per TopicPartition: its
    number, min_offset - first_offset, max_offset - min_offset, entries.
    """

    user: str
    hour: Number
    entries: Number
    event_time_us: int
    event_time_span_us: Number
    schema: Number
    start: Number
    length: Number
    sources: tuple[Number, ...]


class ReferenceMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the references topic; its key is the batch id.

    `first_number` is the number of the first line within the batch. `schemas` are projections of the object's schema
    (`log_partitioner.formats.projection`), None if it is the object's own.
    """

    format_version: int = FORMAT_VERSION
    batch_id: str
    group_id: str
    worker: str
    generation: int
    first_number: Number
    object: ObjectPlace
    schema: SchemaLocation
    sources: tuple[CoveredRange, ...]
    event_time_us: int
    hours: tuple[tuple[str, int], ...]
    schemas: tuple[Any, ...]
    references: tuple[Line, ...]


class Location(msgspec.Struct, frozen=True):
    """The place of a reference's data.

    `ranges` are [start, length] in bytes; their concatenation is a valid Avro container file.
    """

    bucket: str
    object: str
    etag: str | None
    version_id: str | None
    size: int
    checksum: Checksum
    ranges: tuple[tuple[int, int], ...]


class SourceRange(msgspec.Struct, frozen=True):
    """The contribution of one TopicPartition to one reference.

    first_offset and next_offset belong to the batch, min_offset and max_offset to the reference's own entries.
    """

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    min_offset: int
    max_offset: int
    entries: int


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """A reference, whole: the data of one PartitionKey in one object.

    `schema` is the object's, by which rows are decoded; `projection` makes the PartitionKey's exact schema of it
    (`log_partitioner.formats.projection.project`).
    """

    reference_id: str
    batch_id: str
    group_id: str
    worker: str
    generation: int
    location: Location
    partition_key: PartitionKey
    entries: int
    event_time_min_us: int
    event_time_max_us: int
    schema: SchemaLocation
    projection: Any = None
    sources: tuple[SourceRange, ...]


class _Lines(msgspec.Struct):
    references: list[msgspec.Raw]


_lines_decoder = msgspec.json.Decoder(_Lines)
encode_message = msgspec.json.Encoder().encode


def reference_id(batch_id: str, number: int) -> str:
    """Name the reference of this number within its batch."""
    return f"{batch_id}-{number}"


def begun_ms(batch_id: str) -> int | None:
    """Return the time at which a batch began; None if its id does not tell, as with a named backfill."""
    try:
        return round(1000 * datetime.fromisoformat(batch_id[:_BEGUN_CHARS]).timestamp())
    except ValueError:
        return None


def ranges_of(place: ObjectPlace, start: int, length: int) -> tuple[tuple[int, int], ...]:
    """Return the byte ranges of a reference: the header and its blocks, one range if they touch."""
    if start == place.header_bytes:
        return ((0, start + length),)
    return ((0, place.header_bytes), (start, length))


class Versioned(Protocol):
    """A message that says the version of its format."""

    @property
    def format_version(self) -> int:
        """The version by which it was written."""


V = TypeVar("V", bound=Versioned)


def decode_known(decoder: msgspec.json.Decoder[V], value: bytes) -> V:
    """Read a message of one kind.

    Raises:
        msgspec.DecodeError: it is none, or of a format version that is not known here.
    """
    try:
        message = decoder.decode(value)
    except (UnicodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from error
    if message.format_version != FORMAT_VERSION:
        raise msgspec.ValidationError(f"format_version {message.format_version} is not {FORMAT_VERSION}")
    return message


decode_message = partial(decode_known, msgspec.json.Decoder(ReferenceMessage))
"""Read a message of the references topic; raises as `decode_known`."""


def decode_references(value: bytes) -> list[Reference]:
    """Read all references of a message, in the order of its lines.

    Raises:
        msgspec.DecodeError: it is none, points outside its lists, or is of a format version that is not known here.
    """
    message = decode_message(value)
    try:
        return [_whole(message, line, number) for number, line in enumerate(message.references, message.first_number)]
    except IndexError as error:
        raise msgspec.ValidationError("a line points outside the lists of its message") from error


def count_lines(value: bytes) -> int:
    """Count the references of a message that is known to be one; costs a small part of decoding them."""
    return len(_lines_decoder.decode(value).references)


def _whole(message: ReferenceMessage, line: Line, number: int) -> Reference:
    place = message.object
    date, hour = message.hours[line.hour]
    event_time_us = message.event_time_us + line.event_time_us
    return Reference(
        reference_id=reference_id(message.batch_id, number),
        batch_id=message.batch_id,
        group_id=message.group_id,
        worker=message.worker,
        generation=message.generation,
        location=Location(
            bucket=place.bucket,
            object=place.key,
            etag=place.etag,
            version_id=place.version_id,
            size=place.size,
            checksum=place.checksum,
            ranges=ranges_of(place, line.start, line.length),
        ),
        partition_key=PartitionKey(line.user, date, hour),
        entries=line.entries,
        event_time_min_us=event_time_us,
        event_time_max_us=event_time_us + line.event_time_span_us,
        schema=message.schema,
        projection=message.schemas[line.schema],
        sources=_sources(message.sources, line.sources),
    )


def _sources(covered: Sequence[CoveredRange], numbers: tuple[int, ...]) -> tuple[SourceRange, ...]:
    if len(numbers) % SOURCE_NUMBERS:
        raise msgspec.ValidationError(f"{len(numbers)} numbers of sources are not {SOURCE_NUMBERS} for each")
    found = []
    for at in range(0, len(numbers), SOURCE_NUMBERS):
        source, first, further, entries = numbers[at : at + SOURCE_NUMBERS]
        of = covered[source]
        low = of.first_offset + first
        found.append(SourceRange(of.topic, of.partition, of.first_offset, of.next_offset, low, low + further, entries))
    return tuple(found)
