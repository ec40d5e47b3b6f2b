"""Flush records as the group has written them, newest first. Fulfils `boundary.FlushRecords`.

The worker reads them after an assignment, by a client of its own, outside callbacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import structlog

from log_partitioner.adapters.kafka.errors import is_no_topic, without_topic
from log_partitioner.adapters.kafka.topics import KafkaTopics, UnansweredError
from log_partitioner.control.deadline import Deadline
from log_partitioner.control.flush_history import FlushedOffsets, FlushHistory, Foreign, OurGroup, at_ms
from log_partitioner.errors import HistoryUnknownError, TopicMissingError
from log_partitioner.formats.flush_record import decode_flushes
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.formats.offset_metadata import SourceTopics
from log_partitioner.patience import Patience

_FIRST_CHUNK, _GROWTH = 500, 4  # offsets of each partition of the topic; each chunk further back is larger
_NEWEST_CHUNKS = 3  # 10,500 offsets of each partition: the last 25 minutes, if 100 workers write one partition
_OPEN_S = 10.0  # a transaction that is open for longer hangs, or a dead worker has left it
_NEVER_MS = 2**63  # of a partition in which only aborted messages were read yet


class KafkaFlushRecords:
    """Reads the flushes topic; used by the loop thread only."""

    def __init__(
        self, options: Mapping[str, Any], topic: str, *, group: OurGroup, patience: Patience | None = None
    ) -> None:
        self._options = options
        self._topic = topic
        self._group = group
        self._patience = patience or Patience()
        self._log = structlog.get_logger("flush_records")

    def read(
        self,
        tps: Iterable[TopicPartition],
        topics: SourceTopics,
        *,
        newest_of: Iterable[TopicPartition] = (),
        deadline: Deadline,
    ) -> FlushedOffsets:
        """Return the next offset of each that a flush record names; blocks until it is known of all of `tps`.

        `newest_of` is looked for in the newest 10,500 offsets of each of the topic's partitions, or in as many as are
        read by the deadline. If nothing else is asked for, messages that this version cannot read, or that are behind
        a transaction that stays open, are left out with a warning. If retention has cut the topic, a warning names the
        `tps` that are found nowhere, because they need not be new. At least the newest 500 offsets of each partition
        are looked through for foreign groups; the first foreign group ends the reading.

        Raises:
            HistoryUnknownError: the topic cannot be read, or not by the deadline; or it names a foreign group whose
                adoption may be behind an open transaction.
            LeavingError: asked to leave meanwhile.
        """
        wanted = sorted(tps)
        history = FlushHistory(wanted, newest_of=newest_of, group=self._group, topics=topics)
        foreign: list[Foreign] = []
        with KafkaTopics(self._options, wait=lambda: deadline, patience=self._patience, log_as="flushes") as kafka:
            reading = _Backwards(kafka)
            try:
                reading.begin(self._topic, within=deadline if wanted else deadline.at_most(_OPEN_S))
                is_over = False
                while not is_over:
                    oldest_ms = reading.read_chunk(history)
                    foreign = history.foreign  # adoptions are behind all that they concern: a whole chunk tells
                    is_over = oldest_ms is None or history.is_enough(oldest_ms, is_long=reading.is_long)
                    is_over = is_over or bool(foreign)
            except UnansweredError as error:
                if is_no_topic(error.error):
                    servers = self._options.get("bootstrap.servers")
                    raise TopicMissingError(without_topic(self._topic, servers)) from error
                if wanted or not (error.is_late and reading.chunks):
                    raise HistoryUnknownError("; ".join([*reading.open_ones, str(error)])) from error
        if reading.open_ones:
            told = f"topic {self._topic} is read in part: {'; '.join(reading.open_ones)}"
            if wanted or foreign:
                raise HistoryUnknownError(told)
            self._log.warning("history_open", message=told)
        if reading.passed_over and not foreign:
            if wanted:
                raise HistoryUnknownError(reading.passed_over)
            self._log.warning("flush_record_unknown", message=reading.passed_over)
        found = history.flushed
        nowhere = [str(tp) for tp in wanted if tp not in found.next_offsets and not foreign]
        if nowhere and (cut := reading.cut()):
            message = f"{cut}: what was before is gone, and nothing that is left names these: they begin as if new"
            self._log.warning("history_cut", topic_partitions=nowhere, message=message)
        return found


class _Backwards:
    """Reads all partitions of a topic from their ends to their beginnings, chunk by chunk."""

    def __init__(self, kafka: KafkaTopics) -> None:
        self._kafka = kafka
        self._size = _FIRST_CHUNK
        self.chunks = 0
        self.passed_over = ""
        self.open_ones: list[str] = []
        self._firsts: dict[TopicPartition, int] = {}
        self._uppers: dict[TopicPartition, int] = {}
        self._oldest_ms: dict[TopicPartition, int] = {}

    @property
    def is_long(self) -> bool:
        """Whether the part read is long enough to have every TopicPartition that is flushed from time to time."""
        return self.chunks >= _NEWEST_CHUNKS

    def cut(self) -> str:
        """Name the partitions that have lost their beginning, with their first offsets; empty if none has."""
        return ", ".join(f"{tp} begins at offset {first}" for tp, first in self._firsts.items() if first)

    def begin(self, topic: str, *, within: Deadline) -> None:
        """Wait for messages committed behind open transactions; a transaction that stays open ends its partition.

        A commit behind these ends cannot be about a TopicPartition that has lost its offset already.
        """
        ends, self.open_ones = self._kafka.settled(self._kafka.topic_partitions(topic), within_s=within.remaining_s())
        self._firsts = {tp: end.first for tp, end in ends.items()}
        self._uppers = {tp: end.next for tp, end in ends.items()}

    def read_chunk(self, history: FlushHistory) -> int | None:
        """Read the chunk before the last one; returns the time back to which all are read, None at the beginnings."""
        ranges = {
            tp: (max(self._firsts[tp], upper - self._size), upper)
            for tp, upper in self._uppers.items()
            if upper > self._firsts[tp]
        }
        if not ranges:
            return None
        for message in self._kafka.read(ranges):
            self._take(message, history)
        self._uppers |= {tp: lower for tp, (lower, _) in ranges.items()}
        self._size *= _GROWTH
        self.chunks += 1
        unread = [tp for tp, upper in self._uppers.items() if upper > self._firsts[tp]]
        return max((self._oldest_ms.get(tp, _NEVER_MS) for tp in unread), default=None)

    def _take(self, message: SourceRecord, history: FlushHistory) -> None:
        try:
            record = decode_flushes(message.value or b"")
        except msgspec.DecodeError as problem:
            text = f"{message.tp} has no flush record that this version reads at offset {message.offset}"
            self.passed_over = f"{text}: {problem}"
        else:
            history.add(record)
            self._oldest_ms[message.tp] = min(at_ms(record), self._oldest_ms.get(message.tp, _NEVER_MS))
