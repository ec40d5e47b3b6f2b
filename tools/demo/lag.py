"""The consumer group's distance behind the written records; asks Kafka, joins nothing."""

from collections.abc import Iterable, Mapping

from confluent_kafka import Consumer, KafkaException, TopicPartition

_TIMEOUT_S = 5.0  # a broker on a busy machine takes its time


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
        committed = self.committed(next_offsets)
        return None if committed is None else sum(behind(next_offsets, committed).values())

    def committed(self, partitions: Iterable[int]) -> dict[int, int] | None:
        """Return the committed offset of each partition, 0 if there is none; None if Kafka did not answer."""
        wanted = [TopicPartition(self._topic, partition) for partition in partitions]
        if not wanted:
            return {}
        try:
            found = self._consumer.committed(wanted, timeout=_TIMEOUT_S)
        except KafkaException:
            return None
        if any(tp.error for tp in found):
            return None
        # A TopicPartition without commit has a negative offset here.
        return {tp.partition: max(0, tp.offset) for tp in found}

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()


def behind(next_offsets: Mapping[int, int], committed: Mapping[int, int]) -> dict[int, int]:
    """Return by how many offsets `committed` is behind `next_offsets`, for each partition."""
    return {
        partition: max(0, next_offset - committed.get(partition, 0)) for partition, next_offset in next_offsets.items()
    }
