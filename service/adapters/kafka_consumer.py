"""The group member: the only user of `confluent_kafka.Consumer`. Fulfils `runtime.ports.Consumer`.

Assignments are made with explicit offsets, inside the callback, so that a start position is never left to a reset.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

import confluent_kafka
import structlog
from confluent_kafka import KafkaError, KafkaException

from service.adapters.kafka_log import client_logger
from service.adapters.kafka_topic_ids import ask_topic_ids
from service.adapters.kafka_values import (
    committed_offset,
    parse_group_metadata,
    position,
    topic_partition,
    topic_partitions,
)
from service.core.deadline import Deadline
from service.core.exchange import Membership, RebalanceListener
from service.core.model import CommittedOffset, SourceRecord, TopicPartition
from service.errors import SourceError, StartPositionError

_ANSWER_MIN_S = 0.1
_ASK_AGAIN_S = 0.1
_COMMIT_S = 10.0  # what is not committed by then was refused
_TOPIC_IDS_S, _UNTOLD_S = 10.0, 60.0
_NO_TIMESTAMP = confluent_kafka.TIMESTAMP_NOT_AVAILABLE

# Errors of a TopicPartition or the group that no waiting mends; the rest librdkafka retries by itself.
_OUT_OF_RANGE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION}  # noqa: SLF001
_HOPELESS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.INCONSISTENT_GROUP_PROTOCOL,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError._AUTHENTICATION,  # noqa: SLF001
}  # _MAX_POLL_EXCEEDED is not among them: on_lost follows, and the loop goes on


class KafkaConsumer:
    """A member of the consumer group; used by the loop thread only."""

    def __init__(self, options: Mapping[str, Any], topics: Iterable[str], *, incremental: bool) -> None:
        self._options = options
        self._consumer = _make(options)
        self._stranger: confluent_kafka.Consumer | None = None
        self._topics = list(topics)
        self._incremental = incremental
        self._paused = False
        self._paused_tps: set[TopicPartition] = set()
        self._tps: dict[tuple[str, int], TopicPartition] = {}
        self._reached: dict[TopicPartition, int] = {}
        self._untold: dict[str, float] = {}
        self._log = structlog.get_logger("consumer")

    def subscribe(self, listener: RebalanceListener) -> None:
        """Join the group; all three callbacks are set, or lost ones would come as revoked."""

        def on_assign(consumer: Any, assigned: list[confluent_kafka.TopicPartition]) -> None:
            starts = listener.on_assigned(topic_partitions(assigned))
            self._assign(consumer, starts)

        self._consumer.subscribe(
            self._topics,
            on_assign=on_assign,
            on_revoke=lambda _consumer, revoked: listener.on_revoked(topic_partitions(revoked)),
            on_lost=lambda _consumer, lost: listener.on_lost(topic_partitions(lost)),
        )

    def _assign(self, consumer: Any, starts: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Assign each at its offset.

        The library compares the leader epoch with the log's at the next change of the leader; at once it does so only
        where it does not know the leader yet, which it does by then [M]. `seek` compares at once.
        """
        self._close_stranger()
        positions = [position(tp, start) for tp, start in starts.items()]
        if self._incremental:
            consumer.incremental_assign(positions)
        else:
            consumer.assign(positions)
        if not positions:
            return
        for tp in starts:
            self._reached.pop(tp, None)
        # librdkafka keeps a partition paused over loss and a new assignment (issues 1849, 5113): paused while owned,
        # lost, everything resumed, assigned again - and it would be silent for ever.
        if self._paused:
            consumer.pause(positions)
            self._paused_tps |= starts.keys()
        elif stale := self._paused_tps & starts.keys():
            consumer.resume([confluent_kafka.TopicPartition(*tp) for tp in stale])
            self._paused_tps -= stale

    def consume(self, *, records_max: int, timeout_s: float) -> list[SourceRecord]:
        """Take records; runs rebalance callbacks.

        Raises:
            StartPositionError: an offset is out of range.
            SourceError: a fatal error, or one that no waiting mends.
        """
        try:
            messages = self._consumer.consume(records_max, timeout_s)
        except KafkaException as error:
            raise SourceError(f"consuming failed: {error.args[0].str()}") from error
        records = []
        for message in messages:
            problem = message.error()
            if problem is None:
                records.append(self._record(message))
            elif problem.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                self._note_end(message)
            else:
                self._judge(problem, message)
        return records

    def _record(self, message: confluent_kafka.Message) -> SourceRecord:
        place: Any = (message.topic(), message.partition())
        tp = self._tps.get(place)
        if tp is None:
            tp = self._tps[place] = TopicPartition(*place)
        kind, timestamp_ms = message.timestamp()
        offset: Any = message.offset()
        headers: Any = message.headers()
        return SourceRecord(
            tp,
            offset,
            timestamp_ms if kind != _NO_TIMESTAMP and timestamp_ms >= 0 else None,
            message.key(),
            message.value(),
            tuple(headers or ()),
            message.leader_epoch(),
        )

    def _note_end(self, message: confluent_kafka.Message) -> None:
        place: Any = (message.topic(), message.partition())
        offset: Any = message.offset()
        self._reached[TopicPartition(*place)] = offset

    def _judge(self, error: KafkaError, message: confluent_kafka.Message) -> None:
        where = f"{message.topic()}-{message.partition()}" if message.topic() else "the group"
        if error.code() in _OUT_OF_RANGE:
            raise StartPositionError(
                f"the committed offset of {where} is out of range: {error.str()}. Records between the committed "
                "offset and the start of the log are gone, or the topic was recreated; set the group's offsets by hand"
            )
        if error.fatal() or error.code() in _HOPELESS:
            raise SourceError(f"{where}: {error.name()}: {error.str()}")
        self._log.warning("consumer_error", where=where, code=error.name(), message=error.str())

    def committed(
        self, tps: Iterable[TopicPartition], *, deadline: Deadline
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Ask for the stable committed offsets; waits while a transaction over them is open (require-stable).

        Raises:
            SourceError: no answer in time.
        """
        asked = [confluent_kafka.TopicPartition(*tp) for tp in tps]
        if not asked:  # the library would wait for an answer that does not come while it is being closed
            return {}
        try:
            answers = self._consumer.committed(asked, timeout=_left_s(deadline))
        except KafkaException as error:
            raise SourceError(f"no committed offsets: {error.args[0].str()}") from error
        for answer in answers:
            if answer.error is not None:
                raise SourceError(f"no committed offset of {answer.topic}-{answer.partition}: {answer.error.str()}")
        return {topic_partition(answer): committed_offset(answer) for answer in answers}

    def partitions_of(self, topic: str, *, deadline: Deadline) -> list[TopicPartition]:
        """Ask for all TopicPartitions of a topic; by a client of its own, since this is asked inside a callback.

        There `list_topics` takes away what the binding needs at the next callback of the same client, be it a line of
        its log: the process aborts (CallState_get: Assertion `cs != NULL' failed).

        Raises:
            SourceError: no answer in time, or no such topic.
        """
        self._stranger = self._stranger or _make(self._options)
        try:
            found = self._stranger.list_topics(topic, timeout=_left_s(deadline)).topics[topic]
        except KafkaException as error:
            raise SourceError(f"no metadata of topic {topic}: {error.args[0].str()}") from error
        if found.error is not None:
            raise SourceError(f"topic {topic}: {found.error.str()}")
        return [TopicPartition(topic, number) for number in sorted(found.partitions)]

    def watermarks(self, tp: TopicPartition, *, deadline: Deadline) -> tuple[int, int]:
        """Ask for the first offset and the end; whoever was asked for the partitions knows those just added, too.

        Raises:
            SourceError: no answer in time.
        """
        client = self._stranger or self._consumer
        try:
            asked = confluent_kafka.TopicPartition(*tp)
            first, end = client.get_watermark_offsets(asked, timeout=_left_s(deadline))
        except (KafkaException, TypeError) as error:
            raise SourceError(f"no watermarks of {tp}: {error}") from error
        return first, end

    def topic_ids(self, topics: Iterable[str], *, deadline: Deadline) -> dict[str, str]:
        """Return Kafka's ids of topics, outside callbacks only; blocks for up to 10 s, since nothing depends on them.

        One that is not told is left out, logged once, and asked for again after a minute at the earliest.
        """
        now_s = deadline.now_s()
        asked = [topic for topic in topics if self._untold.get(topic, now_s) <= now_s]
        found, untold = ask_topic_ids(self._options, asked, timeout_s=_left_s(deadline.at_most(_TOPIC_IDS_S)))
        for topic, cause in untold.items():
            if topic not in self._untold:
                self._log.warning("topic_id_unknown", topic=topic, cause=cause)
            self._untold[topic] = now_s + _UNTOLD_S
        return found

    def commit_start(self, offsets: Mapping[TopicPartition, CommittedOffset], *, deadline: Deadline) -> None:
        """Commit start positions, outside any transaction, as the current member.

        Asked without waiting, then read back: a commit that waits has no time-out, for a broker that is silent it took
        more than three minutes [M]; and inside a callback nothing else tells what became of it.

        Raises:
            SourceError: the broker refused, or would not: into an empty group it takes a commit from nobody.
        """
        if not self.membership().is_proof:
            raise SourceError("start positions are not committed: no longer a member of the group")
        positions = [position(tp, start) for tp, start in offsets.items()]
        try:
            self._consumer.commit(offsets=positions, asynchronous=True)
        except KafkaException as error:
            raise SourceError(f"start positions are not committed: {error.args[0].str()}") from error
        until = deadline.at_most(_COMMIT_S)
        while (found := self.committed(offsets, deadline=deadline)) != offsets:
            if until.has_passed():
                different = sorted(tp for tp, start in offsets.items() if found[tp] != start)
                raise SourceError(f"start positions are not committed: of {different[0]} the broker has not taken it")
            time.sleep(_ASK_AGAIN_S)

    def seek(self, tp: TopicPartition, start: CommittedOffset, *, deadline: Deadline) -> None:
        """Go to an offset; librdkafka drops what it had fetched before.

        It compares the leader epoch, where it is known, with the log's: `consume` raises StartPositionError where the
        log has no such offset of that epoch, since it was truncated or is of another topic [M]. A TopicPartition that
        was assigned a moment ago may not be fetched yet: then it is tried again.

        Raises:
            SourceError: the TopicPartition cannot be sought by the deadline.
        """
        while True:
            try:
                self._consumer.seek(position(tp, start))
            except KafkaException as error:
                problem = error.args[0]
                if problem.code() != KafkaError._STATE or deadline.has_passed():  # noqa: SLF001
                    raise SourceError(f"{tp} cannot be sought to {start.offset}: {problem.str()}") from error
                time.sleep(_ASK_AGAIN_S)
            else:
                self._reached.pop(tp, None)  # what comes again is a lag again
                return

    def pause(self) -> None:
        """Take no records, of what is assigned meanwhile neither."""
        if not self._paused:
            self._paused = True
            assigned = self._consumer.assignment()
            self._consumer.pause(assigned)
            self._paused_tps |= topic_partitions(assigned)

    def resume(self) -> None:
        """Take records again."""
        if self._paused:
            self._paused = False
            assigned = self._consumer.assignment()
            self._consumer.resume(assigned)
            self._paused_tps -= topic_partitions(assigned)  # the others when they are assigned again

    def membership(self) -> Membership:
        """Give the current group metadata, read from the bytes that librdkafka passes on."""
        return parse_group_metadata(self._consumer.consumer_group_metadata())

    def ends(self, next_offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Give the ends as last fetched; the next offset where everything up to the end has been handed over.

        Between the two lie only transaction markers and aborted records: nothing will ever come of them.
        """
        found = {}
        for tp, next_offset in next_offsets.items():
            _, end = self._consumer.get_watermark_offsets(confluent_kafka.TopicPartition(*tp), cached=True)
            if end >= 0:
                found[tp] = next_offset if self._reached.get(tp, -1) >= end else end
        return found

    def close(self) -> None:
        """Leave the group; runs the callbacks."""
        self._close_stranger()
        self._consumer.close()

    def _close_stranger(self) -> None:
        stranger, self._stranger = self._stranger, None
        if stranger is not None:
            stranger.close()


def _make(options: Mapping[str, Any]) -> confluent_kafka.Consumer:
    logger, handler = client_logger("consumer")
    return confluent_kafka.Consumer({**options, "error_cb": handler.on_error}, logger=logger)


def _left_s(deadline: Deadline) -> float:
    return max(_ANSWER_MIN_S, deadline.remaining_s())
