"""docs/METRICS.md: every metric with type, labels and meaning."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from log_partitioner.adapters.metrics import METRICS, PREFIX, Metric
from log_partitioner_pipeline.metrics import AUDIT, TABLE, Declared
from tools.docs.tables import code, table

_HEAD = """\
# Metrics

Made by `python -m tools.docs` from `service/log_partitioner/adapters/metrics.py`; do not edit.

Served at `/metrics` on the port of the probes (`LOGP_HTTP__PORT`). No label holds a user; values of a label exclude
each other, so that sums count nothing twice. A series is there from the start if all values of its labels are listed
here. `process_*` and `python_info` are those of Prometheus' client library; `process_start_time_seconds` tells
restarts. Alerts: `helm/log-partitioner/files/log-partitioner.rules.yaml`, and [what to do about
each](RUNBOOK.md#alerts). Dashboards for Grafana: `helm/log-partitioner/files/dashboards`.

"""
_PIPELINE = """
## The pipeline

`group` is the worker's `kafka.group_id`. `PIPELINE_MATERIALIZE__METRICS_PORT` serves those of the table,
`PIPELINE_AUDIT__METRICS_PORT` those of the last audit on Spark; `..._FILE` writes them to a file.

"""
JOBS = (TABLE, AUDIT)
VALUES_AGAIN_MAX = 3  # of a label whose values an earlier metric lists; more are named by that metric
Listed = dict[tuple[str, ...], str]


def metrics_page() -> str:
    """Write the page."""
    columns = ("metric", "type", "labels", "meaning")
    listed: Listed = {}
    of_jobs = (row for job in JOBS for row in _rows_of(job, listed))
    return _HEAD + table(columns, _rows(listed)) + _PIPELINE + table(columns, of_jobs)


def metric_names() -> frozenset[str]:
    """Name every series that a rule may use."""
    names = {f"{job.prefix}_{name}" for job in JOBS for name in job.gauges}
    for name, metric in METRICS.items():
        parts = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        names |= {f"{_full(name, metric)}{part}" for part in parts}
    return frozenset(names)


def _rows(listed: Listed) -> Iterator[tuple[str, str, str, str]]:
    for name, metric in METRICS.items():
        full = _full(name, metric)
        yield code(full), metric.kind, "; ".join(_labels(full, metric.labels, listed)), metric.text


def _rows_of(job: Declared, listed: Listed) -> Iterator[tuple[str, str, str, str]]:
    for name, (text, labels) in job.gauges.items():
        full = f"{job.prefix}_{name}"
        yield code(full), "gauge", "; ".join(_labels(full, {"group": (), **labels}, listed)), text


def _labels(name: str, labels: Mapping[str, Collection[str]], listed: Listed) -> Iterator[str]:
    for label, values in labels.items():
        first = listed.setdefault((label, *values), name)
        if first != name and len(values) > VALUES_AGAIN_MAX:
            yield f"{code(label)}: as of {code(first)}"
        else:
            yield f"{code(label)}: {', '.join(values)}" if values else code(label)


def _full(name: str, metric: Metric) -> str:
    return f"{PREFIX}_{name}_total" if metric.kind == "counter" else f"{PREFIX}_{name}"
