"""Makes a driver stop itself, Spark's JVM too, at a point that its output names."""

import functools
import os
import signal
from collections.abc import Callable
from typing import Any, NamedTuple

Method = Callable[..., Any]


class Point(NamedTuple):
    """Before or after a call of this method; which call, counted from 1."""

    owner: type
    method: str
    is_before: bool = True
    call: int = 1


def stop_at(name: str, point: Point) -> None:
    """Make this process stop there, after the line `stopped at NAME`."""
    method: Method = getattr(point.owner, point.method)
    calls = 0

    @functools.wraps(method)
    def stopping(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if point.is_before and calls == point.call:
            _stop(name)
        result = method(*args, **kwargs)
        if not point.is_before and calls == point.call:
            _stop(name)
        return result

    setattr(point.owner, point.method, stopping)


def _stop(name: str) -> None:
    print(f"stopped at {name}", flush=True)
    os.killpg(os.getpgrp(), signal.SIGSTOP)
