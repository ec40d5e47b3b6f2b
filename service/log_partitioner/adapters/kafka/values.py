"""Our values and those of the client library: TopicPartitions, committed offsets, group metadata, records of a poll.

Messages become columns at once, and a whole record if one is asked for.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import confluent_kafka
from confluent_kafka import Message

from log_partitioner.boundary import Membership, Poll
from log_partitioner.formats.model import HEADERS_UNREADABLE, CommittedOffset, SourceRecord, TopicPartition, readable

_METADATA_MAGIC = b"CGMDv2:"
_GENERATION = struct.Struct("<i")
_NO_EPOCH = -1
_NO_TIMESTAMP = confluent_kafka.TIMESTAMP_NOT_AVAILABLE
_UNREADABLE = False  # in place of headers


def offset_to_library(tp: TopicPartition, start: CommittedOffset) -> confluent_kafka.TopicPartition:
    """Return the library's form of an offset to commit, to assign or to seek; metadata gets a NUL (KAFKA_FACTS O9)."""
    epoch = _NO_EPOCH if start.leader_epoch is None else start.leader_epoch
    return confluent_kafka.TopicPartition(*tp, start.offset, start.metadata, epoch)


def committed_offset(answer: confluent_kafka.TopicPartition) -> CommittedOffset | None:
    """Return the broker's committed offset of a TopicPartition; None if nothing is committed."""
    if answer.offset < 0:
        return None
    return CommittedOffset(answer.offset, answer.leader_epoch, answer.metadata or "")


def topic_partition(answer: confluent_kafka.TopicPartition) -> TopicPartition:
    """Return our form of a TopicPartition."""
    return TopicPartition(answer.topic, answer.partition)


def topic_partitions(answers: Iterable[confluent_kafka.TopicPartition]) -> frozenset[TopicPartition]:
    """Return our form of TopicPartitions."""
    return frozenset(map(topic_partition, answers))


def parse_group_metadata(raw: bytes | None) -> Membership:
    """Read generation and member id: `CGMDv2:`, int32 little-endian, then group id and member id, each ended by NUL.

    Layout as written by librdkafka 2.x (rd_kafka_consumer_group_metadata_write); anything else proves nothing.
    """
    nothing = Membership(-1, "", raw)
    start = len(_METADATA_MAGIC)
    if raw is None or not raw.startswith(_METADATA_MAGIC) or len(raw) < start + _GENERATION.size:
        return nothing
    (generation,) = _GENERATION.unpack_from(raw, start)
    _, group_ends, rest = raw[start + _GENERATION.size :].partition(b"\0")
    member_id, member_ends, _ = rest.partition(b"\0")
    if not group_ends or not member_ends:
        return nothing
    try:
        return Membership(generation, member_id.decode(), raw)
    except UnicodeDecodeError:
        return nothing


# `map` calls the library's methods from C, in a quarter of the time of `methodcaller`. `headers` is called once only:
# for a name that is not UTF-8 it raises SystemError, and the second time it returns a list with a hole in it, which
# ends the process (KAFKA_FACTS L3).


class TopicPartitions:
    """Numbers TopicPartitions as they come."""

    def __init__(self) -> None:
        self.known: list[TopicPartition] = []
        self._numbers: dict[tuple[Any, Any], int] = {}

    def numbers_of(self, messages: Sequence[confluent_kafka.Message]) -> list[int]:
        """Return the place in `known` for each message."""
        topics, partitions = list(map(Message.topic, messages)), list(map(Message.partition, messages))
        topic = topics[0] if topics else None
        if topics.count(topic) == len(topics):  # as most often: then no pair is made for each message
            numbers: list[int] = []
            for partition, run in groupby(partitions):  # many of one partition come in a row
                numbers += [self._number((topic, partition))] * len(list(run))
            return numbers
        places = list(zip(topics, partitions, strict=True))
        by_place = {place: self._number(place) for place in {*places}}
        return list(map(by_place.__getitem__, places))

    def _number(self, place: tuple[Any, Any]) -> int:
        number = self._numbers.get(place)
        if number is None:
            number = self._numbers[place] = len(self.known)
            self.known.append(TopicPartition(*place))
        return number


def poll_of(messages: Sequence[confluent_kafka.Message], tps: TopicPartitions) -> Poll:
    """Return the records of these messages, none of which is an error; `tps` keeps TopicPartitions."""
    tp_of, headers = tps.numbers_of(messages), _headers(messages)
    return Poll(
        tps.known,
        tp_of,
        list(map(Message.offset, messages)),  # type: ignore[arg-type]  # a record has one
        [-1 if kind == _NO_TIMESTAMP or ms < 0 else ms for kind, ms in map(Message.timestamp, messages)],
        list(map(Message.value, messages)),
        {} if headers.count(None) == len(headers) else _with_headers(headers),
        lambda: list(map(Message.key, messages)),
        lambda place: _record(messages[place], tps.known[tp_of[place]], headers[place]),
    )


def _record(message: confluent_kafka.Message, tp: TopicPartition, found: Any) -> SourceRecord:
    kind, timestamp_ms = message.timestamp()
    offset: Any = message.offset()
    value: Any = message.value()
    key: Any = message.key()
    headers, unreadable = ((), HEADERS_UNREADABLE) if found is _UNREADABLE else readable(tuple(found or ()))
    return SourceRecord(
        tp,
        offset,
        timestamp_ms if kind != _NO_TIMESTAMP and timestamp_ms >= 0 else None,
        key,
        value,
        headers,
        message.leader_epoch(),
        unreadable,
    )


def _headers(messages: Sequence[confluent_kafka.Message]) -> list[Any]:
    """Return the headers of each message, None if it has none, _UNREADABLE if one cannot be read."""
    found: list[Any] = []
    each = map(Message.headers, messages)
    while len(found) < len(messages):
        try:
            found.extend(each)
        except SystemError:  # the headers before it are in `found`
            found.append(_UNREADABLE)
    return found


def _with_headers(headers: Sequence[Any]) -> dict[int, frozenset[str] | None]:
    return {place: _names(found) for place, found in enumerate(headers) if found is not None}


def _names(headers: Any) -> frozenset[str] | None:
    """Return the names of headers; None if one cannot be read."""
    is_readable = headers is not _UNREADABLE and readable(tuple(headers))[1] is None
    return frozenset(name for name, _ in headers) if is_readable else None
