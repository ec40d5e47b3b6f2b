"""Findings -> the reader's view of them: facts; commits and events around them in the order of time."""

from __future__ import annotations

from typing import NamedTuple

from log_partitioner.formats import log_events
from log_partitioner.formats.log_events import LogEvent
from log_partitioner_pipeline.audit.result import Example
from log_partitioner_pipeline.report import words
from log_partitioner_pipeline.report.beside import Range
from log_partitioner_pipeline.report.events import Event, LogEnded
from log_partitioner_pipeline.report.handled import Commit

_NAMES: dict[type[LogEvent], str] = {
    log_events.WorkerStarted: "worker started",
    log_events.PartitionsAssigned: "assigned",
    log_events.PartitionsRevoked: "revoked",
    log_events.PartitionsLost: "lost",
    log_events.BatchCommitted: "committed",
    log_events.BatchDiscarded: "batch discarded",
    log_events.Positioned: "positioned",
    log_events.CommitRepeated: "commit repeated",
    log_events.OffsetGaps: "holes in offsets",
    log_events.WorkerFailed: "worker failed",
    log_events.WorkerStopped: "worker stopped",
    log_events.WorkerLeft: "worker left",
    LogEnded: "log ends",
}


class Moment(NamedTuple):
    """One line: a time, its distance from the time at which the findings were handled, and the event.

    `look` is commit, covering, event, none (that something is not there) or note.
    """

    at_ms: int | None
    look: str
    title: str
    text: str
    apart: str


def moments_of(one: Range) -> list[Moment]:
    """Return commits and events near a range of findings in the order of time, and the parts that no commit covers."""
    handled, events = one.handled, one.events
    moments = [_commit(commit, one, "covering") for commit in handled.covering]
    moments += [_commit(commit, one, "commit") for commit in (handled.before, handled.after) if commit is not None]
    if one.tp is not None and not handled.covering and (handled.before or handled.after):
        after_ms = None if handled.after is None else handled.after.ended_at_ms
        moments.append(Moment(after_ms, "none", "no commit covers these offsets", "", ""))
    moments += [_event(event, one) for event in (*events.before, *events.during, *events.after)]
    if events.between > len(events.during):
        text = f"{len(events.during)} of {events.between} events between these commits are shown"
        moments.append(Moment(events.during[0].at_ms, "note", "", text, ""))
    return sorted(moments, key=_order)


def facts_of(one: Example) -> list[tuple[str, str]]:
    """Return the known facts of a finding beside its place and text, each with its name."""
    known = {
        "user": one.user,
        "date": one.date,
        "hour": None if one.hour is None else f"{one.hour:02}",
        "id": one.id,
        "record of": None if one.timestamp_ms is None else words.precise(one.timestamp_ms),
        "object": one.object,
        "reference": one.reference_id,
        "batch": one.batch_id,
        "worker": one.worker,
    }
    return [(name, value) for name, value in known.items() if value is not None]


def _order(moment: Moment) -> tuple[bool, int, bool]:
    """Order moments by time, those without a time last; a missing thing comes before anything else of its moment."""
    return moment.at_ms is None, moment.at_ms or 0, moment.look not in ("none", "note")


def _commit(commit: Commit, one: Range, look: str) -> Moment:
    text = f"[{commit.first_offset}, {commit.next_offset}) by {commit.worker}, batch {commit.batch_id}"
    if commit.logged_only:
        text += "; only a log tells of it"
    title = f"committed ({commit.reason or 'no reason'})"
    return Moment(commit.ended_at_ms, look, title, text, _apart(commit.ended_at_ms, one))


def _event(event: Event, one: Range) -> Moment:
    text = f"{event.worker}: {event.text}" if event.text else event.worker
    return Moment(event.at_ms, "event", _NAMES[type(event.told)], text, _apart(event.at_ms, one))


def _apart(at_ms: int, one: Range) -> str:
    if one.at_ms is None or at_ms == one.at_ms:
        return ""
    return f"{words.seconds(abs(at_ms - one.at_ms))} {'before' if at_ms < one.at_ms else 'after'}"
