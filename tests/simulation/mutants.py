"""Deliberately wrong workers: each does what some service before this one did, and has to be noticed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from service.core import machine
from service.core.batch import Ledger
from service.core.deadline import Deadline
from service.core.exchange import Membership, Message
from service.core.flush_policy import FlushReason
from service.core.machine import Effect, Event
from service.core.model import SourceRecord, TopicPartition
from service.runtime.controller import Controller
from service.runtime.flusher import Flusher, FlushSummary
from service.runtime.recorder import Recorder
from service.runtime.runloop import Runloop
from tests.fakes.committer import FakeCommitter
from tests.fakes.consumer import FakeConsumer


class DropsBufferedRecords(Runloop):
    """Drops what one consume handed over when a rebalance came in the middle of it, and reads on."""

    _generation = 0

    def _record_all(self, records: list[SourceRecord]) -> None:
        generation = self._controller.state.generation
        if generation == self._generation:
            super()._record_all(records)
        self._generation = generation


class NeverRewinds(Controller):
    """Forgets to seek back after a flush that failed."""

    def _perform(self, effect: Effect, event: Event) -> None:
        if not isinstance(effect, machine.Rewind):
            super()._perform(effect, event)


class RewindsNothingKept(Controller):
    """After a failure on revoke, rewinds what is given back only - which nobody may seek - and not what is kept."""

    def _perform(self, effect: Effect, event: Event) -> None:
        if not (isinstance(effect, machine.Rewind) and self._in_callback):
            super()._perform(effect, event)


class CommitsThePosition(Flusher):
    """Takes the client's position for what is recorded."""

    def flush(self, reason: FlushReason, *, deadline: Deadline) -> FlushSummary:
        """Move every ledger to the position first."""
        consumer: Any = self._membership.__self__  # type: ignore[attr-defined]
        assert isinstance(consumer, FakeConsumer)
        for tp, ledger in self._recorder.ledgers.by_tp.items():
            ledger.next_offset = max(ledger.next_offset, consumer.positions.get(tp, 0))
        return super().flush(reason, deadline=deadline)


class AnyMember(str):
    """A member id that equals every other."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, _other: object) -> bool:
        return True

    def __ne__(self, _other: object) -> bool:
        return False


class IgnoresMemberIds(Controller):
    """Takes whatever metadata there is for that of the batch."""

    def open_batch(self) -> None:
        """Open a batch that every member id fits."""
        super().open_batch()
        assert self._recorder.batch is not None
        self._recorder.batch.member_id = AnyMember(self._recorder.batch.member_id)


class FlushesWhatIsLost(IgnoresMemberIds):
    """Treats lost like revoked."""

    def on_lost(self, tps: frozenset[TopicPartition]) -> None:
        """Flush."""
        self.on_revoked(tps)


class TrustsAnyMembership(FakeCommitter):
    """Sends metadata without generation and member id, which a broker does not fence."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.trusts_any_membership = True


class RecordsWhatIsNotOwned(Recorder):
    """Writes every record that it is handed."""

    def accepts(self, record: SourceRecord) -> bool:
        """Begin a ledger where there is none."""
        self.ledgers.by_tp.setdefault(record.tp, Ledger(record.offset, record.offset))
        return super().accepts(record)


class AcceptsStaleRecords(Controller):
    """Takes records from before a TopicPartition was given back for those after it came again."""

    def _release(self, tps: frozenset[TopicPartition], event: Event) -> None:
        super()._release(tps, event)
        self._given_back.clear()


class AnnouncesOutsideTheTransaction(FakeCommitter):
    """Produces references at once and only the flush record in the transaction."""

    def commit(
        self,
        messages: Sequence[Message],
        offsets: Mapping[TopicPartition, int],
        membership: Membership,
        *,
        deadline: Deadline,
    ) -> None:
        """Publish, then commit."""
        self._broker.publish(one for one in messages if one.topic == "references")
        super().commit([one for one in messages if one.topic != "references"], offsets, membership, deadline=deadline)


class ForgetsUnknownOutcomes(Controller):
    """Takes an unknown outcome for an abort: goes on where the batch began."""

    def settle(self) -> None:
        """Seek to where the batch began, without asking."""
        for tp in self.rewinds & self._recorder.ledgers.by_tp.keys():
            ledger = self._recorder.ledgers.by_tp[tp]
            self._recorder.ledgers.rewind(tp, ledger.first_offset)
            self._consumer.seek(tp, ledger.first_offset)
        self.rewinds = set()
