"""Common form of all axes: time along, counts up, legends above; numbers and instants as matplotlib takes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from log_partitioner_pipeline.report import words
from log_partitioner_pipeline.report.svg import Shape

_LOG_FROM = 20
_MARKS_MAX = 7


class Scale(NamedTuple):
    """Units of amounts, the largest first, and amounts that are whole in some unit."""

    units: tuple[tuple[float, str], ...]
    marks: tuple[float, ...]
    write: Callable[[float], str]

    def unit_of(self, high: float) -> tuple[float, str]:
        """Return the largest unit of which there are at least two."""
        return next((one for one in self.units if high >= one[0] * 2), self.units[-1])


_NOTHING = re.compile(r"\.0(?= )| 0 \w+$")
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86_400.0
_PER_DECADE = (1, 2, 5, 10, 20, 50, 100, 200, 500)
TIMES = Scale(
    units=((_DAY, "days"), (_HOUR, "hours"), (_MINUTE, "minutes"), (1.0, "seconds")),
    marks=(
        *(one / 1000 for one in _PER_DECADE),
        *(one * unit for unit in (1.0, _MINUTE) for one in (1, 2, 5, 10, 20, 30)),
        *(one * _HOUR for one in (1, 2, 5, 12)),
        *(one * _DAY for one in (*_PER_DECADE, 1000, 2000, 5000, 10_000, 20_000)),
    ),
    write=lambda value: _NOTHING.sub("", words.seconds(value * 1000)),
)
SIZES = Scale(
    units=tuple((float(1 << 10 * nth), words.SIZES[nth]) for nth in (4, 3, 2, 1, 0)),
    marks=tuple(float(one << 10 * nth) for nth in range(5) for one in _PER_DECADE),
    write=lambda value: _NOTHING.sub("", words.size(round(value))),
)


def over_time(axes: Axes, shape: Shape) -> None:
    """Write instants below."""
    locator = AutoDateLocator(minticks=2, maxticks=shape.ticks, tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]


def counted(axes: Axes, label: str) -> None:
    """Count upwards from 0, in whole numbers."""
    axes.set_ylabel(label)
    axes.set_ylim(0, axes.dataLim.y1 * 1.06 if axes.dataLim.y1 > 0 else 1)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10], integer=True, min_n_ticks=2))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))


def amounts(axes: Axes, scale: Scale, low: float, high: float) -> float:
    """Prepare an axis for values from low to high; returns the unit by which to divide them.

    Amounts far apart get a logarithmic axis, with whole amounts written at it.
    """
    if low > 0 and high > _LOG_FROM * low:
        axes.set_yscale("log")
        axes.set_ylim(low / 1.3, high * 1.3)
        marks = [mark for mark in scale.marks if low / 1.3 <= mark <= high * 1.3]
        marks = marks[:: len(marks) // _MARKS_MAX + 1]
        axes.set_yticks(marks, [scale.write(mark) for mark in marks])
        axes.yaxis.set_minor_locator(NullLocator())
        return 1.0
    unit, label = scale.unit_of(high)
    axes.set_ylabel(label)
    axes.set_ylim(min(0, low) / unit, max(0, high) / unit * 1.1 or 1)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    return unit


def legend(figure: Figure, columns: int) -> None:
    """Explain the marks, above all axes."""
    figure.legend(loc="outside upper left", ncols=columns)


def date(at_ms: int) -> float:
    """Return an instant as a number on a time axis."""
    return float(date2num(datetime.fromtimestamp(at_ms / 1000, UTC)))  # type: ignore[no-untyped-call]


def dates(moments_ms: Sequence[int]) -> list[float]:
    """Return instants as numbers on a time axis."""
    return [date(at_ms) for at_ms in moments_ms]


def short(value: float) -> str:
    """Write a number of an axis in few characters; nothing below 0."""
    for unit, name in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:,g}" if value >= 0 else ""
