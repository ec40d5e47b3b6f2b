"""The plot of findings beside what the workers did: one lane per kind of finding, commit and event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline.audit.result import Flush, Kind
from pipeline.report import words
from pipeline.report.axes import date, over_time
from pipeline.report.beside import Range
from pipeline.report.events import REBALANCES, Event, EventKind
from pipeline.report.series import has_date
from pipeline.report.svg import MUTED, SERIES, Plot, Shape, plot

_BLUE, _ORANGE, _GREEN, _RED, _SKY, _PURPLE, _YELLOW, _GREY = SERIES
_AT_REBALANCES = ("assigned", "revoked", "stopping")
_AROUND = 0.06
_AROUND_MS_MIN = 5000
_MARKS_MAX = 1000
_LINES_MAX = 60
_LANE_IN = 0.24
_LINE_FROM = 8
_TITLE = "When findings were handled, and what the workers did then"
_TEXT = (
    "When the offsets of findings were handled: from the commit before them to the one that covers them or comes "
    "after, as a line where that took long; UTC by the workers' clocks. Dotted lines are rebalances. Findings are "
    "those that the result has as examples."
)
# name, kinds of events, marker, colour
_EVENT_LANES = (
    ("assigned", {EventKind.ASSIGNED}, ">", _GREEN),
    ("revoked", {EventKind.REVOKED}, "<", _ORANGE),
    ("lost", {EventKind.LOST}, "X", _RED),
    ("discarded", {EventKind.DISCARDED}, "v", _PURPLE),
    ("rewound", {EventKind.REWOUND}, "4", _BLUE),
    ("holes in offsets", {EventKind.GAPS}, "_", _GREY),
    ("worker started", {EventKind.STARTED}, "o", _SKY),
    ("stopped, failed, silent", {EventKind.STOPPED, EventKind.FAILED, EventKind.SILENT}, "s", _GREY),
)


class _Lane(NamedTuple):
    name: str
    marker: str
    colour: str
    spans_ms: list[tuple[int, int]]


def timeline(ranges: Sequence[Range], flushes: Sequence[Flush], events: Sequence[Event]) -> Plot | None:
    """Plot the ranges that have a time; None: there is none with one."""
    spans: dict[Kind, list[tuple[int, int]]] = {kind: [] for kind in dict.fromkeys(one.kind for one in ranges)}
    for one in ranges:
        if one.at_ms is not None and has_date(one.at_ms):
            begin_ms = one.handled.begin_ms
            has_begin = begin_ms is not None and has_date(begin_ms)
            spans[one.kind].append((min(begin_ms, one.at_ms) if has_begin and begin_ms else one.at_ms, one.at_ms))
    lanes = [_Lane(words.kind_name(kind), "D", _RED, of_it) for kind, of_it in spans.items() if of_it]
    if not lanes:
        return None
    first = min(begin for lane in lanes for begin, _ in lane.spans_ms)
    last = max(end for lane in lanes for _, end in lane.spans_ms)
    around = max(round((last - first) * _AROUND), _AROUND_MS_MIN)
    first, last = first - around, last + around
    ended = [flush for flush in flushes if first <= flush.ended_at_ms <= last]
    near = [event for event in events if first <= event.at_ms <= last]
    lanes += _commit_lanes(ended) + _event_lanes(near)

    def draw(figure: Figure, shape: Shape) -> None:
        axes = figure.subplots()
        for event in [one for one in near if one.kind in REBALANCES][:_LINES_MAX]:
            axes.axvline(date(event.at_ms), color=MUTED, linewidth=0.7, linestyle=":", zorder=1)
        for nth, lane in enumerate(lanes):
            _draw_lane(axes, nth, lane, (last - first) / _MARKS_MAX)
        axes.set_yticks(range(len(lanes)), [lane.name for lane in lanes])
        axes.set_ylim(len(lanes) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.set_xlim(date(first), date(last))
        over_time(axes, shape)

    return plot("timeline", _TITLE, _TEXT, height_in=0.9 + _LANE_IN * len(lanes), draw=draw)


def _commit_lanes(flushes: Sequence[Flush]) -> list[_Lane]:
    def ends(*, at_rebalances: bool) -> list[tuple[int, int]]:
        return [
            (flush.ended_at_ms, flush.ended_at_ms)
            for flush in flushes
            if (flush.reason in _AT_REBALANCES) is at_rebalances
        ]

    lanes = [
        _Lane("committed", "|", _BLUE, ends(at_rebalances=False)),
        _Lane("committed, rebalance or stop", "|", _ORANGE, ends(at_rebalances=True)),
    ]
    return [lane for lane in lanes if lane.spans_ms]


def _event_lanes(events: Sequence[Event]) -> list[_Lane]:
    lanes = [
        _Lane(name, marker, colour, [(event.at_ms, event.at_ms) for event in events if event.kind in kinds])
        for name, kinds, marker, colour in _EVENT_LANES
    ]
    return [lane for lane in lanes if lane.spans_ms]


def _draw_lane(axes: Axes, nth: int, lane: _Lane, apart_ms: float) -> None:
    """Draw marks, those that would cover each other once, and lines where spans are longer than a mark."""
    shown = {round(end / apart_ms): (begin, end) for begin, end in lane.spans_ms}.values()
    lines: list[float] = []
    for begin, end in shown:
        if end - begin > _LINE_FROM * apart_ms:
            lines += [date(begin), date(end), float("nan")]
    axes.plot(lines, [nth] * len(lines), color=lane.colour, linewidth=2, alpha=0.5, zorder=2)
    at = [date(end) for _, end in shown]
    size = 7 if lane.marker == "|" else 5.5
    axes.plot(at, [nth] * len(at), lane.marker, color=lane.colour, markersize=size, markeredgewidth=1.4, zorder=3)
