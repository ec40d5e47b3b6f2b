"""One short run of a mutant as real processes on real Kafka and real S3, and what the product's tools say of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from log_partitioner.proof.accounting import ExitCode
from tests.integration.flow import Flow
from tests.integration.harness import Deployment
from tests.integration.test_unreadable import BATCH, damage, write_batches
from tests.mutants.mutant import Mutant
from tests.stack.kafka_helper import KafkaHelper
from tests.stack.names import Names
from tests.stack.providers import jars, running_s3, s3_provider
from tests.stack.s3_helper import S3Helper
from tools.local.kafka import KafkaCluster

SETTINGS = {
    "LOGP_VERIFY__SHARE": "1",
    "LOGP_VERIFY__ON_DIFFERENCE": "report",
    "LOGP_FLUSH__INTERVAL_S": "1",
    "LOGP_FAST_LANE": "off",
}
JOINS = 4
STAYS_S = 4.0
DRAIN_S = 40.0


class Servers(NamedTuple):
    """A broker of its own, whose files may be damaged, and an S3."""

    broker: KafkaCluster
    kafka: KafkaHelper
    s3: S3Helper
    root: Path


@contextmanager
def servers() -> Iterator[Servers]:
    """Start both, as local processes or wherever the tests have them."""
    with TemporaryDirectory(prefix="mutants-") as directory:
        root = Path(directory)
        with KafkaCluster(jars=jars(), root=root / "kafka", brokers=1) as broker, running_s3(root / "s3") as endpoint:
            kafka = KafkaHelper(broker.bootstrap_servers, provider="local process")
            s3 = S3Helper(endpoint, provider=s3_provider())
            try:
                yield Servers(broker, kafka, s3, root)
            finally:
                s3.close()


def run(mutant: Mutant | None, scenario: str, servers: Servers) -> dict[str, Any]:
    """Run a mutant, or the product itself if none is given; return what each tool says."""
    name = "none" if mutant is None else mutant.name
    root = servers.root / f"{name}-{scenario}"
    with Deployment(
        kafka=servers.kafka, s3=servers.s3, names=Names(name), root=root, partitions=6 if scenario != "damage" else 2,
        settings=SETTINGS,
    ) as deployment:  # fmt: skip
        if mutant is not None:
            deployment.program = ("-m", "tests.mutants.launch", mutant.name)
        begun_s = time.monotonic()
        records = {"rebalances": _rebalances, "kills": _kills, "damage": _damage}[scenario](deployment, servers)
        return {
            "scenario": scenario,
            "records": records,
            **_judge(deployment),
            "seconds": round(time.monotonic() - begun_s),
        }


def _rebalances(deployment: Deployment, _servers: Servers) -> int:
    """One worker stays while others come and go, with records flowing all the time."""
    names = (f"w{number}" for number in count(1))
    deployment.start(next(names))
    with Flow(deployment) as flow:
        for _ in range(JOINS):
            name = next(names)
            deployment.start(name)
            with suppress(TimeoutError, AssertionError):
                deployment.require_event("partitions_assigned", name, timeout_s=20)
            time.sleep(STAYS_S)
            deployment.workers[name].terminate()
            deployment.workers[name].wait(grace_s=30)
        written = flow.stop()
    return _end(deployment, written)


def _kills(deployment: Deployment, _servers: Servers) -> int:
    """Workers are killed in the middle of their work, with records flowing all the time."""
    with Flow(deployment) as flow:
        for _ in range(JOINS):
            deployment.start("w1")
            deployment.start("w2")
            time.sleep(2 * STAYS_S)
            deployment.workers["w1"].kill()
            deployment.workers["w2"].kill()
        written = flow.stop()
    deployment.start("w3")
    return _end(deployment, written)


def _damage(deployment: Deployment, servers: Servers) -> int:
    """A record batch turns on the broker's disk before anybody has read it; a person skips what is held."""
    written = write_batches(deployment, damaged=2)
    damage(servers.broker, deployment.source)
    deployment.start("w1")
    with suppress(TimeoutError, AssertionError):
        deployment.wait_metric("w1", "held_topic_partitions", 1)
    deployment.stop_all()
    if deployment.skip(partition=0, first=2 * BATCH)[0] == 0:
        deployment.start("w2")
    return _end(deployment, written)


def _end(deployment: Deployment, written: list[tuple[int, int]]) -> int:
    with suppress(TimeoutError, AssertionError):  # what is not drained is for the tools to say
        deployment.wait_drained(written, timeout_s=DRAIN_S)
    deployment.stop_all()
    return len(written)


def _judge(deployment: Deployment) -> dict[str, Any]:
    """Ask the product's tools, and what the workers have told."""
    audit = deployment.audit("--require-caught-up")
    logs = [str(one) for one in deployment.logs()]
    code, _ = deployment.run("verify-logs", *logs)
    differences: dict[str, int] = {}
    for event in deployment.events():
        if event["event"] == "flush_differs":
            for kind, number in event["differences"].items():
                differences[kind] = differences.get(kind, 0) + number
    ended = {name: one.exit_code for name, one in deployment.workers.items() if one.exit_code not in (0, None, -9)}
    letters = audit.json.get("dead_letters", {})
    return {
        "audit": sorted(audit.json.get("findings", {})) or ExitCode(audit.exit_code).name.lower(),
        "verify-logs": ExitCode(code).name.lower(),
        "verification mode": differences,
        "ended": ended,
        "put away": {name: number for name, number in letters.items() if name in ("skipped", "fatal")},
    }
