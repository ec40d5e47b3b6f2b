"""What one flush says: a reference per file, a flush record, the dead letters - as messages (DESIGN 3.5-3.7).

Values in, messages out; `runtime.flusher` decides when, and so does the backfill for what it publishes itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from service.core.avro_schema import RowSchema
from service.core.batch import Batch, Ledger
from service.core.dead_letter import (
    RECORD_SUFFIX,
    DeadLetter,
    Reason,
    StoredRecord,
    encode_stored_record,
    headers_of,
)
from service.core.decode import Bad
from service.core.exchange import Message, SealedFile, StoredObject
from service.core.flush_policy import FlushReason
from service.core.model import SourceRecord, TopicPartition
from service.core.object_key import dead_letter_key, stored_record_key
from service.core.partition_file import PartitionFile
from service.core.reference import (
    CONTENT_TYPE,
    BackfillRecord,
    Checksum,
    FieldCounts,
    FlushedTopicPartition,
    FlushRecord,
    FlushTotals,
    Location,
    Partition,
    Reference,
    RootRange,
    SchemaLocation,
    SourceRange,
    encode_backfill_record,
    encode_flush_record,
    encode_reference,
)

REFERENCE_TYPE = "log-partitioner.reference.v1"
FLUSH_TYPE = "log-partitioner.flush.v1"
BACKFILL_TYPE = "log-partitioner.backfill.v1"
DEAD_LETTER_HEADERS_BYTES = 4096  # room for ours, see core.dead_letter, but for the indexes
INDEX_BYTES = 6  # of one among 100,000, with its comma


class Speaker(NamedTuple):
    """Who speaks, and to which topics."""

    worker: str
    boot: str
    group_id: str
    bucket: str
    references_topic: str
    flushes_topic: str
    dead_letters_topic: str


class Uploaded(NamedTuple):
    """A file of the batch that lies in the store."""

    file: PartitionFile
    sealed: SealedFile
    stored: StoredObject


class SchemaPlace(NamedTuple):
    """Where a schema lies, and whether references carry its text."""

    schema: RowSchema
    key: str
    inline: bool


def reference_of(
    uploaded: Uploaded,
    batch: Batch,
    ledgers: Mapping[TopicPartition, Ledger],
    speaker: Speaker,
    place: SchemaPlace,
) -> Reference:
    """Write the reference of one object."""
    file, sealed, stored = uploaded
    return Reference(
        reference_id=f"{batch.batch_id}-{file.number}",
        batch_id=batch.batch_id,
        worker=speaker.worker,
        generation=batch.generation,
        location=Location(
            bucket=speaker.bucket,
            object=stored.key,
            etag=stored.etag,
            version_id=stored.version_id,
            size=sealed.size,
            checksum=Checksum("sha256", sealed.sha256.hex()),
            ranges=((0, sealed.size),),
        ),
        partition=Partition(*file.key),
        entries=file.rows,
        event_time_min_us=file.event_time_min_us,
        event_time_max_us=file.event_time_max_us,
        schema=SchemaLocation(place.schema.fingerprint, place.key, place.schema.text if place.inline else None),
        field_counts={
            name: FieldCounts(nulls=file.rows - file.non_nulls[name], non_nulls=file.non_nulls[name])
            for name in file.entry_type.by_name
        },
        sources=tuple(
            SourceRange(
                topic=tp.topic,
                partition=tp.partition,
                first_offset=ledgers[tp].first_offset,
                next_offset=ledgers[tp].next_offset,
                min_offset=span.min_offset,
                max_offset=span.max_offset,
                entries=span.entries,
            )
            for tp, span in sorted(file.origins.items())
        ),
        roots=tuple(
            RootRange(topic, partition, span.min_offset, span.max_offset, span.entries)
            for (topic, partition), span in sorted(file.roots.items())
        ),
    )


def fitting_reference(
    uploaded: Uploaded,
    batch: Batch,
    ledgers: Mapping[TopicPartition, Ledger],
    speaker: Speaker,
    place: SchemaPlace,
    *,
    message_bytes_max: int,
) -> Reference:
    """Write a reference that fits into its topic: without schema text, then without counts, if it must be."""
    reference = reference_of(uploaded, batch, ledgers, speaker, place)
    if place.inline and len(encode_reference(reference)) > message_bytes_max:
        reference = msgspec.structs.replace(reference, schema=msgspec.structs.replace(reference.schema, text=None))
    if len(encode_reference(reference)) > message_bytes_max:
        reference = msgspec.structs.replace(reference, field_counts={})
    return reference


def object_metadata(file: PartitionFile, *, batch_id: str) -> dict[str, str]:
    """Say what a file holds, in the words of Avro's and the object's own metadata (DESIGN 3.4)."""
    ranges = ",".join(f"{tp}:{span.min_offset}-{span.max_offset}" for tp, span in sorted(file.origins.items()))
    return {"lp-batch-id": batch_id, "lp-entries": str(file.rows), "lp-sources": ranges[:1024]}


def flush_record_of(
    batch: Batch,
    ledgers: Mapping[TopicPartition, Ledger],
    speaker: Speaker,
    references: Iterable[Reference],
    *,
    seq: int,
    reason: FlushReason,
    ended_at_ms: int,
    step_seconds: dict[str, float],
) -> FlushRecord:
    """Write the flush record of a batch."""
    references = list(references)
    owned = sorted(ledgers.items())
    return FlushRecord(
        batch_id=batch.batch_id,
        worker=speaker.worker,
        boot=speaker.boot,
        seq=seq,
        generation=batch.generation,
        reason=reason.value,
        started_at_ms=batch.opened_at_ms,
        ended_at_ms=ended_at_ms,
        step_seconds={step: round(seconds, 6) for step, seconds in step_seconds.items()},
        topic_partitions=tuple(_flushed(tp, ledger) for tp, ledger in owned),
        totals=FlushTotals(
            records=sum(ledger.records for _, ledger in owned),
            entries=sum(ledger.entries for _, ledger in owned),
            entries_in_files=sum(ledger.entries_in_files for _, ledger in owned),
            dead_letters=sum(ledger.dead_letters for _, ledger in owned),
            dead_letter_records=len(batch.dead_letters),
            discarded_replays=sum(ledger.discarded_replays for _, ledger in owned),
            references=len(references),
            bytes=sum(reference.location.size for reference in references),
        ),
    )


def _flushed(tp: TopicPartition, ledger: Ledger) -> FlushedTopicPartition:
    return FlushedTopicPartition(
        topic=tp.topic,
        partition=tp.partition,
        first_offset=ledger.first_offset,
        next_offset=ledger.next_offset,
        min_offset=ledger.min_offset,
        max_offset=ledger.max_offset,
        timestamp_max_ms=ledger.timestamp_max_ms,
        idle_since_ms=ledger.idle_since_ms,
        records=ledger.records,
        entries=ledger.entries,
        dead_letters=ledger.dead_letters,
        discarded_replays=ledger.discarded_replays,
    )


def reference_message(reference: Reference, speaker: Speaker, *, at_ms: int) -> Message:
    """Wrap a reference; the key is the PartitionKey, so that references of one keep their order."""
    partition = reference.partition
    key = f"{partition.user}/{partition.date}/{partition.hour:02}".encode()
    headers = _cloud_event(REFERENCE_TYPE, reference.reference_id, speaker, at_ms)
    return Message(speaker.references_topic, key, encode_reference(reference), headers)


def flush_message(flush_record: FlushRecord, speaker: Speaker, *, at_ms: int) -> Message:
    """Wrap a flush record; the key is the worker."""
    headers = _cloud_event(FLUSH_TYPE, flush_record.batch_id, speaker, at_ms)
    return Message(speaker.flushes_topic, speaker.worker.encode(), encode_flush_record(flush_record), headers)


def dead_letters_of(record: SourceRecord, bad: Iterable[Bad]) -> list[DeadLetter]:
    """Make one dead letter per reason of what is bad in a record."""
    by_reason: dict[Reason, list[Bad]] = {}
    for one in bad:
        by_reason.setdefault(one.reason, []).append(one)
    letters = []
    for reason, some in by_reason.items():
        indexes = tuple(sorted(one.number for one in some if one.number is not None))
        letters.append(DeadLetter(record, reason, some[0].message, indexes or None))
    return letters


def is_oversized(letter: DeadLetter, *, message_bytes_max: int) -> bool:
    """Tell whether a dead letter does not fit into its topic, so that its record has to be an object."""
    return letter.record.size + INDEX_BYTES * letter.entries > message_bytes_max - DEAD_LETTER_HEADERS_BYTES


def stored_letter(
    record: SourceRecord, *, prefix: str, batch_id: str, number: int, message_bytes_max: int
) -> tuple[str, bytes]:
    """Give key and body of the object of an oversized dead letter.

    It holds the value; where key and headers alone are too large, the whole record.
    """
    if record._replace(value=None).size <= message_bytes_max // 2:
        return dead_letter_key(prefix, batch_id=batch_id, number=number), record.value or b""
    body = encode_stored_record(StoredRecord(record.key, record.value, list(record.headers)))
    return stored_record_key(prefix, batch_id=batch_id, number=number), body


def backfill_message(record: BackfillRecord, topic: str, speaker: Speaker, *, at_ms: int) -> Message:
    """Wrap a backfill's record; the key is the batch id, so that a compacted topic keeps the last one of each."""
    headers = _cloud_event(BACKFILL_TYPE, f"{record.batch_id}/{record.published}", speaker, at_ms)
    return Message(topic, record.batch_id.encode(), encode_backfill_record(record), headers)


def dead_letter_message(letter: DeadLetter, speaker: Speaker, *, batch_id: str, object_key: str | None) -> Message:
    """Wrap a dead letter: key, value and headers of the record untouched, but for what is stored apart."""
    if object_key is not None and object_key.endswith(RECORD_SUFFIX):
        letter = letter._replace(record=letter.record._replace(key=None, headers=()))
    headers = headers_of(letter, batch_id=batch_id, object_key=object_key)
    value = letter.record.value if object_key is None else None
    return Message(speaker.dead_letters_topic, letter.record.key, value, headers)


def _cloud_event(event_type: str, event_id: str, speaker: Speaker, at_ms: int) -> list[tuple[str, bytes | None]]:
    """CloudEvents 1.0, Kafka protocol binding, binary content mode."""
    moment = datetime.fromtimestamp(at_ms / 1000, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    attributes = {
        "ce_specversion": "1.0",
        "ce_id": event_id,
        "ce_source": f"/log-partitioner/{speaker.group_id}/{speaker.worker}",
        "ce_type": event_type,
        "ce_time": moment,
        "content-type": CONTENT_TYPE,
    }
    return [(name, value.encode()) for name, value in attributes.items()]
