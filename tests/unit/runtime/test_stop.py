"""Signals set flags, and do nothing else."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from log_partitioner.runtime.stop import StopFlag


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Leave the handlers of this process as they were."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_first_signal_asks_to_stop_and_the_second_to_abandon(number: signal.Signals) -> None:
    """SIGINT raises no KeyboardInterrupt: that would lose the records of the call it falls into (KAFKA_FACTS F4)."""
    stop = StopFlag()
    stop.install()
    assert not stop.requested
    os.kill(os.getpid(), number)
    assert (stop.requested, stop.abandoned) == (True, False)
    os.kill(os.getpid(), number)
    assert (stop.requested, stop.abandoned) == (True, True)
