"""Objects under the prefix, and objects with all who name them: no brokers."""

from collections.abc import Iterable, Iterator
from itertools import chain

import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from log_partitioner.config.s3_settings import S3Settings
from log_partitioner.config.settings import KafkaSettings, Settings
from log_partitioner.formats.model import PartitionKey
from log_partitioner.formats.reference import encode_message
from log_partitioner_pipeline.audit import listing
from log_partitioner_pipeline.audit.listing import sort_out
from log_partitioner_pipeline.objects import Listed
from log_partitioner_pipeline.reference_rows import reference_lines
from log_partitioner_pipeline.retire import objects_of
from tests.pipeline.packs import Entry, Written, split_message, write_object


def messages_of(spark: SparkSession, values: Iterable[bytes]) -> DataFrame:
    """Give messages as `kafka.read_messages` does."""
    rows = [(0, at, 5, b"ok", value) for at, value in enumerate(values)]
    return spark.createDataFrame(rows, "partition int, offset long, timestamp_ms long, key binary, value binary")


def pack_of(batch_id: str, users: int) -> Written:
    """Write a pack of so many users with one entry each."""
    entries = [Entry(PartitionKey(f"u{at}", "2026-03-04", 5 + at % 2), {"n": at}, at) for at in range(users)]
    return write_object(entries, batch_id=batch_id, object_key=f"p/pack/{batch_id}-0.avro")


def test_objects_are_sorted_by_who_names_them(spark: SparkSession) -> None:
    """Old ones and a new one; backfills that have published all or nothing, and one without a manifest."""
    hour = "p/user=u/date=2026-03-04/hour=05"
    of_run = {
        run: [f"{hour}/backfill-{run}-0123abcd-7.avro", f"p/_dead-letters/backfill-{run}-0123abcd-8.record.json"]
        for run in ("done", "x", "x-1", "half", "dead")
    }
    manifests = {run: f"p/_backfill/{run}/manifest.json" for run in ("done", "x-1", "half")}
    ages = dict.fromkeys(
        [*chain(*of_run.values()), f"{hour}/b-1.avro", "p/_schemas/named.avsc", "p/_dead-letters/l"], 1
    )
    ages |= {"p/pack/b-2.avro": 1, "p/pack/date=2026-03-04/hour=05/b-3.avro": 1}
    ages |= {f"{hour}/stray.avro": 1, f"{hour}/new.avro": 9, "p/_schemas/stray.avsc": 1, "p/deeper/user=u/b-1.avro": 1}
    ages |= dict.fromkeys(manifests.values(), 9) | {"p/_backfill/dead/part.json": 1}
    named = spark.createDataFrame(
        [(key,) for key in (f"{hour}/b-1.avro", "p/pack/b-2.avro", "p/_schemas/named.avsc", "p/_dead-letters/l")],
        "object string",
    )
    listed = spark.createDataFrame(
        [(key, 5, age) for key, age in ages.items()], "object string, size long, modified_ms long"
    )
    s3 = S3Settings(bucket="bucket", prefix="p")
    found = sort_out(listed, named, s3, finished=["backfill-done"], before_ms=5)
    names = {
        name: sorted(row["object"] for row in frame.select("object").collect())
        for name, frame in found._asdict().items()
        if name != "old"
    }
    orphans = [
        f"{hour}/stray.avro",
        "p/pack/date=2026-03-04/hour=05/b-3.avro",
        *of_run["done"],
        *of_run["x"],
        *of_run["dead"],
    ]
    assert names == {
        "orphans": sorted(orphans),
        "awaited": sorted([*of_run["x-1"], *of_run["half"], "p/_schemas/stray.avsc"]),
        "outboxes": ["p/_backfill/dead/part.json"],
        "foreign": ["p/deeper/user=u/b-1.avro"],
    }
    assert found.old.count() == len([age for age in ages.values() if age < 5])
    kept = listed.where(~F.col("object").endswith("/manifest.json"))
    found = sort_out(kept, named, s3, finished=["backfill-done"], before_ms=5)
    assert found.awaited.isEmpty()
    assert "p/_schemas/stray.avsc" in {row["object"] for row in found.orphans.collect()}


def test_an_object_is_judged_with_all_its_hours(spark: SparkSession) -> None:
    """Each message that names it counts; it is not whole if the topic lost a line or its messages name two versions."""
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


def test_object_by_which_workers_check_the_store_is_no_orphan(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there in every healthy bucket; nothing names it."""

    class Bucket:
        def __init__(self, *_: object, **__: object) -> None:
            """Take what the real one takes."""

        def list(self, _bucket: str, prefix: str) -> Iterator[Listed]:
            """Give an object, and that of the check."""
            yield Listed(f"{prefix}_check", 1, 0)
            yield Listed(f"{prefix}user=a/_check", 1, 0)

    monkeypatch.setattr(listing, "Objects", Bucket)
    kafka = KafkaSettings(bootstrap_servers="b:1", source_topics=("t",))
    settings = Settings(kafka=kafka, s3=S3Settings(bucket="b", prefix="logs"))
    one_row = iter([pa.RecordBatch.from_pylist([{"id": 0}])])

    (batch,) = listing._list(one_row, settings=settings)

    assert batch.column("object").to_pylist() == ["logs/user=a/_check"]
