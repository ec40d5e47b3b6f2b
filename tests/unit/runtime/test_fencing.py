"""Fencing by epoch: what a delayed request of one transaction can do to the next (KAFKA_FACTS F2)."""

from __future__ import annotations

import pytest

from log_partitioner.control.flush_policy import FlushReason
from tests.fakes.broker import BrokerError
from tests.fakes.check import InvariantError
from tests.fakes.records import P0
from tests.fakes.rig import Rig
from tests.fakes.worker import FakeWorker, Parts
from tests.mutants.transactions import KeepsItsProducer


def flush_with_a_delayed_end(parts: Parts) -> tuple[Rig, FakeWorker, list[str]]:
    """Flush twice; the EndTxn of the first arrives a second time while the second is half written."""
    rig = Rig()
    worker = rig.owning(parts=parts)
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
    """It carries the epoch of a producer that is no more: fenced, and the next transaction is whole."""
    rig, _, said = flush_with_a_delayed_end(Parts())
    assert said == ["_FENCED"]
    assert rig.committed()[P0] == 4
    rig.check()


def test_finding_2_one_producer_for_all_would_be_torn() -> None:
    """What the new producer is for: with the same epoch, references are committed without their offsets."""
    with pytest.raises(InvariantError, match=r"I3|I4"):
        flush_with_a_delayed_end(Parts(committer=KeepsItsProducer))
