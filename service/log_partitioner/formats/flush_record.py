"""The flushes and backfills topics: the ranges that a flush or a backfill covers, and the outcome (docs/FORMATS.md).

Owns these messages' fields and their JSON form; `encode_*` and `decode_*` are pairs.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from log_partitioner.formats.reference import FORMAT_VERSION, decode_known

PART_NUMBERS_BYTES = 20  # room for `part` and `parts`, which are known last


class FlushedTopicPartition(msgspec.Struct, frozen=True, kw_only=True):
    """One owned TopicPartition in a flush record.

    first_offset is the committed position from which the batch started, next_offset the one it commits;
    min_offset and max_offset are None if nothing was read. idle_since_ms is wall-clock time, None while
    records come. The conservation law: entries == in files + dead_letters.
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


class FlushTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over one flush; `dead_letters` counts entries, `dead_letter_records` the messages."""

    records: int
    entries: int
    entries_in_files: int
    dead_letters: int
    dead_letter_records: int
    references: int
    bytes: int


class FlushRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Announces one flush: the offsets that it covers, and the outcome of their entries.

    One too large for its topic comes in `parts`, each with some of the TopicPartitions and everything else alike but
    for `topic_ids`; all parts of a batch together are the flush record (`merge_parts`). `topic_ids` are Kafka's ids of
    the source topics of these TopicPartitions, as far as they are known.
    """

    format_version: int = FORMAT_VERSION
    batch_id: str
    part: int = 1
    parts: int = 1
    group_id: str
    topic_ids: dict[str, str]
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
    """One TopicPartition in a backfill's record: the range it looked at, and the entries it has published so far."""

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    entries_in_files: int
    dead_letters: int


class BackfillTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over everything that a backfill has published so far; `dead_letters` counts entries."""

    references: int
    entries_in_files: int
    dead_letters: int
    dead_letter_records: int
    bytes: int


class BackfillRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Announces the progress of a backfill; one in each of its transactions, the last one of a batch id counts.

    `published` of `messages` (references and dead letters, in the order of its outbox) are committed: a restart goes on
    there. The run is finished when they are equal. `outbox` is the SHA-256 of the list of these messages.
    """

    format_version: int = FORMAT_VERSION
    batch_id: str
    group_id: str
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


_flush_record_decoder = msgspec.json.Decoder(FlushRecord)
_backfill_record_decoder = msgspec.json.Decoder(BackfillRecord)
encode_flush_record = msgspec.json.Encoder().encode
encode_backfill_record = msgspec.json.Encoder().encode


def decode_flush_record(value: bytes) -> FlushRecord:
    """Read a flush record, or one part of it.

    Raises:
        msgspec.DecodeError: not a flush record, or of a format version that this code does not know.
    """
    flush_record: FlushRecord = decode_known(_flush_record_decoder, value)
    return flush_record


def decode_backfill_record(value: bytes) -> BackfillRecord:
    """Read a backfill's record.

    Raises:
        msgspec.DecodeError: not one, or of a format version that this code does not know.
    """
    record: BackfillRecord = decode_known(_backfill_record_decoder, value)
    return record


def split_parts(record: FlushRecord, *, bytes_max: int) -> list[FlushRecord]:
    """Return a flush record in parts that have at most so many bytes of JSON each, in one if it has.

    A part has one TopicPartition at least, even if that alone is more.
    """
    if len(encode_flush_record(record)) <= bytes_max:
        return [record]
    lines, ids = record.topic_partitions, record.topic_ids
    longest = max(len(encode_flush_record((line, {line.topic: ids.get(line.topic)}))) for line in lines)
    head = msgspec.structs.replace(record, topic_partitions=(), topic_ids={})
    at_once = max(1, (bytes_max - PART_NUMBERS_BYTES - len(encode_flush_record(head))) // longest)
    some = [lines[at : at + at_once] for at in range(0, len(lines), at_once)]
    return [
        msgspec.structs.replace(
            record,
            part=part,
            parts=len(some),
            topic_partitions=few,
            topic_ids={line.topic: ids[line.topic] for line in few if line.topic in ids},
        )
        for part, few in enumerate(some, 1)
    ]


def merge_parts(parts: Iterable[FlushRecord]) -> tuple[list[FlushRecord], list[str]]:
    """Return whole flush records, in the order of their first parts, and the problems of those that are not whole.

    One with parts that are missing, doubled or unlike each other has the TopicPartitions of those there are. Records
    of one part stay as many as they are: that is for the caller to judge.
    """
    by_batch: dict[str, list[FlushRecord]] = {}
    for part in parts:
        by_batch.setdefault(part.batch_id, []).append(part)
    whole, problems = [], []
    for batch_id, some in by_batch.items():
        if all(part.parts == 1 for part in some):
            whole += some
            continue
        some.sort(key=lambda part: part.part)
        numbers = [(part.part, part.parts) for part in some]
        if numbers != [(number, len(some)) for number in range(1, len(some) + 1)]:
            of = ", ".join(f"{part} of {parts}" for part, parts in numbers)
            problems.append(f"batch {batch_id}: its flush record has the parts {of}")
        ids = {topic: topic_id for part in some for topic, topic_id in part.topic_ids.items()}
        first, *others = (
            msgspec.structs.replace(part, part=1, parts=1, topic_partitions=(), topic_ids=ids) for part in some
        )
        if any(other != first for other in others) or any(not part.topic_ids.items() <= ids.items() for part in some):
            problems.append(f"batch {batch_id}: the parts of its flush record differ in what they share")
        lines = tuple(line for part in some for line in part.topic_partitions)
        whole.append(msgspec.structs.replace(first, topic_partitions=lines))
    return whole, problems
