"""Every expression of the dashboards returns series of running processes, asked of a real Prometheus."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from log_partitioner.formats.findings import Kind
from log_partitioner_pipeline.metrics import AUDIT, TABLE, Gauges
from tests.deployment.test_dashboards import DASHBOARDS, expressions_of
from tests.deployment.tools import find
from tests.integration.harness import Deploy, Deployment
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.prometheus import Prometheus
from tools.local.ports import find_free_ports

pytestmark = pytest.mark.skipif(find("prometheus") is None, reason="prometheus is absent: `make chart-tools`")
ENTRY = b'{"user": "ann", "time": "2026-01-01T00:00:00Z"}'
SERVED_S = 240


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Callable[[dict[str, int]], Prometheus]]:
    """Give what starts a server over targets by job."""
    running: list[Prometheus] = []

    def start(targets: dict[str, int]) -> Prometheus:
        running.append(Prometheus(tmp_path, {job: [port] for job, port in targets.items()}))
        return running[-1]

    yield start
    for one in running:
        one.process.kill()


def without_series(server: Prometheus, dashboard: str, kafka: KafkaHelper, **variables: str) -> list[str]:
    """Return the expressions of a dashboard that have no series, once all have had time to."""
    asked = expressions_of(DASHBOARDS[dashboard])
    for name, value in {"__rate_interval": "60s", **variables}.items():
        asked = [one.replace(f"${name}", value) for one in asked]
    missing = asked

    def is_there() -> bool:
        nonlocal missing
        missing = [one for one in missing if not server.ask(one)]
        return not missing

    try:
        kafka.wait_for("series of all expressions", is_there, timeout_s=SERVED_S)
    except AssertionError:
        return missing
    return []


def port_of(deployment: Deployment, name: str) -> int:
    """Return the port of a worker's metrics."""
    (started,) = [event for event in deployment.events(name) if event["event"] == "worker_started"]
    return int(started["http_port"])


def test_dashboard_of_workers_has_a_series_for_each_expression_of_a_running_worker(
    kafka: KafkaHelper, deploy: Deploy, prometheus: Callable[[dict[str, int]], Prometheus]
) -> None:
    """The worker has flushed once; events that did not happen have a series that says so."""
    deployment = deploy(settings={"LOGP_FLUSH__INTERVAL_S": "1"})
    deployment.start("w1")
    written = kafka.produce(deployment.source, [ToProduce(value=ENTRY), ToProduce(value=b"none")])
    deployment.wait_drained(written, timeout_s=60)
    server = prometheus({"logs": port_of(deployment, "w1")})
    assert without_series(server, "worker.json", kafka, job="logs", instance=".*") == []


def test_dashboard_of_the_pipeline_has_a_series_for_each_expression_of_what_jobs_expose(
    kafka: KafkaHelper, prometheus: Callable[[dict[str, int]], Prometheus]
) -> None:
    """By the gauges that the jobs set, without Spark."""
    ports = dict(zip(("table", "audit"), find_free_ports(2), strict=True))
    for name, declared in {"table": TABLE, "audit": AUDIT}.items():
        gauges = Gauges(declared, "group")
        for gauge, (_, labels) in declared.gauges.items():
            gauges.set(gauge, time.time(), *([Kind.MISSING.value] if labels else []))
        gauges.serve(ports[name])
    assert without_series(prometheus(ports), "pipeline.json", kafka, group="group") == []
