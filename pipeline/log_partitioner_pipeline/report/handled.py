"""When an offset was handled: the commits before it, around it and after it, by offset and not by time.

Commits are those of flush records, and those that only a log tells of. Times are the workers' clocks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

from log_partitioner.formats.log_events import BatchCommitted
from log_partitioner.formats.model import TopicPartition
from log_partitioner_pipeline.audit.result import FlushSeen
from log_partitioner_pipeline.report.events import Event, spans_of


class Commit(NamedTuple):
    """One commit of [first, next) of a TopicPartition; `logged_only`: no flush record in the result tells of it."""

    first_offset: int
    next_offset: int
    started_at_ms: int
    ended_at_ms: int
    batch_id: str
    worker: str
    reason: str
    logged_only: bool = False


class Handled(NamedTuple):
    """The commits beside an offset, and the times between which it was handled, by these commits (None: unknown).

    `before` and `after` are the nearest that do not cover it.
    """

    before: Commit | None
    covering: tuple[Commit, ...]
    after: Commit | None

    @property
    def begin_ms(self) -> int | None:
        """About when the earliest batch that it can be in was opened."""
        if self.before is not None:
            return self.before.ended_at_ms
        later = self.covering or ((self.after,) if self.after else ())
        return min((one.started_at_ms for one in later), default=None)

    @property
    def end_ms(self) -> int | None:
        """When the last batch that it can be in was committed; the last known commit if nothing came after."""
        if self.covering:
            return max(one.ended_at_ms for one in self.covering)
        last = self.after or self.before
        return None if last is None else last.ended_at_ms


class Commits:
    """All commits, for questions about offsets."""

    def __init__(self, flushes: Iterable[FlushSeen], events: Iterable[Event]) -> None:
        by_tp: dict[TopicPartition, list[Commit]] = defaultdict(list)
        self.by_batch: dict[str, tuple[TopicPartition, Commit]] = {}
        for flush in flushes:
            for span in flush.ranges:
                commit = Commit(
                    first_offset=span.first_offset,
                    next_offset=span.next_offset,
                    started_at_ms=flush.started_at_ms,
                    ended_at_ms=flush.ended_at_ms,
                    batch_id=flush.batch_id,
                    worker=flush.worker,
                    reason=flush.reason,
                )
                self._add(by_tp, TopicPartition(span.topic, span.partition), commit)
        recorded = set(self.by_batch)
        for event in events:
            told = event.told
            if not isinstance(told, BatchCommitted) or told.batch_id in recorded:
                continue
            for tp, first, end in spans_of(told):
                times = (event.at_ms, event.at_ms)
                about = (told.batch_id, event.worker, told.reason)
                self._add(by_tp, tp, Commit(first, end, *times, *about, logged_only=True))
        self._of = {tp: _OfOne(commits) for tp, commits in by_tp.items()}

    def _add(self, by_tp: dict[TopicPartition, list[Commit]], tp: TopicPartition, commit: Commit) -> None:
        by_tp[tp].append(commit)
        self.by_batch.setdefault(commit.batch_id, (tp, commit))

    def beside(self, tp: TopicPartition, offset: int) -> Handled:
        """Return the commits beside this offset."""
        of_it = self._of.get(tp)
        return Handled(None, (), None) if of_it is None else of_it.beside(offset)


class _OfOne:
    """Commits of one TopicPartition; they overlap only if something is wrong, so looking back is short."""

    def __init__(self, commits: list[Commit]) -> None:
        self._by_first = sorted(commits, key=lambda one: (one.first_offset, one.next_offset, one.ended_at_ms))
        self._firsts = [one.first_offset for one in self._by_first]
        self._reached = list(accumulate((one.next_offset for one in self._by_first), max))
        self._by_next = sorted(commits, key=lambda one: (one.next_offset, one.ended_at_ms))
        self._nexts = [one.next_offset for one in self._by_next]

    def beside(self, offset: int) -> Handled:
        here = bisect_right(self._firsts, offset)
        covering: list[Commit] = []
        at = here - 1
        while at >= 0 and self._reached[at] > offset:
            if self._by_first[at].next_offset > offset:
                covering.append(self._by_first[at])
            at -= 1
        ended = bisect_right(self._nexts, offset)
        return Handled(
            before=self._by_next[ended - 1] if ended else None,
            covering=tuple(reversed(covering)),
            after=min(
                self._by_first[here : bisect_right(self._firsts, self._firsts[here])],
                key=lambda one: one.ended_at_ms,
            )
            if here < len(self._firsts)
            else None,
        )
