"""Metrics of the last audit."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from log_partitioner.formats.findings import Kind
from log_partitioner.proof.accounting import ExitCode
from log_partitioner_pipeline.metrics import AUDIT, Gauges, read_gauge

if TYPE_CHECKING:
    from pathlib import Path

    from log_partitioner_pipeline.audit.result import Result


class AuditMetrics(Gauges):
    """The last result as gauges; an audit that could not tell is no success.

    `success_at` is the time of the last clean audit, in seconds since the epoch; None if none is known.
    """

    def __init__(self, group: str, success_at: float | None = None) -> None:
        super().__init__(AUDIT, group)
        self.set("last_success_timestamp_seconds", success_at or 0.0)

    def observe(self, result: Result, *, now: float | None = None) -> None:
        """Take a result that was made at `now`, in seconds since the epoch."""
        now = time.time() if now is None else now
        self.set("exit_code", int(result.exit_code))
        counts = {finding.kind: finding.count for finding in result.findings}
        for kind in Kind:
            self.set("findings", counts.get(kind, 0), kind.value)
        self.set("duration_seconds", result.seconds)
        self.set("timestamp_seconds", now)
        if result.exit_code is ExitCode.CLEAN:
            self.set("last_success_timestamp_seconds", now)

    def fail(self) -> None:
        """Report an audit that ended without a result; the findings of the audit before it stay."""
        self.set("exit_code", int(ExitCode.COULD_NOT_TELL))
        self.set("timestamp_seconds", time.time())


def last_success_in(file: Path) -> float | None:
    """Return the time of the last clean audit by the existing textfile; None if it does not say."""
    return read_gauge(file, f"{AUDIT.prefix}_last_success_timestamp_seconds") or None
