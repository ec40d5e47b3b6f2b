"""Series -> plots; a line or a filling repeats whatever a colour tells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from log_partitioner_pipeline.audit.result import Verdict
from log_partitioner_pipeline.report import series, words
from log_partitioner_pipeline.report.axes import SIZES, TIMES, Scale, amounts, counted, dates, legend, over_time
from log_partitioner_pipeline.report.series import Audited, Steps
from log_partitioner_pipeline.report.svg import INK, MUTED, PAPER, SERIES, Plot, Shape, plot

Look = tuple[str, str]
"""Colour and hatch."""
Numbers = np.ndarray[Any, np.dtype[np.float64]]

_BLUE, _ORANGE, _GREEN, _RED, _SKY, _PURPLE, _YELLOW, _GREY = SERIES
_LOOKS_OF = {
    "missing": (_RED, ""),
    "duplicated": (_PURPLE, "////"),
    "misplaced": (_BLUE, "\\\\\\\\"),
    series.OTHERS: (_GREY, ""),
}
_LOOKS = ((_ORANGE, ""), (_GREEN, "////"), (_SKY, ""), (_YELLOW, "////"), (_BLUE, "----"), (_RED, "xxxx"))
_VERDICTS = {Verdict.CLEAN: ("o", _GREEN), Verdict.FINDINGS: ("X", _RED), Verdict.COULD_NOT_TELL: ("d", _ORANGE)}
# name, line, colour, width
_PERCENTILES = (("max", ":", MUTED, 1.2), ("p99", "--", _ORANGE, 1.6), ("p50", "-", _BLUE, 2.0))
_BARS_MIN = 8
_DAY_H = 24


def entries(steps: Steps) -> Plot:
    """Plot source against output, and missing or duplicated entries below, if there are any."""
    wrong = [name for name in ("missing", "duplicated") if steps.has(name)]

    def draw(figure: Figure, shape: Shape) -> None:
        heights = [3, 1] if wrong else [1]
        rows = figure.subplots(len(heights), sharex=True, height_ratios=heights, squeeze=False)[:, 0]
        edges = dates(steps.edges_ms)
        stacked = {"in files": _of(steps, "files"), "in dead letters": _of(steps, "dead letters")}
        _stack(rows[0], edges, stacked, ((_BLUE, ""), (_ORANGE, "////")))
        source = _of(steps, "source")
        rows[0].stairs(source, edges, baseline=None, color=INK, linewidth=1.4, label="in the source")
        counted(rows[0], "entries")
        if wrong:
            _stack(rows[1], edges, {name: _of(steps, name) for name in wrong}, _looks_of(wrong))
            counted(rows[1], "findings")
        over_time(rows[-1], shape)
        legend(figure, shape.columns)

    text = (
        "By the Kafka timestamps of their records, UTC. The line is what the source has; where it stands above the "
        "areas, entries are in neither files nor dead letters."
    )
    title = f"Entries per {_step(steps)}, source and output"
    return plot("entries", title, _with_left_out(text, steps), height_in=3.6, draw=draw)


def lag(steps: Steps) -> Plot:
    """Plot how long records waited."""

    def draw(figure: Figure, shape: Shape) -> None:
        axes = figure.subplots()
        _percentiles(axes, steps, TIMES)
        over_time(axes, shape)
        legend(figure, shape.columns)

    text = "From a record's Kafka timestamp to the end of the flush that covers it, by hour of the timestamp, UTC."
    return plot("lag", f"Delivery lag per {_step(steps)}", _with_left_out(text, steps), height_in=2.8, draw=draw)


def files(counts: Steps, sizes: Steps | None) -> Plot:
    """Plot files, their bytes together, and their sizes, if these are known."""

    def draw(figure: Figure, shape: Shape) -> None:
        rows = figure.subplots(2 if sizes is None else 3, sharex=True)
        edges = dates(counts.edges_ms)
        titles = ("files", "bytes of all together", "bytes of one file")
        together = _of(counts, "bytes")
        unit, label = SIZES.unit_of(float(together.max()))
        for axes, values, colour, title in (
            (rows[0], _of(counts, "files"), _BLUE, titles[0]),
            (rows[1], together / unit, _GREEN, titles[1]),
        ):
            axes.stairs(values, edges, fill=True, color=colour)
            axes.set_title(title)
            counted(axes, "")
        rows[1].set_ylabel(label)
        if sizes is not None:
            _percentiles(rows[2], sizes, SIZES)
            rows[2].set_title(titles[2])
            figure.legend(loc="outside lower left", ncols=shape.columns)
        over_time(rows[-1], shape)

    text = "Files that references of this hour name, by date and hour of event time in the worker's partition zone."
    height_in = 3.4 if sizes is None else 5.2
    title = f"Files per {_step(counts)} of event time"
    return plot("files", title, _with_left_out(text, counts), height_in=height_in, draw=draw)


def findings(steps: Steps) -> Plot:
    """Plot findings by kind in the hours to which they belong."""

    def draw(figure: Figure, shape: Shape) -> None:
        axes = figure.subplots()
        stacked = {words.kind_name(name): _of(steps, name) for name in steps.values}
        _stack(axes, dates(steps.edges_ms), stacked, _looks_of(steps.values))
        counted(axes, "findings")
        over_time(axes, shape)
        legend(figure, shape.columns)

    text = "All findings of what belongs to an hour, by date and hour of event time in the worker's partition zone."
    title = f"Findings per {_step(steps)} of event time"
    return plot("findings", title, _with_left_out(text, steps), height_in=3.0, draw=draw)


def over_audits(audited: Sequence[Audited]) -> Plot:
    """Plot findings of one audit after the other, and what each came to."""
    names = series.frequent([one.findings for one in audited])

    def draw(figure: Figure, shape: Shape) -> None:
        axes = figure.subplots()
        at, base = np.arange(len(audited)), np.zeros(len(audited))
        for name, (colour, hatch) in zip(names, _looks_of(names), strict=True):
            up = np.array([one.findings.get(name, 0) for one in audited], dtype=np.float64)
            label = words.kind_name(name)
            axes.bar(at, up, bottom=base, color=colour, hatch=hatch, edgecolor=PAPER, linewidth=0, label=label)
            base += up
        top = float(base.max()) or 1.0
        for verdict, (marker, colour) in _VERDICTS.items():
            of_it = [nth for nth, one in enumerate(audited) if one.verdict is verdict]
            label = f"audit: {words.verdict_title(verdict).lower()}"
            if of_it:
                axes.plot(of_it, [-0.1 * top] * len(of_it), marker, color=colour, markersize=6, label=label)
        counted(axes, "findings")
        axes.set_ylim(-0.2 * top, top * 1.08)
        ticks = _spread(len(audited), max(3, shape.ticks - 2))
        axes.set_xticks(ticks, [words.moment(audited[nth].started_at_ms)[5:16] for nth in ticks])
        axes.set_xlim(-0.6, max(len(audited), _BARS_MIN) - 0.4)
        legend(figure, max(2, shape.columns - 2))

    text = "One bar per audit, the oldest on the left; the mark below it says what the audit came to."
    return plot("audits", "Findings of one audit after the other", text, height_in=3.0, draw=draw)


def _looks_of(kinds: Iterable[str]) -> list[Look]:
    """Return each kind its colour and filling: the frequent ones their own, the others what is left."""
    left = iter(_LOOKS)
    return [_LOOKS_OF.get(kind) or next(left) for kind in kinds]


def _stack(axes: Axes, edges: list[float], stacked: dict[str, Numbers], looks: Sequence[Look]) -> None:
    base = np.zeros(len(edges) - 1)
    for (name, values), (colour, hatch) in zip(stacked.items(), looks, strict=True):
        up = base + values
        axes.stairs(up, edges, baseline=base, fill=True, fc=colour, hatch=hatch, ec=PAPER, lw=0, label=name)
        base = up


def _percentiles(axes: Axes, steps: Steps, scale: Scale) -> None:
    known = [value for name, *_ in _PERCENTILES for value in steps.values[name] if value is not None]
    unit = amounts(axes, scale, min(known), max(known))
    edges = dates(steps.edges_ms)
    for name, line, colour, width in _PERCENTILES:
        values = np.array([np.nan if value is None else value / unit for value in steps.values[name]])
        axes.stairs(values, edges, baseline=None, color=colour, linestyle=line, linewidth=width, label=name)


def _of(steps: Steps, name: str) -> Numbers:
    return np.array([value or 0 for value in steps.values[name]], dtype=np.float64)


def _with_left_out(text: str, steps: Steps) -> str:
    if not steps.left_out:
        return text
    return f"{text} {words.plural(steps.left_out, 'hour', 'hours')} too far from these stand in the tables only."


def _step(steps: Steps) -> str:
    hours = steps.width_ms // series.HOUR_MS
    if hours % _DAY_H == 0:
        return "day" if hours == _DAY_H else f"{hours // _DAY_H} days"
    return "hour" if hours == 1 else f"{hours} hours"


def _spread(count: int, most: int) -> list[int]:
    if count <= most:
        return list(range(count))
    return [round(nth * (count - 1) / (most - 1)) for nth in range(most)]
