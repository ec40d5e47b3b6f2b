"""Metrics and alerts as Prometheus reads them: needs promtool."""

from log_partitioner.adapters.metrics import PrometheusMetrics
from tests.deployment.tools import RULES, run


def test_alerts_are_valid_rules() -> None:
    """`promtool check rules` accepts them."""
    done = run("promtool", "check", "rules", RULES)

    assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_fire_when_they_should() -> None:
    """`promtool test rules`: each alert on a series that should raise it, beside one that should not."""
    done = run("promtool", "test", "rules", RULES.with_name("log-partitioner.test.yaml"))

    assert done.returncode == 0, done.stdout + done.stderr


def test_metrics_follow_the_conventions() -> None:
    """`promtool check metrics` finds nothing in the exposition, empty or filled."""
    metrics = PrometheusMetrics()
    empty = metrics.exposition().decode()
    metrics.add("records", 5)
    metrics.add("flushes", reason="interval", outcome="committed")
    metrics.set("lag_records", 3, topic="logs", partition="0")
    metrics.observe("flush_step_seconds", 0.2, step="upload")

    for exposition in (empty, metrics.exposition().decode()):
        done = run("promtool", "check", "metrics", text=exposition)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")
