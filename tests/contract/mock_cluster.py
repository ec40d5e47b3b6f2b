"""The client library's own mock cluster, with record batches written by hand and errors put into its answers.

`confluent_kafka` does not pass the mock cluster on, the library that it brings does: it is called through ctypes.
"""

from __future__ import annotations

import ctypes
import socket
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import confluent_kafka

_PRODUCE, _FETCH, LIST_OFFSETS = 0, 1, 2
JOIN_GROUP, GROUP_HEARTBEAT = 11, 68  # of the classic protocol; of KIP-848
ADD_PARTITIONS = 24  # to a transaction
_NOW_MS = 1_714_521_600_000
_CRC32C = 0x82F63B78
Header = tuple[bytes, bytes]


def _library() -> Any:
    (path,) = (Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs").glob("librdkafka*.so*")
    library = ctypes.CDLL(str(path))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library


class MockCluster:
    """One broker on a port of its own, with one topic of one TopicPartition; to be used as a context."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._library = _library()
        text = ctypes.create_string_buffer(512)
        conf = ctypes.c_void_p(self._library.rd_kafka_conf_new())
        self._client = ctypes.c_void_p(self._library.rd_kafka_new(0, conf, text, len(text)))
        assert self._client, text.value
        self._cluster = ctypes.c_void_p(self._library.rd_kafka_mock_cluster_new(self._client, 1))
        self.bootstrap = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        self._library.rd_kafka_mock_topic_create(self._cluster, topic.encode(), 1, 1)
        self._library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)

    def fail_fetches(self, *codes: int) -> None:
        """Answer the next fetches with these error codes."""
        self.fail(_FETCH, *codes)

    def fail(self, request: int, *codes: int) -> None:
        """Answer the next requests of this API key with these error codes."""
        array = (ctypes.c_int * len(codes))(*codes)
        self._library.rd_kafka_mock_push_request_errors_array(
            self._cluster, ctypes.c_int16(request), ctypes.c_size_t(len(codes)), array
        )

    def create_topic(self, topic: str, *, partitions: int) -> None:
        """Create one more topic."""
        self._library.rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, 1)

    def elect(self) -> None:
        """Make the one broker the leader anew: what is appended from now on is of the next leader epoch."""
        self._library.rd_kafka_mock_partition_set_leader(self._cluster, self.topic.encode(), 0, 1)

    def append(self, records: bytes) -> None:
        """Append a record batch, or messages of the older form, as they are."""
        append(self.bootstrap, self.topic, records)


def append(bootstrap: str, topic: str, records: bytes) -> None:
    """Append a record batch, or messages of the older form, to partition 0 of a topic; its leader must be asked."""
    version = 7 if records[16] > 1 else 2  # the request's; older ones take older messages
    host, _, port = bootstrap.partition(":")
    body = struct.pack(">hhih", _PRODUCE, version, 1, -1)
    body += struct.pack(">h", -1) if version > 2 else b""  # transactional id
    body += struct.pack(">hii", -1, 5000, 1) + struct.pack(">h", len(topic)) + topic.encode()
    body += struct.pack(">iii", 1, 0, len(records)) + records
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        with connection.makefile("rb") as answers:
            (length,) = struct.unpack(">i", answers.read(4))
            answer = answers.read(length)
    (error,) = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(topic) + 4 + 4)
    assert error == 0, f"the broker refused: error {error}"


def batch(
    *values: bytes, headers: Sequence[Header] = (), magic: int = 2, codec: int = 0, is_flipped: bool = False
) -> bytes:
    """Write a record batch (magic 2); with another codec than 0 its records are not what the codec would make."""
    records = b"".join(_record(number, value, headers) for number, value in enumerate(values))
    count = len(values)
    body = struct.pack(">hiqqqhii", codec, count - 1, _NOW_MS, _NOW_MS, -1, -1, -1, count) + records
    checksum = _crc32c(body)
    if is_flipped:
        body = body[:-2] + bytes([body[-2] ^ 1]) + body[-1:]
    whole = struct.pack(">ibI", 0, magic, checksum) + body
    return struct.pack(">qi", 0, len(whole)) + whole


def old_message(value: bytes, *, is_flipped: bool = False) -> bytes:
    """Write a message as before Kafka 0.11 (magic 1)."""
    body = struct.pack(">bbqii", 1, 0, _NOW_MS, -1, len(value)) + value
    whole = struct.pack(">I", zlib.crc32(body) ^ is_flipped) + body
    return struct.pack(">qi", 0, len(whole)) + whole


def _record(number: int, value: bytes, headers: Sequence[Header]) -> bytes:
    body = b"\0" + _varint(0) + _varint(number) + _varint(-1) + _varint(len(value)) + value + _varint(len(headers))
    for name, content in headers:
        body += _varint(len(name)) + name + _varint(len(content)) + content
    return _varint(len(body)) + body


def _varint(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    written = bytearray()
    while rest & ~0x7F:
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*written, rest])


def _crc32c(data: bytes) -> int:
    rest = 0xFFFFFFFF
    for byte in data:
        rest ^= byte
        for _ in range(8):
            rest = rest >> 1 ^ (_CRC32C if rest & 1 else 0)
    return rest ^ 0xFFFFFFFF
