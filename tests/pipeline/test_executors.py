"""Executors that are killed: a task of theirs is done again elsewhere, and nothing else is noticed."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from log_partitioner.proof.oracle.equal import canonical
from log_partitioner_pipeline.jobs.materialize import Materialize
from tests.integration.harness import Deployment
from tests.integration.one_worker import run_through
from tests.pipeline import stalling_daemon
from tests.pipeline.conftest import Lake
from tests.pipeline.readback import read_table
from tests.pipeline.stalling_daemon import LINK
from tests.pipeline.test_materialize_kills import Delivered
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper
from tools.demo.options import small_spark

DRIVER = str(Path(__file__).parent / "executors_driver.py")
RECORDS = 120
STARTS_S, ENDS_S = 240.0, 240.0
CLUSTER = "local-cluster[2,1,1024]"
JOBS = [
    ("materialize",),
    pytest.param(("audit", "--table"), marks=pytest.mark.sweep),
    pytest.param(("backfill", "--from", "2020-01-01", "--dry-run"), marks=pytest.mark.sweep),
]


@pytest.fixture(scope="module")
def delivered(kafka: KafkaHelper, s3: S3Helper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Delivered]:
    """Let one worker do its work, which all tests here only read."""
    entries = [
        {"user": f"user-{at % 7}", "time": f"2026-03-04T{5 + at % 3:02}:06:07Z", "n": at} for at in range(RECORDS)
    ]
    records = [ToProduce(value=json.dumps(entry).encode(), partition=at % 6) for at, entry in enumerate(entries)]
    root = tmp_path_factory.mktemp("executors")
    with Deployment(kafka=kafka, s3=s3, names=Names("executors"), root=root) as deployment:
        written = run_through(deployment, records, LOGP_FLUSH__ENTRIES_MAX="60")
        yield Delivered(deployment, {(*at, 0): canonical(entry) for at, entry in zip(written, entries, strict=True)})


@pytest.mark.timeout(600)
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job[0])
def test_task_of_a_killed_executor_is_done_again(
    job: tuple[str, ...], delivered: Delivered, lake_of: Callable[..., Lake], tmp_path: Path
) -> None:
    """SIGKILL an executor whose task reads an object; the job ends as if nothing had been."""
    lake = lake_of(delivered.deployment)
    if job[0] != "materialize":
        Materialize(lake.spark, lake.settings).run(continuous=False)
    stalled = tmp_path / "stalled"
    driver = lake.start(job[0], *job, program=(DRIVER,), **on_cluster(stalled, tmp_path))
    deadline = time.monotonic() + STARTS_S
    while not stalled.is_symlink():
        assert driver.is_alive(), driver.last_lines()
        assert time.monotonic() < deadline, driver.last_lines()
        time.sleep(0.1)
    executor = parent_of(parent_of(int(stalled.readlink().name)))
    assert b"CoarseGrainedExecutorBackend" in Path(f"/proc/{executor}/cmdline").read_bytes()
    os.kill(executor, signal.SIGKILL)
    driver.wait(grace_s=ENDS_S)
    said = (lake.root / f"{job[0]}.log").read_text()
    assert driver.exit_code == 0, said
    assert read_table(lake) == delivered.expected
    if job[0] == "backfill":
        assert "Would publish 0 entries" in said


def parent_of(pid: int) -> int:
    """Return the pid of a process's parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def on_cluster(stalled: Path, tmp_path: Path) -> dict[str, str]:
    """Give the settings of a cluster on this machine whose executors have the stalling daemon."""
    properties = json.loads(small_spark(is_compiled=False)["PIPELINE_SPARK__PROPERTIES"])
    properties["spark.python.daemon.module"] = stalling_daemon.__name__
    return {
        "PIPELINE_SPARK__MASTER": CLUSTER,
        "PIPELINE_SPARK__PROPERTIES": json.dumps(properties),
        LINK: str(stalled),
        "SPARK_WORKER_DIR": str(tmp_path / "spark"),
    }
