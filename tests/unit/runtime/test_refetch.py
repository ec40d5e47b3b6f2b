"""Records that the client library cannot read: fetched again, then held; never passed over."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from log_partitioner.control.deadline import Deadline
from log_partitioner.formats.model import CommittedOffset, TopicPartition
from log_partitioner.runtime.refetch import HOLD_S, RETRIES
from tests.fakes.records import P0, P1
from tests.fakes.rig import COOPERATIVE, STYLES, Rig, owning
from tests.fakes.worker import FakeWorker


def broken(style: str = COOPERATIVE) -> tuple[Rig, FakeWorker]:
    """Give a worker that owns two TopicPartitions of ten records; offsets 3 and 4 of P0 cannot be read."""
    rig, worker = owning(style)
    rig.fill(P0, 10)
    rig.fill(P1, 10)
    rig.broker.logs[P0].broken.append(range(3, 5))
    return rig, worker


def turn(rig: Rig, worker: FakeWorker, seconds: int) -> None:
    """Turn the loop once a second."""
    for _ in range(seconds):
        worker.step()
        rig.pass_time(1.0)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("failures", range(1, RETRIES + 1))
def test_bad_fetch_is_not_a_bad_log(style: str, failures: int) -> None:
    """A record that can be read at a later try is recorded, and no record of the log is missing."""
    rig, worker = broken(style)
    while worker.metrics.total("fetch_failures") < failures:
        turn(rig, worker, 1)
    assert worker.recorder.ledgers[P0].next_offset == 3
    rig.broker.logs[P0].broken.clear()
    rig.drain()
    turn(rig, worker, 1)
    assert worker.metrics.gauges["held_topic_partitions", ()] == 0


def test_nothing_behind_an_unreadable_record_is_committed() -> None:
    """A flush in between commits the records before it, even if a rebalance asks for the flush."""
    rig, worker = broken()
    turn(rig, worker, 3)
    rig.worker("b")
    rig.turn_until(lambda: rig.committed() == {P0: 3, P1: 10})
    rig.check()


def test_held_topic_partition_does_not_hold_up_the_others() -> None:
    """It is tried again every 30 s and goes on by itself once it can be read; a gauge tells of it."""
    rig, worker = broken()
    turn(rig, worker, 60)
    assert rig.committed()[P1] == 10
    assert worker.metrics.gauges["held_topic_partitions", ()] == 1
    before = worker.metrics.total("fetch_failures")
    turn(rig, worker, 3 * round(HOLD_S))
    assert 2 <= worker.metrics.total("fetch_failures") - before <= 4
    rig.broker.logs[P0].broken.clear()
    turn(rig, worker, 2 * round(HOLD_S))
    assert worker.metrics.gauges["held_topic_partitions", ()] == 0
    rig.drain()


def test_each_failure_is_logged_once() -> None:
    """However often the loop turns until the next fetch."""
    rig, worker = broken()
    with capture_logs() as lines:
        turn(rig, worker, 30)
    told = [line["times"] for line in lines if line["event"] == "unreadable"]
    assert told == list(range(1, RETRIES + 2))


def test_nothing_is_open_while_it_is_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next owner would read an open batch again if the library took the call for the answer to a revoke."""
    rig, worker = broken()
    was_open: list[bool] = []
    seek = worker.consumer.seek

    def noted(tp: TopicPartition, start: CommittedOffset, *, deadline: Deadline) -> None:
        was_open.append(worker.recorder.has_progress)
        seek(tp, start, deadline=deadline)

    monkeypatch.setattr(worker.consumer, "seek", noted)
    turn(rig, worker, 4)
    assert was_open
    assert not any(was_open)


def test_what_is_held_is_fetched_again_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time costs a flush of what is open: one serves all of them."""
    rig, worker = broken()
    turn(rig, worker, 30)
    rig.broker.logs[P1].broken.append(range(10, 11))
    rig.fill(P1, 2)
    turn(rig, worker, 2 * round(HOLD_S))
    at: dict[TopicPartition, list[float]] = {P0: [], P1: []}
    seek = worker.consumer.seek

    def noted(tp: TopicPartition, start: CommittedOffset, *, deadline: Deadline) -> None:
        at[tp].append(rig.clock.now_s())
        seek(tp, start, deadline=deadline)

    monkeypatch.setattr(worker.consumer, "seek", noted)
    turn(rig, worker, 2 * round(HOLD_S))
    assert at[P0]
    assert at[P0] == at[P1]
