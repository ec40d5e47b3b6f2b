"""The nouns that every room of the service shares (DESIGN 2).

Owns plain immutable values; holds no behaviour beyond properties of their fields.
"""

from __future__ import annotations

from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]
CHAIN_HEADER = "source-topic-chain"
HEADERS_UNREADABLE = "the name of a header is not UTF-8"
SKIPPED = "a person has skipped these offsets"
UNKNOWN_SCHEMA = "the schema registry did not know its schema"
FATAL = "it ended the process, again and again, while it alone was in hand"
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # what others, such as Java's client, make of such a name


class TopicPartition(NamedTuple):
    """A Kafka partition of a source topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


OffsetRanges = dict[TopicPartition, tuple[int, int]]
"""[first, next) offsets by TopicPartition."""


class SourceRecord(NamedTuple):
    """One Kafka message of the source, as it left the client library.

    `timestamp_ms` is Kafka's, or None if the record carries none; `leader_epoch` is the epoch of the leader that took
    the record, or None if the client library does not know it. `unreadable` says why no entry can be taken from it:
    HEADERS_UNREADABLE (the headers are left out), FATAL, SKIPPED or UNKNOWN_SCHEMA.
    """

    tp: TopicPartition
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers
    leader_epoch: int | None = None
    unreadable: str | None = None

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


def readable(headers: Headers) -> tuple[Headers, str | None]:
    """Return headers and None; no headers and the reason if a name may stand for one that is not UTF-8.

    Readers cannot tell the two apart.
    """
    if headers and any(_REPLACEMENT in name for name, _ in headers):
        return (), HEADERS_UNREADABLE
    return headers, None


def last_header(headers: Headers, name: str) -> bytes | None:
    """Return the value of the last header of a name; None if there is none, or if it has no value."""
    return next((value for header, value in reversed(headers) if header == name), None)


class PartitionKey(NamedTuple):
    """The key by which data is partitioned: user, date `YYYY-MM-DD` and hour 0-23 in the partition zone."""

    user: str
    date: str
    hour: int


class RootLink(NamedTuple):
    """The first place of a republished record (DESIGN 3.8); `index` is the link's output index, if it has one."""

    topic: str
    partition: int
    offset: int
    index: int | None = None  # type: ignore[assignment]  # hides tuple.index, which is never called on a link


class WayPlace(NamedTuple):
    """The way of a record, by its hash, and its place along it: the root's offset, then indexes (DESIGN 3.8)."""

    way: str
    numbers: tuple[int, ...]


class CommittedOffset(NamedTuple):
    """A committed offset, the leader epoch under which it was read, and the metadata stored with it.

    `leader_epoch` is None and `metadata` empty if they are unknown, which is never taken for a difference.
    """

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""
