"""Counters and log lines add up: each record, entry and flush counts once, under one value of each label."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from log_partitioner.adapters.metrics import DISCARDS
from log_partitioner.batch.fast_lane import TakenRun
from log_partitioner.boundary import Poll, Spool
from log_partitioner.config.settings import Settings
from log_partitioner.control.flush_policy import FlushReason
from log_partitioner.control.state import Phase
from log_partitioner.errors import SourceError, StopError
from log_partitioner.formats.model import SourceRecord
from log_partitioner.input.decode import FindSchema
from log_partitioner.runtime.recorder import Recorder
from tests.fakes.committer import Outcome
from tests.fakes.records import P0, P1, entry, value_of
from tests.fakes.rig import Rig, owning
from tests.fakes.store import PutFault
from tests.fakes.worker import FakeWorker, Parts, Rules


class CountingRecorder(Recorder):
    """Keeps what it was given, to be counted by other means than the product's."""

    def __init__(self, settings: Settings, spool: Spool, find_schema: FindSchema | None = None) -> None:
        super().__init__(settings, spool, find_schema)
        self.given: list[SourceRecord] = []

    def take(self, poll: Poll, first: int, stop: int, *, weight_max: int, bytes_max: int) -> TakenRun:
        """Keep them, too."""
        run = super().take(poll, first, stop, weight_max=weight_max, bytes_max=bytes_max)
        self.given += [poll[at] for at in range(first, first + run.records)]
        return run

    def record(self, record: SourceRecord) -> int:
        """Keep it, too."""
        self.given.append(record)
        return super().record(record)


def worked(rules: Rules | None = None) -> tuple[Rig, FakeWorker]:
    """Give a worker that owns everything, and its rig."""
    return owning(rules=rules, parts=Parts(recorder=CountingRecorder))


def require_sums(worker: FakeWorker, logs: list[Any]) -> None:
    """Require of the counters and lines of a worker that has come to rest that they add up."""
    lines, metrics = Counter(line["event"] for line in logs), worker.metrics
    assert isinstance(worker.recorder, CountingRecorder)
    values = [json.loads(record.value or b"[]") for record in worker.recorder.given]
    assert metrics.total("records") == metrics.total("records_refused") + len(values)
    assert metrics.total("written_entries") + metrics.total("dead_letter_entries") == sum(
        len(value) if isinstance(value, list) else 1 for value in values
    )
    assert metrics.total("flushes") == lines["flush_started"]
    assert metrics.total("flushes", outcome="committed") == lines["flush_committed"]
    told = (line["cause"] for line in logs if line["event"] == "batch_discarded")
    causes = Counter(cause if cause in DISCARDS else "Failed" for cause in told)  # by any other error the process ends
    assert {cause: metrics.total("batches_discarded", cause=cause) for cause in causes} == causes
    assert metrics.total("batches_discarded") == lines["batch_discarded"]
    assert len(metrics.observed.get(("flush_duration_seconds", ()), ())) == metrics.total("flushes")
    dead = sum(line["dead_letters"] for line in logs if line["event"] == "flush_committed")
    assert metrics.total("dead_letters") <= dead <= metrics.total("dead_letter_entries")
    assert (metrics.total("dead_letters") > 0) == (dead > 0)
    in_flushes = [line for line in logs if line["event"] == "batch_discarded" and line["reason"] is not None]
    unknown = sum(line["outcome"] == "unknown" for line in in_flushes)
    assert metrics.total("flushes", outcome="unknown") == unknown
    assert metrics.total("flushes", outcome="discarded") == len(in_flushes) - unknown
    refused = sum(line["records"] for line in logs if line["event"] == "records_refused")
    assert metrics.total("records_refused") == refused
    starts = [start for line in logs if line["event"] == "positioned" for start in line["starts"].values()]
    assert metrics.total("rewinds") == sum(first is not None for _, _, first in starts)
    assert metrics.total("commits_repeated") == lines["commit_repeated"]
    assert metrics.total("rebalances", kind="lost") == lines["partitions_lost"]
    assert metrics.total("offset_gaps") == sum(line["gaps"] for line in logs if line["event"] == "offset_gaps")


def refuse_batches(worker: FakeWorker) -> None:
    """The disk takes no batch."""
    worker.spool.refuses = lambda operation: operation == "open"


def refuse_rows(worker: FakeWorker) -> None:
    """The disk takes no rows."""
    worker.spool.refuses = lambda operation: operation == "append"


TROUBLES: dict[str, Callable[[FakeWorker], object]] = {
    "none": lambda _worker: None,
    "aborted": lambda worker: worker.committer.script.append("TRANSACTION_ABORTABLE"),
    "committed, unknown": lambda worker: worker.committer.script.append(Outcome.UNKNOWN_COMMITTED),
    "open, unknown": lambda worker: worker.committer.script.append(Outcome.UNKNOWN_OPEN),
    "not stored": lambda worker: worker.store.script.append(PutFault.NOT_STORED),
    "no batch": refuse_batches,
    "no rows": refuse_rows,
    "lost": lambda worker: worker.controller.on_lost(frozenset({P1})),
    "revoked": lambda worker: worker.controller.on_revoked(frozenset({P1})),
}


@pytest.mark.parametrize("memory_bytes", [1, 2**30])
@pytest.mark.parametrize("trouble", TROUBLES)
def test_whatever_happens_counters_and_lines_add_up(trouble: str, memory_bytes: int) -> None:
    """Records of two partitions, some of several entries, some dead; a trouble in between; then all is committed."""
    with capture_logs() as logs:
        rig, worker = worked(Rules().with_bounds(entries_max=5).with_settings(spool={"memory_bytes_max": memory_bytes}))
        for turn in range(3):
            for tp in (P0, P1):
                rig.fill(tp, 3)
                rig.broker.logs[tp].append_hole()
                several = value_of(entry(), entry(None), entry("other"))
                rig.broker.logs[tp].append(several, timestamp_ms=rig.clock.wall_ms())
            if turn == 1:
                TROUBLES[trouble](worker)
            worker.step()
        worker.spool.refuses = lambda _operation: False
        rig.pass_time(31.0)
        for _ in range(20):
            worker.step()
            rig.pass_time(2.0)
        rig.fill(P0, 2)
        worker.stop.request()
        worker.step()
        worker.close()
    assert worker.metrics.total("dead_letter_entries", reason="no_user") > 0
    require_sums(worker, logs)


def test_record_that_no_batch_could_take_is_counted_as_refused() -> None:
    """It was handed over, and is read again; a hole before it is counted once, when it is recorded."""
    with capture_logs() as logs:
        rig, worker = worked()
        refuse_batches(worker)
        rig.broker.logs[P0].append_hole()
        rig.fill(P0, 3)
        worker.step()
        assert worker.metrics.total("records_refused", cause="rewound") == 3
        worker.spool.refuses = lambda _operation: False
        rig.turn_until(lambda: worker.recorder.has_progress)
    assert worker.metrics.total("offset_gaps") == 1
    require_sums(worker, logs)


@pytest.mark.parametrize(
    ("error", "outcome", "message"),
    [
        (SourceError("the transaction is not permitted"), "discarded", "the transaction is not permitted"),
        (KeyError("an entry of ann"), "unknown", "KeyError (its text may hold input, and is not shown)"),
    ],
)
def test_flush_that_ends_the_process_has_an_outcome(
    monkeypatch: pytest.MonkeyPatch, error: Exception, outcome: str, message: str
) -> None:
    """It has a line and a count, as any flush; the outcome is unknown if the error is not one of ours."""

    def refuse(*_arguments: object, **_named: object) -> None:
        raise error

    with capture_logs() as logs:
        rig, worker = worked()
        rig.fill(P0, 3)
        worker.step()
        monkeypatch.setattr(worker.committer, "commit", refuse)
        with pytest.raises(type(error)):
            worker.controller.flush_due(FlushReason.INTERVAL)
        worker.close()
    (discarded,) = [line for line in logs if line["event"] == "batch_discarded"]
    assert (discarded["cause"], discarded["message"]) == (type(error).__name__, message)
    assert worker.metrics.total("flushes", reason="interval", outcome=outcome) == 1
    require_sums(worker, logs)


def test_batch_that_is_committed_is_not_discarded_though_the_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure after the commit does not undo it."""

    def fail(*_arguments: object, **_named: object) -> None:
        raise StopError("no more")

    with capture_logs() as logs:
        rig, worker = worked()
        rig.fill(P0, 3)
        worker.step()
        monkeypatch.setattr(worker.recorder, "committed", fail)
        with pytest.raises(StopError):
            worker.controller.flush_due(FlushReason.INTERVAL)
        worker.close()
    assert worker.metrics.total("flushes", outcome="committed") == 1
    assert worker.metrics.total("batches_discarded") == 0
    require_sums(worker, logs)


def test_worker_is_in_one_state() -> None:
    """The gauges of all states sum up to one after each turn."""
    rig, worker = worked(Rules().with_bounds(entries_max=2))
    for _ in range(5):
        rig.fill(P0, 2)
        worker.step()
        states = {labels: value for (name, labels), value in worker.metrics.gauges.items() if name == "state"}
        assert len(states) == len(Phase)
        assert sum(states.values()) == 1
