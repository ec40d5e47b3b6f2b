"""The control plane's shell: turns callbacks, triggers and outcomes into events, performs the effects in order.

Runs on the loop thread. Rebalance callbacks come from inside `Consumer.consume`: they flush, own and release, but
never seek. A rewind is noted in the state and done when `consume` has returned, because records that it had taken
before the callback are refused then and have to be read again (DESIGN 4.3: this is where the data was lost).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

import structlog

from service.batch.batch import ClosedBatch, Opening, cost_of
from service.boundary import Clock
from service.control import events, machine
from service.control.deadline import Deadline
from service.control.events import Event
from service.control.flush_policy import FlushReason
from service.control.machine import Phase, WorkerState
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
STORY_MAX = 50  # events that are told where the worker ends by a fault


class ControlRules(NamedTuple):
    """Budgets in seconds, and the size that a batch may always have.

    `poll_budget_s` bounds all between two polls, callbacks too: the group takes the partitions away after that and a
    margin. `settle_s` of it are left to what follows a flush: abort, the end of a dead worker's transaction, offsets.
    """

    poll_budget_s: float
    settle_s: float
    flush_budget_s: float
    revoke_budget_s: float
    machine: machine.MachineRules


class Controller:
    """Owns the worker's state; performs effects. Callbacks never raise: what went wrong is kept in `error`."""

    def __init__(
        self,
        *,
        rules: ControlRules,
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
        self._member_proof = MemberProof(consumer, recorder)
        self._start_positions = start_positions
        self._clock = clock
        self._metrics = metrics
        self._new_batch_id = new_batch_id
        self._verify = verify
        self._starts: dict[TopicPartition, CommittedOffset] = {}
        self._inbox: deque[Event] = deque()
        self._is_handling = False
        self._closed: ClosedBatch | None = None
        self._deadline = Deadline.after(rules.poll_budget_s, clock.now_s)
        self._is_late = False
        self._log = structlog.get_logger("controller")
        self._told = FlushReport(self._log, metrics, clock.now_s)

    # Callbacks: from inside Consumer.consume and Consumer.close.

    def on_assigned(self, tps: frozenset[TopicPartition]) -> Mapping[TopicPartition, CommittedOffset]:
        """Own what is new; flushes first where a batch is open, since a batch never spans generations."""
        self._starts = {}
        self._callback(events.Assigned(tps, self._recorder.has_progress, self._clock.now_s()))
        return self._starts

    def on_revoked(self, tps: frozenset[TopicPartition]) -> None:
        """Flush, then give back; blocks the rebalance within the revoke budget (W5)."""
        if unknown := tps - self.state.owned:
            tell(self._log.warning, log_events.RevokedUnknown(_names(unknown)))
        self._callback(events.Revoked(tps, self._recorder.has_progress, self._clock.now_s()))
        self._require_nothing_of(tps, "W5")

    def on_lost(self, tps: frozenset[TopicPartition]) -> None:
        """Discard; what is lost never commits (W6)."""
        tell(self._log.warning, log_events.PartitionsLost(_names(tps), generation=self.state.generation))
        self._metrics.add("rebalances", kind="lost")
        self._callback(events.Lost(tps, self._clock.now_s()))
        self._require_nothing_of(tps, "W6")

    def _callback(self, event: Event) -> None:
        self._deadline = Deadline.after(self._rules.poll_budget_s, self._clock.now_s)
        try:
            self.handle(event)
        except BaseException as error:  # noqa: BLE001 - raised again by the loop: KAFKA_FACTS F4
            self.error = self.error or error

    def _require_nothing_of(self, tps: frozenset[TopicPartition], rule: str) -> None:
        is_left = self._recorder.opening is not None or self._closed is not None or tps & self.state.owned
        if is_left and self.error is None:
            self.error = AssertionError(f"{rule}: a callback leaves something of {_names(tps)} behind")

    # From the loop.

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
            self.handle(events.RecordsRefused(self._clock.now_s()))
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
            self.handle(events.RecordingFailed(self._clock.now_s()))
            return False
        return True

    def flush_due(self, reason: FlushReason) -> None:
        """Flush the open batch.

        Raises:
            StopError: the batch may hold records of two topics of one name, or the store refuses us.
        """
        self._start_positions.watch(deadline=self._deadline)
        self.handle(events.FlushDue(reason, self._clock.now_s()))

    def stop(self) -> None:
        """Flush what is open and leave."""
        self.handle(events.StopRequested(self._recorder.has_progress, self._clock.now_s()))

    def fail(self) -> None:
        """Commit nothing any more: what closing the consumer revokes is only released."""
        self.handle(events.Failed(self._clock.now_s()))

    def tick(self) -> None:
        """Let time pass."""
        self.handle(events.Tick(self._clock.now_s()))

    def rewind_to_committed(self) -> None:
        """Ask the broker for the committed offsets of what is to be rewound, and seek there.

        What the last transaction became is settled before. Where that is not done in time, or the answer is of before
        what is known to be committed (KAFKA_FACTS O10), rewinds stay noted, their records refused, until the next turn.

        Raises:
            StopError: the broker does not answer, or only what is of before.
        """
        if not self.state.rewinds:
            return
        proven = self.state.rewinds - self._start_positions.unproven  # the others are noted until they are
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
        self.handle(events.Rewound(proven, self._clock.now_s()))

    def _require_time(self) -> None:
        """Poll first where the process was stopped meanwhile: it may be out by now."""
        if self._deadline.remaining_s() < self._rules.settle_s / 2:
            raise DiscardError("too little time before the next poll")

    def _end_transaction(self) -> None:
        """End what the last transaction may have left open, by the next producer's init."""
        if not self._committer.is_ready:
            self._committer.prepare(deadline=self._deadline)
        self.handle(events.TransactionEnded(self._clock.now_s()))

    # The machine and its effects.

    def handle(self, event: Event) -> None:
        """Feed one event to the machine and perform what it asks for; then what came of that, until nothing does."""
        self._inbox.append(event)
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._inbox:
                self._advance(self._inbox.popleft())
        finally:
            self._is_handling = False
            self._inbox.clear()

    def _advance(self, event: Event) -> None:
        before = self.state.phase.value
        self.state, effects = machine.handle(self.state, event, rules=self._rules.machine)
        if effects or not isinstance(event, events.Tick | events.ConsumeReturned):
            told = f"{before} -> {self.state.phase.value}: {event}: {', '.join(map(str, effects))}"
            self.story.append(told[:STORY_CHARS_MAX])
        for effect in effects:
            assert not self._inbox, "a flush is the last effect: what comes of it is handled next"
            self._perform(effect, event)

    def _perform(self, effect: events.Effect, event: Event) -> None:
        match effect:
            case events.Flush(reason):
                self._flush(reason)
            case events.Discard():
                self._discard(event)
            case events.Own(tps):
                self._own(tps)
            case events.Release(tps, is_lost):
                self._release(tps, is_lost=is_lost)
            case events.Pause(seconds):
                tell(self._log.info, log_events.Paused(seconds=round(seconds, 3)))
                self._consumer.pause()
                self._metrics.set("paused", 1)
            case events.Resume():
                tell(self._log.info, log_events.Resumed())
                self._consumer.resume()
                self._metrics.set("paused", 0)
            case events.Leave() if self.state.phase is Phase.FAILED:
                raise TooManyFailuresError(f"{machine.FAILURES_MAX} failures in {machine.FAILURES_WINDOW_S:.0f} s")

    def _before_settling(self) -> Deadline:
        """Return when a flush has to be over for its outcome to be settled within the poll."""
        return Deadline(self._deadline.at_s - self._rules.settle_s, self._deadline.now_s)

    def _flush(self, reason: FlushReason) -> None:
        held_up = reason in (FlushReason.REVOKED, FlushReason.ASSIGNED, FlushReason.STOPPING)
        budget_s = self._rules.revoke_budget_s if held_up else self._rules.flush_budget_s
        left = self._before_settling()
        self._closed = batch = self._recorder.close(without=self._start_positions.unproven | self.state.rewinds)
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
        self._is_late = left.remaining_s() < self._rules.flush_budget_s

    def _committed(self, batch: ClosedBatch, summary: FlushSummary, reason: FlushReason) -> None:
        self._told.committed(batch, summary, reason, generation=self.state.generation)
        self._closed, now_ms = None, self._clock.wall_ms()
        self._metrics.set("last_commit_timestamp_seconds", now_ms / 1000)
        self._recorder.committed(batch, now_ms=now_ms)
        self._start_positions.flushed(tp for tp, (first, end) in batch.spans.items() if end > first)
        self.handle(events.FlushCommitted(self._clock.now_s()))

    def _discarded(self, batch: ClosedBatch, error: DiscardError, reason: FlushReason) -> None:
        self._told.discarded(batch, error, reason, generation=self.state.generation)
        counts = isinstance(error, CommitUnknownError | FencedError)
        if isinstance(error, CommitUnknownError):
            self._start_positions.doubt(batch.progress)
        self.handle(events.FlushDiscarded(counts_as_failure=counts, size=batch.size, at_s=self._clock.now_s()))

    def _discard(self, event: Event) -> None:
        """Drop the closed batch, or the open one; `rewind_to_committed` rewinds what is still owned."""
        closed, opening, self._closed = self._closed, self._recorder.opening, None
        if closed is not None or opening is not None:
            self._metrics.add("batches_discarded")
        cost = cost_of(self._recorder.discard(closed))
        if opening is not None:  # no flush has said so
            self._told.dropped(opening, cause=type(event).__name__, cost=cost)

    def _own(self, tps: frozenset[TopicPartition]) -> None:
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
            self._is_late = self._before_settling().remaining_s() < self._rules.flush_budget_s
        again, may_be_open = frozenset[TopicPartition](), False
        try:
            if self._start_positions.unproven:
                self._require_time()
            again = self._start_positions.prove(deadline=self._deadline)
        except DiscardError as unproven:
            self._told.not_proven(unproven)
            again, may_be_open = self._start_positions.unproven, True
        self.handle(events.ConsumeReturned(again, may_be_open, self._clock.now_s()))


def _names(tps: frozenset[TopicPartition]) -> list[str]:
    return [str(tp) for tp in sorted(tps)]
