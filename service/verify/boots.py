"""One boot, line by line in the order of `seq`: what it owns, flushes and commits. Pure.

Keeps what is owned now, and of what was: tenures and runs of commits, not the commits. Where lines are missing it is
`blind`: what was owned and open before is not known, and nothing is held against a line for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from service.formats import log_events as events
from service.formats.log_events import LogEvent, Start
from service.verify.holes import Holes
from service.verify.rules import BootName, LogRule, Violation
from service.verify.tenures import Landing, Spans, Tenure, Unsettled, text_of

COMMITTED = "committed"
FLAWS_MAX = 1000  # violations of one boot that are kept; all are counted


@dataclass(slots=True)
class _Flush:
    """A flush without an outcome yet."""

    batch_id: str
    generation: int
    spans: Spans
    seq: int
    at_ms: int
    uploaded: int = 0
    flawed: set[str] = field(default_factory=set)


class Boot:
    """What one process says of itself; `violations` are of rules that need no other boot."""

    def __init__(self, name: BootName, *, is_cut: bool) -> None:
        self.name = name
        self.group: str | None = None
        self.tenures: list[Tenure] = []
        self.landings: list[Landing] = []
        self.bases: dict[str, set[int]] = {}
        self.unsettled: list[Unsettled] = []
        self.violations: list[Violation] = []
        self.flaws: Counter[LogRule] = Counter()
        self._is_blind = self._is_flush_blind = is_cut
        self._ended = ""
        self._generation = 0
        self._owned: dict[str, Tenure] = {}
        self._gone: dict[str, str] = {}
        self._position: dict[str, int] = {}
        self._committed: dict[str, int] = {}
        self._flush: _Flush | None = None
        self._discarded: set[str] = set()
        self._read: dict[str, set[int]] = {}
        self._to_place: set[str] = set()
        self._holes = Holes()
        self._seq = self._at_ms = 0

    # Lines.

    def hear(self, seq: int, at_ms: int, event: LogEvent) -> None:
        """Take the next line that the rules are about."""
        self._seq, self._at_ms = seq, at_ms
        self._require_life(event)
        match event:
            case events.PartitionsAssigned():
                self._assigned(event)
            case events.PartitionsRevoked(topic_partitions=tps, generation=generation):
                self._given_back(tps, generation)
            case events.PartitionsLost(topic_partitions=tps, generation=generation):
                self._lost(tps, generation)
            case events.Positioned(starts=starts):
                self._positioned(starts)
            case events.OffsetGaps(topic=topic, partition=partition):
                self._jumped(f"{topic}-{partition}", event)
            case events.OffsetsSkipped(group=group, topic=topic, partition=partition, offset=first, end_offset=end):
                self.group = group
                self._cover(f"{topic}-{partition}", first, end)
            case _:
                self._hear_of_batch(event)

    def _hear_of_batch(self, event: LogEvent) -> None:
        match event:
            case events.FlushStarted():
                self._flush_started(event)
            case events.ObjectsUploaded(batch_id=batch_id, objects=objects):
                if self._require_flush(batch_id, "objects_uploaded") and self._flush is not None:
                    self._flush.uploaded += objects
            case events.BatchCommitted():
                self._flush_committed(event)
            case events.BatchDiscarded():
                self._batch_discarded(event)
            case events.CommitRepeated(batch_id=batch_id):
                self._require_flush(batch_id, "commit_repeated")
            case _:
                self._live(event)

    def miss(self, at_ms: int) -> None:
        """Go on behind lines that are missing."""
        self._leave_open()
        for tp in list(self._owned):
            self._end_tenure(tp, "lines are missing", at_ms)
        self._gone.clear()
        self._to_place.clear()
        self._position.clear()
        self._is_blind = self._is_flush_blind = True

    def end(self, at_ms: int) -> None:
        """No line follows: the process was killed, or has ended in order."""
        self._leave_open()
        for tp in list(self._owned):
            self._end_tenure(tp, "log ends", at_ms)

    # The process.

    def _require_life(self, event: LogEvent) -> None:
        """Rule 4: after its end a process only gives back what it has."""
        if not self._ended:
            return
        is_leaving = isinstance(event, events.PartitionsRevoked | events.PartitionsLost | events.WorkerLeft) or (
            isinstance(event, events.BatchDiscarded) and event.reason is None
        )
        if self._ended != "worker_failed" or not is_leaving:
            self._flaw(LogRule.TRANSITION, f"{_tag(event)} after {self._ended}")

    def _live(self, event: LogEvent) -> None:
        if isinstance(event, events.WorkerStarted):
            if self.group is not None:
                self._flaw(LogRule.TRANSITION, "a process starts twice")
            self.group = event.group
            return
        if not isinstance(event, events.WorkerFailed):  # in whose flush it may have failed
            self._require_no_flush(_tag(event))
        self._ended = _tag(event)

    # What is owned.

    def _assigned(self, event: events.PartitionsAssigned) -> None:
        self._require_no_flush("partitions_assigned")
        self._turn(event.generation, is_new=True)
        for tp in event.topic_partitions:
            if tp in self._owned:
                self._flaw(LogRule.TRANSITION, f"{tp} is assigned, and is owned already", tp)
                self._end_tenure(tp, "assigned again", self._at_ms)
            self._begin_tenure(tp, event.member_generation)
            self._to_place.add(tp)

    def _begin_tenure(self, tp: str, generation: int) -> Tenure:
        tenure = Tenure(tp, self.name, self._seq, self._at_ms, None, "unknown", generation)
        self.tenures.append(tenure)
        self._owned[tp] = tenure
        self._gone.pop(tp, None)
        return tenure

    def _end_tenure(self, tp: str, how: str, at_ms: int) -> None:
        tenure = self._owned.pop(tp)
        tenure.ended, tenure.ended_ms = how, at_ms
        self._position.pop(tp, None)
        self._to_place.discard(tp)

    def _resume(self, tp: str, offset: int) -> bool:
        """Go on at what is committed. Rule 1, as far as this boot knows; gives whether it is not before that."""
        for flush in self.unsettled:
            if tp in flush.spans and offset < flush.spans[tp][1]:
                flush.refuted.add(tp)
        known = self._committed.get(tp)
        if known is not None and offset < known:
            text = f"{tp} is resumed at {offset}, and this process knows of a commit up to {known}"
            self._flaw(LogRule.RESUME, text, tp, (offset, known))
        return known is None or offset >= known

    def _given_back(self, tps: list[str], generation: int) -> None:
        self._require_no_flush("partitions_revoked")
        self._turn(generation, is_new=False)
        for tp in tps:
            if tp in self._owned:
                self._end_tenure(tp, "revoked", self._at_ms)
            elif not self._is_blind or tp in self._gone:
                self._flaw(LogRule.TRANSITION, f"{tp} is revoked, and is not owned", tp)
            self._gone[tp] = "revoked"

    def _lost(self, tps: list[str], generation: int) -> None:
        self._require_no_flush("partitions_lost")
        self._turn(generation, is_new=False)
        for tp in tps:  # also what is not owned: the client library says so
            if tp in self._owned:
                self._end_tenure(tp, "lost", self._at_ms)
            self._gone[tp] = "lost"

    def _turn(self, generation: int, *, is_new: bool) -> None:
        """Rule 4: generations ascend; those in between changed nothing that is told."""
        if generation < self._generation + is_new:
            self._flaw(LogRule.TRANSITION, f"generation {generation} after {self._generation}")
        self._generation = max(self._generation, generation)

    def _positioned(self, starts: Mapping[str, Start]) -> None:
        """Go on where the worker says: rule 1 if that is committed; a policy's offset is one where a log may begin."""
        self._require_no_flush("positioned")
        for tp, (offset, source, _) in starts.items():
            if tp not in self._owned and (not self._is_blind or tp in self._gone):
                self._flaw(LogRule.TRANSITION, f"{tp} is positioned, and is not owned", tp)
            tenure, known = self._owned.get(tp), self._committed.get(tp)
            if source == COMMITTED:
                goes_on = self._resume(tp, offset)
                if goes_on and offset != known and (tenure is None or offset != tenure.start):
                    self.landings.append(Landing(tp, offset, self.name, self._seq, self._at_ms, tenure))
                self._committed[tp] = max(offset, known or 0)
            else:
                self.bases.setdefault(tp, set()).add(offset)
            if tenure is not None and tenure.start is None and tp not in self._position:
                tenure.start, tenure.source = offset, source
            self._position[tp] = offset
            self._to_place.discard(tp)

    def _jumped(self, tp: str, event: events.OffsetGaps) -> None:
        """Rule 1: no record is jumped that is known to be there, since a batch that was discarded had it."""
        self._holes.jump(tp, event.first, are_all=event.gaps == len(event.first))
        for begin, end in event.first:
            known = [offset for offset in self._read.get(tp, ()) if begin <= offset < end]
            if known:
                text = f"{tp} [{begin}, {end}) is jumped, and this process has read {max(known)} before"
                self._flaw(LogRule.RESUME, text, tp, (begin, end))

    # Batches.

    def _flush_started(self, event: events.FlushStarted) -> None:
        self._require_no_flush("flush_started")
        self._flush = _Flush(event.batch_id, event.generation, event.offsets, self._seq, self._at_ms)
        self._is_flush_blind = False
        if event.generation < self._generation:
            text = f"a batch of generation {event.generation} is flushed in generation {self._generation}"
            self._flaw(LogRule.OWNED, text)
        self._require_owned(event.offsets, self._flush.flawed, "a flush covers")
        for tp, (first, _) in event.offsets.items():
            self._require_position(tp, first, "a flush")
            if tp in self._to_place:
                text = f"a flush covers {tp}, which was not positioned since it was assigned, or a batch was discarded"
                self._flaw(LogRule.TRANSITION, text, tp)

    def _flush_committed(self, event: events.BatchCommitted) -> None:
        flush = self._flush if self._flush is not None and self._flush.batch_id == event.batch_id else None
        if event.batch_id in self._discarded:
            self._flaw(LogRule.AFTER_END, f"batch {event.batch_id} is committed, and was discarded before")
        else:
            self._require_flush(event.batch_id, "flush_committed")
        spans = {tp: (covered["first_offset"], covered["next_offset"]) for tp, covered in event.offsets.items()}
        self._require_owned(spans, set() if flush is None else flush.flawed, "a commit covers")
        self._require_member(event)
        if flush is not None:
            self._compare(event, flush, spans)
            self._flush = None
        for tp, (first, end) in spans.items():
            if flush is None:
                self._require_position(tp, first, "a commit")
            self._cover(tp, first, end)
        for wrong in self._holes.judge(event, are_all=flush is not None and not self._is_blind):
            self._flaw(LogRule.CONTIGUOUS, *wrong)
        self._is_flush_blind = False

    def _compare(self, event: events.BatchCommitted, flush: _Flush, spans: Spans) -> None:
        """Rules 2, 3 and 6: a commit is of what was flushed, and of objects that are uploaded."""
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
        tenure = self._owned.get(tp)
        is_told = self._position.get(tp, first) != first
        if tenure is None:
            tenure = self._begin_tenure(tp, -1)
        tenure.cover(first, end, seq=self._seq, at_ms=self._at_ms, is_told=is_told)
        self._position[tp] = end
        self._committed[tp] = max(end, self._committed.get(tp, end))
        if tp in self._read:
            self._read[tp] = {offset for offset in self._read[tp] if offset >= end}

    def _require_position(self, tp: str, first: int, what: str) -> None:
        """Rule 3, as far as this boot knows: it goes on where it was."""
        at = self._position.get(tp, first)
        if at != first:
            text = f"{what} of {tp} begins at {first}, and this process was at {at}"
            self._flaw(LogRule.CONTIGUOUS, text, tp, (min(first, at), max(first, at)))

    def _require_member(self, event: events.BatchCommitted) -> None:
        """Rule 9: without generation or member id a broker takes a commit from anybody."""
        if not event.member or event.member_generation < 0 or event.generation < 0:
            text = f"batch {event.batch_id} is committed in generation {event.generation} as member {event.member!r}"
            self._flaw(LogRule.MEMBER, f"{text} of the group's generation {event.member_generation}")

    def _batch_discarded(self, event: events.BatchDiscarded) -> None:
        if event.batch_id in self._discarded:
            self._flaw(LogRule.TRANSITION, f"batch {event.batch_id} is discarded twice")
        self._discarded.add(event.batch_id)
        self._to_place = set(self._owned)
        if event.reason is None:
            self._require_no_flush("batch_discarded, of a batch that is not flushed")
            return
        self._require_flush(event.batch_id, "batch_discarded")
        flush, self._flush = self._flush, None
        self._is_flush_blind = False
        if flush is None:
            return
        for tp, (_, end) in flush.spans.items():  # its last record is there
            self._read.setdefault(tp, set()).add(end - 1)
        if event.outcome == "unknown":
            self._doubt(flush)

    def _leave_open(self) -> None:
        """A flush without an outcome may be committed."""
        flush, self._flush = self._flush, None
        if flush is not None:
            self._doubt(flush)

    def _doubt(self, flush: _Flush) -> None:
        generations = {tp: self._owned[tp].generation for tp in flush.spans if tp in self._owned}
        self.unsettled.append(Unsettled(flush.batch_id, self.name, flush.seq, flush.at_ms, flush.spans, generations))

    # Rules.

    def _require_owned(self, tps: Spans, flawed: set[str], what: str) -> None:
        """Rules 2 and 5: what is flushed and committed is owned; each TopicPartition of a batch is told once."""
        for tp in tps:
            if tp in self._owned or tp in flawed:
                continue
            if tp in self._gone:
                self._flaw(LogRule.AFTER_END, f"{what} {tp}, which was {self._gone[tp]} before", tp)
            elif not self._is_blind:
                self._flaw(LogRule.OWNED, f"{what} {tp}, which was never assigned to this process", tp)
            flawed.add(tp)

    def _require_flush(self, batch_id: str, what: str) -> bool:
        """Rule 4: such a line is of the flush under way."""
        if self._flush is not None and self._flush.batch_id == batch_id:
            return True
        if self._flush is not None or not self._is_flush_blind:
            self._flaw(LogRule.TRANSITION, f"{what} of batch {batch_id}, which is not being flushed")
        return False

    def _require_no_flush(self, what: str) -> None:
        """Rule 4: one thread flushes and does everything else."""
        if self._flush is not None:
            self._flaw(LogRule.TRANSITION, f"{what} before the flush of batch {self._flush.batch_id} has an outcome")
            self._leave_open()

    def _flaw(self, rule: LogRule, text: str, tp: str | None = None, offsets: tuple[int, int] | None = None) -> None:
        self.flaws[rule] += 1
        if len(self.violations) < FLAWS_MAX:
            self.violations.append(Violation(rule, text, self.name, self._seq, self._at_ms, tp, offsets))


def _tag(event: LogEvent) -> str:
    return str(event.__struct_config__.tag)
