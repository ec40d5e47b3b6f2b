"""Wrong transactions: planted in the fake committer, which has the rules of the adapter over rules of the broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from log_partitioner.boundary import Message
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import FencedError
from log_partitioner.formats.model import CommittedOffset, TopicPartition
from tests.fakes.committer import FakeCommitter, Outcome
from tests.fakes.consumer import FakeConsumer


class TrustsAnyMembership(FakeCommitter):
    """Sends metadata without generation and member id, which a broker does not fence."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.trusts_any_membership = True


class KeepsItsProducer(FakeCommitter):
    """Has one producer for all transactions, as is usual with KIP-890, and aborts what is left open."""

    _kept: int | None = None

    def prepare(self, *, deadline: Deadline | None = None) -> None:
        """Begin an epoch once."""
        if self._kept is None:
            super().prepare(deadline=deadline)
            self._kept = self._epoch
        elif self._epoch is None:
            self._abort(self._kept)
        self._epoch = self._kept

    def commit(self, *how: Any, **more: Any) -> None:
        """Run one transaction; only after a fatal error another producer is made."""
        try:
            super().commit(*how, **more)
        except FencedError:
            self._kept = None
            raise


class AnnouncesOutsideTheTransaction(FakeCommitter):
    """Produces references at once and only the flush record in the transaction."""

    def commit(self, messages: Iterable[Message], *how: Any, **more: Any) -> None:
        """Publish, then commit."""
        messages = list(messages)
        self._broker.publish(one for one in messages if one.topic == "references")
        super().commit([one for one in messages if one.topic != "references"], *how, **more)


class IgnoresDeliveryReports(FakeCommitter):
    """Commits though a message was not delivered, and its report said so."""

    def commit(self, messages: Iterable[Message], *how: Any, **more: Any) -> None:
        """Lose the first message when the transaction should be aborted, and go on."""
        if messages != [] and self.script and not isinstance(self.script[0], Outcome):
            self.script.popleft()
            _, *messages = messages
        super().commit(messages, *how, **more)


class ReadsUncommitted(FakeConsumer):
    """Reads uncommitted: the broker answers with the offsets that stand, whatever transaction over them is open."""

    def committed(
        self, tps: Iterable[TopicPartition], *, deadline: Deadline
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Ask, and wait for nothing."""
        del deadline
        self._point("committed")
        return {tp: self._broker.committed(tp) for tp in tps}


class TakesZeroForNone(FakeConsumer):
    """Takes a committed offset of 0 for none: `if offset` in the place of `if offset is not None`."""

    def committed(
        self, tps: Iterable[TopicPartition], *, deadline: Deadline
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Ask, and misread."""
        answers = super().committed(tps, deadline=deadline)
        return {tp: one if one is not None and one.offset else None for tp, one in answers.items()}


class GoesPastDamage(FakeConsumer):
    """Takes an error event in the place of records for nothing: what follows it is the next record."""

    def _pop(self, records_max: int) -> list[Any]:
        for tp in self.positions:
            log = self._broker.logs[tp]
            while (broken := log.broken_at(self.positions[tp], self.positions[tp] + 1)) is not None:
                self.positions[tp] = broken.stop
        popped = super()._pop(records_max)
        self.failed.clear()  # said once, in the place of a record
        return popped
