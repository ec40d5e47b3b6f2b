"""Errors of the client library: the ones that end the worker, with advice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import SourceError, StartPositionError
from log_partitioner.formats.model import TopicPartition
from log_partitioner.patience import Patience

T = TypeVar("T")

_ASK_AGAIN_S = 0.1

_OUT_OF_RANGE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}  # noqa: SLF001
_REWRITTEN = KafkaError(KafkaError._LOG_TRUNCATION).str()  # noqa: SLF001 - comes in the text of _AUTO_OFFSET_RESET, too
_HOPELESS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError._AUTHENTICATION,  # noqa: SLF001
}  # _MAX_POLL_EXCEEDED is not among them: on_lost follows, and the loop goes on

_ADVICE = {
    KafkaError.UNSUPPORTED_VERSION: "these brokers do not have the group protocol of KIP-848: set kafka.group_protocol "
    "to classic, or enable it there (Kafka 4.0 or later, group.coordinator.rebalance.protocols)",
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: "other members of the group do not assign by cooperative-sticky, or have "
    "another kafka.group_protocol, as a worker of an older build or another program: stop all of them, since that "
    "cannot be changed one by one; this worker joins once the last of them is gone",
    KafkaError.GROUP_MAX_SIZE_REACHED: "the group is full (the brokers' group.max.size, with KIP-848 "
    "group.consumer.max.size): this worker joins as soon as there is room",
}

_PASSING = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,  # these three of a leader that was just elected
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError._WAIT_COORD,  # noqa: SLF001
}


def is_no_topic(error: KafkaError) -> bool:
    """Say whether there is no such topic."""
    return error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)  # noqa: SLF001


def without_topic(topic: str, servers: object, setting: str = "") -> str:
    """Say that a topic is not there, name its setting, and the command that makes it."""
    command = f"kafka-topics.sh --bootstrap-server {servers} --create --topic {topic}"
    return f"topic {topic}{f' ({setting})' if setting else ''} is not there: create it: {command}"


def without_end(transactional_id: object, servers: object) -> str:
    """Say that brokers have not ended a transaction, and how to see the cause."""
    command = f"kafka-transactions.sh --bootstrap-server {servers} describe --transactional-id {transactional_id}"
    return f"the brokers have not ended the last transaction of this worker: {command} (RUNBOOK, `not_prepared`)"


def not_permitted(kind: str, name: str, rights: Iterable[str], servers: object) -> str:
    """Say which operations are not permitted on a topic, group or transactional id, and the command that helps."""
    names = list(rights)
    operations = " ".join(f"--operation {right}" for right in names)
    command = (
        f"kafka-acls.sh --bootstrap-server {servers} --add --allow-principal User:WORKER {operations} --{kind} {name}"
    )
    return f"{kind} {name}: {' and '.join(names)} not permitted: {command}"


def is_passing(error: KafkaError) -> bool:
    """Say whether a request may succeed a moment later, because a broker or its role is about to come or to go."""
    return error.code() in _PASSING


def answer_of(deadline: Deadline, call: Callable[[], T], patience: Patience) -> T:
    """Ask until the deadline while brokers are about to come or to go: the library does not retry by itself.

    Raises:
        KafkaException: there is no answer in time, or it is another error.
        LeavingError: asked to leave meanwhile.
    """
    while True:
        try:
            return patience.ask(call)
        except KafkaException as error:
            if not is_passing(error.args[0]) or deadline.has_passed():
                raise
        patience.require()
        time.sleep(_ASK_AGAIN_S)


def require_answered(answers: list[confluent_kafka.TopicPartition]) -> list[confluent_kafka.TopicPartition]:
    """Return the answers of brokers; raise the first one that is an error, with its TopicPartition."""
    for one in answers:
        if one.error is not None:
            raise KafkaException(KafkaError(one.error.code(), f"{one.topic}-{one.partition}: {one.error.str()}"))
    return answers


def is_fatal(error: KafkaError) -> bool:
    """Say whether its client is dead for good; consumer messages say so only by their code (KAFKA_FACTS R13)."""
    return error.fatal() or error.code() == KafkaError._FATAL  # noqa: SLF001


def is_refused_login(error: KafkaError) -> bool:
    """Say whether a broker, or the client library, refuses the login: by a password, or by a token that has ended."""
    return error.code() in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)  # noqa: SLF001


def is_full(error: KafkaError) -> bool:
    """Say whether the group has as many members as brokers allow it."""
    return _is(error, KafkaError.GROUP_MAX_SIZE_REACHED)


def _is(error: KafkaError, code: int) -> bool:
    """Compare the code; a fatal error has the cause in its text only."""
    return error.code() == code or (is_fatal(error) and KafkaError(code).str() in error.str())


def describe_with_advice(error: KafkaError) -> str:
    """Return advice, if there is any, then the error's text, because a line of the log may be cut at its end."""
    text = f"{error.name()}: {error.str()}"
    return next((f"{advice} ({text})" for code, advice in _ADVICE.items() if _is(error, code)), text)


def place_of(tp: TopicPartition | None) -> str:
    """Name the place of an error: an error without a TopicPartition is about the group."""
    return "the group" if tp is None else str(tp)


def require_that_it_mends(error: KafkaError, tp: TopicPartition | None) -> None:
    """Raise SourceError for an error that does not pass by itself; librdkafka retries the others."""
    if is_fatal(error) or error.code() in _HOPELESS:
        raise SourceError(f"{place_of(tp)}: {describe_with_advice(error)}")


def require_in_range(error: KafkaError, tp: TopicPartition | None) -> None:
    """Raise StartPositionError if the log does not have the fetched offset, or has another record there."""
    command = "" if tp is None else f" --topic {tp.topic} --partition {tp.partition}"
    if error.code() == KafkaError._LOG_TRUNCATION or _REWRITTEN in error.str():  # noqa: SLF001
        raise StartPositionError(
            f"the log of {tp} was rewritten before the committed offset, as by an unclean election: {error.str()}. "
            "Stop all workers of the group. Then take what was written since from the broker end offset, where the "
            f"logs part (`log-partitioner offsets set{command} --to OFFSET`), or go on at the committed offset "
            f"and never read what this log has before it (`log-partitioner offsets set{command} --to committed`)."
        )
    if error.code() in _OUT_OF_RANGE:
        raise StartPositionError(
            f"the committed offset of {place_of(tp)} is out of range: {error.str()}. Stop all "
            "workers of the group. Records between the committed offset and the start of the log are gone (`"
            f"log-partitioner offsets set{command} --to beginning`), or the topic was made anew "
            f"(`log-partitioner offsets set --topic {tp.topic if tp else 'TOPIC'} --to beginning`)."
        )
