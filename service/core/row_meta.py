"""The `_meta` record of a row as bytes: `encode_meta` puts it together, `skip_meta` finds where it ends.

Its parts are made where they change: the user once per PartitionKey, where-from once per record (DESIGN 3.2).
"""

from __future__ import annotations

from service.core.avro_binary import decode_long, encode_long, encode_string
from service.core.model import RootLink, SourceRecord

NO_TIMESTAMP_MS = -1
_NULL, _PRESENT = b"\0", b"\2"


def encode_user(user: str) -> bytes:
    """Encode the first field."""
    return encode_string(user)


def encode_id(unique_id: str | None) -> bytes:
    """Encode the third field."""
    return _NULL if unique_id is None else _PRESENT + encode_string(unique_id)


def encode_origin(record: SourceRecord) -> bytes:
    """Encode topic, partition and offset of a record."""
    return encode_string(record.tp.topic) + encode_long(record.tp.partition) + encode_long(record.offset)


def encode_rest(timestamp_ms: int | None, root: RootLink | None) -> bytes:
    """Encode what follows the index: Kafka's timestamp, -1 where there is none, and the root."""
    timestamp = encode_long(NO_TIMESTAMP_MS if timestamp_ms is None else timestamp_ms)
    if root is None:
        return timestamp + _NULL
    return timestamp + _PRESENT + encode_string(root.topic) + encode_long(root.partition) + encode_long(root.offset)


def encode_meta(*, user: bytes, event_time_us: int, unique_id: bytes, origin: bytes, index: int, rest: bytes) -> bytes:
    """Put the parts in the order of `avro_schema.META_FIELDS`."""
    return b"".join((user, encode_long(event_time_us), unique_id, origin, encode_long(index), rest))


def skip_meta(data: bytes, at: int) -> int:
    """Find the position behind the `_meta` that starts at `at`."""
    at = _skip_string(data, at)  # user
    at = decode_long(data, at)[1]  # event_time
    at = _skip_string(data, at + 1) if data[at] else at + 1  # id
    at = _skip_string(data, at)  # topic
    for _ in range(4):  # partition, offset, index, timestamp
        at = decode_long(data, at)[1]
    if not data[at]:  # root
        return at + 1
    at = _skip_string(data, at + 1)
    return decode_long(data, decode_long(data, at)[1])[1]


def _skip_string(data: bytes, at: int) -> int:
    length, at = decode_long(data, at)
    return at + length
