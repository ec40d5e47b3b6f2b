"""Start positions: the committed offset, or an explicit policy; never a silent jump, never a step back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

import pytest
from structlog.testing import capture_logs

from service.control.deadline import Deadline
from service.control.flush_history import Flushed, OurGroup
from service.errors import (
    CommitAbortedError,
    DiscardError,
    HistoryUnknownError,
    LeavingError,
    MembershipError,
    SourceError,
    StartPositionError,
)
from service.formats.model import CommittedOffset, TopicPartition
from service.formats.offset_metadata import Began, SourceTopics, decode, encode
from service.runtime.commit_history import WRONG_MAX_S
from service.runtime.start_positions import StartAt, StartPosition, StartPositions
from tests.fakes.check import check_commit, flush_records
from tests.fakes.committer import Outcome
from tests.fakes.group import ClassicGroup
from tests.fakes.records import P0, P1, P2
from tests.fakes.rig import COOPERATIVE, STYLES, Rig
from tests.fakes.worker import START_RULES, FakeWorker, Rules


def member_of(rig: Rig) -> FakeWorker:
    """Give a worker that has joined but has had no callback."""
    return rig.workers[0] if rig.workers else rig.worker()


def parts_of(rig: Rig, policy: StartAt) -> StartPositions:
    """Give start positions of that worker under a policy."""
    worker = member_of(rig)
    return StartPositions(
        rules=START_RULES._replace(start_at=policy),
        consumer=worker.consumer,
        committer=worker.committer,
        flush_records=worker.flush_records,
        topics=SourceTopics(),
        clock=rig.clock,
    )


def start(
    rig: Rig, policy: StartAt, *tps: TopicPartition, seconds: float = 80.0
) -> dict[TopicPartition, StartPosition]:
    """Find start positions as the only member, and prove them; gives what was found."""
    deadline = Deadline.after(seconds, rig.clock.now_s)
    parts = parts_of(rig, policy)
    found = parts.find(tps, deadline=deadline)
    parts.prove(deadline=deadline)
    assert not parts.unproven
    return found


def committed(offset: int) -> StartPosition:
    """Give a start at what an administrator has committed."""
    return StartPosition(CommittedOffset(offset), "committed")


def begun(offset: int, source: Literal["policy", "added"] = "policy") -> StartPosition:
    """Give a start by policy."""
    return StartPosition(CommittedOffset(offset), source)


def stored(rig: Rig, tp: TopicPartition) -> CommittedOffset:
    """Give what is committed."""
    found = rig.broker.committed(tp)
    assert found is not None
    return found


@pytest.mark.parametrize("policy", ["beginning", "end", "fail"])
def test_committed_offset_wins_over_every_policy(policy: StartAt) -> None:
    """A policy is for a first start only."""
    rig = Rig()
    rig.fill(P0, 5)
    rig.broker.reset({P0: 3})
    assert start(rig, policy, P0) == {P0: committed(3)}


def test_first_start_at_the_beginning_is_the_first_offset_there_is() -> None:
    """Retention may have taken the first records: the beginning is where the log begins."""
    rig = Rig()
    rig.fill(P0, 5)
    rig.broker.logs[P0].first_offset = 2
    assert start(rig, "beginning", P0) == {P0: begun(2)}
    assert rig.committed()[P0] == 2


def test_committed_offset_comes_with_its_leader_epoch_and_metadata() -> None:
    """As it was committed: where to go on is compared with the log, and the metadata is another one's to read."""
    rig = Rig()
    generation, member, *_ = member_of(rig).consumer.membership()
    stored = CommittedOffset(0, 3, "meta")
    rig.broker.commit({P0: stored}, generation=generation, member_id=member)
    assert start(rig, "end", P0) == {P0: StartPosition(stored, "committed")}


@pytest.mark.parametrize("policy", ["beginning", "end"])
def test_first_start_commits_the_id_of_the_topic_or_that_it_is_not_known(policy: StartAt) -> None:
    """A broker that gives no ids is no reason not to start."""
    rig = Rig()
    topic_id = rig.broker.topic_ids.pop(P0.topic)
    start(rig, policy, P0)
    assert decode(stored(rig, P0).metadata).topic_id is None
    rig.broker.reset({P0: None, P1: None})
    rig.broker.topic_ids[P0.topic] = topic_id
    start(rig, policy, P0)
    assert decode(stored(rig, P0).metadata).topic_id == topic_id


def test_first_start_commits_our_own_start_positions_only() -> None:
    """The broker would take one for a TopicPartition of another member, too, over whatever that has committed."""
    for policy in ("beginning", "end"):
        rig = Rig()
        rig.fill(P0, 5)
        rig.fill(P1, 7)
        start(rig, policy, P0)
        assert rig.committed() == {P0: 0 if policy == "beginning" else 5, P1: None}


@pytest.mark.parametrize("style", STYLES)
def test_first_start_at_the_end_holds_for_who_owns_the_others_later(style: str) -> None:
    """It is read from the time at which the group began, not from where it ends by then, nor from its beginning."""
    rig = Rig(style, tps=(P0, P1, P2))
    rig.fill(P0, 5)
    rig.fill(P1, 7)
    member_of(rig)
    rig.pass_time(60.0)
    began = Began(rig.clock.wall_ms(), 3)
    assert start(rig, "end", P0) == {P0: begun(5)}
    rig.pass_time(60.0)
    rig.fill(P1, 3)
    assert start(rig, "end", P1, P2) == {P1: begun(7), P2: begun(0)}
    assert {decode(stored(rig, tp).metadata).began for tp in (P0, P1, P2)} == {began}


@pytest.mark.parametrize("style", STYLES)
def test_first_start_at_the_end_holds_when_all_that_is_committed_was_committed_by_flushes(style: str) -> None:
    """Each flush commits over the start position that had said when the group began; it has to say so again."""
    rig = Rig(style, tps=(P0, P1))
    rig.fill(P1, 7)
    rig.pass_time(60.0)
    started_ms = rig.clock.wall_ms()
    for name in "ab":  # the second one knows it only from what the first has committed
        worker = rig.worker(name, rules=Rules().with_start_at("end"))
        rig.turn_until(lambda worker=worker: worker.controller.state.owned == {P0, P1})  # type: ignore[misc]
        rig.fill(P0, 2)
        rig.drain()
        worker.stop.request()
        rig.turn_until(lambda worker=worker: worker.controller.state.phase.value == "stopped")  # type: ignore[misc]
        worker.close()
        rig.workers.remove(worker)
    began = decode(stored(rig, P0).metadata).began
    assert began is not None
    assert (began.at_ms >= started_ms, began.partitions) == (True, 2)
    rig.broker.reset({P1: None})  # as if its first owner had died before it could commit where to start
    rig.fill(P1, 2)
    member_of(rig)
    assert parts_of(rig, "end").find([P1], deadline=Deadline.after(80.0, rig.clock.now_s)) == {P1: begun(7)}


def test_flush_says_nothing_of_what_is_not_proven() -> None:
    """Its start may become another one: a flush record that names it would be history that never was."""
    rig = Rig(COOPERATIVE, tps=(P0, P1))
    worker = rig.owning()
    worker.controller.on_revoked(frozenset({P1}))
    rig.broker.reset({P1: None})
    worker.flush_records.error, worker.start_positions._looks_left = DiscardError("no answer"), 0
    worker.controller.on_assigned(frozenset({P1}))
    worker.controller.consume_returned()
    assert worker.controller.state.to_seek == {P1}
    rig.fill(P0, 2)
    rig.turn_until(lambda: rig.committed()[P0] == 2)
    assert [line.partition for record in flush_records(rig.broker) for line in record.topic_partitions] == [0]


def test_flush_says_nothing_of_what_is_still_to_be_rewound() -> None:
    """Proven, but not yet there: its start was an answer of long ago, which would be the newest that is known of it."""
    rig = Rig(COOPERATIVE, tps=(P0, P1))
    rig.fill(P1, 3)
    worker = rig.owning(rules=Rules().with_bounds(entries_max=1))
    rig.drain()
    worker.controller.on_revoked(frozenset({P1}))
    rig.broker.load_part(0.0, seconds=1.0)
    assert worker.controller.on_assigned(frozenset({P1}))[P1].offset == 0
    named = []
    for _ in range(4):
        rig.fill(P0, 1)
        rig.pass_time(0.6)
        worker.step()
        named.append([line.partition for line in flush_records(rig.broker)[-1].topic_partitions])
    assert named == [[0], [0], [0], [0, 1]]
    line = flush_records(rig.broker)[-1].topic_partitions[1]
    assert (line.first_offset, line.idle_since_ms) == (3, None), "nobody knows whether records came"
    rig.drain()


def test_topic_partition_added_after_a_first_start_at_the_end_is_read_from_its_beginning() -> None:
    """Also where its records carry older times than the first start: it was not there then."""
    rig = Rig(tps=(P0,))
    rig.pass_time(60.0)
    start(rig, "end", P0)
    rig.broker.grow(P1)
    rig.broker.logs[P1].append(b"{}", timestamp_ms=0)
    assert start(rig, "end", P1) == {P1: begun(0, "added")}


def test_first_start_with_policy_fail_stops_and_commits_nothing() -> None:
    """No committed offset may mean that they have expired: a person has to look."""
    rig = Rig()
    with pytest.raises(StartPositionError, match=r"kafka\.start_at"):
        start(rig, "fail", P0)
    assert rig.committed() == {P0: None, P1: None}


@pytest.mark.parametrize("policy", ["beginning", "end", "fail"])
def test_topic_partition_added_later_is_read_from_its_beginning(policy: StartAt) -> None:
    """Others of the topic have offsets: this one is new, and its first records must not be lost."""
    rig = Rig(tps=(P0, P1, P2))
    rig.broker.reset({P0: 3, P1: 1})
    rig.fill(P2, 4)
    assert start(rig, policy, P2) == {P2: begun(0, "added")}


def test_first_start_of_two_topics_treats_each_by_itself() -> None:
    """A topic without any offset is a first start, also beside one that has them."""
    other = TopicPartition("other", 0)
    rig = Rig(tps=(P0, other))
    rig.broker.reset({P0: 3})
    rig.fill(other, 4)
    found = start(rig, "end", P0, other)
    assert found == {P0: committed(3), other: begun(4)}


def test_start_position_that_is_not_committed_is_not_proven_and_stops_in_the_end() -> None:
    """It would be another one after the next rebalance: nothing is recorded until it is, and not for ever."""
    rig = Rig()
    parts, deadline = parts_of(rig, "beginning"), Deadline.after(1000.0, rig.clock.now_s)
    parts.find([P0], deadline=deadline)
    script = member_of(rig).committer.script
    script.append("ILLEGAL_GENERATION")
    with pytest.raises(CommitAbortedError):
        parts.prove(deadline=deadline)
    assert (parts.unproven, rig.committed()[P0]) == (frozenset({P0}), None)
    rig.clock.advance(121.0)
    script.append("ILLEGAL_GENERATION")
    with pytest.raises(SourceError, match="start positions are not committed"):
        parts.prove(deadline=deadline)


@pytest.mark.parametrize("outcome", [Outcome.UNKNOWN_COMMITTED, Outcome.UNKNOWN_OPEN, Outcome.NOT_ABORTED])
def test_start_position_whose_commit_is_unknown_is_settled_before_it_is_committed_again(outcome: Outcome) -> None:
    """The next producer's init ends the transaction; then the committed offset tells."""
    rig = Rig()
    parts, deadline = parts_of(rig, "beginning"), Deadline.after(1000.0, rig.clock.now_s)
    parts.find([P0], deadline=deadline)
    member_of(rig).committer.script.append(outcome)
    with pytest.raises(DiscardError):
        parts.prove(deadline=deadline)
    is_committed = outcome is Outcome.UNKNOWN_COMMITTED
    assert parts.prove(deadline=deadline) == ({P0} if is_committed else set())
    assert (parts.unproven, rig.committed()[P0]) == (frozenset(), 0)


@pytest.mark.parametrize("style", STYLES)
def test_worker_records_nothing_before_its_start_position_is_committed(style: str) -> None:
    """What is handed over meanwhile is refused, and read again when it is committed, once."""
    rig = Rig(style)
    rig.fill(P0, 4)
    worker = rig.worker()
    worker.consumer.pop_first = lambda _most: 0
    worker.committer.script.extend(["ILLEGAL_GENERATION"] * 2)
    rig.turn_until(lambda: worker.controller.state.owned == {P0, P1})
    assert rig.committed() == {P0: None, P1: None}
    assert worker.recorder.opening is None
    assert worker.metrics.total("records_refused", cause="rewound") == 4
    rig.drain()
    assert worker.metrics.total("records_refused", cause="rewound") == 4


def test_start_position_waits_while_a_dead_worker_holds_its_transaction_open() -> None:
    """Committed offsets are stable ones: read before the end of a transaction they would be read twice."""
    rig = Rig()
    worker = member_of(rig)
    rig.broker.reset({P0: 3})
    rig.leave_open(worker, P0)
    assert start(rig, "beginning", P0) == {P0: committed(3)}
    assert rig.clock.now_s() >= 1060.0
    rig.leave_open(worker, P0)
    with pytest.raises(SourceError):
        start(rig, "beginning", P0, seconds=10.0)


def test_all_questions_share_one_deadline() -> None:
    """Each is slow, and the last ones wait for what is not stable: the sum is bounded, and not each part."""
    rig = Rig()
    worker = member_of(rig)
    began_s = rig.clock.now_s()

    def be_slow(_name: str) -> None:
        rig.clock.advance(20.0)
        rig.leave_open(worker, P0)

    worker.consumer._point = be_slow
    with pytest.raises(SourceError, match="timed out"):
        start(rig, "beginning", P0, seconds=80.0)
    assert 80.0 <= rig.clock.now_s() - began_s <= 100.0


@pytest.mark.parametrize("where", ["watermarks", "begin"])
@pytest.mark.parametrize("policy", ["beginning", "end"])
def test_first_start_of_two_workers_never_sets_a_commit_back(policy: StartAt, where: str) -> None:
    """One worker is slow over its start positions, the other has flushed meanwhile: its commit stands.

    The broker does not check that a member owns what it commits, so the slow one would set the other's offset back,
    and the next owner would read everything again.
    """
    rig = Rig()
    assert isinstance(rig.group, ClassicGroup)
    rig.group.initial_members = 2
    rig.fill(P0, 2)
    rig.fill(P1, 2)

    def while_slow(name: str) -> None:
        if name != where or second.stop.requested:
            return
        for _ in range(3):
            second.step()
        rig.fill(P1, 3)
        second.step()
        second.stop.request()
        second.step()

    slow_rules = Rules().with_start_at(policy)
    first = rig.worker("a", rules=slow_rules, point=while_slow)
    second = rig.worker("b", rules=slow_rules)
    first.step()
    assert second.controller.state.phase.value == "stopped"
    assert rig.committed()[P1] == 5
    rig.workers.remove(second)
    second.close()
    rig.drain()


@pytest.mark.parametrize("policy", ["beginning", "end", "fail"])
@pytest.mark.parametrize("asked", [1, 2, 3])
def test_offset_committed_while_a_start_position_is_looked_for_is_taken(policy: StartAt, asked: int) -> None:
    """Others may have owned it, flushed and gone while we were stopped: their commit is where to go on."""
    rig = Rig()
    rig.fill(P0, 9)
    worker = member_of(rig)
    questions: list[str] = []

    def commit_meanwhile(name: str) -> None:
        questions.append(name)
        if questions.count("committed") == asked and name == "committed":
            rig.broker.reset({P0: 7, P1: 0})

    worker.consumer._point = commit_meanwhile
    parts, deadline = parts_of(rig, policy), Deadline.after(80.0, rig.clock.now_s)
    try:
        found = parts.find([P0], deadline=deadline)
    except StartPositionError:
        assert policy == "fail"
        assert asked == 3
        return
    again = parts.prove(deadline=deadline)
    assert (found == {P0: committed(7)}) == (asked < 3)
    assert again == ({P0} if asked == 3 else set())
    assert rig.committed()[P0] == 7


@pytest.mark.parametrize("policy", ["beginning", "end"])
@pytest.mark.parametrize("where", ["watermarks", "begin", "offsets_sent"])
def test_finding_3_worker_that_was_put_out_commits_no_start_position(policy: StartAt, where: str) -> None:
    """Stopped past its session, a worker has to notice: the broker does not look at who owns what is committed.

    A looks for start positions and is stopped. B takes over, reads, commits, and dies; the group is empty. A goes on,
    without generation and member id, and commits the beginning over everything that B had done.
    """
    rig = Rig()
    rig.fill(P0, 9)
    worker = member_of(rig)

    def be_stopped(name: str) -> None:
        if name == where and rig.broker.committed_offset(P0) is None:
            rig.pass_time(70.0, except_for=worker)
            rig.broker.reset({P0: 7, P1: 0})
            worker.consumer.member.background()

    worker.consumer._point = worker.committer._point = be_stopped
    if where == "watermarks":  # asks again after them
        start(rig, policy, P0)
    else:
        with pytest.raises(DiscardError):
            start(rig, policy, P0)
    assert rig.committed()[P0] == 7
    rig.check()


def test_start_position_is_committed_only_as_the_member_that_it_was_assigned_to() -> None:
    """Expelled without a callback and joined again as another: what is assigned to it now comes with a callback."""
    rig = Rig()
    parts, deadline = parts_of(rig, "beginning"), Deadline.after(1000.0, rig.clock.now_s)
    parts.find([P0], deadline=deadline)
    member_of(rig).consumer.member._member_id = "another"  # type: ignore[attr-defined]
    with pytest.raises(MembershipError):
        parts.prove(deadline=deadline)
    parts.forget([P0])
    assert parts.prove(deadline=deadline) == frozenset()


def test_finding_7_read_committed_is_what_makes_start_positions_stable() -> None:
    """The source consumer's isolation level decides whether offsets are stable: any other value is refused."""
    from service.adapters.kafka_options import PINNED_CONSUMER  # noqa: PLC0415
    from service.config.kafka_properties import is_allowed  # noqa: PLC0415

    assert PINNED_CONSUMER["isolation.level"] == "read_committed"
    assert not is_allowed("isolation.level", "read_uncommitted")


def test_what_was_never_told_to_be_owned_is_not_told_to_be_given_back() -> None:
    """Asked to leave while it waited for committed offsets: the log has no end without a beginning."""
    rig = Rig()
    worker = rig.worker()

    def leaving(_tps: Iterable[TopicPartition], **_: Deadline) -> dict[TopicPartition, CommittedOffset | None]:
        raise LeavingError("asked to leave while it waited for an answer")

    worker.consumer.committed = leaving  # type: ignore[assignment,method-assign]
    with capture_logs() as logs:
        with pytest.raises(LeavingError):
            rig.turn_until(lambda: False, turns=20)
        worker.close()
    assert not [one["event"] for one in logs if one["event"].startswith("partitions_")]


# A topic made anew under its name.


@pytest.mark.parametrize("style", STYLES)
def test_committed_offset_of_a_topic_that_was_made_anew_is_refused(style: str) -> None:
    """The number is valid again, but names other records; the message has the two ways on."""
    rig = Rig(style)
    worker = flushed(rig)
    old, new = rig.broker.topic_ids["source"], rig.broker.remake("source", keep_offsets=True)
    rig.fill(P0, 9)
    rig.fill(P1, 9)
    error = refusal(rig)
    assert f"source-0 (4, of id {old})" in error
    assert f"its id is {new}" in error
    assert "`log-partitioner offsets set --topic source --to committed`" in error
    assert "`log-partitioner offsets set --topic source --to beginning`" in error
    assert worker.flush_records.reads == 1
    assert rig.committed() == {P0: 4, P1: 4}


@pytest.mark.parametrize("style", STYLES)
def test_topic_made_anew_while_a_worker_runs_stops_it(style: str) -> None:
    """The client library takes over the new id and reads on at its position, without a word (KAFKA_FACTS O4)."""
    rig = Rig(style)
    worker = flushed(rig, is_gone=False)
    rig.broker.remake("source", keep_offsets=True)
    for tp in (P0, P1):
        rig.fill(tp, 9)
    with pytest.raises(StartPositionError, match="made anew while this worker ran"):
        rig.turn_until(lambda: rig.committed() != {P0: 4, P1: 4})
    worker.close()
    assert rig.committed() == {P0: 4, P1: 4}


@pytest.mark.parametrize("metadata", ["", "somebody else's", encode(None).text])
def test_committed_offset_without_a_topic_id_is_logged_once_and_filled_in(metadata: str) -> None:
    """Older commits, an administrator's reset: unknown is not different."""
    rig = Rig()
    flushed(rig)
    rig.broker.alter({P0: CommittedOffset(4, metadata=metadata)})
    rig.fill(P0, 2)
    with capture_logs() as logs:
        rig.worker("b")
        rig.drain()
    (line,) = [one for one in logs if one["event"] == "committed_topic_id_unknown"]
    assert line["topic_partitions"] == ["source-0"]
    assert decode(stored(rig, P0).metadata).topic_id == rig.broker.topic_ids["source"]


def test_committed_offset_is_not_different_where_the_broker_tells_no_ids() -> None:
    """Or does not let us ask."""
    rig = Rig()
    flushed(rig)
    rig.broker.topic_ids.clear()
    rig.fill(P0, 2)
    rig.worker("b")
    rig.drain()


# Committed offsets that are gone.


def flushed(rig: Rig, *, is_gone: bool = True) -> FakeWorker:
    """Let a worker flush four records of each TopicPartition, and leave."""
    for tp in rig.broker.logs:
        rig.fill(tp, 4)
    worker = rig.worker()
    rig.drain()
    if is_gone:
        worker.stop.request()
        rig.turn_until(lambda: worker.controller.state.phase.value == "stopped")
        worker.close()
        rig.workers.remove(worker)
    return worker


def refusal(rig: Rig, *, rules: Rules | None = None) -> str:
    """Start a worker that refuses, after a while where asking again might help; gives what it says."""
    worker = rig.worker("b", rules=rules)
    with pytest.raises(StartPositionError) as caught:
        turn_for(rig, WRONG_MAX_S + 30.0)
    worker.close()
    rig.workers.remove(worker)
    return str(caught.value)


def turn_for(rig: Rig, seconds: float) -> None:
    """Let workers turn while time passes."""
    end_s = rig.clock.now_s() + seconds
    while rig.clock.now_s() < end_s:
        rig.pass_time(5.0)
        for worker in rig.workers:
            worker.step()


@pytest.mark.parametrize("policy", ["beginning", "end"])
@pytest.mark.parametrize("style", STYLES)
def test_lost_offset_is_refused_with_the_offset_to_go_on_from(style: str, policy: StartAt) -> None:
    """One of them or all: the flush records know better than the policy, which would publish everything twice."""
    rig = Rig(style)
    flushed(rig)
    rig.fill(P0, 5)
    rig.fill(P1, 5)
    rig.broker.reset({P1: None})
    error = refusal(rig, rules=Rules().with_start_at(policy))
    assert "go on with source-1 at 4 (committed: nothing)." in error
    assert "`log-partitioner offsets set --topic source --to flushed`" in error
    rig.broker.reset({P0: None})
    assert "go on with source-0 at 4 (committed: nothing), source-1 at 4 (committed: nothing)." in refusal(
        rig, rules=Rules().with_start_at(policy)
    )
    assert rig.committed() == {P0: None, P1: None}
    rig.broker.alter({P0: CommittedOffset(4), P1: CommittedOffset(4)})
    rig.worker("c", rules=Rules().with_start_at(policy))
    rig.drain()


def test_lost_offset_is_refused_while_a_worker_runs() -> None:
    """Lost by the brokers, and the TopicPartition handed on."""
    rig = Rig()
    worker = flushed(rig, is_gone=False)
    rig.broker.reset({P0: None, P1: None})
    rig.worker("b")
    with pytest.raises(StartPositionError, match="go on with source-"):
        turn_for(rig, 2 * WRONG_MAX_S)
    assert worker.flush_records.reads == 1


def test_lost_offset_that_is_where_the_policy_starts_anyway_is_no_loss() -> None:
    """Nothing is read twice: its flush records say that it was owned, and nothing came."""
    rig = Rig()
    rig.fill(P0, 4)
    worker = rig.worker()
    rig.drain()
    worker.stop.request()
    worker.step()
    rig.workers.remove(worker)
    worker.close()
    rig.broker.reset({P1: None})
    rig.worker("b")
    rig.fill(P1, 2)
    rig.drain()


@pytest.mark.parametrize("policy", ["beginning", "end"])
@pytest.mark.parametrize("style", STYLES)
def test_offset_that_others_commit_while_a_worker_is_stopped_in_its_first_assignment_is_not_lost(
    style: str, policy: StartAt
) -> None:
    """It asked for committed offsets before that commit and reads flush records after it."""
    rig = Rig(style)
    rig.fill(P0, 4)
    rig.fill(P1, 4)
    rules = Rules().with_start_at(policy)
    others: list[FakeWorker] = []

    def while_stopped(name: str) -> None:
        if name == "watermarks" and not others:
            others.append(rig.worker("b", rules=rules))
            for _ in range(200):
                rig.pass_time(1.0, except_for=first)
                rig.fill(P0, 1)
                rig.fill(P1, 1)
                others[0].step()

    first = rig.worker("a", rules=rules, point=while_stopped)
    rig.turn_until(lambda: bool(others))
    assert others[0].metrics.total("flushes", outcome="committed")
    rig.drain()


def test_flush_records_of_another_group_or_another_topic_are_no_history() -> None:
    """A new group begins where the policy says; so does a topic that was made anew, whose offsets the brokers drop."""
    rig = Rig()
    flushed(rig)
    rig.broker.remake("source", keep_offsets=False)
    rig.fill(P0, 3)
    worker = rig.worker("b")
    rig.turn_until(lambda: rig.committed()[P0] == 3)
    worker.flush_records.group = OurGroup("another")
    found, _ = worker.flush_records.read([P0], SourceTopics(), deadline=Deadline.after(1.0, rig.clock.now_s))
    assert found == {}


def test_ids_of_all_source_topics_are_known_before_foreign_groups_are_judged() -> None:
    """By which a topic that others flushed is told from one that was made anew; not of what is assigned alone."""
    rig = Rig()
    rig.broker.topic_ids["web"] = "an id"
    worker, topics, asked = member_of(rig), SourceTopics(), list[dict[str, str]]()
    read = worker.flush_records.read

    def reading(tps: Iterable[TopicPartition], known: SourceTopics, **more: Any) -> Flushed:
        asked.append({**known.ids})
        return read(tps, known, **more)

    worker.flush_records.read = reading  # type: ignore[method-assign, assignment]
    parts = StartPositions(
        rules=START_RULES._replace(topics=("source", "web")),
        consumer=worker.consumer,
        committer=worker.committer,
        flush_records=worker.flush_records,
        topics=topics,
        clock=rig.clock,
    )
    deadline = Deadline.after(80.0, rig.clock.now_s)
    parts.find([P0], deadline=deadline)
    parts.prove(deadline=deadline)
    assert asked == [{"source": rig.broker.topic_ids["source"], "web": "an id"}]


@pytest.mark.parametrize("style", STYLES)
def test_new_owner_waits_while_the_coordinator_answers_with_offsets_of_long_ago(style: str) -> None:
    """It has loaded a part of its log (KAFKA_FACTS O10): going on there would publish everything since then twice."""
    rig = Rig(style)
    flushed(rig)
    rig.fill(P0, 3)
    rig.broker.load_part(0.5, seconds=WRONG_MAX_S - 5.0)
    second = rig.worker("b")
    turn_for(rig, WRONG_MAX_S - 10.0)
    assert rig.committed() == {P0: 4, P1: 4}
    assert second.controller.state.owned == {P0, P1}
    rig.drain()
    assert second.flush_records.reads == 1


@pytest.mark.parametrize("style", STYLES)
def test_committed_offset_that_stays_before_the_flush_records_is_refused(style: str) -> None:
    """Set back by a tool, or lost by an unclean election of the group's own log."""
    rig = Rig(style)
    flushed(rig)
    rig.broker.reset({P0: 1})
    assert "go on with source-0 at 4 (committed: 1)." in refusal(rig)
    assert rig.committed() == {P0: 1, P1: 4}


def test_rewind_that_stays_before_what_is_known_to_be_committed_is_refused() -> None:
    """A worker that asks for ever stands still without a word."""
    rig = Rig()
    worker = flushed(rig, is_gone=False)
    rig.broker.reset({P0: 1})
    rig.fill(P0, 3)
    worker.committer.script.append("TRANSACTION_ABORTABLE")
    with pytest.raises(StartPositionError, match=r"source-0 at 4 \(committed: 1\)"):
        turn_for(rig, WRONG_MAX_S + 60.0)
    assert rig.committed() == {P0: 1, P1: 4}


def test_commit_without_an_answer_is_looked_for_in_the_flush_records() -> None:
    """It was made, and the coordinator, just loaded, answers with what was committed before: that is no abort."""
    rig = Rig()
    worker = flushed(rig, is_gone=False)
    rig.fill(P0, 3)
    worker.committer.script.append(Outcome.UNKNOWN_COMMITTED)
    rig.broker.on_committed = lambda one: rig.broker.load_part(0.8, seconds=20.0) or check_commit(one)  # type: ignore[func-returns-value]
    rig.turn_until(lambda: rig.committed()[P0] == 7)
    rig.broker.on_committed = check_commit
    assert worker.controller.state.to_seek == {P0, P1}
    told = rig.broker.told(P0)
    assert told is not None
    assert told.offset == 4
    turn_for(rig, 10.0)
    assert worker.controller.state.to_seek == {P0, P1}
    turn_for(rig, 30.0)
    assert worker.flush_records.reads == 2
    rig.fill(P0, 3)
    rig.drain()


def test_flush_records_that_were_not_read_whole_are_read_again() -> None:
    """A short look, as for offsets that are there, says nothing of one that is missing."""
    rig = Rig()
    flushed(rig)
    rig.broker.reset({P0: None})
    worker = rig.worker("b")
    read, looks = worker.flush_records.read, list[bool]()

    def failing(
        tps: Iterable[TopicPartition], topics: SourceTopics, *, newest_of: Iterable[TopicPartition], deadline: Deadline
    ) -> Flushed:
        looks.append(P0 in tps)
        if len(looks) == 1:
            raise HistoryUnknownError("not in time")
        found, _ = read([*tps, *newest_of], topics, deadline=deadline)
        return Flushed({one: offset for one, offset in found.items() if one in tps}, [])

    worker.flush_records.read = failing  # type: ignore[assignment,method-assign]
    with pytest.raises(StartPositionError, match="source-0 at 4"):
        turn_for(rig, WRONG_MAX_S + 30.0)
    assert looks[:2] == [True, True]
    assert rig.committed() == {P0: None, P1: 4}


def test_offset_that_was_of_long_ago_is_asked_for_again_before_anything_is_read() -> None:
    """The second answer is the right one: nothing is recorded until it was rewound to that."""
    rig = Rig()
    flushed(rig)
    rig.fill(P0, 3)
    rig.broker.load_part(0.5, seconds=1.0)
    second = rig.worker("b")
    rig.turn_until(lambda: bool(second.controller.state.owned))
    rig.drain()
    assert second.metrics.total("records_refused", cause="rewound") > 0


@pytest.mark.parametrize("stopped_s", [270.0, 400.0])
@pytest.mark.parametrize(("where", "time"), [("verify", 1), ("committed", 2)])  # the first one found the start
def test_process_that_is_stopped_before_its_start_is_proven_asks_again(where: str, time: int, stopped_s: float) -> None:
    """Too little is left until the next poll, and another's transaction is open: it does not end for that."""
    rig = Rig()
    flushed(rig)
    rig.fill(P0, 3)
    rig.broker.load_part(0.5, seconds=1.0)
    second = rig.worker("b", start=False)
    passed: list[str] = []

    def be_stopped(name: str) -> None:
        passed.append(name)
        if name == where and passed.count(where) == time and second.controller.state.owned:
            rig.pass_time(stopped_s)
            rig.leave_open(second, P0)

    second.consumer._point = be_stopped
    second.controller._verify = lambda _deadline: be_stopped("verify")
    second.start()
    rig.drain()
    assert second.metrics.total("rewinds") > 0


def test_commit_without_an_answer_is_not_made_again_where_the_offset_is_lost() -> None:
    """Nothing is committed any more: where the worker stood before is not where to go on."""
    rig = Rig()
    worker = flushed(rig, is_gone=False)
    rig.fill(P0, 3)
    worker.committer.script.append(Outcome.UNKNOWN_COMMITTED)
    rig.broker.on_committed = lambda _: rig.broker.reset({P0: None})
    with pytest.raises(StartPositionError, match=r"source-0 at 7 \(committed: nothing\)"):
        turn_for(rig, WRONG_MAX_S + 90.0)


def test_flush_records_are_read_once_for_each_assignment() -> None:
    """And not again while it lasts, however often it is rewound."""
    rig = Rig()
    first = flushed(rig, is_gone=False)
    first.committer.script.append("TRANSACTION_ABORTABLE")
    rig.fill(P0, 3)
    rig.drain()
    assert first.flush_records.reads == 1
    second = rig.worker("b")
    rig.turn_until(lambda: bool(second.controller.state.owned))
    rig.fill(P0, 3)
    rig.fill(P1, 3)
    rig.drain()
    assert second.flush_records.reads == 1


@pytest.mark.parametrize(("seconds", "budget_s"), [(80.0, 60.0), (20.0, 20.0)])
def test_flush_records_have_a_minute_of_what_is_left(seconds: float, budget_s: float) -> None:
    """The rest is for the commit of the start positions, within the same poll budget."""
    rig = Rig()
    start(rig, "beginning", P0, P1, seconds=seconds)
    assert member_of(rig).flush_records.budgets_s == [pytest.approx(budget_s, abs=0.1)]


def test_history_that_cannot_be_read_is_refused_unless_it_is_accepted() -> None:
    """No permission, or too long ago to be read in time: nobody knows whether it would be published twice."""
    rig = Rig()
    rig.fill(P0, 3)
    for accepted in (False, True):
        chosen = replace(Rules(), start=START_RULES._replace(accept_unknown_history=accepted))
        worker = rig.worker("b", rules=chosen)
        worker.flush_records.error = HistoryUnknownError("topic flushes: TOPIC_AUTHORIZATION_FAILED")
        if accepted:
            rig.drain()
            continue
        with pytest.raises(StartPositionError, match=r"AUTHORIZATION.*kafka\.accept_unknown_history"):
            turn_for(rig, WRONG_MAX_S + 30.0)
        worker.close()
        rig.workers.remove(worker)
        assert rig.committed() == {P0: None, P1: None}


def test_worker_that_is_asked_to_leave_while_it_reads_flush_records_has_recorded_nothing() -> None:
    """Nothing is committed: the next one finds what this one has found."""
    rig = Rig()
    rig.fill(P0, 3)
    worker = rig.worker()
    worker.flush_records.error = LeavingError("asked to leave")
    with pytest.raises(LeavingError):
        rig.turn_until(lambda: False, turns=5)
    worker.close()
    assert worker.recorder.opening is None
    assert rig.committed() == {P0: None, P1: None}
