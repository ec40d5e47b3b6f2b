"""Calls that nothing can interrupt: what they leave behind, and what ends them."""

from __future__ import annotations

import subprocess
import sys

_HOLDS_THE_LOCK = """
import ctypes
from log_partitioner.patience import Patience, end_process_after
with end_process_after(0.5):
    Patience().ask(ctypes.PyDLL(None).pause)
"""


def test_call_that_holds_the_interpreters_lock_for_ever_is_ended_with_the_process() -> None:
    """As librdkafka's `close` does at times: neither the patience of the other thread nor a signal gets a turn."""
    command = [sys.executable, "-c", _HOLDS_THE_LOCK]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert "Timeout" in ended.stderr
    assert "patience.py" in ended.stderr, "it says where it stood"


def test_call_that_returns_in_time_is_not_ended() -> None:
    """Nothing of the watch is left after the block."""
    program = """
import time
from log_partitioner.patience import end_process_after
with end_process_after(0.2):
    pass
time.sleep(0.5)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
