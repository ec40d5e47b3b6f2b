"""Findings with the events beside them, so that a loss can be seen next to its cause.

Findings of one kind between the same commits of a TopicPartition are one range. A rebalance, discard or rewind is
beside it by TopicPartition; a start or stop, by worker. The nearest events stand before and after it, and the nearest
rebalance; holes in offsets, which are many and mostly legal, only between, if there is room.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from log_partitioner.formats.findings import Kind
from log_partitioner.formats.log_events import BatchCommitted, OffsetGaps
from log_partitioner.formats.model import TopicPartition
from log_partitioner_pipeline.audit.result import Example, Finding, Result
from log_partitioner_pipeline.report.events import REBALANCES, Event
from log_partitioner_pipeline.report.handled import Commits, Handled

_DURING_MAX = 6


class Events(NamedTuple):
    """Events beside a range in their order: the nearest before and after, and those between, of `between`."""

    before: tuple[Event, ...]
    during: tuple[Event, ...]
    between: int
    after: tuple[Event, ...]


class Range(NamedTuple):
    """Findings of one kind between the same commits; `findings` is how many these examples are.

    `tp` None: they are of no offsets, but maybe of a batch.
    """

    kind: Kind
    findings: int
    examples: tuple[Example, ...]
    tp: TopicPartition | None
    first_offset: int | None
    last_offset: int | None
    timestamps_ms: tuple[int, int] | None
    handled: Handled
    events: Events

    @property
    def at_ms(self) -> int | None:
        """When it was handled, else when its records were written."""
        end_ms = self.handled.end_ms
        return end_ms if end_ms is not None else (self.timestamps_ms[1] if self.timestamps_ms else None)


def ranges_of(result: Result, events: list[Event]) -> list[Range]:
    """Return all examples of all findings in ranges, by the time when they were handled; those without time last."""
    commits = Commits(result.flushes, events)
    lookup = _Lookup(events)
    ranges = [one for finding in result.findings for one in _of_kind(finding, commits, lookup)]
    return sorted(ranges, key=lambda one: (one.at_ms is None, one.at_ms or 0))


def _of_kind(finding: Finding, commits: Commits, lookup: _Lookup) -> Iterable[Range]:
    grouped: dict[object, list[tuple[Example, TopicPartition | None, Handled]]] = defaultdict(list)
    for example in finding.examples:
        tp, handled = _place(example, commits)
        grouped[tp if example.offset is not None else None, handled].append((example, tp, handled))
    for several in grouped.values():
        examples = tuple(example for example, _, _ in several)
        _, tp, handled = several[0]
        yield _range(finding.kind, examples, tp, handled, lookup)


def _place(example: Example, commits: Commits) -> tuple[TopicPartition | None, Handled]:
    if example.topic is not None and example.partition is not None and example.offset is not None:
        tp = TopicPartition(example.topic, example.partition)
        return tp, commits.beside(tp, example.offset)
    if example.batch_id in commits.by_batch:
        tp, commit = commits.by_batch[example.batch_id]
        return tp, Handled(None, (commit,), None)
    return None, Handled(None, (), None)


def _range(
    kind: Kind, examples: tuple[Example, ...], tp: TopicPartition | None, handled: Handled, lookup: _Lookup
) -> Range:
    offsets = [example.offset for example in examples if example.offset is not None]
    times = [example.timestamp_ms for example in examples if example.timestamp_ms is not None]
    timestamps = (min(times), max(times)) if times else None
    begin_ms, end_ms = handled.begin_ms, handled.end_ms
    if begin_ms is None or end_ms is None:
        begin_ms, end_ms = timestamps or (None, None)
    workers = {example.worker for example in examples if example.worker is not None}
    workers |= {commit.worker for commit in handled.covering}
    return Range(
        kind=kind,
        findings=sum(example.count for example in examples),
        examples=examples,
        tp=tp if offsets else None,
        first_offset=min(offsets, default=None),
        last_offset=max(offsets, default=None),
        timestamps_ms=timestamps,
        handled=handled,
        events=Events((), (), 0, ())
        if begin_ms is None or end_ms is None
        else lookup.beside(tp, frozenset(workers), min(begin_ms, end_ms), end_ms),
    )


class _Lookup:
    """Events by TopicPartition, and starts and stops by worker."""

    def __init__(self, events: list[Event]) -> None:
        self._by_tp: dict[TopicPartition, list[Event]] = defaultdict(list)
        self._by_worker: dict[str, list[Event]] = defaultdict(list)
        self._merged: dict[tuple[TopicPartition | None, frozenset[str]], list[Event]] = {}
        for event in events:
            if isinstance(event.told, BatchCommitted):
                continue  # stands among the commits
            for tp in event.topic_partitions:
                self._by_tp[tp].append(event)
            if not event.topic_partitions:
                self._by_worker[event.worker].append(event)

    def beside(self, tp: TopicPartition | None, workers: frozenset[str], begin_ms: int, end_ms: int) -> Events:
        """Return the events of a TopicPartition or one of these workers, before, in and after [begin, end]."""
        found = self._of(tp, workers)
        low = bisect_left(found, begin_ms, key=_at)
        high = bisect_right(found, end_ms, key=_at)
        during = found[low:high]
        return Events(
            before=tuple(reversed(_nearest(reversed(found[:low])))),
            during=_chosen(during),
            between=len(during),
            after=tuple(_nearest(found[high:])),
        )

    def _of(self, tp: TopicPartition | None, workers: frozenset[str]) -> list[Event]:
        merged = self._merged.get((tp, workers))
        if merged is None:
            merged = list(self._by_tp.get(tp, ())) if tp is not None else []
            merged += [event for worker in workers for event in self._by_worker.get(worker, ())]
            merged.sort(key=lambda one: (one.at_ms, one.worker, one.boot, one.seq))
            self._merged[tp, workers] = merged
        return merged


def _nearest(events: Iterable[Event]) -> list[Event]:
    """Choose of events, the nearest first: the first, and the first rebalance if that is another."""
    nearest: list[Event] = []
    for event in events:
        if isinstance(event.told, REBALANCES):
            return [*nearest, event]
        if not nearest and not isinstance(event.told, OffsetGaps):
            nearest.append(event)
    return nearest


def _chosen(events: Sequence[Event]) -> tuple[Event, ...]:
    """Choose the last ones, holes in offsets only if there is room."""
    holes = [nth for nth, event in enumerate(events) if isinstance(event.told, OffsetGaps)]
    telling = [nth for nth, event in enumerate(events) if not isinstance(event.told, OffsetGaps)]
    kept = telling[-_DURING_MAX:]
    room = _DURING_MAX - len(kept)
    return tuple(events[nth] for nth in sorted(kept + (holes[-room:] if room else [])))


def _at(event: Event) -> int:
    return event.at_ms
