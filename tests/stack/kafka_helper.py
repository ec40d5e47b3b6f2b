"""A test's own access to Kafka: make topics, write records, read back, look at offsets.

Blocking and simple; every wait is bounded.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
)
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tools.local.topics import create_missing

_TIMEOUT_S = 30
_ANY_PARTITION = -1

# A broker that was paused accepts connections and requests, and answers none: without these a client that
# happens to ask it waits for 10 to 60 s before it asks another.
_IMPATIENT = {"socket.timeout.ms": 4000, "api.version.request.timeout.ms": 2000}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToProduce:
    """One record to write; partition None lets the client choose by key."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int = 0
    headers: Mapping[str, bytes] = field(default_factory=dict)


class KafkaHelper:
    """A Kafka of the test run, and who provides it."""

    def __init__(self, bootstrap_servers: str, *, provider: str, replication: int = 1) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.provider = provider
        self._replication = replication

    @cached_property
    def admin(self) -> AdminClient:
        """A client for everything this helper has no method for."""
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, **_IMPATIENT})

    @cached_property
    def _producer(self) -> Producer:
        """One for all: a new idempotent producer needs a second until it writes."""
        return Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "enable.idempotence": True,
                "request.timeout.ms": 4000,
                **_IMPATIENT,
            }
        )

    def create_topic(self, name: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Create a topic and return its name; it keeps its records, whatever their timestamps, unless `config` says so.

        Generated logs are older than Kafka's default retention, which every broker applies all five minutes.
        """
        defaults = {"min.insync.replicas": str(max(1, self._replication - 1)), "retention.ms": "-1"}
        topic = NewTopic(
            name,
            num_partitions=partitions,
            replication_factor=self._replication,
            config=defaults | dict(config or {}),
        )
        create_missing(self.admin, [topic])
        return name

    def produce(self, topic: str, records: Iterable[ToProduce]) -> list[tuple[int, int]]:
        """Write records; return (partition, offset) of each, in the order given."""
        written: dict[int, tuple[int, int]] = {}
        failed: list[KafkaError] = []
        producer = self._producer
        for index, record in enumerate(records):
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers.items()),
                timestamp=record.timestamp_ms,
                on_delivery=_note_delivery(index, written, failed),
                partition=_ANY_PARTITION if record.partition is None else record.partition,
            )
            producer.poll(0)
        unsent = producer.flush(_TIMEOUT_S)
        if failed or unsent:
            raise AssertionError(f"{len(failed)} records of {topic} refused ({failed[:1]}), {unsent} not sent")
        return [written[index] for index in sorted(written)]

    def produce_values(self, topic: str, values: Iterable[bytes | None]) -> list[tuple[int, int]]:
        """Write records that have only a value."""
        return self.produce(topic, (ToProduce(value=value) for value in values))

    def read_committed(self, topic: str) -> list[Message]:
        """Return all committed records of a topic up to its stable end, ordered within each partition."""
        return self._read(topic, isolation_level="read_committed")

    def read_uncommitted(self, topic: str) -> list[Message]:
        """Return all records of a topic, those of open and aborted transactions too."""
        return self._read(topic, isolation_level="read_uncommitted")

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic."""
        return sorted(self.admin.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions)

    def committed_offsets(self, group: str, topic: str) -> dict[int, int]:
        """Return what the group has committed; a partition without a commit is absent."""
        return {tp.partition: tp.offset for tp in self._committed(group, topic)}

    def committed_metadata(self, group: str, topic: str) -> dict[int, str]:
        """Return the metadata of what the group has committed."""
        return {tp.partition: tp.metadata or "" for tp in self._committed(group, topic)}

    def _committed(self, group: str, topic: str) -> list[KafkaTopicPartition]:
        # Not AdminClient.list_consumer_group_offsets: it may end the process (KAFKA_FACTS L12).
        asked = [KafkaTopicPartition(topic, partition) for partition in self.partitions(topic)]
        consumer = Consumer({"bootstrap.servers": self.bootstrap_servers, "group.id": group, **_IMPATIENT})
        found: list[KafkaTopicPartition] = []

        def is_told() -> bool:
            try:
                found[:] = consumer.committed(asked, timeout=_TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.NOT_COORDINATOR:  # the first time that anybody asks for it
                    raise
                return False
            return True

        try:
            self.wait_for("the coordinator of the group", is_told)
        finally:
            consumer.close()
        return [tp for tp in found if tp.error is None and tp.offset >= 0]

    def wait_for(self, what: str, condition: Callable[[], bool], *, timeout_s: float = _TIMEOUT_S) -> None:
        """Ask again until the condition holds; fail with `what` if it never does."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {timeout_s:.0f} s in vain for: {what}")
            time.sleep(0.1)

    def _read(self, topic: str, *, isolation_level: str) -> list[Message]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": "test-reader",  # required, never used: no subscribe, no commit
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": isolation_level,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,  # the end of an empty partition is told by a fetch of nothing
                **_IMPATIENT,
            }
        )
        try:
            reading = set(self.partitions(topic))
            consumer.assign([KafkaTopicPartition(topic, p, OFFSET_BEGINNING) for p in reading])
            records: list[Message] = []
            deadline = time.monotonic() + _TIMEOUT_S
            while reading:
                for message in consumer.consume(1000, timeout=0.05):
                    error = message.error()
                    if error is None:
                        records.append(message)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        reading.discard(message.partition())
                    else:
                        raise KafkaException(error)
                if time.monotonic() > deadline:
                    raise AssertionError(f"{topic}: no end of partitions {sorted(reading)} in {_TIMEOUT_S} s")
            return records
        finally:
            consumer.close()


def _note_delivery(
    index: int, written: dict[int, tuple[int, int]], failed: list[KafkaError]
) -> Callable[[KafkaError | None, Message], None]:
    def note(error: KafkaError | None, message: Message) -> None:
        if error is None:
            written[index] = (message.partition(), message.offset())
        else:
            failed.append(error)

    return note
