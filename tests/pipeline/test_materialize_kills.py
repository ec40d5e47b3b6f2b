"""Drivers of materialize that are killed, or overtaken: the table equals the source, entry by entry.

A driver that is overtaken is no more for its successor than one that is dead: the kill at that point is a sweep. Each
point is tried once; LOGP_TEST_REPEAT=3 tries each three times (docs/CONTRIBUTING.md).
"""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from log_partitioner.proof.oracle.equal import canonical
from log_partitioner_pipeline.jobs.materialize import Materialize
from tests.integration.harness import Deployment
from tests.integration.one_worker import run_through
from tests.pipeline.conftest import Lake
from tests.pipeline.readback import Places, read_table
from tests.pipeline.stopping_driver import POINTS
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper
from tools.local.processes import ServerProcess

REPEAT = int(os.environ.get("LOGP_TEST_REPEAT", "1"))
DRIVER = str(Path(__file__).parent / "stopping_driver.py")
RECORDS = 240
BATCH = 2  # the driver is stopped in its second slice, so that there is something to repeat
STOPPED_S = 120.0
LAST = "after the table commit"  # at others a driver that is overtaken shows the same, and more
OVERTAKEN = 2
ENDS_S = 5.0


class Delivered(NamedTuple):
    """A worker's output, in several transactions, and the entries that the table must have."""

    deployment: Deployment
    expected: Places


@pytest.fixture(scope="module")
def delivered(kafka: KafkaHelper, s3: S3Helper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Delivered]:
    """One worker's work, for all tests here: they only read it."""
    root = tmp_path_factory.mktemp("kills")
    entries = [
        {"user": f"user-{at % 7}", "time": f"2026-03-04T{5 + at % 3:02}:06:07Z", "n": at, "x": at if at % 5 else "text"}
        for at in range(RECORDS)
    ]
    records = [ToProduce(value=json.dumps(entry).encode(), partition=at % 6) for at, entry in enumerate(entries)]
    settings = {"LOGP_LAYOUT": "file"}  # many messages: what is committed at once ends between them
    with Deployment(kafka=kafka, s3=s3, names=Names("materialize-kills"), root=root, settings=settings) as deployment:
        written = run_through(deployment, records, LOGP_FLUSH__ENTRIES_MAX="60")
        expected = {(*place, 0): canonical(entry) for place, entry in zip(written, entries, strict=True)}
        yield Delivered(deployment, expected)


@pytest.mark.parametrize("point", [pytest.param(one, marks=[] if one == LAST else pytest.mark.sweep) for one in POINTS])
@pytest.mark.parametrize("turn", range(REPEAT))
def test_driver_killed(point: str, turn: int, delivered: Delivered, lake_of: Callable[..., Lake]) -> None:
    """SIGKILL at this point; the next driver completes the table, each entry once."""
    lake = lake_of(delivered.deployment, **few_references(turn))
    driver = start_stopping(lake, "killed", point)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait(grace_s=10)
    Materialize(lake.spark, lake.settings).run(continuous=False)
    assert read_table(lake) == delivered.expected


@pytest.mark.parametrize(
    "point", [pytest.param("before the read", marks=pytest.mark.sweep), "between data files and table commit"]
)
@pytest.mark.parametrize("turn", range(REPEAT))
def test_driver_overtaken(point: str, turn: int, delivered: Delivered, lake_of: Callable[..., Lake]) -> None:
    """A driver stopped after it has read, resumed after its successor's commit: it adds nothing, and says so."""
    lake = lake_of(delivered.deployment, **few_references(turn))
    driver = start_stopping(lake, "overtaken", point)
    Materialize(lake.spark, lake.settings).run(continuous=False)
    os.killpg(driver.pid, signal.SIGCONT)
    driver.wait(grace_s=60)
    assert (driver.exit_code, "another driver has gone on" in driver.last_lines()) == (OVERTAKEN, True)
    assert read_table(lake) == delivered.expected


@pytest.mark.parametrize("point", ["in a commit", "between commits"])
def test_driver_ended_by_sigterm(point: str, delivered: Delivered, lake_of: Callable[..., Lake]) -> None:
    """Within 5 s; the next driver completes the table. A branch would keep its snapshot from expiry: it is dropped."""
    lake = lake_of(delivered.deployment, **few_references(0))
    if point == "in a commit":
        driver = start_stopping(lake, "ended", "between data files and table commit")
    else:
        driver = lake.start("ended", "materialize", "--continuous")
        driver.wait_for_line("references_materialized", timeout_s=STOPPED_S)
    begun = time.monotonic()
    driver.terminate()
    os.killpg(driver.pid, signal.SIGCONT)
    driver.wait(grace_s=60)
    assert time.monotonic() - begun < ENDS_S
    assert driver.exit_code == 128 + signal.SIGTERM, driver.last_lines()
    assert "materialize: ended by SIGTERM" in driver.last_lines()
    if point == "between commits":
        assert [row.name for row in lake.spark.table(f"{lake.table}.refs").collect()] == ["main"]
    Materialize(lake.spark, lake.settings).run(continuous=False)
    assert read_table(lake) == delivered.expected


def test_nothing_new_changes_nothing(delivered: Delivered, lake_of: Callable[..., Lake]) -> None:
    """A second run finds nothing to do."""
    lake = lake_of(delivered.deployment)
    for _ in range(2):
        Materialize(lake.spark, lake.settings).run(continuous=False)
    assert read_table(lake) == delivered.expected
    snapshots = lake.spark.sql(f"SELECT * FROM {lake.table}.snapshots").count()
    assert snapshots == 1


def few_references(turn: int) -> dict[str, str]:
    """Make slices small; the number differs by turn, so that cuts fall elsewhere."""
    return {"PIPELINE_MATERIALIZE__REFERENCES_MAX": str(20 + 3 * turn)}


def start_stopping(lake: Lake, name: str, point: str) -> ServerProcess:
    """Start a driver and wait until it stands at this point."""
    driver = lake.start(name, point, str(BATCH), program=(DRIVER,))
    driver.wait_for_line(f"stopped at {point}", timeout_s=STOPPED_S)
    return driver
