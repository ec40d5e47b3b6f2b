"""Finds the record that ended the process, by a journal on disk of the records in hand at unclean ends in a row.

    1. an end with records in hand is unclean; the next process takes these records FEW at once, in batches of their own
    2. after one more end at the same records, it takes each record alone: alone in its batch, and in hand while it is
       decoded and recorded, not while anything is spilled or flushed
    3. a record that was alone in hand at two ends in a row becomes a dead letter, undecoded

Any other end does not blame a record, because the batch as a whole may have caused it (memory or disk was full). Such
an end, or a commit behind these offsets, restarts the count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby

import msgspec
import structlog

from log_partitioner.boundary import Poll
from log_partitioner.errors import RegistryError, SpoolError
from log_partitioner.formats.log_events import EndedWithRecordsInHand, RecordPutAway, tell
from log_partitioner.formats.model import FATAL, SourceRecord
from log_partitioner.runtime.ports import Ports
from log_partitioner.runtime.recorder import Recorder

FEW = 200  # records: a poll in ten flushes, by default
_ALONE, _FATAL = 2, 4  # unclean ends in a row; at the third and the fourth a record was alone in hand

Offsets = dict[str, tuple[int, int]]
"""[first, end) by TopicPartition."""


class CrashHistory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The memory that one process leaves to the next.

    `in_hand` are the records being taken now, `suspect` the records in hand at the last unclean end; `ends` counts the
    unclean ends in a row at the same records.
    """

    in_hand: Offsets = {}
    suspect: Offsets = {}
    ends: int = 0

    @classmethod
    def read(cls, line: bytes) -> CrashHistory:
        """Parse the memory of an earlier process; an empty one if the line is not in our form."""
        try:
            return msgspec.json.decode(line, type=cls)
        except msgspec.DecodeError:
            return cls()

    def after_end(self) -> CrashHistory:
        """Return the memory with which the next process starts."""
        if not self.in_hand:
            return self if self.ends >= _FATAL else CrashHistory()
        is_same = any(_overlap(span, self.suspect.get(name)) for name, span in self.in_hand.items())
        return CrashHistory(suspect=self.in_hand, ends=1 + (self.ends if is_same else 0))

    def is_fatal(self, tp: str, offset: int) -> bool:
        """Return whether a record is not to be decoded."""
        return self.ends >= _FATAL and self.suspect.get(tp) == (offset, offset + 1)


@dataclass(eq=False, repr=False)
class CrashGuard:
    """Used by the loop thread only. While it `is_alone`, records are taken one by one only."""

    ports: Ports
    recorder: Recorder

    def __post_init__(self) -> None:
        self.is_alone = False
        self._history = CrashHistory()
        self._seen: set[str] = set()
        self._log = structlog.get_logger("crash_guard")

    def begin(self) -> None:
        """Read the journal of the process before; once, before the first record.

        Raises:
            SpoolError: the disk refuses.
        """
        self._history = CrashHistory.read(self.ports.journal.read()).after_end()
        if self._history.ends:
            records = {name: list(span) for name, span in self._history.suspect.items()}
            tell(self._log.warning, EndedWithRecordsInHand(self._history.ends, records))
        self.release()

    def parts(self, poll: Poll, flush: Callable[[], None]) -> Iterator[tuple[int, int]]:
        """Yield [first, stop) of a poll in order, as many records at once as is safe; `flush` empties the open batch.

        They are in hand until the batch is flushed, unless it is one alone: it is while `record` records it.
        """
        for first, stop, is_suspect in self._cut(poll):
            if is_suspect:
                flush()
            self.is_alone = is_suspect and stop == first + 1
            self._write({} if self.is_alone else _spans(poll, first, stop))
            yield first, stop
            if is_suspect:
                flush()
        self.is_alone = False
        if self._history.suspect:
            self._forget_committed()
        self.release()

    def _cut(self, poll: Poll) -> Iterator[tuple[int, int, bool]]:
        """Cut a poll as the suspects in it demand; each part is [first, stop), and whether it is suspect."""
        suspect = self._history.suspect
        spans = {number: suspect[str(tp)] for number, tp in enumerate(poll.tps) if suspect and str(tp) in suspect}
        if not spans:
            yield 0, len(poll), False
            return
        at = zip(poll.tp_of, poll.offsets, strict=True)
        suspects = [tp in spans and spans[tp][0] <= offset < spans[tp][1] for tp, offset in at]
        self.ports.metrics.set("crash_isolation", float(any(suspects)))
        end = 0
        for is_suspect, run in groupby(suspects):
            begin, end = end, end + len(list(run))
            size = end - begin if not is_suspect else FEW if self._history.ends < _ALONE else 1
            for first in range(begin, end, size):
                yield first, min(first + size, end), is_suspect

    def record(self, record: SourceRecord) -> int:
        """Record a record, undecoded if it has ended the process; returns its weight."""
        if not self.is_alone:
            return self.recorder.record(record)
        tp, offset = str(record.tp), record.offset
        if self._history.is_fatal(tp, offset):
            tell(self._log.error, RecordPutAway(*record.tp, offset=offset))
            record = record._replace(unreadable=FATAL)
        self._write({tp: (offset, offset + 1)})
        try:
            weight = self.recorder.record(record)
        except RegistryError:  # it waits for its schema
            self.release()
            raise
        self.release()  # if the process ends from now on, this record has not ended it
        return weight

    def release(self) -> None:
        """Note that nothing is in hand."""
        self._write({})

    def _forget_committed(self) -> None:
        """Forget records that are committed, and TopicPartitions that have moved away: another journal counts there."""
        committed = {str(tp): ledger.first_offset for tp, ledger in self.recorder.ledgers.items()}
        self._seen |= committed.keys()
        suspect = {
            name: span
            for name, span in self._history.suspect.items()
            if (committed[name] < span[1] if name in committed else name not in self._seen)
        }
        self._history = CrashHistory(suspect=suspect, ends=self._history.ends if suspect else 0)
        if not suspect:
            self.ports.metrics.set("crash_isolation", 0.0)

    def _write(self, in_hand: Offsets) -> None:
        now = msgspec.structs.replace(self._history, in_hand=in_hand)
        try:
            self.ports.journal.write(b"" if now == CrashHistory() else msgspec.json.encode(now))
        except SpoolError as error:  # a full disk does not stop the worker: the spool reports it
            self._log.warning("journal_refused", message=str(error))


def _overlap(one: tuple[int, int], other: tuple[int, int] | None) -> bool:
    return other is not None and one[0] < other[1] and other[0] < one[1]


def _spans(poll: Poll, first: int, stop: int) -> Offsets:
    spans: dict[int, tuple[int, int]] = {}
    at = first
    for tp, run in groupby(poll.tp_of[first:stop]):  # of one TopicPartition there are many in a row
        begin, at = at, at + len(list(run))
        low = spans[tp][0] if tp in spans else poll.offsets[begin]
        spans[tp] = low, poll.offsets[at - 1] + 1
    return {str(poll.tps[tp]): span for tp, span in spans.items()}
