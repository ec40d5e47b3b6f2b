"""What is told of a flush: log lines from which a reader proves resume and contiguity, and metrics (DESIGN 9)."""

from __future__ import annotations

from typing import Any

from service.batch.batch import ClosedBatch, cost_of
from service.control.flush_policy import FlushReason
from service.errors import CommitUnknownError, DiscardError
from service.runtime.flusher import FlushSummary
from service.runtime.ports import Metrics


class FlushReport:
    """Logs and counts outcomes of flushes."""

    def __init__(self, log: Any, metrics: Metrics) -> None:
        self._log = log
        self._metrics = metrics

    def committed(self, batch: ClosedBatch, summary: FlushSummary, reason: FlushReason, *, generation: int) -> None:
        """Tell of a commit."""
        self._log.info(
            "flush_committed",
            batch_id=summary.batch_id,
            flush_seq=summary.seq,
            reason=reason.value,
            generation=generation,
            objects=summary.objects,
            references=summary.references,
            records=summary.records,
            entries=summary.entries,
            dead_letters=summary.dead_letters,
            object_bytes=summary.object_bytes,
            step_seconds={step: round(seconds, 4) for step, seconds in summary.seconds.items()},
            offsets=batch.covered(),
        )
        self._metrics.add("flushes", reason=reason.value, outcome="committed")
        self._metrics.add("objects", summary.objects)
        self._metrics.add("references", summary.references)
        self._metrics.add("schema_conflicts", summary.json_fields)
        self._metrics.add("object_bytes", summary.object_bytes)
        for step, seconds in summary.seconds.items():
            self._metrics.observe("flush_step_seconds", seconds, step=step)

    def discarded(self, batch: ClosedBatch, error: DiscardError, reason: FlushReason, *, generation: int) -> None:
        """Tell of a batch that was not committed, or of which nobody knows, and what giving it up costs."""
        unknown = isinstance(error, CommitUnknownError)
        self._log.warning(
            "batch_discarded",
            batch_id=batch.batch_id,
            reason=reason.value,
            generation=generation,
            cause=type(error).__name__,
            code=getattr(error, "code", None),
            message=str(error),
            outcome="unknown" if unknown else "aborted",
            cost=cost_of(batch.spans) + (", unless they are committed" if unknown else ""),
        )
        self._metrics.add("flushes", reason=reason.value, outcome="unknown" if unknown else "discarded")
