"""Groups that publish the same source topic to the same topics, and consumers that commit in ours: refused by name."""

from __future__ import annotations

import msgspec
import pytest

from log_partitioner.boundary import Message
from log_partitioner.control.flush_history import OurGroup
from log_partitioner.errors import HistoryUnknownError, StartPositionError
from log_partitioner.formats.flush_record import AdoptedTopicPartition, Adoption, encode_adoption, encode_flush_record
from log_partitioner.formats.model import CommittedOffset
from log_partitioner.formats.offset_metadata import encode
from log_partitioner.runtime.positions import LOOKS
from tests.fakes.broker import Committed
from tests.fakes.check import check_commit, flush_records
from tests.fakes.records import P0, P1
from tests.fakes.rig import STYLES, Rig, flushed, owning
from tests.fakes.worker import FLUSHES, GROUP, SOURCE_TOPICS, FakeWorker


def others_flush(rig: Rig, group_id: str = "another") -> None:
    """Put flush records of another group beside those there are, which say the same of the same topic."""
    values = [encode_flush_record(msgspec.structs.replace(one, group_id=group_id)) for one in flush_records(rig.broker)]
    rig.broker.publish(Message(FLUSHES, None, value, []) for value in values)


def adopt(rig: Rig, group_id: str, from_group: str) -> None:
    """Put an adoption of all that is committed beside the flush records."""
    lines = tuple(
        AdoptedTopicPartition(topic=tp.topic, partition=tp.partition, next_offset=offset)
        for tp, offset in rig.committed().items()
        if offset is not None
    )
    adoption = Adoption(
        group_id=group_id,
        from_group=from_group,
        topic_ids=rig.broker.topic_ids,
        adopted_at_ms=rig.clock.wall_ms(),
        topic_partitions=lines,
    )
    rig.broker.publish([Message(FLUSHES, None, encode_adoption(adoption), [])])


def renamed(worker: FakeWorker, group_id: str) -> FakeWorker:
    """Have a worker that is not started yet ask for another group's history."""
    worker.flush_records.group = OurGroup(group_id, alone_on=SOURCE_TOPICS)
    return worker


def last_words(rig: Rig, worker: FakeWorker) -> str:
    """Start a worker that refuses at its first look."""
    worker.start()
    began_s = rig.clock.now_s()
    with pytest.raises(StartPositionError) as caught:
        rig.turn_until(lambda: False)
    assert rig.clock.now_s() - began_s < 10.0, "nothing heals by itself: it does not ask again"
    worker.close()
    rig.workers.remove(worker)
    return str(caught.value)


@pytest.mark.parametrize("style", STYLES)
def test_worker_that_finds_flush_records_of_another_group_refuses_to_start(style: str) -> None:
    """With both names, the topic, and the three ways on; it has committed nothing."""
    rig, _ = flushed(style)
    rig.broker.reset({P0: None, P1: None})
    error = last_words(rig, renamed(rig.worker("b", start=False), "new-group"))
    assert f"group {GROUP} publishes topic source to the same topics as" in error
    for way in ("kafka.references_topic", "kafka.flushes_topic", "kafka.dead_letters_topic", "s3.prefix"):
        assert way in error
    assert f"`log-partitioner offsets adopt --from {GROUP} --topic source`" in error
    assert f"add {GROUP} to kafka.accept_groups" in error
    assert rig.committed() == {P0: None, P1: None}


def test_worker_with_committed_offsets_refuses_another_group_too() -> None:
    """It has run before the other one came."""
    rig, _ = flushed()
    others_flush(rig)
    assert "group another publishes topic source" in last_words(rig, rig.worker("b", start=False))


# A group that goes on under another name.


def test_group_goes_on_where_the_adopted_one_stopped() -> None:
    """Whose flush records are its own history from then on; nothing is read twice."""
    rig, _ = flushed()
    adopt(rig, "new-group", GROUP)
    worker = renamed(rig.worker("b", start=False), "new-group")
    worker.start()
    rig.fill(P0, 2)
    rig.drain()
    assert flush_records(rig.broker)[-1].topic_partitions[0].first_offset == 4


def test_group_that_was_adopted_refuses_to_go_on() -> None:
    """An operator has started the old release again: the new one may have flushed nothing yet."""
    rig, _ = flushed()
    adopt(rig, "new-group", GROUP)
    error = last_words(rig, rig.worker("b", start=False))
    assert f"group new-group has adopted the work of group {GROUP} on topic source, source-0 at 4" in error
    assert "Set kafka.group_id to new-group" in error


def test_heir_refuses_where_the_adopted_group_has_flushed_on() -> None:
    """The adopted group's later output is there twice."""
    rig, _ = flushed()
    adopt(rig, "new-group", GROUP)
    beyond = flush_records(rig.broker)[-1]
    line = msgspec.structs.replace(beyond.topic_partitions[0], next_offset=5)
    value = encode_flush_record(msgspec.structs.replace(beyond, topic_partitions=(line,)))
    rig.broker.publish([Message(FLUSHES, None, value, [])])
    error = last_words(rig, renamed(rig.worker("b", start=False), "new-group"))
    assert f"group {GROUP}, whose work group" in error
    assert "it has flushed source-0 up to 5" in error
    assert f"add {GROUP} to kafka.accept_groups" in error


# Two new groups that start together.


class Neighbours:
    """Two groups on one Kafka: each has a rig, and whatever one commits the other finds in the flushes topic."""

    def __init__(self) -> None:
        self.first, self.second = Rig(), Rig()
        self._join(self.first, self.second, GROUP)
        self._join(self.second, self.first, "another")
        self.workers = (self.first.worker("a"), renamed(self.second.worker("b"), "another"))

    def _join(self, ours: Rig, theirs: Rig, group_id: str) -> None:
        def committed(done: Committed) -> None:
            check_commit(done)
            values = [message.value or b"" for message in done.messages if message.topic == FLUSHES]
            records = [msgspec.json.decode(value) | {"group_id": group_id} for value in values]
            theirs.broker.publish(Message(FLUSHES, None, msgspec.json.encode(one), []) for one in records)

        ours.broker.on_committed = committed

    def flushes(self) -> list[int]:
        """Give how many flushes each has committed."""
        return [int(worker.metrics.total("flushes", outcome="committed")) for worker in self.workers]


def run_until_flush(rig: Rig, flushes: int) -> None:
    """Let the only worker of a group take a record and flush."""
    (worker,) = rig.workers
    rig.fill(P0, 1)
    rig.turn_until(lambda: worker.metrics.total("flushes", outcome="committed") == flushes)


def test_second_of_two_new_groups_publishes_nothing_where_the_first_has_committed() -> None:
    """Neither has seen the other at its start; the second looks again before its first flush."""
    both = Neighbours()
    for rig in (both.first, both.second):
        rig.turn_until(lambda rig=rig: bool(rig.workers[0].recorder.ledgers))  # type: ignore[misc]
    run_until_flush(both.first, 1)
    with pytest.raises(StartPositionError, match=f"group {GROUP} publishes topic source"):
        run_until_flush(both.second, 1)
    assert both.flushes() == [1, 0]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_new_groups_that_commit_at_the_same_time_both_stop_at_their_second_flush(order: tuple[int, int]) -> None:
    """Each has looked before the other has committed: one flush of each is published, and no more."""
    both = Neighbours()
    rigs = (both.first, both.second)
    for rig in rigs:
        rig.turn_until(lambda rig=rig: bool(rig.workers[0].recorder.ledgers))  # type: ignore[misc]
    for worker in both.workers:
        worker.positions._looks_left = 0
    for rig in rigs:
        run_until_flush(rig, 1)
    for worker in both.workers:
        worker.positions._looks_left = LOOKS
    for number in order:
        with pytest.raises(StartPositionError, match="publishes topic source"):
            run_until_flush(rigs[number], 2)
    assert both.flushes() == [1, 1]


def test_process_looks_for_foreign_groups_before_its_first_flushes_only() -> None:
    """One that runs for long pays nothing."""
    rig, worker = owning()
    for number in range(1, LOOKS + 4):
        run_until_flush(rig, number)
    assert worker.flush_records.looks == LOOKS


def test_look_that_cannot_be_taken_holds_up_no_flush() -> None:
    """It is taken before the next one."""
    rig, worker = owning()
    worker.flush_records.error = HistoryUnknownError("no answer")
    run_until_flush(rig, 1)
    worker.flush_records.error = None
    others_flush(rig)
    with pytest.raises(StartPositionError, match="group another publishes"):
        run_until_flush(rig, 2)


# Offsets that somebody else has committed.


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("metadata", ["", "somebody else's"])
def test_offset_that_somebody_else_has_committed_ahead_is_refused(style: str, metadata: str) -> None:
    """A console consumer with our group.id: its records would be in no output; the range and both ways on are told."""
    rig, _ = flushed(style)
    rig.fill(P0, 5)
    rig.broker.alter({P0: CommittedOffset(7, metadata=metadata)})
    error = last_words(rig, rig.worker("b", start=False))
    assert "somebody else has committed offsets of group" in error
    assert "records that nobody has flushed: source-0 from 4 to 6." in error
    assert "`log-partitioner offsets set --topic source --to flushed`" in error
    assert "`log-partitioner offsets set --topic source --to committed`" in error
    assert rig.committed() == {P0: 7, P1: 4}


def test_offset_that_somebody_else_has_committed_ahead_is_refused_in_a_rewind() -> None:
    """While a worker runs: it knows what it has committed itself."""
    rig, worker = flushed(is_gone=False)
    rig.fill(P0, 5)
    rig.broker.reset({P0: 7})
    worker.committer.script.append("TRANSACTION_ABORTABLE")
    with pytest.raises(StartPositionError, match="source-0 from 4 to 6"):
        rig.turn_for(120.0)


def test_offset_ahead_that_a_person_has_set_or_a_worker_has_committed_is_gone_on_at() -> None:
    """Its metadata says so: it need not be in any flush record."""
    rig, _ = flushed()
    rig.fill(P0, 5)
    rig.broker.alter({P0: CommittedOffset(7, metadata=encode(rig.broker.topic_ids["source"]))})
    rig.worker("b")
    rig.turn_until(lambda: rig.committed()[P0] == 9)


def test_offset_that_somebody_has_committed_before_the_first_start_is_gone_on_at() -> None:
    """Kafka's own tool sets where a new group begins: no flush record says anything else."""
    rig = Rig()
    rig.fill(P0, 5)
    rig.broker.reset({P0: 3})
    rig.worker("b")
    rig.turn_until(lambda: rig.committed()[P0] == 5)
