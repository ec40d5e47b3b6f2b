"""Deliberately wrong workers: each does what some service before this one did, and has to be noticed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from service.batch.batch import ClosedBatch
from service.batch.progress import Progress
from service.boundary import Membership, Message
from service.control import machine
from service.control.deadline import Deadline
from service.control.events import Event, FlushDiscarded, Rewound
from service.control.flush_policy import FlushReason
from service.formats.model import CommittedOffset, SourceRecord, TopicPartition
from service.runtime.controller import Controller
from service.runtime.recorder import Recorder
from service.runtime.runloop import Runloop
from tests.fakes.committer import FakeCommitter


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

    def _advance(self, event: Event) -> None:
        super()._advance(event)
        if isinstance(event, FlushDiscarded):
            self.state = replace(self.state, rewinds=machine.NOTHING)


class RewindsNothingKept(Controller):
    """After a failure on revoke, rewinds what is given back only - which nobody may seek - and not what is kept."""

    def _callback(self, event: Event) -> None:
        before = self.state.rewinds
        super()._callback(event)
        self.state = replace(self.state, rewinds=before & self.state.owned)


class CommitsThePosition(Controller):
    """Takes the client's position for what is recorded."""

    def _flush(self, reason: FlushReason) -> None:
        consumer: Any = self._consumer
        for tp, progress in self._recorder.positions.items():
            progress.next_offset = max(progress.next_offset, consumer.positions.get(tp, 0))
        super()._flush(reason)


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

    def open_batch(self) -> bool:
        """Open a batch that every member id fits."""
        is_open = super().open_batch()
        batch = self._recorder._batch
        if batch is not None:
            membership = batch.opening.membership
            any_member = membership._replace(member_id=AnyMember(membership.member_id))
            batch.opening = batch.opening._replace(membership=any_member)
        return is_open


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
        """Begin a progress where there is none."""
        self._tracker.by_tp.setdefault(record.tp, Progress(record.offset, record.offset))
        return super().accepts(record)


class AcceptsStaleRecords(Controller):
    """Takes records from before a TopicPartition was given back for those after it came again."""

    def _advance(self, event: Event) -> None:
        self.state = replace(self.state, given_back=machine.NOTHING)
        super()._advance(event)


class AnnouncesOutsideTheTransaction(FakeCommitter):
    """Produces references at once and only the flush record in the transaction."""

    def commit(
        self,
        messages: Iterable[Message],
        offsets: Mapping[TopicPartition, CommittedOffset],
        membership: Membership,
        *,
        deadline: Deadline,
    ) -> None:
        """Publish, then commit."""
        messages = list(messages)
        self._broker.publish(one for one in messages if one.topic == "references")
        super().commit([one for one in messages if one.topic != "references"], offsets, membership, deadline=deadline)


class ForgetsUnknownOutcomes(Controller):
    """Takes an unknown outcome for an abort: goes on where the batch began."""

    def rewind_to_committed(self) -> None:
        """Seek to where the batch began, without asking."""
        for tp in self.state.rewinds:
            start = CommittedOffset(self._recorder.positions[tp].first_offset)
            self._recorder.rewind(tp, start)
            self._consumer.seek(tp, start, deadline=self._deadline)
        self.handle(Rewound(self.state.rewinds, self._clock.now_s()))


class SharesItsProgress(Recorder):
    """Closes a batch without copying its progress, and goes on with them before the flush has ended."""

    def close(self, **without: Any) -> ClosedBatch:
        """Begin the next batch at once."""
        batch = super().close(**without)
        self._tracker.committed(now_ms=0)
        return batch._replace(progress=self._tracker.by_tp)
