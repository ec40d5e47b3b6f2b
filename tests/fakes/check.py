"""I1 to I5 and W3, from what lies outside the workers: source logs, committed messages, objects.

Each transaction is checked when it is committed. All of them together are for the small audit to judge, which shares no
rule with the worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from log_partitioner.boundary import Message
from log_partitioner.config.section import StartAt
from log_partitioner.config.source_topics import SourceNames
from log_partitioner.formats.dead_letter import parse_headers
from log_partitioner.formats.findings import Kind
from log_partitioner.formats.flush_record import FlushRecord, decode_flush_record, decode_flushes, merge_parts
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.formats.reference import Reference, decode_references
from log_partitioner.proof.accounting import Sums, judge_published, judge_range, judge_totals, tp_of
from log_partitioner.proof.audit.audit import Audit, Options
from log_partitioner.proof.audit.report import Report
from log_partitioner.proof.audit.store import Address, FetchedObject
from tests.fakes.broker import Committed, FakeBroker
from tests.fakes.store import Bucket
from tests.fakes.worker import DEAD_LETTERS, FLUSHES, REFERENCES, settings_of

FOREIGN = "somebody else's"  # what PutFault.TAKEN leaves; a key that follows from its content is taken for ours
_BROKEN = {
    Kind.MISSING: "I1", Kind.DEAD_LETTER_MISSING: "I1", Kind.DUPLICATED: "I2", Kind.DEAD_LETTER_DUPLICATED: "I2",
    Kind.FLUSH_GAP: "I3", Kind.FLUSH_OVERLAP: "I3", Kind.FLUSH_WRONG: "I4", Kind.UNEXPECTED: "I4",
}  # fmt: skip


class InvariantError(AssertionError):
    """An invariant is broken; the text begins with its number."""


def flush_records(broker: FakeBroker) -> list[FlushRecord]:
    """Give all flush records, whole."""
    found = [decode_flushes(one.value or b"") for one in broker.messages(FLUSHES)]
    return _whole(one for one in found if isinstance(one, FlushRecord))


def references(broker: FakeBroker) -> list[Reference]:
    """Give all references, in the order of messages and lines."""
    return [one for message in broker.messages(REFERENCES) for one in decode_references(message.value or b"")]


def _whole(parts: Iterable[FlushRecord]) -> list[FlushRecord]:
    whole, problems = merge_parts(parts)
    if problems:
        raise InvariantError(f"I4: {problems}")
    return whole


def check_commit(committed: Committed) -> None:
    """Check one transaction when it is committed: I3 and I4 against the offsets it moves, W3 in its totals."""
    flushes = _whole(decode_flush_record(one.value or b"") for one in committed.messages if one.topic == FLUSHES)
    if len(flushes) != 1:
        raise InvariantError(f"I4: {len(flushes)} flush records in one transaction")
    flush = flushes[0]
    moved = {}
    for part in flush.topic_partitions:
        tp = TopicPartition(part.topic, part.partition)
        before = committed.before.get(tp)  # nothing where the policy says where to start: `_check_starts` looks at it
        if before not in (None, part.first_offset):  # even if nothing came: it is the newest that is known
            raise InvariantError(f"I3: {flush.batch_id}: {tp} from {part.first_offset}, committed was {before}")
        if before is None or part.next_offset > part.first_offset:
            moved[tp] = part.next_offset
    if moved != committed.offsets:
        raise InvariantError(f"I4: {flush.batch_id}: flush record {moved}, offsets {dict(committed.offsets)}")
    messages = [one for one in committed.messages if one.topic == REFERENCES]
    found = [reference for one in messages for reference in decode_references(one.value or b"")]
    letters = [one for one in committed.messages if one.topic == DEAD_LETTERS]
    _check_totals(flush, found, letters)
    _check_lines(flush, found)


def _check_lines(flush: FlushRecord, found: list[Reference]) -> None:
    """I4: references are numbered as they stand, and state the ranges of their batch."""
    if [one.reference_id for one in found] != [f"{flush.batch_id}-{number}" for number in range(len(found))]:
        raise InvariantError(f"I4: {flush.batch_id}: its references are {[one.reference_id for one in found][:5]}")
    spans = {tp_of(one): (one.first_offset, one.next_offset) for one in flush.topic_partitions}
    for reference in found:
        for one in reference.sources:
            for wrong in judge_range(one, spans.get(tp_of(one)), record="flush record"):
                raise InvariantError(f"I4: {reference.reference_id}: {wrong}")


def _check_totals(flush: FlushRecord, found: list[Reference], letters: list[Message]) -> None:
    """W3: the flush record adds up, and says what its transaction has published."""
    sums = Sums(references=len(found), dead_letter_records=len(letters))
    for reference in found:
        sums.in_files.update({tp_of(one): one.entries for one in reference.sources})
    for one in letters:
        letter = parse_headers(one.headers)
        sums.dead_letters[TopicPartition(letter.topic, letter.partition)] += len(letter.indexes or (0,))
    lines = flush.topic_partitions
    for wrong in [*judge_totals(flush.totals, lines), *judge_published(flush.totals, lines, sums)]:
        raise InvariantError(f"W3: {flush.batch_id}: {wrong.text}")


def _check_starts(broker: FakeBroker) -> None:
    """I1: the first flush of a TopicPartition begins at the first record that the policy wants, or before it."""
    first: dict[TopicPartition, int] = {}
    for flush in flush_records(broker):
        for part in flush.topic_partitions:
            first[tp_of(part)] = min(part.first_offset, first.get(tp_of(part), part.first_offset))
    for tp, offset in first.items():
        due = [one.offset for one in broker.logs[tp].records if (one.timestamp_ms or 0) >= broker.start_at_ms]
        if tp not in broker.starts and due and due[0] < offset:
            raise InvariantError(f"I1: {tp} was begun at {offset}, and the policy says {due[0]}")


def check_all(broker: FakeBroker, bucket: Bucket, **kafka: Any) -> None:
    """Check I1 to I5 over everything that was ever committed: the audit finds nothing."""
    texts = {one.schema.object: (one.schema.text or "").encode() for one in references(broker)}
    foreign = {name: text for name, text in texts.items() if bucket.objects.get(name) == FOREIGN.encode()}
    _check_starts(broker)
    start_at: StartAt = 1 if broker.start_at_ms or any(broker.starts.values()) else "beginning"
    found = audit_of(broker, bucket.objects | foreign, start_at, **kafka).findings
    for kind in (kind for kind in Kind if found.counts[kind]):
        raise InvariantError(f"{_BROKEN.get(kind, 'I5')}: {kind}: {found.examples[kind]}")


class BrokerTopics:
    """Fulfils `log_partitioner.proof.audit.audit.Topics` over a fake broker."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker

    def topic_partitions(self, topic: str, *, may_be_absent: bool = False) -> list[TopicPartition]:
        """List the TopicPartitions of a topic; there are no backfills."""
        found = sorted(tp for tp in self._broker.logs if tp.topic == topic)
        return found or ([] if may_be_absent else [TopicPartition(topic, 0)])

    def source_topic_partitions(self, sources: SourceNames) -> list[TopicPartition]:
        """List the TopicPartitions of the source topics."""
        topics = sources.among({tp.topic for tp in self._broker.logs})
        return [tp for topic in topics for tp in self.topic_partitions(topic)]

    def ends(self, tp: TopicPartition) -> tuple[int, int]:
        """Return the first offset and the end."""
        log = self._broker.logs.get(tp)
        return (0, len(self._broker.messages(tp.topic))) if log is None else (log.first_offset, log.end)

    def settled(self, tps: Iterable[TopicPartition]) -> tuple[Mapping[TopicPartition, tuple[int, int]], list[str]]:
        """Return the same: all workers are gone."""
        return {tp: self.ends(tp) for tp in tps}, []

    def committed(self, tps: list[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the group's committed offsets."""
        return {tp: self._broker.committed_offset(tp) for tp in tps}

    def can_read(self, tp: TopicPartition, first: int, end: int) -> bool:
        """Return whether any offset is whole."""
        return any(self._broker.logs[tp].broken_at(one, one + 1) is None for one in range(first, end))

    def read(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> Iterator[SourceRecord]:
        """Yield messages."""
        for tp, (first, end) in ranges.items():
            if tp in self._broker.logs:
                yield from (one for one in self._broker.logs[tp].records if first <= one.offset < end)
                continue
            for offset, one in enumerate(self._broker.messages(tp.topic)[first:end], first):
                yield SourceRecord(tp, offset, 0, one.key, one.value, tuple(one.headers))


class BucketStore:
    """Reads objects, as the audit does, from a fake bucket."""

    def __init__(self, objects: Mapping[str, bytes]) -> None:
        self._objects = objects

    def get(self, address: Address, ranges: Iterable[tuple[int, int]] | None = None) -> FetchedObject | None:
        """Read an object, or byte ranges of it."""
        data = self._objects.get(address.key)
        if data is not None and ranges is not None:
            data = b"".join(data[start : start + length] for start, length in ranges)
        return None if data is None else FetchedObject(data, None)


def audit_of(broker: FakeBroker, objects: Mapping[str, bytes], start_at: StartAt, **kafka: Any) -> Report:
    """Audit what is there, by the settings of the fakes and some others."""
    settings = settings_of(start_at)
    settings = settings.model_copy(update={"kafka": settings.kafka.model_copy(update=kafka)})
    return Audit(settings, Options(threads=1), BrokerTopics(broker), BucketStore(objects).get).run()
