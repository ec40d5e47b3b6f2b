"""docs/METRICS.md: every metric with type, labels and meaning."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from log_partitioner.adapters.metrics import METRICS, PREFIX, Metric
from log_partitioner_pipeline.metrics import AUDIT, TABLE, Declared
from tools.docs.tables import code, table

_HEAD = """\
# Metrics

Made by `python -m tools.docs` from `service/log_partitioner/adapters/metrics.py`; do not edit.

Served at `/metrics` on the port of the probes (`LOGP_HTTP__PORT`). No label holds a user, and each takes few values,
which exclude each other: sums over a label count nothing twice.
A histogram has `_bucket`, `_sum` and `_count`. A series is there from the start unless a label has values that are not
listed here. Beside these are `process_*` and `python_info`, which Prometheus' client library has for any process;
`process_start_time_seconds` tells restarts. Alerts: `helm/log-partitioner/files/log-partitioner.rules.yaml`, and
[what to do about each](RUNBOOK.md#alerts). Dashboards for Grafana: `helm/log-partitioner/files/dashboards`.

"""
_PIPELINE = """
## The pipeline

Gauges, declared in `pipeline/log_partitioner_pipeline/metrics.py`; `group` is the worker's `kafka.group_id`. Those of
the table are served on `PIPELINE_MATERIALIZE__METRICS_PORT` and written to `PIPELINE_MATERIALIZE__METRICS_FILE`. Those
of the audit on Spark describe the last audit; served on `PIPELINE_AUDIT__METRICS_PORT`, written to
`PIPELINE_AUDIT__METRICS_FILE`.

"""
JOBS = (TABLE, AUDIT)


def metrics_page() -> str:
    """Write the page."""
    columns = ("metric", "type", "labels", "meaning")
    of_jobs = (row for job in JOBS for row in _rows_of(job))
    return _HEAD + table(columns, _rows()) + _PIPELINE + table(columns, of_jobs)


def metric_names() -> frozenset[str]:
    """Name every series that a rule may use."""
    names = {f"{job.prefix}_{name}" for job in JOBS for name in job.gauges}
    for name, metric in METRICS.items():
        parts = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        names |= {f"{_full(name, metric)}{part}" for part in parts}
    return frozenset(names)


def _rows() -> Iterator[tuple[str, str, str, str]]:
    for name, metric in METRICS.items():
        yield code(_full(name, metric)), metric.kind, "; ".join(_labels(metric.labels)), metric.text


def _rows_of(job: Declared) -> Iterator[tuple[str, str, str, str]]:
    for name, (text, labels) in job.gauges.items():
        yield code(f"{job.prefix}_{name}"), "gauge", "; ".join(_labels({"group": (), **labels})), text


def _labels(labels: Mapping[str, Collection[str]]) -> Iterator[str]:
    for label, values in labels.items():
        yield f"{code(label)}: {', '.join(values)}" if values else code(label)


def _full(name: str, metric: Metric) -> str:
    return f"{PREFIX}_{name}_total" if metric.kind == "counter" else f"{PREFIX}_{name}"
