"""The messages of one flush: references by object, a flush record, the dead letters (DESIGN 3.5-3.7).

Values in, messages out; `runtime.flusher` decides when to publish them, and so does a backfill for its own. Every
message fits into its topic; a dead letter is shrunk until it does:

    too many indexes     the letter is split: several of one record and reason, each with some of the indexes
    too large a value    it is an object, which the letter names
    too large otherwise  so is the whole record; the letter has nothing of it but its place

A broker compares a record batch, compressed, with `max.message.bytes`. A message takes most room alone in a batch and
not compressed (KAFKA_FACTS T12): the client library batches less than that together, and sends a batch uncompressed if
compression would make it larger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import NamedTuple, cast

from log_partitioner.batch.batch import ClosedBatch
from log_partitioner.batch.ledger import Ledger
from log_partitioner.batch.seal import SealedObject
from log_partitioner.boundary import Message, StoredObject
from log_partitioner.config.settings import KafkaSettings
from log_partitioner.control.flush_policy import FlushReason
from log_partitioner.formats.dead_letter import (
    RECORD_SUFFIX,
    DeadLetter,
    Reason,
    StoredRecord,
    encode_stored_record,
    headers_of,
)
from log_partitioner.formats.flush_record import (
    PART_NUMBERS_BYTES,
    Adoption,
    BackfillRecord,
    FlushedTopicPartition,
    FlushRecord,
    FlushTotals,
    adoptions_of,
    encode_adoption,
    encode_backfill_record,
    encode_flush_record,
    split_parts,
)
from log_partitioner.formats.model import Headers, SourceRecord, TopicPartition
from log_partitioner.formats.object_key import data_key, dead_letter_key, pack_key, stored_record_key
from log_partitioner.formats.reference import (
    CONTENT_TYPE,
    Checksum,
    Line,
    ObjectPlace,
    ReferenceMessage,
    SchemaLocation,
    count_lines,
    encode_message,
    reference_id,
)
from log_partitioner.formats.replay import REPLAY_TYPE, ReplayMark, encode_replay_mark
from log_partitioner.input.decode import BadEntry

REFERENCES_TYPE = "log-partitioner.references.v1"
FLUSH_TYPE = "log-partitioner.flush.v1"
ADOPTION_TYPE = "log-partitioner.adoption.v1"
BACKFILL_TYPE = "log-partitioner.backfill.v1"


class Sender(NamedTuple):
    """The sender of messages, and its group and topics."""

    worker: str
    boot: str
    kafka: KafkaSettings
    bucket: str


class UploadedObject(NamedTuple):
    """An object of the batch in the store, and the place of its schema; `inline` puts the schema into messages."""

    sealed: SealedObject
    stored: StoredObject
    schema_object: str
    inline: bool


def reference_messages(
    uploaded: Iterable[UploadedObject],
    sender: Sender,
    *,
    batch_id: str,
    generation: int,
    at_ms: int,
    first_number: int = 0,
) -> Iterator[Message]:
    """Yield the messages that announce objects, in the order of their references' numbers."""
    number = first_number
    for one in uploaded:
        place = _place_of(one, sender.bucket)
        schema = one.sealed.schema
        text = schema.text if one.inline else None
        for group in one.sealed.groups:
            message = ReferenceMessage(
                batch_id=batch_id,
                group_id=sender.kafka.group_id,
                worker=sender.worker,
                generation=generation,
                first_number=number,
                object=place,
                schema=SchemaLocation(schema.fingerprint, one.schema_object, text),
                sources=group.sources,
                event_time_us=group.event_time_us,
                hours=group.hours,
                schemas=group.schemas,
                references=cast("tuple[Line, ...]", group.lines),  # encoded already
            )
            headers = _cloud_event(REFERENCES_TYPE, reference_id(batch_id, number), sender, at_ms)
            yield Message(sender.kafka.references_topic, batch_id.encode(), encode_message(message), headers)
            number += group.references


def rows_in(objects: Iterable[SealedObject]) -> Counter[TopicPartition]:
    """Count the rows of finished objects by TopicPartition."""
    rows: Counter[TopicPartition] = Counter()
    for one in objects:
        for tp, count in one.sources:
            rows[tp] += count
    return rows


def check_references(objects: Iterable[SealedObject], messages: Iterable[Message]) -> None:
    """Assert W3: the messages have all lines of the objects, and these lines name as many entries as there are rows."""
    objects = list(objects)
    lines = sum(one.references for one in objects)
    found = sum(count_lines(message.value or b"") for message in messages)
    assert found == lines, f"W3: {found} references are in messages, {lines} should be"
    rows, named = rows_in(objects), Counter[TopicPartition]()
    for group in (group for one in objects for group in one.groups):
        for source, entries in zip(group.sources, group.entries, strict=True):
            named[TopicPartition(source.topic, source.partition)] += entries
    wrong = sorted(tp for tp in rows.keys() | named.keys() if rows[tp] != named[tp])
    assert not wrong, f"W3: {wrong[0]}: {named[wrong[0]]} entries are in references, {rows[wrong[0]]} should be"


def inline_bytes(text: str) -> int:
    """Return how many bytes the text of a schema takes within a message."""
    return len(encode_message(text))


def _place_of(uploaded: UploadedObject, bucket: str) -> ObjectPlace:
    file, stored = uploaded.sealed.file, uploaded.stored
    return ObjectPlace(
        bucket=bucket,
        key=stored.key,
        etag=stored.etag,
        version_id=stored.version_id,
        size=file.size,
        checksum=Checksum("sha256", file.sha256.hex()),
        header_bytes=uploaded.sealed.header_bytes,
    )


def object_metadata(sealed: SealedObject, *, batch_id: str) -> dict[str, str]:
    """Return an object's metadata for the store: the batch, and how many entries of how many PartitionKeys."""
    return {"lp-batch-id": batch_id, "lp-entries": str(sealed.entries), "lp-references": str(sealed.references)}


def key_of(sealed: SealedObject, prefix: str, *, batch_id: str, attempt: int) -> str:
    """Name an object in the store."""
    if sealed.key is not None:
        return data_key(prefix, sealed.key, batch_id=batch_id, number=sealed.number, attempt=attempt)
    return pack_key(prefix, sealed.hour, batch_id=batch_id, number=sealed.number, attempt=attempt)


def flush_record_of(
    batch: ClosedBatch,
    sender: Sender,
    objects: Iterable[SealedObject],
    *,
    seq: int,
    reason: FlushReason,
    ended_at_ms: int,
    step_seconds: Mapping[str, float],
    topic_ids: Mapping[str, str],
) -> FlushRecord:
    """Make the flush record of a batch."""
    objects, owned = list(objects), batch.ledgers
    return FlushRecord(
        batch_id=batch.batch_id,
        group_id=sender.kafka.group_id,
        topic_ids={topic: topic_ids[topic] for topic in sorted({tp.topic for tp in owned}) if topic in topic_ids},
        worker=sender.worker,
        boot=sender.boot,
        seq=seq,
        generation=batch.opening.generation,
        reason=reason.value,
        started_at_ms=batch.opening.opened_at_ms,
        ended_at_ms=ended_at_ms,
        step_seconds={step: round(seconds, 6) for step, seconds in step_seconds.items()},
        topic_partitions=tuple(_flushed(tp, ledger) for tp, ledger in owned.items()),
        totals=FlushTotals(
            records=sum(ledger.records for ledger in owned.values()),
            entries=sum(ledger.entries for ledger in owned.values()),
            entries_in_files=sum(sealed.entries for sealed in objects),
            dead_letters=sum(letter.entries for letter in batch.dead_letters),
            dead_letter_records=len(batch.dead_letters),
            references=sum(sealed.references for sealed in objects),
            bytes=sum(sealed.file.size for sealed in objects),
        ),
    )


def _flushed(tp: TopicPartition, ledger: Ledger) -> FlushedTopicPartition:
    counts = {name: getattr(ledger, name) for name in FlushedTopicPartition.__struct_fields__[len(tp) :]}
    return FlushedTopicPartition(topic=tp.topic, partition=tp.partition, **counts)


def flush_messages(
    flush_record: FlushRecord, sender: Sender, *, message_bytes_max: int, at_ms: int
) -> Iterator[Message]:
    """Wrap a flush record, in as many parts as its topic needs; the key is the worker."""
    around = _flush_message(flush_record, sender, b"", at_ms)
    for part in split_parts(flush_record, bytes_max=message_bytes_max - message_bytes(around) - PART_NUMBERS_BYTES):
        yield _flush_message(part, sender, encode_flush_record(part), at_ms)


def _flush_message(part: FlushRecord, sender: Sender, value: bytes, at_ms: int) -> Message:
    headers = _cloud_event(FLUSH_TYPE, f"{part.batch_id}/{part.part}", sender, at_ms)
    return Message(sender.kafka.flushes_topic, sender.worker.encode(), value, headers)


def adoption_messages(adoption: Adoption, sender: Sender, *, partitions: Iterable[int]) -> Iterator[Message]:
    """Wrap an adoption, once for each partition of the flushes topic; the key is the group that goes on."""
    at_ms, key = adoption.adopted_at_ms, adoption.group_id.encode()
    headers = _cloud_event(ADOPTION_TYPE, f"{adoption.from_group}/{at_ms}", sender, at_ms)
    values = [encode_adoption(one) for one in adoptions_of(adoption)]
    for partition in partitions:
        for value in values:
            yield Message(sender.kafka.flushes_topic, key, value, headers, partition)


def dead_letters_of(record: SourceRecord, bad: Iterable[BadEntry], *, of_entries: int) -> list[DeadLetter]:
    """Make one dead letter per reason for the bad entries of a record, which has so many in all."""
    by_reason: dict[Reason, list[BadEntry]] = {}
    for one in bad:
        by_reason.setdefault(one.reason, []).append(one)
    letters = []
    for reason, some in by_reason.items():
        indexes = tuple(sorted(one.number for one in some if one.number is not None))
        letters.append(DeadLetter(record, reason, some[0].message, indexes or None, of_entries=of_entries))
    return letters


def backfill_message(record: BackfillRecord, topic: str, sender: Sender, *, at_ms: int) -> Message:
    """Wrap a backfill's record; the key is the batch id, so that a compacted topic keeps the last one of each."""
    headers = _cloud_event(BACKFILL_TYPE, f"{record.batch_id}/{record.published}", sender, at_ms)
    return Message(topic, record.batch_id.encode(), encode_backfill_record(record), headers)


def dead_letter_message(letter: DeadLetter, sender: Sender, *, batch_id: str, object_key: str | None) -> Message:
    """Wrap a dead letter: key, value and headers of the record untouched, except the part that is stored apart."""
    if object_key is not None and holds_record(object_key):
        letter = letter._replace(record=letter.record._replace(key=None, headers=()))
    headers = headers_of(letter, batch_id=batch_id, group_id=sender.kafka.group_id, object_key=object_key)
    value = letter.record.value if object_key is None else None
    return Message(sender.kafka.dead_letters_topic, letter.record.key, value, headers)


def replay_mark_message(mark: ReplayMark, sender: Sender, *, partition: int) -> Message:
    """Wrap the mark of replayed dead letters, for their partition; the key is the group."""
    headers = _cloud_event(REPLAY_TYPE, f"{partition}/{mark.offsets[0]}", sender, mark.replayed_at_ms)
    value = encode_replay_mark(mark)
    return Message(sender.kafka.dead_letters_topic, mark.group_id.encode(), value, headers, partition)


def _cloud_event(event_type: str, event_id: str, sender: Sender, at_ms: int) -> list[tuple[str, bytes | None]]:
    """Make the headers of CloudEvents 1.0, Kafka protocol binding, binary content mode."""
    moment = datetime.fromtimestamp(at_ms / 1000, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    attributes = {
        "ce_specversion": "1.0",
        "ce_id": event_id,
        "ce_source": f"/log-partitioner/{sender.kafka.group_id}/{sender.worker}",
        "ce_type": event_type,
        "ce_time": moment,
        "content-type": CONTENT_TYPE,
    }
    return [(name, value.encode()) for name, value in attributes.items()]


BATCH_BYTES = 100  # the head of a record batch, 61, and the numbers of its only record
HEADER_BYTES = 10  # two lengths
OUR_HEADERS_BYTES = 4096  # of a dead letter, but for the indexes; an object's key has 1,024 at most


class StoredPart(Enum):
    """The part of a record that is stored as an object of its own, because its dead letter has no room for it."""

    VALUE = "value"
    RECORD = "record"


def message_bytes(message: Message) -> int:
    """Return the most bytes that a message takes in its topic."""
    return BATCH_BYTES + len(message.key or b"") + len(message.value or b"") + _headers_bytes(message.headers)


def _headers_bytes(headers: Headers | Iterable[tuple[str, bytes | None]]) -> int:
    return sum(HEADER_BYTES + len(name.encode("utf-8", "surrogatepass")) + len(value or b"") for name, value in headers)


def split_letter(letter: DeadLetter, *, message_bytes_max: int) -> list[DeadLetter]:
    """Return a dead letter, as several if its indexes alone are more than a message takes."""
    indexes = letter.indexes
    if indexes is None:
        return [letter]
    most = max(1, (message_bytes_max - BATCH_BYTES - OUR_HEADERS_BYTES) // _index_bytes(indexes))
    if len(indexes) <= most:
        return [letter]
    return [letter._replace(indexes=indexes[at : at + most]) for at in range(0, len(indexes), most)]


def _index_bytes(indexes: tuple[int, ...]) -> int:
    """Return the most bytes of one of ascending indexes, with its comma."""
    return len(str(indexes[-1])) + 1


def stored_apart(letter: DeadLetter, *, message_bytes_max: int) -> StoredPart | None:
    """Return the part of its record for which a dead letter has no room; None if the record fits as it is."""
    record, indexes = letter.record, letter.indexes
    room = message_bytes_max - BATCH_BYTES - OUR_HEADERS_BYTES
    if indexes is not None:
        room -= len(indexes) * _index_bytes(indexes)
    room -= len(record.key or b"") + _headers_bytes(record.headers)
    if room < 0:
        return StoredPart.RECORD
    return None if len(record.value or b"") <= room else StoredPart.VALUE


def stored_object(
    record: SourceRecord, apart: StoredPart, *, prefix: str, batch_id: str, number: int
) -> tuple[str, bytes]:
    """Return key and body of the object that holds a record, or its value."""
    if apart is StoredPart.VALUE:
        return dead_letter_key(prefix, batch_id=batch_id, number=number), record.value or b""
    body = encode_stored_record(StoredRecord(record.key, record.value, list(record.headers)))
    return stored_record_key(prefix, batch_id=batch_id, number=number), body


def holds_record(object_key: str) -> bool:
    """Return whether a stored object holds a whole record, not its value only."""
    return object_key.endswith(RECORD_SUFFIX)
