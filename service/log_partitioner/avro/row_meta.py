"""The `_meta` record of a row as bytes (docs/FORMATS.md); its parts are made when they change."""

from __future__ import annotations

from log_partitioner.avro.binary import encode_long, encode_string
from log_partitioner.formats.model import RootLink, TopicPartition

_NULL, _PRESENT = b"\0", b"\2"
NO_TIMESTAMP_MS = -1
TIMESTAMP_MS_MAX = 253_402_300_799_999  # the end of the year 9999, the last one of Avro's readers (KAFKA_FACTS L7)


def readable_timestamp(timestamp_ms: int | None) -> int:
    """Return Kafka's timestamp of a record as a row holds it: -1 if it is missing, or if readers cannot read it."""
    if timestamp_ms is None or timestamp_ms > TIMESTAMP_MS_MAX:
        return NO_TIMESTAMP_MS
    return timestamp_ms


def encode_origin(tp: TopicPartition) -> bytes:
    """Encode topic and partition; once per TopicPartition."""
    return encode_string(tp.topic) + encode_long(tp.partition)


def encode_id(unique_id: str | None) -> bytes:
    """Encode the third field."""
    return _NULL if unique_id is None else _PRESENT + encode_string(unique_id)


def encode_root(root: RootLink | None) -> bytes:
    """Encode the last field."""
    if root is None:
        return _NULL
    index = _NULL if root.index is None else _PRESENT + encode_long(root.index)
    return _PRESENT + encode_string(root.topic) + encode_long(root.partition) + encode_long(root.offset) + index


def encode_meta(
    user: bytes,
    event_time_us: int,
    unique_id: bytes,
    origin: bytes,
    offset: int,
    index: int,
    timestamp_ms: int,
    root: bytes,
) -> bytes:
    """Put the parts in the order of `schema.META_FIELDS`; `timestamp_ms` is -1 if the record has none."""
    return b"".join(
        (
            user,
            encode_long(event_time_us),
            unique_id,
            origin,
            encode_long(offset),
            encode_long(index),
            encode_long(timestamp_ms),
            root,
        )
    )
