"""The commands that show and set committed offsets: what they plan, what that costs, and what a worker makes of it."""

from __future__ import annotations

import pytest

from log_partitioner import cli
from log_partitioner.batch.messages import Sender
from log_partitioner.control.flush_history import OurGroup
from log_partitioner.control.state import Phase
from log_partitioner.errors import HistoryUnknownError, SettingsError, StartPositionError
from log_partitioner.formats.dead_letter import parse_headers
from log_partitioner.formats.model import CommittedOffset, TopicPartition
from log_partitioner.formats.offset_metadata import decode, encode
from log_partitioner.offsets import command
from log_partitioner.offsets.plans import AdoptionPlan, Change, Target, plan_adoption, plan_changes, plan_skip
from log_partitioner.offsets.survey import Survey
from tests.fakes.records import P0, P1, entry, value_of
from tests.fakes.rig import Rig, flushed, owning
from tests.fakes.worker import DEAD_LETTERS, GROUP, FakeWorker, Rules, settings_of
from tests.unit.runtime.test_foreign_groups import adopt, others_flush

P2 = TopicPartition("source", 2)
SENDER = Sender("offsets", "boot", settings_of().kafka, "bucket")
LATER_S = 3600.0  # than clocks of two workers may be apart


def survey(rig: Rig, **options: bool) -> Survey:
    """Give a survey of the topic `source`, by a client that joins no group."""
    nobody = rig.worker("nobody", start=False)
    rig.workers.remove(nobody)
    nobody.flush_records.group = OurGroup(GROUP)
    return Survey(nobody.consumer, nobody.flush_records, "source", clock=rig.clock, **options)


def carry_out(rig: Rig, changes: list[Change]) -> dict[TopicPartition, int | None]:
    """Commit what is planned, as the broker lets an administrator; gives what is committed then."""
    rig.broker.alter({one.tp: one.after for one in changes if one.after is not None})
    return rig.committed()


def to(rig: Rig, target: Target, *partitions: int) -> list[Change]:
    """Plan `set --to`."""
    return plan_changes(survey(rig), target, partitions)


def costs(changes: list[Change]) -> list[tuple[int, int]]:
    """Give what is published twice, and what is skipped."""
    return [(one.twice, one.skipped) for one in changes]


# Set.


def test_committed_takes_offsets_for_those_of_the_topic_of_now() -> None:
    """Without the leader epoch, which is of the other log, and without a question; then a worker starts there."""
    rig, _ = flushed()
    new = rig.broker.remake("source", keep_offsets=True)
    rig.fill(P0, 9)
    rig.fill(P1, 9)
    changes = to(rig, "committed")
    assert costs(changes) == [(0, 0), (0, 0)]
    assert carry_out(rig, changes) == {P0: 4, P1: 4}
    stored = rig.broker.committed(P0)
    assert stored is not None
    assert (stored.leader_epoch, decode(stored.metadata).topic_id) == (None, new)
    rig.worker("b")
    rig.turn_until(lambda: rig.committed() == {P0: 9, P1: 9})


def test_beginning_is_the_first_offset_there_is() -> None:
    """One partition may be named alone; no record of a topic that was made anew was published."""
    rig, _ = flushed()
    rig.broker.remake("source", keep_offsets=True)
    rig.fill(P1, 9)
    rig.broker.logs[P1].first_offset = 2
    assert costs(to(rig, "beginning")) == [(0, 0), (0, 0)]
    assert carry_out(rig, to(rig, "beginning", 1)) == {P0: 4, P1: 2}
    assert carry_out(rig, to(rig, "beginning")) == {P0: 0, P1: 2}


def flushed_with_ways() -> Rig:
    """Give a group that has flushed, whose flush record and committed offset of P0 say how far a way is recorded."""
    rig, worker = owning(tps=(P0,), rules=Rules().with_settings(input={"discard_replays": True}))
    rig.broker.logs[P0].append(value_of(entry()), headers=(("source-topic-chain", b'[["raw",3,17,1,"n/1"]]'),))
    rig.drain()
    worker.stop.request()
    rig.turn_until(lambda: worker.controller.state.phase is Phase.STOPPED)
    worker.close()
    rig.workers.remove(worker)
    return rig


def ways_of(rig: Rig) -> list[tuple[int, ...]] | None:
    """Give the places of the committed ways."""
    stored = rig.broker.committed(P0)
    assert stored is not None
    ways = decode(stored.metadata).ways
    return None if ways is None else list(ways.values())


def test_committed_and_flushed_keep_what_is_recorded_of_ways_and_other_starts_begin_anew() -> None:
    """Without ways replays are written again; with those of another offset records would be lost."""
    rig = flushed_with_ways()
    assert ways_of(rig) == [(17, 1)]
    rig.broker.remake("source", keep_offsets=True)
    rig.broker.logs[P0].append(value_of(entry()))
    carry_out(rig, to(rig, "committed"))
    assert ways_of(rig) == [(17, 1)]
    carry_out(rig, to(rig, "beginning"))
    assert ways_of(rig) is None

    rig = flushed_with_ways()
    rig.broker.alter({P0: CommittedOffset(0, None, "")})
    carry_out(rig, to(rig, "flushed"))
    assert (rig.committed(), ways_of(rig)) == ({P0: 1}, [(17, 1)])
    carry_out(rig, to(rig, 1, 0))
    assert ways_of(rig) is None


def test_skipped_offsets_leave_what_is_recorded_of_ways() -> None:
    """The flush record of the skip says the same, so that the next one joins."""
    rig = flushed_with_ways()
    rig.fill(P0, 2)
    skipped(rig, 1, 2)
    assert ways_of(rig) == [(17, 1)]
    rig.worker("b", rules=Rules().with_settings(input={"discard_replays": True}))
    rig.drain()


def test_beginning_of_this_very_topic_publishes_everything_twice() -> None:
    """The command tells the number of records; those that retention has taken are not published again."""
    rig, _ = flushed()
    rig.broker.logs[P1].first_offset = 3
    assert costs(to(rig, "beginning")) == [(4, 0), (1, 0)]


def test_offsets_that_are_in_order_are_left() -> None:
    """The request is met already."""
    rig, _ = flushed()
    for changes in (to(rig, "committed"), to(rig, "flushed")):
        assert [(one.after, one.note, one.is_met) for one in changes] == [(None, "it is there", True)] * 2


def test_committed_drops_the_leader_epoch_of_a_partition_that_is_named() -> None:
    """Its log was rewritten; the others keep their epoch, and one without an epoch does not change."""
    rig, _ = flushed()
    text = encode(rig.broker.topic_ids["source"])
    rig.broker.alter({P0: CommittedOffset(4, 7, text), P1: CommittedOffset(4, 7, text)})
    assert [one.after for one in to(rig, "committed")] == [None, None]
    carry_out(rig, to(rig, "committed", 1))
    assert (rig.broker.committed(P0), rig.broker.committed(P1)) == (
        CommittedOffset(4, 7, text),
        CommittedOffset(4, None, text),
    )
    assert [one.after for one in to(rig, "committed", 1)] == [None]


def test_offset_says_what_it_publishes_twice_or_skips() -> None:
    """By the newest flush record; and it must be one of the log's."""
    rig, _ = flushed()
    rig.fill(P0, 9)
    assert costs(to(rig, 1, 0)) == [(3, 0)]
    assert costs(to(rig, 4, 0)) == [(0, 0)]
    assert costs(to(rig, 10, 0)) == [(0, 6)]
    rig.broker.logs[P0].first_offset = 5
    assert costs(to(rig, 5, 0)) == [(0, 0)], "what is gone is not skipped by us"
    for offset in (4, 14):
        with pytest.raises(SettingsError, match="source-0 has the offsets 5 to 13"):
            to(rig, offset, 0)
    for partitions in [(), (0, 1)]:
        with pytest.raises(SettingsError, match="exactly one --partition"):
            plan_changes(survey(rig), 5, partitions)


def test_start_position_that_nothing_was_flushed_behind_tells_what_is_skipped() -> None:
    """No flush record names it: nothing can be published twice."""
    rig = Rig()
    rig.fill(P0, 9)
    assert costs(to(rig, 5, 0)) == [(0, 5)]
    rig.broker.alter({P0: CommittedOffset(3, metadata=encode(rig.broker.topic_ids["source"]))})
    assert costs(to(rig, 5, 0)) == [(0, 2)]
    assert costs(to(rig, 1, 0)) == [(0, 0)]


@pytest.mark.parametrize("back", ["flushed", 4])
def test_what_a_person_has_set_a_person_takes_back(back: Target) -> None:
    """Before a worker has gone on there: it is free, and a worker goes on as if nothing had been."""
    rig, _ = flushed()
    rig.pass_time(LATER_S)
    assert carry_out(rig, to(rig, 1, 0)) == {P0: 1, P1: 4}
    changes = to(rig, back, 0)
    assert costs(changes) == [(0, 0)]
    assert carry_out(rig, changes) == {P0: 4, P1: 4}
    stored = rig.broker.committed(P0)
    assert stored is not None
    assert decode(stored.metadata).set_ms is None, "flush records count again"
    rig.worker("b")
    rig.fill(P0, 2)
    rig.drain()


def test_offset_that_is_set_back_by_hand_is_gone_on_at_for_ever() -> None:
    """An owner after the first commit behind it does so, too; earlier flush records do not count any more."""
    rig, _ = flushed()
    assert carry_out(rig, to(rig, 2, 0)) == {P0: 2, P1: 4}
    rig.broker.starts[P0] = 2
    for name in "bc":
        worker = rig.worker(name)
        rig.turn_until(lambda: bool(worker.controller.state.owned))  # noqa: B023
        rig.fill(P0, 1)
        rig.turn_until(lambda: (rig.broker.committed_offset(P0) or 0) == rig.broker.logs[P0].end)
        stopped(rig, worker)
    assert [one.note for one in to(rig, "flushed")] == ["it is there"] * 2


def test_flushed_goes_on_where_flush_records_end() -> None:
    """A TopicPartition that no flush record names is left, and its request is not met."""
    rig, _ = flushed()
    rig.broker.reset({P1: None})
    rig.broker.alter({P0: CommittedOffset(1)})
    rig.broker.grow(P2)
    changes = to(rig, "flushed")
    assert costs(changes) == [(0, 0)] * 3
    assert [one.is_met for one in changes] == [True, True, False]
    assert changes[2].note == "no flush record of this group names it"
    assert carry_out(rig, changes) == {P0: 4, P1: 4, P2: None}
    rig.worker("b")
    rig.fill(P0, 2)
    rig.drain()


def test_flushed_takes_back_what_somebody_else_has_committed() -> None:
    """Ahead, by a consumer with our group.id; `committed` accepts it, and says what is skipped."""
    rig, _ = flushed()
    rig.fill(P0, 5)
    rig.broker.alter({P0: CommittedOffset(7)})
    assert costs(to(rig, "committed", 0)) == [(0, 3)]
    rig.broker.alter({P1: CommittedOffset(1)})
    assert costs(to(rig, "committed", 1)) == [(3, 0)]
    assert carry_out(rig, to(rig, "flushed")) == {P0: 4, P1: 4}
    rig.worker("b")
    rig.drain()


def test_flushed_leaves_offsets_of_another_topic_and_of_a_log_that_has_none() -> None:
    """Without topic ids from the brokers, the flush records' offsets may be those of the other topic."""
    rig, _ = flushed()
    rig.broker.alter({P0: CommittedOffset(1, None, encode("of another"))})
    rig.broker.logs[P1].first_offset = 9
    first, second = to(rig, "flushed")
    assert (first.is_met, "another topic" in first.note) == (False, True)
    assert (second.is_met, second.note) == (False, "flush records end at 4, the log has 9 to 4 only")


def test_committed_of_nothing_is_left() -> None:
    """There is nothing to go on at."""
    assert [(one.note, one.is_met) for one in to(Rig(), "committed")] == [("nothing is committed", False)] * 2


def test_partition_that_the_topic_does_not_have_is_refused() -> None:
    """A wrong argument, not a silence."""
    with pytest.raises(SettingsError, match="--partition 7"):
        to(Rig(), "beginning", 0, 7)


def test_flush_records_that_cannot_be_read_are_refused_unless_that_is_accepted() -> None:
    """Without them the number of records that are published twice is not known."""
    rig = Rig()
    rig.broker.publish([])
    for accepted in (False, True):
        one = survey(rig, accept_unknown=accepted)
        one.flush_records.error = HistoryUnknownError("no permission")  # type: ignore[attr-defined]
        if accepted:
            assert [change.after is not None for change in plan_changes(one, "beginning", ())] == [True, True]
            continue
        with pytest.raises(HistoryUnknownError):
            plan_changes(one, "beginning", ())


# Show.


def test_show_says_in_words_what_is_committed_and_flushed() -> None:
    """By whom, of which topic, and how much is left to read."""
    rig, _ = flushed()
    rig.fill(P0, 5)
    rig.broker.grow(P2)
    carry_out(rig, to(rig, 2, 0))
    rig.broker.alter({P1: CommittedOffset(3)})
    first, second, third, last = survey(rig).show()
    assert first.startswith("source-0: committed 2 (set by a person 20")
    assert first.endswith(", flushed up to 4, log 0 to 9, lag 7")
    assert second == "source-1: committed 3 (by somebody else), flushed up to 4, log 0 to 4, lag 1"
    assert third == "source-2: committed nothing, no flush record, log 0 to 0"
    assert last == "3 TopicPartitions, lag 8, 1 without a committed offset"
    rig.broker.alter({P0: CommittedOffset(1, 7, encode("x"))})
    assert "committed 1 (of another topic of this name, x, leader epoch 7)" in next(survey(rig).show())


# Skip.


def broken(*ranges: range) -> Rig:
    """Give a group that has stopped before unreadable offsets of P0, of ten in each TopicPartition."""
    rig, worker = owning()
    for tp in (P0, P1):
        rig.fill(tp, 10)
    rig.broker.logs[P0].broken += ranges
    rig.turn_until(lambda: rig.committed() == {P0: 3, P1: 10})
    return stopped(rig, worker)


def stopped(rig: Rig, worker: FakeWorker) -> Rig:
    """Stop a worker."""
    worker.stop.request()
    rig.turn_until(lambda: worker.controller.state.phase.value == "stopped")
    worker.close()
    rig.workers.remove(worker)
    return rig


def skipped(rig: Rig, first: int, end: int) -> None:
    """Commit what `skip` plans in one transaction, without a member."""
    skip, broker = plan_skip(survey(rig), 0, first, end, group_id=GROUP), rig.broker
    epoch = broker.init("skip")
    broker.begin("skip", epoch)
    for message in skip.messages(SENDER._replace(boot=f"b{first}"), message_bytes_max=900_000):
        broker.produce("skip", epoch, message)
    broker.send_offsets("skip", epoch, {skip.tp: skip.after}, generation=-1, member_id="")
    broker.end("skip", epoch, commit=True)


@pytest.mark.parametrize("end", [5, 10])
def test_skipped_offsets_are_one_dead_letter_and_a_worker_goes_on_behind_them(end: int) -> None:
    """There may be no record behind them: every invariant holds, and nothing is skipped twice."""
    rig = broken(range(3, end))
    skipped(rig, 3, end)
    rig.worker("b")
    rig.fill(P0, 2)
    rig.turn_until(lambda: rig.committed() == {P0: 12, P1: 10})
    rig.check()
    (letter,) = rig.broker.messages(DEAD_LETTERS)
    says = parse_headers(letter.headers)
    assert (says.reason, says.offset, says.end_offset, letter.value) == ("skipped", 3, end, None)
    with pytest.raises(StartPositionError, match=r"source-0: the group goes on at 12 .*, and not at 3"):
        skipped(rig, 3, end)


def test_two_ranges_are_skipped_one_after_the_other() -> None:
    """A worker reads what is between, and stops before the second."""
    rig = broken(range(3, 5), range(7, 8))
    skipped(rig, 3, 5)
    worker = rig.worker("b")
    rig.turn_until(lambda: rig.committed()[P0] == 7)
    skipped(stopped(rig, worker), 7, 8)
    rig.worker("c")
    rig.turn_until(lambda: rig.committed()[P0] == 10)
    rig.check()
    assert len(rig.broker.messages(DEAD_LETTERS)) == 2


@pytest.mark.parametrize(("first", "end"), [(3, 3), (3, 11), (5, 4)])
def test_offsets_that_the_log_does_not_have_are_not_skipped(first: int, end: int) -> None:
    """A wrong argument."""
    with pytest.raises(SettingsError, match="source-0 has the offsets 0 to 10"):
        skipped(broken(range(3, 5)), first, end)


@pytest.mark.parametrize(
    ("committed", "problem"),
    [
        (None, "the group goes on at nothing"),
        (CommittedOffset(2), "the group goes on at 2"),
        (CommittedOffset(3), "has committed 3 and flushed up to 4"),
    ],
)
def test_offsets_are_skipped_only_where_a_worker_would_go_on(committed: CommittedOffset | None, problem: str) -> None:
    """Records before them would be lost, or published twice."""
    rig, _ = flushed()
    rig.broker.reset({P0: None})
    if committed is not None:
        rig.broker.alter({P0: committed})
    with pytest.raises(StartPositionError, match=problem):
        skipped(rig, 3, 4)


# Adopt.


def adoption(rig: Rig, heir: Rig | None = None, accepted: tuple[str, ...] = ()) -> AdoptionPlan:
    """Plan what `adopt` commits for a group that has committed what `heir` has, nothing by default."""
    stopped = survey(rig)
    stopped.flush_records.group = OurGroup(GROUP, alone_on=["source"], accepted=accepted)  # type: ignore[attr-defined]
    return plan_adoption(stopped, survey(heir or Rig()), from_group=GROUP, group_id="heir", topic="source")


def test_adoption_commits_what_the_stopped_group_has_committed() -> None:
    """With leader epoch and metadata, which say of which log and topic it is; one never begun is left out."""
    rig, _ = flushed()
    rig.broker.grow(P2)
    found = adoption(rig)
    assert found.offsets == {P0: rig.broker.committed(P0), P1: rig.broker.committed(P1)}
    message = found.adoption
    assert (message.group_id, message.from_group, message.topic_ids) == ("heir", GROUP, rig.broker.topic_ids)
    assert [(one.partition, one.next_offset) for one in message.topic_partitions] == [(0, 4), (1, 4)]


@pytest.mark.parametrize("offset", [None, 3, 6])
def test_adoption_is_refused_unless_offsets_and_flush_records_agree(offset: int | None) -> None:
    """Going on there would publish twice, or skip."""
    rig, _ = flushed()
    rig.fill(P0, 9)
    rig.broker.reset({P0: offset})
    told = "nothing" if offset is None else offset
    with pytest.raises(StartPositionError, match=f"source-0: group {GROUP} has committed {told} and flushed up to 4"):
        adoption(rig)


def test_adoption_is_refused_if_the_heir_has_begun() -> None:
    """It would lose what it stands for."""
    rig, heir = Rig(), Rig()
    flushed(rig)
    heir.broker.reset({P1: 5})
    with pytest.raises(StartPositionError, match="group heir has committed offsets of topic source already: source-1"):
        adoption(rig, heir)


def test_adoption_is_refused_if_others_publish_the_topic_or_have_adopted_the_group() -> None:
    """Among them the heir itself, whose offsets are gone; by name a group is accepted here, too."""
    rig, _ = flushed()
    others_flush(rig, "other")
    with pytest.raises(StartPositionError, match="group other publishes topic source"):
        adoption(rig)
    adoption(rig, accepted=("other",))
    adopt(rig, "first-heir", GROUP)
    with pytest.raises(StartPositionError, match="group first-heir has adopted the work"):
        adoption(rig, accepted=("other",))


def test_adoption_of_a_group_that_never_was_is_refused() -> None:
    """A typo in its name."""
    with pytest.raises(StartPositionError, match="is the name right"):
        adoption(Rig())


def test_adoption_of_offsets_of_somebody_else_or_of_another_topic_is_refused() -> None:
    """Their meaning is not known."""
    rig = Rig()
    rig.broker.alter({P0: CommittedOffset(0), P1: CommittedOffset(0, None, encode("other"))})
    with pytest.raises(StartPositionError, match=r"somebody else has committed 0.*is of another topic") as caught:
        adoption(rig)
    assert "Nothing is changed" in str(caught.value)


# The command.


@pytest.mark.parametrize(("answer", "is_confirmed"), [("yes\n", True), ("y\n", False), ("", False)])
def test_question_is_asked_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str, *, is_confirmed: bool
) -> None:
    """Elsewhere the number and the flag are told, and nothing is changed."""
    changes = [Change(P0, None, CommittedOffset(1), twice=6606), Change(P1, None, CommittedOffset(1), skipped=7)]
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stdin.readline", lambda: answer)
    cost = command._cost(changes)
    assert command.is_confirmed(cost, is_yes=False) is is_confirmed
    assert "up to 6606 records would be published a second time" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    assert command.is_confirmed(cost, is_yes=False) is False
    told = capsys.readouterr().err
    assert "up to 7 records would be skipped" in told
    assert "--yes" in told
    assert command.is_confirmed(cost, is_yes=True) is True
    assert command.is_confirmed(command._cost([changes[0]._replace(twice=0)]), is_yes=False) is True


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["set", "--topic", "t"],
        ["set", "--to", "flushed"],
        ["set", "--topic", "t", "--to", "somewhere"],
        ["set", "--topic", "t", "--partition", "x", "--to", "5"],
        ["adopt", "--topic", "t"],
        ["skip", "--topic", "t", "--partition", "0"],
        ["skip", "--topic", "t", "--from", "3"],
    ],
)
def test_wrong_arguments_end_with_exit_code_2(arguments: list[str]) -> None:
    """As for every command."""
    with pytest.raises(SystemExit) as caught:
        cli.main(["offsets", *arguments])
    assert caught.value.code == 2
