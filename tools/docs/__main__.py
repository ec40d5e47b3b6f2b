"""Write the documents that are made from code, or check that they are up to date."""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.demo.picture import picture_of
from tools.docs.chart_page import chart_page
from tools.docs.chart_schema import chart_schema
from tools.docs.cli import cli_page
from tools.docs.configuration import pipeline_page, worker_page
from tools.docs.evidence import evidence_page
from tools.docs.inputs import inputs_page
from tools.docs.log_events import log_events_page
from tools.docs.metrics import metrics_page

ROOT = Path(__file__).resolve().parents[2]
# Files that repeat the version of pyproject.toml, because tools read it there: pattern of its place.
_VERSIONS = {
    "helm/log-partitioner/Chart.yaml": r"(?<=\nversion: ).*|(?<=\nappVersion: ).*",
    "native/Cargo.toml": r'(?<=\nversion = ")[^"]*',
    "native/Cargo.lock": r'(?<=\nname = "log-partitioner-native"\nversion = ")[^"]*',
}


def documents() -> Mapping[str, str]:
    """Make all documents: path in the repository -> text."""
    return {
        "docs/CLI.md": cli_page(),
        "docs/CONFIGURATION.md": worker_page(),
        "docs/CONFIGURATION_PIPELINE.md": pipeline_page(),
        "docs/EVIDENCE.md": evidence_page(ROOT / "docs" / "evidence"),
        "docs/INPUTS.md": inputs_page(),
        "docs/LOG_EVENTS.md": log_events_page(),
        "docs/demo.svg": picture_of((ROOT / "docs" / "demo.txt").read_text(encoding="utf-8")),
        "docs/METRICS.md": metrics_page(),
        "helm/log-partitioner/README.md": chart_page(),
        "helm/log-partitioner/values.schema.json": chart_schema(),
        **{path: _with_version(path, place) for path, place in _VERSIONS.items()},
    }


def _with_version(path: str, place: str) -> str:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    return re.sub(place, version, (ROOT / path).read_text(encoding="utf-8"))


def outdated() -> list[str]:
    """Name the documents that differ from the code."""
    return [
        path
        for path, text in documents().items()
        if not (ROOT / path).exists() or (ROOT / path).read_text(encoding="utf-8") != text
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if one is out of date")
    options = parser.parse_args(arguments)
    names = outdated()
    if options.check:
        sys.stderr.write("".join(f"{name} is out of date: run `python -m tools.docs`\n" for name in names))
        return 1 if names else 0
    made = documents()
    for name in names:
        (ROOT / name).write_text(made[name], encoding="utf-8")
        print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
