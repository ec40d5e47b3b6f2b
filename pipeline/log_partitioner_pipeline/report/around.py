"""Findings -> commits beside their offsets, and events of the workers' logs beside their time.

Commits are found by offsets, since clocks differ; events, by the time between these commits. Findings of one kind
between the same commits of a TopicPartition are one range.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC
from itertools import chain
from typing import NamedTuple

import msgspec

from log_partitioner.formats import log_events
from log_partitioner.formats.findings import Kind
from log_partitioner.formats.log_events import Head, LogEvent, LogLine, OffsetGaps, read_line
from log_partitioner.formats.model import TopicPartition
from log_partitioner_pipeline.audit.result import Example, FlushSeen, Result

EVENTS_BETWEEN = 6
_REBALANCES = (log_events.PartitionsAssigned, log_events.PartitionsRevoked, log_events.PartitionsLost)
_ENDS = (log_events.WorkerStopped, log_events.WorkerLeft, log_events.WorkerFailed)
_OTHERS = (log_events.WorkerStarted, log_events.BatchCommitted, log_events.BatchDiscarded, log_events.CommitRepeated)
_SHOWN = (*_REBALANCES, *_ENDS, *_OTHERS, log_events.Positioned, OffsetGaps)
_FIELDS_LEFT_OUT = {"event", "story", "exception"}


class LogEnded(LogEvent, frozen=True, tag="log_ended"):
    """A log ends without a stop, as that of a killed worker does; `after`: its last event."""

    after: str


class Event(NamedTuple):
    """One event of one boot; its TopicPartitions are those that it names, else those that its worker owned then."""

    at_ms: int
    worker: str
    boot: str
    seq: int
    told: LogEvent
    topic_partitions: frozenset[TopicPartition]

    @property
    def name(self) -> str:
        """The name of the event in words."""
        return str(self.told.__struct_config__.tag).replace("_", " ")

    @property
    def text(self) -> str:
        """The fields of the event, as its line has them."""
        fields = msgspec.to_builtins(self.told)
        return ", ".join(f"{name} {value}" for name, value in fields.items() if value and name not in _FIELDS_LEFT_OUT)


class Log(NamedTuple):
    """The events of all logs by time, the number of lines, and how many of them are no worker's."""

    events: list[Event]
    lines: int
    unread: int


class Commit(NamedTuple):
    """One commit of offsets [first, next); `logged_only`: no flush record in the result tells of it."""

    tp: TopicPartition
    first_offset: int
    next_offset: int
    started_at_ms: int
    ended_at_ms: int
    batch_id: str
    worker: str
    reason: str
    logged_only: bool = False


class Beside(NamedTuple):
    """The commits that cover an offset, and the nearest on both sides that do not."""

    before: Commit | None = None
    covering: tuple[Commit, ...] = ()
    after: Commit | None = None

    @property
    def handled_ms(self) -> tuple[int, int] | None:
        """When a batch may have had the offset: from the commit before it to the last one that covers it, or after."""
        later = self.covering or ((self.after,) if self.after else ())
        if self.before is None and not later:
            return None
        begin_ms = self.before.ended_at_ms if self.before else min(one.started_at_ms for one in later)
        end_ms = max((one.ended_at_ms for one in later), default=begin_ms)
        return min(begin_ms, end_ms), end_ms


class Moment(NamedTuple):
    """One line around a range. `look`: commit, covering, event, none (no commit covers the range) or note."""

    at_ms: int | None
    look: str
    title: str
    text: str = ""


class Range(NamedTuple):
    """Findings of one kind between the same commits, with what was around them in the order of time.

    `at_ms` is when they were handled, else when their newest record was written. `tp` is None if they have no offsets.
    """

    kind: Kind
    tp: TopicPartition | None
    examples: Sequence[Example]
    at_ms: int | None
    moments: Sequence[Moment]


def read_log(lines: Iterable[bytes]) -> Log:
    """Read the lines of any number of logs, in any order; text in front of a line's JSON is ignored."""
    shown: dict[tuple[str, str], list[LogLine]] = defaultdict(list)
    last: dict[tuple[str, str], Head] = {}
    read = unread = 0
    for raw in filter(bytes.strip, lines):
        read += 1
        line = read_line(raw)
        if line is None or (line.event is None and line.head.event in log_events.EVENTS):
            unread += 1
            continue
        boot = (line.head.worker, line.head.boot)
        last[boot] = max(last.get(boot, line.head), line.head, key=lambda head: head.seq)
        if isinstance(line.event, _SHOWN):
            shown[boot].append(line)
    events = chain.from_iterable(_of_boot(shown[boot], end) for boot, end in last.items())
    return Log(sorted(events, key=_order), read, unread)


def ranges_of(result: Result, events: Iterable[Event], *, examples_max: int) -> list[Range]:
    """Return the first examples of each kind in ranges, by the time when they were handled; those without time last."""
    commits: dict[object, list[Commit]] = defaultdict(list)
    for commit in _commits(result.flushes, events):
        commits[commit.tp].append(commit)
        commits[commit.batch_id].append(commit)
    by_owner: dict[object, list[Event]] = defaultdict(list)
    for event in events:
        if not isinstance(event.told, log_events.BatchCommitted):
            for owner in event.topic_partitions or [event.worker]:
                by_owner[owner].append(event)
    grouped: dict[tuple[Kind, TopicPartition | None, Beside], list[Example]] = defaultdict(list)
    for finding in result.findings:
        for one in finding.examples[:examples_max]:
            tp, beside = None, Beside(covering=tuple(commits[one.batch_id][:1]))
            if one.topic is not None and one.partition is not None and one.offset is not None:
                tp = TopicPartition(one.topic, one.partition)
                beside = _beside(commits[tp], one.offset)
            grouped[finding.kind, tp, beside].append(one)
    ranges = [_range(*place, examples, by_owner) for place, examples in grouped.items()]
    return sorted(ranges, key=lambda one: (one.at_ms is None, one.at_ms or 0))


def _beside(commits: Sequence[Commit], offset: int) -> Beside:
    ended = [one for one in commits if one.next_offset <= offset]
    later = [one for one in commits if one.first_offset > offset]
    return Beside(
        before=max(ended, key=lambda one: (one.next_offset, one.ended_at_ms), default=None),
        covering=tuple(one for one in commits if one.first_offset <= offset < one.next_offset),
        after=min(later, key=lambda one: (one.first_offset, one.ended_at_ms), default=None),
    )


def _of_boot(lines: list[LogLine], last: Head) -> Iterator[Event]:
    owned: set[TopicPartition] = set()
    for head, told, _ in sorted(lines, key=lambda line: line.head.seq):
        assert told is not None, f"line {head.seq} of {head.boot} has no event"
        named = _named(told)
        if isinstance(told, log_events.PartitionsAssigned):
            owned |= named
        yield _event(head, head.seq, told, named or owned)
        if isinstance(told, log_events.PartitionsRevoked | log_events.PartitionsLost):
            owned -= named
    if not any(isinstance(line.event, _ENDS) for line in lines):
        yield _event(last, last.seq + 1, LogEnded(last.event), owned)


def _event(head: Head, seq: int, told: LogEvent, tps: Iterable[TopicPartition]) -> Event:
    at = head.ts if head.ts.tzinfo else head.ts.replace(tzinfo=UTC)
    return Event(round(at.timestamp() * 1000), head.worker, head.boot, seq, told, frozenset(tps))


def _named(told: LogEvent) -> set[TopicPartition]:
    if isinstance(told, OffsetGaps):
        return {TopicPartition(told.topic, told.partition)}
    fields = msgspec.structs.asdict(told)
    names = fields.get("topic_partitions") or fields.get("offsets") or fields.get("starts") or ()
    parts = (str(name).rpartition("-") for name in names)
    return {TopicPartition(topic, int(partition)) for topic, _, partition in parts if partition.isdecimal()}


def _commits(flushes: Iterable[FlushSeen], events: Iterable[Event]) -> Iterator[Commit]:
    recorded = {flush.batch_id for flush in flushes}
    for flush in flushes:
        about = (flush.started_at_ms, flush.ended_at_ms, flush.batch_id, flush.worker, flush.reason)
        for span in flush.ranges:
            yield Commit(TopicPartition(span.topic, span.partition), span.first_offset, span.next_offset, *about)
    for event in events:
        told = event.told
        if isinstance(told, log_events.BatchCommitted) and told.batch_id not in recorded:
            about = (event.at_ms, event.at_ms, told.batch_id, event.worker, told.reason)
            for tp in event.topic_partitions:
                if covered := told.offsets.get(str(tp)):
                    yield Commit(tp, covered["first_offset"], covered["next_offset"], *about, logged_only=True)


def _range(
    kind: Kind,
    tp: TopicPartition | None,
    beside: Beside,
    examples: Sequence[Example],
    by_owner: Mapping[object, Sequence[Event]],
) -> Range:
    before, covering, after = beside
    times_ms = [one.timestamp_ms for one in examples if one.timestamp_ms is not None]
    handled_ms = beside.handled_ms or ((min(times_ms), max(times_ms)) if times_ms else None)
    moments = [_commit_moment(commit, "covering") for commit in covering]
    moments += [_commit_moment(commit, "commit") for commit in (before, after) if commit]
    if tp is not None and not covering and (before or after):
        moments.append(Moment(after.ended_at_ms if after else None, "none", "no commit covers these offsets"))
    if handled_ms:
        owners = {tp, *(one.worker for one in examples)}.union(*((one.tp, one.worker) for one in covering))
        events = sorted(chain(*(by_owner.get(owner, ()) for owner in owners)), key=_order)
        moments += _event_moments(events, *handled_ms)
    moments.sort(key=lambda one: (one.at_ms is None, one.at_ms or 0, one.look not in ("none", "note")))
    return Range(kind, tp, examples, handled_ms[1] if handled_ms else None, moments)


def _commit_moment(commit: Commit, look: str) -> Moment:
    text = f"[{commit.first_offset}, {commit.next_offset}) by {commit.worker}, batch {commit.batch_id}"
    only = "; only a log tells of it" if commit.logged_only else ""
    return Moment(commit.ended_at_ms, look, f"committed ({commit.reason or 'no reason'})", text + only)


def _event_moments(events: Sequence[Event], begin_ms: int, end_ms: int) -> Iterator[Moment]:
    """Choose the nearest events before and after [begin, end], and the last within; holes in offsets come last."""
    within = [one for one in events if begin_ms <= one.at_ms <= end_ms]
    shown = sorted(within, key=lambda one: not isinstance(one.told, OffsetGaps))[-EVENTS_BETWEEN:]
    shown += _nearest(one for one in reversed(events) if one.at_ms < begin_ms)
    shown += _nearest(one for one in events if one.at_ms > end_ms)
    for event in sorted(shown, key=_order):
        yield Moment(event.at_ms, "event", event.name, f"{event.worker}: {event.text}")
    if len(within) > EVENTS_BETWEEN:
        text = f"{EVENTS_BETWEEN} of {len(within)} events between these commits are shown"
        yield Moment(begin_ms, "note", "", text)


def _nearest(events: Iterable[Event]) -> Iterator[Event]:
    """Yield the first event that is no hole in offsets, and the first rebalance if that is another."""
    telling = (event for event in events if not isinstance(event.told, OffsetGaps))
    for nth, event in enumerate(telling):
        if nth == 0 or isinstance(event.told, _REBALANCES):
            yield event
        if isinstance(event.told, _REBALANCES):
            return


def _order(event: Event) -> tuple[int, str, str, int]:
    return event[:4]
