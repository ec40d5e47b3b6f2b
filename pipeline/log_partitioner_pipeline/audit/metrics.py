"""Metrics of the last audit, as a textfile or on a port; the pipeline's only user of prometheus_client."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge, start_http_server, write_to_textfile
from prometheus_client.parser import text_string_to_metric_families

from log_partitioner.formats.findings import Kind
from log_partitioner.proof.accounting import ExitCode

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from log_partitioner_pipeline.audit.result import Result

PREFIX = "log_partitioner_audit"
GAUGES: Mapping[str, tuple[str, Mapping[str, Collection[str]]]] = {
    "exit_code": ("Exit code of the last audit: 0 clean, 1 findings, 2 could not tell.", {}),
    "findings": ("Findings of the last audit by kind.", {"kind": tuple(Kind)}),
    "duration_seconds": ("Seconds that the last audit took.", {}),
    "timestamp_seconds": ("When the last audit ended, in seconds since the epoch.", {}),
    "last_success_timestamp_seconds": (
        "When an audit last ended clean, in seconds since the epoch; 0: never. `time()` less this is how long ago.",
        {},
    ),
}
"""Meaning and label values of each metric; docs/METRICS.md lists them. None is an age: a file would make it stale."""


class AuditMetrics:
    """The last result as gauges; an audit that could not tell is no success.

    `success_at` is the time of the last clean audit, in seconds since the epoch; None if none is known.
    """

    def __init__(self, success_at: float | None = None) -> None:
        self._registry = CollectorRegistry()
        self._gauges = {
            name: Gauge(f"{PREFIX}_{name}", text, tuple(labels), registry=self._registry)
            for name, (text, labels) in GAUGES.items()
        }
        self._gauges["last_success_timestamp_seconds"].set(success_at or 0.0)

    def observe(self, result: Result, *, now: float | None = None) -> None:
        """Take a result that was made at `now`, in seconds since the epoch."""
        now = time.time() if now is None else now
        gauges = self._gauges
        gauges["exit_code"].set(int(result.exit_code))
        counts = {finding.kind: finding.count for finding in result.findings}
        for kind in Kind:
            gauges["findings"].labels(kind.value).set(counts.get(kind, 0))
        gauges["duration_seconds"].set(result.seconds)
        gauges["timestamp_seconds"].set(now)
        if result.exit_code is ExitCode.CLEAN:
            gauges["last_success_timestamp_seconds"].set(now)

    def fail(self) -> None:
        """Report an audit that ended without a result; the findings of the audit before it stay."""
        self._gauges["exit_code"].set(int(ExitCode.COULD_NOT_TELL))
        self._gauges["timestamp_seconds"].set(time.time())

    def write(self, file: Path) -> None:
        """Replace the textfile.

        Raises:
            OSError: it cannot be written.
        """
        file.parent.mkdir(parents=True, exist_ok=True)
        write_to_textfile(str(file), self._registry)

    def serve(self, port: int) -> None:
        """Answer on this port from now on, in a thread.

        Raises:
            OSError: the port is taken.
        """
        start_http_server(port, registry=self._registry)


def last_success_in(file: Path) -> float | None:
    """Return the time of the last clean audit by the existing textfile; None if it does not say."""
    try:
        families = list(text_string_to_metric_families(file.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None
    name = f"{PREFIX}_last_success_timestamp_seconds"
    found = [sample.value for family in families for sample in family.samples if sample.name == name]
    return found[0] if found and found[0] > 0 else None
