"""Records that the client library cannot read: fetched again, then stopped, held or put away; never passed over."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from service.control.deadline import Deadline
from service.control.flush_policy import FlushReason
from service.errors import SourceError
from service.formats.dead_letter import parse_headers
from service.formats.model import TopicPartition
from service.runtime.controller import ControlRules
from service.runtime.refetch import FETCHES_MAX, HOLD_S, SEARCH_S, OnUnreadable
from tests.fakes.records import P0, P1
from tests.fakes.rig import COOPERATIVE, STYLES, Rig
from tests.fakes.worker import CONTROL_RULES, DEAD_LETTERS, FakeWorker, Rules


def broken(
    policy: OnUnreadable, style: str = COOPERATIVE, *, last: int = 4, control: ControlRules = CONTROL_RULES
) -> tuple[Rig, FakeWorker]:
    """Give a worker that owns two TopicPartitions of ten records; of P0, offsets 3 to `last` cannot be read."""
    rig = Rig(style)
    worker = rig.owning(rules=Rules(on_unreadable=policy, control=control))
    rig.fill(P0, 10)
    rig.fill(P1, 10)
    rig.broker.logs[P0].broken.append(range(3, last + 1))
    return rig, worker


def turn(rig: Rig, worker: FakeWorker, seconds: int) -> None:
    """Turn the loop once a second."""
    for _ in range(seconds):
        worker.step()
        rig.pass_time(1.0)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("failures", range(1, FETCHES_MAX + 1))
def test_bad_fetch_is_not_a_bad_log(style: str, failures: int) -> None:
    """What can be read at a later try is recorded, and nothing of the log is missing."""
    rig, worker = broken("stop", style)
    while worker.metrics.total("fetch_failures") < failures:
        turn(rig, worker, 1)
    assert worker.recorder.positions[P0].next_offset == 3
    rig.broker.logs[P0].broken.clear()
    rig.drain()
    turn(rig, worker, 1)
    assert worker.metrics.gauges["held_topic_partitions", ()] == 0


def test_turn_looks_for_what_can_be_read_of_one_topic_partition_at_most() -> None:
    """However many cannot be read and however long each look takes, the group is polled in between."""
    rig, worker = broken("hold")
    rig.broker.logs[P1].broken.append(range(3, 5))
    looked, steps = [], []

    def look(tp: TopicPartition, _: int, *, deadline: Deadline) -> None:
        looked.append(tp)
        rig.pass_time(deadline.remaining_s())

    worker.consumer.readable_from = look  # type: ignore[method-assign]
    for _ in range(30):
        begun_s = rig.clock.now_s()
        worker.step()
        steps.append(rig.clock.now_s() - begun_s)
        rig.pass_time(1.0)
    assert max(steps) < SEARCH_S + 1
    assert abs(looked.count(P0) - looked.count(P1)) <= 1


def test_look_waits_for_a_turn_that_has_the_time_for_it() -> None:
    """What the proof of an assignment has left until the next poll is not enough: that is no failure of the place."""
    rig, worker = broken("hold", control=CONTROL_RULES._replace(poll_budget_s=90.0, settle_s=20.0))
    turn(rig, worker, 20)
    worker.controller.flush_due(FlushReason.INTERVAL)
    looked: list[TopicPartition] = []

    def look(tp: TopicPartition, _: int, *, deadline: Deadline) -> None:
        rig.pass_time(deadline.remaining_s())
        looked.append(tp)

    def prove(*, deadline: Deadline) -> frozenset[TopicPartition]:
        rig.pass_time(deadline.remaining_s() - SEARCH_S + 1)
        return frozenset()

    worker.consumer.readable_from, worker.start_positions.prove = look, prove  # type: ignore[method-assign]
    worker.step()
    assert looked == []
    del worker.start_positions.prove  # type: ignore[attr-defined]
    worker.step()
    assert looked == [P0]


def test_nothing_behind_an_unreadable_record_is_committed() -> None:
    """A flush in between commits what lies before it, also where a rebalance asks for it."""
    rig, worker = broken("hold")
    turn(rig, worker, 3)
    rig.worker("b")
    rig.turn_until(lambda: rig.committed() == {P0: 3, P1: 10})
    rig.check()


def test_unreadable_record_stops_the_worker_after_the_fourth_fetch() -> None:
    """By default nobody goes on without it; the error names the place and the setting."""
    rig, worker = broken("stop")
    with pytest.raises(SourceError, match=r"source-0 cannot be read at offset 3: _BAD_MSG: .*kafka\.on_unreadable"):
        turn(rig, worker, 100)
    assert worker.metrics.total("fetch_failures", code="_BAD_MSG") == FETCHES_MAX + 1
    assert worker.recorder.positions[P0].next_offset == 3


def test_held_topic_partition_does_not_hold_up_the_others() -> None:
    """It is tried again once a minute and goes on by itself once it can be read; a gauge tells of it."""
    rig, worker = broken("hold")
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


@pytest.mark.parametrize("last", [3, 4, 9])
def test_dead_letter_names_the_offsets_that_cannot_be_read(last: int) -> None:
    """It stands for all of them, and what lies behind is recorded; also where nothing does."""
    rig, worker = broken("dead-letter", last=last)
    rig.fill(P1, 1)
    with capture_logs() as logs:
        rig.turn_until(lambda: rig.committed() == {P0: 10, P1: 11})
    rig.check()
    events = [one["event"] for one in logs if one["event"] in ("unreadable", "put_away")]
    assert events == ["unreadable"] * 4 + ["put_away"], "the first fetch, and three times again"
    (letter,) = rig.broker.messages(DEAD_LETTERS)
    says = parse_headers(letter.headers)
    assert (says.reason, says.offset, says.end_offset, letter.value) == ("unreadable", 3, last + 1, None)
    assert f"offsets 3 to {last} cannot be read: _BAD_MSG" in says.message
    assert worker.metrics.gauges["held_topic_partitions", ()] == 0


def test_dead_letter_of_a_batch_that_is_discarded_is_made_again() -> None:
    """The offsets are neither lost nor put away twice."""
    rig, worker = broken("dead-letter")
    worker.committer.script.append("TRANSACTION_ABORTABLE")
    rig.turn_until(lambda: rig.committed() == {P0: 10, P1: 10})
    rig.check()
    assert len(rig.broker.messages(DEAD_LETTERS)) == 1


def test_place_that_cannot_be_searched_is_held() -> None:
    """Where nobody can say where the log can be read again, nothing is put away."""
    rig, worker = broken("dead-letter")
    worker.consumer.readable_from = lambda tp, offset, *, deadline: None  # type: ignore[method-assign]  # noqa: ARG005
    turn(rig, worker, 100)
    assert (rig.committed()[P0], worker.metrics.gauges["held_topic_partitions", ()]) == (3, 1)


def test_each_failure_is_logged_once() -> None:
    """However often the loop turns until the next fetch."""
    rig, worker = broken("hold")
    with capture_logs() as lines:
        turn(rig, worker, 30)
    told = [line["times"] for line in lines if line["event"] == "unreadable"]
    assert told == list(range(1, FETCHES_MAX + 2))
