"""Metrics: names that Prometheus' linter accepts, closed labels, and no user in any of them."""

from __future__ import annotations

import ast
from enum import Enum
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from log_partitioner.adapters import object_store
from log_partitioner.adapters.metrics import ANY, METRICS, PrometheusMetrics
from log_partitioner.control.flush_policy import STEPS, FlushReason
from log_partitioner.control.state import Phase
from log_partitioner.errors import DiscardError
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.findings import Kind
from log_partitioner.runtime import flusher
from tests.fakes.metrics import RecordingMetrics

RUNTIME = Path(flusher.__file__).parent
STORE = Path(object_store.__file__)


@pytest.mark.parametrize("name", sorted(METRICS))
def test_labels_are_closed_sets_and_name_no_user(name: str) -> None:
    """I11: nothing that comes from an entry; nothing without bound."""
    open_sets = {"topic", "partition", "worker", "version"}
    open_sets |= {"code"}  # of the client library: some two hundred; of HTTP: fewer
    assert {label for label, values in METRICS[name].labels.items() if values == ANY} <= open_sets


def test_exposition_is_read_by_a_parser_and_counters_end_in_total() -> None:
    """A scrape gets this text."""
    metrics = PrometheusMetrics()
    metrics.add("references", 3)
    metrics.add("flushes", reason="interval", outcome="committed")
    metrics.set("spool_bytes", 17)
    metrics.observe("flush_step_duration_seconds", 0.2, step="seal")
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.exposition().decode())
        for sample in family.samples
    }
    assert samples["log_partitioner_references_total", ()] == 3
    assert samples["log_partitioner_flushes_total", (("outcome", "committed"), ("reason", "interval"))] == 1
    assert samples["log_partitioner_spool_bytes", ()] == 17
    assert samples["log_partitioner_flush_step_duration_seconds_count", (("step", "seal"),)] == 1


def test_series_that_is_forgotten_is_gone() -> None:
    """A worker does not report another worker's TopicPartition; it may forget one twice."""
    metrics = PrometheusMetrics()
    metrics.set("lag_records", 5, topic="source", partition="0")
    metrics.set("lag_records", 6, topic="source", partition="1")
    metrics.forget("lag_records", topic="source", partition="0")
    metrics.forget("lag_records", topic="source", partition="0")
    text = metrics.exposition().decode()
    assert 'partition="0"' not in text
    assert 'partition="1"' in text


def test_series_of_closed_labels_is_there_from_the_start_and_none_is_created() -> None:
    """`increase` sees the first event of each; `_created` would be a second series of each."""
    text = PrometheusMetrics().exposition().decode()
    assert 'log_partitioner_rebalances_total{kind="lost"} 0.0' in text
    assert 'log_partitioner_flushes_total{outcome="unknown",reason="interval"} 0.0' in text
    assert "_created" not in text


def test_exposition_tells_of_the_process() -> None:
    """Under the names that all processes have; `process_start_time_seconds` tells a restart."""
    text = PrometheusMetrics().exposition().decode()
    for name in ("start_time_seconds", "resident_memory_bytes", "cpu_seconds_total", "open_fds"):
        assert f"\nprocess_{name} " in text


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
        for module in (*RUNTIME.glob("*.py"), STORE)
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Constant)
    }
    metrics = ((name, label, values) for name, one in METRICS.items() for label, values in one.labels.items())
    sets: dict[tuple[str, str], type[Enum]] = {
        ("flushes", "reason"): FlushReason,
        ("state", "state"): Phase,
        ("verification_differences", "kind"): Kind,
        ("dead_letter_entries", "reason"): Reason,
        ("dead_letters", "reason"): Reason,
    }
    errors = {kind.__name__ for kind in leaves(DiscardError)}
    assert errors <= set(METRICS["batches_discarded"].labels["cause"])
    for name, label, values in metrics:
        if (name, label) in sets:
            assert set(values) == {one.value for one in sets[name, label]}
        elif label == "step":
            assert tuple(values) == STEPS
        else:
            assert set(values) - errors <= words, f"{name} by {label}"


def leaves(kind: type) -> set[type]:
    """Return the classes below one that have none below them."""
    below = kind.__subclasses__()
    return {leaf for one in below for leaf in leaves(one)} if below else {kind}


@pytest.mark.parametrize("name", sorted(METRICS))
def test_declared_metric_is_used(name: str) -> None:
    """A declared metric that the worker never sets is a broken promise."""
    sources = [path for path in RUNTIME.parent.rglob("*.py") if path.name != "metrics.py"]
    assert any(f'"{name}"' in path.read_text() for path in sources)
