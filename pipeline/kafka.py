"""Kafka from the driver: where a topic's partitions begin and end, and Spark's options for reading it.

The pipeline's only user of confluent_kafka beside the publisher; records themselves are read by Spark.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from pipeline.errors import BrokerError
from service.formats import model

if TYPE_CHECKING:
    from service.config.settings import KafkaSettings

_ANSWER_S = 20.0
_ASK_AGAIN_S = 0.2
_MESSAGES_AT_ONCE = 2000
_AS_KAFKA_WRITES = str.maketrans("+/", "-_")  # its tools write ids in the alphabet for URLs, librdkafka does not

T = TypeVar("T")


class Ends(NamedTuple):
    """First offset there is, and the next one to be written that a read_committed reader may see."""

    first: int
    next: int


def partition_ends(settings: KafkaSettings, topic: str) -> dict[int, Ends]:
    """Ask where the partitions of a topic begin and end; blocks for up to 20 s a partition.

    Raises:
        BrokerError: no broker answers, or there is no such topic.
    """
    options = {"group.id": "log-partitioner-pipeline", "enable.auto.commit": False}
    consumer = Consumer(client_options(settings) | options)
    try:
        metadata = consumer.list_topics(topic, timeout=_ANSWER_S).topics[topic]
        if metadata.error is not None:
            raise BrokerError(f"topic {topic} of {settings.bootstrap_servers}: {metadata.error.str()}")
        return {
            partition: Ends(*consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_ANSWER_S))
            for partition in sorted(metadata.partitions)
        }
    except KafkaException as error:
        raise BrokerError(f"{settings.bootstrap_servers} does not answer: {error.args[0].str()}") from error
    finally:
        consumer.close()


def ask_topic_id(settings: KafkaSettings, topic: str) -> str | None:
    """Ask for the id of a topic, which one made anew has not; None of brokers that give none. Blocks for up to 20 s.

    Raises:
        BrokerError: no broker answers, or there is no such topic.
    """
    admin = AdminClient(client_options(settings))
    try:
        found = admin.describe_topics(TopicCollection([topic]), request_timeout=_ANSWER_S)[topic].result()
    except KafkaException as error:
        raise BrokerError(f"topic {topic} of {settings.bootstrap_servers}: {error.args[0].str()}") from error
    is_told = found.topic_id.get_most_significant_bits() or found.topic_id.get_least_significant_bits()
    return str(found.topic_id).translate(_AS_KAFKA_WRITES) if is_told else None


class Brokers:
    """Asks where topics and the group are, of several topics at once; a context manager. The group is not joined."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._servers = settings.bootstrap_servers
        options = client_options(settings) | {"group.id": settings.group_id, "enable.auto.commit": False}
        self._consumer = Consumer(options)
        self._uncommitted = Consumer(options | {"isolation.level": "read_uncommitted"})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()
        self._uncommitted.close()

    def cluster_id(self) -> str | None:
        """Ask which cluster this is, by its own name; None where it does not say.

        Raises:
            BrokerError: no broker answers.
        """
        cluster_id: str | None = self._ask(lambda: self._consumer.list_topics(timeout=_ANSWER_S)).cluster_id
        return cluster_id

    def topic_partitions(self, topic: str, *, may_be_absent: bool = False) -> list[model.TopicPartition]:
        """List the TopicPartitions of a topic; none where it is absent and may be.

        Raises:
            BrokerError: no broker answers, or there is no such topic.
        """
        found = self._ask(lambda: self._consumer.list_topics(topic, timeout=_ANSWER_S)).topics[topic]
        is_absent = found.error is not None and found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        if is_absent and may_be_absent:
            return []
        if found.error is not None:
            raise BrokerError(f"topic {topic} of {self._servers}: {found.error.str()}")
        return [model.TopicPartition(topic, number) for number in sorted(found.partitions)]

    def ends(self, tp: model.TopicPartition) -> Ends:
        """Ask where a TopicPartition begins, and where what is committed ends.

        Raises:
            BrokerError: no broker answers.
        """
        return self._watermarks(self._consumer, tp)

    def settled_ends(self, tp: model.TopicPartition, *, wait_s: float) -> tuple[Ends, bool]:
        """Wait until what is written by now is committed or aborted; tells whether it was within `wait_s` seconds.

        A transaction's offsets are visible a moment before its messages: who has seen the offsets asks here.

        Raises:
            BrokerError: no broker answers.
        """
        written = self._watermarks(self._uncommitted, tp).next
        deadline = time.monotonic() + wait_s
        while True:
            ends = self.ends(tp)
            if ends.next >= written or time.monotonic() > deadline:
                return ends, ends.next >= written
            time.sleep(_ASK_AGAIN_S)

    def committed(self, tps: Iterable[model.TopicPartition]) -> dict[model.TopicPartition, int | None]:
        """Ask for the group's committed offsets, None where there is none.

        Raises:
            BrokerError: no broker answers, or not for each TopicPartition.
        """
        asked = [TopicPartition(*tp) for tp in tps]
        return self._offsets(self._ask(lambda: self._consumer.committed(asked, timeout=_ANSWER_S)))

    def offsets_at(
        self, tps: Iterable[model.TopicPartition], timestamp_ms: int
    ) -> dict[model.TopicPartition, int | None]:
        """Ask for the first offset with this record timestamp or a later one, None where there is none.

        Raises:
            BrokerError: no broker answers, or not for each TopicPartition.
        """
        asked = [TopicPartition(*tp, timestamp_ms) for tp in tps]
        return self._offsets(self._ask(lambda: self._consumer.offsets_for_times(asked, timeout=_ANSWER_S)))

    def _offsets(self, found: list[TopicPartition]) -> dict[model.TopicPartition, int | None]:
        for one in found:
            if one.error is not None:
                name = f"{one.topic}-{one.partition} of {self._servers}"
                raise BrokerError(f"the offset asked for of {name}: {one.error.str()}")
        return {
            model.TopicPartition(one.topic, one.partition): one.offset if one.offset >= 0 else None for one in found
        }

    def _watermarks(self, consumer: Consumer, tp: model.TopicPartition) -> Ends:
        found = self._ask(lambda: consumer.get_watermark_offsets(TopicPartition(*tp), timeout=_ANSWER_S))
        return Ends(*found)

    def _ask(self, question: Callable[[], T | None]) -> T:
        try:
            answer = question()
        except KafkaException as error:
            raise BrokerError(f"{self._servers} does not answer: {error.args[0].str()}") from error
        if answer is None:
            raise BrokerError(f"{self._servers} does not answer")
        return answer


def read_messages(settings: KafkaSettings, ranges: dict[model.TopicPartition, range]) -> Iterator[model.SourceRecord]:
    """Yield the committed messages of these offsets, each TopicPartition in its order; for topics that are small.

    Raises:
        BrokerError: an error of the brokers, or silence.
    """
    waiting = {tp: span for tp, span in ranges.items() if span}
    options = {"group.id": "log-partitioner-pipeline", "enable.auto.commit": False, "fetch.wait.max.ms": 50}
    ends = {"enable.partition.eof": True, "auto.offset.reset": "error"}
    consumer = Consumer(client_options(settings) | options | ends)
    try:
        consumer.assign([TopicPartition(*tp, span.start) for tp, span in waiting.items()])
        deadline = time.monotonic() + _ANSWER_S
        while waiting:
            messages = consumer.consume(_MESSAGES_AT_ONCE, timeout=_ASK_AGAIN_S)
            if messages:
                deadline = time.monotonic() + _ANSWER_S
            elif time.monotonic() > deadline:
                raise BrokerError(f"nothing came for {_ANSWER_S:g} s, {min(waiting)} has more")
            for message in messages:
                record = _record(message)
                if record is None:  # the end: markers, and what was aborted, may stand before the offset asked for
                    ended = (message.topic(), message.partition())
                    waiting = {tp: span for tp, span in waiting.items() if tp != ended}
                    continue
                span = waiting.get(record.tp, range(0))
                if record.offset in span:
                    yield record
                if record.offset + 1 >= span.stop:
                    waiting.pop(record.tp, None)
    except KafkaException as error:
        raise BrokerError(f"{settings.bootstrap_servers} does not answer: {error.args[0].str()}") from error
    finally:
        consumer.close()


def _record(message: Message) -> model.SourceRecord | None:
    error = message.error()
    if error is not None:
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
            return None
        raise BrokerError(f"{message.topic()}-{message.partition()}: {error.str()}")
    timestamp_ms = message.timestamp()[1]
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None, "a message without error has a topic"
    assert partition is not None, "and a partition"
    assert offset is not None, "and an offset"
    return model.SourceRecord(
        tp=model.TopicPartition(topic, partition),
        offset=offset,
        timestamp_ms=timestamp_ms if timestamp_ms >= 0 else None,
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers=tuple((name, _bytes(value)) for name, value in _pairs(message)),
    )


def _pairs(message: Message) -> Iterable[tuple[str, str | bytes | None]]:
    headers = message.headers() or ()
    return headers.items() if isinstance(headers, dict) else headers


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def client_options(settings: KafkaSettings) -> dict[str, str | int | float | bool]:
    """Give librdkafka's options of any client: the worker's own."""
    secrets = {name: value.get_secret_value() for name, value in settings.secret_properties.items()}
    return {
        "bootstrap.servers": settings.bootstrap_servers,
        "isolation.level": "read_committed",
        "log_level": 2,
        **settings.client_properties,
        **secrets,
    }


_JAAS_LOGIN = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_OF_SECURITY = ("security.", "ssl.", "sasl.", "enable.ssl.")
_ALIKE = ("security.protocol", "client.id", "ssl.keystore.location", "ssl.keystore.password")
_SAID = {*_ALIKE, "ssl.ca.location", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"}


def spark_options(settings: KafkaSettings, topic: str) -> dict[str, str]:
    """Give the options of Spark's Kafka source: committed records only, and loss is an error.

    Raises:
        BrokerError: librdkafka's options say something that cannot be said to the Java client.
    """
    options = {
        "kafka.bootstrap.servers": settings.bootstrap_servers,
        "kafka.isolation.level": "read_committed",
        "subscribe": topic,
        "failOnDataLoss": "true",
        # Where markers of transactions follow the last record of a range, the consumer asks once more, in vain: 500 ms.
        "kafka.fetch.max.wait.ms": "20",
    }
    return options | {f"kafka.{name}": value for name, value in _java_properties(settings).items()}


def _java_properties(settings: KafkaSettings) -> dict[str, str]:
    """Say the security of librdkafka's options in the words of the Java client."""
    secrets = {name: value.get_secret_value() for name, value in settings.secret_properties.items()}
    given = {**settings.client_properties, **secrets}
    unsaid = sorted(name for name in given if name.startswith(_OF_SECURITY) and name not in _SAID)
    if unsaid:
        raise BrokerError(f"{', '.join(unsaid)}: Spark's Kafka client has no such option that is known here")
    java = {name: given[name] for name in _ALIKE if name in given}
    if "ssl.ca.location" in given:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": given["ssl.ca.location"]}
    if "ssl.keystore.location" in given:
        java["ssl.keystore.type"] = "PKCS12"
    mechanism = given.get("sasl.mechanism", given.get("sasl.mechanisms"))
    if mechanism is not None:
        login = _JAAS_LOGIN.get(mechanism)
        if login is None:
            raise BrokerError(f"sasl.mechanism {mechanism} is not known here")
        user, password = (_quoted(given.get(f"sasl.{name}", "")) for name in ("username", "password"))
        java["sasl.mechanism"] = mechanism
        java["sasl.jaas.config"] = f"{login} required username={user} password={password};"
    return java


def _quoted(text: str) -> str:
    """Write a value of JAAS, in which a backslash takes the next character as it is."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
