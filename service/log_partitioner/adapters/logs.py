"""structlog's configuration: JSON lines in containers, readable lines on a terminal; the only user of `configure`.

Every event carries `ts` (wall time), `mono` (monotonic seconds), `worker`, `pid`, `boot` and `seq`, which counts the
lines of one boot in the order in which they are written: a reader of all pods' logs sees what is lost (DESIGN 9).
Every line is veiled as it is written (`log_partitioner.privacy`).
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from log_partitioner.privacy import say_trace, veiled

_TEXT_MAX = 600  # two sentences with their commands
_FOR_MACHINES = {"worker", "pid", "boot", "mono", "seq"}
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure(*, level: str, style: str, worker: str, boot: str, stream: TextIO | None = None) -> None:
    """Configure logging for this process; `style` is auto, json or console."""
    out = stream or sys.stdout
    console = style == "console" or (style == "auto" and out.isatty())
    lines = NumberedLines(out, _console_renderer() if console else structlog.processors.JSONRenderer())
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            _identify(worker, boot),
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
            say_trace,
            _cut,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=lambda *_names: lines,
        cache_logger_on_first_use=False,
    )


class NumberedLines:
    """Numbers and writes lines, one at a time, because upload threads log as well.

    `seq` has no holes, because it is drawn after the level was filtered; and no line is written before one with a lower
    number, or a process killed in between would seem to have lost a line.
    """

    def __init__(self, out: TextIO, renderer: Processor) -> None:
        self._out = out
        self._render = renderer
        self._lock = threading.RLock()
        self._seq = 0

    def msg(self, /, **event: object) -> None:
        """Write one line; never raises, whatever is in it."""
        with self._lock:
            self._seq += 1
            event["seq"] = self._seq
            try:
                line = self._render(self, "msg", event)
            except (TypeError, ValueError, RecursionError):  # a key or a value that JSON does not know
                plain = {name: value if isinstance(value, str | int) else repr(value) for name, value in event.items()}
                line = self._render(self, "msg", plain)
            assert isinstance(line, str), "both renderers give text"
            self._out.write(veiled(line) + "\n")
            self._out.flush()

    debug = info = warning = error = critical = exception = log = msg


def _console_renderer() -> Processor:
    """Return the renderer of lines for people: the time first, without what only `verify-logs` asks for."""
    render = structlog.dev.ConsoleRenderer(timestamp_key="ts", sort_keys=False)

    def line(logger: WrappedLogger, method: str, event: EventDict) -> str:
        shown = {name: value for name, value in event.items() if name not in _FOR_MACHINES}
        shown["ts"] = shown["ts"][11:19]  # hours to seconds, in UTC
        return render(logger, method, shown)

    return line


def _identify(worker: str, boot: str) -> Processor:
    """Add the worker that writes."""
    identity: Mapping[str, object] = {"worker": worker, "pid": os.getpid(), "boot": boot}

    def add(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event.update(identity)
        event["mono"] = round(time.monotonic(), 6)
        return event

    return add


def _cut(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Cut long texts of messages: input may stand in them."""
    message = event.get("message")
    if isinstance(message, str) and len(message) > _TEXT_MAX:
        event["message"] = message[:_TEXT_MAX]
    return event
