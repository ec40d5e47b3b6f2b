"""Fencing by epoch: of a producer (a delayed request of one transaction, KAFKA_FACTS F2), and of a member."""

from __future__ import annotations

import pytest

from log_partitioner.control.flush_policy import FlushReason
from tests.fakes.broker import BrokerError
from tests.fakes.check import InvariantError
from tests.fakes.group import ConsumerGroup
from tests.fakes.member import HastyMember848, Member848
from tests.fakes.records import P0, P1
from tests.fakes.rig import COOPERATIVE, KIP848, Rig, owning
from tests.fakes.worker import FakeWorker, Parts
from tests.mutants.transactions import KeepsItsProducer


def flush_with_a_delayed_end(parts: Parts) -> tuple[Rig, FakeWorker, list[str]]:
    """Flush twice; the EndTxn of the first arrives a second time while the second is half written."""
    rig, worker = owning(parts=parts)
    said: list[str] = []
    epoch = worker.committer._epoch
    assert epoch is not None
    rig.fill(P0, 2)
    rig.turn_until(lambda: worker.recorder.has_progress)
    worker.controller.flush_due(FlushReason.INTERVAL)
    rig.fill(P0, 2)
    rig.turn_until(lambda: worker.recorder.has_progress)

    def arrive(name: str) -> None:
        if name == "produced" and not said:
            try:
                rig.broker.end("logs.a", epoch, commit=True)
            except BrokerError as error:
                said.append(error.code)
            else:
                said.append("torn")

    worker.committer._point = arrive
    worker.controller.flush_due(FlushReason.INTERVAL)
    return rig, worker, said


def test_finding_2_delayed_end_of_one_transaction_cannot_end_the_next() -> None:
    """The late end carries an old producer's epoch: the broker fences it, and the next transaction is whole."""
    rig, _, said = flush_with_a_delayed_end(Parts())
    assert said == ["_FENCED"]
    assert rig.committed()[P0] == 4
    rig.check()


def test_finding_2_one_producer_for_all_would_be_torn() -> None:
    """With the same epoch, references are committed without their offsets; the new producer prevents this."""
    with pytest.raises(InvariantError, match=r"I3|I4"):
        flush_with_a_delayed_end(Parts(committer=KeepsItsProducer))


# Under KIP-848 a member keeps its id over fencing: these tests show that no other had its TopicPartitions meanwhile.


def hasty(*, lenient: bool = True, records: int = 2) -> tuple[Rig, FakeWorker]:
    """Give a hasty member that owns everything; nothing is read yet."""
    rig = Rig(KIP848)
    assert isinstance(rig.group, ConsumerGroup)
    rig.group.is_lenient = lenient
    worker = rig.worker("a", parts=Parts(member848=HastyMember848))
    rig.turn_until(lambda: worker.recorder.ledgers.keys() == rig.broker.logs.keys())
    for tp in rig.broker.logs:
        rig.fill(tp, records)
    return rig, worker


def put_out_and_overtaken(rig: Rig, worker: FakeWorker) -> None:
    """Let the session of a member end, another flush what it had read, and the first be in again, unaware of it."""
    rig.pass_time(50.0, except_for=worker)
    other = rig.worker("b")
    for _ in range(50):
        if not other.recorder.has_progress:
            rig.group.tick()
            other.consumer.member.background()
            other.step()
    other.controller.flush_due(FlushReason.INTERVAL)
    assert rig.committed() == {P0: 2, P1: 2}
    for _ in range(3):
        worker.consumer.member.background()
    assert worker.consumer.membership().is_proof


@pytest.mark.parametrize("is_lenient", [True, False])
def test_batch_of_before_is_refused_though_the_member_is_in_again_under_its_id(is_lenient: bool) -> None:  # noqa: FBT001 - a case
    """It is sent with the epoch that it was opened in: the broker knows that nothing was owned since then."""
    rig, worker = hasty(lenient=is_lenient)
    worker.step()
    assert worker.recorder.has_progress
    put_out_and_overtaken(rig, worker)
    worker.controller.flush_due(FlushReason.INTERVAL)
    assert worker.metrics.total("flushes", outcome="committed") == 0
    rig.drain()


def test_with_the_epoch_of_now_the_broker_takes_what_others_have_committed_since() -> None:
    """Without the guard, records are committed twice."""
    rig, worker = hasty()
    worker.step()
    batch = worker.recorder._batch
    assert batch is not None
    membership = batch.opening.membership._replace(outlives_fencing=False)
    batch.opening = batch.opening._replace(membership=membership)
    put_out_and_overtaken(rig, worker)
    with pytest.raises(InvariantError, match="I3"):
        worker.controller.flush_due(FlushReason.INTERVAL)


def test_batch_is_opened_where_the_committed_offsets_are() -> None:
    """A member is put out between two batches, unaware of it; it does not read on behind what others have committed."""
    rig, worker = hasty(records=0)
    rig.pass_time(50.0, except_for=worker)
    for tp in rig.broker.logs:
        rig.fill(tp, 2)
    put_out_and_overtaken(rig, worker)
    for record in rig.broker.logs[P0].read(0, 1):
        assert worker.recorder.accepts(record)
    worker.controller.consume_returned()
    assert not worker.controller.open_batch()
    assert worker.controller.state.to_seek == {P0, P1}
    worker.consumer.member.queue.clear()
    worker.settle()
    assert worker.recorder.ledgers[P0].first_offset == rig.committed()[P0] == 2
    assert worker.controller.open_batch()


def test_committed_offsets_are_asked_for_once_in_an_epoch() -> None:
    """There the id tells: it would be another one."""
    for style in (KIP848, COOPERATIVE):
        rig = Rig(style)
        calls: list[str] = []
        worker = rig.worker(point=calls.append)
        for _ in range(3):
            rig.fill(P0, 1)
            rig.turn_until(lambda: worker.recorder.has_progress)  # noqa: B023
            worker.controller.flush_due(FlushReason.INTERVAL)
        assert calls.count("committed") == 1
        rig.drain()


def test_member_of_the_library_is_not_hasty() -> None:
    """The fake that everything else runs on waits for the application, as librdkafka does."""
    assert Rig(KIP848).worker().consumer.member.__class__ is Member848
