"""Errors that the consumer reports among its messages: which of them end the worker."""

from __future__ import annotations

from confluent_kafka import KafkaError

from service.errors import SourceError, StartPositionError
from service.formats.model import TopicPartition

_OUT_OF_RANGE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}  # noqa: SLF001
_REWRITTEN = KafkaError(KafkaError._LOG_TRUNCATION).str()  # noqa: SLF001 - comes in the text of _AUTO_OFFSET_RESET, too
_HOPELESS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.INCONSISTENT_GROUP_PROTOCOL,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError._AUTHENTICATION,  # noqa: SLF001
}  # _MAX_POLL_EXCEEDED is not among them: on_lost follows, and the loop goes on

_PASSING = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError._WAIT_COORD,  # noqa: SLF001
}


def is_passing(error: KafkaError) -> bool:
    """Say whether what was asked may be answered a moment later: a broker or its role is about to come or to go."""
    return error.code() in _PASSING


def require_that_it_mends(error: KafkaError, where: str) -> None:
    """Raise SourceError for an error that no waiting mends; the rest librdkafka retries by itself."""
    if error.fatal() or error.code() in _HOPELESS:
        raise SourceError(f"{where}: {error.name()}: {error.str()}")


def require_in_range(error: KafkaError, tp: TopicPartition | None) -> None:
    """Raise StartPositionError where the log does not have the offset that was fetched, or has another one there."""
    command = "" if tp is None else f" --topic {tp.topic} --partition {tp.partition}"
    if error.code() == KafkaError._LOG_TRUNCATION or _REWRITTEN in error.str():  # noqa: SLF001
        raise StartPositionError(
            f"the log of {tp} was rewritten before the committed offset, as by an unclean election: {error.str()}. "
            "Stop all workers of the group. Then take what was written since from the broker end offset, where the "
            f"logs part (`log-partitioner offsets begin-anew{command} --at OFFSET`), or go on at the committed offset "
            f"and never read what this log has before it (`log-partitioner offsets go-on{command}`)."
        )
    if error.code() in _OUT_OF_RANGE:
        raise StartPositionError(
            f"the committed offset of {'the group' if tp is None else tp} is out of range: {error.str()}. Stop all "
            "workers of the group. Records between the committed offset and the start of the log are gone (`"
            f"log-partitioner offsets begin-anew{command} --at FIRST_OFFSET`), or the topic was made anew "
            f"(`log-partitioner offsets begin-anew --topic {tp.topic if tp else 'TOPIC'}`)."
        )
