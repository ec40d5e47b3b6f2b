"""Runs materialize and stops it, Spark's JVM too, at one point of one micro-batch: `stopping_driver.py POINT BATCH`.

Whoever started it sees the line `stopped at POINT` in its output, and then kills it or lets it go on.
"""

import functools
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from pipeline.cli import main
from pipeline.jobs.materialize import Materialize
from pipeline.table import Table

Method = Callable[..., Any]
# Where the driver stops: before or after a call of this method.
POINTS: dict[str, tuple[type, str, bool]] = {
    "before the read": (Materialize, "_read", True),
    "between data files and table commit": (Table, "_move_forward", True),
    "between table commit and checkpoint commit": (Table, "append", False),
}


def stop_at(point: str, batch: int) -> None:
    """Make the driver stop there in the batch of this number, counted from 1."""
    owner, name, is_before = POINTS[point]
    method: Method = getattr(owner, name)
    calls = 0

    @functools.wraps(method)
    def stopping(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if is_before and calls == batch:
            _stop(point)
        result = method(*args, **kwargs)
        if not is_before and calls == batch:
            _stop(point)
        return result

    setattr(owner, name, stopping)


def _stop(point: str) -> None:
    print(f"stopped at {point}", flush=True)
    os.killpg(os.getpgrp(), signal.SIGSTOP)


if __name__ == "__main__":
    stop_at(sys.argv[1], int(sys.argv[2]))
    sys.exit(main(["materialize"]))
