"""The loop: whatever a consume has handed over is recorded, refused for a reason, or read again; never dropped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from log_partitioner.avro.schema_types import RecordType
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import CommitAbortedError, StopError, TooManyFailuresError, UploadError
from log_partitioner.formats.model import CommittedOffset
from log_partitioner.runtime import flusher as flusher_module
from log_partitioner.runtime.runloop import PUBLISH_S
from tests.fakes.check import flush_records
from tests.fakes.committer import Outcome
from tests.fakes.member import Callback
from tests.fakes.pace import long_records
from tests.fakes.records import P0, P1, P2, entry, value_of
from tests.fakes.rig import KIP848, STYLES, Rig, owning
from tests.fakes.worker import FakeWorker, Rules, settings_of

FAULTS = [Outcome.COMMITTED, "TRANSACTION_ABORTABLE", Outcome.UNKNOWN_COMMITTED, Outcome.UNKNOWN_OPEN]


def give_way(rig: Rig, worker: FakeWorker) -> FakeWorker:
    """Let a second worker join until the first one's library has a callback waiting."""
    second = rig.worker("b")
    for _ in range(5):
        rig.tick()
        if worker.consumer.member.queue:
            return second
    raise AssertionError("no rebalance")


@pytest.mark.parametrize("entries", [1, 40])
def test_worker_with_an_upper_rate_takes_no_more_in_the_long_run(entries: int) -> None:
    """Records may hold one entry or many; it polls at least once a second, and takes as much as the rate allows."""
    rig = Rig(tps=(P0,))
    kafka = settings_of().kafka.model_copy(update={"entries_per_s_max": 100.0})
    worker = rig.owning(rules=Rules().with_settings(kafka=kafka))
    records = 1200 // entries
    for _ in range(records):
        rig.broker.logs[P0].append(value_of(*[entry()] * entries), timestamp_ms=rig.clock.wall_ms())
    began_s, turns = rig.clock.now_s(), 0
    while worker.recorder.ledgers[P0].next_offset < records:
        rig.tick()
        worker.step()
        turns += 1
    passed_s = rig.clock.now_s() - began_s
    assert 10 <= passed_s <= 13
    assert turns >= passed_s


@pytest.mark.parametrize("purge", [True, False])
@pytest.mark.parametrize("outcome", FAULTS)
@pytest.mark.parametrize("style", STYLES)
def test_finding_1_rebalance_in_the_middle_of_one_consume_drops_no_record(
    style: str,
    outcome: Outcome | str,
    purge: bool,  # noqa: FBT001
) -> None:
    """Records of retained TopicPartitions that were popped before the callback are recorded or read again.

    This is where the service of before lost its data: the position had moved past them.
    """
    rig, worker = owning(style, (P0, P1, P2))
    for tp in (P0, P1, P2):
        rig.fill(tp, 2)
    worker.step()
    assert worker.recorder.has_progress
    for tp in (P0, P1, P2):
        rig.fill(tp, 6)
    give_way(rig, worker)
    worker.committer.script.append(outcome)
    worker.consumer.pop_first = lambda _most: 12
    worker.consumer.purge = purge
    worker.step()
    worker.consumer.pop_first = lambda _most: 0
    rig.drain()


@pytest.mark.parametrize("outcome", [Outcome.COMMITTED, "TRANSACTION_ABORTABLE", Outcome.UNKNOWN_OPEN])
@pytest.mark.parametrize("style", STYLES)
def test_finding_1_given_away_and_got_back_in_one_consume_loses_no_record(style: str, outcome: Outcome | str) -> None:
    """Records popped before a TopicPartition was given away are not the next ones after it has come back.

    1. A consume pops offsets 2.. while the batch holds 0-1. 2. Within it comes a revoke: the flush fails, 0-1 are
    discarded. 3. Within it P0 is assigned again, from 0. 4. The consume returns with 2..: recorded, they would leave
    0-1 behind.
    """
    rig = Rig(style, (P0,))
    worker = rig.worker("a", point=lambda name: rig.tick() if name == "callback_served" else None)
    rig.turn_until(lambda: bool(worker.controller.state.owned))
    rig.fill(P0, 2)
    worker.step()
    rig.fill(P0, 4)
    second = give_way_and_leave(rig, worker)
    worker.committer.script.append(outcome)
    worker.consumer.pop_first = lambda _most: 3
    worker.consumer.callbacks_max = lambda: 4
    worker.consumer.purge = False
    worker.step()
    worker.consumer.pop_first = lambda _most: 0
    worker.consumer.callbacks_max = lambda: 1
    rig.workers.remove(second)
    rig.drain()


def give_way_and_leave(rig: Rig, worker: FakeWorker) -> FakeWorker:
    """Queue a revoke of everything; the one it is for goes away at once, so that all of it comes back."""
    second = rig.worker("0")
    for _ in range(5):
        rig.tick()
    # P0 would have stayed: the coordinator asks it back all the same.
    worker.consumer.member.queue.append((Callback.REVOKED, worker.consumer.member.owned))
    second.consumer.close()
    return second


@pytest.mark.parametrize(
    ("bounds", "reason"), [({"fixed_bytes_max": 10**6}, "memory"), ({"estimate_max_s": 0.35}, "estimate")]
)
def test_batch_of_dead_letters_alone_is_full_by_what_they_take(bounds: dict[str, float], reason: str) -> None:
    """They are held in memory until the flush, and sent in it: topics without any good record are bounded, too."""
    rig, worker = owning(rules=Rules().with_bounds(**bounds))
    for _ in range(30):
        rig.broker.logs[P0].append(b"not JSON" * 12_500, timestamp_ms=rig.clock.wall_ms())
    worker.step()
    assert worker.metrics.total("flushes", reason=reason, outcome="committed") >= 2
    rig.drain()


@pytest.mark.parametrize("outcome", ["TRANSACTION_ABORTABLE", Outcome.UNKNOWN_COMMITTED, Outcome.UNKNOWN_OPEN])
def test_finding_8_failed_flush_in_the_middle_of_one_consume_rewinds_everything_owned(outcome: Outcome | str) -> None:
    """All files are discarded and all owned TopicPartitions rewound; the rest of the poll is refused."""
    rig, worker = owning(rules=Rules().with_bounds(entries_max=3))
    rig.fill(P0, 4)
    rig.fill(P1, 4)
    worker.committer.script.append(outcome)
    worker.step()
    assert worker.recorder.opening is None
    assert worker.spool.bytes_on_disk == 0
    assert worker.metrics.total("records_refused", cause="rewound") == 5
    committed = {tp: offset or 0 for tp, offset in rig.committed().items()}
    worker.settle()
    assert worker.consumer.positions == committed
    rig.drain()


def test_disk_that_refuses_a_spill_flushes_at_once_and_loses_nothing() -> None:
    """The rows in memory are whole: the worker flushes them and reads nothing again."""
    rig, worker = owning(rules=Rules().with_settings(spool={"memory_bytes_max": 12_000}))
    long_records(rig, 5)
    worker.spool.refuses = lambda operation: operation == "append"
    worker.step()
    assert worker.metrics.total("flushes", reason="spool", outcome="committed") >= 1
    assert worker.metrics.total("records_refused") == 0
    assert worker.metrics.total("batches_discarded") == 0
    rig.drain()


def test_disk_that_refuses_a_batch_pauses_and_goes_on_by_itself() -> None:
    """All that was handed over is read again after a pause, for as long as there is no room; polling goes on."""
    rig, worker = owning()
    worker.spool.refuses = lambda operation: operation == "open"
    rig.fill(P0, 3)
    rig.fill(P1, 2)
    with capture_logs() as logs:
        for _ in range(40):
            rig.pass_time(1.0)
            worker.step()
    assert worker.recorder.opening is None
    assert worker.consumer.positions == {P0: 0, P1: 0}
    assert rig.broker.transactions == []
    assert [one["seconds"] for one in logs if one["event"] == "paused"][:4] == [1.0, 2.0, 4.0, 8.0]
    assert worker.metrics.total("batches_discarded") == 0
    assert worker.metrics.gauges["backoff", ()] == 1, "nothing else says so"
    worker.spool.refuses = lambda _operation: False
    rig.turn_until(lambda: rig.committed() == {P0: 3, P1: 2})
    assert worker.metrics.gauges["backoff", ()] == 0
    rig.check()


@pytest.mark.parametrize("operation", ["open", "append", "read", "create", "write", "finish", "load"])
def test_disk_that_fails_four_times_does_not_stop_the_worker(operation: str) -> None:
    """A full disk is waited for: it counts as no failure, the pauses grow, and it goes on when there is room."""
    rig, worker = owning(rules=Rules().with_settings(spool={"memory_bytes_max": 1}))
    long_records(rig, 8)
    failures = iter([True] * 4)
    worker.spool.refuses = lambda asked: asked == operation and next(failures, False)
    for _ in range(200):
        rig.pass_time(2.0)
        worker.step()
    rig.drain()
    assert next(failures, None) is None, "the disk was asked"
    assert worker.metrics.total("batches_discarded") == (0 if operation in ("open", "append") else 4)


def test_finding_4_exception_out_of_consume_commits_nothing_more() -> None:
    """Records were popped and are gone, their positions moved: the process ends, and its close commits nothing."""
    rig, worker = owning()
    rig.fill(P0, 2)
    worker.step()
    rig.fill(P0, 2)
    worker.consumer.pop_first = lambda _most: 2
    worker.consumer.raise_after_pop = RuntimeError("a signal handler raised")
    with pytest.raises(RuntimeError):
        worker.step()
    worker.close()
    assert rig.broker.transactions == []
    rig.workers.remove(worker)
    rig.worker("b")
    rig.drain()


@pytest.mark.parametrize(
    ("error", "said"), [(ZeroDivisionError(), "callback failed"), (TooManyFailuresError("three"), "^three$")]
)
@pytest.mark.parametrize("callback", ["on_assigned", "on_revoked", "on_lost"])
def test_finding_4_exception_in_a_callback_never_passes_through_the_client(
    callback: str, error: Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop raises it once consume has returned, before anything is recorded; one that ends a worker as it was."""

    def fail(_state: object) -> None:
        raise error

    rig = Rig()
    worker = rig.worker()
    with monkeypatch.context() as patch:
        patch.setattr(worker.controller, "_become", fail)
        getattr(worker.controller, callback)(frozenset({P0}))
    assert worker.controller.error is error
    worker.consumer.member.queue.clear()
    rig.fill(P0, 2)
    worker.consumer.positions[P0] = 0
    with pytest.raises(StopError, match=said):
        worker.loop.turn()
    assert worker.recorder.opening is None


def test_error_while_recording_is_never_committed_by_closing() -> None:
    """A record of which some entries are written is in no batch that closing the consumer would flush."""
    rig, worker = owning()
    rig.fill(P0, 2)
    worker.step()
    value = value_of(entry("ann"), entry("bob"))
    rig.broker.logs[P0].append(value, timestamp_ms=rig.clock.wall_ms())
    infer, calls = worker.recorder._types.of, []

    def infer_once(one: dict[str, Any]) -> RecordType:
        calls.append(one)
        assert len(calls) == 1, "a bug of ours, between two entries"
        return infer(one)

    worker.recorder._types.of = infer_once  # type: ignore[method-assign,assignment]
    with pytest.raises(AssertionError, match="a bug of ours"):
        worker.step()
    worker.close()
    assert rig.broker.transactions == []
    rig.workers.remove(worker)
    rig.worker("b")
    rig.drain()


def test_records_of_a_topic_partition_not_owned_are_refused_and_counted() -> None:
    """The broker would take a commit for them: the filter is what keeps a zombie from committing (KAFKA_FACTS F3)."""
    rig, worker = owning(KIP848)
    rig.fill(P0, 3)
    rig.fill(P1, 3)
    give_way(rig, worker)
    worker.consumer.pop_first = lambda _most: 6
    worker.consumer.purge = False
    worker.step()
    assert worker.metrics.total("records_refused", cause="not_owned") == 3
    rig.drain()


def test_finding_5_ledger_and_not_the_position_says_what_is_committed() -> None:
    """The position is ahead of what is recorded; the commit is not."""
    rig, worker = owning(rules=Rules().with_bounds(entries_max=2))
    rig.fill(P0, 5)
    worker.step()
    assert worker.consumer.positions[P0] == 5
    assert rig.committed()[P0] == 4


def test_covered_records_that_come_again_are_refused() -> None:
    """W2: a lower offset is never written twice, whatever the client library hands over; none goes through Python."""
    rig, worker = owning(rules=Rules().with_lane())
    rig.fill(P0, 3)
    worker.step()
    worker.consumer.seek(P0, CommittedOffset(0), deadline=Deadline.after(1.0, rig.clock.now_s))
    worker.step()
    assert worker.metrics.total("records_refused", cause="covered") == 3
    assert worker.metrics.total("slow_lane_records") == worker.recorder.has_lane(P0.topic)
    assert worker.recorder.load().entries == 3
    rig.drain()


def test_hole_in_the_offsets_is_legal_and_logged_once_per_consume() -> None:
    """Control records, aborted batches and compaction leave holes: counted and logged, never refused."""
    rig, worker = owning()
    rig.fill(P0, 1)
    for _ in range(3):
        rig.broker.logs[P0].append_hole()
    rig.fill(P0, 1)
    with capture_logs() as logs:
        worker.step()
    (line,) = [one for one in logs if one["event"] == "offset_gaps"]
    assert line["first"] == [(1, 4)]
    assert worker.metrics.total("offset_gaps") == 1
    rig.drain()


def test_idle_worker_flushes_nothing() -> None:
    """A batch that covers no offset is no batch: no transaction, no object."""
    rig, worker = owning()
    for _ in range(20):
        rig.pass_time(10.0)
        worker.step()
    assert rig.broker.transactions == []
    assert rig.bucket.puts == []


@pytest.mark.parametrize("value", [None, b"[]"])
def test_records_without_entries_are_covered_and_committed(value: bytes | None) -> None:
    """A batch is empty only when it covers no offset."""
    rig, worker = owning()
    rig.broker.logs[P0].append(value, timestamp_ms=rig.clock.wall_ms())
    worker.step()
    rig.pass_time(31.0)
    worker.step()
    assert rig.committed()[P0] == 1
    assert [one for one in rig.bucket.puts if one.endswith(".avro")] == []
    rig.check()


def test_stop_flushes_and_leaves() -> None:
    """SIGTERM costs no rereading: everything handed over is committed, then the group is left."""
    rig, worker = owning()
    rig.fill(P0, 4)
    worker.stop.request()
    worker.step()
    assert worker.controller.state.phase.value == "stopped"
    assert rig.committed()[P0] == 4
    assert worker.metrics.total("flushes", reason="stopping") == 1
    worker.close()
    assert not rig.group.members


@pytest.mark.parametrize("step", ["seal", "put_all"])
def test_second_stop_request_abandons_the_flush(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it seals, or uploads; that discards, which is as safe: the records are read again."""
    rig, worker = owning()
    rig.fill(P0, 4)
    worker.step()
    worker.stop.request()
    owner = flusher_module if step == "seal" else worker.flusher.ports.uploads
    begin = getattr(owner, step)

    def signalled(*how: Any, **more: Any) -> Any:
        worker.stop.request()
        if step == "put_all" and more["abandoned"]():
            raise UploadError("abandoned", object_key="")
        return begin(*how, **more)

    monkeypatch.setattr(owner, step, signalled)
    worker.step()
    assert worker.controller.state.phase.value == "stopped"
    assert (rig.committed()[P0], rig.bucket.puts) == (None, [])
    worker.close()


@pytest.mark.parametrize("style", STYLES)
def test_closing_after_a_stop_flushes_nothing_twice(style: str) -> None:
    """The revoke that closing brings sees that everything is committed (KAFKA_FACTS R14)."""
    rig, worker = owning(style)
    rig.fill(P0, 4)
    worker.stop.request()
    worker.step()
    worker.close()
    assert len(rig.broker.transactions) == 1
    assert worker.controller.error is None


def test_producer_that_a_stopped_process_had_no_time_to_ask_for_is_no_try() -> None:
    """A worker that is stopped in each of many turns goes on; only a question to the broker counts."""
    rig, worker = owning()
    worker.committer._epoch = None
    for _ in range(5):
        rig.pass_time(400.0)
        worker.step()
    worker.committer.init_s = 1_000.0
    worker.step()
    worker.step()
    with pytest.raises(StopError, match=r"^no producer for transactions$"):
        worker.step()


@pytest.mark.parametrize("style", STYLES)
def test_transaction_that_brokers_never_end_ends_the_worker_that_has_something_to_rewind(style: str) -> None:
    """It is asked for as often as without, and not for ever (KAFKA_FACTS T20)."""
    rig, worker = owning(style)
    rig.fill(P0, 4)

    def wait(*, deadline: Deadline) -> None:
        if not worker.committer.is_ready:
            rig.pass_time(deadline.remaining_s())
            raise CommitAbortedError("no producer for transactions: not ended", code="CONCURRENT_TRANSACTIONS")

    worker.committer.prepare = wait  # type: ignore[method-assign,assignment]
    worker.committer.script.append("INVALID_TIMESTAMP")
    rig.turn_until(lambda: bool(worker.controller.state.to_seek))
    worker.step()
    worker.step()
    with pytest.raises(StopError, match=r"^no producer for transactions: not ended"):
        worker.step()


def test_run_prepares_before_it_joins_and_turns_until_stopped() -> None:
    """The producer's init ends what an earlier process left open, before the first committed offset is read."""
    rig = Rig()
    happened: list[str] = []
    worker = rig.worker(point=happened.append, start=False)
    worker.loop.ports = replace(worker.loop.ports, beat=worker.stop.request)
    worker.loop.run()
    assert happened[0] == "init"
    assert worker.controller.state.phase.value == "stopped"


@pytest.mark.parametrize("weight", [1, 20, 300])
def test_load_is_looked_at_before_a_batch_is_much_beyond_a_limit(weight: int) -> None:
    """By entries and bytes, not by records: those of many entries are looked at more often."""
    rig = Rig()
    limit = 1_000
    rig.owning(rules=Rules().with_bounds(entries_max=limit))
    for number in range(3_000 // weight):
        value = value_of(*(entry(f"user-{number}", n=n) for n in range(weight)))
        rig.broker.logs[P0].append(value, timestamp_ms=rig.clock.wall_ms())
    rig.drain()
    sizes = [one.totals.entries for one in flush_records(rig.broker) if one.reason == "entries"]
    assert len(sizes) >= 2
    assert all(limit <= size < 1.26 * limit + weight for size in sizes)


def test_committed_offset_is_reported_as_it_is_committed() -> None:
    """Recorded offsets that are not committed are no progress of the group."""
    rig, worker = owning()
    rig.fill(P0, 3)
    worker.step()
    series = "committed_offset", (("partition", "0"), ("topic", P0.topic))
    assert worker.metrics.gauges[series] == 0
    rig.drain()
    worker.step()
    assert worker.metrics.gauges[series] == 3


def test_all_topic_partitions_are_looked_at_no_more_than_once_a_second() -> None:
    """A group of patterns may have thousands, and each poll would pay for all of them."""
    rig, worker = owning()
    worker.loop.publish_s = PUBLISH_S
    series = ("lag_records", (("partition", "0"), ("topic", P0.topic)))
    rig.fill(P0, 1)
    worker.step()
    assert worker.metrics.gauges[series] == 1
    rig.fill(P0, 1)
    worker.step()
    assert worker.metrics.gauges[series] == 1
    rig.pass_time(PUBLISH_S)
    worker.step()
    assert worker.metrics.gauges[series] == 2


@pytest.mark.parametrize("name", ["lag_records", "committed_offset"])
def test_place_of_what_is_no_longer_owned_is_no_longer_reported(name: str) -> None:
    """A series that stays after a revoke would alert for ever."""
    rig, worker = owning()
    rig.fill(P0, 1)
    rig.fill(P1, 1)
    worker.step()
    labelled = {series[1] for series in worker.metrics.gauges if series[0] == name}
    assert len(labelled) == 2
    rig.worker("b")
    rig.turn_until(lambda: len(worker.controller.state.owned) == 1)
    worker.step()
    assert len([series for series in worker.metrics.gauges if series[0] == name]) == 1


def test_records_are_counted_before_a_flush_that_may_be_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape during it, or after it failed, sees them."""
    rig, worker = owning()
    rig.fill(P0, 3)
    counted: list[float] = []
    monkeypatch.setattr(worker.controller, "stop", lambda: counted.append(worker.metrics.total("records")))
    worker.stop.request()
    worker.step()
    assert counted == [3]


@pytest.mark.parametrize(("waited_s", "flushes"), [(29.0, 0), (30.0, 1)])
def test_batch_is_flushed_when_the_interval_since_it_was_opened_is_over(waited_s: float, flushes: int) -> None:
    """The timer runs from the opening of the batch."""
    rig, worker = owning()
    rig.fill(P0, 3)
    worker.step()
    assert worker.recorder.opening is not None
    rig.pass_time(worker.recorder.opening.opened_at_s + waited_s - rig.clock.now_s())
    worker.step()
    assert worker.metrics.total("flushes") == flushes
