"""Compaction: only hours that the audit has passed, no entry changed, and safe beside a driver that appends."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from log_partitioner.proof.oracle.equal import canonical
from log_partitioner_pipeline.audit.auditor import Auditor, Options
from log_partitioner_pipeline.audit.result import Window
from log_partitioner_pipeline.entries import EntryTable
from log_partitioner_pipeline.errors import PipelineError, TableError
from log_partitioner_pipeline.jobs import compact
from log_partitioner_pipeline.jobs.compact import Compact, Left, choose, utc_hours
from log_partitioner_pipeline.jobs.materialize import Materialize
from log_partitioner_pipeline.retention import Refusal
from log_partitioner_pipeline.retire import JudgedObjects
from log_partitioner_pipeline.retired import RETIRED_TABLE
from log_partitioner_pipeline.upkeep import FileHour
from tests.integration.harness import Deployment
from tests.integration.one_worker import run_through
from tests.pipeline.by_hand import ByHand
from tests.pipeline.conftest import Lake
from tests.pipeline.readback import Places, read_table
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper

HOURS = 2
NOW_S = int(time.time()) // 3600 * 3600
DRIVER = str(Path(__file__).parent / "stopping_driver.py")
POINT = "between data files and table commit"
SMALL = {"PIPELINE_MATERIALIZE__REFERENCES_MAX": "6"}
SOON = {"PIPELINE_COMPACT__SNAPSHOTS_S": "0.001"}


@pytest.fixture(autouse=True)
def two_files_are_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewrite partitions of two files."""
    monkeypatch.setattr(compact, "FILES_MIN", 2)


@pytest.fixture(scope="module")
def delivered(
    kafka: KafkaHelper, s3: S3Helper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Deployment, Places]]:
    """One worker's work in several transactions: two hours, six users, both hours in every partition."""
    root = tmp_path_factory.mktemp("compact")
    entries = [
        {"user": f"user-{at % 6}", "time": (NOW_S - 7200 + 3600 * (at // 6 % HOURS)) * 1000, "n": at}
        for at in range(120)
    ]
    records = [ToProduce(value=json.dumps(entry).encode(), partition=at % 6) for at, entry in enumerate(entries)]
    settings = {"LOGP_LAYOUT": "file"}  # many messages: what is committed at once ends between them
    with Deployment(kafka=kafka, s3=s3, names=Names("compact"), root=root, settings=settings) as deployment:
        written = run_through(deployment, records, LOGP_FLUSH__ENTRIES_MAX="30")
        yield deployment, {(*place, 0): canonical(entry) for place, entry in zip(written, entries, strict=True)}


def test_hours_that_have_passed_are_rewritten(
    delivered: tuple[Deployment, Places], lake_of: Callable[..., Lake]
) -> None:
    """Nothing without a verdict; with clean ones every hour, once; entries, offsets and a later run as before."""
    deployment, expected = delivered
    lake = lake_of(deployment, **SMALL, **SOON)
    Materialize(lake.spark, lake.settings).run(continuous=False)
    before = position_of(lake)
    assert Compact(lake.spark, lake.settings).run().hours == []
    everything = Options(Window(from_ms=None, until_ms=None, padding_s=600), verdicts=True)
    assert Auditor(lambda: lake.spark, lake.settings, everything).run().exit_code == 0

    verdicts = f"lake.{lake.settings.pipeline.table.beside('audited')}"
    lake.spark.sql(f"INSERT INTO {verdicts} SELECT * FROM {verdicts} WHERE false")
    done = Compact(lake.spark, lake.settings).run()
    assert (len(done.hours), done.files_after < done.files_before) == (HOURS, True)
    assert (read_table(lake), position_of(lake)) == (expected, before)
    for table in (lake.table, verdicts):
        assert lake.spark.sql(f"SELECT * FROM {table}.snapshots").count() == 1

    assert Compact(lake.spark, lake.settings).run().hours == []
    Materialize(lake.spark, lake.settings).run(continuous=False)
    assert (read_table(lake), position_of(lake)) == (expected, before)


def test_compaction_beside_a_driver_that_appends(
    delivered: tuple[Deployment, Places], lake_of: Callable[..., Lake]
) -> None:
    """A rewrite between a driver's data files and its commit: the driver writes them again, each entry once."""
    deployment, expected = delivered
    lake = lake_of(deployment, **SMALL)
    driver = lake.start("appending", POINT, "3", program=(DRIVER,))
    driver.wait_for_line(f"stopped at {POINT}", timeout_s=120)
    compact = Compact(lake.spark, lake.settings)
    hours = [one.hour for one in compact.upkeep.file_hours()]
    rewritten = compact.upkeep.rewrite(hours, position=compact.table.position())
    os.killpg(driver.pid, signal.SIGCONT)
    driver.wait(grace_s=120)
    assert (driver.exit_code, rewritten.files_before > rewritten.files_after > 0) == (0, True), driver.last_lines()
    assert read_table(lake) == expected


def test_dry_run_changes_nothing_and_foresees_what_a_run_does(
    kafka: KafkaHelper, s3: S3Helper, names: Names, lake_of: Callable[..., Lake]
) -> None:
    """Hours, snapshots and raw objects; before an audit each has a reason to stay, and so has what came after it."""
    deployment = ByHand(kafka=kafka, s3=s3, names=names, layout="file")
    lake = lake_of(deployment, **SMALL, **SOON, PIPELINE_COMPACT__RETENTION_S="0.001")
    compact = Compact(lake.spark, lake.settings)
    with pytest.raises(TableError, match="there is no table"):
        compact.foresee()
    for hours in (range(2), range(2), range(4)):
        deployment.deliver(records(hours))
        Materialize(lake.spark, lake.settings).run(continuous=False)
    every = compact.foresee()
    assert (every.hours, every.left) == ([], {Left.NOT_PASSED: 2, Left.FEW_FILES: 2})
    assert every.objects == JudgedObjects(0, {Refusal.NOT_PASSED: 8})

    everything = Options(Window(from_ms=None, until_ms=None, padding_s=600), table=True, verdicts=True)
    assert Auditor(lambda: lake.spark, lake.settings, everything).run().exit_code == 0
    deployment.deliver(records(range(1)))
    Materialize(lake.spark, lake.settings).run(continuous=False)
    before = snapshots(lake)
    foreseen = compact.foresee()
    assert (len(foreseen.hours), foreseen.left) == (1, {Left.NOT_PASSED: 1, Left.FEW_FILES: 2})
    assert foreseen.objects == JudgedObjects(5, {Refusal.NOT_PASSED: 4})
    assert snapshots(lake) == before
    assert not lake.spark.catalog.tableExists(f"lake.{lake.settings.pipeline.table.beside(RETIRED_TABLE)}")

    done = compact.run()
    assert (done.hours, done.files_before) == ([one.hour for one in foreseen.hours], foreseen.hours[0].files)
    assert done.retired.objects == 5
    of_rewrite = 1  # carries the offsets that another snapshot states
    assert foreseen.snapshots == len(before - snapshots(lake)) - of_rewrite > 0


def test_choose_takes_what_verdicts_cover() -> None:
    """Enough files, a clean verdict, and nothing from references behind it."""
    files = [FileHour(1, 5, {0: 10}), FileHour(2, 5, {0: 11}), FileHour(3, 1, {0: 1}), FileHour(4, 5, {0: 1})]
    passed = {1: {0: 10}, 2: {0: 10}, 3: {0: 10}}
    assert choose(files, passed) == [1]
    assert choose([FileHour(1, 5, {0: 10, 1: 1})], passed) == []


def test_utc_hours_of_a_zone() -> None:
    """An hour of Berlin is one of UTC, the one that comes twice is two, and one of India is none."""
    epoch = int(datetime(2026, 3, 4, 5, tzinfo=UTC).timestamp()) // 3600
    berlin = ZoneInfo("Europe/Berlin")
    assert utc_hours("2026-03-04", 6, berlin) == {epoch}
    assert len(utc_hours("2026-10-25", 2, berlin)) == 2
    with pytest.raises(PipelineError, match="Asia/Kolkata"):
        utc_hours("2026-03-04", 6, ZoneInfo("Asia/Kolkata"))


def records(hours: Iterable[int]) -> list[ToProduce]:
    """Make a record of one user for each of these hours."""
    entries = [{"user": "u", "time": (NOW_S - 86_400 + 3600 * hour) * 1000} for hour in hours]
    return [ToProduce(value=json.dumps(one).encode(), timestamp_ms=NOW_S * 1000) for one in entries]


def snapshots(lake: Lake) -> set[int]:
    """Name the snapshots of the tables that materialize keeps."""
    tables = ("entries", "references", "flushes", "dead_letters")
    return {
        row[0]
        for one in tables
        for row in lake.spark.sql(f"SELECT snapshot_id FROM lake.logs.{one}.snapshots").collect()
    }


def position_of(lake: Lake) -> dict[int, int]:
    """Give the offsets that the table tells."""
    return EntryTable(lake.spark, lake.settings).position().offsets
