"""Every metric, declared once with type, unit, labels and their values; the only user of prometheus_client.

No user in a label. `promtool check metrics` accepts the names; `docs/METRICS.md` lists them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from itertools import product
from typing import Any, Literal, NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from log_partitioner.control.flush_policy import FlushReason
from log_partitioner.control.state import Phase
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.findings import Kind

PREFIX = "log_partitioner"
Kinds = Literal["counter", "gauge", "histogram"]
_KINDS: Mapping[Kinds, Any] = {"counter": Counter, "gauge": Gauge, "histogram": Histogram}
ANY: tuple[str, ...] = ()
"""Values of a label that cannot be listed here: names and numbers of others, few of them."""
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 90, 120, 300, 600, 1800)
"""Buckets up to the largest budget of a flush; three quarters of the default one, for uploads, are among them."""
DISCARDS = (
    "UploadError", "SpoolError", "CommitAbortedError", "FencedError", "CommitUnknownError", "MembershipError",
    "CommittedOffsetError", "Lost", "RecordingFailed", "Failed",
)  # fmt: skip


class Metric(NamedTuple):
    """One metric; the values of a label exclude each other, so that sums over a label count nothing twice."""

    kind: Kinds
    text: str
    labels: Mapping[str, Collection[str]] = {}
    buckets: tuple[float, ...] = ()


METRICS: Mapping[str, Metric] = {
    "records": Metric("counter", "Source records taken from the client library."),
    "slow_lane_records": Metric(
        "counter", "Records that the fast lane leaves to Python; none of topics without a fast lane."
    ),
    "records_refused": Metric(
        "counter",
        "Records not recorded: covered already, not owned, or read again after a rewind.",
        {"cause": ("covered", "not_owned", "rewound")},
    ),
    "written_entries": Metric(
        "counter",
        "Log entries written into rows, by whose time they go: their own, or their record's, which Kafka has.",
        {"time": ("entry", "record")},
    ),
    "dead_letter_entries": Metric(
        "counter", "Log entries put into dead letters, by reason.", {"reason": tuple(Reason)}
    ),
    "dead_letters": Metric("counter", "Dead letters committed, by reason.", {"reason": tuple(Reason)}),
    "inexact_numbers": Metric("counter", "Numbers that a double does not hold, rounded."),
    "discarded_replays": Metric("counter", "Records discarded as replays by `input.discard_replays`, once committed."),
    "ways_dropped": Metric(
        "counter",
        "Ways of source topic chains for which a committed offset has no more room; their replays are written.",
    ),
    "schema_conflicts": Metric("counter", "Top-level fields kept as JSON text, per file."),
    "flushes": Metric(
        "counter",
        "Flushes that ended, by reason and outcome.",
        {"reason": tuple(FlushReason), "outcome": ("committed", "discarded", "unknown")},
    ),
    "objects": Metric("counter", "Objects committed."),
    "references": Metric("counter", "References committed."),
    "object_bytes": Metric("counter", "Bytes of committed objects."),
    "batches_discarded": Metric(
        "counter",
        "Batches discarded, by the cause that `batch_discarded` has; their records are read again.",
        {"cause": DISCARDS},
    ),
    "commits_repeated": Metric("counter", "Transactions repeated with fresh group metadata."),
    "rewinds": Metric("counter", "TopicPartitions sought back to their committed offset."),
    "rebalances": Metric("counter", "Changes of assignment by kind.", {"kind": ("assigned", "revoked", "lost")}),
    "fetch_failures": Metric(
        "counter",
        "Records that could not be read, by the client library's error, or SCHEMA_ and why there is no schema.",
        {"code": ANY},
    ),
    "offset_gaps": Metric("counter", "Offset gaps; normal with transactions or compaction."),
    "lag_records": Metric(
        "gauge", "Records between the committed offset, or the start, and the end.", {"topic": ANY, "partition": ANY}
    ),
    "lag_seconds": Metric(
        "gauge",
        "Seconds since Kafka's timestamp of the oldest record taken and not committed, or if there is none, of the "
        "newest one committed; 0 without lag.",
        {"topic": ANY, "partition": ANY},
    ),
    "open_transaction_seconds": Metric(
        "gauge", "Seconds for which an open transaction of a producer has held up records of a source."
    ),
    "committed_offset": Metric(
        "gauge",
        "Committed offset of each owned TopicPartition; before its first commit, the start that `kafka.start_at` gave.",
        {"topic": ANY, "partition": ANY},
    ),
    "last_commit_timestamp_seconds": Metric(
        "gauge", "When this process committed last, in seconds since the epoch; 0: not yet."
    ),
    "spool_bytes": Metric("gauge", "Bytes on the local disk."),
    "spool_limit_bytes": Metric("gauge", "Bytes allowed there: `spool.bytes_max`."),
    "memory_bytes": Metric("gauge", "Bytes of the open batch in memory."),
    "memory_limit_bytes": Metric("gauge", "Bytes of it from which on it goes to disk: `spool.memory_bytes_max`."),
    "partition_keys": Metric("gauge", "PartitionKeys in the open batch."),
    "batch_entries": Metric("gauge", "Entries in the open batch."),
    "owned_topic_partitions": Metric("gauge", "TopicPartitions owned."),
    "held_topic_partitions": Metric("gauge", "TopicPartitions that stand still because records cannot be read."),
    "ready": Metric("gauge", "1 while /readyz says yes."),
    "backoff": Metric("gauge", "1 while no records are taken, after a flush or the disk has failed."),
    "crash_isolation": Metric(
        "gauge", "1 while reading few records at once, or single ones, after repeated crashes on the same offsets."
    ),
    "state": Metric("gauge", "1 for the state the worker is in.", {"state": tuple(phase.value for phase in Phase)}),
    "verified_entries": Metric("counter", "Entries of the flushes that verification mode has judged."),
    "unverified_entries": Metric(
        "counter",
        "Entries of flushes that verification mode was to judge and has not: there was no time, or no answer.",
    ),
    "verification_differences": Metric(
        "counter",
        "Findings of verification mode in committed flushes, by kind: those of the audit.",
        {"kind": tuple(Kind)},
    ),
    "verification_seconds": Metric("counter", "Seconds in which verification mode has judged, reading included."),
    "build_info": Metric("gauge", "1; its labels say which worker this is.", {"worker": ANY, "version": ANY}),
    "store_requests": Metric(
        "counter",
        "Requests to the object store, by status of HTTP, or why there is none: timeout, unreachable, closed, tls, "
        "credentials, other.",
        {"operation": ("put", "head", "get"), "code": ANY},
    ),
    "store_request_duration_seconds": Metric(
        "histogram", "Seconds of each request to the object store.", {"operation": ("put", "head", "get")}, SECONDS
    ),
    "store_retries": Metric("counter", "PUTs that were sent again after a failure."),
    "flush_duration_seconds": Metric("histogram", "Seconds of each flush, whatever became of it.", {}, SECONDS),
    "flush_step_duration_seconds": Metric(
        "histogram",
        "Seconds of each step of committed flushes.",
        {"step": ("seal", "upload", "announce", "commit")},
        SECONDS,
    ),
    "revoke_duration_seconds": Metric(
        "histogram", "Seconds for which this worker has held up a rebalance: its flush included.", {}, SECONDS
    ),
}


class PrometheusMetrics:
    """Fulfils `boundary.Metrics`; counters end in `_total` by themselves.

    Each series whose labels are closed sets is there from the start, so that `increase` sees the first event.
    """

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library gives it no types
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self._metrics: dict[str, Any] = {}
        for name, (kind, text, labels, buckets) in METRICS.items():
            more = {"buckets": buckets} if buckets else {}
            self._metrics[name] = _KINDS[kind](f"{PREFIX}_{name}", text, labels, registry=self._registry, **more)
            for values in product(*labels.values()) if labels else ():
                self._metrics[name].labels(*values)

    def _series(self, kind: Kinds, name: str, labels: Mapping[str, str]) -> Any:
        assert METRICS[name].kind == kind, f"{name} is no {kind}"
        return self._metrics[name].labels(**labels) if labels else self._metrics[name]

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        self._series("counter", name, labels).inc(amount)

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        self._series("gauge", name, labels).set(value)

    def forget(self, name: str, **labels: str) -> None:
        """Remove one series of a gauge, because its TopicPartition is no longer ours."""
        with suppress(KeyError):
            self._metrics[name].remove(*labels.values())

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Put a value into a histogram."""
        self._series("histogram", name, labels).observe(value)

    def series(self, name: str) -> list[tuple[dict[str, str], float]]:
        """Return the values of a gauge by their labels; any thread."""
        return [(sample.labels, sample.value) for metric in self._metrics[name].collect() for sample in metric.samples]

    def exposition(self) -> bytes:
        """Write all metrics in Prometheus' text format; any thread."""
        return generate_latest(self._registry)
