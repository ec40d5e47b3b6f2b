"""One TopicPartition over all boots of a group, by offsets: rules 1, 3 and 7. Pure.

What is committed of it is a chain of runs. Where the chain has a hole, flushes that nobody has told the end of may fill
it: each is committed, or is not, and both are held possible until runs, or where somebody goes on, leave one. Which
owner came first is told by the group's generations, where they are told.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate
from operator import attrgetter
from typing import NamedTuple

from service.verify.boots import COMMITTED
from service.verify.rules import LogRule, Violation
from service.verify.tenures import Landing, Stretch, Tenure, Unsettled


class Chain:
    """What all boots say of one TopicPartition."""

    def __init__(self, tp: str) -> None:
        self.tp = tp
        self.tenures: list[Tenure] = []
        self.landings: list[Landing] = []
        self.bases: set[int] = set()
        self.unsettled: list[Unsettled] = []
        self.unknown_before: int | None = None
        self._spans: list[_Span] = []

    def judge(self) -> Iterator[Violation]:
        """Yield what breaks rules 1, 3 and 7; note in flushes without an outcome what is needed and refuted.

        `unknown_before`: up to there somebody has committed of whom there is no line.
        """
        owned = sorted(((run, one) for one in self.tenures for run in one.runs), key=lambda each: _by_offset(each[0]))
        spans = (_Span(*one.spans[self.tp], one) for one in self.unsettled)
        self._spans = sorted(spans, key=lambda span: (span.first, span.end))
        self._refute(owned)
        legal = set(self.bases)
        cursor, top = self._begin(owned), None
        legal.add(cursor)
        for run, tenure in owned:
            if run.first > cursor:
                reached = self._fill(cursor, run.first)
                legal |= reached
                if run.first not in reached and not run.is_told:
                    yield self._hole(cursor, run, tenure, reached)
            elif run.first < cursor and top is not None and tenure is not top:
                yield self._overlap(run, tenure, top, min(cursor, run.end))
            legal.update(run.ends)  # who was taken for dead may look in the middle of it
            if run.end >= cursor:
                cursor, top = run.end, tenure
        yield from self._land(legal, cursor)
        yield from self._in_order()

    def _begin(self, owned: list[tuple[Stretch, Tenure]]) -> int:
        """Return where the chain begins: where a start position was made up; else at the lowest offset that is told."""
        firsts = [run.first for run, _ in owned[:1]]
        if bases := [base for base in self.bases if not firsts or base <= firsts[0]]:
            return max(bases)
        told = [*firsts, *(one.offset for one in self.landings), *(span.first for span in self._spans)]
        self.unknown_before = min(told, default=None)
        return self.unknown_before or 0

    # Holes.

    def _fill(self, begin: int, end: int) -> set[int]:
        """Return the offsets that flushes without an outcome reach from `begin`; note those without which it is not."""
        every = [span for span in self._spans if begin <= span.first and span.end <= end]
        within = [span for span in every if self.tp not in span.flush.refuted]
        if end not in (reached := _reach(begin, within)):
            within, reached = every, _reach(begin, every)
        if end in reached:
            for span in within:
                if end not in _reach(begin, [one for one in within if one is not span]):
                    span.flush.needed.add(self.tp)
        return reached

    def _hole(self, cursor: int, run: Stretch, tenure: Tenure, reached: set[int]) -> Violation:
        text = f"nobody has committed {self.tp} [{max(reached)}, {run.first}), and a commit begins behind it"
        offsets = (cursor, run.first)
        return Violation(
            LogRule.CONTIGUOUS, text, tenure.boot, run.seq, run.at_ms, self.tp, offsets, could_be_told=True
        )

    def _overlap(self, run: Stretch, tenure: Tenure, other: Tenure, end: int) -> Violation:
        is_one = tenure.boot == other.boot
        who = "the same process" if is_one else str(other.boot)
        text = f"{self.tp} [{run.first}, {end}) is committed twice, also by {who}"
        rule = LogRule.CONTIGUOUS if is_one else LogRule.ONE_OWNER
        return Violation(rule, text, tenure.boot, run.seq, run.at_ms, self.tp, (run.first, end))

    # Where is gone on.

    def _land(self, legal: set[int], cursor: int) -> Iterator[Violation]:
        """Rule 1: what somebody goes on at is what somebody has committed."""
        behind = [span for span in self._spans if span.first >= cursor]
        legal |= _reach(cursor, behind)
        for one in self.landings:
            if one.offset in legal:
                if one.offset > cursor:
                    self._fill(cursor, one.offset)
                continue
            below = max((offset for offset in legal if offset < one.offset), default=cursor)
            text = f"{self.tp} is resumed at {one.offset}, which nobody has committed: {below} is"
            offsets = (min(below, one.offset), max(below, one.offset))
            yield Violation(LogRule.RESUME, text, one.boot, one.seq, one.at_ms, self.tp, offsets, could_be_told=True)

    def _in_order(self) -> Iterator[Violation]:
        """Rule 1: what somebody resumes at is all that was committed by owners of earlier generations."""
        told = sorted((one for one in self.tenures if one.generation > 0), key=attrgetter("generation"))
        generations = [one.generation for one in told]
        ends = list(accumulate((max((run.end for run in one.runs), default=0) for one in told), max))
        for one in told:
            before = bisect_left(generations, one.generation)
            if one.source != COMMITTED or one.start is None or not before or one.start >= ends[before - 1]:
                continue
            text = f"{self.tp} is resumed at {one.start}, and owners before have committed up to {ends[before - 1]}"
            yield Violation(
                LogRule.RESUME, text, one.boot, one.seq, one.began_ms, self.tp, (one.start, ends[before - 1])
            )

    def _refute(self, owned: list[tuple[Stretch, Tenure]]) -> None:
        """Note which flushes without an outcome are not committed here: others have committed their offsets."""
        runs = [run for run, _ in owned]
        ends = list(accumulate((run.end for run in runs), max))
        for span in self._spans:
            # The first run that ends behind its beginning, of all that begin before its end.
            at = bisect_left(ends, span.first + 1)
            if at < len(runs) and runs[at].first < span.end:
                span.flush.refuted.add(self.tp)
            generation = span.flush.generations.get(self.tp, -1)
            for one in self.tenures:
                is_later = 0 < generation < one.generation and one.source == COMMITTED
                if is_later and one.start is not None and one.start < span.end:
                    span.flush.refuted.add(self.tp)


class _Span(NamedTuple):
    """What a flush without an outcome covers of a TopicPartition."""

    first: int
    end: int
    flush: Unsettled


def _by_offset(run: Stretch) -> tuple[int, int]:
    return run.first, run.end


def _reach(begin: int, spans: Iterable[_Span]) -> set[int]:
    reached = {begin}
    for span in spans:
        if span.first in reached:
            reached.add(span.end)
    return reached


def torn(flush: Unsettled) -> Violation | None:
    """Rule 3: of one batch everything is committed or nothing. Rule 1, where one TopicPartition says both."""
    if not flush.needed or not flush.refuted:
        return None
    both = sorted(flush.needed & flush.refuted)
    tp = both[0] if both else min(flush.needed)
    text = (
        f"{tp} of batch {flush.batch_id} is resumed below what is committed"
        if both
        else f"of batch {flush.batch_id} {tp} is committed and {min(flush.refuted)} is not"
    )
    rule = LogRule.RESUME if both else LogRule.CONTIGUOUS
    return Violation(rule, text, flush.boot, flush.seq, flush.at_ms, tp, flush.spans.get(tp), could_be_told=True)
