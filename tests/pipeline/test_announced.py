"""References, flush records and dead letters as tables: what their topics said, whatever retention takes from these."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_END, TopicPartition
from msgspec.structs import replace
from pyspark.sql import Row

from log_partitioner.formats.dead_letter import parse_headers
from log_partitioner.formats.findings import Kind
from log_partitioner.formats.replay import REPLAY_TYPE, ReplayMark, encode_replay_mark
from log_partitioner.proof.accounting import ExitCode
from log_partitioner_pipeline.announced import ANNOUNCED_AT, REFERENCES, AnnouncedTable
from log_partitioner_pipeline.audit.auditor import Auditor, Options
from log_partitioner_pipeline.audit.result import Window
from log_partitioner_pipeline.errors import PipelineError
from log_partitioner_pipeline.jobs.materialize import Materialize
from log_partitioner_pipeline.parquet import write_rows
from log_partitioner_pipeline.rows import arrow_schema
from log_partitioner_pipeline.upkeep import Upkeep
from tests.pipeline.by_hand import ByHand
from tests.pipeline.conftest import Lake
from tests.pipeline.packs import KEY, TIME_US, Entry, write_object
from tests.pipeline.readback import read_rows
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper

HOUR_US = 3_600_000_000
(REFERENCE,) = write_object([Entry(KEY, {"n": 1})]).references


@pytest.fixture
def deployment(kafka: KafkaHelper, s3: S3Helper, names: Names) -> ByHand:
    """A deployment that announces its packs in messages of a few lines."""
    return ByHand(kafka=kafka, s3=s3, names=names, layout="split")


def test_tables_hold_what_the_topics_said(deployment: ByHand, lake_of: Callable[..., Lake]) -> None:
    """Line by line, from one run to the next; and what retention takes from the topics stays."""
    lake = lake_of(deployment)
    for first in (0, 20):
        deployment.deliver(records(first))
        Materialize(lake.spark, lake.settings).run(continuous=False)
    references, flushes = deployment.references(), deployment.flush_records()
    letters = [parse_headers(one.headers() or ()) for one in deployment.dead_letters()]
    assert announced(lake, "references", "reference_id") == sorted(one.reference_id for one in references)
    found = {row["reference_id"]: row for row in lake.spark.table("lake.logs.references").collect()}
    for one in references:
        row = found[one.reference_id]
        assert (row["user"], row["date"], row["hour"]) == one.partition_key
        assert (row["location"]["object"], row["location"]["ranges"]) == (
            one.location.object,
            [list(span) for span in one.location.ranges],
        )
        assert [source["min_offset"] for source in row["sources"]] == [source.min_offset for source in one.sources]
        assert int(row["event_time_min"].timestamp() * 1_000_000) == one.event_time_min_us
    assert announced(lake, "flushes", "part", "batch_id") == sorted((one.part, one.batch_id) for one in flushes)
    (summed,) = lake.spark.sql("SELECT sum(totals.entries) FROM lake.logs.flushes").collect()
    assert summed[0] == sum(one.totals.entries for one in flushes if one.part == 1) == 40
    assert announced(lake, "dead_letters", "offset", "reason") == sorted((one.offset, one.reason) for one in letters)

    for topic in (deployment.references_topic, deployment.flushes_topic, deployment.dead_letters_topic):
        forget(deployment.kafka, topic)
    deployment.deliver(records(40))
    Materialize(lake.spark, lake.settings).run(continuous=False)
    assert len(announced(lake, "references", "reference_id")) == len(references) + len(deployment.references())
    assert len(announced(lake, "flushes", "batch_id")) == len(flushes) + len(deployment.flush_records())
    assert len(announced(lake, "dead_letters", "reason")) == len(letters) + len(deployment.dead_letters())


def test_files_of_days_that_are_over_become_one(deployment: ByHand, lake_of: Callable[..., Lake]) -> None:
    """Each commit makes a file; the rows and the offsets stay what they are, and expiry takes the old files."""
    lake = lake_of(deployment)
    for first in (0, 20, 40):
        deployment.deliver(records(first))
        Materialize(lake.spark, lake.settings).run(continuous=False)
    table = AnnouncedTable(lake.spark, lake.settings, REFERENCES)
    ids, position = announced(lake, "references", "reference_id"), table.position()
    upkeep = Upkeep(lake.spark, table.name)
    today = datetime.now(UTC).date()
    assert upkeep.rewrite_days(ANNOUNCED_AT, before=today - timedelta(days=1)) == (0, 0)
    assert upkeep.rewrite_days(ANNOUNCED_AT, before=today + timedelta(days=1)) == (3, 1)
    upkeep.expire(before_ms=2**42)
    assert announced(lake, "references", "reference_id") == ids
    assert table.position().offsets == position.offsets
    assert lake.spark.table(f"{table.name}.files").count() == 1


def test_object_of_an_entry_is_one_select(deployment: ByHand, lake_of: Callable[..., Lake]) -> None:
    """By the reference in its row."""
    lake = lake_of(deployment)
    deployment.deliver(records(0))
    Materialize(lake.spark, lake.settings).run(continuous=False)
    (row,) = lake.spark.sql(
        "SELECT r.location.bucket, r.location.object FROM lake.logs.entries e "
        "JOIN lake.logs.references r ON e._reference = r.reference_id WHERE e._meta.id = 'id-7'"
    ).collect()
    assert row["bucket"] == deployment.bucket
    content = deployment.s3.client.get_object(Bucket=row["bucket"], Key=row["object"])["Body"].read()
    assert "id-7" in [one["_meta"]["id"] for one in read_rows(content, row["object"])[0]]


def test_replay_mark_is_no_row_and_the_audit_takes_what_it_names_as_mended(
    deployment: ByHand, lake_of: Callable[..., Lake]
) -> None:
    """By the settings for which the replay was made nothing is wrong with the old records."""
    lake = lake_of(deployment, LOGP_USER__MISSING_NAME="nobody")
    deployment.deliver(records(0))
    letters = deployment.dead_letters()
    options = Options(Window(from_ms=None, until_ms=None, padding_s=0), verdicts=False)
    found = Auditor(lambda: lake.spark, lake.settings, options).run()
    assert {one.kind for one in found.findings} == {Kind.DEAD_LETTER_UNEXPECTED}

    offsets = tuple(one.offset() or 0 for one in letters)
    mark = encode_replay_mark(ReplayMark(group_id=deployment.group, replayed_at_ms=1, offsets=offsets))
    headers = {"ce_type": REPLAY_TYPE.encode()}
    deployment.kafka.produce(deployment.dead_letters_topic, [ToProduce(value=mark, partition=0, headers=headers)])
    assert Auditor(lambda: lake.spark, lake.settings, options).run().exit_code is ExitCode.CLEAN
    Materialize(lake.spark, lake.settings).run(continuous=False)
    assert announced(lake, "dead_letters", "message_offset") == list(offsets)


def test_message_of_another_kind_is_a_row_of_its_place(deployment: ByHand, lake_of: Callable[..., Lake]) -> None:
    """It belongs to no batch, and nothing more is known of it; an unknown message of references ends the job."""
    lake = lake_of(deployment)
    for topic in (deployment.flushes_topic, deployment.dead_letters_topic, deployment.references_topic):
        deployment.kafka.produce(topic, [ToProduce(value=b"?", partition=0)])
    with pytest.raises(PipelineError, match="offset 0 is no message of references that this code knows"):
        Materialize(lake.spark, lake.settings).run(continuous=False)
    for table in ("flushes", "dead_letters", "references"):
        assert announced(lake, table, "message_offset", "batch_id") == [(0, None)]


def test_references_that_were_announced_before(lake_of: Callable[..., Lake], deployment: ByHand) -> None:
    """They come from messages below the offsets; no file of another hour is read."""
    lake = lake_of(deployment)
    table = AnnouncedTable(lake.spark, lake.settings, REFERENCES)
    table.ensure()
    told = {"a": (0, 0, 0), "b": (0, 5, 1), "c": (1, 5, 2), "d": (1, 6, 10_000)}
    rows = [
        {"reference_id": name, "message_partition": partition, "message_offset": offset, "announced_at": 0}
        | {"event_time_min": TIME_US + hours * HOUR_US}
        for name, (partition, offset, hours) in told.items()
    ]
    target = table.target()
    batches = pa.Table.from_pylist(rows, arrow_schema(target.fields)).to_batches()
    table.append(write_rows(batches, target, s3=lake.settings.worker.s3), base={}, offsets={0: 6, 1: 7}, rows=4)
    asked = [reference(name, hours) for name, (_, _, hours) in told.items()]
    assert table.announced_before(asked, {0: 5, 1: 6}) == {"a", "c"}
    assert table.announced_before(asked, {0: 6}) == {"a", "b"}
    assert table.announced_before(asked, {}) == set()
    assert table.announced_before([reference("e", 1)], {0: 6, 1: 7}) == set()


def records(first: int) -> list[ToProduce]:
    """Make records of two users, and one of none."""
    entries: list[dict[str, Any]] = [
        {"user": f"u{number % 2}", "time": TIME_US // 1000 + number, "id": f"id-{number}"}
        for number in range(first, first + 20)
    ]
    del entries[3]["user"]
    return [
        ToProduce(value=json.dumps(one).encode(), partition=number % 3, timestamp_ms=TIME_US // 1000)
        for number, one in enumerate(entries)
    ]


def announced(lake: Lake, table: str, *names: str) -> list[Any]:
    """Read columns of a table, sorted: tuples, or the values of a single column."""
    rows: list[Row] = lake.spark.table(f"lake.logs.{table}").select(*names).collect()
    return sorted(tuple(row) if len(names) > 1 else row[0] for row in rows)


def reference(name: str, hours: int) -> Any:
    """Make a reference to an entry of so many hours later."""
    time_us = TIME_US + hours * HOUR_US
    return replace(REFERENCE, reference_id=name, event_time_min_us=time_us, event_time_max_us=time_us)


def forget(kafka: KafkaHelper, topic: str) -> None:
    """Delete what a topic has, as retention does."""
    numbers = kafka.admin.list_topics(topic).topics[topic].partitions
    for done in kafka.admin.delete_records([TopicPartition(topic, number, OFFSET_END) for number in numbers]).values():
        done.result()
