"""Kafka as audits and jobs read it from one process: everything committed, nothing written, no group joined."""

from __future__ import annotations

import time
from operator import methodcaller
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from service.audit.findings import CouldNotTellError
from service.formats.model import HEADERS_UNREADABLE, Headers, SourceRecord, TopicPartition, readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from service.config.settings import KafkaSettings

ANSWER_S = 30.0
SILENCE_MAX_S = 60.0
SETTLE_S = 80.0  # a transaction that is open for longer is hardly one that will be committed
"""Brokers look every ten seconds for transactions that have been open for too long, and then abort them."""
_ASK_AGAIN_S = 0.1
_MESSAGES_AT_ONCE = 5000
_MOVING = {  # a leader or a coordinator: the library does not ask its successor by itself
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}

T = TypeVar("T")


class Ends(NamedTuple):
    """First offset there is, and the next one to be written that a read_committed reader may see."""

    first: int
    next: int


class KafkaTopics:
    """Asks where topics and the group are, and reads topics by offset; a context manager, for one thread.

    All methods block until brokers answer, for 30 s at most if not said otherwise, for a minute where leaders move, and
    raise CouldNotTellError where they do not, or where there is no such topic.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._servers = settings.bootstrap_servers
        self._options: dict[str, str | bool | int] = {
            "log_level": 3,
            **settings.properties_of("consumer"),
            "bootstrap.servers": settings.bootstrap_servers,
            "group.id": settings.group_id,  # to ask for its committed offsets; it is never joined
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.queue.backoff.ms": 20,
            "fetch.wait.max.ms": 50,
        }
        self._consumer = confluent_kafka.Consumer(self._options)
        self._uncommitted: confluent_kafka.Consumer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._consumer.close()
        finally:
            if self._uncommitted is not None:
                self._uncommitted.close()

    def cluster_id(self) -> str | None:
        """Ask which cluster this is, by its own name; None where it does not say."""
        cluster_id: str | None = self._ask(lambda: self._consumer.list_topics(timeout=ANSWER_S)).cluster_id
        return cluster_id

    def topic_partitions(self, topic: str, *, may_be_absent: bool = False) -> list[TopicPartition]:
        """List the TopicPartitions of a topic; none where it is absent and may be."""
        found = self._ask(lambda: self._consumer.list_topics(topic, timeout=ANSWER_S)).topics[topic]
        is_absent = found.error is not None and found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        if is_absent and may_be_absent:
            return []
        if found.error is not None:
            raise CouldNotTellError(f"topic {topic} of {self._servers}: {found.error.str()}")
        return [TopicPartition(topic, number) for number in sorted(found.partitions)]

    def ends(self, tp: TopicPartition) -> Ends:
        """Ask where a TopicPartition begins, and where what is committed ends, or an open transaction begins."""
        return self._watermarks(self._consumer, tp)

    def settled(self, tps: Iterable[TopicPartition]) -> tuple[dict[TopicPartition, Ends], list[str]]:
        """Wait until what is written by now is committed or aborted; give the ends, and why not all is, if so.

        The group's offsets are visible a moment before the messages of the same transaction, and what was committed
        before may stand behind a transaction that is still open: who has seen offsets asks here. A transaction that
        nobody ends is ended by the brokers: blocks for the transaction time-out and 20 s at most.
        """
        if self._uncommitted is None:
            self._uncommitted = confluent_kafka.Consumer(self._options | {"isolation.level": "read_uncommitted"})
        written = {tp: self._watermarks(self._uncommitted, tp).next for tp in tps}
        deadline_s = time.monotonic() + SETTLE_S
        ends = {tp: self.ends(tp) for tp in written}
        while unsettled := [tp for tp, end in ends.items() if end.next < written[tp]]:
            if time.monotonic() > deadline_s:
                break
            time.sleep(_ASK_AGAIN_S)
            ends |= {tp: self.ends(tp) for tp in unsettled}
        return ends, [f"{tp}: a transaction has been open for more than {SETTLE_S:.0f} s" for tp in unsettled]

    def committed(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the group's committed (stable) offsets, None where there is none."""
        asked = [_kafka(tp) for tp in tps]
        return self._offsets(self._ask(lambda: self._consumer.committed(asked, timeout=ANSWER_S)))

    def offsets_at(self, tps: Iterable[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int | None]:
        """Ask for the first offset with this record timestamp or a later one, None where there is none."""
        asked = [_kafka(tp, timestamp_ms) for tp in tps]
        return self._offsets(self._ask(lambda: self._consumer.offsets_for_times(asked, timeout=ANSWER_S)))

    def read(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> Iterator[SourceRecord]:
        """Yield the messages of these [first, next) ranges, each TopicPartition in offset order.

        Raises CouldNotTellError after 60 s of silence.
        """
        waiting = {tp: end for tp, (first, end) in ranges.items() if first < end}
        self._consumer.assign([_kafka(tp, ranges[tp][0]) for tp in waiting])
        paused: list[confluent_kafka.TopicPartition] = []
        heard_s = time.monotonic()
        while waiting:
            messages = self._consumer.consume(_MESSAGES_AT_ONCE, timeout=0.2)
            if not messages and time.monotonic() - heard_s > SILENCE_MAX_S:
                raise CouldNotTellError(f"no message for {SILENCE_MAX_S:.0f} s, {min(waiting)} not read to its end")
            for message in messages:
                tp = _tp(message)
                if tp not in waiting:
                    continue
                is_behind = (message.offset() or 0) >= waiting[tp]
                record = None if is_behind else _record(message)
                if record is not None:
                    yield record
                if record is None or record.offset + 1 >= waiting[tp]:
                    # The end of the TopicPartition, also where control records stand before it.
                    del waiting[tp]
                    self._consumer.pause([_kafka(tp)])
                    paused.append(_kafka(tp))
            if messages:
                heard_s = time.monotonic()  # after they were taken, which may be slow
        self._consumer.resume(paused)  # a pause may outlive the assignment
        self._consumer.unassign()

    def _offsets(self, found: list[confluent_kafka.TopicPartition]) -> dict[TopicPartition, int | None]:
        for one in found:
            if one.error is not None:
                name = f"{one.topic}-{one.partition} of {self._servers}"
                raise CouldNotTellError(f"the offset asked for of {name}: {one.error.str()}")
        return {TopicPartition(one.topic, one.partition): one.offset if one.offset >= 0 else None for one in found}

    def _watermarks(self, consumer: confluent_kafka.Consumer, tp: TopicPartition) -> Ends:
        return Ends(*self._ask(lambda: consumer.get_watermark_offsets(_kafka(tp), timeout=ANSWER_S)))

    def _ask(self, question: Callable[[], T | None]) -> T:
        deadline_s = time.monotonic() + ANSWER_S
        while True:
            try:
                answer = question()
            except KafkaException as error:
                problem = error.args[0]
                if problem.code() not in _MOVING or time.monotonic() > deadline_s:
                    raise CouldNotTellError(f"{self._servers} does not answer: {problem.str()}") from error
                time.sleep(_ASK_AGAIN_S)
                continue
            if answer is None:
                raise CouldNotTellError(f"{self._servers} does not answer")
            return answer


def _kafka(tp: TopicPartition, offset: int | None = None) -> confluent_kafka.TopicPartition:
    if offset is None:
        return confluent_kafka.TopicPartition(tp.topic, tp.partition)
    return confluent_kafka.TopicPartition(tp.topic, tp.partition, offset)


def _tp(message: confluent_kafka.Message) -> TopicPartition:
    topic, partition = message.topic(), message.partition()
    if topic is None or partition is None:
        raise CouldNotTellError(f"{message.error()}")
    return TopicPartition(topic, partition)


def _record(message: confluent_kafka.Message) -> SourceRecord | None:
    """Return what a message holds; None at the end of a TopicPartition."""
    error = message.error()
    if error is not None:
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
            return None
        raise CouldNotTellError(f"{message.topic()}-{message.partition()}: {error}")
    kind, timestamp = message.timestamp()
    offset = message.offset()
    assert offset is not None, "a message without error has an offset"
    headers, unreadable = _headers(message)
    return SourceRecord(
        tp=_tp(message),
        offset=offset,
        timestamp_ms=None if kind == confluent_kafka.TIMESTAMP_NOT_AVAILABLE else timestamp,
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers=headers,
        unreadable=unreadable,
    )


def _headers(message: confluent_kafka.Message) -> tuple[Headers, str | None]:
    """Return the headers, and why there are none where a name is not UTF-8, or was not for who has passed it on.

    Called from C, or the binding's exception for such a name would come out of a later call (see the worker's adapter).
    """
    try:
        headers = methodcaller("headers")(message) or ()
    except SystemError:
        return (), HEADERS_UNREADABLE
    pairs = headers.items() if isinstance(headers, dict) else headers
    return readable(tuple((name, _bytes(value)) for name, value in pairs))


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
