"""Results -> plots as SVG that stands inside a page; the only user of matplotlib.

The same result yields the same bytes, no two plots share an id, and a line or a hatch repeats what a colour tells.
Many hours become fewer, wider steps. Hours far from the rest (entries from 1970 are real) are left out and counted.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.dates import date2num
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from log_partitioner_pipeline.audit.result import Hour, RecordHour, Result, Verdict
from log_partitioner_pipeline.report import words

STEPS_MAX = 400
_HOUR_MS = 3_600_000
_SPARSE = 10
_NEAR_MS = 31 * 24 * _HOUR_MS
_PLOTTED_MS = tuple(round(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 1000 for year in (1900, 2200))
_LAGS_S = {0: "0", 1: "1 s", 10: "10 s", 60: "1 min", 600: "10 min", 3600: "1 h", 36_000: "10 h", 360_000: "100 h"}

_BLUE, _ORANGE, _GREEN, _RED, _PURPLE, _GREY = "#0072b2", "#c27a00", "#00855f", "#c2410c", "#a3498a", "#6b7280"
_LOOKS = ((_RED, ""), (_PURPLE, "////"), (_BLUE, "\\\\\\\\"), (_ORANGE, ""), (_GREEN, "----"), (_GREY, "xxxx"))
_VERDICTS = {Verdict.CLEAN: ("o", _GREEN), Verdict.FINDINGS: ("X", _RED), Verdict.COULD_NOT_TELL: ("d", _ORANGE)}
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "log-partitioner",
    "text.parse_math": False,
    "timezone": "UTC",
    "date.converter": "concise",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "figure.figsize": (8, 2.8),
    "figure.constrained_layout.use": True,
    "legend.frameon": False,
    "hatch.linewidth": 0.6,
}
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))

Numbers = np.ndarray[Any, np.dtype[Any]]


class Plot(NamedTuple):
    """One plot; `text` says what is plotted, for those who do not see it, too."""

    name: str
    title: str
    text: str
    svg: Markup


class Steps:
    """Steps of equal width from the first hour to the last, without hours far from most of the data.

    `weights` tell where that is; `edges_ms` are one more than there are steps.
    """

    def __init__(self, at_ms: Sequence[int], weights: Sequence[int]) -> None:
        at, order = np.array(at_ms), np.argsort(at_ms)
        reached = np.cumsum(np.array(weights, float)[order])
        middle = at[order][np.searchsorted(reached, reached[-1] / 2)]
        is_sparse = np.ptp(at) > _HOUR_MS * max(_SPARSE * len(at), STEPS_MAX)
        self._kept = (np.abs(at - middle) <= _NEAR_MS) | (not is_sparse)
        self.left_out = int(np.count_nonzero(~self._kept))
        at = at[self._kept]
        self.hours = int(np.ptp(at) // (_HOUR_MS * STEPS_MAX)) + 1
        self._nth = (at - at.min()) // (_HOUR_MS * self.hours)
        self.edges_ms = at.min() + _HOUR_MS * self.hours * np.arange(self._nth.max() + 2)

    def sums(self, values: Sequence[int]) -> Numbers:
        """Return the sum of each step's hours."""
        return np.bincount(self._nth, np.array(values)[self._kept])

    def worst(self, values: Sequence[float]) -> Numbers:
        """Return the highest value of each step's hours; nan if it has none."""
        worst = np.full(len(self.edges_ms) - 1, np.nan)
        np.fmax.at(worst, self._nth, np.array(values)[self._kept])
        return worst

    def __str__(self) -> str:
        return "hour" if self.hours == 1 else f"{self.hours} hours"


def plots_of(result: Result, audits: Sequence[Result]) -> dict[str, Plot]:
    """Draw what can be drawn of a result and of `audits`, the oldest first: entries, lag, findings, audits."""
    of_records = [(at_ms, one) for one in result.record_hours if (at_ms := _plotted(one.begins_ms)) is not None]
    of_lags = [(at_ms, one) for at_ms, one in of_records if one.lag_max_ms is not None]
    of_events = [(at_ms, one) for one in result.hours if (at_ms := _plotted(_begin_ms(one))) is not None]
    plots = []
    with mpl.rc_context(_STYLE):
        if of_records:
            plots.append(_entries(of_records))
        if of_lags:
            plots.append(_lag(of_lags))
        if any(hour.findings for _, hour in of_events):
            plots.append(_findings(of_events))
        if len(audits) > 1:
            plots.append(_audits(audits))
    return {plot.name: plot for plot in plots}


def _entries(hours: Sequence[tuple[int, RecordHour]]) -> Plot:
    steps = Steps([at_ms for at_ms, _ in hours], [hour.entries for _, hour in hours])
    figure = Figure()
    axes = figure.subplots()
    files, letters = [hour.in_files for _, hour in hours], [hour.in_dead_letters for _, hour in hours]
    _stack(axes, steps, [("in files", files), ("in dead letters", letters)], ((_BLUE, ""), (_ORANGE, "////")))
    source = steps.sums([hour.entries for _, hour in hours])
    axes.stairs(source, _dates(steps.edges_ms), baseline=None, color="black", label="in the source")
    _count(axes, "entries")
    text = (
        "By the Kafka timestamps of records, UTC. If the line of the source is above the areas, entries are in "
        "neither files nor dead letters."
    )
    return _plot("entries", f"Entries per {steps}: source, output", text, figure, steps)


def _lag(hours: Sequence[tuple[int, RecordHour]]) -> Plot:
    steps = Steps([at_ms for at_ms, _ in hours], [hour.records for _, hour in hours])
    figure = Figure()
    axes = figure.subplots()
    middles = _dates((steps.edges_ms[:-1] + steps.edges_ms[1:]) / 2)
    for name, line, colour in (("max", "s:", _GREY), ("p99", "^--", _ORANGE), ("p50", "o-", _BLUE)):
        lags_s = steps.worst([(getattr(hour, f"lag_{name}_ms") or 0) / 1000 for _, hour in hours])
        axes.plot(middles, lags_s, line, color=colour, markersize=3, label=name)
    axes.set_yscale("symlog", linthresh=1)
    high_s = max(1.0, axes.dataLim.y1 * 1.5)
    axes.set_ylim(top=high_s)
    axes.set_yticks([mark for mark in _LAGS_S if mark <= high_s], [_LAGS_S[mark] for mark in _LAGS_S if mark <= high_s])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.xaxis_date()
    text = (
        "From a record's Kafka timestamp to the end of the flush that covers it, by the hour (UTC) of the timestamp; "
        "a wider step has its worst hour's."
    )
    return _plot("lag", f"Delivery lag per {steps}", text, figure, steps)


def _findings(hours: Sequence[tuple[int, Hour]]) -> Plot:
    steps = Steps([at_ms for at_ms, _ in hours], [sum(hour.findings.values()) for _, hour in hours])
    figure = Figure()
    axes = figure.subplots()
    _stack(axes, steps, _by_kind([hour.findings for _, hour in hours]), _LOOKS)
    _count(axes, "findings")
    text = "All findings of what belongs to an hour, by date and hour of event time in the worker's partition zone."
    return _plot("findings", f"Findings per {steps} of event time", text, figure, steps)


def _audits(audits: Sequence[Result]) -> Plot:
    figure = Figure()
    axes = figure.subplots()
    base = np.zeros(len(audits))
    by_kind = _by_kind([{str(one.kind): one.count for one in audit.findings} for audit in audits])
    for (name, counts), (colour, hatch) in zip(by_kind, _LOOKS, strict=False):
        look: Any = {"color": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0}
        axes.bar(range(len(audits)), counts, bottom=base, label=name, **look)
        base += counts
    below = -0.1 * (base.max() or 1)
    for verdict, (marker, colour) in _VERDICTS.items():
        if nths := [nth for nth, audit in enumerate(audits) if audit.verdict is verdict]:
            axes.plot(nths, [below] * len(nths), marker, color=colour, label=f"audit: {words.plain(verdict)}")
    _count(axes, "findings")
    axes.set_ylim(bottom=2 * below)
    marked = range(0, len(audits), len(audits) // 6 + 1)
    axes.set_xticks(marked, [words.moment(audits[nth].started_at_ms)[5:16] for nth in marked])
    text = "One bar per audit, the oldest on the left; the mark below it is the verdict."
    return _plot("audits", "Findings of one audit after the other", text, figure)


def _stack(
    axes: Axes, steps: Steps, named: Iterable[tuple[str, Sequence[int]]], looks: Sequence[tuple[str, str]]
) -> None:
    base = np.zeros(len(steps.edges_ms) - 1)
    for (name, counts), (colour, hatch) in zip(named, looks, strict=False):
        look: Any = {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0}
        up = base + steps.sums(counts)
        axes.stairs(up, _dates(steps.edges_ms), baseline=base, fill=True, label=name, **look)
        base = up
    axes.xaxis_date()


def _count(axes: Axes, label: str) -> None:
    axes.set_ylabel(label)
    axes.set_ylim(0, max(1, axes.dataLim.y1 * 1.06))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10], integer=True))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}" if value >= 0 else "")


def _plot(name: str, title: str, text: str, figure: Figure, steps: Steps | None = None) -> Plot:
    figure.legend(loc="outside upper left", ncols=5)
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata=_NO_METADATA)
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :].replace("<svg ", f'<svg role="img" aria-label="{escape(title)}" ', 1)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", re.sub("(?s)<style.*?</style>", "", svg))
    if steps and steps.left_out:
        text += f" {words.plural(steps.left_out, 'hour', 'hours')} too far from these: only in the tables."
    return Plot(name, title, text, Markup(svg))  # noqa: S704 - matplotlib escapes texts


def _by_kind(found: Sequence[Mapping[str, int]]) -> Iterator[tuple[str, list[int]]]:
    """Yield kinds in words with their counts, the most frequent first; all that are too many together as the last."""
    total = sum((Counter(one) for one in found), Counter[str]())
    kinds = sorted(total, key=lambda kind: (-total[kind], kind))
    named = kinds if len(kinds) <= len(_LOOKS) else kinds[: len(_LOOKS) - 1]
    for kind in named:
        yield words.plain(kind), [one.get(kind, 0) for one in found]
    if len(named) < len(kinds):
        yield "others", [sum(count for kind, count in one.items() if kind not in named) for one in found]


def _dates(moments_ms: Numbers) -> Numbers:
    return np.asarray(date2num(moments_ms.astype("datetime64[ms]")))  # type: ignore[no-untyped-call]


def _begin_ms(hour: Hour) -> int | None:
    """Return the begin of a date and hour, as if of UTC; None if it is no date."""
    try:
        return round(datetime.fromisoformat(hour.date).replace(hour=hour.hour, tzinfo=UTC).timestamp()) * 1000
    except ValueError:
        return None


def _plotted(at_ms: int | None) -> int | None:
    """Return an instant that a plot can show: wrong clocks and wrong references say anything."""
    return at_ms if at_ms is not None and _PLOTTED_MS[0] <= at_ms < _PLOTTED_MS[1] else None
