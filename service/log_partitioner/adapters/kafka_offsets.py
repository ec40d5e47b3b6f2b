"""Groups without members: the check that they have none, and commits of offsets as Kafka's own tools make them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from log_partitioner.adapters.kafka_errors import answer_of, require_answered
from log_partitioner.adapters.kafka_log import make_admin
from log_partitioner.adapters.kafka_values import position
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import SourceError
from log_partitioner.formats.model import CommittedOffset, TopicPartition
from log_partitioner.patience import Patience

_LIVE = {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP, KafkaError.GROUP_SUBSCRIBED_TO_TOPIC}


def commit_offsets(
    options: Mapping[str, Any], group_id: str, offsets: Mapping[TopicPartition, CommittedOffset], *, timeout_s: float
) -> None:
    """Commit offsets with their metadata; blocks until the broker has taken them.

    Raises:
        SourceError: the group has live members, a permission is missing, or the broker does not answer.
    """
    client = make_admin(options)
    asked = ConsumerGroupTopicPartitions(group_id, [position(tp, offset) for tp, offset in offsets.items()])

    def commit() -> None:
        (future,) = client.alter_consumer_group_offsets([asked], request_timeout=timeout_s).values()
        require_answered(future.result().topic_partitions)

    try:
        answer_of(Deadline.after(timeout_s, time.monotonic), commit, Patience())
    except KafkaException as error:
        problem = error.args[0]
        if problem.code() in _LIVE:
            raise _alive(group_id) from error
        text = f"offsets of group {group_id} are not committed: {problem.name()}: {problem.str()}"
        raise SourceError(text) from error


def require_nobody(options: Mapping[str, Any], groups: Iterable[str], *, timeout_s: float) -> None:
    """Require that no group has a member: a transaction without a member is taken by one that has (KAFKA_FACTS F3).

    Raises:
        SourceError: one has members, a permission is missing, or the broker does not answer.
    """
    client = make_admin(options)
    until = Deadline.after(timeout_s, time.monotonic)
    for group_id in groups:
        try:
            members = answer_of(until, partial(_members, client, group_id, timeout_s), Patience())
        except KafkaException as error:
            problem = error.args[0]
            if problem.code() == KafkaError.GROUP_ID_NOT_FOUND:
                continue
            raise SourceError(f"group {group_id}: {problem.name()}: {problem.str()}") from error
        if members:
            raise _alive(group_id)


def _members(client: AdminClient, group_id: str, timeout_s: float) -> list[Any]:
    (future,) = client.describe_consumer_groups([group_id], request_timeout=timeout_s).values()
    return list(future.result().members)


def _alive(group_id: str) -> SourceError:
    return SourceError(f"group {group_id} has live members: stop its workers first; nothing is changed")
