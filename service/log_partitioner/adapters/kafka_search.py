"""Finds where a TopicPartition can be read again behind record batches that the client library cannot read.

A fetch from any offset of a batch gives the whole batch, and the library's error names the batch's first offset
(KAFKA_FACTS L2): so we can tell whether two offsets belong to one broken batch, and find its end by halving.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from log_partitioner.adapters.kafka_topics import KafkaTopics, UnansweredError
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import SourceError
from log_partitioner.formats.model import TopicPartition

_LOOK_S = 5.0  # of an unknown magic byte the library says nothing but at the batch's first offset
_READABLE = -1


class Search:
    """Looks into one TopicPartition until a deadline."""

    def __init__(self, options: Mapping[str, Any], tp: TopicPartition, deadline: Deadline) -> None:
        self._options = {**options, "fetch.error.backoff.ms": 0, "queued.min.messages": 1}
        self._tp = tp
        self._deadline = deadline

    def readable_from(self, offset: int, end: int) -> int:
        """Return the first offset from this one on that can be read, or the end of the log.

        Raises:
            SourceError: the broker does not answer, or the library is lost in the batch.
        """
        while offset < end and (batch := self._batch_of(offset)) != _READABLE:
            outside = end
            while outside - offset > 1:
                middle = (offset + outside) // 2
                if self._batch_of(middle) == batch:
                    offset = middle
                else:
                    outside = middle
            offset = outside
        return offset

    def _batch_of(self, offset: int) -> int:
        """Return the first offset of the broken batch that this one is in, or _READABLE.

        Each look has a client of its own, because a used one may still hold records fetched from elsewhere.
        """
        until = self._deadline.at_most(_LOOK_S)
        try:
            with KafkaTopics(self._options, wait=lambda: until, log_as="search") as topics:
                list(topics.read({self._tp: (offset, offset + 1)}))
        except UnansweredError as error:
            if error.offset is None or not 0 <= error.offset <= offset:
                text = f"{self._tp}: nobody can tell where it can be read again behind {offset}: name it by --to"
                raise SourceError(text) from error
            return error.offset
        return _READABLE
