"""The group member: the only user of `confluent_kafka.Consumer`. Fulfils `boundary.Consumer`.

The callback of an assignment only takes note, because the library answers fewer questions there (KAFKA_FACTS L4). The
first seek, outside of callbacks, hands the partition to the library at the very offset: an offset that the library
looks up may win against a seek (KAFKA_FACTS R19). The library reports a record that it cannot read, and goes on behind
it: the consumer hands over no more of that TopicPartition until it is sought.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import confluent_kafka
import structlog
from confluent_kafka import KafkaError, KafkaException

from log_partitioner.adapters.kafka import errors as kafka_errors
from log_partitioner.adapters.kafka.admin import GONE, ask_topic_ids
from log_partitioner.adapters.kafka.log import Brokers, make_client
from log_partitioner.adapters.kafka.values import (
    TopicPartitions,
    committed_offset,
    offset_to_library,
    parse_group_metadata,
    poll_of,
    topic_partition,
    topic_partitions,
)
from log_partitioner.boundary import END_OFFSET, FetchFailure, Membership, Poll, RebalanceListener
from log_partitioner.config.source_topics import SourceNames
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import SourceError
from log_partitioner.formats.model import CommittedOffset, TopicPartition
from log_partitioner.patience import Patience, close_or_leave

T = TypeVar("T")
Answers = list[confluent_kafka.TopicPartition]

_SEEK_AGAIN_S = 0.01
_SEEK_S = 1.0  # at least, for the library to begin or to stop a TopicPartition as it was told
_TOPIC_IDS_S, _TOPIC_ID_AGAIN_S = 10.0, 60.0
JOIN_AGAIN_S = 5.0


class KafkaConsumer:
    """A member of the consumer group; used by the loop thread only."""

    def __init__(
        self,
        options: Mapping[str, Any],
        topics: Iterable[str],
        *,
        brokers: Brokers | None = None,
        patience: Patience | None = None,
    ) -> None:
        self._options = options
        self._brokers = brokers or Brokers()
        self._patience = patience or Patience()
        self._consumer = make_client(confluent_kafka.Consumer, "consumer", options, self._brokers)
        self._asking: confluent_kafka.Consumer | None = None
        self._sources = SourceNames(topics)
        self._is_assigned = False
        self._paused = False
        self._unsought: set[TopicPartition] = set()
        self._tps = TopicPartitions()
        self._reached: dict[TopicPartition, int] = {}
        self._sought: dict[TopicPartition, int] = {}
        self._failures: dict[TopicPartition, FetchFailure] = {}
        self._ids_asked_from_s: dict[str, float] = {}  # of topics whose id was not told
        self._log = structlog.get_logger("consumer")

    def subscribe(self, listener: RebalanceListener) -> None:
        """Join the group; all three callbacks are set, or lost ones would come as revoked."""
        self._listener = listener

        def on_assign(consumer: Any, assigned: list[confluent_kafka.TopicPartition]) -> None:
            self._is_assigned = True
            listener.on_assigned(topic_partitions(assigned))
            self._forget(topic_partitions(assigned))
            self._unsought |= topic_partitions(assigned)
            consumer.incremental_assign([])

        def on_revoke(consumer: Any, revoked: list[confluent_kafka.TopicPartition]) -> None:
            listener.on_revoked(topic_partitions(revoked))
            self._unassign(consumer, topic_partitions(revoked))

        def on_lost(consumer: Any, lost: list[confluent_kafka.TopicPartition]) -> None:
            listener.on_lost(topic_partitions(lost))
            self._unassign(consumer, topic_partitions(lost))

        self._consumer.subscribe(
            self._sources.subscription(), on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost
        )

    def _forget(self, tps: Iterable[TopicPartition]) -> None:
        self._unsought.difference_update(tps)
        for tp in tps:
            self._reached.pop(tp, None)
            self._failures.pop(tp, None)
            self._sought.pop(tp, None)

    def _unassign(self, consumer: Any, tps: frozenset[TopicPartition]) -> None:
        """Take TopicPartitions back from the library, if it has them: it would refuse all if one is unknown."""
        consumer.incremental_unassign([confluent_kafka.TopicPartition(*tp) for tp in sorted(tps - self._unsought)])
        self._forget(tps)

    def consume(self, *, records_max: int, timeout_s: float) -> Poll:
        """Take records; runs rebalance callbacks.

        Raises:
            StartPositionError: an offset is out of range, or the log was rewritten below it.
            SourceError: a fatal error, or one that does not pass by itself.
        """
        try:
            messages = self._consumer.consume(records_max, timeout_s)
        except KafkaException as error:
            raise SourceError(f"consuming failed: {error.args[0].str()}") from error
        if messages:
            self._brokers.answered()
        if self._failures or any(map(confluent_kafka.Message.error, messages)):
            messages = [message for message in messages if self._is_record(message)]
        return poll_of(messages, self._tps)

    def _is_record(self, message: confluent_kafka.Message) -> bool:
        """Return whether a message is a record to be taken; note the end or the error that another message tells."""
        problem = message.error()
        place: Any = (message.topic(), message.partition())
        offset: Any = message.offset()
        if problem is None:
            return TopicPartition(*place) not in self._failures
        if problem.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            self._reached[TopicPartition(*place)] = offset
        else:
            self._judge(problem, place, offset)
        return False

    def _judge(self, error: KafkaError, place: Any, offset: Any) -> None:
        """Raise an error that does not pass by itself; note and pause a TopicPartition with an unreadable record.

        An error of a fetch has an offset; one without is about a commit, the group, or an offset that was asked for.
        Later errors of a TopicPartition that has failed are consequences of the first one; an error of one that is not
        sought yet is of an earlier tenure. Only the offset that was sought can be out of range: another one may be
        garbage behind a broken batch, whose own error a pause has dropped (KAFKA_FACTS L1).
        """
        tp = None if place[0] is None else TopicPartition(*place)
        if tp is None and kafka_errors.is_full(error):
            self._wait_for_room(error)
            return
        if tp is not None and kafka_errors.is_no_topic(error) and not self._sources.are_naming(tp.topic):
            self._note(error, tp)  # it was deleted, or no topic matches a pattern
            return
        if "oauth_cb" not in self._options or not kafka_errors.is_refused_login(error):  # another token may come
            kafka_errors.require_that_it_mends(error, tp)
        if tp in self._failures or tp in self._unsought:
            return
        if tp is None or offset is None or offset < 0 or offset == self._sought.get(tp):
            kafka_errors.require_in_range(error, tp)
        if tp is None or offset is None or offset < 0:
            self._note(error, tp)
            return
        self.hold(tp, FetchFailure(offset, error.name(), error.str()))

    def _note(self, error: KafkaError, tp: TopicPartition | None) -> None:
        text, where = kafka_errors.describe_with_advice(error), kafka_errors.place_of(tp)
        if tp is None:
            self._brokers.refused(text, is_full=kafka_errors.is_full(error))
        if times := self._brokers.pace.times((where, error.code())):
            self._log.warning("consumer_error", where=where, code=error.name(), message=text, times=times)

    def _wait_for_room(self, error: KafkaError) -> None:
        """Note that the group is full; with KIP-848 that kills the client, and another one joins after a while."""
        self._note(error, None)
        if kafka_errors.is_fatal(error):
            self._patience.ask(lambda: time.sleep(JOIN_AGAIN_S))
            close_or_leave(self._consumer.close)
            self._consumer = make_client(confluent_kafka.Consumer, "consumer", self._options, self._brokers)
            self.subscribe(self._listener)

    def hold(self, tp: TopicPartition, failure: FetchFailure) -> None:
        """Note a failure, and take no more of the TopicPartition; unpaused, the library would go on at once."""
        self._failures[tp] = failure
        self._consumer.pause([confluent_kafka.TopicPartition(*tp)])

    def failures(self) -> Mapping[TopicPartition, FetchFailure]:
        """Return the unreadable offsets; such a TopicPartition is paused until it is sought."""
        return self._failures

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
        answers = self._answers("committed offsets", self._for_questions().committed, asked, deadline)
        return {topic_partition(answer): committed_offset(answer) for answer in answers}

    def partitions_of(self, topic: str, *, deadline: Deadline) -> list[TopicPartition]:
        """Ask for all TopicPartitions of a topic; not inside a callback (KAFKA_FACTS L4).

        Raises:
            SourceError: no answer in time, or no such topic.
        """
        ask = self._for_questions().list_topics
        answer = self._ask(f"metadata of topic {topic}", lambda: ask(topic, timeout=deadline.timeout_s()), deadline)
        found = answer.topics[topic]
        if found.error is not None:
            raise SourceError(f"topic {topic}: {found.error.str()}")
        return [TopicPartition(topic, number) for number in sorted(found.partitions)]

    def offsets_at(self, tps: Iterable[TopicPartition], at_ms: int, *, deadline: Deadline) -> dict[TopicPartition, int]:
        """Ask for the first offset of this time or later, by Kafka's timestamps, or the end.

        The end is asked for first: a record that comes between the two questions is found by the second. The library
        knows partitions that were added a moment ago only after a look at the topic.

        Raises:
            SourceError: no answer in time.
        """
        wanted = list(tps)
        for topic in sorted({tp.topic for tp in wanted}):
            self.partitions_of(topic, deadline=deadline)
        ends = {} if at_ms < 0 else self._offsets_for(wanted, END_OFFSET, deadline)
        found = self._offsets_for(wanted, at_ms, deadline)
        return {tp: ends[tp] if offset < 0 else offset for tp, offset in found.items()}

    def _offsets_for(self, tps: list[TopicPartition], at_ms: int, deadline: Deadline) -> dict[TopicPartition, int]:
        asked = [confluent_kafka.TopicPartition(*tp, at_ms) for tp in tps]
        answers = self._answers("offsets by time", self._for_questions().offsets_for_times, asked, deadline)
        return {topic_partition(answer): answer.offset for answer in answers}

    def _for_questions(self) -> confluent_kafka.Consumer:
        """Return a client for questions only: one that waits for an answer stays in its group (KAFKA_FACTS L5)."""
        if self._asking is None:
            self._asking = make_client(confluent_kafka.Consumer, "consumer", self._options, self._brokers)
        return self._asking

    def _answers(self, what: str, ask: Callable[..., Answers], asked: Answers, deadline: Deadline) -> Answers:
        """Ask about TopicPartitions; the answer for one may be an error that passes."""
        return self._ask(
            what, lambda: kafka_errors.require_answered(ask(asked, timeout=deadline.timeout_s())), deadline
        )

    def _ask(self, what: str, call: Callable[[], T], deadline: Deadline) -> T:
        try:
            return kafka_errors.answer_of(deadline, call, self._patience)
        except KafkaException as error:
            raise SourceError(f"no {what}: {error.args[0].str()}") from error

    def topic_ids(self, topics: Iterable[str], *, deadline: Deadline) -> dict[str, str]:
        """Return the ids that are told within 10 s: nothing depends on them. A missing one is logged once.

        It is asked for again after a minute; a topic that is not there each time: it may be on its way to be made anew.
        """
        now_s, from_s = deadline.now_s(), self._ids_asked_from_s
        asked = [topic for topic in topics if from_s.get(topic, now_s) <= now_s]
        timeout_s = deadline.at_most(_TOPIC_IDS_S).timeout_s()
        found, untold = self._patience.ask(lambda: ask_topic_ids(self._options, asked, timeout_s=timeout_s))
        for topic, cause in untold.items():
            if topic not in from_s:
                self._log.warning("topic_id_unknown", topic=topic, cause=cause)
            from_s[topic] = now_s + (0.0 if cause == GONE else _TOPIC_ID_AGAIN_S)
        return found

    def seek(self, tp: TopicPartition, start: CommittedOffset, *, deadline: Deadline) -> None:
        """Go to an offset; librdkafka drops what it had fetched before. Blocks for a moment.

        A newly assigned TopicPartition is handed to the library at this offset. So is a failed one, once more: behind a
        broken batch the library may have gone to an offset that the log does not have, and then neither fetches nor
        seeks (KAFKA_FACTS L1). A seek compares the leader epoch, if it is known, with the log's: `consume` raises
        StartPositionError if the log has no such offset of that epoch, because it was truncated or is of another topic
        (KAFKA_FACTS O2). If the library is still about to begin, or to stop, the seek is tried again.

        Raises:
            SourceError: the TopicPartition cannot be sought by the deadline, nor within a second.
            LeavingError: asked to leave meanwhile.
        """
        if tp in self._failures:
            self._unassign(self._consumer, frozenset({tp}))
            self._unsought.add(tp)
        place, is_new = offset_to_library(tp, start), tp in self._unsought
        if is_new:
            self._consumer.incremental_assign([place])
        until = Deadline(max(deadline.at_s, deadline.now_s() + _SEEK_S), deadline.now_s)
        while not is_new or start.leader_epoch is not None:
            try:
                self._consumer.seek(place)
            except KafkaException as error:
                problem = error.args[0]
                if problem.code() != KafkaError._STATE or until.has_passed():  # noqa: SLF001
                    raise SourceError(f"{tp} cannot be sought to {start.offset}: {problem.str()}") from error
            else:
                break
            self._patience.require()
            time.sleep(_SEEK_AGAIN_S)
        # It keeps a partition paused that is lost and assigned again (KAFKA_FACTS R9).
        if self._paused:
            self._consumer.pause([place])
        elif is_new:
            self._consumer.resume([place])
        self._forget([tp])
        self._sought[tp] = start.offset

    def pause(self) -> None:
        """Take no records; TopicPartitions sought meanwhile are paused, too."""
        if not self._paused:
            self._paused = True
            self._consumer.pause(self._consumer.assignment())

    def resume(self) -> None:
        """Take records again of all TopicPartitions that are sought and have not failed."""
        if self._paused:
            self._paused = False
            assigned = self._consumer.assignment()
            self._consumer.resume([one for one in assigned if topic_partition(one) not in self._failures])

    @property
    def is_answered(self) -> bool:
        """Whether the group has told our partitions; with KIP-848 it is silent if there are none (KAFKA_FACTS R18)."""
        return self.membership().is_proof and (self._is_assigned or self._options.get("group.protocol") == "consumer")

    def membership(self) -> Membership:
        """Return the current group metadata, read from the bytes that librdkafka passes on."""
        found = parse_group_metadata(self._consumer.consumer_group_metadata())
        return found._replace(outlives_fencing=self._options.get("group.protocol") == "consumer")

    def ends(self, next_offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the ends as last fetched, or the next offset if everything up to the end has been handed over.

        Then only transaction markers and aborted records lie between the two: nothing will ever come of them.
        """
        found = {}
        for tp, next_offset in next_offsets.items():
            end = self._end(tp)
            if end >= 0:
                found[tp] = next_offset if self._reached.get(tp, -1) >= end else end
        return found

    def blocked_by_transaction(self, next_offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return TopicPartitions that stand still although more is there, each with the offset of the open transaction.

        The library says that the end is reached at the last stable offset; the end that it was told lies behind it.
        """
        reached = self._reached
        return {
            tp: reached[tp]
            for tp, next_offset in next_offsets.items()
            if tp in reached and next_offset <= reached[tp] < self._end(tp)
        }

    def _end(self, tp: TopicPartition) -> int:
        """Return the end as last fetched, whatever is stable; -1 if none was."""
        _, end = self._consumer.get_watermark_offsets(confluent_kafka.TopicPartition(*tp), cached=True)
        return end

    def close(self) -> None:
        """Leave the group; runs the callbacks, in a helper thread while this one stands still.

        The broker learns of it at once. Raises LeavingError if the library goes on waiting: up to 5 s for a silent
        broker, longer for earlier requests (KAFKA_FACTS L5); it ends with the process.
        """
        self._patience.to_leave().ask(self._close_both)

    def _close_both(self) -> None:
        self._consumer.close()
        if self._asking is not None:
            self._asking.close()
