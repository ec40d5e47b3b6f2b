"""structlog's configuration: JSON lines in containers, readable lines on a terminal; the only user of `configure`.

Every event carries `ts` (wall time), `mono` (monotonic seconds), `worker`, `pid`, `boot` and `seq`, which counts the
lines of one boot: a reader of all pods' logs sees what is lost (TESTING 3.5).
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
import time
from collections.abc import Mapping
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

_TEXT_MAX = 256
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure(*, level: str, style: str, worker: str, boot: str, stream: TextIO | None = None) -> None:
    """Configure logging for this process; `style` is auto, json or console."""
    out = stream or sys.stdout
    console = style == "console" or (style == "auto" and out.isatty())
    renderer: Processor = structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            _identify(worker, boot),
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
            structlog.processors.format_exc_info,
            _cut,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )


def _identify(worker: str, boot: str) -> Processor:
    """Add who speaks; `seq` has no holes, because it is drawn after the level was filtered."""
    numbers = itertools.count(1)
    identity: Mapping[str, object] = {"worker": worker, "pid": os.getpid(), "boot": boot}

    def add(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event.update(identity)
        event["mono"] = round(time.monotonic(), 6)
        event["seq"] = next(numbers)
        return event

    return add


def _cut(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Cut long texts of messages: input may stand in them."""
    message = event.get("message")
    if isinstance(message, str) and len(message) > _TEXT_MAX:
        event["message"] = message[:_TEXT_MAX]
    return event
