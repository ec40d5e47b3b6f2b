"""Lines of the workers' logs -> what changed who owns what, and what became of batches (DESIGN 9).

Owns which TopicPartitions an event is of: a line that names none is of those that its worker owned then. A log that
ends without saying that the worker stopped is an event, too: nothing else tells of a worker that was killed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

import msgspec

from service.formats.model import TopicPartition


class EventKind(StrEnum):
    """The lines that matter here by their names, and one event that no line says."""

    STARTED = "worker_started"
    ASSIGNED = "partitions_assigned"
    REVOKED = "partitions_revoked"
    LOST = "partitions_lost"
    COMMITTED = "flush_committed"
    DISCARDED = "batch_discarded"
    REWOUND = "rewound"
    REPEATED = "commit_repeated"
    GAPS = "offset_gaps"
    FAILED = "worker_failed"
    STOPPED = "worker_stopped"
    SILENT = "log_ended"


REBALANCES = frozenset({EventKind.ASSIGNED, EventKind.REVOKED, EventKind.LOST})
_KINDS = {kind.value: kind for kind in EventKind if kind is not EventKind.SILENT}
_GIVEN_UP = (EventKind.REVOKED, EventKind.LOST)
_OF_THE_WORKER = (EventKind.STARTED, EventKind.DISCARDED, EventKind.REPEATED, EventKind.FAILED, EventKind.STOPPED)
_ENDS = (EventKind.STOPPED, EventKind.FAILED)


class Event(NamedTuple):
    """One event of one boot of a worker; `ranges` has [first, next) of what a commit covers."""

    at_ms: int
    kind: EventKind
    worker: str
    boot: str
    seq: int
    topic_partitions: frozenset[TopicPartition]
    text: str
    batch_id: str | None = None
    reason: str = ""
    ranges: tuple[tuple[TopicPartition, int, int], ...] = ()


class Log(NamedTuple):
    """What was read of all logs: events by time, and how many lines were none of a worker's."""

    events: list[Event]
    lines: int = 0
    unread: int = 0


class _Head(msgspec.Struct):
    """What every line of a worker has."""

    event: str
    ts: datetime
    worker: str
    boot: str
    seq: int


class _Line(_Head):
    """What lines of the kinds above have besides, each some of it."""

    topic_partitions: list[str] = []
    start_offsets: dict[str, list[int | str | None]] = {}
    offsets: dict[str, dict[str, int | None]] = {}
    batch_id: str | None = None
    reason: str | None = None
    generation: int | None = None
    cause: str | None = None
    outcome: str | None = None
    message: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    first_offset: int | None = None
    entries: int | None = None
    gaps: int | None = None
    first: list[list[int]] = []


_head = msgspec.json.Decoder(_Head)
_line = msgspec.json.Decoder(_Line)


def read_log(lines: Iterable[bytes]) -> Log:
    """Read the lines of any number of logs, in any order; what stands before the JSON of a line is ignored."""
    known: list[_Line] = []
    last: dict[tuple[str, str], _Head] = {}
    read = unread = 0
    for raw in filter(bytes.strip, lines):
        text = raw[raw.find(b"{") :] if b"{" in raw else b""
        read += 1
        try:
            head = _head.decode(text)
            if head.event in _KINDS:
                known.append(_line.decode(text))
        except msgspec.DecodeError:
            unread += 1
            continue
        of_boot = (head.worker, head.boot)
        if of_boot not in last or last[of_boot].seq < head.seq:
            last[of_boot] = head
    events = [*_events(known, last)]
    return Log(sorted(events, key=lambda one: (one.at_ms, one.worker, one.boot, one.seq)), read, unread)


def _events(lines: list[_Line], last: dict[tuple[str, str], _Head]) -> Iterator[Event]:
    """Follow who owns what through each boot."""
    owned: dict[tuple[str, str], set[TopicPartition]] = {of_boot: set() for of_boot in last}
    ended: set[tuple[str, str]] = set()
    for line in sorted(lines, key=lambda one: (one.worker, one.boot, one.seq)):
        of_boot = (line.worker, line.boot)
        kind = _KINDS[line.event]
        held = owned[of_boot]
        if kind is EventKind.ASSIGNED:
            held |= _parsed(line.start_offsets)
        yield _event(line, kind, frozenset(held if kind in _OF_THE_WORKER else _named(line, kind)))
        if kind in _GIVEN_UP:
            held -= _parsed(line.topic_partitions)
        if kind in _ENDS:
            ended.add(of_boot)
    for of_boot, head in last.items():
        if of_boot not in ended:
            text = f"its log ends here, after {head.event}, without saying that the worker stopped"
            tps = frozenset(owned[of_boot])
            yield Event(_ms(head.ts), EventKind.SILENT, head.worker, head.boot, head.seq + 1, tps, text)


def _named(line: _Line, kind: EventKind) -> set[TopicPartition]:
    """Give the TopicPartitions that a line names."""
    if line.topic is not None and line.partition is not None:
        return {TopicPartition(line.topic, line.partition)}
    if kind is EventKind.ASSIGNED:
        return _parsed(line.start_offsets)
    return _parsed(line.offsets if kind is EventKind.COMMITTED else line.topic_partitions)


def _parsed(names: Iterable[str]) -> set[TopicPartition]:
    parts = (name.rpartition("-") for name in names)
    return {TopicPartition(topic, int(number)) for topic, _, number in parts if number.isdecimal()}


def _event(line: _Line, kind: EventKind, tps: frozenset[TopicPartition]) -> Event:
    return Event(
        at_ms=_ms(line.ts),
        kind=kind,
        worker=line.worker,
        boot=line.boot,
        seq=line.seq,
        topic_partitions=tps,
        text=_text(line, kind),
        batch_id=line.batch_id,
        reason=line.reason or "",
        ranges=tuple(_ranges(line)) if kind is EventKind.COMMITTED else (),
    )


def _ranges(line: _Line) -> Iterator[tuple[TopicPartition, int, int]]:
    for name, span in sorted(line.offsets.items()):
        first, end = span.get("first_offset"), span.get("next_offset")
        if first is not None and end is not None:
            yield from ((tp, first, end) for tp in _parsed([name]))


def _text(line: _Line, kind: EventKind) -> str:
    """Say what the line says, beyond kind, worker and TopicPartitions."""
    match kind:
        case EventKind.ASSIGNED:
            starts = (f"{name} from {span[0]}" for name, span in sorted(line.start_offsets.items()) if span)
            return f"generation {line.generation}: {', '.join(starts) or 'nothing'}"
        case EventKind.REVOKED | EventKind.LOST:
            return f"generation {line.generation}: {', '.join(line.topic_partitions) or 'nothing'}"
        case EventKind.DISCARDED:
            why = ", ".join(filter(None, [line.cause, line.message]))
            return f"outcome {line.outcome}, flush for {line.reason or 'none'}: {why}"
        case EventKind.REWOUND:
            return f"to {line.offset}, its batch began at {line.first_offset}"
        case EventKind.GAPS:
            holes = ", ".join(f"[{hole[0]}, {hole[1]})" for hole in line.first if len(hole) > 1)
            return f"{line.gaps} holes: {holes}"
        case EventKind.COMMITTED:
            return f"{line.entries} entries, {line.reason}"
        case _:
            return ", ".join(filter(None, [line.cause, line.message]))


def _ms(moment: datetime) -> int:
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
