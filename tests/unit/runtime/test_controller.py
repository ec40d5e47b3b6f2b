"""The controller: what rebalances, failures and stops do to the open batch."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import pytest
from structlog.testing import capture_logs

from log_partitioner.batch.batch import ClosedBatch
from log_partitioner.boundary import SentFlush
from log_partitioner.control.deadline import Deadline
from log_partitioner.control.flush_policy import FlushReason
from log_partitioner.control.state import Phase
from log_partitioner.errors import SourceError, StopError, TooManyFailuresError
from log_partitioner.formats.model import CommittedOffset
from log_partitioner.runtime.positions import TOPIC_IDS_S
from tests.fakes.committer import Outcome
from tests.fakes.consumer import FakeConsumer
from tests.fakes.records import P0, P1, P2
from tests.fakes.rig import COOPERATIVE, KIP848, STYLES, Rig, holding, owning
from tests.fakes.store import PutFault
from tests.fakes.worker import CONTROL_RULES, FakeWorker

UNKNOWN = [Outcome.UNKNOWN_COMMITTED, Outcome.UNKNOWN_OPEN, Outcome.TIMED_OUT]


def test_revoke_commits_the_whole_batch_before_it_returns() -> None:
    """W5: files mix TopicPartitions, so all are committed; nothing is left when the callback returns."""
    rig, worker = holding()
    worker.controller.on_revoked(frozenset({P1}))
    assert rig.committed() == {P0: 3, P1: 3}
    assert worker.recorder.opening is None
    assert worker.spool.bytes_on_disk == 0
    assert worker.controller.state.owned == {P0}
    assert not worker.controller.state.to_seek
    assert worker.metrics.total("rebalances", kind="revoked") == 1
    assert len(worker.metrics.observed["revoke_duration_seconds", ()]) == 1


def test_revoke_leaves_the_uploads_less_time_than_a_timer_does() -> None:
    """The uploads of a revoke end early enough for the transaction to fit into the revoke budget."""
    rig, worker = holding()
    deadlines: list[float] = []
    put = worker.store.put

    def remember(*args: object, **kwargs: object) -> object:
        deadlines.append(kwargs["deadline"].remaining_s())  # type: ignore[attr-defined]
        return put(*args, **kwargs)  # type: ignore[arg-type]

    worker.store.put = remember  # type: ignore[assignment,method-assign]
    worker.controller.on_revoked(frozenset({P0}))
    assert max(deadlines) == pytest.approx(70.0)
    rig.fill(P1, 1)
    worker.step()
    deadlines.clear()
    worker.controller.flush_due(FlushReason.INTERVAL)
    assert max(deadlines) == pytest.approx(90.0)


def test_discard_on_revoke_rewinds_only_what_is_kept() -> None:
    """A released TopicPartition is never sought: another worker owns it when the seek would come (KAFKA_FACTS R10)."""
    _, worker = holding(tps=(P0, P1, P2))
    worker.committer.script.append("TRANSACTION_ABORTABLE")
    worker.controller.on_revoked(frozenset({P1}))
    assert worker.controller.state.to_seek == {P0, P2}
    assert P1 not in worker.recorder.ledgers


def test_lost_discards_everything_and_rewinds_the_rest() -> None:
    """W6: of what is lost nothing is committed, and since files mix TopicPartitions, nothing of the batch is."""
    _, worker = holding()
    with capture_logs() as logs:
        worker.controller.on_lost(frozenset({P1}))
    assert worker.committer.calls == 0
    assert worker.recorder.opening is None
    assert worker.controller.state.to_seek == {P0}
    assert worker.controller.state.owned == {P0}
    assert [one["topic_partitions"] for one in logs if one["event"] == "partitions_lost"] == [["source-1"]]
    (discarded,) = [one for one in logs if one["event"] == "batch_discarded"]
    assert discarded["cost"] == "records 0 to 2 of source-0, 0 to 2 of source-1 will be read again"
    assert worker.metrics.total("batches_discarded") == 1
    assert worker.metrics.total("rebalances", kind="lost") == 1
    assert worker.metrics.total("rebalances", kind="revoked") == 0


def test_finding_6_revoked_instead_of_lost_commits_nothing() -> None:
    """Put out while a revoke waits, we hear `revoked` and others read on: the metadata is no proof, so we discard."""
    rig, worker = holding()
    second = rig.worker("b")
    for _ in range(3):
        rig.tick()
    assert worker.consumer.member.queue[0][0].value == "revoked"
    rig.pass_time(40.0, except_for=worker)
    for _ in range(30):
        second.step()
    assert second.controller.state.owned == {P0, P1}
    worker.consumer.member.background()
    assert worker.consumer.membership().generation == -1
    worker.step()
    assert worker.metrics.total("rebalances", kind="lost") == 0
    assert worker.metrics.total("flushes", reason="revoked", outcome="discarded") == 1
    rig.drain()


def test_empty_assignment_keeps_what_is_owned() -> None:
    """`on_assign` may carry an empty list (cooperative), which is no line of the log."""
    _, worker = owning()
    with capture_logs() as logs:
        worker.controller.on_assigned(frozenset())
    assert worker.controller.state.owned == {P0, P1}
    assert logs == []


def test_assignment_flushes_the_open_batch_first() -> None:
    """A batch never spans generations, even if TopicPartitions are only added."""
    rig = Rig(COOPERATIVE, (P0, P1))
    first, second = rig.worker("a"), rig.worker("b")
    rig.turn_until(lambda: bool(first.controller.state.owned) and bool(second.controller.state.owned))
    rig.fill(P0, 2)
    rig.fill(P1, 2)
    rig.turn_until(lambda: first.recorder.has_progress)
    rig.workers.remove(second)
    second.stop.request()
    second.step()
    second.close()
    rig.turn_until(lambda: first.controller.state.owned == {P0, P1})
    assert first.metrics.total("flushes", reason="assigned", outcome="committed") == 1
    rig.drain()


def test_settle_asks_for_committed_offsets_after_the_next_producer_is_ready() -> None:
    """Only the init ends what the last transaction left open; asked before, the answer could be too old."""
    rig = Rig()
    happened: list[str] = []
    worker = rig.holding()
    worker.consumer._point = worker.committer._point = happened.append
    worker.committer.script.append(Outcome.UNKNOWN_OPEN)
    worker.controller.flush_due(FlushReason.INTERVAL)
    happened.clear()
    worker.settle()
    assert happened == ["init", "committed", "seek", "seek"]


@pytest.mark.parametrize("is_revoked", [False, True])
@pytest.mark.parametrize("outcome", [*UNKNOWN, Outcome.NOT_ABORTED])
@pytest.mark.parametrize("style", STYLES)
def test_unknown_outcome_goes_on_from_what_was_really_committed(
    style: str,
    outcome: Outcome,
    is_revoked: bool,  # noqa: FBT001 - a case
) -> None:
    """Committed after all: go on after it. Not committed: read again. Neither loses nor doubles.

    Also if within one consume all is revoked, with that outcome, and assigned again: our own open transaction would
    keep committed offsets unstable until it times out, unless our next init ends it first.
    """
    rig, worker = holding(style)
    worker.committer.script.append(outcome)
    if is_revoked:
        worker.controller.on_revoked(frozenset({P0, P1}))
    else:
        worker.controller.flush_due(FlushReason.INTERVAL)
    started_s = rig.clock.now_s()
    if is_revoked:
        worker.controller.on_assigned(frozenset({P0, P1}))
        worker.controller.consume_returned()
    worker.settle()
    assert rig.clock.now_s() - started_s < 5.0
    expected = 3 if outcome is Outcome.UNKNOWN_COMMITTED else 0
    assert worker.consumer.positions == {P0: expected, P1: expected}
    assert worker.recorder.ledgers[P0].first_offset == expected
    rig.drain()
    assert worker.metrics.total("flushes", outcome="unknown") == (outcome is not Outcome.NOT_ABORTED)


@pytest.mark.parametrize(("apart_s", "ends"), [(1.0, True), (200.0, False)])
def test_three_unknown_outcomes_in_five_minutes_end_the_process(apart_s: float, *, ends: bool) -> None:
    """A worker that cannot learn what became of its transactions is not one to go on (DESIGN 4.1); two are no storm."""
    rig, worker = owning()

    def go_on() -> None:
        for _ in range(4):
            worker.committer.script.append(Outcome.UNKNOWN_OPEN)
            rig.fill(P0, 1)
            rig.turn_until(lambda: not worker.committer.script)
            rig.pass_time(apart_s)
            worker.step()

    with pytest.raises(TooManyFailuresError) if ends else nullcontext():
        go_on()
    assert (worker.controller.state.phase is Phase.FAILED) == ends
    worker.close()
    assert bool(rig.broker.transactions) != ends


def test_two_workers_of_one_name_do_not_fence_each_other_for_ever() -> None:
    """One is fenced again and again, and ends; nothing is doubled (KAFKA_FACTS T11)."""
    rig = Rig()
    first = rig.worker("twin")
    second = rig.worker("twin")
    rig.turn_until(lambda: bool(first.controller.state.owned) and bool(second.controller.state.owned))

    def go_on() -> None:
        for _ in range(300):
            rig.fill(P0, 1)
            rig.fill(P1, 1)
            first.step()
            second.step()
            rig.pass_time(5.0)

    with pytest.raises(TooManyFailuresError):
        go_on()
    rig.check()


def test_topic_partition_assigned_while_paused_is_read_after_the_pause() -> None:
    """Paused stays paused for what comes meanwhile, and nothing stays silent for ever (KAFKA_FACTS R9)."""
    rig = Rig()
    first, second = rig.worker("a"), rig.worker("b")
    rig.turn_until(lambda: bool(first.controller.state.owned) and bool(second.controller.state.owned))
    rig.fill(P0, 1)
    rig.fill(P1, 1)
    first.step()
    first.store.script.append(PutFault.NOT_STORED)
    first.controller.flush_due(FlushReason.INTERVAL)
    first.settle()
    assert first.consumer.paused
    rig.workers.remove(second)
    second.close()
    rig.turn_until(lambda: first.controller.state.owned == {P0, P1})
    rig.drain()


def test_worker_that_fails_in_the_middle_of_a_flush_commits_nothing_when_it_is_closed() -> None:
    """The store refuses us: the flush is broken off, the process ends, closing does not begin it again."""
    _, worker = holding()
    worker.store.script.append(PutFault.REFUSED)
    with pytest.raises(StopError):
        worker.controller.flush_due(FlushReason.INTERVAL)
    worker.close()
    assert worker.controller.error is None
    assert worker.committer.calls == 0


def test_rewind_below_what_is_known_to_be_committed_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that has just loaded answers at times with offsets of long ago: the next turn asks again."""
    _, worker = holding()
    worker.committer.script.append(Outcome.UNKNOWN_COMMITTED)
    worker.controller.flush_due(FlushReason.INTERVAL)
    positions = dict(worker.consumer.positions)
    with monkeypatch.context() as patch:
        patch.setattr(worker.consumer, "committed", lambda tps, **_: dict.fromkeys(tps, CommittedOffset(-1)))
        worker.settle()
    assert (worker.consumer.positions, worker.controller.state.to_seek) == (positions, {P0, P1})
    worker.settle()
    assert worker.consumer.positions == {P0: 3, P1: 3}


def test_seek_comes_never_from_inside_a_callback() -> None:
    """The worker refuses records that consume had popped only after the callback: a seek inside is too early."""
    _, worker = holding(KIP848)
    sought: list[str] = []
    worker.consumer._point = sought.append
    worker.committer.script.append("TRANSACTION_ABORTABLE")
    worker.controller.on_revoked(frozenset({P0}))
    assert "seek" not in sought
    assert isinstance(worker.consumer, FakeConsumer)


@pytest.mark.parametrize(
    ("fault", "cause", "outcome", "more"),
    [
        ("TRANSACTION_ABORTABLE", "CommitAbortedError", "aborted", ""),
        (Outcome.UNKNOWN_OPEN, "CommitUnknownError", "unknown", ", unless they are committed"),
    ],
)
def test_discarded_batch_tells_what_giving_it_up_costs(fault: Any, cause: str, outcome: str, more: str) -> None:
    """It names the records that are read again by TopicPartition, and no TopicPartition without records."""
    rig, worker = owning()
    rig.broker.logs[P1].append_hole()
    rig.fill(P1, 4)
    worker.step()
    worker.committer.script.append(fault)
    with capture_logs() as logs:
        worker.controller.flush_due(FlushReason.BYTES)
    (discarded,) = [one for one in logs if one["event"] == "batch_discarded"]
    assert discarded["cost"] == f"records 0 to 4 of source-1 will be read again{more}"
    assert (discarded["reason"], discarded["cause"], discarded["outcome"]) == ("bytes", cause, outcome)


def test_ids_of_topics_are_asked_for_at_each_assignment_and_each_flush_of_the_loop() -> None:
    """The worker does not ask at every turn, because each time costs a connection. Without an answer it goes on."""
    rig = Rig()
    ids, asked = dict(rig.broker.topic_ids), []
    rig.broker.topic_ids.clear()
    worker = rig.worker(start=False)
    ask = worker.consumer.topic_ids

    def remember(topics: Iterable[str], *, deadline: Deadline) -> dict[str, str]:
        asked.append(deadline.remaining_s())
        return ask(topics, deadline=deadline)

    worker.consumer.topic_ids = remember  # type: ignore[method-assign]
    worker.start()
    for _ in range(10):
        worker.step()
    assert asked == [TOPIC_IDS_S]
    rig.broker.topic_ids.update(ids)
    rig.fill(P0, 3)
    rig.drain()
    assert worker.topics.ids == ids
    assert asked == [TOPIC_IDS_S] * 2


# One deadline.


def slowest(rig: Rig, worker: FakeWorker, *, commit_s: float, answer_s: float) -> None:
    """Make a commit take all of its budget and then an abort's, and every answer about offsets so long."""
    commit = worker.committer.commit

    def slow(*args: Any, deadline: Deadline, **kwargs: Any) -> None:
        rig.pass_time(min(commit_s, deadline.remaining_s()))
        worker.committer.script.append("_TIMED_OUT")
        try:
            commit(*args, deadline=deadline, **kwargs)
        finally:
            rig.pass_time(10.0)

    worker.committer.commit = slow  # type: ignore[method-assign]
    worker.consumer._point = lambda name: rig.pass_time(answer_s if name in ("committed", "offsets_at") else 0.0)
    worker.committer.init_s = 45.0
    worker.store._point = lambda name: rig.pass_time(95.0 if name == "put" else 0.0)


@pytest.mark.parametrize("slow_store", [True, False])
@pytest.mark.parametrize("before_s", [0.0, 100.0, 184.0])
def test_all_steps_of_one_callback_end_within_the_poll_budget(slow_store: bool, before_s: float) -> None:  # noqa: FBT001
    """Flush and abort; the next producer's init and committed offsets are for the turn, within a budget of its own."""
    rig, worker = holding(tps=(P0, P1, P2))
    gone = frozenset({P2})
    worker.controller.on_revoked(gone)
    rig.fill(P0, 3)
    worker.step()
    slowest(rig, worker, commit_s=1000.0, answer_s=10.0)
    if not slow_store:
        worker.store._point = lambda name: rig.pass_time(30.0 if name == "put" else 0.0)
    close, started_s = worker.recorder.close, rig.clock.now_s()

    def late() -> ClosedBatch:
        rig.pass_time(before_s)
        return close()

    worker.recorder.close = late  # type: ignore[method-assign]
    worker.controller.on_assigned(gone)
    assert worker.metrics.total("flushes", reason="assigned", outcome="discarded") == 1
    assert rig.clock.now_s() - started_s <= CONTROL_RULES.poll_budget_s
    worker.controller.consume_returned()
    started_s = rig.clock.now_s()
    worker.settle()
    assert P2 in worker.recorder.ledgers
    assert rig.clock.now_s() - started_s <= CONTROL_RULES.poll_budget_s


def test_flush_gets_what_the_steps_after_it_do_not_need() -> None:
    """`settle_s` of the time until the next poll is for an abort, another's transaction and committed offsets."""
    rig, worker = holding()
    deadlines: list[float] = []
    flush = worker.flusher.flush

    def remember(batch: ClosedBatch, reason: FlushReason, *, deadline: Deadline) -> SentFlush:
        deadlines.append(deadline.remaining_s())
        return flush(batch, reason, deadline=deadline)

    worker.flusher.flush = remember  # type: ignore[method-assign]
    worker.controller.consume_returned()
    rig.pass_time(150.0)
    worker.controller.flush_due(FlushReason.INTERVAL)
    assert deadlines == [pytest.approx(CONTROL_RULES.poll_budget_s - 150.0 - CONTROL_RULES.settle_s)]


def test_producer_that_is_not_ready_leaves_what_is_assigned_without_a_place() -> None:
    """Its open transaction would hold up the answer; the next poll comes first."""
    _, worker = holding()
    worker.committer.script.append(Outcome.UNKNOWN_OPEN)
    worker.controller.on_revoked(frozenset({P0, P1}))
    worker.controller.on_assigned(frozenset({P0}))
    worker.controller.position()
    assert worker.controller.not_positioned == {P0}
    worker.settle()
    assert not worker.controller.not_positioned


@pytest.mark.parametrize("beyond_s", [-20.0, 2.0, 100.0])
@pytest.mark.parametrize("where", ["produced", "init", "committed"])
@pytest.mark.parametrize("outcome", ["ILLEGAL_GENERATION", Outcome.UNKNOWN_OPEN, Outcome.COMMITTED])
def test_process_that_is_stopped_behind_an_assignment_asks_again(
    outcome: Outcome | str, where: str, beyond_s: float
) -> None:
    """Nothing, or too little, is left of its time, but what it asks for is answered: it does not end."""
    rig, worker = holding(COOPERATIVE, (P0, P1, P2))
    gone = frozenset({P2})
    worker.controller.on_revoked(gone)
    rig.fill(P0, 3)
    worker.step()
    worker.committer.script.append(outcome)  # type: ignore[arg-type]
    stopped: list[str] = []

    def be_stopped(name: str) -> None:
        if name == where and name not in stopped:
            stopped.append(name)
            rig.pass_time(worker.controller.rules.poll_budget_s + beyond_s)
            worker.committer.init_s = 30.0
            if name == "committed":  # and another's transaction is open
                rig.leave_open(worker, P2)

    worker.committer._point = worker.consumer._point = be_stopped
    worker.controller.on_assigned(gone)
    for _ in range(3):
        worker.controller.consume_returned()
        worker.settle()
    assert not worker.controller.state.to_seek


def test_committed_offsets_that_nobody_tells_are_asked_for_twice() -> None:
    """Then it ends; an answer in between begins anew."""
    rig, worker = holding()
    is_told = iter([False, True, False, False])

    def be_asked(name: str) -> None:
        if name == "committed" and not next(is_told):
            raise SourceError("no committed offsets")

    worker.consumer._point = be_asked
    for number in range(2):
        worker.store.script.append(PutFault.NOT_STORED)
        worker.controller.flush_due(FlushReason.INTERVAL)
        worker.settle()
        assert worker.controller.state.to_seek == {P0, P1}
        if number == 0:
            rig.drain()
            rig.fill(P0, 3)
            worker.step()
    worker.controller.prepare()
    with pytest.raises(SourceError):
        worker.controller.position()


def test_settle_that_comes_too_late_polls_first() -> None:
    """A process that was stopped for minutes may not wait for another's transaction any more; nor does it end."""
    rig, worker = holding()
    worker.store.script.append(PutFault.NOT_STORED)
    worker.controller.flush_due(FlushReason.INTERVAL)
    rig.pass_time(250.0)
    asked: list[str] = []
    worker.consumer._point = asked.append
    worker.settle()
    assert "committed" not in asked
    assert worker.controller.state.to_seek == {P0, P1}
    worker.controller.consume_returned()
    worker.settle()
    assert asked == ["committed", "seek", "seek"]
    assert not worker.controller.state.to_seek


def test_unknown_revoked_is_ignored_with_a_warning() -> None:
    """Revoked TopicPartitions that were never owned change nothing (confluent-kafka-python issue 1551)."""
    _, worker = owning()
    with capture_logs() as logs:
        worker.controller.on_revoked(frozenset({P2}))
    assert (worker.controller.error, worker.controller.state.owned) == (None, {P0, P1})
    said = [(one["event"], one["topic_partitions"]) for one in logs if "revoked" in one["event"]]
    assert said == [("revoked_unknown", ["source-2"])]
