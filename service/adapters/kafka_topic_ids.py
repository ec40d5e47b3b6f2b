"""Kafka's ids of topics: a topic that was made anew under the same name has another one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from service.adapters.kafka_log import client_logger

_AS_KAFKA_WRITES = str.maketrans("+/", "-_")  # its tools write ids in the alphabet for URLs, librdkafka does not


def ask_topic_ids(
    options: Mapping[str, Any], topics: Iterable[str], *, timeout_s: float
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the ids of topics as Kafka's tools print them, and of the others why there is none. Never raises.

    By a client of its own that ends here; not inside a callback of another one (see `KafkaConsumer.partitions_of`).
    """
    asked = sorted(set(topics))
    found: dict[str, str] = {}
    untold: dict[str, str] = {}
    if not asked:
        return found, untold
    logger, _ = client_logger("admin")  # never polled: it would warn of each option that only consumers have
    client = AdminClient(dict(options), logger=logger)
    for topic, answer in client.describe_topics(TopicCollection(asked), request_timeout=timeout_s).items():
        try:
            topic_id = answer.result().topic_id
        except KafkaException as error:
            untold[topic] = error.args[0].name()
            continue
        if topic_id.get_most_significant_bits() or topic_id.get_least_significant_bits():
            found[topic] = str(topic_id).translate(_AS_KAFKA_WRITES)
        else:
            untold[topic] = "the broker gives none"
    return found, untold
