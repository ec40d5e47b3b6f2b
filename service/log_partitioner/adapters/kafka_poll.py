"""Messages of the client library -> the records of one poll: columns at once, a whole record if one is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import confluent_kafka
from confluent_kafka import Message

from log_partitioner.boundary import Poll
from log_partitioner.formats.model import HEADERS_UNREADABLE, SourceRecord, TopicPartition, readable

_NO_TIMESTAMP = confluent_kafka.TIMESTAMP_NOT_AVAILABLE
_UNREADABLE = False  # in place of headers
# Methods of the library are called from C, by `map`, at a quarter of what `methodcaller` takes. `headers` once only:
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
        if topics.count(topic) == len(topics):  # as most are: no pair for each
            numbers: list[int] = []
            for partition, run in groupby(partitions):  # of one there are many in a row
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
        except SystemError:  # those before it are there
            found.append(_UNREADABLE)
    return found


def _with_headers(headers: Sequence[Any]) -> dict[int, frozenset[str] | None]:
    return {place: _names(found) for place, found in enumerate(headers) if found is not None}


def _names(headers: Any) -> frozenset[str] | None:
    """Return the names of headers; None if one cannot be read."""
    is_readable = headers is not _UNREADABLE and readable(tuple(headers))[1] is None
    return frozenset(name for name, _ in headers) if is_readable else None
