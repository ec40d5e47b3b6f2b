"""Figures -> SVG that stands inside a page; this and `plots` are the only users of matplotlib.

Owns three promises: the same figure yields the same bytes, no two figures share an id, and none names a colour or a
font. The page sets both by the class of each mark, so that a plot is legible in the dark as well.
"""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any, NamedTuple

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

# What is drawn in these is drawn in the page's variable of this name.
INK, MUTED, GRID, PAPER = "#01fe01", "#01fe02", "#01fe03", "#01fe04"
SERIES = tuple(f"#02fe{nth:02x}" for nth in range(1, 9))
_VARIABLES = {INK: "ink", MUTED: "muted", GRID: "grid", PAPER: "paper"} | {
    colour: f"series-{nth}" for nth, colour in enumerate(SERIES, start=1)
}
_SALT = "log-partitioner"
_FONT_PT = 9.5
_STYLE: dict[Any, object] = {
    "svg.fonttype": "none",
    "svg.hashsalt": _SALT,
    "font.size": _FONT_PT,
    "text.parse_math": False,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": GRID,
    "axes.facecolor": "none",
    "axes.titlesize": _FONT_PT,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "legend.frameon": False,
    "legend.fontsize": _FONT_PT,
    "legend.handlelength": 1.4,
    "legend.columnspacing": 1.4,
    "lines.linewidth": 1.6,
    "hatch.linewidth": 0.6,
    "figure.facecolor": "none",
    "timezone": "UTC",
}
_COLOUR = re.compile("|".join(_VARIABLES))
_FONT = re.compile(r"font-family: [^;]+;? ?")
_NOT_DRAWN = ("metadata", "style")  # what the style says is the page's to say
_SVG = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"

Draw = Callable[[Figure, "Shape"], None]


class Shape(NamedTuple):
    """The width of a figure, the columns that a legend may have, and the instants that a time axis may have."""

    width_in: float
    columns: int
    ticks: int


WIDE, NARROW = Shape(10.0, 6, 10), Shape(4.4, 2, 5)


class Plot(NamedTuple):
    """One plot in both widths; the page shows the one that fits."""

    name: str
    title: str
    text: str
    wide: Markup
    narrow: Markup


def plot(name: str, title: str, text: str, *, height_in: float, draw: Draw) -> Plot:
    """Draw a plot; `name` is unique in its page, `text` describes it to those who do not see it."""
    wide, narrow = (
        _drawn(f"{name}-{kind}", title, shape, height_in=height_in, draw=draw)
        for kind, shape in (("wide", WIDE), ("narrow", NARROW))
    )
    return Plot(name, title, text, wide, narrow)


def _drawn(name: str, title: str, shape: Shape, *, height_in: float, draw: Draw) -> Markup:
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(shape.width_in, height_in), layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure, shape)
        out = io.BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return Markup(_for_a_page(out.getvalue(), name, title))  # noqa: S704 - our own drawing; its texts are escaped


def _for_a_page(drawn: bytes, name: str, title: str) -> str:
    root = ET.fromstring(drawn)  # noqa: S314 - matplotlib has written it just now
    linked = {
        found
        for element in root.iter()
        for value in element.attrib.values()
        for found in re.findall(r"#([\w-]+)", value)
    }
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
        own = element.attrib.pop("id", None)
        if own in linked:
            element.set("id", f"{name}-{own}")
        if _LINK in element.attrib:
            element.set("href", f"#{name}-{element.attrib.pop(_LINK).removeprefix('#')}")
        for key, value in element.attrib.items():
            named = re.sub(r"url\(#([\w-]+)\)", rf"url(#{name}-\1)", value)
            element.set(key, _COLOUR.sub(lambda found: f"var(--{_VARIABLES[found[0]]})", _FONT.sub("", named)))
    for element in list(root.iter()):
        for child in [child for child in element if child.tag in _NOT_DRAWN]:
            element.remove(child)
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.set("role", "img")
    root.set("aria-label", title)
    return ET.tostring(root, encoding="unicode", short_empty_elements=True)
