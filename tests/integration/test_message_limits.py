"""A real broker takes the largest messages, and offsets of many TopicPartitions, in one transaction."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import confluent_kafka
import pytest

from log_partitioner.adapters.clock import SystemClock
from log_partitioner.adapters.kafka.committer import KafkaCommitter
from log_partitioner.adapters.kafka.options import producer_options
from log_partitioner.adapters.kafka.values import parse_group_metadata
from log_partitioner.batch.messages import BATCH_BYTES, message_bytes
from log_partitioner.boundary import Membership, Message
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import SourceError
from log_partitioner.formats.model import CommittedOffset, TopicPartition
from tests.fakes.hostile import MOST, Deployment, fill
from tests.stack.kafka_helper import KafkaHelper
from tests.stack.names import Names

LIMIT = MOST.message_bytes_max
OFFSETS = 300
METADATA = "m" * 4_000


class Broker:
    """A topic that takes messages of LIMIT bytes, and a member of a group with a source topic of its own."""

    def __init__(self, kafka: KafkaHelper, names: Names) -> None:
        self.kafka = kafka
        self.topic = kafka.create_topic(names.topic("announced"), config={"max.message.bytes": str(LIMIT)})
        self.source = kafka.create_topic(names.topic("source"), partitions=OFFSETS)
        self.group = names.group()
        self._name = names.group("id")
        self._member = confluent_kafka.Consumer(
            {"bootstrap.servers": kafka.bootstrap_servers, "group.id": self.group, "auto.offset.reset": "latest"}
        )
        self._member.subscribe([self.source])
        kafka.wait_for("an assignment", lambda: self._member.poll(0.1) is None and bool(self._member.assignment()))

    @property
    def membership(self) -> Membership:
        """The group metadata of now."""
        return parse_group_metadata(self._member.consumer_group_metadata())

    def commit(self, messages: list[Message], offsets: int = 1, metadata: str = "") -> None:
        """Commit messages and offsets as a worker with a limit of LIMIT bytes does."""
        settings = Deployment(MOST._replace(topic_partitions=1, topics=1)).settings
        kafka = settings.kafka.model_copy(update={"bootstrap_servers": self.kafka.bootstrap_servers})
        clock = SystemClock()
        options = producer_options(
            settings.model_copy(update={"kafka": kafka}), worker="w", transactional_id=self._name
        )
        committer = KafkaCommitter(options, init_budget_s=60.0, clock=clock)
        committed = {TopicPartition(self.source, n): CommittedOffset(7, metadata=metadata) for n in range(offsets)}
        mine = [message._replace(topic=self.topic) for message in messages]
        committer.commit(mine, committed, self.membership, deadline=Deadline.after(60.0, clock.now_s))

    def close(self) -> None:
        """Leave."""
        self._member.close()


@pytest.fixture
def broker(kafka: KafkaHelper, names: Names) -> Iterator[Broker]:
    """Give a broker."""
    made = Broker(kafka, names)
    yield made
    made.close()


def message_of(size: int) -> Message:
    """Make a message that weighs so much and does not get smaller by compression."""
    headers = [("header", secrets.token_bytes(100))]
    empty = Message("", b"key", b"", headers)
    return empty._replace(value=secrets.token_bytes(size - message_bytes(empty)))


def test_message_is_as_large_as_it_is_measured(broker: Broker) -> None:
    """One of exactly the topic's limit is taken, one that is larger by what is kept for its head is not."""
    broker.commit([message_of(LIMIT)])
    with pytest.raises(SourceError, match=r"kafka\.message_bytes_max"):
        broker.commit([message_of(LIMIT + BATCH_BYTES)])
    broker.commit([message_of(LIMIT)] * 5)
    assert len(broker.kafka.read_committed(broker.topic)) == 6


def test_every_message_of_a_hostile_flush_is_taken(broker: Broker) -> None:
    """Indexes, headers, keys, roots, users, names and schemas at their most, in topics that take no byte more."""
    deployment = Deployment(MOST._replace(topic_partitions=1_200, topics=60))
    fill(deployment)
    deployment.flush()
    messages = deployment.broker.transactions[-1].messages
    broker.commit(messages)
    assert len(broker.kafka.read_committed(broker.topic)) == len(messages)


def test_offsets_of_many_topic_partitions_are_committed_in_one_transaction(broker: Broker) -> None:
    """Together they are more than a record batch of the offsets topic takes."""
    assert OFFSETS * len(METADATA) > 1_048_588
    broker.commit([message_of(1_000)], OFFSETS, METADATA)
    assert len(broker.kafka.committed_offsets(broker.group, broker.source)) == OFFSETS
    assert set(broker.kafka.committed_metadata(broker.group, broker.source).values()) == {METADATA}
