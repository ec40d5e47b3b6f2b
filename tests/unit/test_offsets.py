"""The commands that set committed offsets: what they plan, what they leave, and what a worker makes of it."""

from __future__ import annotations

import pytest

from service import cli
from service.errors import SettingsError
from service.formats.model import CommittedOffset, TopicPartition
from service.formats.offset_metadata import decode, encode
from service.offsets import Change, Offsets
from tests.fakes.broker import BrokerError
from tests.fakes.records import P0, P1
from tests.fakes.rig import Rig
from tests.unit.runtime.test_start_positions import flushed


def offsets_of(rig: Rig) -> Offsets:
    """Give the commands of the topic `source`, by a client that joins no group."""
    nobody = rig.worker("nobody", start=False)
    rig.workers.remove(nobody)
    return Offsets(nobody.consumer, nobody.flush_records, "source", clock=rig.clock)


def carry_out(rig: Rig, changes: list[Change]) -> dict[TopicPartition, int | None]:
    """Commit what is planned, as the broker lets an administrator; gives what is committed then."""
    rig.broker.alter({one.tp: one.after for one in changes if not one.left and one.after is not None})
    return rig.committed()


def test_go_on_takes_offsets_for_those_of_the_topic_of_now() -> None:
    """Without the leader epoch, which is of the other log; then a worker starts there."""
    rig = Rig()
    flushed(rig)
    old, new = rig.broker.topic_ids["source"], rig.broker.remake("source", keep_offsets=True)
    rig.fill(P0, 9)
    rig.fill(P1, 9)
    changes = offsets_of(rig).go_on()
    assert str(changes[0]) == f"source-0: 4 (of {old}, leader epoch 0) -> 4 (of {new})"
    assert carry_out(rig, changes) == {P0: 4, P1: 4}
    assert rig.broker.committed(P0) == CommittedOffset(4, None, encode(new).text)
    rig.worker("b")
    rig.turn_until(lambda: rig.committed() == {P0: 9, P1: 9})


def test_begin_anew_sets_the_first_offset_there_is() -> None:
    """Of one partition, where only one is named."""
    rig = Rig()
    flushed(rig)
    rig.broker.remake("source", keep_offsets=True)
    rig.fill(P1, 9)
    rig.broker.logs[P1].first_offset = 2
    assert carry_out(rig, offsets_of(rig).begin_anew([1])) == {P0: 4, P1: 2}
    assert carry_out(rig, offsets_of(rig).begin_anew()) == {P0: 0, P1: 2}


def test_offsets_of_this_very_topic_are_left() -> None:
    """All three change nothing that is in order; begin-anew says why."""
    rig = Rig()
    flushed(rig)
    commands = offsets_of(rig)
    for changes in (commands.go_on(), commands.begin_anew(), commands.recover()):
        assert [bool(one.left) for one in changes] == [True, True]
    assert "published twice" in str(commands.begin_anew()[0])


def test_go_on_drops_the_leader_epoch_of_a_partition_that_is_named() -> None:
    """Its log was rewritten; of the others the epoch is kept, and where there is none nothing changes."""
    rig = Rig()
    flushed(rig)
    text, topic_id = encode(rig.broker.topic_ids["source"]).text, rig.broker.topic_ids["source"]
    rig.broker.alter({P0: CommittedOffset(4, 7, text), P1: CommittedOffset(4, 7, text)})
    assert [one.left for one in offsets_of(rig).go_on()] == ["it is of this topic"] * 2
    changes = offsets_of(rig).go_on([1])
    assert [str(one) for one in changes] == [f"source-1: 4 (of {topic_id}, leader epoch 7) -> 4 (of {topic_id})"]
    carry_out(rig, changes)
    assert (rig.broker.committed(P0), rig.broker.committed(P1)) == (
        CommittedOffset(4, 7, text),
        CommittedOffset(4, None, text),
    )
    assert [bool(one.left) for one in offsets_of(rig).go_on([1])] == [True]


def test_begin_anew_at_an_offset_reads_the_rewritten_log_from_there() -> None:
    """Before what is committed, or where that is no longer there; what was never read is not passed over."""
    rig = Rig()
    flushed(rig)
    rig.fill(P0, 9)
    assert carry_out(rig, offsets_of(rig).begin_at(0, 2)) == {P0: 2, P1: 4}
    (change,) = offsets_of(rig).begin_at(0, 3)
    assert "3 is behind what is committed" in str(change)
    rig.broker.logs[P0].first_offset = 5
    assert carry_out(rig, offsets_of(rig).begin_at(0, 5)) == {P0: 5, P1: 4}
    for offset in (4, 14):
        with pytest.raises(SettingsError, match="source-0 has the offsets 5 to 13"):
            offsets_of(rig).begin_at(0, offset)


def test_offsets_whose_topic_is_not_known_are_set_by_either() -> None:
    """Who asks for it knows more than the metadata."""
    rig = Rig()
    flushed(rig)
    rig.broker.alter({P0: CommittedOffset(4), P1: CommittedOffset(4)})
    commands = offsets_of(rig)
    assert str(commands.begin_anew()[0]).startswith("source-0: 4 (of a topic that is not known) -> 0 (of ")
    carry_out(rig, commands.go_on())
    stored = rig.broker.committed(P0)
    assert stored is not None
    assert decode(stored.metadata).topic_id == rig.broker.topic_ids["source"]


def test_recover_goes_on_where_flush_records_end() -> None:
    """What no flush record names is left, and so is what is there."""
    rig = Rig()
    flushed(rig)
    rig.broker.reset({P1: None})
    rig.broker.grow(TopicPartition("source", 2))
    changes = offsets_of(rig).recover()
    assert [str(one) for one in changes] == [
        f"source-0: 4 (of {rig.broker.topic_ids['source']}, leader epoch 0), left: it is there",
        f"source-1: none -> 4 (of {rig.broker.topic_ids['source']})",
        "source-2: none, left: no flush record of this group names it",
    ]
    assert carry_out(rig, changes) == {P0: 4, P1: 4, TopicPartition("source", 2): None}


def test_recover_goes_forward_to_where_flush_records_end() -> None:
    """What was lost is the newest part: an older offset is committed, and a worker refuses it."""
    rig = Rig()
    flushed(rig)
    rig.broker.alter({P0: CommittedOffset(1)})
    (change, left) = offsets_of(rig).recover()
    assert (change.after or CommittedOffset(0)).offset == 4
    assert left.left == "it is there"
    assert carry_out(rig, [change]) == {P0: 4, P1: 4}
    rig.worker("b")
    rig.fill(P0, 2)
    rig.drain()


def test_offset_that_is_set_back_by_hand_is_gone_on_at_for_ever() -> None:
    """Also by who owns it after the first commit behind it; flush records of before say no more where to go on."""
    rig = Rig()
    flushed(rig)
    assert carry_out(rig, offsets_of(rig).begin_at(0, 2)) == {P0: 2, P1: 4}
    rig.broker.starts[P0] = 2
    assert [one.left for one in offsets_of(rig).recover()] == ["it is there"] * 2
    rig.broker.reset({P1: None})
    assert [str(one.after and one.after.offset) for one in offsets_of(rig).recover()] == ["2", "4"]
    rig.broker.alter({P1: CommittedOffset(4)})
    for name in "bc":
        worker = rig.worker(name)
        rig.turn_until(lambda: bool(worker.controller.state.owned))  # noqa: B023
        rig.fill(P0, 1)
        rig.turn_until(lambda: (rig.broker.committed_offset(P0) or 0) == rig.broker.logs[P0].end)
        worker.stop.request()
        rig.turn_until(lambda: worker.controller.state.phase.value == "stopped")  # noqa: B023
        worker.close()
        rig.workers.remove(worker)
    assert [one.left for one in offsets_of(rig).recover()] == ["it is there"] * 2


def test_recover_leaves_offsets_of_another_topic() -> None:
    """What flush records name are offsets of that one, too, where brokers tell no ids."""
    rig = Rig()
    flushed(rig)
    rig.broker.alter({P0: CommittedOffset(1, None, encode("of another").text)})
    assert [one.left for one in offsets_of(rig).recover()] == ["it is of another topic of this name", "it is there"]


def test_go_on_where_nothing_is_committed_is_left() -> None:
    """There is nothing to go on at."""
    rig = Rig()
    assert [one.left for one in offsets_of(rig).go_on()] == ["there is none to go on at"] * 2


def test_partition_that_the_topic_does_not_have_is_refused() -> None:
    """A wrong argument, not a silence."""
    with pytest.raises(SettingsError, match="--partition 7"):
        offsets_of(Rig()).begin_anew([0, 7])


def test_offsets_of_a_group_with_live_members_are_refused_by_the_broker() -> None:
    """What the commands rely on."""
    rig = Rig()
    flushed(rig, is_gone=False)
    rig.broker.remake("source", keep_offsets=True)
    changes = offsets_of(rig).begin_anew()
    with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
        carry_out(rig, changes)


@pytest.mark.parametrize(
    "arguments",
    [[], ["go-on"], ["begin-anew", "--topic", "t", "--partition", "x"], ["go-on", "--topic", "t", "--at", "5"]],
)
def test_wrong_arguments_end_with_exit_code_2(arguments: list[str]) -> None:
    """As for every command."""
    with pytest.raises(SystemExit) as caught:
        cli.main(["offsets", *arguments])
    assert caught.value.code == 2
