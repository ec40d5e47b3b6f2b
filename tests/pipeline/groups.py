"""Consumer groups with offsets of a test's choice."""

from collections.abc import Mapping

from confluent_kafka import Consumer, TopicPartition

from tests.stack.kafka_helper import KafkaHelper


def commit(kafka: KafkaHelper, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Let a group have these offsets of a topic's partitions, and none of the others."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "enable.auto.commit": False})
    try:
        consumer.commit(
            offsets=[TopicPartition(topic, number, offset) for number, offset in offsets.items()],
            asynchronous=False,
        )
    finally:
        consumer.close()
