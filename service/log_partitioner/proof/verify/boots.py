"""One boot, line by line in the order of `seq`: it owns, flushes and commits. Pure.

A boot keeps its tenures and their runs of commits, not the commits. Behind missing lines the boot is `blind`: it may
have owned and flushed anything before, and no line breaks a rule because of that.
"""

from __future__ import annotations

from collections.abc import Mapping

from log_partitioner.formats import log_events as events
from log_partitioner.formats.log_events import LogEvent, Start
from log_partitioner.proof.verify.values import (
    COMMITTED,
    BootName,
    Flush,
    Landing,
    LinePlace,
    LogRule,
    Spans,
    Tenure,
    ToldLine,
    Violation,
    text_of,
)

_TOLD_AT_ALL = frozenset({"debug", "info"})
_QUIET = (
    events.PartitionsAssigned | events.PartitionsRevoked | events.PartitionsLost | events.Positioned
    | events.FlushStarted | events.WorkerStopped | events.WorkerLeft
)  # fmt: skip
"""Events that come in no flush; a worker may fail in one."""


class Boot:
    """One process, by its own lines; `violations` are those that need no other boot."""

    def __init__(self, name: BootName) -> None:
        self.name = name
        self.group: str | None = None
        self.is_told = False
        self.tenures: list[Tenure] = []
        self.landings: list[Landing] = []
        self.unsettled: list[Flush] = []
        self.violations: list[Violation] = []
        self._here = LinePlace(name, 0, 0)
        self._is_blind = self._is_flush_blind = False
        self._ended = ""
        self._generation = 0
        self._owned: dict[str, Tenure] = {}
        self._gone: dict[str, str] = {}
        self._position: dict[str, int] = {}
        self._committed: dict[str, int] = {}
        self._flush: Flush | None = None
        self._discarded: set[str] = set()
        self._read: dict[str, set[int]] = {}
        self._holes: dict[str, set[tuple[int, int]]] = {}  # that were jumped; each is logged before its flush
        self._untold: set[str] = set()  # TopicPartitions of which a line names only the first of many holes

    def hear(self, line: ToldLine) -> None:
        """Take the next line."""
        self._here = LinePlace(self.name, line.head.seq, line.at_ms)
        self.is_told = self.is_told or line.head.level in _TOLD_AT_ALL
        if line.event is None:
            return
        self._require_life(line.event)
        self._require_no_flush(line.event)
        match line.event:
            case events.FlushStarted() as event:
                self._flush_started(event)
            case events.ObjectsUploaded(batch_id=batch_id, objects=objects):
                if flush := self._require_flush(batch_id, "objects_uploaded"):
                    flush.uploaded += objects
            case events.BatchCommitted() as event:
                self._flush_committed(event)
            case events.BatchDiscarded() as event:
                self._batch_discarded(event)
            case events.PartitionsAssigned() as event:
                self._assigned(event)
            case events.PartitionsRevoked(topic_partitions=tps, generation=generation):
                self._released(tps, generation, "revoked")
            case events.PartitionsLost(topic_partitions=tps, generation=generation):
                self._released(tps, generation, "lost")
            case events.Positioned(starts=starts):
                self._positioned(starts)
            case events.OffsetGaps() as event:
                self._jumped(event)
            case event:
                self._hear_of_process(event)

    def miss(self) -> None:
        """Go on behind lines that are missing."""
        self.end("lines are missing")
        self._gone.clear()
        self._position.clear()
        self._is_blind = self._is_flush_blind = True

    def end(self, how: str = "log ends") -> None:
        """Note that no line follows: the process was killed, or has ended in order."""
        self._leave_open()
        for tp in list(self._owned):
            self._end_tenure(tp, how)

    # The process.

    def _require_life(self, event: LogEvent) -> None:
        """Rule 4: after its end a process only releases TopicPartitions."""
        if not self._ended:
            return
        is_leaving = isinstance(event, events.PartitionsRevoked | events.PartitionsLost | events.WorkerLeft) or (
            isinstance(event, events.BatchDiscarded) and event.reason is None
        )
        if self._ended != "worker_failed" or not is_leaving:
            self._flaw(LogRule.TRANSITION, f"{_tag(event)} after {self._ended}")

    def _hear_of_process(self, event: LogEvent) -> None:
        match event:
            case events.WorkerStarted(group=group):
                if self.group is not None:
                    self._flaw(LogRule.TRANSITION, "a process starts twice")
                self.group = group
            case events.OffsetsSkipped(group=group, topic=topic, partition=partition, offset=first, end_offset=end):
                self.group = group
                self._cover(f"{topic}-{partition}", first, end)
            case events.CommitRepeated(batch_id=batch_id):
                self._require_flush(batch_id, "commit_repeated")
            case _:
                self._ended = _tag(event)

    # Ownership.

    def _assigned(self, event: events.PartitionsAssigned) -> None:
        self._turn(event.generation, is_new=True)
        for tp in event.topic_partitions:
            if tp in self._owned:
                self._flaw(LogRule.TRANSITION, f"{tp} is assigned, and is owned already", tp)
                self._end_tenure(tp, "assigned again")
            self._begin_tenure(tp, event.member_generation)

    def _begin_tenure(self, tp: str, generation: int) -> Tenure:
        tenure = self._owned[tp] = Tenure(tp, self._here, generation)
        self.tenures.append(tenure)
        self._gone.pop(tp, None)
        self._position.pop(tp, None)
        return tenure

    def _end_tenure(self, tp: str, how: str) -> None:
        tenure = self._owned.pop(tp)
        tenure.ended, tenure.ended_ms = how, self._here.at_ms
        self._position.pop(tp, None)

    def _is_known(self, tp: str) -> bool:
        """Whether the lines show that a TopicPartition is not owned, if it is not in `_owned`."""
        return not self._is_blind or tp in self._gone

    def _released(self, tps: list[str], generation: int, how: str) -> None:
        self._turn(generation, is_new=False)
        for tp in tps:
            if tp in self._owned:
                self._end_tenure(tp, how)
            elif how == "revoked" and self._is_known(tp):  # the client library loses what is not owned, too
                self._flaw(LogRule.TRANSITION, f"{tp} is revoked, and is not owned", tp)
            self._gone[tp] = how

    def _turn(self, generation: int, *, is_new: bool) -> None:
        """Rule 4: generations ascend; the skipped ones changed nothing that is logged."""
        if generation < self._generation + is_new:
            self._flaw(LogRule.TRANSITION, f"generation {generation} after {self._generation}")
        self._generation = max(self._generation, generation)

    def _positioned(self, starts: Mapping[str, Start]) -> None:
        """Go on at the offsets of the line: rule 1 if they are committed; the policy may start anywhere in the log."""
        for tp, (offset, source, _) in starts.items():
            tenure = self._owned.get(tp)
            if tenure is None and self._is_known(tp):
                self._flaw(LogRule.TRANSITION, f"{tp} is positioned, and is not owned", tp)
            if source != COMMITTED or offset > self._committed.get(tp, -1):
                self.landings.append(Landing(tp, offset, source, self._here))
            if source == COMMITTED:
                self._resume(tp, offset)
            if tenure is not None and tenure.start is None and not tenure.runs:
                tenure.start, tenure.source = offset, source
            self._position[tp] = offset

    def _resume(self, tp: str, offset: int) -> None:
        """Go on at a committed offset. Rule 1, as far as this boot knows."""
        for flush in self.unsettled:
            if tp in flush.spans and offset < flush.spans[tp][1]:
                flush.refuted.add(tp)
        known = self._committed.get(tp, -1)
        if offset < known:
            text = f"{tp} is resumed at {offset}, and this process knows of a commit up to {known}"
            self._flaw(LogRule.RESUME, text, tp, (offset, known))
        self._committed[tp] = max(offset, known)

    def _jumped(self, event: events.OffsetGaps) -> None:
        """Rule 1: the worker skips no record that is known to exist, because a discarded batch had it."""
        tp = f"{event.topic}-{event.partition}"
        self._holes.setdefault(tp, set()).update((begin, end) for begin, end in event.first)
        if event.gaps != len(event.first):
            self._untold.add(tp)
        for begin, end in event.first:
            known = [offset for offset in self._read.get(tp, ()) if begin <= offset < end]
            if known:
                text = f"{tp} [{begin}, {end}) is jumped, and this process has read {max(known)} before"
                self._flaw(LogRule.RESUME, text, tp, (begin, end))

    # Batches.

    def _flush_started(self, event: events.FlushStarted) -> None:
        self._is_flush_blind = False
        if event.generation < self._generation:
            text = f"a batch of generation {event.generation} is flushed in generation {self._generation}"
            self._flaw(LogRule.OWNED, text)
        self._require_owned(event.offsets, "a flush covers")
        for tp, (first, _) in event.offsets.items():
            self._require_position(tp, first, "a flush")
            if tp in self._owned and tp not in self._position:
                text = f"a flush covers {tp}, which was not positioned since it was assigned, or a batch was discarded"
                self._flaw(LogRule.TRANSITION, text, tp)
        generations = {tp: self._owned[tp].generation for tp in event.offsets if tp in self._owned}
        self._flush = Flush(event.batch_id, event.generation, event.offsets, self._here, generations)

    def _flush_committed(self, event: events.BatchCommitted) -> None:
        flush = None
        if event.batch_id in self._discarded:
            self._flaw(LogRule.AFTER_END, f"batch {event.batch_id} is committed, and was discarded before")
        else:
            flush = self._require_flush(event.batch_id, "flush_committed")
        spans = {tp: (covered["first_offset"], covered["next_offset"]) for tp, covered in event.offsets.items()}
        flushed = {} if flush is None else flush.spans
        self._require_owned({tp: span for tp, span in spans.items() if tp not in flushed}, "a commit covers")
        self._require_member(event)
        if flush is not None:
            self._compare(event, flush, spans)
            self._flush = None
        for tp, (first, end) in spans.items():
            if flush is None:
                self._require_position(tp, first, "a commit")
            self._cover(tp, first, end)
        if flush is not None and not self._is_blind:
            self._require_records(event)
        for tp, covered in event.offsets.items():
            last, end = covered["max_offset"], covered["next_offset"]
            if last is None or last + 1 != end:
                text = f"a commit of {tp} ends at {end}, and the last record that it covers is {last}"
                self._flaw(LogRule.CONTIGUOUS, text, tp, (end if last is None else last, end))
            self._holes[tp] = {one for one in self._holes.get(tp, ()) if one[1] > end}
            self._untold.discard(tp)
        self._is_flush_blind = False

    def _compare(self, event: events.BatchCommitted, flush: Flush, spans: Spans) -> None:
        """Rules 2, 3 and 6: a commit has the batch that was flushed, and only uploaded objects."""
        if event.generation != flush.generation:
            text = f"a batch of generation {flush.generation} is committed in generation {event.generation}"
            self._flaw(LogRule.OWNED, text)
        if flush.uploaded < event.objects:
            text = f"batch {event.batch_id} is committed with {event.objects} objects, {flush.uploaded} uploaded"
            self._flaw(LogRule.UPLOADED, text)
        for tp in sorted(spans.keys() | flush.spans.keys()):
            if (was := flush.spans.get(tp)) != (now := spans.get(tp)):
                text = f"of {tp} {text_of(was)} is flushed and {text_of(now)} committed, in batch {event.batch_id}"
                self._flaw(LogRule.CONTIGUOUS, text, tp, now or was)

    def _cover(self, tp: str, first: int, end: int) -> None:
        """Note a commit."""
        is_told = self._position.get(tp, first) != first
        tenure = self._owned.get(tp) or self._begin_tenure(tp, -1)
        tenure.cover(first, end, self._here, is_told=is_told)
        self._position[tp] = end
        self._committed[tp] = max(end, self._committed.get(tp, end))
        if tp in self._read:
            self._read[tp] = {offset for offset in self._read[tp] if offset >= end}

    def _batch_discarded(self, event: events.BatchDiscarded) -> None:
        if event.batch_id in self._discarded:
            self._flaw(LogRule.TRANSITION, f"batch {event.batch_id} is discarded twice")
        self._discarded.add(event.batch_id)
        for tp in self._owned:
            self._position.pop(tp, None)
        if event.reason is None:
            return
        flush = self._require_flush(event.batch_id, "batch_discarded")
        self._flush, self._is_flush_blind = None, False
        if flush is None:
            return
        for tp, (_, end) in flush.spans.items():  # its last record is there
            self._read.setdefault(tp, set()).add(end - 1)
        if event.outcome == "unknown":
            self.unsettled.append(flush)

    def _leave_open(self) -> None:
        """A flush without an outcome may be committed."""
        if self._flush is not None:
            self.unsettled.append(self._flush)
            self._flush = None

    # Rules.

    def _require_owned(self, spans: Spans, what: str) -> None:
        """Rules 2 and 5: a worker flushes and commits only TopicPartitions that it owns."""
        for tp in spans:
            if tp in self._owned:
                continue
            if tp in self._gone:
                self._flaw(LogRule.AFTER_END, f"{what} {tp}, which was {self._gone[tp]} before", tp)
            elif not self._is_blind:
                self._flaw(LogRule.OWNED, f"{what} {tp}, which was never assigned to this process", tp)

    def _require_position(self, tp: str, first: int, what: str) -> None:
        """Rule 3, as far as this boot knows: the next offset follows the last one."""
        at = self._position.get(tp, first)
        if at != first:
            text = f"{what} of {tp} begins at {first}, and this process was at {at}"
            self._flaw(LogRule.CONTIGUOUS, text, tp, (min(first, at), max(first, at)))

    def _require_records(self, event: events.BatchCommitted) -> None:
        """Rule 3: the records of a commit are its offsets without the holes that were told."""
        counted = 0
        for tp, covered in event.offsets.items():
            first, end, said = covered["first_offset"], covered["next_offset"], covered["min_offset"]
            lowest = reached = first
            for begin, after in sorted(self._holes.get(tp, ())):
                start, stop = max(begin, reached), min(after, end)
                if start < stop:
                    counted -= stop - start
                    lowest = stop if start == lowest else lowest
                    reached = stop
            counted += end - first
            if said is not None and said != lowest and tp not in self._untold:
                text = f"the first record of a commit of {tp} is said to be {said}, by its holes it is {lowest}"
                self._flaw(LogRule.CONTIGUOUS, text, tp, (min(said, lowest), max(said, lowest)))
        if counted != event.records and self._untold.isdisjoint(event.offsets):
            text = f"batch {event.batch_id} is committed with {event.records} records, its offsets are {counted}"
            self._flaw(LogRule.CONTIGUOUS, text)

    def _require_member(self, event: events.BatchCommitted) -> None:
        """Rule 9: without generation or member id a broker takes a commit from anybody."""
        if not event.member or event.member_generation < 0 or event.generation < 0:
            text = f"batch {event.batch_id} is committed in generation {event.generation} as member {event.member!r}"
            self._flaw(LogRule.MEMBER, f"{text} of the group's generation {event.member_generation}")

    def _require_flush(self, batch_id: str, what: str) -> Flush | None:
        """Rule 4: such a line belongs to the flush under way, which is returned."""
        if self._flush is not None and self._flush.batch_id == batch_id:
            return self._flush
        if self._flush is not None or not self._is_flush_blind:
            self._flaw(LogRule.TRANSITION, f"{what} of batch {batch_id}, which is not being flushed")
        return None

    def _require_no_flush(self, event: LogEvent) -> None:
        """Rule 4: one thread flushes and does everything else."""
        is_quiet = isinstance(event, _QUIET) or (isinstance(event, events.BatchDiscarded) and event.reason is None)
        if self._flush is not None and is_quiet:
            text = f"{_tag(event)} before the flush of batch {self._flush.batch_id} has an outcome"
            self._flaw(LogRule.TRANSITION, text)
            self._leave_open()

    def _flaw(self, rule: LogRule, text: str, tp: str | None = None, offsets: tuple[int, int] | None = None) -> None:
        self.violations.append(Violation(rule, text, self._here, tp, offsets))


def _tag(event: LogEvent) -> str:
    return str(event.__struct_config__.tag)
