"""Finds where a TopicPartition can be read again behind record batches that the client library cannot read.

A fetch from any offset of a batch gives the whole batch, and the library's error names the batch's first offset
(KAFKA_FACTS L2): so whether two offsets are of the same broken batch can be told, and its end is found by halving.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from service.adapters.kafka_log import make_client
from service.control.deadline import Deadline
from service.formats.model import TopicPartition
from service.patience import close_or_leave

_LOOK_S = 5.0  # of an unknown magic byte the library says nothing but at the batch's first offset
_TURN_S = 0.2
_READABLE = -1


class _CannotTellError(Exception):
    """The broker does not answer, or the library is lost in the batch."""


class Search:
    """Looks into one TopicPartition until a deadline."""

    def __init__(self, options: Mapping[str, Any], tp: TopicPartition, deadline: Deadline) -> None:
        self._options = {**options, "fetch.error.backoff.ms": 0, "queued.min.messages": 1}
        self._tp = tp
        self._deadline = deadline

    def readable_from(self, offset: int) -> int | None:
        """Return the first offset from this one on that can be read, or the end; None where that cannot be told."""
        try:
            end = self._end()
            while offset < end and (batch := self._batch_of(offset)) != _READABLE:
                offset = self._end_of_batch(batch, offset, end)
        except (KafkaException, _CannotTellError):
            return None
        return offset

    def _end(self) -> int:
        with self._client() as client:
            place = confluent_kafka.TopicPartition(*self._tp)
            found = client.get_watermark_offsets(place, timeout=self._deadline.timeout_s())
        if found is None:
            raise _CannotTellError("no watermarks")
        return int(found[1])

    def _end_of_batch(self, batch: int, inside: int, end: int) -> int:
        """Return the first offset behind a broken batch, at most `end`; `inside` is one of its offsets."""
        step = 1
        while (outside := min(inside + step, end)) < end and self._batch_of(outside) == batch:
            inside, step = outside, 2 * step
        while outside - inside > 1:
            middle = (inside + outside) // 2
            if self._batch_of(middle) == batch:
                inside = middle
            else:
                outside = middle
        return outside

    def _batch_of(self, offset: int) -> int:
        """Return the first offset of the broken batch that this one is in, or _READABLE."""
        until = self._deadline.at_most(_LOOK_S)
        with self._client() as client:
            client.assign([confluent_kafka.TopicPartition(*self._tp, offset)])
            while not until.has_passed():
                for message in client.consume(1, _TURN_S):
                    return _told_by(message, offset)
        raise _CannotTellError(f"nothing of offset {offset}")

    @contextmanager
    def _client(self) -> Iterator[confluent_kafka.Consumer]:
        """Yield a client for one look: another one may still hold what it fetched from elsewhere."""
        client = make_client(confluent_kafka.Consumer, "search", self._options)
        try:
            yield client
        finally:
            close_or_leave(client.close)


def _told_by(message: confluent_kafka.Message, offset: int) -> int:
    problem, first = message.error(), message.offset()
    if problem is None or problem.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
        return _READABLE
    if first is None or not 0 <= first <= offset:
        raise _CannotTellError(problem.str())
    return first
