"""The control plane: rebalance callbacks, flushes, back-off and seeks, each from top to bottom as it happens.

Runs on the loop thread. Rebalance callbacks come from inside `Consumer.consume`: they flush, own and release, but
never seek. A seek is noted in the state and done when `consume` has returned, because records that it had taken
before the callback are refused then and have to be read again (DESIGN 4.3: this is where the data was lost).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import structlog

from service.batch.batch import ClosedBatch, Opening, cost_of
from service.boundary import Clock
from service.config.flush_settings import FlushSettings
from service.control.deadline import Deadline
from service.control.flush_policy import FlushReason, Size
from service.control.state import FAILURES_MAX, FAILURES_WINDOW_S, Phase, WorkerState
from service.errors import (
    CommitUnknownError,
    DiscardError,
    FencedError,
    SpoolError,
    StopError,
    TooManyFailuresError,
)
from service.formats import log_events
from service.formats.log_events import tell
from service.formats.model import CommittedOffset, TopicPartition
from service.privacy import describe
from service.runtime.flush_report import FlushReport
from service.runtime.flusher import Flusher, FlushSummary
from service.runtime.member_proof import MemberProof
from service.runtime.ports import Committer, Consumer, Metrics
from service.runtime.recorder import Recorder
from service.runtime.start_positions import StartPosition, StartPositions

STORY_CHARS_MAX = 300
STORY_MAX = 50  # changes of the state that are told when the worker ends by a fault


class Controller:
    """Owns the worker's state. Callbacks never raise: what went wrong is kept in `error`."""

    def __init__(
        self,
        *,
        rules: FlushSettings,
        recorder: Recorder,
        flusher: Flusher,
        consumer: Consumer,
        committer: Committer,
        start_positions: StartPositions,
        clock: Clock,
        metrics: Metrics,
        new_batch_id: Callable[[], str],
        verify: Callable[[Deadline], None] | None = None,
    ) -> None:
        self.state = WorkerState()
        self.error: BaseException | None = None
        self.story: deque[str] = deque(maxlen=STORY_MAX)
        self._rules = rules
        self._recorder = recorder
        self._flusher = flusher
        self._consumer = consumer
        self._committer = committer
        self._member_proof = MemberProof(consumer, recorder, start_positions)
        self._start_positions = start_positions
        self._clock = clock
        self._metrics = metrics
        self._new_batch_id = new_batch_id
        self._verify = verify
        self._starts: dict[TopicPartition, CommittedOffset] = {}
        self._closed: ClosedBatch | None = None
        self._deadline = Deadline.after(rules.poll_budget_s, clock.now_s)
        self._is_late = False
        self._log = structlog.get_logger("controller")
        self._told = FlushReport(self._log, metrics, clock.now_s)

    # Callbacks: from inside Consumer.consume and Consumer.close.

    def on_assigned(self, tps: frozenset[TopicPartition]) -> Mapping[TopicPartition, CommittedOffset]:
        """Own what is new; flush first if a batch is open, because a batch never spans generations."""
        self._starts = {}
        with self._in_callback():
            if self.state.end is None:
                self._flush_open(FlushReason.ASSIGNED)
                self._own(tps - self.state.owned)
        return self._starts

    def on_revoked(self, tps: frozenset[TopicPartition]) -> None:
        """Flush, then release; blocks the rebalance within the revoke budget (W5).

        A batch mixes TopicPartitions, so that all that is open is committed together.
        """
        if unknown := tps - self.state.owned:
            tell(self._log.warning, log_events.RevokedUnknown(_names(unknown)))
        with self._in_callback():
            self._flush_open(FlushReason.REVOKED)
            self._release(tps & self.state.owned, is_lost=False)
        self._require_nothing_of(tps, "W5")

    def on_lost(self, tps: frozenset[TopicPartition]) -> None:
        """Discard, then release; what is lost never commits (W6), and the rest of the batch is read again."""
        tell(self._log.warning, log_events.PartitionsLost(_names(tps), generation=self.state.generation))
        self._metrics.add("rebalances", kind="lost")
        with self._in_callback():
            if self.state.end is None:
                self._become(self.state.seeking())
                self._discard("Lost")
            self._release(tps & self.state.owned, is_lost=True)
        self._require_nothing_of(tps, "W6")

    @contextmanager
    def _in_callback(self) -> Iterator[None]:
        self._deadline = Deadline.after(self._rules.poll_budget_s, self._clock.now_s)
        try:
            yield
        except BaseException as error:  # noqa: BLE001 - raised again by the loop: KAFKA_FACTS F4
            self.error = self.error or error

    def _require_nothing_of(self, tps: frozenset[TopicPartition], rule: str) -> None:
        is_left = self._recorder.opening is not None or self._closed is not None or tps & self.state.owned
        if is_left and self.error is None:
            self.error = AssertionError(f"{rule}: a callback leaves something of {_names(tps)} behind")

    # From the loop.

    @property
    def deadline(self) -> Deadline:
        """When everything between two polls has to be done."""
        return self._deadline

    def begin(self) -> None:
        """Make a producer ready before any committed offset is read: that ends what an earlier process left open."""
        self._committer.prepare()

    def prepare(self) -> bool:
        """Make the next flush's producer ready, outside any callback, within what is left until the next poll.

        Returns whether it is: where the process was stopped there may be no time left to ask.

        Raises:
            DiscardError: it is not ready yet: poll, and ask again.
            StopError: it is refused.
        """
        if not self._committer.is_ready and not self._deadline.has_passed():
            self._committer.prepare(deadline=self._deadline)
        return self._committer.is_ready

    def open_batch(self) -> bool:
        """Open a batch before its first record; it carries the generation and the member id of now.

        False: what was handed over is read again. The disk refuses, or no other flush would end before the next poll.
        """
        membership = None if self._is_late else self._member_proof.membership(deadline=self._deadline)
        if membership is None:
            self._become(self.state.seeking())
            return False
        opening = Opening(
            batch_id=self._new_batch_id(),
            generation=self.state.generation,
            membership=membership,
            opened_at_s=self._clock.now_s(),
            opened_at_ms=self._clock.wall_ms(),
        )
        try:
            self._recorder.open(opening)
        except SpoolError as error:
            self._log.warning("recording_refused", message=str(error))
            self._discard("RecordingFailed")
            self._back_off(self._clock.now_s())
            return False
        return True

    def flush_due(self, reason: FlushReason) -> None:
        """Flush the open batch.

        Raises:
            StopError: the batch may hold records of two topics of one name, or the store refuses us.
        """
        self._start_positions.watch(deadline=self._deadline)
        if self.state.end is None:
            self._flush(reason)

    def stop(self) -> None:
        """Flush what is open and leave."""
        self._flush_open(FlushReason.STOPPING)
        self._become(self.state.ended(Phase.STOPPED))

    def fail(self) -> None:
        """Commit nothing any more: what closing the consumer revokes is only released."""
        if self.state.end is None:
            self._become(self.state.ended(Phase.FAILED))
            self._discard("Failed")

    def tick(self) -> None:
        """End a pause whose time has come."""
        until_s = self.state.paused_until_s
        if self.state.end is None and until_s is not None and self._clock.now_s() >= until_s:
            self._become(self.state.resumed())
            tell(self._log.info, log_events.Resumed())
            self._consumer.resume()
            self._metrics.set("paused", 0)

    def seek_committed(self) -> None:
        """Ask the broker for the committed offsets of what is to be sought, and seek there.

        What the last transaction became is settled before. If that is not done in time, or the answer is older than
        what is known to be committed (KAFKA_FACTS O10), TopicPartitions stay to be sought, their records refused, until
        the next turn.

        Raises:
            StopError: the broker does not answer, or only what is of before.
        """
        if not self.state.to_seek:
            return
        proven = self.state.to_seek - self._start_positions.unproven  # the others wait until they are
        known = {tp: self._recorder.positions[tp].first_offset for tp in sorted(proven)}
        try:
            self._end_transaction()
            self._require_time()
            starts = self._start_positions.again(known, deadline=self._deadline)
        except DiscardError as error:
            self._log.warning("not_settled", message=str(error))
            return
        for tp, start in starts.items():
            tell(self._log.info, log_events.TopicPartitionRewound(*tp, offset=start.offset, first_offset=known[tp]))
            self._recorder.rewind(tp, start)
            self._consumer.seek(tp, start, deadline=self._deadline)
        self._metrics.add("rewinds", len(known))
        self._become(self.state.sought(proven))

    def _require_time(self) -> None:
        """Poll first where the process was stopped meanwhile: it may be out by now."""
        if self._deadline.remaining_s() < self._rules.settle_s / 2:
            raise DiscardError("too little time before the next poll")

    def _end_transaction(self) -> None:
        """End what the last transaction may have left open, by the next producer's init."""
        if not self._committer.is_ready:
            self._committer.prepare(deadline=self._deadline)
        self._become(self.state.transaction_ended())

    def _become(self, state: WorkerState) -> None:
        before, self.state = self.state, state
        if change := state.change_of(before):
            self.story.append(change[:STORY_CHARS_MAX])

    # Flushes.

    def _before_settling(self) -> Deadline:
        """Return when a flush has to be over for its outcome to be settled within the poll."""
        return Deadline(self._deadline.at_s - self._rules.settle_s, self._deadline.now_s)

    def _flush_open(self, reason: FlushReason) -> None:
        if self._recorder.has_progress and self.state.end is None:
            self._flush(reason)

    def _flush(self, reason: FlushReason) -> None:
        """Flush the open batch: then it is committed, or discarded and everything that is owned is to be sought."""
        held_up = reason in (FlushReason.REVOKED, FlushReason.ASSIGNED, FlushReason.STOPPING)
        budget_s = self._rules.revoke_budget_s if held_up else self._rules.budget_s
        left = self._before_settling()
        self._closed = batch = self._recorder.close(without=self._start_positions.unproven | self.state.to_seek)
        generation, offsets = batch.opening.generation, batch.named_spans()
        tell(self._log.info, log_events.FlushStarted(batch.batch_id, reason.value, generation, offsets))
        try:
            summary = self._flusher.flush(batch, reason, deadline=left.at_most(budget_s))
        except DiscardError as error:
            self._discarded(batch, error, reason)
        except Exception as error:  # it ends the process: nobody else says what became of this flush
            self._told.discarded(batch, error, reason, generation=self.state.generation)
            raise
        else:
            self._committed(batch, summary, reason)
            if self._verify is not None and reason not in (FlushReason.REVOKED, FlushReason.ASSIGNED):
                self._verify(left)
        self._is_late = left.remaining_s() < self._rules.budget_s

    def _committed(self, batch: ClosedBatch, summary: FlushSummary, reason: FlushReason) -> None:
        self._told.committed(batch, summary, reason, generation=self.state.generation)
        self._closed, now_ms = None, self._clock.wall_ms()
        self._metrics.set("last_commit_timestamp_seconds", now_ms / 1000)
        self._recorder.committed(batch, now_ms=now_ms)
        self._start_positions.flushed(tp for tp, (first, end) in batch.spans.items() if end > first)
        self._become(self.state.committed(Size(self._rules.bytes_max, self._rules.entries_max)))

    def _discarded(self, batch: ClosedBatch, error: DiscardError, reason: FlushReason) -> None:
        self._told.discarded(batch, error, reason, generation=self.state.generation)
        counts, at_s = isinstance(error, CommitUnknownError | FencedError), self._clock.now_s()
        if isinstance(error, CommitUnknownError):
            self._start_positions.doubt(batch.progress)
        self._become(self.state.discarded(batch.size, at_s, counts_as_failure=counts))
        self._discard("FlushDiscarded")
        if self.state.has_failed_too_often:
            self._become(self.state.ended(Phase.FAILED))
            raise TooManyFailuresError(f"{FAILURES_MAX} failures in {FAILURES_WINDOW_S:.0f} s")
        if reason is not FlushReason.STOPPING:
            self._back_off(at_s)

    def _back_off(self, at_s: float) -> None:
        self._become(state := self.state.backed_off(at_s, self._rules.backoff_max_s))
        assert state.paused_until_s is not None
        tell(self._log.info, log_events.Paused(seconds=round(state.paused_until_s - at_s, 3)))
        self._consumer.pause()
        self._metrics.set("paused", 1)

    def _discard(self, cause: str) -> None:
        """Drop the closed batch, or the open one; `seek_committed` reads again what is still owned."""
        closed, opening, self._closed = self._closed, self._recorder.opening, None
        if closed is not None or opening is not None:
            self._metrics.add("batches_discarded")
        cost = cost_of(self._recorder.discard(closed))
        if opening is not None:  # no flush has said so
            self._told.dropped(opening, cause=cause, cost=cost)

    # Owning and releasing.

    def _own(self, tps: frozenset[TopicPartition]) -> None:
        self._become(self.state.owning(tps))
        if not tps:
            return
        positions = self._find(tps)
        for tp, position in positions.items():
            self._recorder.own(tp, position.committed)
            self._starts[tp] = position.committed
        starts = {str(tp): log_events.Start(one.committed.offset, one.source) for tp, one in positions.items()}
        member = self._consumer.membership()
        assigned = log_events.PartitionsAssigned(
            generation=self.state.generation,
            member=member.member_id,
            member_generation=member.generation,
            owned=len(self.state.owned),
            start_offsets=starts,
        )
        tell(self._log.info, assigned)
        self._metrics.add("rebalances", kind="assigned")

    def _find(self, tps: frozenset[TopicPartition]) -> dict[TopicPartition, StartPosition]:
        is_again = False
        while True:
            if self._deadline.remaining_s() < self._rules.settle_s / 2:  # it was stopped, and the callback has to know
                self._deadline = Deadline.after(self._rules.settle_s, self._clock.now_s)
            try:
                if self.state.may_be_open:  # or committed offsets would not be stable until it times out
                    self._end_transaction()
                return self._start_positions.find(tps, deadline=self._deadline)
            except (DiscardError, StopError):  # stopped while it asked, it had less time for that than it takes
                if is_again and not self._deadline.is_long_past():
                    raise
                is_again = True

    def _release(self, tps: frozenset[TopicPartition], *, is_lost: bool) -> None:
        self._become(self.state.releasing(tps))
        told = tps & self._recorder.positions.keys()  # an assignment that failed is not
        for tp in tps:
            self._recorder.disown(tp)
            for name in ("lag_records", "committed_offset"):
                self._metrics.forget(name, topic=tp.topic, partition=str(tp.partition))
        self._start_positions.forget(tps)
        if told and not is_lost:
            tell(self._log.info, log_events.PartitionsRevoked(_names(told), generation=self.state.generation))
            self._metrics.add("rebalances", kind="revoked")

    def consume_returned(self) -> None:
        """Note that `consume` has returned, raise what a callback could not, and prove what one has begun to own.

        Raises:
            StopError: as it was, or wrapped around what was not expected.
        """
        self._deadline = Deadline.after(self._rules.poll_budget_s, self._clock.now_s)
        self._is_late = False
        error, self.error = self.error, None
        if isinstance(error, StopError):
            raise error
        if error is not None:
            raise StopError(f"a rebalance callback failed: {describe(error)}") from error
        if self._verify is not None:  # what was flushed inside a callback, which others wait for
            self._verify(self._before_settling())
            self._is_late = self._before_settling().remaining_s() < self._rules.budget_s
        again, may_be_open = frozenset[TopicPartition](), False
        try:
            if self._start_positions.unproven:
                self._require_time()
            again = self._start_positions.prove(deadline=self._deadline)
        except DiscardError as unproven:
            self._told.not_proven(unproven)
            again, may_be_open = self._start_positions.unproven, True
        self._become(self.state.returned(again, may_be_open=may_be_open))


def _names(tps: frozenset[TopicPartition]) -> list[str]:
    return [str(tp) for tp in sorted(tps)]
