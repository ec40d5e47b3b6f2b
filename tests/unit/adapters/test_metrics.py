"""Metrics: names that Prometheus' linter accepts, closed labels, and no user in any of them."""

from __future__ import annotations

import ast
from enum import Enum
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from log_partitioner.adapters.metrics import ANY, METRICS, PrometheusMetrics
from log_partitioner.control.flush_policy import STEPS, FlushReason
from log_partitioner.control.state import Phase
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.findings import Kind
from log_partitioner.runtime import flusher
from tests.fakes.metrics import RecordingMetrics

RUNTIME = Path(flusher.__file__).parent


@pytest.mark.parametrize("name", sorted(METRICS))
def test_labels_are_closed_sets_and_name_no_user(name: str) -> None:
    """I11: nothing that comes from an entry; nothing without bound."""
    open_sets = {"topic", "partition", "worker", "boot", "version"}
    open_sets |= {"code"}  # of the client library: some two hundred
    assert {label for label, values in METRICS[name].labels.items() if values == ANY} <= open_sets


def test_exposition_is_read_by_a_parser_and_counters_end_in_total() -> None:
    """What a scrape gets."""
    metrics = PrometheusMetrics()
    metrics.add("references", 3)
    metrics.add("flushes", reason="interval", outcome="committed")
    metrics.set("spool_bytes", 17)
    metrics.observe("flush_step_seconds", 0.2, step="seal")
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.exposition().decode())
        for sample in family.samples
    }
    assert samples["log_partitioner_references_total", ()] == 3
    assert samples["log_partitioner_flushes_total", (("outcome", "committed"), ("reason", "interval"))] == 1
    assert samples["log_partitioner_spool_bytes", ()] == 17
    assert samples["log_partitioner_flush_step_seconds_count", (("step", "seal"),)] == 1


def test_series_that_is_forgotten_is_gone() -> None:
    """What another worker owns is not ours to report; forgetting twice is no error."""
    metrics = PrometheusMetrics()
    metrics.set("lag_records", 5, topic="source", partition="0")
    metrics.set("lag_records", 6, topic="source", partition="1")
    metrics.forget("lag_records", topic="source", partition="0")
    metrics.forget("lag_records", topic="source", partition="0")
    text = metrics.exposition().decode()
    assert 'partition="0"' not in text
    assert 'partition="1"' in text


def test_gauge_is_read_back() -> None:
    """The exposition computes an age from it."""
    metrics = PrometheusMetrics()
    metrics.set("last_commit_timestamp_seconds", 12.5)
    assert metrics.value("last_commit_timestamp_seconds") == 12.5


@pytest.mark.parametrize("metrics", [PrometheusMetrics(), RecordingMetrics()], ids=["real", "fake"])
def test_undeclared_metric_or_label_is_an_error(metrics: PrometheusMetrics | RecordingMetrics) -> None:
    """Every metric is declared in one file; a typo is not a new one. Holds for the fake, too."""
    with pytest.raises(KeyError):
        metrics.add("no_such_metric")
    with pytest.raises((ValueError, AssertionError)):
        metrics.add("flushes", reason="interval")
    with pytest.raises((ValueError, AssertionError)):
        metrics.add("flushes", reason="interval", outcome="committed", user="ann")


def test_values_of_labels_are_those_that_the_worker_uses() -> None:
    """Sets of the code are taken over as a whole; any other value stands in a call, as a word of its own."""
    words = {
        str(node.value)
        for module in RUNTIME.glob("*.py")
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Constant)
    }
    metrics = ((name, label, values) for name, one in METRICS.items() for label, values in one.labels.items())
    sets: dict[tuple[str, str], type[Enum]] = {
        ("flushes", "reason"): FlushReason,
        ("state", "state"): Phase,
        ("verification_differences", "kind"): Kind,
    }
    for name, label, values in metrics:
        if (name, label) in sets:
            assert set(values) == {one.value for one in sets[name, label]}
        elif label == "step":
            assert tuple(values) == STEPS
        else:
            assert set(values) - set(Reason) <= words, f"{name} by {label}"
    assert set(Reason) < set(METRICS["entries"].labels["outcome"])


@pytest.mark.parametrize("name", sorted(METRICS))
def test_declared_metric_is_used(name: str) -> None:
    """A metric that nobody sets is a promise that nobody keeps."""
    sources = [path for path in RUNTIME.parent.rglob("*.py") if path.name != "metrics.py"]
    assert any(f'"{name}"' in path.read_text() for path in sources)
