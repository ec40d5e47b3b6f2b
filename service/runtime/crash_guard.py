"""Keeps on the disk which records are in hand, and finds the one that ends the process (see `control.crash_rules`)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import msgspec
import structlog

from service.boundary import Poll
from service.control import crash_rules
from service.control.crash_rules import CrashHistory, Offsets, PollPace
from service.errors import SpoolError
from service.formats.log_events import EndedWithRecordsInHand, RecordPutAway, tell
from service.formats.model import FATAL, SourceRecord
from service.runtime.ports import Journal, Metrics
from service.runtime.recorder import Recorder


class CrashGuard:
    """Used by the loop thread only; `ends_max` of 0 turns it off."""

    def __init__(self, journal: Journal, *, ends_max: int, recorder: Recorder, metrics: Metrics) -> None:
        self._journal = journal
        self._ends_max = ends_max
        self._recorder = recorder
        self._metrics = metrics
        self._history = CrashHistory()
        self._pace = PollPace(0, is_synced=False)
        self._in_hand: Offsets = {}
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
        self._set_pace(len(poll))
        for first in range(0, len(poll), self._pace.records_max):
            stop = min(first + self._pace.records_max, len(poll))
            self._in_hand = _spans(poll, first, stop)
            self._write(self._in_hand)
            yield first, stop
        self._release()

    @property
    def has_fatal(self) -> bool:
        """Whether there are records that are not to be decoded: then each is to be `judged`."""
        return bool(self._history.fatal)

    def _set_pace(self, records: int) -> None:
        self._pace = PollPace(records, is_synced=False)
        if self._history.ends:
            next_offsets = {tp: progress.next_offset for tp, progress in self._recorder.positions.items()}
            self._pace = crash_rules.pace_after(
                self._history, next_offsets, ends_max=self._ends_max, records_max=records
            )
            self._metrics.set("cautious", float(self._history.ends >= self._ends_max))

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
        """Forget suspects that we are past, and what was put away and is committed."""
        positions = {str(tp): progress for tp, progress in self._recorder.positions.items()}
        suspect = self._history.suspect
        if suspect and all(name in positions and positions[name].next_offset >= suspect[name][1] for name in suspect):
            self._history = CrashHistory(fatal=self._history.fatal)
            self._metrics.set("cautious", 0.0)
        if self._history.fatal:
            kept = (
                one
                for one in self._history.fatal
                if one[0] not in positions or positions[one[0]].first_offset <= one[1]
            )
            self._history = msgspec.structs.replace(self._history, fatal=tuple(kept))

    def judged(self, record: SourceRecord) -> SourceRecord:
        """Return the record, marked as not to be decoded if it has ended the process `ends_max` times."""
        if not self._history.fatal or (str(record.tp), record.offset) not in self._history.fatal:
            return record
        tell(self._log.error, RecordPutAway(*record.tp, offset=record.offset, times=self._ends_max))
        return record._replace(unreadable=FATAL)

    def _write(self, in_hand: Offsets) -> None:
        now = msgspec.structs.replace(self._history, in_hand=in_hand)
        line = b"" if now == CrashHistory() else crash_rules.encode(now)
        try:
            self._journal.write(line, is_synced=self._pace.is_synced)
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
