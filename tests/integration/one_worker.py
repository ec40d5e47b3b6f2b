"""The whole path with one worker and nothing going wrong: records in, worker from start to SIGTERM."""

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
        return deployment.metric(WORKER, "records_total") >= len(written)

    deployment.kafka.wait_for(f"{len(written)} records in the worker", has_taken_all, timeout_s=timeout_s)
    assert deployment.stop_all() == {WORKER: 0}, worker.last_lines()
    deployment.wait_drained(written, timeout_s=5)
    return written
