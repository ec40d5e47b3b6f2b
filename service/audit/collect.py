"""Kafka and S3 as the audit reads them: everything committed, nothing written, no group joined.

The only user of confluent_kafka and boto3 in the audit. `KafkaTopics` is for one thread, `S3Reader` for many.
"""

from __future__ import annotations

import time
from operator import methodcaller
from typing import TYPE_CHECKING

import boto3
import botocore.config
import botocore.exceptions
import confluent_kafka

from service.audit.fetch import FetchedObject, ObjectMissingError
from service.audit.findings import CouldNotTellError
from service.formats.model import HEADERS_UNREADABLE, Headers, SourceRecord, TopicPartition, readable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_s3 import S3Client

    from service.config.settings import KafkaSettings, S3Settings

REQUEST_TIMEOUT_S = 30.0
SILENCE_MAX_S = 60.0
_MESSAGES_AT_ONCE = 5000
_LOOKS = 32
_GONE = frozenset({"NoSuchKey", "NoSuchVersion", "404", "NotFound"})


class KafkaTopics:
    """Reads topics by offset, read_committed."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._options: dict[str, str | bool | int] = {
            **settings.client_properties,
            **settings.consumer_properties,
            **{name: secret.get_secret_value() for name, secret in settings.secret_properties.items()},
            "bootstrap.servers": settings.bootstrap_servers,
            "group.id": settings.group_id,  # to ask for its committed offsets; it is never joined
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.queue.backoff.ms": 20,
        }
        self._consumer = confluent_kafka.Consumer(self._options)

    def close(self) -> None:
        """Let go of the brokers."""
        self._consumer.close()

    def topic_partitions(self, topic: str, *, may_be_absent: bool = False) -> list[TopicPartition]:
        """List the TopicPartitions of a topic; none where it is absent and may be.

        Raises:
            CouldNotTellError: no such topic, or the brokers do not answer.
        """
        try:
            found = self._consumer.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
        except confluent_kafka.KafkaException as error:
            raise CouldNotTellError(f"topic {topic}: {error}") from error
        is_absent = found.error is not None and found.error.code() == confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART
        if is_absent and may_be_absent:
            return []
        if found.error is not None:
            raise CouldNotTellError(f"topic {topic}: {found.error}")
        return [TopicPartition(topic, number) for number in sorted(found.partitions)]

    def watermarks(self, tp: TopicPartition) -> tuple[int, int]:
        """Give the first offset there is and the end of what is committed."""
        try:
            found = self._consumer.get_watermark_offsets(_kafka(tp), timeout=REQUEST_TIMEOUT_S)
        except confluent_kafka.KafkaException as error:
            raise CouldNotTellError(f"{tp}: {error}") from error
        if found is None:
            raise CouldNotTellError(f"{tp}: the brokers do not say where it begins and ends")
        return found

    def committed(self, tps: list[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Give the group's committed (stable) offsets, None where there is none."""
        try:
            found = self._consumer.committed([_kafka(tp) for tp in tps], timeout=REQUEST_TIMEOUT_S)
        except confluent_kafka.KafkaException as error:
            raise CouldNotTellError(f"committed offsets: {error}") from error
        for one in found:
            if one.error is not None:
                raise CouldNotTellError(f"committed offset of {one.topic}-{one.partition}: {one.error}")
        return {TopicPartition(one.topic, one.partition): one.offset if one.offset >= 0 else None for one in found}

    def can_read(self, tp: TopicPartition, first: int, end: int) -> bool:
        """Whether any record of [first, end) can be read, looked for from up to 32 of its offsets.

        Raises:
            CouldNotTellError: silence.
        """
        return any(self._can_read_from(tp, offset, end) for offset in range(first, end, 1 + (end - first) // _LOOKS))

    def _can_read_from(self, tp: TopicPartition, first: int, end: int) -> bool:
        """Look by a client of its own: another one may still hold what it fetched from elsewhere."""
        consumer = confluent_kafka.Consumer(self._options)
        try:
            consumer.assign([_kafka(tp, first)])
            begun_at = time.monotonic()
            while time.monotonic() - begun_at < SILENCE_MAX_S:
                for message in consumer.consume(1, timeout=0.2):
                    error, offset = message.error(), message.offset()
                    return error is None and offset is not None and offset < end
        finally:
            consumer.close()
        raise CouldNotTellError(f"no message for {SILENCE_MAX_S:.0f} s, {tp} cannot be read from {first}")

    def read(self, ranges: dict[TopicPartition, tuple[int, int]]) -> Iterator[SourceRecord]:
        """Yield the messages of these [first, next) ranges, each TopicPartition in offset order.

        Raises:
            CouldNotTellError: an error of the brokers, or silence.
        """
        waiting = {tp: end for tp, (first, end) in ranges.items() if first < end}
        self._consumer.assign([_kafka(tp, ranges[tp][0]) for tp in waiting])
        paused: list[confluent_kafka.TopicPartition] = []
        heard_at = time.monotonic()
        while waiting:
            messages = self._consumer.consume(_MESSAGES_AT_ONCE, timeout=0.2)
            if not messages and time.monotonic() - heard_at > SILENCE_MAX_S:
                raise CouldNotTellError(f"no message for {SILENCE_MAX_S:.0f} s, {min(waiting)} not read to its end")
            for message in messages:
                tp = _tp(message)
                if tp not in waiting:
                    continue
                is_behind = (message.offset() or 0) >= waiting[tp]
                record = None if is_behind else _record(message)
                if record is not None:
                    yield record
                if record is None or record.offset + 1 >= waiting[tp]:
                    # The end of the TopicPartition, also where control records stand before it.
                    del waiting[tp]
                    self._consumer.pause([_kafka(tp)])
                    paused.append(_kafka(tp))
            if messages:
                heard_at = time.monotonic()  # after they were taken, which may be slow
        self._consumer.resume(paused)  # a pause may outlive the assignment
        self._consumer.unassign()


class S3Reader:
    """Reads objects."""

    def __init__(self, settings: S3Settings, *, threads: int) -> None:
        access, secret = settings.access_key, settings.secret_key
        self._client: S3Client = boto3.client(
            "s3",
            endpoint_url=settings.endpoint_url,
            region_name=settings.region,
            aws_access_key_id=None if access is None else access.get_secret_value(),
            aws_secret_access_key=None if secret is None else secret.get_secret_value(),
            config=botocore.config.Config(
                max_pool_connections=threads,
                connect_timeout=settings.connect_timeout_s,
                read_timeout=settings.read_timeout_s,
                retries={"total_max_attempts": settings.attempts, "mode": "standard"},
            ),
        )

    def get(self, bucket: str, key: str, version_id: str | None) -> FetchedObject:
        """Read an object.

        Raises:
            ObjectMissingError: there is none.
            CouldNotTellError: the store does not let us read it.
        """
        try:
            if version_id is None:
                answer = self._client.get_object(Bucket=bucket, Key=key)
            else:
                answer = self._client.get_object(Bucket=bucket, Key=key, VersionId=version_id)
            return FetchedObject(answer["Body"].read(), answer.get("ETag"))
        except botocore.exceptions.ClientError as error:
            if error.response.get("Error", {}).get("Code") in _GONE:
                raise ObjectMissingError(key) from error
            raise CouldNotTellError(f"object {key}: {error}") from error
        except (botocore.exceptions.BotoCoreError, botocore.exceptions.HTTPClientError, OSError) as error:
            raise CouldNotTellError(f"object {key}: {error}") from error


def _kafka(tp: TopicPartition, offset: int | None = None) -> confluent_kafka.TopicPartition:
    if offset is None:
        return confluent_kafka.TopicPartition(tp.topic, tp.partition)
    return confluent_kafka.TopicPartition(tp.topic, tp.partition, offset)


def _tp(message: confluent_kafka.Message) -> TopicPartition:
    topic, partition = message.topic(), message.partition()
    if topic is None or partition is None:
        raise CouldNotTellError(f"{message.error()}")
    return TopicPartition(topic, partition)


def _record(message: confluent_kafka.Message) -> SourceRecord | None:
    """Give what a message holds; None at the end of a TopicPartition."""
    error = message.error()
    if error is not None:
        if error.code() == confluent_kafka.KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
            return None
        raise CouldNotTellError(f"{message.topic()}-{message.partition()}: {error}")
    kind, timestamp = message.timestamp()
    offset = message.offset()
    assert offset is not None, "a message without error has an offset"
    headers, unreadable = _headers(message)
    return SourceRecord(
        tp=_tp(message),
        offset=offset,
        timestamp_ms=None if kind == confluent_kafka.TIMESTAMP_NOT_AVAILABLE else timestamp,
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers=headers,
        unreadable=unreadable,
    )


def _headers(message: confluent_kafka.Message) -> tuple[Headers, str | None]:
    """Give the headers, and why there are none where the name of one is not UTF-8, or was not for who has passed it on.

    Called from C, or the binding's exception for such a name would come out of a later call (see the worker's adapter).
    """
    try:
        headers = methodcaller("headers")(message) or ()
    except SystemError:
        return (), HEADERS_UNREADABLE
    pairs = headers.items() if isinstance(headers, dict) else headers
    return readable(tuple((name, _bytes(value)) for name, value in pairs))


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
