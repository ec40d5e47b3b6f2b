"""The control plane's shell: turns callbacks, triggers and outcomes into events, performs the effects in order.

Runs on the loop thread. Rebalance callbacks come from inside `Consumer.consume`: they flush, own and release, but
never seek. A rewind is noted and done by `settle` when `consume` has returned, because records that it had taken
before the callback are refused then and have to be read again (DESIGN 4.3: this is where the data was lost).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import structlog

from service.core import machine
from service.core.batch import Batch
from service.core.deadline import Deadline
from service.core.exchange import Clock
from service.core.flush_policy import FlushReason
from service.core.machine import Event, Phase, WorkerState
from service.core.model import TopicPartition
from service.errors import CommitUnknownError, DiscardError, FencedError, StopError, TooManyFailuresError
from service.runtime.flusher import Flusher, FlushSummary
from service.runtime.ports import Committer, Consumer, Metrics, Spool
from service.runtime.recorder import Recorder
from service.runtime.start_positions import Bootstrap, start_positions


class ControlRules(NamedTuple):
    """Budgets in seconds, and the policy for a first start.

    `answer_s` covers the wait for stable offsets while the transaction of a worker that died is still open.
    """

    flush_budget_s: float
    revoke_budget_s: float
    answer_s: float
    backoff_max_s: float
    bootstrap: Bootstrap


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
        spool: Spool,
        clock: Clock,
        metrics: Metrics,
        new_batch_id: Callable[[], str],
    ) -> None:
        self.state = WorkerState()
        self.error: BaseException | None = None
        self.rewinds: set[TopicPartition] = set()
        self._rules = rules
        self._recorder = recorder
        self._flusher = flusher
        self._consumer = consumer
        self._committer = committer
        self._spool = spool
        self._clock = clock
        self._metrics = metrics
        self._new_batch_id = new_batch_id
        self._starts: dict[TopicPartition, int] = {}
        self._given_back: set[TopicPartition] = set()
        self._is_settled = True
        self._in_callback = False
        self._log = structlog.get_logger("controller")

    # Callbacks: from inside Consumer.consume and Consumer.close.

    def on_assigned(self, tps: frozenset[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Own what is new; flushes first where a batch is open, since a batch never spans generations."""
        self._starts = {}
        self._callback(machine.Assigned(tps, self._recorder.covers, self._clock.now_s()))
        return self._starts

    def on_revoked(self, tps: frozenset[TopicPartition]) -> None:
        """Flush, then give back; blocks the rebalance within the revoke budget (W5)."""
        unknown = tps - self.state.owned
        if unknown:
            self._log.warning("revoked_unknown", topic_partitions=_names(unknown))
        self._callback(machine.Revoked(tps, self._recorder.covers, self._clock.now_s()))

    def on_lost(self, tps: frozenset[TopicPartition]) -> None:
        """Discard; what is lost never commits (W6)."""
        self._log.warning("partitions_lost", topic_partitions=_names(tps), generation=self.state.generation)
        self._metrics.add("rebalances", kind="lost")
        self._callback(machine.Lost(tps, self._clock.now_s()))

    def _callback(self, event: Event) -> None:
        self._in_callback = True
        try:
            self.handle(event)
        except BaseException as error:  # noqa: BLE001 - raised again by the loop: see TESTING 0.4
            self.error = self.error or error
        finally:
            self._in_callback = False

    # From the loop.

    def open_batch(self) -> None:
        """Open a batch before its first record; it carries the generation and the member id of now."""
        self._recorder.batch = Batch(
            batch_id=self._new_batch_id(),
            generation=self.state.generation,
            member_id=self._consumer.membership().member_id,
            opened_at_s=self._clock.now_s(),
            opened_at_ms=self._clock.wall_ms(),
        )

    def flush_due(self, reason: FlushReason) -> None:
        """Flush the open batch."""
        self.handle(machine.FlushDue(reason, self._clock.now_s()))

    def stop(self) -> None:
        """Flush what is open and leave."""
        self.handle(machine.StopRequested(self._recorder.covers, self._clock.now_s()))

    def fail(self) -> None:
        """Commit nothing any more: what closing the consumer revokes is only released."""
        self.handle(machine.Failed(self._clock.now_s()))

    def tick(self) -> None:
        """Let time pass."""
        self.handle(machine.Tick(self._clock.now_s()))

    def discard(self, cause: DiscardError) -> None:
        """Discard the open batch because recording failed, through the same states as a failed flush."""
        assert self.state.phase is Phase.CONSUMING, f"recording in {self.state.phase}"
        self.state, _ = machine.handle(
            self.state,
            machine.FlushDue(FlushReason.BYTES, self._clock.now_s()),
            backoff_max_s=self._rules.backoff_max_s,
        )
        self._discarded(cause)

    def settle(self) -> None:
        """Do the rewinds that were noted: ask the broker for the committed offsets and seek there.

        Whatever the last transaction became is settled before: `prepare` ends it, and committed offsets are stable.

        Raises:
            StopError: the broker does not answer.
        """
        tps = {tp for tp in self.rewinds if tp in self._recorder.ledgers.by_tp}
        self.rewinds = set()
        if not tps:
            return
        self._settle_transaction()
        committed = self._consumer.committed(tps, timeout_s=self._rules.answer_s)
        for tp in sorted(tps):
            ledger = self._recorder.ledgers.by_tp[tp]
            offset = committed[tp]
            if offset is None:  # nothing was ever committed here but the start, and that has been lost
                offset = ledger.first_offset
            # Ahead of first_offset: the transaction whose outcome was unknown had been committed after all.
            self._log.info(
                "rewound",
                topic=tp.topic,
                partition=tp.partition,
                offset=offset,
                first_offset=ledger.first_offset,
            )
            self._recorder.ledgers.rewind(tp, offset)
            self._consumer.seek(tp, offset)
        self._metrics.add("rewinds", len(tps))

    def _settle_transaction(self) -> None:
        """End what the last transaction may have left open, by the next producer's init."""
        if not self._committer.is_ready:
            self._committer.prepare()
        self._is_settled = True

    # The machine and its effects.

    def handle(self, event: Event) -> None:
        """Feed one event to the machine and perform what it asks for, outcomes included."""
        self.state, effects = machine.handle(self.state, event, backoff_max_s=self._rules.backoff_max_s)
        for effect in effects:
            self._perform(effect, event)

    def _perform(self, effect: machine.Effect, event: Event) -> None:
        match effect:
            case machine.Flush(reason):
                self._flush(reason)
            case machine.Discard():
                self._forget_batch()
            case machine.Own(tps):
                self._own(tps)
            case machine.Release(tps):
                self._release(tps, event)
            case machine.Rewind(tps):
                self.rewinds |= tps
            case machine.Pause(seconds):
                self._log.info("paused", seconds=round(seconds, 3))
                self._consumer.pause()
            case machine.Resume():
                self._log.info("resumed")
                self._consumer.resume()
            case machine.Leave():
                if self.state.phase is Phase.FAILED:
                    raise TooManyFailuresError(f"{machine.FAILURES_MAX} failures in {machine.FAILURES_WINDOW_S:.0f} s")

    def _flush(self, reason: FlushReason) -> None:
        held_up = reason in (FlushReason.REVOKED, FlushReason.ASSIGNED, FlushReason.STOPPING)
        budget_s = self._rules.revoke_budget_s if held_up else self._rules.flush_budget_s
        batch = self._recorder.batch
        assert batch is not None, "only an open batch covers anything"
        self._log.info("flush_started", batch_id=batch.batch_id, reason=reason.value, generation=batch.generation)
        try:
            summary = self._flusher.flush(reason, deadline=Deadline.after(budget_s, self._clock.now_s))
        except DiscardError as error:
            self._discarded(error, reason)
        else:
            self._committed(summary, reason)

    def _committed(self, summary: FlushSummary, reason: FlushReason) -> None:
        ledgers = self._recorder.ledgers
        self._log.info(
            "flush_committed",
            batch_id=summary.batch_id,
            flush_seq=summary.seq,
            reason=reason.value,
            generation=self.state.generation,
            references=summary.references,
            records=summary.records,
            entries=summary.entries,
            dead_letters=summary.dead_letters,
            object_bytes=summary.object_bytes,
            step_seconds={step: round(seconds, 4) for step, seconds in summary.seconds.items()},
            offsets={
                str(tp): {
                    "first_offset": ledgers.by_tp[tp].first_offset,
                    "min_offset": ledgers.by_tp[tp].min_offset,
                    "max_offset": ledgers.by_tp[tp].max_offset,
                    "next_offset": next_offset,
                }
                for tp, next_offset in sorted(summary.offsets.items())
            },
        )
        self._metrics.add("flushes", reason=reason.value, outcome="committed")
        self._metrics.add("references", summary.references)
        self._metrics.add("schema_conflicts", summary.json_fields)
        self._metrics.add("object_bytes", summary.object_bytes)
        for step, seconds in summary.seconds.items():
            self._metrics.observe("flush_step_seconds", seconds, step=step)
        self._metrics.set("last_commit_timestamp_seconds", self._clock.wall_ms() / 1000)
        ledgers.committed(now_ms=self._clock.wall_ms())
        self._clear_files()
        self.handle(machine.FlushCommitted(self._clock.now_s()))

    def _discarded(self, error: DiscardError, reason: FlushReason | None = None) -> None:
        batch = self._recorder.batch
        unknown = isinstance(error, CommitUnknownError)
        self._is_settled = False
        dead = isinstance(error, FencedError)
        self._log.warning(
            "batch_discarded",
            batch_id=batch.batch_id if batch else None,
            reason=reason.value if reason else None,
            generation=self.state.generation,
            cause=type(error).__name__,
            code=getattr(error, "code", None),
            message=str(error),
            outcome="unknown" if unknown else "aborted",
        )
        outcome = "unknown" if unknown else "discarded"
        self._metrics.add("flushes", reason=reason.value if reason else "recording", outcome=outcome)
        self.handle(machine.FlushDiscarded(counts_as_failure=unknown or dead, at_s=self._clock.now_s()))

    def _forget_batch(self) -> None:
        """Drop the batch, what it covered and its files; `settle` rewinds what is still owned."""
        if self._recorder.batch is not None:
            self._metrics.add("batches_discarded")
        self._recorder.ledgers.forget()
        self._clear_files()

    def _clear_files(self) -> None:
        self._recorder.forget_batch()
        self._spool.clear()

    def _own(self, tps: frozenset[TopicPartition]) -> None:
        if not self._is_settled:  # or committed offsets would not be stable until our own transaction times out
            self._settle_transaction()
        positions = start_positions(
            self._consumer, tps, bootstrap=self._rules.bootstrap, timeout_s=self._rules.answer_s
        )
        for tp, position in positions.items():
            self._recorder.ledgers.own(tp, position.offset)
            self._starts[tp] = position.offset
        # Popped: offset 10. Given back, offsets 5 to 9 discarded. Ours again, from 5. Only now does the same `consume`
        # return, with 10, which would be taken for the next one after a hole: it is refused and read again.
        self.rewinds |= tps & self._given_back
        member = self._consumer.membership()
        self._log.info(
            "partitions_assigned",
            generation=self.state.generation,
            member=member.member_id,
            member_generation=member.generation,
            owned=len(self.state.owned),
            start_offsets={str(tp): [position.offset, position.source] for tp, position in positions.items()},
        )
        self._metrics.add("rebalances", kind="assigned")

    def _release(self, tps: frozenset[TopicPartition], event: Event) -> None:
        for tp in tps:
            self._recorder.ledgers.disown(tp)
            self._metrics.forget("lag_records", topic=tp.topic, partition=str(tp.partition))
        self.rewinds -= tps
        self._given_back |= tps
        if not isinstance(event, machine.Lost):
            self._log.info("partitions_revoked", topic_partitions=_names(tps), generation=self.state.generation)
            self._metrics.add("rebalances", kind="revoked")

    def raise_error(self) -> None:
        """Raise what a callback could not; called when `consume` has returned.

        Raises:
            StopError: as it was, or wrapped around what was not expected.
        """
        self._given_back.clear()
        error, self.error = self.error, None
        if error is None:
            return
        if isinstance(error, StopError):
            raise error
        raise StopError(f"a rebalance callback failed: {error!r}") from error


def _names(tps: frozenset[TopicPartition]) -> list[str]:
    return [str(tp) for tp in sorted(tps)]
