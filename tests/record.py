"""A pytest plugin for long runs: each result is a line of JSON, and what has passed is not tried again.

`pytest -p tests.record --record FILE`; an interrupted run goes on where it was. Delete the file to begin anew.
"""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --record."""
    parser.addoption("--record", type=Path, metavar="FILE", help="lines of results; what passed is left out next time")


def pytest_configure(config: pytest.Config) -> None:
    """Record if the option asks for it."""
    path: Path | None = config.getoption("--record")
    if path is not None:
        config.pluginmanager.register(Record(path))


class Record:
    """The file of results."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: dict[str, float] = {}

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what has passed."""
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        passed = {line["test"] for line in map(json.loads, lines) if line["passed"]}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
        items[:] = [item for item in items if item.nodeid not in passed]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the result of a test, or of a fixture that failed."""
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration
        if report.when != "call" and report.passed:
            return
        line = {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "test": report.nodeid,
            "passed": report.passed,
            "seconds": round(self._seconds[report.nodeid], 1),
            **dict(report.user_properties),
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
