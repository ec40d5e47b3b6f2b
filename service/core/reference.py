"""Reference, flush record, backfill record: what is announced downstream (DESIGN 3.5, 3.6, 8).

Owns these messages' fields and their JSON form; `encode_*` and `decode_*` are pairs.
Readers outside the service (audit, pipeline) may import this file and nothing else of the worker.
"""

from __future__ import annotations

import msgspec

FORMAT_VERSION = 1
CONTENT_TYPE = "application/json"


class Checksum(msgspec.Struct, frozen=True):
    """A checksum of the whole object; `value` is lower-case hex."""

    algorithm: str
    value: str


class Location(msgspec.Struct, frozen=True):
    """Where the data of a reference lies.

    `ranges` are [start, length] in bytes; their concatenation is a valid Avro container file.
    """

    bucket: str
    object: str
    etag: str | None
    version_id: str | None
    size: int
    checksum: Checksum
    ranges: tuple[tuple[int, int], ...]


class Partition(msgspec.Struct, frozen=True):
    """The PartitionKey of a reference."""

    user: str
    date: str
    hour: int


class SchemaLocation(msgspec.Struct, frozen=True):
    """The aggregated schema: always its fingerprint and object, its text where the flush is small.

    `fingerprint` is the lower-case hex SHA-256 of the schema text, which is what the object holds.
    """

    fingerprint: str
    object: str
    text: str | None = None


class FieldCounts(msgspec.Struct, frozen=True):
    """How many entries have a null (or no) value in one top-level field, and how many have one."""

    nulls: int
    non_nulls: int


class SourceRange(msgspec.Struct, frozen=True):
    """What one TopicPartition contributed to one reference.

    first_offset and next_offset are the batch's; min_offset and max_offset those of the entries in here.
    """

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    min_offset: int
    max_offset: int
    entries: int


class RootRange(msgspec.Struct, frozen=True):
    """The offsets of one root TopicPartition that entries of this reference carry (DESIGN 3.8)."""

    topic: str
    partition: int
    min_offset: int
    max_offset: int
    entries: int


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """Announces the data of one PartitionKey in one object."""

    format_version: int = FORMAT_VERSION
    reference_id: str
    batch_id: str
    worker: str
    generation: int
    location: Location
    partition: Partition
    entries: int
    event_time_min_us: int
    event_time_max_us: int
    schema: SchemaLocation
    field_counts: dict[str, FieldCounts]
    sources: tuple[SourceRange, ...]
    roots: tuple[RootRange, ...] = ()


class FlushedTopicPartition(msgspec.Struct, frozen=True, kw_only=True):
    """One owned TopicPartition in a flush record.

    first_offset is the committed position from which the batch started, next_offset the one it commits;
    min_offset and max_offset are None where nothing was read. idle_since_ms is wall-clock time, None while
    records come. The conservation law: entries == in files + dead_letters + discarded_replays.
    """

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    min_offset: int | None
    max_offset: int | None
    timestamp_max_ms: int | None
    idle_since_ms: int | None
    records: int
    entries: int
    dead_letters: int
    discarded_replays: int


class FlushTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over one flush; `dead_letters` counts entries, `dead_letter_records` the messages."""

    records: int
    entries: int
    entries_in_files: int
    dead_letters: int
    dead_letter_records: int
    discarded_replays: int
    references: int
    bytes: int


class FlushRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Announces one flush: which offsets it covers and what became of their entries."""

    format_version: int = FORMAT_VERSION
    batch_id: str
    worker: str
    boot: str
    seq: int
    generation: int
    reason: str
    started_at_ms: int
    ended_at_ms: int
    step_seconds: dict[str, float]
    topic_partitions: tuple[FlushedTopicPartition, ...]
    totals: FlushTotals


class BackfilledTopicPartition(msgspec.Struct, frozen=True, kw_only=True):
    """One TopicPartition in a backfill's record: the range it looked at, and what it has published of it so far."""

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    entries_in_files: int
    dead_letters: int


class BackfillTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over what a backfill has published so far; `dead_letters` counts entries."""

    references: int
    entries_in_files: int
    dead_letters: int
    dead_letter_records: int
    bytes: int


class BackfillRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Announces how far a backfill has come; one in each of its transactions, the last one of a batch id counts.

    `published` of `messages` (references and dead letters, in the order of its outbox) are committed: it is where a
    restart goes on. The run is finished when they are equal. `outbox` is the SHA-256 of the list of these messages.
    """

    format_version: int = FORMAT_VERSION
    batch_id: str
    worker: str
    generation: int
    started_at_ms: int
    committed_at_ms: int
    outbox: str
    published: int
    messages: int
    topic_partitions: tuple[BackfilledTopicPartition, ...]
    totals: BackfillTotals

    @property
    def is_finished(self) -> bool:
        """Whether everything is published."""
        return self.published == self.messages


_reference_decoder = msgspec.json.Decoder(Reference)
_flush_record_decoder = msgspec.json.Decoder(FlushRecord)
_backfill_record_decoder = msgspec.json.Decoder(BackfillRecord)
encode_reference = msgspec.json.Encoder().encode
encode_flush_record = msgspec.json.Encoder().encode
encode_backfill_record = msgspec.json.Encoder().encode


def decode_reference(value: bytes) -> Reference:
    """Read a reference.

    Raises:
        msgspec.DecodeError: not a reference, or of a format version that this code does not know.
    """
    reference = _reference_decoder.decode(value)
    _require_version(reference.format_version)
    return reference


def decode_flush_record(value: bytes) -> FlushRecord:
    """Read a flush record.

    Raises:
        msgspec.DecodeError: not a flush record, or of a format version that this code does not know.
    """
    flush_record = _flush_record_decoder.decode(value)
    _require_version(flush_record.format_version)
    return flush_record


def decode_backfill_record(value: bytes) -> BackfillRecord:
    """Read a backfill's record.

    Raises:
        msgspec.DecodeError: not one, or of a format version that this code does not know.
    """
    record = _backfill_record_decoder.decode(value)
    _require_version(record.format_version)
    return record


def _require_version(version: int) -> None:
    if version != FORMAT_VERSION:
        raise msgspec.ValidationError(f"format_version {version} is not {FORMAT_VERSION}")
