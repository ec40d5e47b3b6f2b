"""Kafka from the driver: begin and end of a topic's partitions, its id, and Spark's options for reading it.

Brokers are asked by the quick audit's client; records themselves are read by Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from log_partitioner.adapters.kafka.topics import Ends, KafkaTopics
from log_partitioner_pipeline.errors import BrokerError

if TYPE_CHECKING:
    from log_partitioner.config.settings import KafkaSettings

_ANSWER_S = 20.0
_AS_KAFKA_WRITES = str.maketrans("+/", "-_")  # its tools write ids in the alphabet for URLs, librdkafka does not


def partition_ends(settings: KafkaSettings, topic: str) -> dict[int, Ends]:
    """Ask for the first and the next offset of a topic's partitions; blocks for up to a minute a partition.

    Raises:
        CouldNotTellError: no broker answers, or there is no such topic.
    """
    with KafkaTopics.of(settings) as topics:
        return {tp.partition: topics.ends(tp) for tp in topics.topic_partitions(topic)}


def ask_topic_id(settings: KafkaSettings, topic: str) -> str | None:
    """Ask for the id of a topic, which changes if it is made anew; None if brokers have no ids. Blocks for up to 20 s.

    Raises:
        BrokerError: no broker answers, or there is no such topic.
    """
    own = {"bootstrap.servers": settings.bootstrap_servers, "log_level": "3"}
    admin = AdminClient(dict(settings.properties_of("producer") | own))
    try:
        found = admin.describe_topics(TopicCollection([topic]), request_timeout=_ANSWER_S)[topic].result()
    except KafkaException as error:
        raise BrokerError(f"topic {topic} of {settings.bootstrap_servers}: {error.args[0].str()}") from error
    is_told = found.topic_id.get_most_significant_bits() or found.topic_id.get_least_significant_bits()
    return str(found.topic_id).translate(_AS_KAFKA_WRITES) if is_told else None


_JAAS_LOGIN = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_OF_SECURITY = ("security.", "ssl.", "sasl.", "enable.ssl.")
_ALIKE = ("security.protocol", "client.id", "ssl.keystore.location", "ssl.keystore.password")
_SAID = {*_ALIKE, "ssl.ca.location", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"}


def spark_options(settings: KafkaSettings, topic: str) -> dict[str, str]:
    """Return the options of Spark's Kafka source: committed records only, and loss is an error.

    Raises:
        BrokerError: librdkafka's options have one without a counterpart in the Java client.
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
    """Return the security of librdkafka's options as properties of the Java client."""
    given = settings.properties_of("consumer")
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
