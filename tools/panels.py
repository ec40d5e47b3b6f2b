"""Draw a dashboard's panels from what a Prometheus answers: `python -m tools.panels DASHBOARD.json URL OUT.png`.

It is no Grafana: it shows what series panels have. Variables of the dashboard match everything.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from PIL import Image

COLUMNS, POINTS = 3, 150
COLOURS = 48
NAMED_MAX = 6
RATE = "1m"


def main() -> None:
    """Draw what the arguments name."""
    parser = argparse.ArgumentParser(prog="python -m tools.panels", description=__doc__)
    parser.add_argument("dashboard", type=Path)
    parser.add_argument("url", help="of the Prometheus, such as http://127.0.0.1:9090")
    parser.add_argument("picture", type=Path, help="a PNG")
    parser.add_argument("--until", type=float, default=time.time(), help="seconds since the epoch; default: now")
    parser.add_argument("--minutes", type=float, default=10)
    options = parser.parse_args()
    board = json.loads(options.dashboard.read_text(encoding="utf-8"))
    panels = [panel for panel in board["panels"] if panel.get("targets")]
    rows = -(-len(panels) // COLUMNS)
    figure = Figure(figsize=(5 * COLUMNS, 2.2 * rows), layout="constrained")
    begin = options.until - 60 * options.minutes
    for axes, panel in zip(figure.subplots(rows, COLUMNS, squeeze=False).flat, panels, strict=False):
        _draw(axes, panel, [(target, _series(options.url, target["expr"], begin, options.until)) for target in
                            panel["targets"]], begin)  # fmt: skip
    for axes in figure.axes[len(panels) :]:
        axes.set_axis_off()
    figure.suptitle(f"{board['title']}: {options.minutes:g} minutes", fontsize=11)
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=60)
    Image.open(drawn).quantize(COLOURS).save(options.picture, optimize=True)


def _series(url: str, expression: str, begin: float, end: float) -> list[dict[str, Any]]:
    """Ask for the series of an expression over a time."""
    query = re.sub(r"\$(\w+)", lambda name: RATE if name[1] == "__rate_interval" else ".*", expression)
    asked = urllib.parse.urlencode({"query": query, "start": begin, "end": end, "step": (end - begin) / POINTS})
    with urllib.request.urlopen(f"{url}/api/v1/query_range?{asked}", timeout=30) as answer:  # noqa: S310 - a developer's
        found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return found


def _draw(
    axes: Any, panel: dict[str, Any], drawn: list[tuple[dict[str, Any], list[dict[str, Any]]]], begin: float
) -> None:
    """Draw one panel; its axis has minutes, its legend the first series that are not always zero."""
    unit = panel.get("fieldConfig", {}).get("defaults", {}).get("unit", "short")
    axes.set_title(panel["title"] + ("" if unit == "short" else f" [{unit}]"), fontsize=9)
    axes.tick_params(labelsize=7)
    for target, found in drawn:
        for one in found:
            values = [float(value) for _, value in one["values"]]
            label = _legend(target["legendFormat"], one["metric"]) if any(values) else "_only zeros"
            axes.plot([(float(at) - begin) / 60 for at, _ in one["values"]], values, lw=1, label=label)
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        axes.legend(handles[:NAMED_MAX], labels[:NAMED_MAX], fontsize=6, loc="upper left")
    elif not axes.lines:
        axes.text(0.5, 0.5, "no series", ha="center", fontsize=8, transform=axes.transAxes)


def _legend(words: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda name: labels.get(name[1], ""), words)


if __name__ == "__main__":
    main()
