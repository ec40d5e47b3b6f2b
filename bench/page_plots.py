"""The plots of docs/PERFORMANCE.md, as SVG; equal figures make equal files."""

import statistics
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from bench.figures import Book
from bench.worker import RATE, number

NAMES = {
    "fast": "worker, fast lane",
    "python": "worker, Python alone",
    "obvious": "the obvious program",
    "spark": "Spark, to S3",
    "flink": "Flink, to local disk",
}
PLOTS = {"cost.svg": "CPU of an entry of A, as multiples of F", "rate.svg": "entries per second on A"}
_COLOURS = {"fast": "#1b7837", "python": "#7fbf7b"}
_OTHERS = "#999999"


def draw(book: Book, directory: Path) -> None:
    """Draw the measurements of A: medians, and the range of all rounds."""
    directory.mkdir(parents=True, exist_ok=True)
    systems = [system for system in NAMES if book.times_f("A", system)]
    if not systems:
        return
    cost = {system: book.times_f("A", system) for system in systems}
    rate = {system: book.values("A", system, RATE) for system in systems}
    for (name, label), values in zip(PLOTS.items(), (cost, rate), strict=True):
        with mpl.rc_context({"svg.hashsalt": "log-partitioner", "svg.fonttype": "none", "font.size": 9}):
            _bars(values, label).savefig(directory / name, metadata={"Date": None}, bbox_inches="tight")


def _bars(values: dict[str, list[float]], label: str) -> Figure:
    figure = Figure(figsize=(7, 0.4 * len(values) + 0.8))
    axes = figure.subplots()
    medians = [statistics.median(several) for several in values.values()]
    ranges = [
        [middle - min(several) for middle, several in zip(medians, values.values(), strict=True)],
        [max(several) - middle for middle, several in zip(medians, values.values(), strict=True)],
    ]
    places = range(len(values))
    axes.barh(
        places, medians, xerr=ranges, color=[_COLOURS.get(system, _OTHERS) for system in values], error_kw={"lw": 1}
    )
    axes.set_yticks(places, [NAMES[system] for system in values])
    axes.invert_yaxis()
    axes.set_xlabel(label)
    axes.spines[["top", "right"]].set_visible(False)
    for place, middle, several in zip(places, medians, values.values(), strict=True):
        axes.annotate(number(middle), (max(several), place), (4, 0), textcoords="offset points", va="center")
    return figure
