"""Wrong classes of the worker itself: recorder, flusher, controller, loop. A real worker can be made of them, too."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import confluent_kafka

from log_partitioner.batch.batch import ClosedBatch, Opening
from log_partitioner.batch.ledger import Ledger
from log_partitioner.batch.rows import Rows
from log_partitioner.boundary import Membership, SentFlush, StoredObject
from log_partitioner.control.deadline import Deadline
from log_partitioner.control.flush_policy import FlushReason
from log_partitioner.control.state import NOTHING
from log_partitioner.errors import CommitAbortedError, CommitUnknownError, DiscardError
from log_partitioner.formats.model import CommittedOffset, SourceRecord, TopicPartition
from log_partitioner.runtime.controller import Controller
from log_partitioner.runtime.flusher import Flusher
from log_partitioner.runtime.recorder import Recorder
from log_partitioner.runtime.runloop import Runloop
from log_partitioner.runtime.uploader import Upload


class DropsBufferedRecords(Runloop):
    """Drops what one consume handed over when a rebalance came in the middle of it, and reads on."""

    _generation = 0

    def _record_all(self, records: list[SourceRecord]) -> None:
        generation = self.controller.state.generation
        if generation == self._generation:
            super()._record_all(records)
        self._generation = generation


class NeverRewinds(Controller):
    """Forgets to seek back after a flush that failed."""

    def _flush_failed(self, batch: ClosedBatch, error: DiscardError, reason: FlushReason) -> None:
        super()._flush_failed(batch, error, reason)
        self.state = replace(self.state, to_seek=NOTHING)


class RewindsNothingKept(Controller):
    """After a failure on revoke, rewinds released TopicPartitions, which no worker may seek, and not retained ones."""

    @contextmanager
    def _in_callback(self) -> Iterator[None]:
        before, owned = self.state.to_seek, self.state.owned
        with super()._in_callback():
            yield
        self.state = replace(self.state, to_seek=(before | (self.state.owned - owned)) & self.state.owned)


def position_of(consumer: Any, tp: TopicPartition) -> int:
    """Return the position of a fake consumer, or of the client library's."""
    if hasattr(consumer, "positions"):
        return int(consumer.positions.get(tp, 0))
    (place,) = consumer._consumer.position([confluent_kafka.TopicPartition(*tp)])
    return int(place.offset)


class CommitsThePosition(Controller):
    """Takes the client's position for what is recorded."""

    def _flush(self, reason: FlushReason) -> None:
        for tp, ledger in self.recorder.ledgers.items():
            ledger.next_offset = max(ledger.next_offset, position_of(self.ports.consumer, tp))
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
        batch = self.recorder._batch
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


class RecordsWhatIsNotOwned(Recorder):
    """Writes every record that it is handed."""

    def accepts(self, record: SourceRecord) -> bool:
        """Begin a ledger if there is none."""
        self._ledgers.by_tp.setdefault(record.tp, Ledger(record.offset, record.offset))
        return super().accepts(record)


class AcceptsStaleRecords(Controller):
    """Keeps the place of what it gave back, and goes on there when it comes again."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.recorder.disown = lambda _: None  # type: ignore[method-assign]

    def on_assigned(self, tps: frozenset[TopicPartition]) -> None:
        """Go on at the place that is known."""
        super().on_assigned(tps)
        self._become(self.state.sought(tps & self.recorder.ledgers.keys()))


class ForgetsUnknownOutcomes(Controller):
    """Takes an unknown outcome for an abort: goes on where the batch began."""

    def position(self) -> None:
        """Seek to where the batch began, without asking."""
        for tp in self.state.to_seek:
            own = self.recorder.ledgers.get(tp)
            start = CommittedOffset(0 if own is None else own.first_offset)
            self.recorder.start(tp, start)
            self.ports.consumer.seek(tp, start, deadline=self.deadline)
        self._become(self.state.sought(self.state.to_seek))


class SharesItsProgress(Recorder):
    """Closes a batch without copying its ledgers, and goes on with them before the flush has ended."""

    def close(self) -> ClosedBatch:
        """Begin the next batch at once."""
        batch = super().close()
        self._ledgers.committed(batch.ledgers, now_ms=0)
        return batch._replace(ledgers=self._ledgers.by_tp)


class SpansGenerations(Controller):
    """Goes on with the open batch over an assignment, and commits it as the membership that it was opened in."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.flusher._membership = lambda: self._opened or self.ports.consumer.membership()

    @property
    def _opened(self) -> Membership | None:
        batch = self._closed
        return None if batch is None else batch.opening.membership

    def _flush_open(self, reason: FlushReason) -> None:
        if reason is not FlushReason.ASSIGNED:
            super()._flush_open(reason)


class CommitsOneTooFar(Flusher):
    """Commits the offset behind the next one."""

    def _offsets(self, batch: ClosedBatch) -> dict[TopicPartition, CommittedOffset]:
        found = super()._offsets(batch)
        return {tp: one._replace(offset=one.offset + 1) for tp, one in found.items()}


class PostponedUploads:
    """Acknowledges uploads that it has not begun."""

    def __init__(self) -> None:
        self.waiting: list[Upload] = []

    def put_all(self, uploads: Iterable[Upload], deadline: Deadline, **how: Any) -> list[StoredObject]:
        """Keep them for later."""
        self.waiting, self.deadline, self.how = list(uploads), deadline, how
        etags = [hashlib.md5(one.body(), usedforsecurity=False).hexdigest() for one in self.waiting]
        return [StoredObject(one.key_of(0), etag, None) for one, etag in zip(self.waiting, etags, strict=True)]


class CommitsBeforeItUploads(Flusher):
    """Commits first, and uploads what it has announced afterwards."""

    def flush(self, batch: ClosedBatch, reason: FlushReason, *, deadline: Deadline) -> SentFlush:
        """Flush in the wrong order."""
        ports, postponed = self.ports, PostponedUploads()
        self.ports = replace(ports, uploads=postponed)
        try:
            return super().flush(batch, reason, deadline=deadline)
        finally:
            self.ports = ports
            if self._committer_has_ended:
                ports.uploads.put_all(postponed.waiting, postponed.deadline, **postponed.how)

    _committer_has_ended = False

    def _commit(self, *arguments: Any) -> Membership:
        self._committer_has_ended = False
        membership = super()._commit(*arguments)
        self._committer_has_ended = True
        return membership


class RepeatsUnknownCommits(Flusher):
    """Commits once more when the outcome of the first commit is unknown."""

    def _commit(self, *how: Any) -> Membership:
        try:
            return super()._commit(*how)
        except CommitUnknownError:
            return super()._commit(*how)


class RepeatsAsAnotherMember(Flusher):
    """Repeats a commit that met a new generation, with its current membership."""

    def _commit(self, *how: Any) -> Membership:
        messages, offsets, membership, _, deadline = how
        try:
            self.ports.committer.commit(messages(), offsets, membership, deadline=deadline)
        except CommitAbortedError as error:
            if error.code != "ILLEGAL_GENERATION" or deadline.has_passed():
                raise
            membership = self._membership()
            self.ports.committer.commit(messages(), offsets, membership, deadline=deadline)
        return membership  # type: ignore[no-any-return]


class UsesItsSpoolAgain(Recorder):
    """Begins a batch with what the spool still has of the one that was given up."""

    _left: Rows | None = None

    def open(self, opening: Opening) -> None:
        """Open it over the rows that are there."""
        super().open(opening)
        if self._left is not None and self._batch is not None:
            self._batch.rows, self._left = self._left, None

    def discard(self, batch: ClosedBatch | None) -> dict[TopicPartition, tuple[int, int]]:
        """Leave the rows where they are."""
        given = batch or self._batch
        if given is not None:
            self._left = given.rows
        return super().discard(batch)
