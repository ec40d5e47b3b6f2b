"""SIGTERM at every moment: the worker ends in time with exit code 0, and what it held is committed or read again."""

import subprocess
import sys
from pathlib import Path

from tests.integration.flow import some_records
from tests.integration.harness import Deployment
from tests.stack.kafka_helper import KafkaHelper
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper
from tools.local.s3_fault_rules import Action, Rule
from tools.local.s3_faults import S3FaultProxy

DATA = "/user="
NEVER = "600"
GRACE_S = 30  # what Kubernetes gives by default


def test_idle_worker_leaves_without_a_flush(kafka: KafkaHelper, s3: S3Helper, names: Names, tmp_path: Path) -> None:
    with Deployment(kafka=kafka, s3=s3, names=names, root=tmp_path) as deployment:
        deployment.start("w1")
        deployment.require_event("partitions_assigned", "w1")
        deployment.workers["w1"].terminate()

        assert deployment.exit_code("w1", within_s=GRACE_S) == 0
        assert deployment.flush_records() == []
        assert deployment.count("worker_stopped") == 1
        assert deployment.committed_offsets() == {}


def test_open_batch_is_flushed(kafka: KafkaHelper, s3: S3Helper, names: Names, tmp_path: Path) -> None:
    with Deployment(kafka=kafka, s3=s3, names=names, root=tmp_path) as deployment:
        written = kafka.produce(deployment.source, some_records(60, partitions=6))
        deployment.start("w1", LOGP_FLUSH__INTERVAL_S=NEVER)
        deployment.wait_metric("w1", "records_total", 60)
        deployment.workers["w1"].terminate()

        assert deployment.exit_code("w1", within_s=GRACE_S) == 0
        deployment.wait_drained(written, timeout_s=5)
        assert [flush.reason for flush in deployment.flush_records()] == ["stopping"]
        deployment.require_clean()


def test_uploads_under_way_are_finished(
    kafka: KafkaHelper, s3: S3Helper, s3_faults: S3FaultProxy, names: Names, tmp_path: Path
) -> None:
    """One SIGTERM during a slow flush by interval: that flush commits, and nothing is flushed twice."""
    with Deployment(kafka=kafka, s3=s3, names=names, root=tmp_path, endpoint=s3_faults.endpoint) as deployment:
        s3_faults.add(Rule(Action.DELAY, "PUT", DATA, times=4, delay_s=600))
        written = kafka.produce(deployment.source, some_records(60, partitions=6))
        deployment.start("w1", LOGP_FLUSH__INTERVAL_S="0.5")
        kafka.wait_for("uploads under way", lambda: s3_faults.done[Action.DELAY] == 4, timeout_s=60)
        deployment.workers["w1"].terminate()
        s3_faults.clear()

        assert deployment.exit_code("w1", within_s=GRACE_S) == 0
        deployment.wait_drained(written, timeout_s=5)
        assert [flush.reason for flush in deployment.flush_records()] == ["interval"]
        deployment.require_clean()


def test_second_signal_abandons_the_flush(
    kafka: KafkaHelper, s3: S3Helper, s3_faults: S3FaultProxy, names: Names, tmp_path: Path
) -> None:
    """It ends while the store still holds its uploads; nothing is committed, and the next worker reads again."""
    with Deployment(kafka=kafka, s3=s3, names=names, root=tmp_path, endpoint=s3_faults.endpoint) as deployment:
        s3_faults.add(Rule(Action.STALL, "PUT", DATA, times=1_000))
        written = kafka.produce(deployment.source, some_records(60, partitions=6))
        worker = deployment.start("w1", LOGP_FLUSH__INTERVAL_S=NEVER)
        deployment.wait_metric("w1", "records_total", 60)
        worker.terminate()
        kafka.wait_for("uploads under way", lambda: s3_faults.done[Action.STALL] == 4)
        assert worker.is_alive()
        worker.terminate()

        assert deployment.exit_code("w1", within_s=10) == 0
        assert (deployment.committed(), deployment.references()) == (0, [])
        assert deployment.require_event("batch_discarded", "w1")[0]["reason"] == "stopping"
        s3_faults.clear()
        deployment.start("w1")
        deployment.wait_drained(written)
        deployment.require_clean()


def test_before_the_first_assignment(kafka: KafkaHelper, s3: S3Helper, names: Names, tmp_path: Path) -> None:
    with Deployment(kafka=kafka, s3=s3, names=names, root=tmp_path) as deployment:
        worker = deployment.start("w1")
        worker.wait_for_line('"worker_started"', timeout_s=60)
        worker.terminate()

        assert deployment.exit_code("w1", within_s=GRACE_S) == 0
        assert deployment.flush_records() == []


def test_settings_that_contradict_are_all_named(kafka: KafkaHelper, s3: S3Helper, names: Names, tmp_path: Path) -> None:
    """Exit code 2 before anything is done, one line for each problem, and no secret in any of them."""
    with Deployment(kafka=kafka, s3=s3, names=names, root=tmp_path) as deployment:
        env = deployment.environment(
            LOGP_KAFKA__REFERENCES_TOPIC=deployment.source,
            LOGP_KAFKA__CLIENT_PROPERTIES='{"isolation.level": "read_uncommitted"}',
            LOGP_FLUHS__INTERVAL_S="1",
        )
        done = subprocess.run(
            [sys.executable, "-m", "log_partitioner", "run"],
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert (done.returncode, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    assert all(line.startswith("settings: ") for line in lines), done.stderr
    for part in (
        "the worker would consume its own output",
        "isolation.level may not be set",
        "LOGP_FLUHS__INTERVAL_S names no setting",
    ):
        assert sum(part in line for line in lines) == 1, (part, done.stderr)
    assert s3.endpoint.secret_key not in done.stderr


def test_two_stop_at_once(kafka: KafkaHelper, s3: S3Helper, names: Names, tmp_path: Path) -> None:
    """Each flushes its own batch although the other's leaving makes a rebalance meanwhile."""
    with Deployment(kafka=kafka, s3=s3, names=names, root=tmp_path, protocol="consumer") as deployment:
        for name in ("w1", "w2"):
            deployment.start(name, LOGP_FLUSH__INTERVAL_S=NEVER)
        for name in ("w1", "w2"):
            deployment.kafka.wait_for(
                f"{name} owns its half",
                lambda name=name: deployment.metric(name, "owned_topic_partitions") == 3,
                timeout_s=60,
            )
        written = kafka.produce(deployment.source, some_records(120, partitions=6))
        for name in ("w1", "w2"):
            deployment.wait_metric(name, "records_total", 60)

        assert deployment.stop_all() == {"w1": 0, "w2": 0}
        deployment.wait_drained(written, timeout_s=5)
        deployment.require_clean()
