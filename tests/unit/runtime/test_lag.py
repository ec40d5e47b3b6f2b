"""Lag in seconds: how long the oldest record has waited for its commit, from a worker's loop on."""

from __future__ import annotations

import pytest

from log_partitioner.formats.model import TopicPartition
from tests.fakes.records import P0, P1, entry, value_of
from tests.fakes.rig import owning
from tests.fakes.worker import FakeWorker


def seconds_of(worker: FakeWorker, tp: TopicPartition) -> float | None:
    """Return what the gauge says; None if there is none."""
    return worker.metrics.gauges.get(("lag_seconds", (("partition", str(tp.partition)), ("topic", tp.topic))))


def test_lag_grows_with_an_open_batch_and_ends_with_its_commit() -> None:
    """It is of the oldest record, not of one that came later; one that Kafka's end does not know of has no lag."""
    rig, worker = owning()
    rig.fill(P0, 1)
    worker.step()
    rig.clock.advance(10.0)
    rig.fill(P0, 1)
    worker.step()
    assert (seconds_of(worker, P0), seconds_of(worker, P1)) == (pytest.approx(10.0, abs=0.1), 0.0)
    rig.turn_until(lambda: rig.committed()[P0] == 2)
    worker.step()
    assert seconds_of(worker, P0) == 0.0


def test_lag_of_a_discarded_batch_goes_on() -> None:
    """Its records are read again; the pause between does not make them younger."""
    rig, worker = owning()
    rig.fill(P0, 1)
    worker.step()
    worker.committer.script.append("TRANSACTION_ABORTABLE")
    rig.turn_until(lambda: worker.metrics.total("batches_discarded") == 1)
    worker.step()
    assert (seconds_of(worker, P0) or 0.0) >= 30.0
    rig.clock.advance(20.0)
    worker.step()
    assert (seconds_of(worker, P0) or 0.0) >= 50.0


def test_lag_of_what_is_given_up_is_gone() -> None:
    """Another worker tells it."""
    rig, worker = owning()
    rig.fill(P1, 1)
    worker.step()
    worker.controller.on_revoked(frozenset({P1}))
    worker.step()
    assert (seconds_of(worker, P1), seconds_of(worker, P0)) == (None, 0.0)


def test_lag_behind_a_transaction_counts_from_the_last_record_taken() -> None:
    """The worker has not seen the records that wait there: they came later than that one."""
    rig, worker = owning()
    rig.fill(P0, 1)
    written_s = rig.clock.now_s()
    rig.turn_until(lambda: rig.committed().get(P0) == 1)
    log = rig.broker.logs[P0]
    log.open_at = log.end
    log.append_hole()
    rig.fill(P0, 1)
    rig.clock.advance(100.0)
    worker.step()
    assert seconds_of(worker, P0) == pytest.approx(rig.clock.now_s() - written_s, abs=0.1)


@pytest.mark.parametrize(("ahead_ms", "expected"), [(None, None), (5000, 0.0)])
def test_lag_of_a_record_without_a_timestamp_or_from_the_future_is_no_lie(
    ahead_ms: int | None, expected: float | None
) -> None:
    """None is known of the first; the second is new."""
    rig, worker = owning()
    at_ms = None if ahead_ms is None else rig.clock.wall_ms() + ahead_ms
    rig.broker.logs[P0].append(value_of(entry()), timestamp_ms=at_ms)
    worker.step()
    assert seconds_of(worker, P0) == expected
