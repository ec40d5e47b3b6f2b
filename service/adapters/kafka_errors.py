"""Errors that the consumer reports among its messages: which of them end the worker."""

from __future__ import annotations

from confluent_kafka import KafkaError

from service.errors import SourceError, StartPositionError

_OUT_OF_RANGE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION}  # noqa: SLF001
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


def require_that_it_mends(error: KafkaError, where: str) -> None:
    """Raise SourceError for an error that no waiting mends; the rest librdkafka retries by itself."""
    if error.fatal() or error.code() in _HOPELESS:
        raise SourceError(f"{where}: {error.name()}: {error.str()}")


def require_in_range(error: KafkaError, where: str, *, topic: str | None) -> None:
    """Raise StartPositionError where the log does not have the offset that was fetched."""
    if error.code() in _OUT_OF_RANGE:
        raise StartPositionError(
            f"the committed offset of {where} is out of range: {error.str()}. Records between the committed "
            "offset and the start of the log are gone (set the group's offsets by hand), or the topic was made "
            f"anew (`log-partitioner offsets begin-anew --topic {topic}`)"
        )
