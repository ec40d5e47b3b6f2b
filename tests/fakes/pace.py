"""Slow steps and work for a worker, in proportion to its load; time is virtual, heartbeats go on."""

from __future__ import annotations

from typing import Any

from log_partitioner.control.deadline import Deadline
from tests.fakes.records import P0, entry, value_of
from tests.fakes.rig import Rig
from tests.fakes.worker import SEAL_RULES, FakeWorker


def paced_decode(rig: Rig, seconds: float) -> Any:
    """Give a decoder of rows that takes so long for each while they are sealed."""

    def decode(text: bytes) -> Any:
        rig.pass_time(seconds)
        return SEAL_RULES.decode(text)

    return decode


def pace_store(rig: Rig, worker: FakeWorker, seconds: float) -> None:
    """Make each PUT take so long."""
    worker.store._point = lambda name: rig.pass_time(seconds if name == "put" else 0.0)


def pace_commits(rig: Rig, worker: FakeWorker, messages_per_s: float) -> None:
    """Make a transaction take so long for each message; the deadline aborts one that is not done."""
    commit = worker.committer.commit

    def paced(messages: Any, offsets: Any, membership: Any, *, deadline: Deadline) -> None:
        messages = list(messages)
        seconds = len(messages) / messages_per_s
        if seconds > deadline.remaining_s():
            worker.committer.script.append("_TIMED_OUT")
        rig.pass_time(min(seconds, deadline.remaining_s()))
        commit(messages, offsets, membership, deadline=deadline)

    worker.committer.commit = paced  # type: ignore[method-assign]


def long_records(rig: Rig, records: int, text_bytes: int = 5_000) -> None:
    """Append records whose entries are more than what is kept of each row in memory."""
    for number in range(records):
        value = value_of(entry(n=number, text="x" * text_bytes))
        rig.broker.logs[P0].append(value, timestamp_ms=rig.clock.wall_ms())
