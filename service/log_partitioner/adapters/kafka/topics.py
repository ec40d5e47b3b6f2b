"""Kafka's topics, asked and read by offset, by a client that joins no group.

Audits, jobs and `try` read topics by it, a worker reads its flush records, and `offsets skip` looks at single offsets.
It also finds where a TopicPartition can be read again behind record batches that the client library cannot read: a
fetch from any offset of a batch gives the whole batch, and the library's error names the batch's first offset
(KAFKA_FACTS L2), so two offsets can be told to belong to one broken batch, and its end is found by halving.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import methodcaller
from typing import Any, NamedTuple, Self, TypeVar

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from log_partitioner.adapters.kafka.admin import NO_ID, ask_topic_ids
from log_partitioner.adapters.kafka.errors import answer_of, is_no_topic, require_answered
from log_partitioner.adapters.kafka.log import make_client
from log_partitioner.adapters.kafka.options import PINNED_CONSUMER, given_options
from log_partitioner.adapters.kafka.values import topic_partition
from log_partitioner.boundary import END_OFFSET, FIRST_OFFSET
from log_partitioner.config.settings import KafkaSettings
from log_partitioner.config.source_topics import SourceNames
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import CouldNotTellError, SourceError, TokenError
from log_partitioner.formats.model import HEADERS_UNREADABLE, SourceRecord, TopicPartition, readable
from log_partitioner.patience import Patience, close_or_leave

T = TypeVar("T")

ANSWER_S = 60.0
SETTLE_S = 80.0  # a transaction that is open for longer will hardly be committed
"""Brokers look every ten seconds for transactions that are open for too long, and abort them."""
_LOOK_AGAIN_S = 0.1
_POLL_S = 0.2
_MESSAGES_AT_ONCE = 5000
_LOOK_S = 5.0  # the library reports an unknown magic byte only at the first offset of its batch
_READABLE = -1


class Ends(NamedTuple):
    """The first offset there is, and the next one to be written that a read_committed reader may see."""

    first: int
    next: int


class UnansweredError(CouldNotTellError):
    """Brokers do not answer, or refuse, or hand out an unreadable record; `offset` is that of the record, if known."""

    def __init__(self, what: str, error: KafkaError, offset: int | None = None) -> None:
        super().__init__(f"{what}: {error.name()}: {error.str()}")
        self.error = error
        self.offset = offset

    @property
    def is_late(self) -> bool:
        """Whether there was no answer in time."""
        return bool(self.error.code() == KafkaError._TIMED_OUT)  # noqa: SLF001


class KafkaTopics:
    """Asks for offsets of topics and of the group, and reads topics by offset; a context manager, for one thread.

    All methods block until brokers answer, at most until the deadline `wait()`, which is called again after each
    message. They raise UnansweredError if brokers do not answer, and LeavingError if asked to leave meanwhile.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        wait: Callable[[], Deadline],
        patience: Patience | None = None,
        log_as: str | None = None,
    ) -> None:
        """Make it; its clients log by the service's logger as `log_as`, or by themselves without it."""
        self._options = options
        self._log_as = log_as
        self._wait = wait
        self._patience = patience or Patience()
        self._clients: dict[str, confluent_kafka.Consumer] = {}

    @classmethod
    def of(cls, settings: KafkaSettings, *, answer_s: float | None = None) -> Self:
        """Ask and read as audits and jobs do: everything committed, a minute for each answer.

        Raises:
            SettingsError: there is no token to log in with.
        """
        options = {
            **PINNED_CONSUMER,
            "log_level": 2,  # the library repeats each second what the error says once
            **given_options(settings, "consumer"),
            "bootstrap.servers": settings.bootstrap_servers,
            "group.id": settings.group_id,  # to ask for its committed offsets; it is never joined
            "fetch.wait.max.ms": 50,
        }
        return cls(options, wait=lambda: Deadline.after(answer_s or ANSWER_S, time.monotonic))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients.values():
            close_or_leave(client.close)

    def cluster_id(self) -> str | None:
        """Ask for the cluster's id; None if it does not say."""
        client = self._client()
        cluster_id: str | None = self._ask("its id", lambda left_s: client.list_topics(timeout=left_s).cluster_id)
        return cluster_id

    def topic_id(self, topic: str) -> str | None:
        """Ask for the id of a topic, which changes if it is made anew; None if brokers have no ids.

        Raises:
            CouldNotTellError: no broker answers, or there is no such topic.
        """
        found, untold = ask_topic_ids(self._options, [topic], timeout_s=self._wait().timeout_s())
        if untold.get(topic, NO_ID) != NO_ID:
            raise CouldNotTellError(f"topic {topic} of {self._options['bootstrap.servers']}: {untold[topic]}")
        return found.get(topic)

    def topic_partitions(self, topic: str, *, may_be_absent: bool = False) -> list[TopicPartition]:
        """List the TopicPartitions of a topic; none if it is absent and may be."""

        def ask(left_s: float) -> list[TopicPartition]:
            found = self._client().list_topics(topic, timeout=left_s).topics[topic]
            if found.error is not None:
                raise KafkaException(found.error)
            return [TopicPartition(topic, number) for number in sorted(found.partitions)]

        try:
            return self._ask(f"topic {topic}", ask)
        except UnansweredError as error:
            if may_be_absent and is_no_topic(error.error):
                return []
            raise

    def source_topic_partitions(self, sources: SourceNames) -> list[TopicPartition]:
        """List the TopicPartitions of all named source topics, and of the topics that match a pattern now.

        Raises:
            CouldNotTellError: a named one is not there, or none matches.
        """
        there = self._topics() if sources.has_patterns else {}
        if not (found := sources.among(there)):
            raise CouldNotTellError(f"no topic of {self._options['bootstrap.servers']} matches {sources}")
        return [tp for topic in found for tp in there.get(topic) or self.topic_partitions(topic)]

    def source_topics(self, sources: SourceNames) -> list[str]:
        """List source topics in the same way; the list may be empty."""
        return sources.among(self._topics() if sources.has_patterns else ())

    def _topics(self) -> dict[str, list[TopicPartition]]:
        found = self._ask("topics", lambda left_s: self._client().list_topics(timeout=left_s).topics)
        return {
            topic: [TopicPartition(topic, number) for number in sorted(one.partitions)]
            for topic, one in found.items()
            if one.error is None
        }

    def ends(self, tp: TopicPartition, *, isolation: str = "read_committed") -> Ends:
        """Ask for the first offset of a TopicPartition, and the end before any open transaction."""
        client = self._client(isolation)

        def ask(place: int) -> int:  # one by one: get_watermark_offsets takes the one for both (KAFKA_FACTS O13)
            asked = [confluent_kafka.TopicPartition(*tp, place)]
            (found,) = self._ask(
                f"the ends of {tp}",
                lambda left_s: require_answered(client.offsets_for_times(asked, timeout=left_s)),
            )
            offset: int = found.offset
            return offset

        return Ends(ask(FIRST_OFFSET), ask(END_OFFSET))

    def settled(
        self, tps: Iterable[TopicPartition], *, within_s: float = SETTLE_S
    ) -> tuple[dict[TopicPartition, Ends], list[str]]:
        """Wait until everything written by now is committed or aborted; returns the ends, and what stays open.

        The group's offsets are visible a moment before the messages of the same transaction, and committed messages may
        stand behind a transaction that is still open: so a caller that has seen offsets asks here for the ends. Brokers
        end an abandoned transaction after its time-out and at most 20 s.
        """
        until = Deadline.after(within_s, self._wait().now_s)
        written = {tp: self.ends(tp, isolation="read_uncommitted").next for tp in tps}
        ends = {tp: self.ends(tp) for tp in written}
        while open_ones := [tp for tp, end in ends.items() if end.next < written[tp]]:
            if until.has_passed():
                break
            self._patience.require()
            time.sleep(_LOOK_AGAIN_S)
            ends |= {tp: self.ends(tp) for tp in open_ones}
        told = f"a transaction has been open for more than {within_s:.0f} s, at offset"
        return ends, [f"{tp}: {told} {ends[tp].next}" for tp in open_ones]

    def committed(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the group's committed (stable) offsets, None if there is none."""
        asked = [confluent_kafka.TopicPartition(*tp) for tp in tps]
        return self._offsets(lambda left_s: self._client().committed(asked, timeout=left_s))

    def offsets_at(self, tps: Iterable[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int | None]:
        """Ask for the first offset with this record timestamp or a later one, None if there is none."""
        asked = [confluent_kafka.TopicPartition(*tp, timestamp_ms) for tp in tps]
        return self._offsets(lambda left_s: self._client().offsets_for_times(asked, timeout=left_s))

    def read(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> Iterator[SourceRecord]:
        """Yield the messages of these [first, next) ranges, each TopicPartition in offset order.

        A range is read once its last offset, a message beyond it, or the end of the log has come. An end before the
        range's end does not count, because a new leader may not know the whole log yet. One client reads: a second call
        takes the assignment of a first one that has not ended.
        """
        try:
            yield from self._read(ranges)
        except KafkaException as error:
            raise UnansweredError("reading topics", error.args[0]) from error

    def _read(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> Iterator[SourceRecord]:
        waiting = {tp: end for tp, (first, end) in ranges.items() if first < end}
        reached = {tp: ranges[tp][0] for tp in waiting}
        client, until = self._client(), self._wait()
        _assign(client, reached)
        while waiting:
            self._patience.require()
            if until.has_passed():
                raise UnansweredError(f"{min(waiting)} is not read in time", KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001
            left = sum(end - reached[tp] for tp, end in waiting.items())
            messages, is_lost = client.consume(min(left, _MESSAGES_AT_ONCE), _POLL_S), False
            for message in messages:
                error, tp, offset = message.error(), _place(message), message.offset()
                if tp is not None and tp not in waiting:
                    continue
                if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001
                    if tp is not None and offset is not None and offset >= waiting[tp]:
                        is_lost = True
                        continue
                    raise UnansweredError(f"reading {tp or 'topics'}", error, offset)
                assert tp is not None, "a record and an end are of a TopicPartition"
                assert offset is not None, "and have an offset"
                if error is None and offset < waiting[tp]:
                    reached[tp] = offset + 1
                    yield _record(message, tp, offset)
                if offset + (error is None) >= waiting[tp]:
                    del waiting[tp]
                    client.pause(_places({tp: offset}))
            if is_lost:  # behind a broken batch the library goes anywhere, and may fetch no more (KAFKA_FACTS L1)
                _assign(client, {tp: reached[tp] for tp in waiting})
            elif messages:
                until = self._wait()  # after they were taken, which may be slow
        client.unassign()

    def _client(self, isolation: str = "read_committed") -> confluent_kafka.Consumer:
        if isolation not in self._clients:
            options = {**self._options, "isolation.level": isolation}
            name, kind = self._log_as, confluent_kafka.Consumer
            try:
                self._clients[isolation] = kind(options) if name is None else make_client(kind, name, options)
            except TokenError as error:
                refused = KafkaError(KafkaError.SASL_AUTHENTICATION_FAILED, str(error))
                raise UnansweredError(f"a client of {options['bootstrap.servers']}", refused) from error
        return self._clients[isolation]

    def _offsets(
        self, call: Callable[[float], list[confluent_kafka.TopicPartition]]
    ) -> dict[TopicPartition, int | None]:
        found = self._ask("offsets", lambda left_s: require_answered(call(left_s)))
        return {topic_partition(one): one.offset if one.offset >= 0 else None for one in found}

    def _ask(self, what: str, call: Callable[[float], T]) -> T:
        until = self._wait()
        try:
            return answer_of(until, lambda: call(until.timeout_s()), self._patience)
        except KafkaException as error:
            raise UnansweredError(f"{what} of {self._options['bootstrap.servers']}", error.args[0]) from error


def _assign(client: confluent_kafka.Consumer, offsets: Mapping[TopicPartition, int]) -> None:
    client.assign(_places(offsets))
    client.resume(_places(offsets))  # a pause may outlive an assignment (KAFKA_FACTS R9)


def _places(offsets: Mapping[TopicPartition, int]) -> list[confluent_kafka.TopicPartition]:
    return [confluent_kafka.TopicPartition(*tp, offset) for tp, offset in offsets.items()]


def _place(message: confluent_kafka.Message) -> TopicPartition | None:
    topic, partition = message.topic(), message.partition()
    return None if topic is None or partition is None else TopicPartition(topic, partition)


def _record(message: confluent_kafka.Message, tp: TopicPartition, offset: int) -> SourceRecord:
    """Return the record of a message, by other code than a worker's (`values.poll_of`), because audits check that code.

    The headers are asked for from C, or the binding's exception for a name that is not UTF-8 would come out of a later
    call; and once (KAFKA_FACTS L3).
    """
    kind, timestamp = message.timestamp()
    key: Any = message.key()
    value: Any = message.value()
    try:
        headers, unreadable = readable(tuple(methodcaller("headers")(message) or ()))
    except SystemError:
        headers, unreadable = (), HEADERS_UNREADABLE
    timestamp_ms = None if kind == confluent_kafka.TIMESTAMP_NOT_AVAILABLE else timestamp
    return SourceRecord(tp, offset, timestamp_ms, key, value, headers, unreadable=unreadable)


def source_topics_of(settings: KafkaSettings) -> list[str]:
    """List the source topics of settings; asks brokers only if there are patterns.

    Raises:
        CouldNotTellError: no broker answers.
    """
    with KafkaTopics.of(settings) as topics:
        return topics.source_topics(settings.sources)


class Search:
    """Looks into one TopicPartition until a deadline."""

    def __init__(self, options: Mapping[str, Any], tp: TopicPartition, deadline: Deadline) -> None:
        self._options = {**options, "fetch.error.backoff.ms": 0, "queued.min.messages": 1}
        self._tp = tp
        self._deadline = deadline

    def readable_from(self, offset: int, end: int) -> int:
        """Return the first offset from this one on that can be read, or the end of the log.

        Raises:
            SourceError: the broker does not answer, or the library is lost in the batch.
        """
        while offset < end and (batch := self._batch_of(offset)) != _READABLE:
            outside = end
            while outside - offset > 1:
                middle = (offset + outside) // 2
                if self._batch_of(middle) == batch:
                    offset = middle
                else:
                    outside = middle
            offset = outside
        return offset

    def _batch_of(self, offset: int) -> int:
        """Return the first offset of the broken batch that this one is in, or _READABLE.

        Each look has a client of its own, because a used one may still hold records fetched from elsewhere.
        """
        until = self._deadline.at_most(_LOOK_S)
        try:
            with KafkaTopics(self._options, wait=lambda: until, log_as="search") as topics:
                list(topics.read({self._tp: (offset, offset + 1)}))
        except UnansweredError as error:
            if error.offset is None or not 0 <= error.offset <= offset:
                text = f"{self._tp}: nobody can tell where it can be read again behind {offset}: name it by --to"
                raise SourceError(text) from error
            return error.offset
        return _READABLE
