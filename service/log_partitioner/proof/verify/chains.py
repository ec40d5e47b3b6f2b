"""One TopicPartition over all boots of a group, by offsets: rules 1, 3 and 7. Pure.

Its commits are a chain of runs. Flushes without an outcome may fill a hole of the chain: both outcomes stay possible
until a run, or the offset at which a worker goes on, rules one out. The group's generations tell which owner came
first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from log_partitioner.proof.verify.boots import Boot
from log_partitioner.proof.verify.values import COMMITTED, Flush, Landing, LogRule, Stretch, Tenure, Violation


class _Span(NamedTuple):
    """The offsets of a TopicPartition that a flush without an outcome covers."""

    first: int
    end: int
    flush: Flush


@dataclass(slots=True)
class Chain:
    """All statements of the boots about one TopicPartition; before `unknown_before`, commits may lack their lines."""

    tp: str
    tenures: list[Tenure] = field(default_factory=list)
    landings: list[Landing] = field(default_factory=list)
    flushes: list[Flush] = field(default_factory=list)
    unknown_before: int | None = None
    _spans: list[_Span] = field(default_factory=list)

    def judge(self) -> Iterator[Violation]:
        """Yield violations of rules 1, 3 and 7; note in flushes without an outcome where one is needed or refuted."""
        owned = sorted(
            ((run, one) for one in self.tenures for run in one.runs), key=lambda each: (each[0].first, each[0].end)
        )
        spans = (_Span(*one.spans[self.tp], one) for one in self.flushes)
        self._spans = sorted(spans, key=lambda span: span[:2])
        self._refute([run for run, _ in owned])
        bases = {one.offset for one in self.landings if one.source != COMMITTED}
        cursor, top = self._begin(bases, [run.first for run, _ in owned[:1]]), None
        legal = {*bases, cursor}
        for run, tenure in owned:
            if run.first > cursor:
                reached = self._fill(cursor, run.first)
                legal |= reached
                if run.first not in reached and not run.is_told:
                    yield self._hole(cursor, run, max(reached))
            elif run.first < cursor and top is not None and tenure is not top:
                yield self._overlap(run, tenure, top, min(cursor, run.end))
            legal.update(run.ends)  # who was taken for dead may look in the middle of it
            if run.end >= cursor:
                cursor, top = run.end, tenure
        yield from self._land(legal, cursor)
        yield from self._in_order()

    def _begin(self, bases: set[int], firsts: list[int]) -> int:
        """Return the offset at which the chain begins: a start by the policy, else the lowest offset in the lines."""
        if below := [base for base in bases if not firsts or base <= firsts[0]]:
            return max(below)
        told = [*firsts, *(one.offset for one in self.landings), *(span.first for span in self._spans)]
        self.unknown_before = min(told, default=None)
        return self.unknown_before or 0

    def _refute(self, runs: list[Stretch]) -> None:
        """Note which flushes without an outcome are not committed here: others have committed their offsets."""
        ends = list(accumulate((run.end for run in runs), max))
        for span in self._spans:
            # The first run that ends behind its beginning, of all that begin before its end.
            at = bisect_left(ends, span.first + 1)
            is_taken = at < len(runs) and runs[at].first < span.end
            generation = span.flush.generations.get(self.tp, -1)
            later = (one.resumed_at for one in self.tenures if 0 < generation < one.generation)
            if is_taken or any(start is not None and start < span.end for start in later):
                span.flush.refuted.add(self.tp)

    def _fill(self, begin: int, end: int) -> set[int]:
        """Return the offsets that flushes without an outcome reach from `begin`; note those needed for that."""
        every = [span for span in self._spans if begin <= span.first and span.end <= end]
        within = [span for span in every if self.tp not in span.flush.refuted]
        if end not in (reached := _reach(begin, within)):
            within, reached = every, _reach(begin, every)
        if end in reached:
            for span in within:
                if end not in _reach(begin, [one for one in within if one is not span]):
                    span.flush.needed.add(self.tp)
        return reached

    def _hole(self, cursor: int, run: Stretch, reached: int) -> Violation:
        text = f"nobody has committed {self.tp} [{reached}, {run.first}), and a commit begins behind it"
        offsets = cursor, run.first
        return Violation(LogRule.CONTIGUOUS, text, run.place, self.tp, offsets, could_be_told=True)

    def _overlap(self, run: Stretch, tenure: Tenure, other: Tenure, end: int) -> Violation:
        is_one = tenure.place.boot == other.place.boot
        who = "the same process" if is_one else str(other.place.boot)
        text = f"{self.tp} [{run.first}, {end}) is committed twice, also by {who}"
        return Violation(
            LogRule.CONTIGUOUS if is_one else LogRule.ONE_OWNER, text, run.place, self.tp, (run.first, end)
        )

    def _land(self, legal: set[int], cursor: int) -> Iterator[Violation]:
        """Rule 1: a worker goes on only at an offset that some worker has committed."""
        legal |= _reach(cursor, [span for span in self._spans if span.first >= cursor])
        for _, at, source, place in self.landings:
            if source != COMMITTED:
                continue
            if at not in legal:
                below = max((offset for offset in legal if offset < at), default=cursor)
                text = f"{self.tp} is resumed at {at}, which nobody has committed: {below} is"
                offsets = min(below, at), max(below, at)
                yield Violation(LogRule.RESUME, text, place, self.tp, offsets, could_be_told=True)
            elif at > cursor:
                self._fill(cursor, at)

    def _in_order(self) -> Iterator[Violation]:
        """Rule 1: nobody resumes below an offset that an owner of an earlier generation has committed."""
        told = sorted((one for one in self.tenures if one.generation > 0), key=lambda one: one.generation)
        ends = list(accumulate((max((run.end for run in one.runs), default=0) for one in told), max))
        for one in told:
            before = bisect_left(told, one.generation, key=lambda other: other.generation)
            at, end = one.resumed_at, ends[before - 1] if before else 0
            if at is not None and at < end:
                text = f"{self.tp} is resumed at {at}, and owners before have committed up to {end}"
                yield Violation(LogRule.RESUME, text, one.place, self.tp, (at, end))


def _reach(begin: int, spans: Iterable[_Span]) -> set[int]:
    reached = {begin}
    for span in spans:
        if span.first in reached:
            reached.add(span.end)
    return reached


def chains_of(boots: Iterable[Boot]) -> list[Chain]:
    """Gather the statements of all boots by TopicPartition."""
    chains: dict[str, Chain] = {}

    def chain_of(tp: str) -> Chain:
        return chains.setdefault(tp, Chain(tp))

    for boot in boots:
        for tenure in boot.tenures:
            chain_of(tenure.tp).tenures.append(tenure)
        for landing in boot.landings:
            chain_of(landing.tp).landings.append(landing)
        for flush in boot.unsettled:
            for tp in flush.spans:
                chain_of(tp).flushes.append(flush)
    return [chains[tp] for tp in sorted(chains)]


def torn(flush: Flush) -> Violation | None:
    """Rule 3: a batch is committed as a whole or not at all. Rule 1, if one TopicPartition says both."""
    if not flush.needed or not flush.refuted:
        return None
    if both := flush.needed & flush.refuted:
        rule, tp = LogRule.RESUME, min(both)
        text = f"{tp} of batch {flush.batch_id} is resumed below what is committed"
    else:
        rule, tp = LogRule.CONTIGUOUS, min(flush.needed)
        text = f"of batch {flush.batch_id} {tp} is committed and {min(flush.refuted)} is not"
    return Violation(rule, text, flush.place, tp, flush.spans.get(tp), could_be_told=True)
