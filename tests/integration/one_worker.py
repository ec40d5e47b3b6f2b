"""The whole path with one worker and nothing going wrong: records in, worker from start to SIGTERM."""

import urllib.request
from collections.abc import Iterable

from tests.integration.harness import Deployment
from tests.stack.kafka_helper import ToProduce

WORKER = "w1"
# One batch, flushed by SIGTERM, unless it is full before.
UNHURRIED = {"LOGP_FLUSH__INTERVAL_S": "600", "LOGP_FLUSH__BUDGET_S": "120"}


def run_through(
    deployment: Deployment, records: Iterable[ToProduce], *, timeout_s: float = 120, **settings: str
) -> list[tuple[int, int]]:
    """Write records, let a worker take them all, stop it; returns (partition, offset) of each record."""
    worker = deployment.start(WORKER, **{**UNHURRIED, **settings})
    written = deployment.kafka.produce(deployment.source, records)

    def has_taken_all() -> bool:
        assert worker.is_alive(), f"the worker ended with code {worker.exit_code}:\n{worker.last_lines()}"
        return records_taken(deployment) >= len(written)

    deployment.kafka.wait_for(f"{len(written)} records in the worker", has_taken_all, timeout_s=timeout_s)
    assert deployment.stop_all() == {WORKER: 0}, worker.last_lines()
    deployment.wait_drained(written, timeout_s=5)
    return written


def records_taken(deployment: Deployment) -> float:
    """How many records the worker has recorded so far."""
    started = [event for event in deployment.events(WORKER) if event["event"] == "worker_started"]
    if not started:
        return 0
    with urllib.request.urlopen(f"http://127.0.0.1:{started[-1]['http_port']}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("log_partitioner_records_total"))
