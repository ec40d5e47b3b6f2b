"""Dashboards ask for metrics that exist, are what the tool writes, and come with the chart."""

from __future__ import annotations

import json
import re

import pytest

from log_partitioner.adapters.metrics import PrometheusMetrics
from tests.deployment.tools import CHART, find, render
from tools.docs.metrics import metric_names

DASHBOARDS = {path.name: path.read_text() for path in sorted((CHART / "files" / "dashboards").glob("*.json"))}


def expressions_of(text: str) -> list[str]:
    """Return the expressions of all panels of a dashboard."""
    return [target["expr"] for panel in json.loads(text)["panels"] for target in panel.get("targets", ())]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_dashboard_asks_for_metrics_that_exist(name: str) -> None:
    """A histogram without its `_bucket` does not exist; metrics of any process stand beside the worker's."""
    text = PrometheusMetrics().exposition().decode()
    known = metric_names() | set(re.findall(r"^(process_\w+) ", text, re.MULTILINE))
    expressions = expressions_of(DASHBOARDS[name])
    assert expressions
    used = {name for one in expressions for name in re.findall(r"\b(?:log_partitioner|process)_\w+", one)}
    assert used - known == set()


def test_dashboards_committed_are_those_that_the_tool_writes() -> None:
    """This test tells a developer who edits the one and forgets the other."""
    pytest.importorskip("grafana_foundation_sdk", reason="grafana-foundation-sdk is absent: docs/CONTRIBUTING.md")
    from tools.dashboards import boards  # noqa: PLC0415 - it needs the library

    assert boards() == DASHBOARDS


@pytest.mark.skipif(find("helm") is None, reason="helm is absent: `make chart-tools`")
def test_chart_dashboards_are_config_maps_that_the_sidecar_finds() -> None:
    """Each file as it is; braces of legends are not the chart's. None unless asked for."""
    assert "dashboard" not in render().stdout
    given = ("enabled=true", "namespace=monitoring", "annotations.grafana_folder=Kafka")
    done = render(values=[f"dashboards.{value}" for value in given])
    assert done.returncode == 0, done.stderr
    maps = [part for part in done.stdout.split("\n---\n") if "/dashboards.yaml" in part]
    assert len(maps) == len(DASHBOARDS) == 2
    for part, (name, text) in zip(sorted(maps, reverse=True), sorted(DASHBOARDS.items(), reverse=True), strict=True):
        assert f"name: logs-log-partitioner-{name.removesuffix('.json')}-dashboard\n" in part
        assert "namespace: monitoring\n" in part
        assert 'grafana_dashboard: "1"\n' in part
        assert "grafana_folder: Kafka\n" in part
        (quoted,) = re.findall(rf"^  log-partitioner-{name}: (.*)$", part, re.MULTILINE)
        assert json.loads(quoted) == text
