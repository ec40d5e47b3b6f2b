"""Metrics and alerts as Prometheus reads them: needs promtool."""

from pathlib import Path

from log_partitioner.adapters.metrics import METRICS, PrometheusMetrics
from tests.deployment.tools import RULES, run


def test_alerts_are_valid_rules() -> None:
    """`promtool check rules` accepts them."""
    done = run("promtool", "check", "rules", RULES)

    assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_fire_when_they_should() -> None:
    """`promtool test rules`: each alert on a series that should raise it, beside one that should not."""
    done = run("promtool", "test", "rules", Path(__file__).with_name("log-partitioner.test.yaml"))

    assert done.returncode == 0, done.stdout + done.stderr


def test_metrics_follow_the_conventions() -> None:
    """`promtool check metrics` finds nothing in the exposition, empty or filled."""
    metrics = PrometheusMetrics()
    empty = metrics.exposition().decode()
    samples = {"counter": metrics.add, "gauge": metrics.set, "histogram": metrics.observe}
    for name, one in METRICS.items():
        samples[one.kind](name, 1.0, **dict.fromkeys(one.labels, "one"))

    for exposition in (empty, metrics.exposition().decode()):
        done = run("promtool", "check", "metrics", text=exposition)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")
