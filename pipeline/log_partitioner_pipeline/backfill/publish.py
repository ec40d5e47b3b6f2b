"""From the outbox to the topics: transactions of references and dead letters, each with the run's progress.

A transaction's run record states the number of the next message, so that messages and number are committed together or
not at all. A publisher fences all others before it asks what it may do, because only then nothing can change any more.

    open (fences) -> how far has this run come? -> has anybody else published over its range? -> one transaction

A second publisher of the same run makes the first one fail at its next commit, and goes on at the same message. A
publisher of another run finds the messages of the first one, and stops.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import structlog

from log_partitioner.adapters.kafka.topics import KafkaTopics
from log_partitioner.batch.messages import backfill_message
from log_partitioner.formats.dead_letter import parse_headers
from log_partitioner.formats.flush_record import (
    BackfilledTopicPartition,
    BackfillRecord,
    BackfillTotals,
    decode_backfill_record,
)
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.formats.reference import decode_references
from log_partitioner.formats.replay import is_replay_mark
from log_partitioner.proof.accounting import tp_of
from log_partitioner_pipeline.backfill.held import intersects, settled_ends
from log_partitioner_pipeline.backfill.outbox import Outbox, OutboxMessage, read_outbox
from log_partitioner_pipeline.backfill.write import GENERATION, TRANSACTION_BYTES_MAX, WORKER, sender_of
from log_partitioner_pipeline.errors import OvertakenError, PipelineError
from log_partitioner_pipeline.progress import StepProgress
from log_partitioner_pipeline.publisher import UnknownOutcomeError
from log_partitioner_pipeline.references import decode

if TYPE_CHECKING:
    from log_partitioner.boundary import Message
    from log_partitioner.config.settings import KafkaSettings, Settings
    from log_partitioner_pipeline.backfill.outbox import Run
    from log_partitioner_pipeline.objects import Objects
    from log_partitioner_pipeline.publisher import Publisher

TRANSACTION_MESSAGES_MAX = 1000
_UNKNOWN_MAX = 3


class _Reader:
    """Reads a topic on and on: each call returns the messages committed since the call before.

    It begins at `starts`, or at the first message there is.
    """

    def __init__(self, settings: KafkaSettings, topic: str, starts: dict[int, int] | None) -> None:
        self._settings = settings
        self._topic = topic
        self._next = None if starts is None else dict(starts)

    def read(self) -> Iterator[SourceRecord]:
        with KafkaTopics.of(self._settings) as topics:
            ends = settled_ends(topics, self._topic, may_lack_beginning=True)
            if self._next is None:
                self._next = {n: topics.ends(TopicPartition(self._topic, n)).first for n in ends}
            ranges = {TopicPartition(self._topic, n): (self._next.get(n, 0), end) for n, end in ends.items()}
            yield from topics.read(ranges)
        self._next |= ends


class RunLog:
    """The backfills topic: the newest record of each run that it still has."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._reader = _Reader(settings, settings.backfills_topic, None)
        self._newest: dict[str, BackfillRecord] = {}

    def newest(self, batch_id: str) -> BackfillRecord | None:
        """Read on, and return the newest record of a run.

        Raises:
            CouldNotTellError: no broker answers, or there is no such topic.
            PipelineError: a message is no run record.
        """
        for message in self._reader.read():
            try:
                record = decode_backfill_record(message.value or b"")
            except msgspec.DecodeError as error:
                raise PipelineError(f"{message.tp} offset {message.offset} is no run record: {error}") from error
            self._newest[record.batch_id] = record
        return self._newest.get(batch_id)


class Rivals:
    """Looks for messages that others have published over the range of a run since its search, and for its own."""

    def __init__(self, settings: KafkaSettings, run: Run) -> None:
        self._run = run
        self._references = _Reader(settings, run.references_topic, run.reference_ends)
        self._dead_letters = _Reader(settings, run.dead_letters_topic, run.dead_letter_ends)
        self._own = 0

    def require_none(self, *, published: int) -> None:
        """Read on, and refuse to go on if somebody has, or the run itself has published other than `published`.

        Raises:
            OvertakenError: it says who.
            CouldNotTellError: no broker answers.
        """
        run = self._run
        for message in self._references.read():
            references = decode(message)
            if any(one.batch_id == run.batch_id for one in references):
                self._own += 1
            elif any(one.group_id == run.group_id and intersects(one, run.ranges) for one in references):
                raise OvertakenError(_complaint(run, references[0].batch_id))
        for message in self._dead_letters.read():
            if is_replay_mark(message.headers):
                continue
            letter = parse_headers(message.headers)
            span = run.ranges.get(letter.tp, range(0))
            if letter.batch_id == run.batch_id:
                self._own += 1
            elif letter.group_id == run.group_id and letter.offset in span:
                raise OvertakenError(_complaint(run, letter.batch_id))
        if self._own != published:
            raise OvertakenError(
                f"run {run.run_id} has published {self._own} messages, its run record says {published}: the topic has "
                "lost records of it; a new run over the range takes what is lacking"
            )


def _complaint(run: Run, other: str) -> str:
    return (
        f"batch {other} has published entries of the same range since run {run.run_id} looked: what this run has not "
        "published yet it never will; a new run over the range takes what is lacking"
    )


class Published(NamedTuple):
    """Numbers of messages and transactions that one call has published."""

    messages: int
    transactions: int


class Publication:
    """Publishes the rest of one run's outbox."""

    def __init__(self, outbox: Outbox, publisher: Publisher, objects: Objects, settings: Settings) -> None:
        self._outbox = outbox
        self._publisher = publisher
        self._objects = objects
        self._settings = settings
        self._runs = RunLog(settings.kafka)
        self._rivals = Rivals(settings.kafka, outbox.run)
        self._log = structlog.get_logger("backfill").bind(run=outbox.run.run_id)
        self._progress = StepProgress(None, "backfill")

    def publish(self) -> Published:
        """Publish the rest; on return everything is visible to readers.

        Raises:
            OvertakenError: somebody else publishes, or has published, this range.
            PipelineError: it cannot go on now; a later call goes on from there.
        """
        self._progress.step("messages", total=self._outbox.messages, unit="messages")
        with self._progress:
            return self._publish()

    def _publish(self) -> Published:
        outbox, done, unknown = self._outbox, Published(0, 0), 0
        before = self._newest()
        while before.published < outbox.messages:
            self._publisher.open()
            before = self._newest()
            self._rivals.require_none(published=before.published)
            chunk = self._chunk(before.published)
            if not chunk:
                break
            after = advance(before, chunk, self._outbox.run, at_ms=time.time_ns() // 1_000_000)
            try:
                self._commit(chunk, after)
            except UnknownOutcomeError as error:
                unknown += 1
                if unknown == _UNKNOWN_MAX:
                    raise
                self._log.warning("outcome_unknown", cause=str(error))
                continue
            self._progress.reach(after.published)
            self._log.info("messages_published", published=after.published, messages=after.messages)
            done, before = Published(done.messages + len(chunk), done.transactions + 1), after
        self._await_visible()
        return done

    def _newest(self) -> BackfillRecord:
        """Return the run's progress by the topic."""
        outbox = self._outbox
        newest = self._runs.newest(outbox.run.batch_id)
        if newest is not None and newest.outbox != outbox.digest:
            raise OvertakenError(f"run {outbox.run.run_id} was published from another list of messages than this one")
        return newest or beginning(outbox)

    def _chunk(self, begin: int) -> list[OutboxMessage]:
        """Take the messages of the next transaction."""
        chunk: list[OutboxMessage] = []
        size = 0
        for announced in read_outbox(self._objects, self._settings.s3.bucket, self._outbox, begin=begin):
            size += announced.size
            if chunk and (size > TRANSACTION_BYTES_MAX or len(chunk) >= TRANSACTION_MESSAGES_MAX):
                break
            chunk.append(announced)
        return chunk

    def _commit(self, chunk: list[OutboxMessage], after: BackfillRecord) -> None:
        topic, sender = self._settings.kafka.backfills_topic, sender_of(self._outbox.run, self._settings)
        messages: list[Message] = [announced.message for announced in chunk]
        messages.append(backfill_message(after, topic, sender, at_ms=after.committed_at_ms))
        self._publisher.commit(messages)

    def _await_visible(self) -> None:
        """Wait until readers see everything committed: it becomes visible in one topic after the other."""
        run, kafka = self._outbox.run, self._settings.kafka
        with KafkaTopics.of(kafka) as topics:
            for topic in (run.references_topic, run.dead_letters_topic, kafka.backfills_topic):
                settled_ends(topics, topic, may_lack_beginning=True)


def beginning(outbox: Outbox) -> BackfillRecord:
    """Return the record of a run that has published nothing; it is not published itself."""
    run = outbox.run
    return BackfillRecord(
        batch_id=run.batch_id,
        group_id=run.group_id,
        worker=WORKER,
        generation=GENERATION,
        started_at_ms=run.started_at_ms,
        committed_at_ms=run.started_at_ms,
        outbox=outbox.digest,
        published=0,
        messages=outbox.messages,
        topic_partitions=tuple(
            BackfilledTopicPartition(
                topic=tp.topic,
                partition=tp.partition,
                first_offset=span.start,
                next_offset=span.stop,
                entries_in_files=0,
                dead_letters=0,
            )
            for tp, span in sorted(run.ranges.items())
        ),
        totals=BackfillTotals(references=0, entries_in_files=0, dead_letters=0, dead_letter_records=0, bytes=0),
    )


def advance(before: BackfillRecord, chunk: Iterable[OutboxMessage], run: Run, *, at_ms: int) -> BackfillRecord:
    """Return the run record behind these messages."""
    totals: Counter[str] = Counter(msgspec.structs.asdict(before.totals))
    in_files: Counter[TopicPartition] = Counter()
    dead: Counter[TopicPartition] = Counter()
    published = before.published
    for announced in chunk:
        published += 1
        if announced.topic == run.references_topic:
            references = decode_references(announced.value or b"")
            totals["references"] += len(references)
            # An object may have several messages; one of its references begins at its first byte.
            totals["bytes"] += sum(one.location.size for one in references if len(one.location.ranges) == 1)
            for source in (source for one in references for source in one.sources):
                in_files[tp_of(source)] += source.entries
        else:
            letter = parse_headers(announced.headers)
            totals["dead_letter_records"] += 1
            dead[letter.tp] += letter.entries
    totals["entries_in_files"] += in_files.total()
    totals["dead_letters"] += dead.total()
    return msgspec.structs.replace(
        before,
        committed_at_ms=at_ms,
        published=published,
        topic_partitions=tuple(
            msgspec.structs.replace(
                line,
                entries_in_files=line.entries_in_files + in_files[tp_of(line)],
                dead_letters=line.dead_letters + dead[tp_of(line)],
            )
            for line in before.topic_partitions
        ),
        totals=BackfillTotals(**totals),
    )
