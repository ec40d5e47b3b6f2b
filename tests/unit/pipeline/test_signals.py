"""A job that is told to end does so within seconds, and says so, whatever it waits for at the moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

ENDS_S = 5.0
JOB = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored if the tests run in the background
from confluent_kafka import Consumer
from log_partitioner_pipeline import cli
from log_partitioner_pipeline.jobs import compare

def python():
    time.sleep(60)

def library():
    Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "none", "log_level": 0}).poll(60)

def cleanup_that_fails():
    try:
        time.sleep(60)
    finally:
        raise ValueError("a client whose call was interrupted")

def cleanup_that_hangs():
    try:
        time.sleep(60)
    finally:
        time.sleep(60)

def run(_options):
    print("begun", flush=True)
    globals()[sys.argv[1]]()

compare.run = run
sys.exit(cli.main(["compare", "one.json", "other.json"]))
"""


@pytest.mark.parametrize(
    ("waits_in", "number"),
    [
        ("python", signal.SIGTERM),
        ("python", signal.SIGINT),
        ("library", signal.SIGTERM),
        ("cleanup_that_fails", signal.SIGTERM),
        ("cleanup_that_hangs", signal.SIGTERM),
    ],
)
def test_job_ends_within_seconds_of_a_signal(waits_in: str, number: signal.Signals) -> None:
    """Its handler ends it, since the kernel drops an unhandled SIGTERM of a container's first process."""
    job = subprocess.Popen([sys.executable, "-c", JOB, waits_in], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with job:
        assert job.stdout is not None
        assert job.stdout.readline() == b"begun\n"
        begun = time.monotonic()
        os.kill(job.pid, number)
        _, said = job.communicate(timeout=30)
    assert time.monotonic() - begun < ENDS_S
    assert (job.returncode, said.decode()) == (
        128 + number,
        f"compare: ended by {number.name}; what it has committed is whole, and its next start goes on from there\n",
    )
