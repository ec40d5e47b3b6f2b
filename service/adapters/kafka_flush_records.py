"""Flush records as the group has written them, newest first. Fulfils `runtime.ports.FlushRecords`.

Read where TopicPartitions are assigned, by a client of its own, outside callbacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Self

import confluent_kafka
import msgspec
import structlog
from confluent_kafka import KafkaError, KafkaException

from service.adapters.kafka_errors import is_no_topic, without_topic
from service.adapters.kafka_log import make_client
from service.control.deadline import Deadline
from service.control.flush_history import Flushed, FlushHistory, Foreign, OurGroup, at_ms
from service.errors import HistoryUnknownError, TopicMissingError
from service.formats.adoption import decode_flushes
from service.formats.model import TopicPartition
from service.formats.offset_metadata import SourceTopics
from service.patience import Patience

_MESSAGES_AT_ONCE = 1000
_POLL_S = 0.2
_FIRST_CHUNK, _GROWTH = 500, 4  # offsets of each partition of the topic; each chunk further back is larger
_NEWEST_CHUNKS = 3  # 10,500 offsets of each partition: of one, and 100 workers, the last 25 minutes
_OPEN_S = 10.0  # what is open for longer hangs, or a dead worker has left it
_NEVER_MS = 2**63  # of a partition in which nothing was read yet but what was aborted


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
    ) -> Flushed:
        """Return up to where each was flushed that a flush record names; blocks until that is known of all of `tps`.

        `newest_of` is looked for in 10,500 offsets of each of the topic's partitions, or as many as are read by the
        deadline. If nothing else is asked for it goes on without what this version cannot read and what is behind a
        transaction that stays open, with a warning. If retention has cut the topic it warns of those of `tps` that are
        found nowhere: they need not be new. At least the newest 500 offsets of each partition are looked through for
        foreign groups; the first one ends the reading.

        Raises:
            HistoryUnknownError: the topic cannot be read, or not by the deadline; or it names a foreign group whose
                adoption may be behind an open transaction.
            LeavingError: asked to leave meanwhile.
        """
        wanted = sorted(tps)
        history = FlushHistory(wanted, newest_of=newest_of, group=self._group, topics=topics)
        foreign: list[Foreign] = []
        try:
            with _Backwards(self._options, self._topic, deadline, self._patience) as reading:
                reading.wait_for_open(deadline if wanted else deadline.at_most(_OPEN_S))
                is_over = False
                while not is_over:
                    oldest_ms = reading.read_chunk(history)
                    foreign = history.foreign  # adoptions are behind all that they concern: a whole chunk tells
                    is_over = oldest_ms is None or history.is_enough(oldest_ms, is_long=reading.is_long)
                    is_over = is_over or bool(foreign)
        except KafkaException as error:
            if is_no_topic(error.args[0]):
                servers = self._options.get("bootstrap.servers")
                raise TopicMissingError(without_topic(self._topic, servers)) from error
            raise HistoryUnknownError(f"topic {self._topic}: {_text_of(error.args[0])}") from error
        except _LateError as error:
            if wanted or not reading.chunks:
                raise HistoryUnknownError(f"topic {self._topic} is not read in time{reading.open_at}") from error
        if reading.open_at:
            told = f"topic {self._topic} is read in part{reading.open_at}"
            if wanted or foreign:
                raise HistoryUnknownError(told)
            self._log.warning("history_open", message=told)
        if reading.passed_over and not foreign:
            if wanted:
                raise HistoryUnknownError(reading.passed_over)
            self._log.warning("flush_record_unknown", message=reading.passed_over)
        found = history.next_offsets
        nowhere = [str(tp) for tp in wanted if tp not in found and not foreign]
        if nowhere and (cut := reading.cut()):
            message = f"{cut}: what was before is gone, and nothing that is left names these: they begin as if new"
            self._log.warning("history_cut", topic_partitions=nowhere, message=message)
        return Flushed(found, foreign, frozenset(history.flushed_topics))


class _LateError(Exception):
    """The deadline has passed."""


class _Backwards:
    """Reads all partitions of a topic from their ends to their beginnings, chunk by chunk."""

    def __init__(self, options: Mapping[str, Any], topic: str, deadline: Deadline, patience: Patience) -> None:
        self._topic = topic
        self._deadline = deadline
        self._patience = patience
        self._size = _FIRST_CHUNK
        self.chunks = 0
        self.passed_over = ""
        self.open_at = ""
        self._firsts: dict[int, int] = {}
        self._uppers: dict[int, int] = {}
        self._oldest_ms: dict[int, int] = {}
        self._ask_ends(options)
        self._consumer = make_client(confluent_kafka.Consumer, "flushes", options)

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the brokers."""
        self._consumer.close()

    @property
    def is_long(self) -> bool:
        """Whether what was read is long enough for all that is flushed from time to time."""
        return self.chunks >= _NEWEST_CHUNKS

    def cut(self) -> str:
        """Say where partitions begin that have lost their beginning; empty where none has."""
        cut = (f"{self._topic}-{number} begins at offset {first}" for number, first in self._firsts.items() if first)
        return ", ".join(cut)

    def _ask_ends(self, options: Mapping[str, Any]) -> None:
        """Ask for the ends with what is open: a commit after them cannot be of what has lost its offset already."""
        everything = make_client(
            confluent_kafka.Consumer, "flushes", {**options, "isolation.level": "read_uncommitted"}
        )
        try:
            for partition in self._partitions(everything):
                self._firsts[partition], self._uppers[partition] = self._marks(everything, partition)
        finally:
            everything.close()

    def wait_for_open(self, until: Deadline) -> None:
        """Wait for what is committed behind open transactions; what stays open until then ends its partition."""
        for partition, upper in self._uppers.items():
            while (stable := self._marks(self._consumer, partition)[1]) < upper:
                if until.has_passed():
                    self.open_at += f": a transaction is open in {self._topic}-{partition} at offset {stable}"
                    self._uppers[partition] = stable
                    break
                self._patience.require()
                self._consumer.consume(1, _POLL_S)

    def _marks(self, client: confluent_kafka.Consumer, partition: int) -> tuple[int, int]:
        asked = confluent_kafka.TopicPartition(self._topic, partition)
        ask = partial(client.get_watermark_offsets, asked, timeout=self._deadline.timeout_s())
        return _answered(self._patience.ask(ask))

    def _partitions(self, client: confluent_kafka.Consumer) -> list[int]:
        answer = self._patience.ask(partial(client.list_topics, self._topic, timeout=self._deadline.timeout_s()))
        found = answer.topics[self._topic]
        if found.error is not None:
            raise KafkaException(found.error)
        return list(found.partitions)

    def read_chunk(self, history: FlushHistory) -> int | None:
        """Read what lies before the last chunk; gives how far back all partitions are read, None at the beginnings."""
        ranges = {
            partition: (max(self._firsts[partition], upper - self._size), upper)
            for partition, upper in self._uppers.items()
            if upper > self._firsts[partition]
        }
        if not ranges:
            return None
        self._read(ranges, history)
        for partition, (lower, _) in ranges.items():
            self._uppers[partition] = lower
        self._size *= _GROWTH
        self.chunks += 1
        unread = [partition for partition, upper in self._uppers.items() if upper > self._firsts[partition]]
        return max((self._oldest_ms.get(partition, _NEVER_MS) for partition in unread), default=None)

    def _read(self, ranges: Mapping[int, tuple[int, int]], history: FlushHistory) -> None:
        waiting = {partition: upper for partition, (_, upper) in ranges.items()}
        self._consumer.assign(
            [confluent_kafka.TopicPartition(self._topic, partition, lower) for partition, (lower, _) in ranges.items()]
        )
        while waiting:
            self._patience.require()
            if self._deadline.has_passed():
                raise _LateError
            for message in self._consumer.consume(_MESSAGES_AT_ONCE, _POLL_S):
                self._take(message, waiting, history)
        self._consumer.unassign()

    def _take(self, message: confluent_kafka.Message, waiting: dict[int, int], history: FlushHistory) -> None:
        error, partition, offset = message.error(), message.partition(), message.offset()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001
            raise KafkaException(error)
        assert partition is not None, "messages and ends are of a partition"
        assert offset is not None, "and have an offset"
        upper = waiting.get(partition)
        if upper is None:
            return
        if error is None and offset < upper:
            try:
                record = decode_flushes(message.value() or b"")
            except msgspec.DecodeError as problem:
                text = f"{self._topic}-{partition} has no flush record that this version reads at offset {offset}"
                self.passed_over = f"{text}: {problem}"
            else:
                history.add(record)
                self._oldest_ms[partition] = min(at_ms(record), self._oldest_ms.get(partition, _NEVER_MS))
        if offset + (error is None) >= upper:
            del waiting[partition]


def _answered(marks: tuple[int, int] | None) -> tuple[int, int]:
    if marks is None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001
    return marks


def _text_of(error: KafkaError) -> str:
    return f"{error.name()}: {error.str()}"
