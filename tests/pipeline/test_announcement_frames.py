"""What is announced, as frames: parts of flush records, bytes and schemas of objects, hours in them. No brokers."""

import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from log_partitioner.formats.findings import Kind
from log_partitioner.formats.flush_record import (
    FlushedTopicPartition,
    FlushRecord,
    FlushTotals,
    Lineage,
    encode_adoption,
    encode_flush_record,
    split_parts,
)
from log_partitioner.formats.model import PartitionKey
from log_partitioner.formats.reference import encode_message
from log_partitioner_pipeline.audit import frames, judged, sides
from log_partitioner_pipeline.audit.accounts import wrong_messages
from log_partitioner_pipeline.audit.announced import read_announced
from log_partitioner_pipeline.audit.findings import union
from log_partitioner_pipeline.audit.ground import Announced
from log_partitioner_pipeline.audit.object_bytes import wrong_bytes
from log_partitioner_pipeline.audit.schemas import wrong_schemas
from log_partitioner_pipeline.retire import objects_of
from log_partitioner_pipeline.topics import flush_records, reference_lines, references
from tests.golden.example import ADOPTION, GOLDEN
from tests.pipeline.conftest import pipeline_variables, settings_of
from tests.pipeline.packs import BUCKET, Entry, Written, split_message, write_object
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper


def messages_of(spark: SparkSession, values: Iterable[bytes]) -> DataFrame:
    """Give messages as `kafka.read_messages` does."""
    rows = [(0, at, 5, b"ok", value) for at, value in enumerate(values)]
    return spark.createDataFrame(rows, "partition int, offset long, timestamp_ms long, key binary, value binary")


def flush_of(batch_id: str, lines: int) -> FlushRecord:
    """Make a flush record of so many TopicPartitions, ten records in each."""
    numbers = {"records": 10, "entries": 10, "dead_letters": 0}
    spans = {"first_offset": 0, "next_offset": 10, "min_offset": 0, "max_offset": 9}
    times = {"timestamp_max_ms": None, "idle_since_ms": None}
    totals = {name: lines * count for name, count in numbers.items()}
    return FlushRecord(
        batch_id=batch_id,
        group_id="g",
        topic_ids={},
        worker="w",
        boot="boot",
        seq=1,
        generation=1,
        reason="interval",
        started_at_ms=1,
        ended_at_ms=2,
        step_seconds={},
        topic_partitions=tuple(
            FlushedTopicPartition(topic="t", partition=number, **numbers, **spans, **times) for number in range(lines)
        ),
        totals=FlushTotals(**totals, entries_in_files=lines * 10, dead_letter_records=0, references=1, bytes=1),
    )


def test_parts_of_a_flush_record_are_one(spark: SparkSession) -> None:
    """In any order, beside others that came whole; where a part is missing that is said, and nothing that follows."""
    whole, parted, short = (flush_of(batch, 5) for batch in ("whole", "parted", "short"))
    parts, some = (list(split_parts(one, bytes_max=1)) for one in (parted, short))
    assert len(parts) == 5
    values = [encode_flush_record(one) for one in (*parts[::-1], whole, *some[:1], *some[3:])]
    values.append(encode_adoption(ADOPTION))  # which is none
    found = flush_records(messages_of(spark, [*values, b"none"])).collect()
    assert sorted(
        (row["batch_id"], [line["partition"] for line in row["topic_partitions"]], row["wrong_parts"])
        for row in found
        if row["batch_id"] is not None
    ) == [
        ("parted", [0, 1, 2, 3, 4], None),
        ("short", [0, 3, 4], "parts 1, 4, 5 of 5"),
        ("whole", [0, 1, 2, 3, 4], None),
    ]
    assert len(found) == 4
    flushes = flush_records(messages_of(spark, values)).where("batch_id is not null")
    flushes = flushes.withColumns({name: F.lit(None).cast("int") for name in ("is_counted", "counted")})
    schema = to_arrow_schema(frames.FINDING)
    judge = partial(judged.judge_flushes, windows={}, excused=(), schema=schema)
    wrong = flushes.mapInArrow(judge, frames.FINDING).collect()
    assert {(row["kind"], row["batch_id"], row["text"]) for row in wrong} == {
        (Kind.FLUSH_WRONG, "short", "parts 1, 4, 5 of 5")
    }


def pack_of(batch_id: str, users: int) -> Written:
    """Write a pack of so many users with one entry each."""
    entries = [Entry(PartitionKey(f"u{at}", "2026-03-04", 5 + at % 2), {"n": at}, at) for at in range(users)]
    return write_object(entries, batch_id=batch_id, object_key=f"p/pack/{batch_id}-0.avro")


def changed(written: Written, number: int, **lines: int) -> bytes:
    """Announce a pack with other numbers in one of its lines."""
    references = list(written.message.references)
    references[number] = replace(references[number], **lines)
    return encode_message(replace(written.message, references=tuple(references)))


def test_bytes_of_a_pack_are_those_of_one_reference_each(spark: SparkSession) -> None:
    """Nothing of a true one, in however many messages; bytes that two have, or nobody; and of others nothing."""
    true, hole, tail, overlap, same, other = (pack_of(name, 4) for name in ("ok", "hole", "tail", "over", "same", "x"))
    lengths = [line.length for line in overlap.message.references]
    starts = [line.start for line in same.message.references]
    values = [
        *map(encode_message, split_message(true.message, lines_max=1)),
        encode_message(replace(hole.message, references=hole.message.references[:1])),
        encode_message(replace(hole.message, first_number=2, references=hole.message.references[2:])),
        encode_message(replace(tail.message, references=tail.message.references[:3])),
        changed(overlap, 1, length=lengths[1] + 1),
        changed(same, 2, start=starts[1]),
        encode_message(replace(other.message, references=other.message.references[:1])),
    ]
    lines = references(messages_of(spark, values)).every
    selected = lines.where("batch_id != 'x'")
    found = union(wrong_bytes(lines, selected, short=None, excused=[])).collect()
    told = sorted((row["kind"], row["object"], row["reference_id"], row["text"]) for row in found)
    assert [one[:3] for one in told] == [
        (Kind.OBJECT_UNREFERENCED, "p/pack/hole-0.avro", None),
        (Kind.OBJECT_UNREFERENCED, "p/pack/same-0.avro", None),
        (Kind.OBJECT_UNREFERENCED, "p/pack/tail-0.avro", None),
        (Kind.REFERENCE_WRONG, "p/pack/over-0.avro", "over-2"),
        (Kind.REFERENCE_WRONG, "p/pack/same-0.avro", "same-2"),
    ]
    first, second = (line.start for line in hole.message.references[1:3])
    assert told[0][3] == f"no reference has its bytes [{first}, {second})"
    short = spark.createDataFrame([("hole",), ("tail",)], "batch_id string")
    found = union(wrong_bytes(lines, selected, short=short, excused=["same"])).collect()
    assert sorted((row["object"], row["kind"]) for row in found) == [
        ("p/pack/over-0.avro", Kind.REFERENCE_WRONG),
        ("p/pack/same-0.avro", Kind.REFERENCE_WRONG),
    ]
    keys = union([wrong_messages(lines, bucket=BUCKET)]).collect()
    assert sorted(row["batch_id"] for row in keys) == ["hole", "hole", "over", "same", "tail", "x"]
    elsewhere = union([wrong_messages(lines.where("is_keyed"), bucket="another")]).collect()
    assert {row["text"].partition(": ")[2] for row in elsewhere} == {"its bucket is not another, as the settings say"}


def test_schemas_are_those_of_their_references(spark: SparkSession, s3: S3Helper, names: Names) -> None:
    """A text or an object that is another's, and a field that no reference of the batch has; nothing of true ones.

    Nothing of the fields of batches of which a reference is missing, and nothing of batches that were not chosen.
    """
    bucket = s3.create_bucket(names.bucket())
    written = {name: pack_of_fields(name, bucket) for name in ("true", "text", "lacks", "short", "altered", "other")}
    for name, one in written.items():
        content = "{}" if name == "altered" else one.schema.text
        s3.client.put_object(Bucket=bucket, Key=one.message.schema.object, Body=content.encode())
    said = {name: one.message for name, one in written.items()}
    said["text"] = replace(said["text"], schema=replace(said["text"].schema, text="{}"))
    first, second = said["lacks"].references
    said["lacks"] = replace(said["lacks"], references=(first, replace(second, schema=first.schema)))
    for name in ("short", "other"):
        said[name] = replace(said[name], references=said[name].references[:1])
    every = references(messages_of(spark, map(encode_message, said.values()))).every
    totals = [(name, (1 if name == "other" else 2,)) for name in written]
    flushes = spark.createDataFrame(totals, "batch_id string, totals struct<references bigint>")
    nothing = spark.createDataFrame([], flushes.schema)
    runs = nothing.withColumns({"published": F.lit(0), "messages": F.lit(0)})
    by_batch = every.groupBy("batch_id").agg(F.count("*").alias("references"))
    announced = Announced(flushes, nothing, every, nothing, by_batch, nothing, runs, nothing, nothing, nothing)
    selected = every.where("batch_id != 'other'").withColumn("is_keyed", F.lit(True))  # noqa: FBT003 - a value of SQL
    settings = settings_of(pipeline_variables(Path()) | worker_variables(s3, bucket))
    found = union([wrong_schemas(settings, announced, selected), wrong_messages(selected, bucket=bucket)]).collect()
    altered = written["altered"].schema.fingerprint
    assert {(row["kind"], row["object"], row["batch_id"], row["text"]) for row in found} == {
        (Kind.OBJECT_ALTERED, f"p/_schemas/{altered}.avsc", None, f"its fingerprint is not {altered}"),
        (
            Kind.REFERENCE_WRONG,
            "p/pack/lacks-0.avro",
            "lacks",
            "fields of packs that none of its references has: 'b'",
        ),
        (Kind.REFERENCE_WRONG, None, "text", "message 0/1: the text of its schema has another fingerprint"),
    }


def pack_of_fields(batch_id: str, bucket: str) -> Written:
    """Write a pack of two users who have a field of their own each, and one of the batch."""
    entries = [
        Entry(PartitionKey(user, "2026-03-04", 5), {user: 1, f"of {batch_id}": 1}, at) for at, user in enumerate("ab")
    ]
    key = f"p/pack/{batch_id}-0.avro"
    return write_object(entries, batch_id=batch_id, object_key=key, bucket=bucket, with_text=True)


def worker_variables(s3: S3Helper, bucket: str) -> dict[str, str]:
    """Give the worker's settings where there are no brokers."""
    return {
        "LOGP_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "LOGP_KAFKA__SOURCE_TOPICS": '["none"]',
        **s3.endpoint.variables(bucket),
    }


def test_an_object_is_judged_with_all_its_hours(spark: SparkSession) -> None:
    """By each message that names it; not whole where the topic has lost a line, or messages name two versions of it."""
    true, short, two = pack_of("ok", 4), pack_of("short", 4), pack_of("two", 4)
    values = [
        *map(encode_message, split_message(true.message, lines_max=3)),
        encode_message(replace(short.message, references=short.message.references[1:])),
        *[encode_message(replace(two.message, object=replace(two.message.object, version_id=one))) for one in "12"],
    ]
    names = ["bucket", "object", "version_id", "size", "etag"]
    lines = reference_lines(messages_of(spark, values))
    lines = lines.select("*", *[F.col(f"location.{name}") for name in names], F.lit("c").alias("checksum"))
    found = {row["object"]: row for row in objects_of(lines).collect()}
    places = {name: sorted((one["offset"], one["hour"]) for one in row["places"]) for name, row in found.items()}
    assert places == {
        "p/pack/ok-0.avro": [(0, 5), (0, 6), (1, 6)],
        "p/pack/short-0.avro": [(2, 5), (2, 6)],
        "p/pack/two-0.avro": [(3, 5), (3, 6), (4, 5), (4, 6)],
    }
    assert [found[name]["is_whole"] for name in sorted(found)] == [True, False, False]
    assert found["p/pack/ok-0.avro"]["size"] == len(true.content)


def test_flush_and_run_records_without_a_group_are_unreadable(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of builds before there were groups: of no history, and not passed over without a word."""
    golden = [json.loads((GOLDEN / name).read_bytes()) for name in ("flush_record.json", "backfill_record.json")]
    of = {name: [json.dumps(one | {"group_id": "g"}).encode()] for name, one in zip(("f", "b"), golden, strict=True)}
    for name, one in zip(("f", "b"), golden, strict=True):
        of[name].append(json.dumps({key: value for key, value in one.items() if key != "group_id"}).encode())
    letters = spark.createDataFrame(
        [], "group_id string, topic string, partition int, offset long, end_offset long, object string"
    )
    read = "log_partitioner_pipeline.audit.announced.read_messages"
    monkeypatch.setattr(read, lambda _spark, _kafka, name: messages_of(spark, of.get(name, [])))
    monkeypatch.setattr(sides, "read_dead_letters", lambda *_: letters)
    asked: Any = SimpleNamespace(flushes="f", backfills="b", references="r", dead_letters="d")
    kept: Any = SimpleNamespace(keep=lambda frame: frame)
    chosen: Any = SimpleNamespace(
        settings=SimpleNamespace(worker=SimpleNamespace(kafka=None)), lineage=Lineage("g", []), others=[]
    )
    found = read_announced(spark, chosen, asked, kept, step=lambda _: None)
    frames_of_each = found.flushes, found.no_flushes, found.runs, found.no_runs
    assert [one.count() for one in frames_of_each] == [1, 1, 1, 1]
