"""The window that the options of the command ask for."""

from __future__ import annotations

import argparse
import time

import pytest

from log_partitioner.errors import CouldNotTellError
from log_partitioner.proof.audit.run import add_arguments
from log_partitioner.proof.audit.window import FlushWindow, window_of


def window(*arguments: str) -> FlushWindow:
    """Give the window of these arguments."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    given = parser.parse_args(arguments)
    return window_of(given.begin, given.end, given.last, now_ms=time.time_ns() // 1_000_000)


def test_window_of_options() -> None:
    """Everything, from and until a time, or the last hour."""
    assert window() == FlushWindow(None, None)
    assert window("--from", "1970-01-01T00:00:01Z") == FlushWindow(1000, None)
    assert window("--until", "1970-01-01T00:00:02") == FlushWindow(None, 2000)
    last = window("--last", "1h")
    assert last.until_ms is None
    assert time.time() * 1000 - (last.from_ms or 0) - 3_600_000 == pytest.approx(0, abs=60_000)


@pytest.mark.parametrize(
    "arguments",
    [("--last", "1h", "--until", "1970-01-01"), ("--from", "1970-01-02", "--until", "1970-01-02T00:00:00Z")],
)
def test_windows_that_are_none(arguments: tuple[str, ...]) -> None:
    """Options that contradict each other."""
    with pytest.raises(CouldNotTellError, match="--"):
        window(*arguments)


@pytest.mark.parametrize("arguments", [("--last", "5x"), ("--from", "tomorrow")])
def test_values_that_are_no_time(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """The sentence says what is expected."""
    with pytest.raises(SystemExit):
        window(*arguments)
    assert f"{arguments[1]!r}: it must be" in capsys.readouterr().err
