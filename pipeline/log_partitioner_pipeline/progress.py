"""Shows the progress of a job on a terminal: percentage, entries and files so far, estimated time left.

Quiet if standard error is no terminal. The duration of each step is recorded in any case.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLEAR_LINE = "\r\x1b[K"
_SHOW_EVERY_S = 0.5


class Picture(NamedTuple):
    """A moment of a step: `done` of `total` units of work, `total` 0 if nobody knows."""

    job: str
    step: str
    seconds: float
    done: int
    total: int
    unit: str
    counts: dict[str, int]


class StepProgress:
    """Times steps and shows the one under way; a context manager that leaves a clean line.

    Without a session only steps that know their total show how far they are.
    """

    def __init__(self, spark: SparkSession | None, job: str) -> None:
        self._tracker = None if spark is None else spark.sparkContext.statusTracker()
        self._job = job
        self._durations: dict[str, float] = {}
        self._step: str | None = None
        self._begun = time.monotonic()
        self._done = self._total = 0
        self._unit = ""
        self._counts: dict[str, int] = {}
        self._ended = threading.Event()
        self._shows = sys.stderr.isatty()
        self._thread = threading.Thread(target=self._show, name="progress", daemon=True)

    def watch(self, spark: SparkSession) -> None:
        """Show the tasks of a session that was opened later."""
        self._tracker = spark.sparkContext.statusTracker()

    def step(self, name: str, *, total: int = 0, unit: str = "") -> None:
        """Begin a step of `total` units, or of as many tasks as Spark has; the one before has ended."""
        now = time.monotonic()
        if self._step is not None:
            self._durations[self._step] = round(self._durations.get(self._step, 0.0) + now - self._begun, 3)
        self._step, self._begun = name, now
        self._done, self._total, self._unit = 0, total, unit

    def reach(self, done: int) -> None:
        """Tell how many units of the step are done."""
        self._done = done

    def count(self, **counts: int) -> None:
        """Count things that a person wants to see, such as entries and files."""
        self._counts = {name: self._counts.get(name, 0) + number for name, number in counts.items()}

    def end(self) -> dict[str, float]:
        """End the last step; returns seconds by step."""
        self.step("")
        self._step = None
        return self._durations

    def __enter__(self) -> Self:
        if self._shows:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._shows:
            self._thread.join()
            sys.stderr.write(CLEAR_LINE)
            sys.stderr.flush()

    def _show(self) -> None:
        while not self._ended.wait(_SHOW_EVERY_S):
            sys.stderr.write(f"{CLEAR_LINE}{describe(self._look())}")
            sys.stderr.flush()

    def _look(self) -> Picture:
        done, total, unit = (self._done, self._total, self._unit) if self._total else (*self._tasks(), "tasks")
        seconds = time.monotonic() - self._begun
        return Picture(self._job, self._step or "", seconds, done, total, unit, self._counts)

    def _tasks(self) -> tuple[int, int]:
        done = total = 0
        if self._tracker is None:
            return done, total
        for stage in self._tracker.getActiveStageIds():
            info = self._tracker.getStageInfo(stage)
            if info is not None:
                done, total = done + info.numCompletedTasks, total + info.numTasks
        return done, total


def describe(at: Picture) -> str:
    """Write a moment as one line; the time left is that of the rest at the pace of the step so far."""
    parts = [f"{at.job}: {at.step} {_duration(at.seconds)}"]
    if at.total:
        parts.append(f"{at.done:,} of {at.total:,} {at.unit}")
    parts += [f"{number:,} {name}" for name, number in at.counts.items()]
    if 0 < at.done < at.total:
        parts.append(f"about {_duration(at.seconds * (at.total - at.done) / at.done)} left")
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
