"""Lines of the workers' logs -> events of ownership and of batches (DESIGN 9).

Owns the TopicPartitions of an event: a line that names none belongs to those that its worker owned then. A log that
ends without a stop is an event, too: nothing else tells of a killed worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from log_partitioner.formats import log_events
from log_partitioner.formats.log_events import Head, LogEvent, LogLine, read_line
from log_partitioner.formats.model import TopicPartition


class LogEnded(LogEvent, frozen=True, tag="log_ended"):
    """A log ends without a stop, which no line of it says. `after`: its last event."""

    after: str


REBALANCES = (log_events.PartitionsAssigned, log_events.PartitionsRevoked, log_events.PartitionsLost)
ENDS = (log_events.WorkerStopped, log_events.WorkerLeft, log_events.WorkerFailed)
_OF_THE_WORKER = (log_events.WorkerStarted, log_events.BatchDiscarded, log_events.CommitRepeated, *ENDS)
_TOLD = (
    *REBALANCES,
    *_OF_THE_WORKER,
    log_events.BatchCommitted,
    log_events.Positioned,
    log_events.OffsetGaps,
)


class Event(NamedTuple):
    """One event of one boot of a worker, with its TopicPartitions."""

    at_ms: int
    told: LogEvent
    worker: str
    boot: str
    seq: int
    topic_partitions: frozenset[TopicPartition]

    @property
    def text(self) -> str:
        """The event's own content, beyond its name, worker and TopicPartitions."""
        return _text(self.told)


class Log(NamedTuple):
    """All logs read: events by time, the number of lines, and how many of them are no worker's."""

    events: list[Event]
    lines: int = 0
    unread: int = 0


def read_log(lines: Iterable[bytes]) -> Log:
    """Read the lines of any number of logs, in any order; text in front of a line's JSON is ignored."""
    known: list[LogLine] = []
    last: dict[tuple[str, str], Head] = {}
    read = unread = 0
    for raw in filter(bytes.strip, lines):
        read += 1
        line = read_line(raw)
        if line is None or (line.event is None and line.head.event in log_events.EVENTS):
            unread += 1
            continue
        if isinstance(line.event, _TOLD):
            known.append(line)
        of_boot = (line.head.worker, line.head.boot)
        if of_boot not in last or last[of_boot].seq < line.head.seq:
            last[of_boot] = line.head
    events = [*_events(known, last)]
    return Log(sorted(events, key=lambda one: (one.at_ms, one.worker, one.boot, one.seq)), read, unread)


def spans_of(told: log_events.BatchCommitted) -> Iterator[tuple[TopicPartition, int, int]]:
    """Yield the offsets [first, next) that a commit covers."""
    for name, span in sorted(told.offsets.items()):
        yield from ((tp, span["first_offset"], span["next_offset"]) for tp in _read_names([name]))


def _events(lines: list[LogLine], last: dict[tuple[str, str], Head]) -> Iterator[Event]:
    """Follow the ownership of TopicPartitions through each boot."""
    owned: dict[tuple[str, str], set[TopicPartition]] = {of_boot: set() for of_boot in last}
    ended: set[tuple[str, str]] = set()
    for head, told, _ in sorted(lines, key=lambda one: (one.head.worker, one.head.boot, one.head.seq)):
        assert told is not None, "only events that are told were kept"
        of_boot = (head.worker, head.boot)
        held = owned[of_boot]
        if isinstance(told, log_events.PartitionsAssigned):
            held |= set(_read_names(told.topic_partitions))
        yield _event(head, told, held if isinstance(told, _OF_THE_WORKER) else _tps_of(told))
        if isinstance(told, log_events.PartitionsRevoked | log_events.PartitionsLost):
            held -= set(_read_names(told.topic_partitions))
        if isinstance(told, ENDS):
            ended.add(of_boot)
    for of_boot, head in last.items():
        if of_boot not in ended:
            yield _event(head, LogEnded(after=head.event), owned[of_boot])._replace(seq=head.seq + 1)


def _event(head: Head, told: LogEvent, tps: Iterable[TopicPartition]) -> Event:
    return Event(_ms(head.ts), told, head.worker, head.boot, head.seq, frozenset(tps))


def _tps_of(told: LogEvent) -> Iterable[TopicPartition]:
    """Return the TopicPartitions that an event names."""
    match told:
        case log_events.PartitionsAssigned() | log_events.PartitionsRevoked() | log_events.PartitionsLost():
            return _read_names(told.topic_partitions)
        case log_events.BatchCommitted():
            return _read_names(told.offsets)
        case log_events.Positioned():
            return _read_names(told.starts)
        case log_events.OffsetGaps():
            return [TopicPartition(told.topic, told.partition)]
        case _:
            return ()


def _text(told: LogEvent) -> str:
    match told:
        case log_events.PartitionsAssigned() | log_events.PartitionsRevoked() | log_events.PartitionsLost():
            return f"generation {told.generation}: {', '.join(told.topic_partitions) or 'nothing'}"
        case log_events.BatchDiscarded():
            why = ", ".join(filter(None, [told.cause, told.message]))
            return f"outcome {told.outcome}, flush for {told.reason or 'none'}: {why}"
        case log_events.Positioned():
            return ", ".join(f"{name} at {one.offset}, {one.source}" for name, one in sorted(told.starts.items()))
        case log_events.OffsetGaps():
            return f"{told.gaps} holes: {', '.join(f'[{begin}, {end})' for begin, end in told.first)}"
        case log_events.BatchCommitted():
            return f"{told.entries} entries, {told.reason}"
        case log_events.CommitRepeated():
            return told.cause
        case log_events.WorkerFailed():
            return ", ".join(filter(None, [told.cause, told.message]))
        case log_events.WorkerLeft():
            return told.message
        case LogEnded():
            return f"its log ends here, after {told.after}, without saying that the worker stopped"
        case _:
            return ""


def _ms(moment: datetime) -> int:
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _read_names(names: Mapping[str, object] | list[str]) -> Iterator[TopicPartition]:
    """Yield the TopicPartitions of an event by their names, without those that are no such names."""
    for name in names:
        topic, _, number = name.rpartition("-")
        if number.isdecimal():
            yield TopicPartition(topic, int(number))
