"""Keeps on the disk which records are in hand, and finds the one that ends the process (see `control.crash_rules`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby

import msgspec
import structlog

from service.boundary import Poll
from service.control import crash_rules
from service.control.crash_rules import CrashHistory, Offsets, PollPart
from service.errors import SpoolError
from service.formats.log_events import EndedWithRecordsInHand, RecordPutAway, tell
from service.formats.model import FATAL, SourceRecord
from service.runtime.ports import Journal, Metrics
from service.runtime.recorder import Recorder


class CrashGuard:
    """Used by the loop thread only; `ends_max` of 0 turns it off."""

    def __init__(
        self, journal: Journal, *, ends_max: int, recorder: Recorder, metrics: Metrics, flush: Callable[[], None]
    ) -> None:
        """Make it; `flush` empties the open batch, or discards it."""
        self._journal = journal
        self._ends_max = ends_max
        self._recorder = recorder
        self._metrics = metrics
        self._flush = flush
        self._history = CrashHistory()
        self._in_hand: Offsets = {}
        self._is_alone = self._is_synced = False
        self._seen: set[str] = set()
        self._log = structlog.get_logger("crash_guard")

    def begin(self) -> None:
        """Read what the process before has left; once, before the first record.

        Raises:
            SpoolError: the disk refuses.
        """
        if not self._ends_max:
            return
        self._history = crash_rules.after_end(crash_rules.decode(self._journal.read()), ends_max=self._ends_max)
        if self._history.ends:
            records = {name: list(span) for name, span in self._history.suspect.items()}
            tell(self._log.warning, EndedWithRecordsInHand(self._history.ends, self._history.alone, records))
        self._write(Offsets())

    def parts(self, poll: Poll) -> Iterator[tuple[int, int]]:
        """Yield [first, stop) of a poll in order, as many records at once as is safe.

        What is in hand is written down before it is yielded.
        """
        if not self._ends_max:
            yield 0, len(poll)
            return
        for part in self._cut(poll):
            if part.is_careful and self._recorder.has_progress:
                self._in_hand = Offsets()
                self._write(self._in_hand)
                self._flush()
            self._is_synced = part.is_careful and part.stop - part.first == 1
            self._is_alone = part.stop - part.first == 1 and not self._recorder.has_progress
            self._in_hand = _spans(poll, part.first, part.stop)
            self._write(self._in_hand)
            yield part.first, part.stop
        self._release()

    def _cut(self, poll: Poll) -> Iterator[PollPart]:
        """Cut a poll as the suspects that are ours demand."""
        suspect, owned = self._history.suspect, self._recorder.positions
        ours = {number: suspect.get(str(tp), (0, 0)) for number, tp in enumerate(poll.tps) if suspect and tp in owned}
        at = zip(poll.tp_of, poll.offsets, strict=True)
        suspects = [tp in ours and ours[tp][0] <= offset < ours[tp][1] for tp, offset in at] if ours else []
        if self._history.ends:
            self._metrics.set("cautious", float(self._history.ends >= self._ends_max and any(suspects)))
        return crash_rules.cut(suspects or [False] * len(poll), self._history.ends, ends_max=self._ends_max)

    @property
    def has_fatal(self) -> bool:
        """Whether a record in hand is not to be decoded: then each is to be `judged`."""
        spans = self._in_hand
        return any(name in spans and spans[name][0] <= at < spans[name][1] for name, at in self._history.fatal)

    def pause(self) -> None:
        """Nothing is in hand while a flush runs: what ends that is not one of these records."""
        if self._in_hand:
            self._write(Offsets())

    def resume(self) -> None:
        """Go on with what was in hand before `pause`."""
        if self._in_hand:
            self._write(self._in_hand)

    def _release(self) -> None:
        """Nothing is in hand any more; past the suspects it begins anew."""
        self._in_hand = Offsets()
        if self._history.suspect or self._history.fatal:
            self._look_back()
        self._write(Offsets())

    def _look_back(self) -> None:
        """Forget suspects that we are past, what was put away and is committed, and all that has moved away."""
        positions = {str(tp): progress for tp, progress in self._recorder.positions.items()}
        self._seen |= positions.keys()
        gone, history = self._seen - positions.keys(), self._history
        suspect = {
            name: span
            for name, span in history.suspect.items()
            if name not in gone and (name not in positions or positions[name].next_offset < span[1])
        }
        fatal = tuple(
            (name, offset)
            for name, offset in history.fatal
            if name not in gone and (name not in positions or positions[name].first_offset <= offset)
        )
        if history.suspect and not suspect:
            self._history = CrashHistory(fatal=fatal)
            self._metrics.set("cautious", 0.0)
        else:
            self._history = msgspec.structs.replace(history, fatal=fatal)

    def judged(self, record: SourceRecord) -> SourceRecord:
        """Return the record, marked as not to be decoded if it has ended the process `ends_max` times."""
        if not self._history.fatal or (str(record.tp), record.offset) not in self._history.fatal:
            return record
        tell(self._log.error, RecordPutAway(*record.tp, offset=record.offset, times=self._ends_max))
        return record._replace(unreadable=FATAL)

    def _write(self, in_hand: Offsets) -> None:
        now = msgspec.structs.replace(self._history, in_hand=in_hand, is_alone=bool(in_hand) and self._is_alone)
        line = b"" if now == CrashHistory() else crash_rules.encode(now)
        try:
            self._journal.write(line, is_synced=self._is_synced)
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
