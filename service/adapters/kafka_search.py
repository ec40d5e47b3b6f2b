"""Finds where a TopicPartition can be read again behind record batches that the client library cannot read.

A fetch from any offset of a batch gives the whole batch, and the library's error names the batch's first offset
(KAFKA_FACTS L2): so whether two offsets are of the same broken batch can be told, and its end is found by halving.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError

from service.adapters.kafka_log import make_client
from service.control.deadline import Deadline
from service.errors import SourceError
from service.formats.model import TopicPartition
from service.patience import close_or_leave

_LOOK_S = 5.0  # of an unknown magic byte the library says nothing but at the batch's first offset
_TURN_S = 0.2
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

        Each look has a client of its own: another one may still hold what it fetched from elsewhere.
        """
        until = self._deadline.at_most(_LOOK_S)
        client = make_client(confluent_kafka.Consumer, "search", self._options)
        try:
            client.assign([confluent_kafka.TopicPartition(*self._tp, offset)])
            while not (messages := client.consume(1, _TURN_S)) and not until.has_passed():
                pass
        finally:
            close_or_leave(client.close)
        for message in messages:
            problem, first = message.error(), message.offset()
            if problem is None or problem.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                return _READABLE
            if first is not None and 0 <= first <= offset:
                return int(first)
        raise SourceError(f"{self._tp}: nobody can tell where it can be read again behind {offset}: name it by --to")
