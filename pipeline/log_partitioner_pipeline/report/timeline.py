"""The plot of the workers' events, with findings beside them: one lane per kind of finding, commit and event."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from log_partitioner.formats import log_events
from log_partitioner.formats.findings import Kind
from log_partitioner_pipeline.audit.result import FlushSeen
from log_partitioner_pipeline.report import words
from log_partitioner_pipeline.report.axes import date, over_time
from log_partitioner_pipeline.report.beside import Range
from log_partitioner_pipeline.report.events import ENDS, REBALANCES, Event, LogEnded
from log_partitioner_pipeline.report.series import has_date
from log_partitioner_pipeline.report.svg import MUTED, SERIES, Plot, Shape, plot

_BLUE, _ORANGE, _GREEN, _RED, _SKY, _PURPLE, _YELLOW, _GREY = SERIES
_AT_REBALANCES = ("assigned", "revoked", "stopping")
_AROUND = 0.06
_AROUND_MS_MIN = 5000
_MARKS_MAX = 1000
_LINES_MAX = 60
_LANE_IN = 0.24
_LINE_FROM = 8
_WITH_FINDINGS = "When findings were handled, and what the workers did then"
_WITHOUT_FINDINGS = "What the workers did"
_TEXT = (
    "When the offsets of findings were handled: from the commit before them to the one that covers them or comes "
    "after, as a line where that took long. Findings are those that the result has as examples."
)
_LEGEND = "UTC by the workers' clocks; dotted lines are rebalances."
# name, kinds of events, marker, colour
_EVENT_LANES = (
    ("assigned", log_events.PartitionsAssigned, ">", _GREEN),
    ("revoked", log_events.PartitionsRevoked, "<", _ORANGE),
    ("lost", log_events.PartitionsLost, "X", _RED),
    ("discarded", log_events.BatchDiscarded, "v", _PURPLE),
    ("positioned", log_events.Positioned, "4", _BLUE),
    ("commit repeated", log_events.CommitRepeated, "^", _YELLOW),
    ("holes in offsets", log_events.OffsetGaps, "_", _GREY),
    ("worker started", log_events.WorkerStarted, "o", _SKY),
    ("stopped, failed, silent", (*ENDS, LogEnded), "s", _GREY),
)


class _Lane(NamedTuple):
    name: str
    marker: str
    colour: str
    spans_ms: list[tuple[int, int]]


def timeline(ranges: Sequence[Range], flushes: Sequence[FlushSeen], events: Sequence[Event]) -> Plot | None:
    """Plot ranges and the events near them, or all events if no range has a time; None: nothing was."""
    lanes = _finding_lanes(ranges)
    spans = [span for lane in lanes for span in lane.spans_ms]
    if not spans:
        ends = [flush.ended_at_ms for flush in flushes] + [event.at_ms for event in events]
        spans = [(at_ms, at_ms) for at_ms in ends if has_date(at_ms)]
    if not spans:
        return None
    first, last = min(begin for begin, _ in spans), max(end for _, end in spans)
    around = max(round((last - first) * _AROUND), _AROUND_MS_MIN)
    first, last = first - around, last + around
    near = [event for event in events if first <= event.at_ms <= last]
    title, text = (_WITH_FINDINGS if lanes else _WITHOUT_FINDINGS), (f"{_TEXT} {_LEGEND}" if lanes else _LEGEND)
    lanes += _commit_lanes([flush for flush in flushes if first <= flush.ended_at_ms <= last])
    lanes += _event_lanes(near, recorded={flush.batch_id for flush in flushes})

    def draw(figure: Figure, shape: Shape) -> None:
        axes = figure.subplots()
        for event in [one for one in near if isinstance(one.told, REBALANCES)][:_LINES_MAX]:
            axes.axvline(date(event.at_ms), color=MUTED, linewidth=0.7, linestyle=":", zorder=1)
        for nth, lane in enumerate(lanes):
            _draw_lane(axes, nth, lane, (last - first) / _MARKS_MAX)
        axes.set_yticks(range(len(lanes)), [lane.name for lane in lanes])
        axes.set_ylim(len(lanes) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.set_xlim(date(first), date(last))
        over_time(axes, shape)

    return plot("timeline", title, text, height_in=0.9 + _LANE_IN * len(lanes), draw=draw)


def _finding_lanes(ranges: Sequence[Range]) -> list[_Lane]:
    spans: dict[Kind, list[tuple[int, int]]] = {}
    for one in ranges:
        end_ms, begin_ms = one.at_ms, one.handled.begin_ms
        if end_ms is not None and has_date(end_ms):
            begins_before = begin_ms is not None and has_date(begin_ms) and begin_ms < end_ms
            spans.setdefault(one.kind, []).append((begin_ms if begins_before and begin_ms else end_ms, end_ms))
    return [_Lane(words.kind_name(kind), "D", _RED, of_it) for kind, of_it in spans.items()]


def _commit_lanes(flushes: Sequence[FlushSeen]) -> list[_Lane]:
    forced = [flush for flush in flushes if flush.reason in _AT_REBALANCES]
    others = [flush for flush in flushes if flush.reason not in _AT_REBALANCES]
    lanes = [
        _Lane("committed", "|", _BLUE, _instants(flush.ended_at_ms for flush in others)),
        _Lane("committed, rebalance or stop", "|", _ORANGE, _instants(flush.ended_at_ms for flush in forced)),
    ]
    return [lane for lane in lanes if lane.spans_ms]


def _event_lanes(events: Sequence[Event], *, recorded: set[str]) -> list[_Lane]:
    commits = ((one, one.told) for one in events)
    unrecorded = [
        one for one, told in commits if isinstance(told, log_events.BatchCommitted) and told.batch_id not in recorded
    ]
    lanes = [_Lane("committed, only in a log", "|", _GREY, _instants(event.at_ms for event in unrecorded))]
    lanes += [
        _Lane(name, marker, colour, _instants(event.at_ms for event in events if isinstance(event.told, kinds)))
        for name, kinds, marker, colour in _EVENT_LANES
    ]
    return [lane for lane in lanes if lane.spans_ms]


def _instants(moments_ms: Iterable[int]) -> list[tuple[int, int]]:
    return [(at_ms, at_ms) for at_ms in moments_ms]


def _draw_lane(axes: Axes, nth: int, lane: _Lane, apart_ms: float) -> None:
    """Draw marks, those that would cover each other once, and lines if spans are longer than a mark."""
    shown = {round(end / apart_ms): (begin, end) for begin, end in lane.spans_ms}.values()
    lines: list[float] = []
    for begin, end in shown:
        if end - begin > _LINE_FROM * apart_ms:
            lines += [date(begin), date(end), float("nan")]
    axes.plot(lines, [nth] * len(lines), color=lane.colour, linewidth=2, alpha=0.5, zorder=2)
    at = [date(end) for _, end in shown]
    size = 7 if lane.marker == "|" else 5.5
    axes.plot(at, [nth] * len(at), lane.marker, color=lane.colour, markersize=size, markeredgewidth=1.4, zorder=3)
