"""Positions: the committed offset, or an explicit policy; never a silent jump, never a step back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from structlog.testing import capture_logs

from log_partitioner.config.section import StartAt
from log_partitioner.control.deadline import Deadline
from log_partitioner.control.flush_history import FlushedOffsets, OurGroup
from log_partitioner.errors import DiscardError, HistoryUnknownError, LeavingError, StartPositionError
from log_partitioner.formats.model import CommittedOffset, TopicPartition
from log_partitioner.formats.offset_metadata import SourceTopics, decode, encode
from log_partitioner.runtime.positions import WRONG_MAX_S, NextPosition, Positions
from tests.fakes.check import check_commit, flush_records
from tests.fakes.committer import Outcome
from tests.fakes.records import P0, P1
from tests.fakes.rig import COOPERATIVE, STYLES, Rig, flushed, owning
from tests.fakes.worker import FakeWorker, Rules, settings_of

AT_MS = 1_800_000_000_000


def member_of(rig: Rig) -> FakeWorker:
    """Give a worker that has joined but has had no callback."""
    return rig.workers[0] if rig.workers else rig.worker()


def find(rig: Rig, policy: StartAt, *tps: TopicPartition, seconds: float = 80.0) -> dict[TopicPartition, NextPosition]:
    """Ask where a new owner goes on."""
    worker = member_of(rig)
    positions = Positions(worker.worker.ports, settings_of(policy).kafka, SourceTopics())
    return positions.find(dict.fromkeys(tps), positioned=(), deadline=Deadline.after(seconds, rig.clock.now_s))


def begun(offset: int) -> NextPosition:
    """Give a start by policy."""
    return NextPosition(CommittedOffset(offset), "policy")


def stored(rig: Rig, tp: TopicPartition) -> CommittedOffset:
    """Give what is committed."""
    found = rig.broker.committed(tp)
    assert found is not None
    return found


@pytest.mark.parametrize("policy", ["beginning", AT_MS, "fail"])
def test_committed_offset_wins_over_every_policy(policy: StartAt) -> None:
    """A policy is for a first start only; leader epoch and metadata come as they were committed."""
    rig = Rig()
    rig.fill(P0, 5)
    stored = CommittedOffset(3, 3, "meta")
    rig.broker.alter({P0: stored})
    assert find(rig, policy, P0) == {P0: NextPosition(stored, "committed")}


def test_first_start_at_the_beginning_is_the_first_offset_there_is() -> None:
    """Retention may have taken the first records: the beginning is where the log begins."""
    rig = Rig()
    rig.fill(P0, 5)
    rig.broker.logs[P0].first_offset = 2
    assert find(rig, "beginning", P0) == {P0: begun(2)}


def test_first_start_at_a_time_is_the_first_record_of_that_time_or_the_end() -> None:
    """The answer is the same for every worker at any time, so no worker has to remember it."""
    rig = Rig(tps=(P0, P1))
    for age_ms in (-2, -1, 0, 1):
        rig.broker.logs[P0].append(b"{}", timestamp_ms=AT_MS + age_ms)
        rig.broker.logs[P1].append(b"{}", timestamp_ms=AT_MS - 10 + age_ms)
    assert find(rig, AT_MS, P0, P1) == {P0: begun(2), P1: begun(4)}
    rig.broker.logs[P1].append(b"{}", timestamp_ms=AT_MS)
    assert find(rig, AT_MS, P0, P1) == {P0: begun(2), P1: begun(4)}


def test_first_flush_commits_where_others_of_its_owner_begin() -> None:
    """With nothing of them: what a flush record names is committed. Before it nothing is."""
    rig = Rig()
    topic_id = rig.broker.topic_ids[P0.topic]
    rig.broker.logs[P1].append_hole()
    rig.broker.logs[P1].first_offset = 1
    rig.owning()
    assert rig.committed() == {P0: None, P1: None}
    rig.fill(P0, 2)
    rig.drain()
    assert rig.committed() == {P0: 2, P1: 1}
    assert {decode(stored(rig, tp).metadata).topic_id for tp in (P0, P1)} == {topic_id}
    rig.fill(P0, 1)
    rig.drain()
    assert rig.broker.transactions[-1].offsets == {P0: 3}


def test_flush_says_nothing_of_what_has_no_place_yet() -> None:
    """A flush record that names it would be history that never was. Other TopicPartitions are flushed all the same."""
    rig, worker = owning()
    worker.controller.on_revoked(frozenset({P1}))
    rig.broker.reset({P1: None})
    worker.flush_records.error, worker.positions._looks_left = DiscardError("no answer"), 0
    worker.controller.on_assigned(frozenset({P1}))
    rig.fill(P0, 2)
    rig.turn_until(lambda: rig.committed()[P0] == 2)
    assert worker.controller.state.to_seek == {P1}
    assert [line.partition for record in flush_records(rig.broker) for line in record.topic_partitions] == [0]


def test_flush_says_nothing_of_what_is_still_to_be_sought() -> None:
    """The first answer was one of long ago, which would be the newest that is known of it."""
    rig = Rig(COOPERATIVE, tps=(P0, P1))
    rig.fill(P1, 3)
    worker = rig.owning(rules=Rules().with_bounds(entries_max=1))
    rig.drain()
    worker.controller.on_revoked(frozenset({P1}))
    rig.broker.load_part(0.0, seconds=1.0)
    worker.controller.on_assigned(frozenset({P1}))
    worker.consumer.assigned.add(P1)
    named = []
    for _ in range(2):
        rig.fill(P0, 1)
        rig.pass_time(0.6)
        worker.step()
        named.append([line.partition for line in flush_records(rig.broker)[-1].topic_partitions])
    assert named == [[0], [0, 1]]
    line = flush_records(rig.broker)[-1].topic_partitions[1]
    assert (line.first_offset, line.idle_since_ms) == (3, None), "nobody knows whether records came"
    rig.drain()


def test_policy_fail_stops_a_first_start() -> None:
    """No committed offset may mean that they have expired: a person has to look."""
    rig = Rig()
    with pytest.raises(StartPositionError, match=r"kafka\.start_at"):
        find(rig, "fail", P0)


@pytest.mark.parametrize("policy", ["beginning", AT_MS, "fail"])
def test_topic_partition_that_is_added_to_a_flushed_topic_is_no_first_start(policy: StartAt) -> None:
    """Its first records must not be lost, and its owner does not stop."""
    rig, _ = flushed(tps=(P0,))
    rig.broker.grow(P1)
    rig.broker.logs[P1].append(b"{}", timestamp_ms=AT_MS)
    assert find(rig, policy, P1) == {P1: begun(0)}


@pytest.mark.parametrize("style", STYLES)
def test_nothing_is_recorded_before_its_place_is_known(style: str) -> None:
    """Flush records cannot be read for a while; then it is read, once."""
    rig = Rig(style)
    rig.fill(P0, 4)
    worker = rig.worker()
    worker.flush_records.error = HistoryUnknownError("not in time")
    rig.turn_until(lambda: worker.controller.state.owned == {P0, P1})
    rig.turn_for(WRONG_MAX_S - 10.0)
    assert worker.controller.not_positioned == {P0, P1}
    assert worker.recorder.opening is None
    worker.flush_records.error = None
    rig.drain()


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("where", ["offsets_at", "committed"])
@pytest.mark.parametrize("policy", ["beginning", 1])
def test_finding_3_worker_that_is_stopped_in_its_question_commits_nothing_over_others(
    style: str, where: str, policy: StartAt
) -> None:
    """It is put out meanwhile, others read, flush and go on: the broker does not look at who owns what is committed."""
    rig = Rig(style)
    rig.fill(P0, 4)
    rig.fill(P1, 4)
    rules = Rules().with_settings(kafka={"start_at": policy})
    others: list[FakeWorker] = []

    def while_stopped(name: str) -> None:
        if name == where and not others:
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


def test_finding_7_read_committed_is_what_makes_committed_offsets_stable() -> None:
    """The source consumer's isolation level decides whether offsets are stable: any other value is refused."""
    from log_partitioner.adapters.kafka.options import PINNED_CONSUMER  # noqa: PLC0415
    from log_partitioner.config.kafka_properties import is_allowed  # noqa: PLC0415

    assert PINNED_CONSUMER["isolation.level"] == "read_committed"
    assert not is_allowed("isolation.level", "read_uncommitted")


# A topic made anew under its name.


@pytest.mark.parametrize("style", STYLES)
def test_committed_offset_of_a_topic_that_was_made_anew_is_refused(style: str) -> None:
    """The number is valid again, but names other records; the message has the two ways on."""
    rig, worker = flushed(style)
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
    rig, worker = flushed(style, is_gone=False)
    rig.broker.remake("source", keep_offsets=True)
    for tp in (P0, P1):
        rig.fill(tp, 9)
    with pytest.raises(StartPositionError, match="made anew while this worker ran"):
        rig.turn_until(lambda: rig.committed() != {P0: 4, P1: 4})
    worker.close()
    assert rig.committed() == {P0: 4, P1: 4}


def test_topic_of_a_pattern_that_is_made_anew_ends_only_those_who_may_have_read_the_old_one() -> None:
    """Each worker knows the ids of all topics that match, and they come and go; a topic's new owner compares its id."""
    rig = Rig()
    topics, deadline = SourceTopics(), Deadline.after(80.0, rig.clock.now_s)
    by_pattern = settings_of().kafka.model_copy(update={"source_topics": ("^sou.*",)})
    positions = Positions(member_of(rig).worker.ports, by_pattern, topics)
    positions.watch((), deadline=deadline)
    named = Positions(positions.ports, settings_of().kafka, SourceTopics({**topics.ids}))
    old, new = topics.ids["source"], rig.broker.remake("source", keep_offsets=False)
    with pytest.raises(StartPositionError, match="made anew while this worker ran"):
        positions.watch([P1], deadline=deadline)
    with pytest.raises(StartPositionError, match="made anew while this worker ran"):
        positions.find({P0: None}, positioned=[P1], deadline=deadline)
    with pytest.raises(StartPositionError, match="made anew while this worker ran"):
        named.watch((), deadline=deadline)
    assert topics.ids == {"source": old}

    assert positions.find({P0: None}, positioned=(), deadline=deadline) == {P0: begun(0)}
    assert topics.ids == {"source": new}


@pytest.mark.parametrize("metadata", ["", "somebody else's", encode(None)])
def test_committed_offset_without_a_topic_id_is_logged_once_and_filled_in(metadata: str) -> None:
    """Older commits, an administrator's reset: unknown is not different."""
    rig, _ = flushed()
    rig.broker.alter({P0: CommittedOffset(4, metadata=metadata)})
    rig.fill(P0, 2)
    with capture_logs() as logs:
        rig.worker("b")
        rig.drain()
    (line,) = [one for one in logs if one["event"] == "committed_topic_id_unknown"]
    assert line["topic_partitions"] == ["source-0"]
    assert decode(stored(rig, P0).metadata).topic_id == rig.broker.topic_ids["source"]


def test_committed_offset_is_not_different_where_the_broker_tells_no_ids() -> None:
    """The broker may also refuse the question."""
    rig, _ = flushed()
    rig.broker.topic_ids.clear()
    rig.fill(P0, 2)
    rig.worker("b")
    rig.drain()


# Committed offsets that are gone.


def refusal(rig: Rig, *, rules: Rules | None = None) -> str:
    """Start a worker that refuses, after a while if a retry might help; gives what it says."""
    worker = rig.worker("b", rules=rules)
    with pytest.raises(StartPositionError) as caught:
        rig.turn_for(WRONG_MAX_S + 30.0)
    worker.close()
    rig.workers.remove(worker)
    return str(caught.value)


@pytest.mark.parametrize("policy", ["beginning", 1])
@pytest.mark.parametrize("style", STYLES)
def test_lost_offset_is_refused_with_the_offset_to_go_on_from(style: str, policy: StartAt) -> None:
    """One of them or all: the flush records know better than the policy, which would publish everything twice."""
    rig, _ = flushed(style)
    rig.fill(P0, 5)
    rig.fill(P1, 5)
    rig.broker.reset({P1: None})
    error = refusal(rig, rules=Rules().with_settings(kafka={"start_at": policy}))
    assert "go on with source-1 at 4 (committed: nothing)." in error
    assert "`log-partitioner offsets set --topic source --to flushed`" in error
    rig.broker.reset({P0: None})
    assert "go on with source-0 at 4 (committed: nothing), source-1 at 4 (committed: nothing)." in refusal(
        rig, rules=Rules().with_settings(kafka={"start_at": policy})
    )
    assert rig.committed() == {P0: None, P1: None}
    rig.broker.alter({P0: CommittedOffset(4), P1: CommittedOffset(4)})
    rig.worker("c", rules=Rules().with_settings(kafka={"start_at": policy}))
    rig.drain()


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


def test_flush_records_of_another_group_or_another_topic_are_no_history() -> None:
    """A new group begins where the policy says; so does a topic that was made anew, whose offsets the brokers drop."""
    rig, _ = flushed()
    rig.broker.remake("source", keep_offsets=False)
    rig.fill(P0, 3)
    worker = rig.worker("b")
    rig.turn_until(lambda: rig.committed()[P0] == 3)
    worker.flush_records.group = OurGroup("another")
    found = worker.flush_records.read([P0], SourceTopics(), deadline=Deadline.after(1.0, rig.clock.now_s))
    assert (found.next_offsets, found.topics) == ({}, frozenset())


@pytest.mark.parametrize("source_topics", [("source", "web"), ("source", "^we.*")])
def test_ids_of_all_source_topics_are_known_before_foreign_groups_are_judged(source_topics: tuple[str, ...]) -> None:
    """By which a topic that others flushed is told from one that was made anew; not of what is assigned alone."""
    rig = Rig()
    rig.broker.topic_ids["web"] = "an id"
    worker, topics, asked = member_of(rig), SourceTopics(), list[dict[str, str]]()
    read = worker.flush_records.read

    def reading(tps: Iterable[TopicPartition], known: SourceTopics, **more: Any) -> FlushedOffsets:
        asked.append({**known.ids})
        return read(tps, known, **more)

    worker.flush_records.read = reading  # type: ignore[method-assign, assignment]
    settings = settings_of().kafka.model_copy(update={"source_topics": source_topics})
    positions = Positions(worker.worker.ports, settings, topics)
    positions.find({P0: None}, positioned=(), deadline=Deadline.after(80.0, rig.clock.now_s))
    assert asked == [{"source": rig.broker.topic_ids["source"], "web": "an id"}]


@pytest.mark.parametrize("style", STYLES)
def test_new_owner_waits_while_the_coordinator_answers_with_offsets_of_long_ago(style: str) -> None:
    """It has loaded a part of its log (KAFKA_FACTS O10): going on there would publish everything since then twice."""
    rig, _ = flushed(style)
    rig.fill(P0, 3)
    rig.broker.load_part(0.5, seconds=WRONG_MAX_S - 5.0)
    second = rig.worker("b")
    with capture_logs() as logs:
        rig.turn_for(WRONG_MAX_S - 10.0)
    assert {one["event"] for one in logs if one["log_level"] == "warning"} == {"not_positioned"}
    assert rig.committed() == {P0: 4, P1: 4}
    assert second.controller.state.owned == {P0, P1}
    rig.drain()
    assert second.flush_records.reads == 1


@pytest.mark.parametrize("style", STYLES)
def test_committed_offset_that_stays_before_the_flush_records_is_refused(style: str) -> None:
    """Set back by a tool, or lost by an unclean election of the group's own log."""
    rig, _ = flushed(style)
    rig.broker.reset({P0: 1})
    assert "go on with source-0 at 4 (committed: 1)." in refusal(rig)
    assert rig.committed() == {P0: 1, P1: 4}


def test_rewind_that_stays_before_what_is_known_to_be_committed_is_refused() -> None:
    """A worker that asks for ever stands still without a word."""
    rig, worker = flushed(is_gone=False)
    rig.broker.reset({P0: 1})
    rig.fill(P0, 3)
    worker.committer.script.append("TRANSACTION_ABORTABLE")
    with pytest.raises(StartPositionError, match=r"source-0 at 4 \(committed: 1\)"):
        rig.turn_for(WRONG_MAX_S + 60.0)
    assert rig.committed() == {P0: 1, P1: 4}


def test_commit_without_an_answer_is_looked_for_in_the_flush_records() -> None:
    """It was made, and the coordinator, just loaded, answers with what was committed before: that is no abort."""
    rig, worker = flushed(is_gone=False)
    rig.fill(P0, 3)
    worker.committer.script.append(Outcome.UNKNOWN_COMMITTED)
    rig.broker.on_committed = lambda one: rig.broker.load_part(0.8, seconds=20.0) or check_commit(one)  # type: ignore[func-returns-value]
    rig.turn_until(lambda: rig.committed()[P0] == 7)
    rig.broker.on_committed = check_commit
    assert worker.controller.state.to_seek == {P0, P1}
    told = rig.broker.told(P0)
    assert told is not None
    assert told.offset == 4
    rig.turn_for(10.0)
    assert worker.controller.state.to_seek == {P0, P1}
    rig.turn_for(30.0)
    assert worker.flush_records.reads == 2
    rig.fill(P0, 3)
    rig.drain()


def test_flush_records_that_were_not_read_whole_are_read_again() -> None:
    """A short look, as for offsets that are there, says nothing of one that is missing."""
    rig, _ = flushed()
    rig.broker.reset({P0: None})
    worker = rig.worker("b")
    read, looks = worker.flush_records.read, list[bool]()

    def failing(
        tps: Iterable[TopicPartition], topics: SourceTopics, *, newest_of: Iterable[TopicPartition], deadline: Deadline
    ) -> FlushedOffsets:
        looks.append(P0 in tps)
        if len(looks) == 1:
            raise HistoryUnknownError("not in time")
        found = read([*tps, *newest_of], topics, deadline=deadline).next_offsets
        return FlushedOffsets({one: offset for one, offset in found.items() if one in tps}, [])

    worker.flush_records.read = failing  # type: ignore[assignment,method-assign]
    with pytest.raises(StartPositionError, match="source-0 at 4"):
        rig.turn_for(WRONG_MAX_S + 30.0)
    assert looks[:2] == [True, True]
    assert rig.committed() == {P0: None, P1: 4}


@pytest.mark.parametrize("stopped_s", [270.0, 400.0])
@pytest.mark.parametrize("where", ["verify", "committed"])
def test_process_that_is_stopped_before_it_knows_its_place_asks_again(where: str, stopped_s: float) -> None:
    """Too little is left until the next poll, and another's transaction is open: it does not end for that."""
    rig, _ = flushed()
    rig.fill(P0, 3)
    second = rig.worker("b", rules=Rules().with_verification(), start=False)
    stops: list[str] = []

    def be_stopped(name: str) -> None:
        if name == where and not stops and second.controller.state.owned:
            stops.append(name)
            rig.pass_time(stopped_s)
            rig.leave_open(second, P0)

    second.consumer._point = be_stopped
    assert second.verification is not None
    second.verification.judge = lambda _deadline: be_stopped("verify")  # type: ignore[method-assign]
    second.start()
    rig.drain()
    assert stops


def test_commit_without_an_answer_is_not_made_again_where_the_offset_is_lost() -> None:
    """Nothing is committed any more: where the worker stood before is not where to go on."""
    rig, worker = flushed(is_gone=False)
    rig.fill(P0, 3)
    worker.committer.script.append(Outcome.UNKNOWN_COMMITTED)
    rig.broker.on_committed = lambda _: rig.broker.reset({P0: None})
    with pytest.raises(StartPositionError, match=r"source-0 at 7 \(committed: nothing\)"):
        rig.turn_for(WRONG_MAX_S + 90.0)


def test_flush_records_are_read_once_for_each_assignment() -> None:
    """They are not read again while it lasts, however often the worker rewinds."""
    rig, first = flushed(is_gone=False)
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
    """Within the poll budget that all questions share."""
    rig = Rig()
    find(rig, "beginning", P0, P1, seconds=seconds)
    assert member_of(rig).flush_records.budgets_s == [pytest.approx(budget_s, abs=0.1)]


def test_history_that_cannot_be_read_is_refused_unless_it_is_accepted() -> None:
    """No permission, or too long ago to be read in time: records might be published twice."""
    rig = Rig()
    rig.fill(P0, 3)
    for accepted in (False, True):
        chosen = Rules().with_settings(kafka={"accept_unknown_history": accepted})
        worker = rig.worker("b", rules=chosen)
        worker.flush_records.error = HistoryUnknownError("topic flushes: TOPIC_AUTHORIZATION_FAILED")
        if accepted:
            rig.drain()
            continue
        with pytest.raises(StartPositionError, match=r"AUTHORIZATION.*kafka\.accept_unknown_history"):
            rig.turn_for(WRONG_MAX_S + 30.0)
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
