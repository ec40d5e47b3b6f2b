"""docs/METRICS.md: every metric with type, labels and meaning."""

from __future__ import annotations

from collections.abc import Iterator

from deploy.docs.tables import code, table
from service.adapters.metrics import METRICS, PREFIX, Metric

_HEAD = """\
# Metrics

Made by `python -m deploy.docs` from `service/adapters/metrics.py`; do not edit.

Served at `/metrics` on the port of the probes (`LOGP_HTTP__PORT`). No label holds a user, and each takes few values,
which exclude each other: sums over a label count nothing twice.
A counter also has a `_created` gauge (when it began, in seconds since the epoch), a histogram `_bucket`, `_sum` and
`_count`. A series with labels appears with its first value. Alerts: `deploy/alerts/log-partitioner.rules.yaml`.

"""


def metrics_page() -> str:
    """Write the page."""
    return _HEAD + table(("metric", "type", "labels", "meaning"), _rows())


def metric_names() -> frozenset[str]:
    """Name every series that a rule may use."""
    names = set()
    for name, metric in METRICS.items():
        parts = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        names |= {f"{_full(name, metric)}{part}" for part in parts}
    return frozenset(names)


def _rows() -> Iterator[tuple[str, str, str, str]]:
    for name, metric in METRICS.items():
        yield code(_full(name, metric)), metric.kind, "; ".join(_labels(metric)), metric.text


def _labels(metric: Metric) -> Iterator[str]:
    for label, values in metric.labels.items():
        yield f"{code(label)}: {', '.join(values)}" if values else code(label)


def _full(name: str, metric: Metric) -> str:
    return f"{PREFIX}_{name}_total" if metric.kind == "counter" else f"{PREFIX}_{name}"
