"""Which step is under way, on a terminal; how long each took, always."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHOW_EVERY_S = 0.5


class Progress:
    """Times steps, and shows the one under way with Spark's tasks; a context manager that leaves a clean line."""

    def __init__(self, spark: SparkSession) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._durations: dict[str, float] = {}
        self._step: str | None = None
        self._begun = time.monotonic()
        self._ended = threading.Event()
        self._shows = sys.stderr.isatty()
        self._thread = threading.Thread(target=self._show, name="progress", daemon=True)

    def step(self, name: str) -> None:
        """Begin a step; the one before has ended."""
        now = time.monotonic()
        if self._step is not None:
            self._durations[self._step] = round(self._durations.get(self._step, 0.0) + now - self._begun, 3)
        self._step, self._begun = name, now

    def end(self) -> dict[str, float]:
        """End the last step; gives seconds by step."""
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
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _show(self) -> None:
        while not self._ended.wait(_SHOW_EVERY_S):
            done = tasks = 0
            for stage in self._tracker.getActiveStageIds():
                info = self._tracker.getStageInfo(stage)
                if info is not None:
                    done, tasks = done + info.numCompletedTasks, tasks + info.numTasks
            seconds = time.monotonic() - self._begun
            of = f", {done} of {tasks} tasks" if tasks else ""
            sys.stderr.write(f"\r\x1b[Kaudit: {self._step} {seconds:.0f} s{of}")
            sys.stderr.flush()
