"""The group member: the only user of `confluent_kafka.Consumer`. Fulfils `runtime.ports.Consumer`.

Assignments are made with explicit offsets, inside the callback, so that a start position is never left to a reset.
Where the library reports what it could not read, it goes on behind it: nothing of that TopicPartition is handed over
any more until it is sought.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import confluent_kafka
import structlog
from confluent_kafka import KafkaError, KafkaException

from service.adapters import kafka_errors
from service.adapters.kafka_log import Brokers, make_client
from service.adapters.kafka_poll import TopicPartitions, poll_of
from service.adapters.kafka_topic_ids import TopicIds
from service.adapters.kafka_values import (
    committed_offset,
    parse_group_metadata,
    position,
    topic_partition,
    topic_partitions,
)
from service.boundary import FetchFailure, Membership, Poll, RebalanceListener
from service.control.deadline import Deadline
from service.errors import SourceError
from service.formats.model import CommittedOffset, TopicPartition
from service.patience import Patience, close_or_leave

T = TypeVar("T")

_ASK_AGAIN_S = 0.1
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
        self._metadata_client: confluent_kafka.Consumer | None = None
        self._topics = list(topics)
        self._is_assigned = False
        self._paused = False
        self._paused_tps: set[TopicPartition] = set()
        self._tps = TopicPartitions()
        self._reached: dict[TopicPartition, int] = {}
        self._failures: dict[TopicPartition, FetchFailure] = {}
        self._unchecked: dict[TopicPartition, CommittedOffset] = {}
        self._topic_ids = TopicIds(options, self._patience)
        self._log = structlog.get_logger("consumer")

    def subscribe(self, listener: RebalanceListener) -> None:
        """Join the group; all three callbacks are set, or lost ones would come as revoked."""
        self._listener = listener

        def on_assign(consumer: Any, assigned: list[confluent_kafka.TopicPartition]) -> None:
            if assigned:
                self._metadata_client_now()
            self._is_assigned = True
            starts = listener.on_assigned(topic_partitions(assigned))
            self._assign(consumer, starts)

        def on_revoke(_consumer: Any, revoked: list[confluent_kafka.TopicPartition]) -> None:
            listener.on_revoked(topic_partitions(revoked))
            self._forget(topic_partitions(revoked))

        def on_lost(_consumer: Any, lost: list[confluent_kafka.TopicPartition]) -> None:
            listener.on_lost(topic_partitions(lost))
            self._forget(topic_partitions(lost))

        self._consumer.subscribe(self._topics, on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)

    def _forget(self, tps: Iterable[TopicPartition]) -> None:
        for tp in tps:
            self._reached.pop(tp, None)
            self._failures.pop(tp, None)
            self._unchecked.pop(tp, None)

    def _assign(self, consumer: Any, starts: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Assign each at its offset; where its leader epoch is known, `consume` seeks there before it hands over any.

        Of an assignment the library compares the epoch with the log's at the next change of the leader only, unless it
        does not know the leader yet, which it does by then (KAFKA_FACTS O2). `seek` compares at once.
        """
        if not self._patience.has_ended():  # else it may still wait for an answer; it ends with the process
            self._close_metadata_client()
        positions = [position(tp, start) for tp, start in starts.items()]
        consumer.incremental_assign(positions)
        if not positions:
            return
        self._forget(starts)
        self._unchecked |= {tp: start for tp, start in starts.items() if start.leader_epoch is not None}
        # librdkafka keeps a partition paused when it is lost and assigned again (KAFKA_FACTS R9): without this it would
        # never be read after that.
        if self._paused:
            consumer.pause(positions)
            self._paused_tps |= starts.keys()
        elif stale := self._paused_tps & starts.keys():
            consumer.resume([confluent_kafka.TopicPartition(*tp) for tp in stale])
            self._paused_tps -= stale

    def consume(self, *, records_max: int, timeout_s: float) -> Poll:
        """Take records; runs rebalance callbacks.

        Raises:
            StartPositionError: an offset is out of range, or the log was rewritten below it.
            SourceError: a fatal error, or one that no waiting mends.
        """
        try:
            messages = self._consumer.consume(records_max, timeout_s)
        except KafkaException as error:
            raise SourceError(f"consuming failed: {error.args[0].str()}") from error
        if messages:
            self._brokers.answered()
        if self._failures or self._unchecked or any(map(confluent_kafka.Message.error, messages)):
            messages = [message for message in messages if self._is_record(message)]
        if self._unchecked:
            self._check_starts()
        return poll_of(messages, self._tps)

    def _is_record(self, message: confluent_kafka.Message) -> bool:
        """Return whether a message is a record to be taken; note what else it says."""
        problem = message.error()
        place: Any = (message.topic(), message.partition())
        offset: Any = message.offset()
        if problem is None:
            return all(TopicPartition(*place) not in withheld for withheld in (self._failures, self._unchecked))
        if problem.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            self._reached[TopicPartition(*place)] = offset
        else:
            self._judge(problem, place, offset)
        return False

    def _check_starts(self) -> None:
        """Seek what was just assigned, so that its leader epoch is compared; what cannot be sought yet waits."""
        for tp, start in list(self._unchecked.items()):
            try:
                self._consumer.seek(position(tp, start))
            except KafkaException as error:
                if error.args[0].code() != KafkaError._STATE:  # noqa: SLF001
                    raise SourceError(f"{tp} cannot be sought to {start.offset}: {error.args[0].str()}") from error
            else:
                self._sought(tp)

    def _sought(self, tp: TopicPartition) -> None:
        """Take records of it again: what comes now is of the new position, and a lag again."""
        if tp in self._failures and not self._paused:
            self._consumer.resume([confluent_kafka.TopicPartition(*tp)])
            self._paused_tps.discard(tp)
        self._forget([tp])

    def _judge(self, error: KafkaError, place: Any, offset: Any) -> None:
        """Stop on what no waiting mends; keep and pause a TopicPartition of which something could not be read.

        An error of a fetch has an offset; one without is of a commit, of the group, or of an offset that was asked for.
        What follows a failure of the same TopicPartition follows from it, an offset out of range too.
        """
        tp = None if place[0] is None else TopicPartition(*place)
        if tp is None and kafka_errors.is_full(error):
            self._wait_for_room(error)
            return
        kafka_errors.require_that_it_mends(error, tp)
        if tp is None or tp not in self._failures:
            kafka_errors.require_in_range(error, tp)
            if tp is None or offset is None or offset < 0:
                self._note(error, tp)
                return
            self._failures[tp] = FetchFailure(offset, error.name(), error.str())
            self._consumer.pause([confluent_kafka.TopicPartition(*tp)])  # or it would be fetched again without a pause
            self._paused_tps.add(tp)

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

    def failures(self) -> Mapping[TopicPartition, FetchFailure]:
        """Return what could not be read; such a TopicPartition is paused until it is sought."""
        return self._failures

    def fetch_again(self, tp: TopicPartition, start: CommittedOffset) -> None:
        """Assign one that has failed anew; the others stay as they are.

        It cannot be sought: behind a broken batch the library may have read garbage as a batch, and have gone to an
        offset that the log does not have (KAFKA_FACTS L1).
        """
        self._consumer.incremental_unassign([confluent_kafka.TopicPartition(*tp)])
        self._assign(self._consumer, {tp: start})

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
        ask = (self._metadata_client or self._consumer).committed
        answers = self._ask("committed offsets", lambda: ask(asked, timeout=deadline.timeout_s()), deadline)
        for answer in answers:
            if answer.error is not None:
                raise SourceError(f"no committed offset of {answer.topic}-{answer.partition}: {answer.error.str()}")
        return {topic_partition(answer): committed_offset(answer) for answer in answers}

    def partitions_of(self, topic: str, *, deadline: Deadline) -> list[TopicPartition]:
        """Ask for all TopicPartitions of a topic; by a client of its own, since this is asked inside a callback.

        Raises:
            SourceError: no answer in time, or no such topic.
        """
        ask = self._metadata_client_now().list_topics
        answer = self._ask(f"metadata of topic {topic}", lambda: ask(topic, timeout=deadline.timeout_s()), deadline)
        found = answer.topics[topic]
        if found.error is not None:
            raise SourceError(f"topic {topic}: {found.error.str()}")
        return [TopicPartition(topic, number) for number in sorted(found.partitions)]

    def watermarks(self, tp: TopicPartition, *, deadline: Deadline) -> tuple[int, int]:
        """Return the first offset and the end, asked of the client that listed the partitions: only it knows new ones.

        Raises:
            SourceError: no answer in time.
        """
        ask = (self._metadata_client or self._consumer).get_watermark_offsets
        asked = confluent_kafka.TopicPartition(*tp)
        found = self._ask(f"watermarks of {tp}", lambda: ask(asked, timeout=deadline.timeout_s()), deadline)
        if found is None:
            raise SourceError(f"no watermarks of {tp} in time")
        first, end = found
        return first, end

    def offset_at(self, tp: TopicPartition, at_ms: int, *, deadline: Deadline) -> int | None:
        """Ask for the first offset of this time or later, by Kafka's timestamps; None where none is.

        Raises:
            SourceError: no answer in time.
        """
        ask = (self._metadata_client or self._consumer).offsets_for_times
        asked = [confluent_kafka.TopicPartition(*tp, at_ms)]
        (found,) = self._ask(f"offset of {tp} by time", lambda: ask(asked, timeout=deadline.timeout_s()), deadline)
        if found.error is not None:
            raise SourceError(f"no offset of {tp} by time: {found.error.str()}")
        return found.offset if found.offset >= 0 else None

    def _ask(self, what: str, call: Callable[[], T], deadline: Deadline) -> T:
        return kafka_errors.ask_until(deadline, what, call, self._patience)

    def topic_ids(self, topics: Iterable[str], *, deadline: Deadline) -> dict[str, str]:
        """Return Kafka's ids of topics, outside callbacks only; blocks for up to 10 s: nothing depends on them."""
        return self._topic_ids.ask(topics, deadline=deadline)

    def seek(self, tp: TopicPartition, start: CommittedOffset, *, deadline: Deadline) -> None:
        """Go to an offset; librdkafka drops what it had fetched before.

        It compares the leader epoch, where it is known, with the log's: `consume` raises StartPositionError where the
        log has no such offset of that epoch, since it was truncated or is of another topic (KAFKA_FACTS O2). A
        TopicPartition that was assigned a moment ago may not be fetched yet: then it is tried again.

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
                self._sought(tp)
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
            assigned = [one for one in self._consumer.assignment() if topic_partition(one) not in self._failures]
            self._consumer.resume(assigned)
            self._paused_tps -= topic_partitions(assigned)  # the others when they are assigned again

    @property
    def is_answered(self) -> bool:
        """Whether the group has said what is ours, be it nothing: by KIP-848 nothing is not said (KAFKA_FACTS R18)."""
        return self.membership().is_proof and (self._is_assigned or self._options.get("group.protocol") == "consumer")

    def membership(self) -> Membership:
        """Return the current group metadata, read from the bytes that librdkafka passes on."""
        found = parse_group_metadata(self._consumer.consumer_group_metadata())
        return found._replace(outlives_fencing=self._options.get("group.protocol") == "consumer")

    def ends(self, next_offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the ends as last fetched, or the next offset where everything up to the end has been handed over.

        Then only transaction markers and aborted records lie between the two: nothing will ever come of them.
        """
        found = {}
        for tp, next_offset in next_offsets.items():
            end = self._end(tp)
            if end >= 0:
                found[tp] = next_offset if self._reached.get(tp, -1) >= end else end
        return found

    def held_up(self, next_offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return those of which nothing more comes though more is there: a transaction is open, at the offset given.

        The library says that the end is reached at the last stable offset; the end that it was told lies behind it.
        """
        reached = self._reached
        return {
            tp: reached[tp]
            for tp, next_offset in next_offsets.items()
            if tp in reached and next_offset <= reached[tp] < self._end(tp)
        }

    def _end(self, tp: TopicPartition) -> int:
        """Return the end as last fetched, whatever is stable; -1 where none was."""
        _, end = self._consumer.get_watermark_offsets(confluent_kafka.TopicPartition(*tp), cached=True)
        return end

    def close(self) -> None:
        """Leave the group; runs the callbacks, in a helper thread while this one stands still.

        The broker is told at once. Raises LeavingError where the library goes on to wait for it: up to 5 s for one that
        says nothing, and longer for what was asked before (KAFKA_FACTS L5); it ends with the process.
        """
        self._patience.to_leave().ask(self._close_both)

    def _close_both(self) -> None:
        self._consumer.close()
        self._close_metadata_client()

    def _metadata_client_now(self) -> confluent_kafka.Consumer:
        """Have a client for what is asked inside a callback, until the assignment is made.

        There `list_topics` of the same client aborts the process at its next callback, be it a line of its log, and
        `committed` never returns in a thread of `Patience.ask` (KAFKA_FACTS L4).
        """
        if self._metadata_client is None:
            self._metadata_client = make_client(confluent_kafka.Consumer, "consumer", self._options, self._brokers)
        return self._metadata_client

    def _close_metadata_client(self) -> None:
        client, self._metadata_client = self._metadata_client, None
        if client is not None:
            client.close()
