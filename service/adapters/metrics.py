"""Every metric, declared once with type, unit and labels; the only user of prometheus_client. No user in a label.

`promtool check metrics` accepts the names; `docs/METRICS.md` lists them.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_PREFIX = "log_partitioner"
_COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "records": ("Source records taken from the client library.", ()),
    "records_refused": (
        "Records not recorded: covered already, not owned, or read again after a rewind.",
        ("cause",),
    ),
    "entries": (
        "Log entries by outcome: written, record_timestamp (written, by Kafka's time), or why dead.",
        ("outcome",),
    ),
    "inexact_numbers": ("Numbers that a double does not hold, rounded.", ()),
    "schema_conflicts": ("Top-level fields kept as JSON text, per file.", ()),
    "flushes": ("Flushes by reason and outcome: committed, discarded, unknown.", ("reason", "outcome")),
    "objects": ("Objects committed.", ()),
    "references": ("References committed.", ()),
    "object_bytes": ("Bytes of committed objects.", ()),
    "batches_discarded": ("Batches discarded; their records are read again.", ()),
    "commits_repeated": ("Transactions repeated with fresh group metadata.", ()),
    "rewinds": ("TopicPartitions sought back to their committed offset.", ()),
    "rebalances": ("Changes of assignment by kind: assigned, revoked, lost.", ("kind",)),
    "fetch_failures": ("Fetches of which something could not be read, by the client library's error.", ("code",)),
    "offset_gaps": ("Jumps in offsets; legal where the hole holds no data record.", ()),
}
_GAUGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "lag_records": ("Records between the committed offset and the end.", ("topic", "partition")),
    "last_commit_timestamp_seconds": ("When the last flush was committed, in seconds since the epoch.", ()),
    "seconds_since_commit": ("Seconds since the last commit, or since the start.", ()),
    "spool_bytes": ("Bytes on the local disk.", ()),
    "memory_bytes": ("Bytes of the open batch in memory.", ()),
    "partition_keys": ("PartitionKeys in the open batch.", ()),
    "batch_entries": ("Entries in the open batch.", ()),
    "owned_topic_partitions": ("TopicPartitions owned.", ()),
    "held_topic_partitions": ("TopicPartitions that are not read on, since a record batch cannot be read.", ()),
    "cautious": ("1 while few records are taken at once, since the process has ended with the same ones in hand.", ()),
    "state": ("1 for the state the worker is in.", ("state",)),
    "info": ("1; its labels say which worker this is.", ("worker", "boot", "version")),
}
_HISTOGRAMS: dict[str, tuple[str, tuple[str, ...], tuple[float, ...]]] = {
    "flush_step_seconds": (
        "Seconds of each step of committed flushes.",
        ("step",),
        (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
    ),
}


class PrometheusMetrics:
    """Fulfils `runtime.ports.Metrics`; counters end in `_total` by themselves."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._counters = {
            name: Counter(f"{_PREFIX}_{name}", text, labels, registry=self._registry)
            for name, (text, labels) in _COUNTERS.items()
        }
        self._gauges = {
            name: Gauge(f"{_PREFIX}_{name}", text, labels, registry=self._registry)
            for name, (text, labels) in _GAUGES.items()
        }
        self._histograms = {
            name: Histogram(f"{_PREFIX}_{name}", text, labels, registry=self._registry, buckets=buckets)
            for name, (text, labels, buckets) in _HISTOGRAMS.items()
        }

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        counter = self._counters[name]
        (counter.labels(**labels) if labels else counter).inc(amount)

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        gauge = self._gauges[name]
        (gauge.labels(**labels) if labels else gauge).set(value)

    def forget(self, name: str, **labels: str) -> None:
        """Remove one series of a gauge: what is no longer ours is not ours to report."""
        gauge = self._gauges[name]
        try:
            gauge.remove(*labels.values())
        except KeyError:
            return

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Put a value into a histogram."""
        histogram = self._histograms[name]
        (histogram.labels(**labels) if labels else histogram).observe(value)

    def value(self, name: str) -> float:
        """Read a gauge without labels."""
        value: float = self._gauges[name]._value.get()  # noqa: SLF001 - the library has no public way
        return value

    def exposition(self) -> bytes:
        """Write all metrics in Prometheus' text format; any thread."""
        return generate_latest(self._registry)
