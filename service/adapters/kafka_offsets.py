"""Groups in which nobody lives: whether that is so, and offsets committed as Kafka's own tools commit them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from service.adapters.kafka_log import make_admin
from service.adapters.kafka_values import position
from service.errors import SourceError
from service.formats.model import CommittedOffset, TopicPartition

_NOT_YET = {KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS}
_ASK_AGAIN_S = 0.2
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
    until = time.monotonic() + timeout_s
    while (error := _ask(client, asked, timeout_s)) is not None:
        if error.code() not in _NOT_YET or time.monotonic() > until:
            raise _refused(group_id, error)
        time.sleep(_ASK_AGAIN_S)


def require_nobody(options: Mapping[str, Any], groups: Iterable[str], *, timeout_s: float) -> None:
    """Require that no group has a member: a transaction without a member is taken by one that has (KAFKA_FACTS F3).

    Raises:
        SourceError: one has members, a permission is missing, or the broker does not answer.
    """
    client = make_admin(options)
    until = time.monotonic() + timeout_s
    for group_id in groups:
        while True:
            (future,) = client.describe_consumer_groups([group_id], request_timeout=timeout_s).values()
            try:
                members = future.result().members
            except KafkaException as error:
                problem = error.args[0]
                if problem.code() == KafkaError.GROUP_ID_NOT_FOUND:
                    break
                if problem.code() not in _NOT_YET or time.monotonic() > until:
                    raise SourceError(f"group {group_id}: {problem.name()}: {problem.str()}") from error
                time.sleep(_ASK_AGAIN_S)
                continue
            if members:
                raise _alive(group_id)
            break


def _ask(client: AdminClient, asked: ConsumerGroupTopicPartitions, timeout_s: float) -> KafkaError | None:
    """Return the first error, if there is one."""
    try:
        (future,) = client.alter_consumer_group_offsets([asked], request_timeout=timeout_s).values()
        answers = future.result().topic_partitions
    except KafkaException as error:
        problem: KafkaError = error.args[0]
        return problem
    return next((answer.error for answer in answers if answer.error is not None), None)


def _refused(group_id: str, error: KafkaError) -> SourceError:
    if error.code() in _LIVE:
        return _alive(group_id)
    return SourceError(f"offsets of group {group_id} are not committed: {error.name()}: {error.str()}")


def _alive(group_id: str) -> SourceError:
    return SourceError(f"group {group_id} has live members: stop its workers first; nothing is changed")
