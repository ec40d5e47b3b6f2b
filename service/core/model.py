"""The nouns that every room of the service shares (DESIGN 2).

Owns plain immutable values; holds no behaviour beyond what follows from their fields.
"""

from __future__ import annotations

from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]


class TopicPartition(NamedTuple):
    """A Kafka partition of a source topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class SourceRecord(NamedTuple):
    """One Kafka message of the source, as it left the client library.

    `timestamp_ms` is Kafka's, or None where the record carries none; `leader_epoch` that of the leader which took the
    record, or None where the client library does not know it.
    """

    tp: TopicPartition
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers
    leader_epoch: int | None = None

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


class PartitionKey(NamedTuple):
    """What data is partitioned by: user, date `YYYY-MM-DD` and hour 0-23 in the partition zone."""

    user: str
    date: str
    hour: int


class RootLink(NamedTuple):
    """Where a republished record came from first (DESIGN 3.8); `index` is the link's output index, if it has one."""

    topic: str
    partition: int
    offset: int
    index: int | None = None  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a link


class CommittedOffset(NamedTuple):
    """A committed offset: where to go on, under which leader epoch it was read, and what was stored with it.

    `leader_epoch` is None and `metadata` empty where nothing is known of them: unknown, never different.
    """

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""
