"""Flush records of a history laid side by side: do their ranges join, and which batch answers for which offsets?

A full audit judges no offsets beyond the committed ones, and says how many there are. Nothing else is compared across
flushes; memory holds a line of numbers for each flush and TopicPartition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from log_partitioner.formats.findings import Kind
from log_partitioner.formats.flush_record import FlushedTopicPartition, FlushRecord
from log_partitioner.formats.model import OffsetRanges, TopicPartition
from log_partitioner.proof.accounting import judge_joins, judge_uncommitted, judge_ways_join, tp_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from log_partitioner.proof.audit.report import Findings

Committed = dict[TopicPartition, int | None]  # the group's offsets; None where it has none
GAP_OFFSETS_MAX = 100_000
SHOWN = 20  # topics, and TopicPartitions with offsets that nobody has committed


class OffsetSpan(NamedTuple):
    """Offsets [first, next) of one TopicPartition."""

    tp: TopicPartition
    first: int
    next: int

    def holds(self, other: OffsetSpan) -> bool:
        """Return whether all of another span is in this one."""
        return self.tp == other.tp and self.first <= other.first and other.next <= self.next


def spans_of(ranges: OffsetRanges) -> Iterator[OffsetSpan]:
    """Yield ranges as spans."""
    return (OffsetSpan(tp, *span) for tp, span in ranges.items())


def widen(ranges: OffsetRanges, span: OffsetSpan) -> None:
    """Let a range of its TopicPartition hold a span."""
    first, after = ranges.get(span.tp, span[1:])
    ranges[span.tp] = min(first, span.first), max(after, span.next)


def hull(spans: Iterable[OffsetSpan], within: OffsetRanges | None = None) -> OffsetRanges:
    """Return the smallest range of each TopicPartition that holds its spans, as far as they are `within` others."""
    ranges: OffsetRanges = {}
    for span in spans:
        widen(ranges, span)
    if within is None:
        return ranges
    return {tp: (max(ranges[tp][0], low), min(ranges[tp][1], end)) for tp, (low, end) in within.items() if tp in ranges}


def is_covered(span: OffsetSpan, others: Iterable[OffsetSpan]) -> bool:
    """Return whether other spans together have all offsets of a span."""
    reached = span.first
    for other in sorted(one for one in others if one.tp == span.tp):
        if other.first > reached:
            break
        reached = max(reached, other.next)
    return reached >= span.next


class Ranges:
    """The ranges of flush records up to the committed offsets."""

    def __init__(self, flushes: Iterable[FlushRecord], committed: Committed) -> None:
        self.begins: dict[TopicPartition, int] = {}
        """The offset from which on somebody answers for the offsets, or nobody does and should."""
        self._committed = committed
        self._named: set[TopicPartition] = set()
        self._lines: dict[TopicPartition, list[tuple[FlushedTopicPartition, str]]] = {}
        self._topic_ids: dict[str, set[str]] = {}
        for flush in flushes:
            for topic, topic_id in flush.topic_ids.items():
                self._topic_ids.setdefault(topic, set()).add(topic_id)
            for line in flush.topic_partitions:
                self._named.add(tp_of(line))
                if line.first_offset != line.next_offset:
                    self._lines.setdefault(tp_of(line), []).append((line, flush.batch_id))
        for lines in self._lines.values():
            lines.sort(key=lambda one: (one[0].first_offset, one[0].next_offset))

    def first(self, tp: TopicPartition) -> int | None:
        """Return the first offset that is covered."""
        return self._lines[tp][0][0].first_offset if tp in self._lines else None

    def reaching_back(self, ranges: OffsetRanges) -> OffsetRanges:
        """Return ranges with the offsets in front of them that no flush record covers, if one covers earlier ones."""
        reaching = {}
        for tp, (first, end) in ranges.items():
            before = [line.next_offset for line, _ in self._lines.get(tp, ()) if line.first_offset < first]
            reaching[tp] = min(first, max(before, default=first)), end
        return reaching

    def owned(self, starts: Mapping[TopicPartition, int]) -> list[tuple[str | None, OffsetSpan]]:
        """Cut the covered offsets, from the starts on, into spans: each has one batch that answers for it, or none.

        If two batches cover an offset, the first one answers for it; offsets that none covers come in spans of bounded
        length.
        """
        found: list[tuple[str | None, OffsetSpan]] = []
        for tp, end in self._committed.items():
            lines = self._lines.get(tp, [])
            begins = [one for one in (self.first(tp), starts.get(tp)) if one is not None]
            if end is None or not begins:
                continue
            reached = self.begins[tp] = min(begins)
            for first, after, batch_id in [*((a.first_offset, a.next_offset, b) for a, b in lines), (end, end, None)]:
                gap_end = min(first, end)
                found += [
                    (None, OffsetSpan(tp, begin, min(begin + GAP_OFFSETS_MAX, gap_end)))
                    for begin in range(reached, gap_end, GAP_OFFSETS_MAX)
                ]
                begin, stop = max(first, reached), min(after, end)
                if begin < stop:
                    found.append((batch_id, OffsetSpan(tp, begin, stop)))
                reached = max(reached, after)
        return found

    def check(self, starts: Mapping[TopicPartition, int], findings: Findings) -> None:
        """Check that ranges join from `starts` (if known) to the committed offset, and that none reaches beyond it."""
        for tp in sorted(self._named | self._committed.keys()):
            lines, reached = [line for line, _ in self._lines.get(tp, [])], self._committed.get(tp)
            wrongs = [wrong for wrong, _ in judge_joins(tp, lines, start=starts.get(tp), committed=reached or 0)]
            wrongs += judge_ways_join(tp, lines)
            for wrong in [*wrongs, *(wrong for wrong, _ in judge_uncommitted(tp, lines, committed=reached))]:
                findings.add(wrong.kind, f"{tp}: {wrong.text}", wrong.place)
            if reached is None and tp in self._named and not lines:
                text = f"{tp}: flush records name it, and the group has no committed offset"
                findings.add(Kind.FLUSH_WRONG, text, (tp,))
        for topic, ids in sorted(self._topic_ids.items()):
            if len(ids) > 1:
                findings.note(f"flush records are of {len(ids)} topics named {topic}: it was made anew")


def later_batches(flushes: Iterable[FlushRecord], before: Committed, after: Committed) -> set[str]:
    """Find batches that were committed after `before` was read and before `after` was."""
    later = set()
    for flush in flushes:
        covered = [one for one in flush.topic_partitions if one.first_offset != one.next_offset]
        if covered and all(
            (before.get(tp_of(one)) or 0) <= one.first_offset < one.next_offset <= (after.get(tp_of(one)) or 0)
            for one in covered
        ):
            later.add(flush.batch_id)
    return later


class Reached(NamedTuple):
    """The range [first, end) of a TopicPartition, and the group's committed offset; None if it has none."""

    tp: TopicPartition
    first: int
    end: int
    committed: int | None


def notes_of(reached: Iterable[Reached]) -> list[str]:
    """Return notes: TopicPartitions without a committed offset, then those with most offsets beyond theirs.

    Offsets are counted without reading, so control records and gaps are among them.
    """
    never = "nothing was ever committed, so none of its {:,} offsets is audited"
    later = "{:,} offsets are not committed yet, so they are not audited"
    kinds: dict[str, list[Reached]] = {never: [], later: []}
    for one in sorted(reached, key=_beyond, reverse=True):
        if one.end if one.committed is None else _beyond(one):
            kinds[never if one.committed is None else later].append(one)
    notes = []
    for text, some in kinds.items():
        notes += [f"{one.tp}: {text.format(_beyond(one))}" for one in some[:SHOWN]]
        if left := some[SHOWN:]:
            notes.append(f"{len(left)} more TopicPartitions: {text.format(sum(map(_beyond, left)))}")
    return notes


def _beyond(one: Reached) -> int:
    return max(0, one.end - max(one.first, one.committed or 0))
