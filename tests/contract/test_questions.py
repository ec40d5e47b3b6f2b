"""Questions that a broker refuses for a moment, on the client library's own mock cluster: they are asked again."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError

from log_partitioner.adapters.kafka.consumer import KafkaConsumer
from log_partitioner.adapters.kafka.options import PINNED_CONSUMER
from log_partitioner.adapters.kafka.topics import Ends, KafkaTopics
from log_partitioner.boundary import FIRST_OFFSET
from log_partitioner.config.settings import KafkaSettings
from log_partitioner.control.deadline import Deadline
from log_partitioner.formats.model import TopicPartition
from tests.contract.mock_cluster import LIST_OFFSETS, MockCluster, batch

TP = TopicPartition("source", 0)
ELECTED = ["NOT_LEADER_FOR_PARTITION", "OFFSET_NOT_AVAILABLE", "UNKNOWN_LEADER_EPOCH", "FENCED_LEADER_EPOCH"]


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    """Give a mock cluster of its own, with a log of two records."""
    with MockCluster("source") as cluster:
        cluster.append(batch(b"a", b"b"))
        yield cluster


@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize("name", ELECTED)
def test_leader_that_was_just_elected_is_asked_again(cluster: MockCluster, name: str, times: int) -> None:
    """The library asks a second time by itself at most, and hands on what it was told, be it in one answer of many."""
    options = {**PINNED_CONSUMER, "bootstrap.servers": cluster.bootstrap, "group.id": "group", "log_level": 0}
    consumer = KafkaConsumer(options, ["source"])
    try:
        cluster.fail(LIST_OFFSETS, *[getattr(KafkaError, name)] * times)
        deadline = Deadline.after(30.0, time.monotonic)
        assert consumer.offsets_at([TP], FIRST_OFFSET, deadline=deadline) == {TP: 0}
    finally:
        consumer.close()
    with KafkaTopics.of(KafkaSettings(bootstrap_servers=cluster.bootstrap, source_topics=("source",))) as topics:
        cluster.fail(LIST_OFFSETS, *[getattr(KafkaError, name)] * times)
        assert topics.ends(TP) == Ends(0, 2)
        cluster.fail(LIST_OFFSETS, *[getattr(KafkaError, name)] * times)
        assert topics.offsets_at([TP], FIRST_OFFSET) == {TP: 0}
