"""The control plane: rebalance callbacks, flushes, back-off and seeks, each from top to bottom as it happens.

Runs on the loop thread. Rebalance callbacks come from inside `Consumer.consume`: they flush, own and release, but
neither ask nor seek. The state notes the TopicPartitions to seek, and the loop seeks them before the next poll; records
that `consume` had taken before the callback are refused until then, and read again (DESIGN 4.3: data was lost there
once).

A record is taken only if its TopicPartition is owned and not to be sought.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from log_partitioner.batch.batch import ClosedBatch, Opening, cost_of
from log_partitioner.boundary import Membership
from log_partitioner.config.flush_settings import FlushSettings
from log_partitioner.control.deadline import Deadline
from log_partitioner.control.flush_policy import FlushReason, Size
from log_partitioner.control.state import FAILURES_MAX, FAILURES_WINDOW_S, Phase, WorkerState
from log_partitioner.errors import (
    CommitUnknownError,
    DiscardError,
    FencedError,
    SpoolError,
    StopError,
    TooManyFailuresError,
)
from log_partitioner.formats import log_events
from log_partitioner.formats.log_events import tell
from log_partitioner.formats.model import TopicPartition
from log_partitioner.pace import Pace
from log_partitioner.privacy import describe
from log_partitioner.runtime.flusher import Flusher
from log_partitioner.runtime.ports import Ports
from log_partitioner.runtime.positions import Positions
from log_partitioner.runtime.recorder import Recorder
from log_partitioner.runtime.verification import Verification

NOT_PREPARED_MAX = 3
STORY_CHARS_MAX = 300
STORY_MAX = 50  # changes of the state that are told when the worker ends by a fault


@dataclass(eq=False, repr=False)
class Controller:
    """Owns the worker's state. Callbacks never raise: they keep an exception in `error`."""

    ports: Ports
    rules: FlushSettings
    recorder: Recorder
    flusher: Flusher
    positions: Positions
    verification: Verification

    def __post_init__(self) -> None:
        self.state = WorkerState()
        self.error: BaseException | None = None
        self.story: deque[str] = deque(maxlen=STORY_MAX)
        self.deadline = Deadline.after(self.rules.poll_budget_s, self.ports.clock.now_s)
        """The deadline of everything between two polls."""
        self.discarded = 0
        """Batches discarded."""
        self._asked_in = 0
        self._not_prepared = 0
        self._closed: ClosedBatch | None = None
        self._log = structlog.get_logger("controller")
        self._pace = Pace(self.ports.clock.now_s)

    # Callbacks: from inside Consumer.consume and Consumer.close.

    def on_assigned(self, tps: frozenset[TopicPartition]) -> None:
        """Own these; flush first if a batch is open, because a batch never spans generations."""
        with self._in_callback():
            if self.state.end is not None:
                return
            self._flush_open(FlushReason.ASSIGNED)
            self._become(self.state.owning(tps))
            if tps:
                member = self.ports.consumer.membership()
                assigned = log_events.PartitionsAssigned(
                    generation=self.state.generation,
                    member=member.member_id,
                    member_generation=member.generation,
                    owned=len(self.state.owned),
                    topic_partitions=_names(tps),
                )
                tell(self._log.info, assigned)
                self.ports.metrics.add("rebalances", kind="assigned")

    def on_revoked(self, tps: frozenset[TopicPartition]) -> None:
        """Flush, then release; blocks the rebalance within the revoke budget (W5).

        A batch mixes TopicPartitions, so that the whole open batch is committed together.
        """
        if unknown := tps - self.state.owned:
            tell(self._log.warning, log_events.RevokedUnknown(_names(unknown)))
        with self._timed("revoke_duration_seconds"), self._in_callback():
            self._flush_open(FlushReason.REVOKED)
            self._release(tps & self.state.owned, is_lost=False)
        self._require_nothing_of(tps, "W5")

    def on_lost(self, tps: frozenset[TopicPartition]) -> None:
        """Discard, then release; lost records never commit (W6), and the rest of the batch is read again."""
        tell(self._log.warning, log_events.PartitionsLost(_names(tps), generation=self.state.generation))
        self.ports.metrics.add("rebalances", kind="lost")
        with self._in_callback():
            if self.state.end is None:
                self._become(self.state.seeking())
                self._discard("Lost")
            self._release(tps & self.state.owned, is_lost=True)
        self._require_nothing_of(tps, "W6")

    @contextmanager
    def _in_callback(self) -> Iterator[None]:
        self.deadline = Deadline.after(self.rules.poll_budget_s, self.ports.clock.now_s)
        try:
            yield
        except BaseException as error:  # noqa: BLE001 - raised again by the loop: KAFKA_FACTS F4
            self.error = self.error or error

    @contextmanager
    def _timed(self, histogram: str) -> Iterator[None]:
        began_s = self.ports.clock.now_s()
        try:
            yield
        finally:
            self.ports.metrics.observe(histogram, self.ports.clock.now_s() - began_s)

    def _require_nothing_of(self, tps: frozenset[TopicPartition], rule: str) -> None:
        is_left = self.recorder.opening is not None or self._closed is not None or tps & self.state.owned
        if is_left and self.error is None:
            self.error = AssertionError(f"{rule}: a callback leaves something of {_names(tps)} behind")

    # From the loop.

    @property
    def not_positioned(self) -> frozenset[TopicPartition]:
        """TopicPartitions that are owned and have no next offset yet, because the broker has not told it."""
        return self.state.owned - self.recorder.ledgers.keys()

    def prepare(self) -> None:
        """Make the next flush's producer ready, outside any callback; if it takes too long, poll before another try.

        Its init ends a transaction that the last flush may have left open; otherwise committed offsets would not be
        stable. If the process was stopped, there may be no time left to ask.

        Raises:
            StopError: it is refused, or not ready after NOT_PREPARED_MAX tries.
        """
        if self.ports.committer.is_ready or self.deadline.has_passed():
            return
        try:
            self.ports.committer.prepare(deadline=self.deadline)
        except DiscardError as error:
            self._not_prepared += 1
            self._log.warning("not_prepared", times=self._not_prepared, message=str(error))
            if self._not_prepared >= NOT_PREPARED_MAX:
                raise StopError(str(error)) from error
        else:
            self._not_prepared = 0

    def consume_returned(self) -> None:
        """Note that `consume` has returned, and raise the exception that a callback kept.

        Raises:
            StopError: as it was, or wrapped around an unexpected exception.
        """
        self.deadline = Deadline.after(self.rules.poll_budget_s, self.ports.clock.now_s)
        error, self.error = self.error, None
        if isinstance(error, StopError):
            raise error
        if error is not None:
            raise StopError(f"a rebalance callback failed: {describe(error)}") from error
        # Judge a flush of a callback now: others waited for the callback.
        self.verification.judge(self._before_settling().at_most(self.rules.revoke_budget_s))

    def open_batch(self) -> bool:
        """Open a batch before its first record; it carries the generation and the member id of now.

        A broker lets a member commit offsets that it does not own; only member id and generation tell that it was away.
        With the classic protocol a member that was put out comes back under another id. With KIP-848 it comes back
        under its own, with a later epoch, which moves without a callback at other times too. That the client library
        does not join again before it has called `on_lost` is its order of events, not ours (ADR 4). So there a batch is
        committed with the epoch that it was opened in, never with a later one: a broker refuses it if the member was
        away meanwhile (KAFKA_FACTS R12). And it is opened only in the epoch in which all next offsets were asked for.

        Returns False if the epoch has moved, the disk refuses, or no other flush would end before the next poll; then
        the records handed over are read again.
        """
        membership = self.ports.consumer.membership()
        is_late = self._before_settling().remaining_s() < self.rules.budget_s
        if is_late or self._has_moved(membership):
            self._become(self.state.seeking())
            return False
        opening = Opening(
            batch_id=self.ports.new_batch_id(),
            generation=self.state.generation,
            membership=membership,
            opened_at_s=self.ports.clock.now_s(),
            opened_at_ms=self.ports.clock.wall_ms(),
        )
        try:
            self.recorder.open(opening)
        except SpoolError as error:
            self._log.warning("recording_refused", message=str(error))
            self._discard("RecordingFailed")
            self._back_off(self.ports.clock.now_s())
            return False
        return True

    def _has_moved(self, membership: Membership) -> bool:
        return membership.outlives_fencing and membership.generation != self._asked_in

    def flush_due(self, reason: FlushReason) -> None:
        """Flush the open batch.

        Raises:
            StopError: the batch may hold records of two topics of one name, or the store refuses us.
        """
        self.positions.watch(self.recorder.ledgers, deadline=self.deadline)
        if self.state.end is None:
            self._flush(reason)

    def stop(self) -> None:
        """Flush the open batch and leave."""
        self._flush_open(FlushReason.STOPPING)
        self._become(self.state.ended(Phase.STOPPED))

    def fail(self) -> None:
        """Commit nothing any more; partitions revoked by closing the consumer are only released."""
        if self.state.end is None:
            self._become(self.state.ended(Phase.FAILED))
            self._discard("Failed")

    def tick(self) -> None:
        """End a pause whose time has come."""
        until_s = self.state.paused_until_s
        if self.state.end is None and until_s is not None and self.ports.clock.now_s() >= until_s:
            self._become(self.state.resumed())
            tell(self._log.info, log_events.Resumed())
            self.ports.consumer.resume()
            self.ports.metrics.set("backoff", 0)

    def position(self) -> None:
        """Ask for the next offset of every TopicPartition to seek, and seek it; before each poll, outside callbacks.

        `prepare` has settled the last transaction before: no transaction of ours is open while committed offsets are
        asked for. If it is not settled, or the answer is missing or wrong, TopicPartitions stay to be sought until the
        next turn.

        Raises:
            StopError: see `Positions.find`.
        """
        membership = self.ports.consumer.membership()
        if self._has_moved(membership) and self.recorder.opening is None:
            self._become(self.state.seeking())
        tps = self.state.to_seek
        if not tps or not self.ports.committer.is_ready:
            return
        own = self.recorder.ledgers
        known = {tp: own[tp].first_offset if tp in own else None for tp in sorted(tps)}
        if self.deadline.remaining_s() < self.rules.settle_s / 2:  # stopped meanwhile: the group may have put us out
            self._report_not_positioned("too little time before the next poll")
            return
        try:
            found = self.positions.find(known, positioned=own, deadline=self.deadline)
        except DiscardError as error:
            self._report_not_positioned(str(error))
            return
        starts = {str(tp): log_events.Start(one.committed.offset, one.source, known[tp]) for tp, one in found.items()}
        tell(self._log.info, log_events.Positioned(membership.generation, starts))
        for tp, one in found.items():
            self.ports.consumer.seek(tp, one.committed, deadline=self.deadline)
            self.recorder.start(tp, one.committed, is_new=one.source == "policy")
        self.ports.metrics.add("rewinds", sum(first is not None for first in known.values()))
        if tps == self.state.owned:
            self._asked_in = membership.generation
        self._become(self.state.sought(tps))

    def _report_not_positioned(self, message: str) -> None:
        if times := self._pace.times(message):  # each turn asks again
            self._log.warning("not_positioned", message=message, times=times)

    def _become(self, state: WorkerState) -> None:
        before, self.state = self.state, state
        if change := state.change_of(before):
            self.story.append(change[:STORY_CHARS_MAX])

    # Flushes.

    def _before_settling(self) -> Deadline:
        """Return the time by which a flush has to end for its outcome to be settled within the poll."""
        return Deadline(self.deadline.at_s - self.rules.settle_s, self.deadline.now_s)

    def _flush_open(self, reason: FlushReason) -> None:
        if self.recorder.has_progress and self.state.end is None:
            self._flush(reason)

    def _flush(self, reason: FlushReason) -> None:
        """Flush the open batch: then it is committed, or it is discarded and all that is owned is to be sought."""
        is_awaited = reason in (FlushReason.REVOKED, FlushReason.ASSIGNED, FlushReason.STOPPING)
        budget_s = self.rules.revoke_budget_s if is_awaited else self.rules.budget_s
        left = self._before_settling()
        self._closed = batch = self.recorder.close()
        generation, offsets = batch.opening.generation, batch.named_spans()
        tell(self._log.info, log_events.FlushStarted(batch.batch_id, reason.value, generation, offsets))
        try:
            with self._timed("flush_duration_seconds"):
                sent = self.flusher.flush(batch, reason, deadline=left.at_most(budget_s))
        except DiscardError as error:
            self._flush_failed(batch, error, reason)
        else:
            now_ms, self._closed = self.ports.clock.wall_ms(), None
            self.ports.metrics.set("last_commit_timestamp_seconds", now_ms / 1000)
            self.recorder.committed(batch, now_ms=now_ms)
            self.positions.flushed_topics |= batch.topics
            self._become(self.state.committed(Size(self.rules.bytes_max, self.rules.entries_max)))
            self.verification.committed(sent)
            if reason not in (FlushReason.REVOKED, FlushReason.ASSIGNED):
                self.verification.judge(left.at_most(self.rules.revoke_budget_s))

    def _flush_failed(self, batch: ClosedBatch, error: DiscardError, reason: FlushReason) -> None:
        counts, at_s = isinstance(error, CommitUnknownError | FencedError), self.ports.clock.now_s()
        if isinstance(error, CommitUnknownError):
            self.positions.forget(batch.ledgers)
        self._become(self.state.discarded(batch.size, at_s, counts_as_failure=counts))
        self._discard(type(error).__name__)
        if self.state.has_failed_too_often:
            self._become(self.state.ended(Phase.FAILED))
            raise TooManyFailuresError(f"{FAILURES_MAX} failures in {FAILURES_WINDOW_S:.0f} s")
        if reason is not FlushReason.STOPPING:
            self._back_off(at_s)

    def _back_off(self, at_s: float) -> None:
        self._become(state := self.state.backed_off(at_s, self.rules.backoff_max_s))
        assert state.paused_until_s is not None
        tell(self._log.info, log_events.Paused(seconds=round(state.paused_until_s - at_s, 3)))
        self.ports.consumer.pause()
        self.ports.metrics.set("backoff", 1)

    def _discard(self, cause: str) -> None:
        """Drop the closed batch, or the open one; `position` lets its records be read again if they are still owned."""
        closed, opening, self._closed = self._closed, self.recorder.opening, None
        if closed is not None or opening is not None:
            self.discarded += 1
            self.ports.metrics.add("batches_discarded", cause=cause)
        cost = cost_of(self.recorder.discard(closed))
        if opening is not None:  # no flush has said so
            dropped = log_events.BatchDiscarded(
                batch_id=opening.batch_id,
                reason=None,
                generation=opening.generation,
                cause=cause,
                code=None,
                outcome="aborted",
                cost=cost,
            )
            tell(self._log.warning, dropped)

    def _release(self, tps: frozenset[TopicPartition], *, is_lost: bool) -> None:
        self._become(self.state.releasing(tps))
        for tp in tps:
            self.recorder.disown(tp)
            for name in ("lag_records", "lag_seconds", "committed_offset"):
                self.ports.metrics.forget(name, topic=tp.topic, partition=str(tp.partition))
        self.positions.forget(tps)
        if tps and not is_lost:
            tell(self._log.info, log_events.PartitionsRevoked(_names(tps), generation=self.state.generation))
            self.ports.metrics.add("rebalances", kind="revoked")


def _names(tps: frozenset[TopicPartition]) -> list[str]:
    return [str(tp) for tp in sorted(tps)]
