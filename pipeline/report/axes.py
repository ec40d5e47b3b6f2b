"""What axes have in common: time along, counts up, legends above; numbers and instants as matplotlib takes them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from pipeline.report.svg import Shape


def over_time(axes: Axes, shape: Shape) -> None:
    """Write instants below."""
    locator = AutoDateLocator(minticks=2, maxticks=shape.ticks, tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]


def counted(axes: Axes, label: str) -> None:
    """Count upwards from 0, in whole numbers."""
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10], integer=True, min_n_ticks=2))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))


def legend(figure: Figure, columns: int) -> None:
    """Explain what is drawn, above all axes."""
    figure.legend(loc="outside upper left", ncols=columns)


def date(at_ms: int) -> float:
    """Give an instant as a number on a time axis."""
    return float(date2num(datetime.fromtimestamp(at_ms / 1000, UTC)))  # type: ignore[no-untyped-call]


def dates(moments_ms: Sequence[int]) -> list[float]:
    """Give instants as numbers on a time axis."""
    return [date(at_ms) for at_ms in moments_ms]


def short(value: float) -> str:
    """Write a number of an axis in few characters; nothing below 0."""
    for unit, name in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:,g}" if value >= 0 else ""
