"""Retirement of raw objects: only those that an audit found in the table, recorded first; no audit misses them."""

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from log_partitioner.formats.findings import Kind
from log_partitioner.formats.flush_record import Lineage
from log_partitioner.proof.accounting import ExitCode
from log_partitioner.proof.oracle.equal import canonical
from log_partitioner_pipeline.audit.audited import read_passed
from log_partitioner_pipeline.audit.auditor import Auditor, Options
from log_partitioner_pipeline.audit.result import Result, Window
from log_partitioner_pipeline.backfill.ranges import Wanted
from log_partitioner_pipeline.entries import EntryTable
from log_partitioner_pipeline.errors import ObjectError, OvertakenError, TableError
from log_partitioner_pipeline.jobs.backfill import Backfill
from log_partitioner_pipeline.jobs.compact import Compact
from log_partitioner_pipeline.jobs.erase import Erase
from log_partitioner_pipeline.jobs.materialize import Materialize
from log_partitioner_pipeline.retire import Retired, Retirement
from log_partitioner_pipeline.retired import RetiredObjects
from tests.integration.harness import Deployment
from tests.integration.one_worker import run_through
from tests.pipeline.conftest import Lake
from tests.pipeline.others import by_others
from tests.pipeline.readback import Places, read_rows, read_table
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper

DRIVER = str(Path(__file__).parent / "retire_driver.py")
CATALOG = "catalog.db"
POINT = "between record and delete"
HOURS = 2
NOW_S = int(time.time()) // 3600 * 3600
RETIRES = {"PIPELINE_COMPACT__RETENTION_S": "0.001"}
EVERYTHING = Window(from_ms=None, until_ms=None, padding_s=600)


def entries(first: int, count: int) -> list[dict[str, object]]:
    """Give entries of two hours and four users."""
    return [
        {
            "user": f"user-{n % 4}",
            "time": (NOW_S - 7200 + 3600 * (n // 4 % HOURS)) * 1000,
            "n": n,
            "s": {"t": ["x"] * 3},
        }
        for n in range(first, first + count)
    ]


def deliver(deployment: Deployment, some: list[dict[str, object]]) -> Places:
    """Let a worker take entries; gives where they stand."""
    records = [ToProduce(value=json.dumps(entry).encode(), partition=at % 3) for at, entry in enumerate(some)]
    written = run_through(deployment, records)
    deployment.log_of("w1").unlink()
    return {(*place, 0): canonical(entry) for place, entry in zip(written, some, strict=True)}


def objects_of(deployment: Deployment) -> set[str]:
    """Name the data objects that are there."""
    named = {one.location.object for one in deployment.references()}
    return named & set(deployment.s3.keys(deployment.bucket))


def audited(lake: Lake, **options: bool) -> Result:
    """Audit in this process."""
    return Auditor(lambda: lake.spark, lake.settings, Options(EVERYTHING, examples=1000, **options)).run()


class World(NamedTuple):
    """A worker's output, and the lake whose table has it; both are audited."""

    deployment: Deployment
    lake: Lake
    expected: Places


@contextmanager
def materialised(kafka: KafkaHelper, s3: S3Helper, root: Path, spark: SparkSession) -> Iterator[World]:
    """Deliver and materialise."""
    settings = {"LOGP_LAYOUT": "file"}  # packs: test_layouts
    with Deployment(
        kafka=kafka, s3=s3, names=Names("retire"), root=root, partitions=3, settings=settings
    ) as deployment:
        expected = deliver(deployment, entries(0, 120))
        lake = lake_on(deployment, root, spark)
        Materialize(lake.spark, lake.settings).run(continuous=False)
        yield World(deployment, lake, expected)


def lake_on(deployment: Deployment, root: Path, spark: SparkSession, **settings: str) -> Lake:
    """Give a session of its own on the catalogue that stands in `root`, and a topic for runs of backfill."""
    runs = {"LOGP_KAFKA__BACKFILLS_TOPIC": deployment.kafka.create_topic(Names("retire").topic("backfills"))}
    lake = Lake(deployment, root, spark, **RETIRES | runs | settings)
    # A catalogue takes the options of the session that is active when it is first asked: by SQL this is its own.
    lake.spark.sql("SHOW NAMESPACES IN lake")
    return lake


@pytest.fixture
def unaudited(kafka: KafkaHelper, s3: S3Helper, tmp_path: Path, spark: SparkSession) -> Iterator[World]:
    """Give a world to which more is delivered."""
    with materialised(kafka, s3, tmp_path, spark) as world:
        yield world


@pytest.fixture(scope="module")
def audited_once(
    kafka: KafkaHelper, s3: S3Helper, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> Iterator[tuple[World, dict[str, bytes]]]:
    """Audit with the table: what is in it may retire; gives all objects, too, those of the table among them."""
    with materialised(kafka, s3, tmp_path_factory.mktemp("retire"), spark) as world:
        assert audited(world.lake, table=True, verdicts=True).exit_code is ExitCode.CLEAN
        bucket = world.deployment.bucket
        yield world, {key: s3.read(bucket, key) for key in s3.keys(bucket)}


@pytest.fixture
def world(audited_once: tuple[World, dict[str, bytes]], tmp_path: Path, spark: SparkSession) -> World:
    """Put back what a test before has deleted, and give a copy of the catalogue: tables begin where the audit was."""
    (deployment, lake, expected), objects = audited_once
    for key in objects.keys() - set(deployment.s3.keys(deployment.bucket)):
        deployment.s3.client.put_object(Bucket=deployment.bucket, Key=key, Body=objects[key])
    shutil.copy(lake.root / CATALOG, tmp_path / CATALOG)
    return World(deployment, lake_on(deployment, tmp_path, spark), expected)


@pytest.mark.timeout(600)
def test_objects_go_when_the_table_has_passed(unaudited: World, spark: SparkSession) -> None:
    """From the first verdict to an object that was deleted by hand.

    Outline: no verdict, one of files alone, and one that includes the table -> a driver is killed
    between record and delete -> the next run deletes -> clean audit by the table, backfill has nothing to do -> new
    objects, one deleted by hand, and an entry of a retired one deleted from the table.
    """
    deployment, lake, expected = unaudited
    assert Compact(lake.spark, lake.settings).run().retired == Retired()
    assert audited(lake).exit_code is ExitCode.CLEAN
    assert Compact(lake.spark, lake.settings).run().retired == Retired()
    assert audited(lake, table=True, verdicts=True).exit_code is ExitCode.CLEAN
    before = objects_of(deployment)
    driver = lake.start("retiring", POINT, program=(DRIVER,))
    driver.wait_for_line(f"stopped at {POINT}", timeout_s=240)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait(grace_s=10)
    recorded = lake.spark.table("lake.logs.retired")
    assert {row.object for row in recorded.where("deleted_at IS NULL").collect()} == before == objects_of(deployment)
    done = Compact(lake.spark, lake.settings).run().retired
    assert (done.objects, objects_of(deployment)) == (len(before), set())
    assert (recorded.count(), recorded.where("deleted_at IS NULL").count()) == (len(before), 0)
    assert read_table(lake) == expected

    result = audited(lake, table=True, list_objects=True, verdicts=False)
    assert (result.exit_code, result.findings, result.could_not_tell) == (ExitCode.CLEAN, [], [])
    counts = result.counts
    assert (counts.objects, counts.objects_retired) == (len(before), len(before))
    assert counts.rows == counts.rows_retired == counts.in_files == counts.in_table == len(expected)
    assert [note for note in result.notes if "retired" in note] == [
        f"{len(before)} objects are retired: table logs.entries has their {len(expected)} entries"
    ]
    summary = Backfill(lake.settings, "nothing", spark=lake.spark).summarise(Wanted(from_ms=0))
    assert (summary.entries_in_files, summary.dead_letters) == (0, {})

    deliver(deployment, entries(120, 60))
    assert Compact(lake.spark, lake.settings).run().retired == Retired()
    require_unread_without_table(deployment, lake.root, spark)
    lake.spark.sql(f"DELETE FROM {lake.table} WHERE n = 7")
    victim = min(objects_of(deployment))
    rows, _ = read_rows(deployment.s3.read(deployment.bucket, victim), victim)
    deployment.s3.client.delete_object(Bucket=deployment.bucket, Key=victim)
    result = audited(lake, verdicts=False)
    lost = {(row["_meta"]["partition"], row["_meta"]["offset"], row["_meta"]["index"]) for row in rows}
    gone = next(place for place, entry in expected.items() if entry["n"] == 7)
    found = {one.kind: one.examples for one in result.findings}
    assert found.keys() == {Kind.OBJECT_MISSING, Kind.MISSING, Kind.REFERENCE_WRONG}
    assert [one.object for one in found[Kind.OBJECT_MISSING]] == [victim]
    assert {(one.partition, one.offset, one.index) for one in found[Kind.MISSING]} == {*lost, gone}
    assert all("its object is retired, and of what the table has" in one.text for one in found[Kind.REFERENCE_WRONG])


def stop_after_the_record(lake: Lake) -> None:
    """Retire, and stop between record and delete, as a run that is killed there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Retirement, "_delete_objects", _stop)
        with pytest.raises(ObjectError, match="stopped"):
            Compact(lake.spark, lake.settings).run()


def _stop(*_: object) -> None:
    raise ObjectError("stopped")


def object_of(deployment: Deployment, number: int) -> str:
    """Name the object that holds the entry of this number."""
    s3, bucket = deployment.s3, deployment.bucket
    by_object = {key: read_rows(s3.read(bucket, key), key)[0] for key in objects_of(deployment)}
    (found,) = [key for key, rows in by_object.items() if any(row["n"] == number for row in rows)]
    return found


@pytest.mark.timeout(600)
def test_what_a_killed_run_has_recorded_is_compared_again(world: World) -> None:
    """A run was stopped after its record; then another engine updates one row and deletes another: their objects stay.

    Their record is withdrawn, so that their bytes count again; everything else goes. An audit names both, and from then
    on nothing is left to be said by compaction.
    """
    deployment, lake, _ = world
    before = objects_of(deployment)
    stop_after_the_record(lake)
    assert {row.object for row in lake.spark.table("lake.logs.retired").collect()} == before
    by_others(lake.spark, lake.table, f"UPDATE {lake.table} SET s.t = array('other') WHERE n = 7")
    lake.spark.sql(f"DELETE FROM {lake.table} WHERE n = 9")
    kept = {object_of(deployment, 7), object_of(deployment, 9)}
    assert len(kept) < len(before)
    with pytest.raises(TableError, match=rf"{len(kept)} raw objects stay .* table logs.entries has other rows than it"):
        Compact(lake.spark, lake.settings).run()
    assert objects_of(deployment) == kept
    rows = lake.spark.table("lake.logs.retired").collect()
    assert ({row.object for row in rows}, [row for row in rows if row.deleted_at is None]) == (before - kept, [])

    result = audited(lake, table=True)
    assert {one.kind: one.count for one in result.findings} == {Kind.TABLE_ALTERED: 1, Kind.TABLE_MISSING: 1}
    assert Compact(lake.spark, lake.settings).run().retired == Retired()
    assert objects_of(deployment) == kept


@pytest.mark.timeout(600)
def test_objects_of_an_erased_user_retire(world: World) -> None:
    """Their rows are in no table any more, which is no difference; a row that another engine deletes still is one."""
    deployment, lake, _ = world
    before = objects_of(deployment)
    job = Erase(lake.spark, lake.settings, "user-1")
    found, holders = job.look()
    job.run(found)
    lake.spark.sql(f"DELETE FROM {lake.table} WHERE n = 6")
    kept = {object_of(deployment, 6)}
    assert {one.object for one in holders} < before - kept
    with pytest.raises(TableError, match="1 raw objects stay"):
        Compact(lake.spark, lake.settings).run()
    assert objects_of(deployment) == kept


@pytest.mark.timeout(600)
def test_nothing_goes_where_others_change_the_table(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An update between comparison and deletion, though it changes no value; then a column that is dropped.

    A dropped column makes no snapshot: counts agree, and so does whatever is read as of one. A verdict names the table
    that it is of, as well: for another one it says nothing.
    """
    deployment, lake, expected = world
    before = objects_of(deployment)
    position = EntryTable(lake.spark, lake.settings).position()
    verdicts = lake.spark.sql("SELECT DISTINCT table_id, table_snapshot, table_schema FROM lake.logs.audited")
    assert verdicts.collect() == [(position.table_id, position.snapshot_id, position.schema_id)]
    lineage = Lineage(lake.settings.worker.kafka.group_id, [])
    for table_id, count in ((position.table_id, HOURS), ("another", 0)):
        assert len(read_passed(lake.spark, lake.settings, lineage, table_id=table_id).hours) == count

    record = RetiredObjects.record

    def record_and_update(self: RetiredObjects, *arguments: Any, **named: Any) -> None:
        record(self, *arguments, **named)
        by_others(lake.spark, lake.table, f"UPDATE {lake.table} SET n = n WHERE n = 7")

    monkeypatch.setattr(RetiredObjects, "record", record_and_update)
    with pytest.raises(TableError, match=r"while raw objects were compared with it: snapshot \d+ \(overwrite\)"):
        Compact(lake.spark, lake.settings).run()
    recorded = lake.spark.table("lake.logs.retired")
    assert (objects_of(deployment), recorded.where("deleted_at IS NULL").count()) == (before, len(before))

    lake.spark.sql(f"ALTER TABLE {lake.table} DROP COLUMN n")
    assert lake.spark.table(lake.table).count() == len(expected)
    result = audited(lake, table=True, verdicts=False)
    assert (result.exit_code, result.could_not_tell) == (
        ExitCode.COULD_NOT_TELL,
        ["1 columns of lake.logs.entries are gone since its newest commit: n"],
    )
    with pytest.raises(TableError, match=f"{len(before)} raw objects stay"):
        Compact(lake.spark, lake.settings).run()
    assert (objects_of(deployment), recorded.count()) == (before, 0)


@pytest.mark.parametrize("retired", ["recorded", pytest.param("deleted", marks=pytest.mark.sweep)])
@pytest.mark.timeout(600)
def test_backfill_beside_retirement_publishes_nothing_twice(
    retired: str, world: World, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects retire after a backfill has looked which are: it stops, and the same run publishes nothing later.

    Whether they are deleted by then, or only recorded. Each has its own session, which keeps nothing of the other's.
    """
    deployment, lake, expected = world
    announced = deployment.references()
    backfill, other = Backfill(lake.settings, "meeting", spark=lake.spark), lake_on(deployment, lake.root, spark)
    look = backfill._pieces

    def look_and_meet(*arguments: Any) -> DataFrame:
        found = look(*arguments)
        if retired == "deleted":
            there = objects_of(deployment)
            assert Compact(other.spark, other.settings).run().retired.objects == len(there)
        else:
            stop_after_the_record(other)
        return found

    monkeypatch.setattr(backfill, "_pieces", look_and_meet)
    with pytest.raises(OvertakenError, match="raw objects were retired while run meeting looked"):
        backfill.run(Wanted(from_ms=0))
    assert deployment.references() == announced
    assert Backfill(lake.settings, "meeting", spark=lake.spark).run(Wanted(from_ms=0)).messages == 0
    assert (deployment.references(), read_table(lake)) == (announced, expected)


def require_unread_without_table(deployment: Deployment, root: Path, spark: SparkSession) -> None:
    """Without the table an audit cannot tell whether the entries of retired objects are there."""
    other = lake_on(deployment, root, spark, PIPELINE_TABLE__NAME="logs.other")
    with pytest.raises(
        TableError, match=r"objects are retired, and lake\.logs\.other, which has their entries, is not"
    ):
        audited(other, verdicts=False, list_objects=True)
