"""Ends a job within seconds of SIGTERM or SIGINT, whatever it waits for, with exit code 128 + signal.

The main thread unwinds, so that clients close and a driver's branch is dropped. If that takes longer than `GRACE_S`,
the process ends in the middle of it, which is safe: every job may be killed at any moment (DESIGN 8).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

GRACE_S = 3.0
_ENDING = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def ended_by_signals(job: str) -> Iterator[None]:
    """Raise SystemExit in the block at a signal; main thread only.

    A call of a library holds up Python's handlers, so a thread watches the signals, too, and ends the process in time.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    threading.Thread(target=_give_up, args=(job, reader), name="signals", daemon=True).start()
    ended_by: list[int] = []

    def unwind(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        ended_by.append(number)
        _forget_call_of_spark()
        raise SystemExit(128 + number)

    handled = [one for one in _ENDING if signal.getsignal(one) is not signal.SIG_IGN]
    before = {number: signal.signal(number, unwind) for number in handled}
    descriptor = signal.set_wakeup_fd(writer)
    try:
        yield
    finally:
        signal.set_wakeup_fd(descriptor)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(writer)
        if ended_by:
            _tell(job, ended_by[0])
            raise SystemExit(128 + ended_by[0])


def _give_up(job: str, reader: int) -> None:
    """End the process `GRACE_S` after a signal; blocks until then, or until the block has ended without one."""
    numbers = b""
    with open(reader, "rb", buffering=0) as signals:
        while not numbers or numbers[0] not in _ENDING:
            numbers = signals.read(1)
            if not numbers:
                return
    time.sleep(GRACE_S)
    _tell(job, numbers[0])
    os._exit(128 + numbers[0])


def _tell(job: str, number: int) -> None:
    name = signal.Signals(number).name
    sys.stderr.write(f"{job}: ended by {name}; what it has committed is whole, and its next start goes on from there\n")
    sys.stderr.flush()


def _forget_call_of_spark() -> None:
    """Let the clean-up call Java on a connection of its own: the interrupted call's answer is still to come."""
    spark = sys.modules.get("pyspark.core.context")
    gateway = None if spark is None else spark.SparkContext._gateway  # noqa: SLF001 - py4j is the way in
    if gateway is not None:
        gateway._gateway_client.thread_connection.connection = None  # noqa: SLF001
