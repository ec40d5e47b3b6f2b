"""Every job reads packs; the table is the same from files and from packs, in any messages."""

import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from confluent_kafka import TopicPartition as ConsumedTopicPartition
from structlog.testing import capture_logs

from log_partitioner.formats.findings import Kind
from log_partitioner.formats.flush_record import Lineage
from log_partitioner.formats.model import TopicPartition
from log_partitioner.formats.values import Bytes, Date, Decimal, DeclaredMap, Timestamp
from log_partitioner.proof.accounting import ExitCode
from log_partitioner.proof.oracle.equal import canonical
from log_partitioner_pipeline.acknowledged import Acknowledged
from log_partitioner_pipeline.audit.auditor import Auditor, Options
from log_partitioner_pipeline.audit.result import Result, Window
from log_partitioner_pipeline.backfill.held import HeldEntries
from log_partitioner_pipeline.backfill.outbox import Run
from log_partitioner_pipeline.backfill.retired import frame_of
from log_partitioner_pipeline.jobs.compact import Compact
from log_partitioner_pipeline.jobs.materialize import Materialize
from log_partitioner_pipeline.jobs.user_activity import UserActivity
from log_partitioner_pipeline.kafka import partition_ends
from log_partitioner_pipeline.retire import Retired
from log_partitioner_pipeline.retired import RetiredObjects
from tests.pipeline import minutes, planted
from tests.pipeline.by_hand import ByHand, Layout
from tests.pipeline.conftest import Lake
from tests.pipeline.readback import Places, read_by_pyiceberg, read_table
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper

EVERYTHING = Window(from_ms=None, until_ms=None, padding_s=600)
T0_MS = (int(time.time()) // 3600 - 3) * 3_600_000  # Kafka deletes what is older than its retention
USERS, RECORDS, FLUSHES, PARTITIONS = 12, 120, 2, 3
DEAD_EVERY = 20
# One user's object is empty and another's has fields: in a pack they share a schema.
VALUES: list[Any] = [{}, {"a": 1}, {"a": None}, {"a": 2**60, "b": [{"c": "d"}]}, None]
SETTINGS = {
    "PIPELINE_ACTIVITY__INTERVAL_S": "0.01",
    "PIPELINE_AUDIT__UNREFERENCED_AGE_S": "0",
    "PIPELINE_COMPACT__RETENTION_S": "0.001",
}


class World(NamedTuple):
    """A deployment's output, and the entries that the table must have."""

    deployment: ByHand
    expected: Places


def entry(number: int) -> dict[str, Any]:
    """Give an entry of one of the users, in one of two hours."""
    at_ms = T0_MS + number % 2 * 3_600_000 + number
    found = {"user": f"user-{number % USERS}", "time": at_ms, "id": f"id-{number}", "x": VALUES[number % len(VALUES)]}
    if number % DEAD_EVERY == 7:
        del found["user"]
    return found


@pytest.fixture
def world(request: pytest.FixtureRequest, kafka: KafkaHelper, s3: S3Helper, names: Names) -> World:
    """Two flushes, in packs unless the test says another layout."""
    layout: Layout = getattr(request, "param", "pack")
    deployment = ByHand(kafka=kafka, s3=s3, names=names, layout=layout, partitions=PARTITIONS)
    entries = [entry(number) for number in range(RECORDS)]
    expected: Places = {}
    for begin in range(0, RECORDS, RECORDS // FLUSHES):
        some = entries[begin : begin + RECORDS // FLUSHES]
        records = [
            ToProduce(value=json.dumps(one).encode(), partition=at % PARTITIONS, timestamp_ms=T0_MS + begin + at)
            for at, one in enumerate(some)
        ]
        places = deployment.deliver(records)
        expected |= {(*place, 0): canonical(one) for place, one in zip(places, some, strict=True) if "user" in one}
    return World(deployment, expected)


def audited(lake: Lake, **options: bool) -> Result:
    """Audit in this process."""
    return Auditor(lambda: lake.spark, lake.settings, Options(EVERYTHING, examples=1000, **options)).run()


def materialised(lake: Lake, world: World) -> list[int]:
    """Materialize in several commits and compare the table; returns the references of each commit."""
    with capture_logs() as logs:
        Materialize(lake.spark, lake.settings).run(continuous=False)
    assert read_table(lake) == world.expected
    commits = [line["references"] for line in logs if line["event"] == "references_materialized"]
    assert sum(commits) == len(world.deployment.references())
    return commits


@pytest.mark.parametrize("world", ["file", "split"], indirect=True)
def test_table_is_the_same_from_files_and_from_packs_in_several_messages(
    world: World, lake_of: Callable[..., Lake]
) -> None:
    """Only the reading of rows knows layouts (tests/unit/pipeline/test_rows.py)."""
    lake = lake_of(world.deployment, **SETTINGS, PIPELINE_MATERIALIZE__REFERENCES_MAX="10")
    commits = materialised(lake, world)
    assert len(commits) > 1
    assert max(commits) <= 10


def test_types_that_json_lacks_have_columns_and_come_back(
    kafka: KafkaHelper, s3: S3Helper, names: Names, lake_of: Callable[..., Lake]
) -> None:
    """Alone, in parts, and in the rest, where the column is of what came first."""
    deployment = ByHand(kafka=kafka, s3=s3, names=names, layout="pack")
    at = "2026-03-04T05:06:07.000008Z"
    some = {"bin": Bytes("/w=="), "dec": Decimal("1.250"), "at": Timestamp(at), "day": Date("0001-01-01")}
    typed = {**some, "in": some, "list": [Date("2026-03-04"), None], "map": DeclaredMap(k=Timestamp(at), n=None)}
    plain: dict[str, Any] = dict.fromkeys(typed, 1)
    expected: Places = {}
    for user, values in ("ann", typed), ("bob", plain), ("eve", {"empty": DeclaredMap(), **some}):
        deployment.declared = lambda one, values=values: {**one, **values}
        one = {"user": user, "time": T0_MS}
        (place,) = deployment.deliver([ToProduce(value=json.dumps(one).encode(), timestamp_ms=T0_MS)])
        expected[*place, 0] = canonical({**one, **values})
    lake = lake_of(deployment, PIPELINE_MATERIALIZE__REFERENCES_MAX="1")
    Materialize(lake.spark, lake.settings).run(continuous=False)
    assert read_table(lake) == read_by_pyiceberg(lake) == expected
    found = {one.name: one.dataType.simpleString() for one in lake.spark.table(lake.table).schema}
    assert [found[name] for name in some] == ["binary", "string", "timestamp", "date"]
    assert (found["list"], found["map"]) == ("array<date>", "map<string,timestamp>")


@pytest.mark.main_path
def test_table_of_packs_is_audited_clean_until_a_row_is_gone(world: World, lake_of: Callable[..., Lake]) -> None:
    """From references to the table and its audit: every entry is accounted for; then one is deleted, and named.

    Then the source loses its beginning amid a reference: of the table nothing else is said.
    """
    lake = lake_of(world.deployment, **SETTINGS)
    materialised(lake, world)
    result = audited(lake, table=True)
    assert (result.exit_code, result.findings, result.could_not_tell) == (ExitCode.CLEAN, [], [])
    assert (result.counts.entries, result.counts.in_table) == (RECORDS, len(world.expected))

    (partition, offset, index) = gone = next(iter(world.expected))
    place = f"_meta.partition = {partition} AND _meta.offset = {offset} AND _meta.index = {index}"
    lake.spark.sql(f"DELETE FROM {lake.table} WHERE {place}")
    result = audited(lake, table=True)
    assert (result.exit_code, planted.found(result)) == (ExitCode.FINDINGS, {(Kind.TABLE_MISSING, gone): 1})

    lost = [ConsumedTopicPartition(world.deployment.source, number, 5) for number in range(PARTITIONS)]
    for done in world.deployment.kafka.admin.delete_records(lost).values():
        done.result(20)
    result = audited(lake, table=True)
    assert {name: n for name, n in planted.found(result).items() if name[0].startswith("table")} == {
        (Kind.TABLE_MISSING, gone): 1
    }


@pytest.mark.timeout(600)
def test_every_job_reads_packs(world: World, lake_of: Callable[..., Lake]) -> None:
    """Materialize in several commits, audit with everything, activity, what backfill would leave out, retirement.

    Plans are compiled, as in production.
    """
    deployment, expected = world
    references = deployment.references()
    lake = lake_of(deployment, is_compiled=True, **SETTINGS, PIPELINE_MATERIALIZE__REFERENCES_MAX="10")
    # Each commit is one message, and has more than it may.
    assert materialised(lake, world) == [len(references) // FLUSHES] * FLUSHES

    result = audited(lake, table=True, list_objects=True)
    assert (result.exit_code, result.findings, result.could_not_tell) == (ExitCode.CLEAN, [], [])
    assert [note for note in result.notes if "objects" in note] == []
    counts = result.counts
    assert (counts.records, counts.entries, counts.deliverable) == (RECORDS, RECORDS, len(expected))
    assert counts.in_files == counts.in_table == counts.rows == len(expected)
    assert (counts.references, counts.objects) == (len(references), len({one.location.object for one in references}))

    UserActivity(lake.spark, lake.settings).run(continuous=False)
    hours = lake.spark.table("lake.logs.user_hours").collect()
    assert sum(row.entries for row in hours) == len(expected)
    assert len(hours) == len({one.partition_key for one in references})

    held(lake, world)
    retired(lake, world)


def held(lake: Lake, world: World) -> None:
    """Backfill leaves out the entries of two ranges that references hold."""
    deployment, expected = world
    topic = deployment.references_topic
    ends = {number: end.next for number, end in partition_ends(lake.settings.worker.kafka, topic).items()}
    ranges = {TopicPartition(deployment.source, 0): range(5, 20), TopicPartition(deployment.source, 2): range(3)}
    pinned = RetiredObjects(lake.spark, lake.settings).pin()
    lineage = Lineage(deployment.group, [])
    run = Run("run", 0, deployment.group, topic, deployment.dead_letters_topic, ranges, ends, {})
    found = HeldEntries(lake.spark, lake.settings, run, lineage, Acknowledged()).in_references(pinned)
    places = sorted((row["partition"], row["offset"], row["index"]) for row in found.collect())
    within = [place for place in expected if place[1] in ranges.get(TopicPartition(deployment.source, place[0]), ())]
    assert places == sorted(within)
    assert frame_of(lake.spark, ranges).count() == len(ranges)


def retired(lake: Lake, world: World) -> None:
    """All raw objects go, and no audit takes them for lost."""
    deployment, expected = world
    objects = {one.location.object for one in deployment.references()}
    done = Compact(lake.spark, lake.settings).run().retired
    assert (done.objects, objects & set(deployment.s3.keys(deployment.bucket))) == (len(objects), set())
    assert Compact(lake.spark, lake.settings).run().retired == Retired()
    result = audited(lake, table=True, list_objects=True, verdicts=False)
    assert (result.exit_code, result.findings, result.could_not_tell) == (ExitCode.CLEAN, [], [])
    assert (result.counts.objects_retired, result.counts.rows_retired) == (len(objects), len(expected))
    held(lake, world)


def test_every_fault_in_packs_is_named_and_nothing_else(
    kafka: KafkaHelper, s3: S3Helper, names: Names, lake_of: Callable[..., Lake]
) -> None:
    """In lines of shared messages and the blocks of a pack: each by name. Those in files: test_audit.py."""
    deployment = ByHand(kafka=kafka, s3=s3, names=names, layout="pack", partitions=minutes.PARTITIONS)
    records = list(minutes.records())
    for begin in range(0, minutes.RECORDS, minutes.RECORDS // minutes.FLUSHES):
        deployment.deliver(records[begin : begin + minutes.RECORDS // minutes.FLUSHES])
    world = planted.Delivered(deployment)
    expected = [one for fault in planted.PACK_FAULTS for one in fault(world)]
    lake = lake_of(deployment, **world.publish(Names("planted")))
    result = Auditor(
        lambda: lake.spark, lake.settings, Options(EVERYTHING, examples=10_000, verdicts=False, list_objects=True)
    ).run()
    assert planted.differences(result, expected) == ({}, {})
    assert result.could_not_tell == []
