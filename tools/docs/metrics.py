"""docs/METRICS.md: every metric with type, labels and meaning."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from log_partitioner.adapters.metrics import METRICS, PREFIX, Metric
from log_partitioner_pipeline.audit import metrics as audit
from tools.docs.tables import code, table

_HEAD = """\
# Metrics

Made by `python -m tools.docs` from `service/log_partitioner/adapters/metrics.py`; do not edit.

Served at `/metrics` on the port of the probes (`LOGP_HTTP__PORT`). No label holds a user, and each takes few values,
which exclude each other: sums over a label count nothing twice.
A histogram has `_bucket`, `_sum` and `_count`. A series is there from the start unless a label has values that are not
listed here. Beside these are `process_*` and `python_info`, which Prometheus' client library has for any process;
`process_start_time_seconds` tells restarts. Alerts: `helm/log-partitioner/files/log-partitioner.rules.yaml`, and
[what to do about each](RUNBOOK.md#alerts).

"""
_AUDIT = """
## The audit on Spark

These describe the last audit; served on `PIPELINE_AUDIT__METRICS_PORT`, written to `PIPELINE_AUDIT__METRICS_FILE`.
Declared in `pipeline/log_partitioner_pipeline/audit/metrics.py`.

"""


def metrics_page() -> str:
    """Write the page."""
    of_audit = (
        (code(f"{audit.PREFIX}_{name}"), "gauge", "; ".join(_labels(labels)), text)
        for name, (text, labels) in audit.GAUGES.items()
    )
    columns = ("metric", "type", "labels", "meaning")
    return _HEAD + table(columns, _rows()) + _AUDIT + table(columns, of_audit)


def metric_names() -> frozenset[str]:
    """Name every series that a rule may use."""
    names = set()
    for name, metric in METRICS.items():
        parts = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        names |= {f"{_full(name, metric)}{part}" for part in parts}
    return frozenset(names)


def _rows() -> Iterator[tuple[str, str, str, str]]:
    for name, metric in METRICS.items():
        yield code(_full(name, metric)), metric.kind, "; ".join(_labels(metric.labels)), metric.text


def _labels(labels: Mapping[str, Collection[str]]) -> Iterator[str]:
    for label, values in labels.items():
        yield f"{code(label)}: {', '.join(values)}" if values else code(label)


def _full(name: str, metric: Metric) -> str:
    return f"{PREFIX}_{name}_total" if metric.kind == "counter" else f"{PREFIX}_{name}"
