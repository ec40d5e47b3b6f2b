"""Monitors, alerts and autoscaling of a release, by the labels of its series; needs helm, and promtool for rules."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.deployment.tools import RULES, find, manifests_of, pod_of, run
from tools.docs.metrics import metric_names

needs_promtool = pytest.mark.skipif(find("promtool") is None, reason="promtool is absent: `make chart-tools`")
KEDA = ("autoscaling.enabled=true", "autoscaling.by=keda", "autoscaling.keda.serverAddress=http://prometheus:9090")
MINE = 'namespace="prod", pod="logs-log-partitioner-0"'


def _prometheus_says(scratch: Path, test: dict[str, Any], rules: dict[str, Any] | None = None) -> None:
    """Let promtool judge one test of rules; JSON is YAML."""
    files = {"rules.yaml": rules or {"groups": []}}
    files["test.yaml"] = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]}
    for name, content in files.items():
        (scratch / name).write_text(json.dumps(content))
    done = run("promtool", "test", "rules", scratch / "test.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("kind", "endpoints"), [("podMonitor", "podMetricsEndpoints"), ("serviceMonitor", "endpoints")]
)
def test_chart_monitor_says_how_its_release_is_scraped(tmp_path: Path, kind: str, endpoints: str) -> None:
    """It may be in another namespace; labels of values select it, and it selects the release's pods or Service."""
    relabeling = '{"targetLabel": "cluster", "replacement": "c"}'
    manifests = manifests_of(
        tmp_path,
        f"{kind}.enabled=true",
        f"{kind}.namespace=monitoring",
        f"{kind}.labels.release=prometheus",
        f"{kind}.scrapeTimeout=10s",
        namespace="prod",
        values_json=(f"{kind}.relabelings=[{relabeling}]",),
    )
    monitor = manifests[kind[0].upper() + kind[1:]]
    scraped = manifests["Service"] if kind == "serviceMonitor" else manifests["StatefulSet"]["spec"]["template"]

    assert monitor["metadata"]["namespace"] == "monitoring"
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["prod"]}
    assert monitor["spec"]["selector"]["matchLabels"].items() <= scraped["metadata"]["labels"].items()
    assert monitor["spec"][endpoints] == [
        {
            "port": "http",
            "path": "/metrics",
            "interval": "30s",
            "scrapeTimeout": "10s",
            "relabelings": [json.loads(relabeling)],
        }
    ]


def test_chart_rules_are_those_of_the_file_with_labels_for_routing(tmp_path: Path) -> None:
    """None is lost, but for those that a value leaves out; each says whose it is."""
    names = [line.split()[-1] for line in RULES.read_text().splitlines() if "- alert: " in line]
    manifests = manifests_of(
        tmp_path,
        "prometheusRule.enabled=true",
        "prometheusRule.ruleLabels.team=a",
        "prometheusRule.disabled={LogPartitionerLag}",
        "prometheusRule.runbookUrl=https://wiki/RUNBOOK.md",
        namespace="prod",
    )
    rules = [rule for group in manifests["PrometheusRule"]["spec"]["groups"] for rule in group["rules"]]

    assert [rule["alert"] for rule in rules] == [name for name in names if name != "LogPartitionerLag"]
    for rule in rules:
        assert rule["annotations"]["runbook_url"] == f"https://wiki/RUNBOOK.md#{rule['alert'].lower()}"
        assert rule["labels"].items() >= {"team": "a", "namespace": "prod", "release": "logs"}.items()
        assert set(rule["labels"]) > {"team", "severity"}


@needs_promtool
def test_chart_rules_judge_their_own_release_only(tmp_path: Path) -> None:
    """Another release is neither taken for this one, nor hides that it is gone; its name may be any."""
    (tmp_path / "of").mkdir()
    spec = manifests_of(tmp_path / "of", "prometheusRule.enabled=true", "fullnameOverride=writer", namespace="prod")[
        "PrometheusRule"
    ]["spec"]
    mine, other = 'namespace="prod", pod="writer-0"', 'namespace="prod", pod="other-0"'
    series = {
        f"log_partitioner_held_topic_partitions{{{mine}}}": "1x30",
        f"log_partitioner_held_topic_partitions{{{other}}}": "1x30",
        f"log_partitioner_ready{{{mine}}}": "0x30",
        f"log_partitioner_ready{{{other}}}": "0x30",
        f"log_partitioner_build_info{{{other}}}": "1x30",
        'log_partitioner_audit_findings{group="prod.logs.log-partitioner", kind="missing"}': "1x30",
        'log_partitioner_audit_findings{group="prod.other.log-partitioner", kind="missing"}': "1x30",
    }
    fired = 'alertname, group, namespace, pod, release) (ALERTS{alertstate="firing"})'
    ours = 'namespace="prod", group="prod.logs.log-partitioner"'
    _prometheus_says(
        tmp_path,
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": f"count by ({fired}",
                    "eval_time": "20m",
                    "exp_samples": [
                        {"labels": f'{{alertname="LogPartitioner{name}", release="logs", {labels}}}', "value": 1}
                        for name, labels in (
                            ("Held", mine),
                            ("NotReady", mine),
                            ("Absent", 'namespace="prod"'),
                            ("AuditFindings", ours),
                        )
                    ],
                }
            ],
        },
        spec,
    )


def test_chart_autoscaler_takes_the_place_of_replicas(tmp_path: Path) -> None:
    """One or the other, for the StatefulSet, at most the TopicPartitions; an upgrade does not undo what it has set."""
    by_cpu = manifests_of(tmp_path / "hpa", "autoscaling.enabled=true", "topicPartitions=8")
    by_lag = manifests_of(tmp_path / "keda", *KEDA, "autoscaling.minReplicas=2", "autoscaling.maxReplicas=6")
    metrics = '[{"type": "External", "external": {"metric": {"name": "lag"}}}]'
    by_own = manifests_of(
        tmp_path / "own",
        "autoscaling.enabled=true",
        "autoscaling.maxReplicas=2",
        values_json=(f"autoscaling.metrics={metrics}",),
    )

    for manifests in (by_cpu, by_lag):
        assert "replicas" not in manifests["StatefulSet"]["spec"]
    hpa, scaled = by_cpu["HorizontalPodAutoscaler"]["spec"], by_lag["ScaledObject"]["spec"]
    assert ("ScaledObject" in by_cpu, "HorizontalPodAutoscaler" in by_lag) == (False, False)
    for target in (hpa["scaleTargetRef"], scaled["scaleTargetRef"]):
        assert target == {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "logs-log-partitioner"}
    assert (hpa["minReplicas"], hpa["maxReplicas"]) == (1, 8)
    assert (scaled["minReplicaCount"], scaled["maxReplicaCount"]) == (2, 6)
    assert scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"] == hpa["behavior"]
    cpu = hpa["metrics"][0]["resource"]["target"]["averageUtilization"]
    assert pod_of(by_cpu)["containers"][0]["resources"]["requests"]["cpu"] == "500m"
    assert 500 * cpu / 100 == 600  # milli-CPU: 60 % of the core that a worker fills, as docs/SIZING.md reckons
    assert by_own["HorizontalPodAutoscaler"]["spec"]["metrics"] == json.loads(metrics)


@pytest.mark.parametrize(
    ("value", "window"),
    [
        ("config.flush.interval_s=30", "300s"),
        ("config.flush.interval_s=10m", "1320s"),
        ("autoscaling.keda.window=2m", "2m"),
    ],
)
def test_chart_window_of_keda_holds_two_flushes(tmp_path: Path, value: str, window: str) -> None:
    """A shorter one would take the lag between two flushes for a backlog."""
    scaled = manifests_of(tmp_path, *KEDA, "autoscaling.maxReplicas=6", value)["ScaledObject"]

    assert scaled["spec"]["triggers"][0]["metadata"]["query"].count(f"[{window}]") == 2


@needs_promtool
def test_chart_query_of_keda_knows_the_lag_of_a_flush_from_a_backlog(tmp_path: Path) -> None:
    """Lag that falls to nothing with each flush is none, what stays is; without series there is no answer."""
    (tmp_path / "of").mkdir()
    scaled = manifests_of(tmp_path / "of", *KEDA, "autoscaling.maxReplicas=6", namespace="prod")["ScaledObject"]
    (trigger,) = scaled["spec"]["triggers"]
    assert trigger["metadata"]["ignoreNullValues"] == "false"
    assert set(re.findall(r"\blog_partitioner_\w+", trigger["metadata"]["query"])) <= metric_names()
    # 1,000 records a second. A flush each half minute; from minute 20 on 600,000 records are not caught up with.
    saw, backlog = "0 30000 " * 20, "600000 630000 " * 20
    other = MINE.replace("logs", "other")
    series = {
        f"log_partitioner_records_total{{{MINE}}}": "0+30000x80",
        f'log_partitioner_lag_records{{topic="t", partition="0", {MINE}}}': saw + backlog,
        f"log_partitioner_records_total{{{other}}}": "0+90000x80",
        f'log_partitioner_lag_records{{topic="t", partition="0", {other}}}': "9000000x80",
    }
    expected = {"15m": [1_000], "35m": [1_000 + 600_000 / 300], "60m": []}
    _prometheus_says(
        tmp_path,
        {
            "interval": "30s",
            "input_series": [{"series": name, "values": values.strip()} for name, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": f"round({trigger['metadata']['query']})",
                    "eval_time": at,
                    "exp_samples": [{"labels": "{}", "value": value} for value in values],
                }
                for at, values in expected.items()
            ],
        },
    )
    assert trigger["metadata"]["threshold"] == "20000"
