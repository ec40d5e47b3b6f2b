"""Replays of one flush: which of its records it had to discard, and whether each has a twin that was delivered.

The decision is made again from what its flush record says was recorded before; a twin is an earlier record of the same
way and place, with the same values. Memory holds a flush's discarded records by their digests.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from log_partitioner.formats.findings import Kind
from log_partitioner.proof.accounting import judge_ways, tp_of
from log_partitioner.proof.oracle.chain import WaysPassed
from log_partitioner.proof.oracle.judge import JudgedRecord, value_digest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from log_partitioner.formats.flush_record import FlushRecord
    from log_partitioner.formats.model import SourceRecord, TopicPartition, WayPlace
    from log_partitioner.proof.audit.context import Context

FIRST_LOOK = 1_000  # offsets before the last replay, then twice as many, and so on
LOOK_BACK_MAX = 1_000_000
DISCARDED = JudgedRecord([], is_whole=False)


class _Replay(NamedTuple):
    offset: int
    value: bytes


class Replays:
    """The replays of one flush: none without a flush record, or if its worker discards none."""

    def __init__(self, context: Context, records: Iterable[FlushRecord]) -> None:
        self._context = context
        lines = [line for record in records for line in record.topic_partitions]
        self._lines = {tp_of(line): line for line in lines if line.first_ways is not None}
        self._passed = {tp: WaysPassed(line.first_ways or {}) for tp, line in self._lines.items()}
        self._found: dict[TopicPartition, dict[WayPlace, list[_Replay]]] = defaultdict(lambda: defaultdict(list))

    def judge(self, record: SourceRecord) -> JudgedRecord:
        """Return where each entry of a record must be: one that is to be discarded has none."""
        line = self._lines.get(record.tp)
        if line is not None and line.first_offset <= record.offset < line.next_offset:
            place = self._context.judge.place_of(record)
            if place is not None and self._passed[record.tp].is_replay(place):
                self._found[record.tp][place].append(_Replay(record.offset, value_digest(record.value)))
                return DISCARDED
        return self._context.judge.judge(record)

    def finish(self, where: str) -> None:
        """Compare the flush record with its records, and look for the twins; all of them were judged."""
        for tp, line in self._lines.items():
            found = self._found.get(tp, {})
            if not self._context.is_gone(tp, line.first_offset):
                for wrong in judge_ways(line, self._passed[tp].ways, sum(map(len, found.values()))):
                    self._context.findings.tell(wrong, where)
            if found:
                self._look_for_twins(tp, dict(found))

    def _look_for_twins(self, tp: TopicPartition, wanted: dict[WayPlace, list[_Replay]]) -> None:
        """Read back from the last replay until each has its twin, or there are no earlier records."""
        own = {replay.offset for some in wanted.values() for replay in some}
        first, end, size = self._context.ground.firsts.get(tp, 0), max(own), FIRST_LOOK
        least = max(first, end - LOOK_BACK_MAX)
        while wanted and end > least:
            begin = max(least, end - size)
            others: list[tuple[int, list[bytes | None] | None, _Replay]] = []
            for record in self._context.read_source({tp: (begin, end)}):
                place = self._context.judge.place_of(record)
                if place in wanted and record.offset not in own:
                    replays = [one for one in wanted[place] if one.offset >= record.offset]
                    wanted[place] = [one for one in wanted[place] if one.offset < record.offset]
                    value = value_digest(record.value)
                    others += [(record.offset, self._digests(record), one) for one in replays if one.value != value]
            for offset, digests, replay in others:  # not before: one client reads, one range at a time
                if digests != self._digests(self._context.read_again(tp, replay.offset)):
                    text = f"{tp} offset {replay.offset}: discarded as a replay of offset {offset}, whose values differ"
                    self._context.findings.add(Kind.REPLAY_DIFFERS, text, (tp, replay.offset))
            wanted = {place: some for place, some in wanted.items() if some}
            end, size = begin, size * 2
        for place, some in wanted.items():
            for replay in some:
                text = f"{tp} offset {replay.offset}: discarded as a replay of {place.numbers}, and nothing before is"
                if first:
                    self._context.findings.doubt(f"{text}; the log begins at {first}")
                else:
                    self._context.findings.add(Kind.REPLAY_MISSING, text, (tp, replay.offset))

    def _digests(self, record: SourceRecord | None) -> list[bytes | None] | None:
        if record is None:
            return None
        entries = self._context.judge.judge(record).entries
        return [None if entry.deliverable is None else entry.deliverable.digest for entry in entries]
