"""Stand-ins for `confluent_kafka`'s classes: they keep the library's order of calls and raise what a script says."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message


def kafka_error(
    code: int, *, fatal: bool = False, retriable: bool = False, abortable: bool = False, text: str = "scripted"
) -> KafkaException:
    """Make an exception as the library raises it."""
    return KafkaException(KafkaError(code, text, fatal, retriable, abortable))


def _place(one: confluent_kafka.TopicPartition) -> tuple[int, int | None, str | None]:
    return one.offset, one.leader_epoch, one.metadata


class ScriptedProducer:
    """A producer: one transaction at a time, `fails[call]` holds what the next calls of that name raise."""

    made: list[ScriptedProducer]
    fails: dict[str, deque[Exception | None]]
    lost_reports: int
    report_errors: deque[KafkaError]
    full_queue: int
    topics: dict[str, Callable[[], KafkaError | None]]
    waits: Callable[[], None] | None

    def __init__(self, _options: dict[str, Any], **_kwargs: Any) -> None:
        self.calls: list[str] = []
        self.produced: list[dict[str, Any]] = []
        self.offsets: dict[tuple[str, int], tuple[int, int | None, str | None]] = {}
        self.metadata: Any = None
        self.abort_timeouts: list[float] = []
        self.commit_timeouts: list[float] = []
        self._reports: list[Callable[[KafkaError | None, object], None]] = []
        self._is_open = False
        type(self).made.append(self)

    def _call(self, name: str) -> None:
        self.calls.append(name)
        waiting = type(self).fails.get(name)
        error = waiting.popleft() if waiting else None
        try:
            if error is not None:
                raise error
        finally:
            del error  # the library leaves no cycle behind either

    def init_transactions(self, _timeout: float) -> None:
        """Init."""
        self._call("init")

    def begin_transaction(self) -> None:
        """Begin; a second time on one producer is what may never happen."""
        assert "begin" not in self.calls, "a producer has one transaction"
        self._call("begin")
        self._is_open = True

    def produce(self, topic: str, *, on_delivery: Callable[[KafkaError | None, object], None], **message: Any) -> None:
        """Queue a message."""
        assert self._is_open
        if type(self).full_queue:
            type(self).full_queue -= 1
            raise BufferError("Local: Queue full")
        self._call("produce")
        self.produced.append({"topic": topic, **message})
        self._reports.append(on_delivery)

    def poll(self, _timeout: float) -> int:
        """Serve nothing, or raise a fatal error as the library does: once more, in whatever is called next."""
        if waiting := type(self).fails.get("poll"):
            raise waiting.popleft() or AssertionError
        return 0

    def flush(self, _timeout: float) -> int:
        """Serve the delivery reports, but for those the script loses."""
        self._call("flush")
        if (waits := type(self).waits) is not None:
            waits()
            return len(self._reports)
        reports, self._reports = self._reports, []
        for report in reports[type(self).lost_reports :]:
            errors = type(self).report_errors
            report(errors.popleft() if errors else None, object())
        return 0

    def list_topics(self, topic: str, *, timeout: float) -> Any:
        """Say whether a topic is there, as the script does."""
        assert timeout > 0
        self._call("list_topics")
        error = type(self).topics.get(topic, lambda: None)()
        return SimpleNamespace(topics={topic: SimpleNamespace(error=error)})

    def send_offsets_to_transaction(
        self, positions: Iterable[confluent_kafka.TopicPartition], metadata: Any, _timeout: float
    ) -> None:
        """Send offsets."""
        assert self._is_open
        self._call("offsets")
        self.offsets |= {(one.topic, one.partition): _place(one) for one in positions}
        self.metadata = metadata

    def commit_transaction(self, timeout: float = -1) -> None:
        """Commit."""
        self.commit_timeouts.append(timeout)
        self._call("commit")

    def abort_transaction(self, timeout: float) -> None:
        """Abort."""
        self.abort_timeouts.append(timeout)
        self._call("abort")


def fresh_producer_class() -> type[ScriptedProducer]:
    """Give a class with a script of its own."""
    return type(
        "Producer",
        (ScriptedProducer,),
        {
            "made": [],
            "fails": {},
            "lost_reports": 0,
            "report_errors": deque(),
            "full_queue": 0,
            "topics": {},
            "waits": None,
        },
    )


def scripted_message(
    offset: int = 0,
    *,
    error: KafkaError | None = None,
    timestamp: tuple[int, int] = (confluent_kafka.TIMESTAMP_CREATE_TIME, 7),
    headers: list[tuple[str, bytes | None]] | None = None,
    topic: str | None = "source",
    leader_epoch: int | None = 4,
) -> Message:
    """Make a message or an error, as `consume` gives them."""
    return Message(
        topic=topic,
        partition=0,
        offset=offset,
        key=b"key",
        value=b"value",
        headers=headers,
        error=error,
        timestamp=timestamp,
        leader_epoch=leader_epoch,
    )


class ScriptedConsumer:
    """A consumer: paused stays paused over a new assignment, as in librdkafka (issues 1849, 5113)."""

    made: list[ScriptedConsumer]

    def __init__(self, _options: dict[str, Any], **_kwargs: Any) -> None:
        self.callbacks: dict[str, Callable[..., None]] = {}
        self.batches: deque[list[Message] | Exception] = deque()
        self.assigned: dict[tuple[str, int], tuple[int, int | None, str | None]] = {}
        self.paused: set[tuple[str, int]] = set()
        self.seeks: list[tuple[int, int | None, str | None]] = []
        self.seek_errors: deque[Exception] = deque()
        self.answers: list[confluent_kafka.TopicPartition] | Exception = []
        self.refusals: list[Exception] = []  # of committed offsets, before the answers
        self.waited_s: list[float] = []
        self.metadata: bytes | None = None
        self.marks = (0, 0)
        self.times: dict[int, int] | Exception = {}
        self.calls: list[str] = []
        type(self).made.append(self)

    def subscribe(self, topics: list[str], **callbacks: Callable[..., None]) -> None:
        """Keep topics and callbacks."""
        self.topics = topics
        self.callbacks = callbacks

    def consume(self, _most: int, _timeout: float) -> list[Message]:
        """Give the next batch."""
        batch = self.batches.popleft() if self.batches else []
        if isinstance(batch, Exception):
            raise batch
        return batch

    def incremental_assign(self, positions: list[confluent_kafka.TopicPartition]) -> None:
        """Add to the assignment."""
        self.calls.append("incremental_assign")
        self.assigned |= {(one.topic, one.partition): _place(one) for one in positions}

    def incremental_unassign(self, positions: list[confluent_kafka.TopicPartition]) -> None:
        """Take from the assignment."""
        self.calls.append("incremental_unassign")
        assert all((one.topic, one.partition) in self.assigned for one in positions), "the library refuses all of them"
        self.unassign_for_test(*((one.topic, one.partition) for one in positions))

    def unassign_for_test(self, *tps: tuple[str, int]) -> None:
        """Do what the binding does after a revoke: forget positions, not what is paused."""
        for tp in tps:
            self.assigned.pop(tp, None)

    def assignment(self) -> list[confluent_kafka.TopicPartition]:
        """Give the assignment."""
        return [confluent_kafka.TopicPartition(*tp) for tp in self.assigned]

    def pause(self, positions: list[confluent_kafka.TopicPartition]) -> None:
        """Pause."""
        self.paused |= {(one.topic, one.partition) for one in positions}

    def resume(self, positions: list[confluent_kafka.TopicPartition]) -> None:
        """Resume."""
        self.paused -= {(one.topic, one.partition) for one in positions}

    def seek(self, position: confluent_kafka.TopicPartition) -> None:
        """Seek."""
        if self.seek_errors:
            raise self.seek_errors.popleft()
        self.seeks.append(_place(position))

    def committed(
        self, asked: list[confluent_kafka.TopicPartition], *, timeout: float
    ) -> list[confluent_kafka.TopicPartition]:
        """Give what the script says."""
        del asked
        self.waited_s.append(timeout)
        if self.refusals:
            raise self.refusals.pop()
        if isinstance(self.answers, Exception):
            raise self.answers
        return self.answers

    def list_topics(self, topic: str, *, timeout: float) -> Any:
        """Tell of a topic of two partitions."""
        assert timeout > 0
        self.calls.append("list_topics")
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions={0: None, 1: None})})

    def offsets_for_times(
        self, asked: list[confluent_kafka.TopicPartition], *, timeout: float
    ) -> list[confluent_kafka.TopicPartition]:
        """Give what the script says for the time."""
        self.waited_s.append(timeout)
        if isinstance(self.times, Exception):
            raise self.times
        return [confluent_kafka.TopicPartition(one.topic, one.partition, self.times[one.offset]) for one in asked]

    def get_watermark_offsets(self, _position: confluent_kafka.TopicPartition, *, cached: bool) -> tuple[int, int]:
        """Give what the script says."""
        assert cached
        return self.marks

    def consumer_group_metadata(self) -> bytes | None:
        """Give what the script says."""
        return self.metadata

    def close(self) -> None:
        """Leave."""
        self.calls.append("close")


def fresh_consumer_class() -> type[ScriptedConsumer]:
    """Give a class that remembers its own instances."""
    return type("Consumer", (ScriptedConsumer,), {"made": []})
