"""How far the consumer group is behind what was written; asks Kafka, joins nothing."""

from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaException, TopicPartition

_TIMEOUT_S = 2.0


class GroupLag:
    """Compares committed offsets with given ones."""

    def __init__(self, *, bootstrap: str, group: str, topic: str) -> None:
        self._topic = topic
        # Never subscribes. read_uncommitted: the answer must not wait for open transactions.
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "isolation.level": "read_uncommitted",
                "log_level": 2,
            }
        )

    def measure(self, next_offsets: Mapping[int, int]) -> int | None:
        """Return by how many offsets the group is behind `next_offsets`; None if Kafka did not answer."""
        wanted = [TopicPartition(self._topic, partition) for partition in next_offsets]
        if not wanted:
            return 0
        try:
            committed = self._consumer.committed(wanted, timeout=_TIMEOUT_S)
        except KafkaException:
            return None
        if any(tp.error for tp in committed):
            return None
        # A TopicPartition without commit has a negative offset here.
        return sum(max(0, next_offsets[tp.partition] - max(0, tp.offset)) for tp in committed)

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()
