"""Reports flushes: log lines from which a reader proves resume and contiguity, and metrics (DESIGN 9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from log_partitioner.batch.batch import ClosedBatch, Opening, cost_of
from log_partitioner.control.flush_policy import FlushReason
from log_partitioner.errors import CommitUnknownError, DiscardError, StopError
from log_partitioner.formats.log_events import BatchCommitted, BatchDiscarded, tell
from log_partitioner.pace import Pace
from log_partitioner.privacy import describe
from log_partitioner.runtime.flusher import FlushSummary
from log_partitioner.runtime.ports import Metrics


class FlushReport:
    """Logs and counts outcomes of flushes."""

    def __init__(self, log: Any, metrics: Metrics, now_s: Callable[[], float]) -> None:
        self._log = log
        self._metrics = metrics
        self._pace = Pace(now_s)

    def committed(self, batch: ClosedBatch, summary: FlushSummary, reason: FlushReason, *, generation: int) -> None:
        """Report a commit."""
        committed = BatchCommitted(
            batch_id=summary.batch_id,
            flush_seq=summary.seq,
            reason=reason.value,
            generation=generation,
            objects=summary.objects,
            references=summary.references,
            records=summary.records,
            entries=summary.entries,
            dead_letters=summary.dead_letters,
            record_timestamps=batch.record_timestamps,
            object_bytes=summary.object_bytes,
            step_seconds={step: round(seconds, 4) for step, seconds in summary.seconds.items()},
            offsets=batch.covered(),
            member=summary.membership.member_id,
            member_generation=summary.membership.generation,
        )
        tell(self._log.info, committed)
        self._metrics.add("flushes", reason=reason.value, outcome="committed")
        self._metrics.add("objects", summary.objects)
        self._metrics.add("references", summary.references)
        self._metrics.add("schema_conflicts", summary.json_fields)
        self._metrics.add("object_bytes", summary.object_bytes)
        for step, seconds in summary.seconds.items():
            self._metrics.observe("flush_step_seconds", seconds, step=step)

    def discarded(self, batch: ClosedBatch, error: Exception, reason: FlushReason, *, generation: int) -> None:
        """Report a batch that was not committed, or whose outcome is unknown, and the cost of giving it up."""
        is_ours = isinstance(error, DiscardError | StopError)
        unknown = not is_ours or isinstance(error, CommitUnknownError)
        discarded = BatchDiscarded(
            batch_id=batch.batch_id,
            reason=reason.value,
            generation=generation,
            cause=type(error).__name__,
            code=getattr(error, "code", None) if is_ours else None,
            message=str(error) if is_ours else describe(error),
            outcome="unknown" if unknown else "aborted",
            cost=cost_of(batch.spans) + (", unless they are committed" if unknown else ""),
        )
        tell(self._log.warning, discarded)
        self._metrics.add("flushes", reason=reason.value, outcome="unknown" if unknown else "discarded")

    def dropped(self, opening: Opening, *, cause: str, cost: str) -> None:
        """Report an open batch that is discarded without a flush."""
        dropped = BatchDiscarded(
            batch_id=opening.batch_id,
            reason=None,
            generation=opening.generation,
            cause=cause,
            code=None,
            outcome="aborted",
            cost=cost,
        )
        tell(self._log.warning, dropped)

    def not_positioned(self, error: DiscardError) -> None:
        """Report that the next offset is not known yet: at once, then at growing intervals, because each turn asks."""
        if times := self._pace.times(str(error)):
            self._log.warning("not_positioned", message=str(error), times=times)
