"""Start positions: the committed offset, or an explicit policy; never a silent jump, never a step back."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from service.core.deadline import Deadline
from service.core.model import CommittedOffset, TopicPartition
from service.core.offset_metadata import decode, encode
from service.errors import SourceError, StartPositionError
from service.runtime.start_positions import Bootstrap, StartPosition, start_positions
from tests.fakes.group import ClassicGroup
from tests.fakes.records import P0, P1, P2
from tests.fakes.rig import COOPERATIVE, EAGER, Rig
from tests.fakes.worker import CONTROL_RULES, FakeWorker, Rules


def member_of(rig: Rig) -> FakeWorker:
    """Give a worker that has joined but has had no callback."""
    return rig.workers[0] if rig.workers else rig.worker()


def start(
    rig: Rig, policy: Bootstrap, *tps: TopicPartition, seconds: float = 80.0
) -> dict[TopicPartition, StartPosition]:
    """Ask for start positions as the only member."""
    deadline = Deadline.after(seconds, rig.clock.now_s)
    topic_ids = rig.broker.topic_ids
    return start_positions(member_of(rig).consumer, tps, bootstrap=policy, topic_ids=topic_ids, deadline=deadline)


def committed(offset: int) -> StartPosition:
    """Give a start at what an administrator has committed."""
    return StartPosition(CommittedOffset(offset), "committed")


def begun(rig: Rig, offset: int, source: Literal["bootstrap", "added"], tp: TopicPartition = P0) -> StartPosition:
    """Give a start that is committed by now, with the topic's id."""
    return StartPosition(CommittedOffset(offset, metadata=encode(rig.broker.topic_ids[tp.topic]).text), source)


def rules(policy: Bootstrap) -> Rules:
    """Give rules with this policy."""
    return replace(Rules(), control=CONTROL_RULES._replace(bootstrap=policy))


@pytest.mark.parametrize("policy", ["beginning", "end", "fail"])
def test_committed_offset_wins_over_every_policy(policy: Bootstrap) -> None:
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
    assert start(rig, "beginning", P0) == {P0: begun(rig, 2, "bootstrap")}
    assert rig.committed()[P0] == 2


def test_committed_offset_comes_with_its_leader_epoch_and_metadata() -> None:
    """As it was committed: where to go on is compared with the log, and the metadata is another one's to read."""
    rig = Rig()
    generation, member, _ = member_of(rig).consumer.membership()
    stored = CommittedOffset(0, 3, "meta")
    rig.broker.commit({P0: stored}, generation=generation, member_id=member)
    assert start(rig, "end", P0) == {P0: StartPosition(stored, "committed")}


@pytest.mark.parametrize("policy", ["beginning", "end"])
def test_first_start_commits_the_id_of_the_topic_or_that_it_is_not_known(policy: Bootstrap) -> None:
    """A broker that gives no ids is no reason not to start."""
    rig = Rig()
    topic_id = rig.broker.topic_ids.pop(P0.topic)
    start(rig, policy, P0)
    assert decode(_stored(rig, P0).metadata).topic_id is None
    rig.broker.reset({P0: None, P1: None})
    rig.broker.topic_ids[P0.topic] = topic_id
    start(rig, policy, P0)
    assert decode(_stored(rig, P0).metadata).topic_id == topic_id


def _stored(rig: Rig, tp: TopicPartition) -> CommittedOffset:
    found = rig.broker.committed(tp)
    assert found is not None
    return found


def test_first_start_at_the_end_commits_the_end_of_the_whole_topic() -> None:
    """Who owns another TopicPartition later starts where the policy said, not where the topic ends by then."""
    rig = Rig()
    rig.fill(P0, 5)
    rig.fill(P1, 7)
    assert start(rig, "end", P0) == {P0: begun(rig, 5, "bootstrap")}
    assert rig.committed() == {P0: 5, P1: 7}
    rig.fill(P1, 3)
    assert start(rig, "end", P1) == {P1: begun(rig, 7, "bootstrap")._replace(source="committed")}


def test_first_start_with_policy_fail_stops_and_commits_nothing() -> None:
    """No committed offset may mean that they have expired: a person has to look."""
    rig = Rig()
    with pytest.raises(StartPositionError, match=r"kafka\.bootstrap"):
        start(rig, "fail", P0)
    assert rig.committed() == {P0: None, P1: None}


@pytest.mark.parametrize("policy", ["beginning", "end", "fail"])
def test_topic_partition_added_later_is_read_from_its_beginning(policy: Bootstrap) -> None:
    """Others of the topic have offsets: this one is new, and its first records must not be lost."""
    rig = Rig(tps=(P0, P1, P2))
    rig.broker.reset({P0: 3, P1: 1})
    rig.fill(P2, 4)
    assert start(rig, policy, P2) == {P2: begun(rig, 0, "added")}


def test_first_start_of_two_topics_treats_each_by_itself() -> None:
    """A topic without any offset is a first start, also beside one that has them."""
    other = TopicPartition("other", 0)
    rig = Rig(tps=(P0, other))
    rig.broker.reset({P0: 3})
    rig.fill(other, 4)
    assert start(rig, "end", P0, other) == {P0: committed(3), other: begun(rig, 4, "bootstrap", other)}


def test_start_position_that_cannot_be_committed_stops() -> None:
    """A start that is not committed would be another one after the next rebalance."""
    rig = Rig()
    rig.pass_time(40, except_for=member_of(rig))
    with pytest.raises(SourceError, match="not committed"):
        start(rig, "beginning", P0)


def test_start_position_waits_while_a_dead_worker_holds_its_transaction_open() -> None:
    """Committed offsets are stable ones: read before the end of a transaction they would be read twice."""
    rig = Rig()
    worker = member_of(rig)
    rig.broker.reset({P0: 3})
    epoch = rig.broker.init("of a worker that died")
    rig.broker.begin("of a worker that died", epoch)
    generation, member, _ = worker.consumer.membership()
    rig.broker.send_offsets(
        "of a worker that died", epoch, {P0: CommittedOffset(9)}, generation=generation, member_id=member
    )
    assert start(rig, "beginning", P0) == {P0: committed(3)}
    assert rig.clock.now_s() >= 1060.0
    epoch = rig.broker.init("another")
    rig.broker.begin("another", epoch)
    rig.broker.send_offsets("another", epoch, {P0: CommittedOffset(9)}, generation=generation, member_id=member)
    with pytest.raises(SourceError):
        start(rig, "beginning", P0, seconds=10.0)


def test_all_questions_share_one_deadline() -> None:
    """Each is slow, and the last ones wait for what is not stable: the sum is bounded, and not each part."""
    rig = Rig()
    consumer = member_of(rig).consumer
    generation, member, _ = consumer.membership()
    began_s = rig.clock.now_s()

    def be_slow(_name: str) -> None:
        rig.clock.advance(20.0)
        epoch = rig.broker.init("another")
        rig.broker.begin("another", epoch)
        rig.broker.send_offsets("another", epoch, {P0: CommittedOffset(9)}, generation=generation, member_id=member)

    consumer._point = be_slow
    with pytest.raises(SourceError, match="timed out"):
        start(rig, "beginning", P0, seconds=80.0)
    assert 80.0 <= rig.clock.now_s() - began_s <= 100.0


@pytest.mark.parametrize("policy", ["beginning", "end"])
@pytest.mark.parametrize("style", [EAGER, COOPERATIVE])
def test_first_start_of_two_workers_never_sets_a_commit_back(style: str, policy: Bootstrap) -> None:
    """One worker is slow over its start positions, the other has flushed meanwhile: its commit stands.

    The broker does not check that a member owns what it commits, so the slow one would set the other's offset back,
    and the next owner would read everything again.
    """
    rig = Rig(style)
    assert isinstance(rig.group, ClassicGroup)
    rig.group.initial_members = 2
    rig.fill(P0, 2)
    rig.fill(P1, 2)

    def while_slow(name: str) -> None:
        if name != "watermarks" or second.stop.requested:
            return
        for _ in range(3):
            second.step()
        rig.fill(P1, 3)
        second.step()
        second.stop.request()
        second.step()

    slow_rules = rules(policy)
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
def test_offset_committed_while_a_start_position_is_looked_for_is_taken(policy: Bootstrap, asked: int) -> None:
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
    try:
        found = start(rig, policy, P0)
    except StartPositionError:
        assert policy == "fail"
        assert asked == 3
        return
    if questions.count("committed") >= asked:
        assert found == {P0: committed(7)}
        assert rig.committed()[P0] == 7
    assert not rig.broker.set_back


@pytest.mark.parametrize("policy", ["beginning", "end"])
@pytest.mark.parametrize("where", ["watermarks", "commit_start"])
def test_finding_3_worker_that_was_put_out_commits_no_start_position(policy: Bootstrap, where: str) -> None:
    """Into an empty group the broker takes a commit from nobody: stopped past its session, a worker has to notice.

    A looks for start positions and is stopped. B takes over, reads, commits, and dies; the group is empty. A goes on,
    without generation and member id, and commits the beginning over everything that B had done.
    """
    rig = Rig()
    rig.fill(P0, 9)
    worker = member_of(rig)

    def be_stopped(name: str) -> None:
        if name == where and rig.broker.committed_offset(P0) is None:
            rig.pass_time(60.0, except_for=worker)
            rig.broker.reset({P0: 7, P1: 0})
            worker.consumer.member.background()

    worker.consumer._point = be_stopped
    if where == "watermarks" and policy == "end":  # asks again after them
        assert start(rig, policy, P0) == {P0: committed(7)}
    else:
        with pytest.raises(SourceError, match="not committed"):
            start(rig, policy, P0)
    assert rig.committed()[P0] == 7
    assert not rig.broker.set_back


def test_finding_7_read_committed_is_what_makes_start_positions_stable() -> None:
    """The source consumer's isolation level decides whether offsets are stable: any other value is refused."""
    from service.adapters.kafka_options import PINNED_CONSUMER  # noqa: PLC0415
    from service.kafka_properties import refused  # noqa: PLC0415

    assert PINNED_CONSUMER["isolation.level"] == "read_committed"
    assert refused("isolation.level", "read_uncommitted")
