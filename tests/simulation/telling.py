"""Worlds whose workers' log lines are kept, as each pod would write them: numbered, and by a clock of its own."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from tests.fakes.worker import FakeWorker
from tests.simulation.world import Process, World

SKEW_S = 600.0
_DAY = datetime(2026, 1, 1, tzinfo=UTC)


@contextmanager
def heard_by(hear: Processor) -> Iterator[None]:
    """Give every line of a log to a processor."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        processors=[hear],
        logger_factory=structlog.ReturnLoggerFactory(),
    )
    try:
        yield
    finally:
        structlog.reset_defaults()


class TellingWorld(World):
    """A world that keeps what is told within a process's turn; a killed one tells nothing more."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lines: list[bytes] = []
        self._turns: list[Process] = []
        self._skews: dict[str, float] = {}
        self._told: dict[int, int] = {}
        self._told_by: list[FakeWorker] = []
        self._clocks = Random(0)

    def turn(self, process: Process) -> None:
        """Let one process turn its loop once, and know that it is the one that tells."""
        self._turns.append(process)
        try:
            super().turn(process)
        finally:
            self._turns.pop()

    def hear(self, _logger: WrappedLogger, level: str, event: EventDict) -> str:
        """Keep a line: a processor of structlog."""
        if self._turns and not self._turns[-1].dead:
            worker = self._turns[-1].worker
            if not any(one is worker for one in self._told_by):
                self._told_by.append(worker)
            boot = next(number for number, one in enumerate(self._told_by) if one is worker)
            seq = self._told[boot] = self._told.get(boot, 0) + 1
            skew_s = self._skews.setdefault(worker.name, self._clocks.uniform(-SKEW_S, SKEW_S))
            at = _DAY + timedelta(seconds=self.clock.now_s() + skew_s)
            head = {"level": level, "worker": worker.name, "boot": f"{boot}", "seq": seq, "ts": at.isoformat()}
            self.lines.append(json.dumps(dict(event) | head, default=repr).encode() + b"\n")
        raise structlog.DropEvent
