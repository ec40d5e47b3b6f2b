"""docs/METRICS.md: every metric with type, labels and meaning."""

from __future__ import annotations

from collections.abc import Iterator

from deploy.docs.tables import code, table
from service.adapters import metrics

_HEAD = """\
# Metrics

Made by `python -m deploy.docs` from `service/adapters/metrics.py`; do not edit.

Served at `/metrics` on the port of the probes (`LOGP_HTTP__PORT`). No label holds a user, and each takes few values.
A counter also has a `_created` gauge (when it began, in seconds since the epoch), a histogram `_bucket`, `_sum` and
`_count`. A series with labels appears with its first value. Alerts: `deploy/alerts/log-partitioner.rules.yaml`.

"""


def metrics_page() -> str:
    """Write the page."""
    return _HEAD + table(("metric", "type", "labels", "meaning"), _rows())


def metric_names() -> frozenset[str]:
    """Name every series that a rule may use."""
    names = set()
    for name, kind, _labels, _text in _metrics():
        names |= {f"{name}_{part}" for part in ("bucket", "sum", "count")} if kind == "histogram" else {name}
    return frozenset(names)


def _rows() -> Iterator[tuple[str, str, str, str]]:
    for name, kind, labels, text in _metrics():
        yield code(name), kind, ", ".join(map(code, labels)), text


def _metrics() -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    prefix = metrics._PREFIX  # noqa: SLF001 - prometheus_client does not tell the labels of a metric without series
    for name, (text, labels) in metrics._COUNTERS.items():  # noqa: SLF001
        yield f"{prefix}_{name}_total", "counter", labels, text
    for name, (text, labels) in metrics._GAUGES.items():  # noqa: SLF001
        yield f"{prefix}_{name}", "gauge", labels, text
    for name, (text, labels, _buckets) in metrics._HISTOGRAMS.items():  # noqa: SLF001
        yield f"{prefix}_{name}", "histogram", labels, text
