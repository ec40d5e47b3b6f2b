"""Runs backfill and stops it, Spark's JVM too, at one point: `backfill_driver.py POINT ARGUMENTS...`.

Whoever started it sees the line `stopped at POINT` in its output, and then kills it or lets it go on.
"""

import functools
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from pipeline.backfill.publish import Publication
from pipeline.cli import main
from pipeline.jobs.backfill import Backfill
from pipeline.publisher import Publisher

Method = Callable[..., Any]
# Where the driver stops: before or after a call of this method, and which call.
POINTS: dict[str, tuple[type, str, bool, int]] = {
    "before the upload": (Backfill, "_write", True, 1),
    "between upload and manifest": (Backfill, "_write_outbox", True, 1),
    "between manifest and first transaction": (Backfill, "publish", True, 1),
    "inside an open transaction": (Publisher, "_end", True, 2),
    "between two transactions": (Publisher, "commit", False, 1),
    "after the last transaction": (Publication, "_await_visible", True, 1),
}


def stop_at(point: str) -> None:
    """Make the driver stop there."""
    owner, name, is_before, call = POINTS[point]
    method: Method = getattr(owner, name)
    calls = 0

    @functools.wraps(method)
    def stopping(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if is_before and calls == call:
            _stop(point)
        result = method(*args, **kwargs)
        if not is_before and calls == call:
            _stop(point)
        return result

    setattr(owner, name, stopping)


def _stop(point: str) -> None:
    print(f"stopped at {point}", flush=True)
    os.killpg(os.getpgrp(), signal.SIGSTOP)


if __name__ == "__main__":
    stop_at(sys.argv[1])
    sys.exit(main(["backfill", *sys.argv[2:]]))
