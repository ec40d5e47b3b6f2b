"""Journals on disk which records are in hand, and finds the one that ends the process (see `control.crash_rules`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

import msgspec
import structlog

from log_partitioner.boundary import Poll
from log_partitioner.control import crash_rules
from log_partitioner.control.crash_rules import CrashHistory, Offsets, PollPart
from log_partitioner.errors import SpoolError
from log_partitioner.formats.log_events import EndedWithRecordsInHand, RecordPutAway, tell
from log_partitioner.formats.model import FATAL, SourceRecord
from log_partitioner.runtime.ports import Journal, Metrics
from log_partitioner.runtime.recorder import Recorder


class CrashGuard:
    """Used by the loop thread only. While it `is_alone`, records are taken one by one only."""

    def __init__(self, journal: Journal, *, recorder: Recorder, metrics: Metrics) -> None:
        self.is_alone = False
        self._journal = journal
        self._recorder = recorder
        self._metrics = metrics
        self._history = CrashHistory()
        self._seen: set[str] = set()
        self._log = structlog.get_logger("crash_guard")

    def begin(self) -> None:
        """Read the journal of the process before; once, before the first record.

        Raises:
            SpoolError: the disk refuses.
        """
        self._history = crash_rules.after_end(crash_rules.decode(self._journal.read()))
        if self._history.ends:
            records = {name: list(span) for name, span in self._history.suspect.items()}
            tell(self._log.warning, EndedWithRecordsInHand(self._history.ends, records))
        self.release()

    def parts(self, poll: Poll, flush: Callable[[], None]) -> Iterator[tuple[int, int]]:
        """Yield [first, stop) of a poll in order, as many records at once as is safe; `flush` empties the open batch.

        They are in hand until the batch is flushed, unless it is one alone: it is while `record` records it.
        """
        for part in self._cut(poll):
            if part.is_careful:
                flush()
            self.is_alone = part.is_careful and part.stop == part.first + 1
            self._hold({} if self.is_alone else _spans(poll, part.first, part.stop))
            yield part.first, part.stop
            if part.is_careful:
                flush()
        self.is_alone = False
        if self._history.suspect:
            self._look_back()
        self.release()

    def _cut(self, poll: Poll) -> Iterable[PollPart]:
        """Cut a poll as the suspects in it demand."""
        suspect = self._history.suspect
        spans = {number: suspect[str(tp)] for number, tp in enumerate(poll.tps) if suspect and str(tp) in suspect}
        if not spans:
            return [PollPart(0, len(poll), is_careful=False)]
        at = zip(poll.tp_of, poll.offsets, strict=True)
        suspects = [tp in spans and spans[tp][0] <= offset < spans[tp][1] for tp, offset in at]
        self._metrics.set("cautious", float(any(suspects)))
        return crash_rules.cut(suspects, self._history.ends)

    def record(self, record: SourceRecord) -> int:
        """Record a record, undecoded if it has ended the process; returns its weight."""
        if not self.is_alone:
            return self._recorder.record(record)
        tp, offset = str(record.tp), record.offset
        if self._history.is_fatal(tp, offset):
            tell(self._log.error, RecordPutAway(*record.tp, offset=offset))
            record = record._replace(unreadable=FATAL)
        self._hold({tp: (offset, offset + 1)})
        weight = self._recorder.record(record)
        self.release()  # what ends the process from now on is not this record
        return weight

    def release(self) -> None:
        """Note that nothing is in hand."""
        self._hold({})

    def _look_back(self) -> None:
        """Forget records that are committed, and TopicPartitions that have moved away: another journal counts there."""
        committed = {str(tp): progress.first_offset for tp, progress in self._recorder.positions.items()}
        self._seen |= committed.keys()
        suspect = {
            name: span
            for name, span in self._history.suspect.items()
            if (committed[name] < span[1] if name in committed else name not in self._seen)
        }
        self._history = CrashHistory(suspect=suspect, ends=self._history.ends if suspect else 0)
        if not suspect:
            self._metrics.set("cautious", 0.0)

    def _hold(self, in_hand: Offsets) -> None:
        now = msgspec.structs.replace(self._history, in_hand=in_hand)
        try:
            self._journal.write(b"" if now == CrashHistory() else crash_rules.encode(now))
        except SpoolError as error:  # a full disk stops nobody: the spool says so
            self._log.warning("journal_refused", message=str(error))


def _spans(poll: Poll, first: int, stop: int) -> Offsets:
    spans: dict[int, tuple[int, int]] = {}
    at = first
    for tp, run in groupby(poll.tp_of[first:stop]):  # of one TopicPartition there are many in a row
        begin, at = at, at + len(list(run))
        low = spans[tp][0] if tp in spans else poll.offsets[begin]
        spans[tp] = low, poll.offsets[at - 1] + 1
    return {str(poll.tps[tp]): span for tp, span in spans.items()}
