"""Raw objects past their retention: recorded as retired in a table, then deleted; only what is in the table (DESIGN 8).

    references topic -> objects with every hour in them -> may they go (retention.py)? -> recorded -> deleted

An object goes when all that it holds may: a pack stays for the last of its hours. Nothing is listed. An object is
recorded in a commit before it is deleted: a driver that is killed in between leaves objects that the next run judges
again, and deletes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import structlog
from pyspark import StorageLevel
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pipeline.activity.tables import StateTable
from pipeline.audit.verdicts import read_passed
from pipeline.columns import REFERENCE
from pipeline.kafka import partition_ends
from pipeline.objects import Objects
from pipeline.retention import Grounds, Place, RawObject, refusal_of
from pipeline.retired import RetiredObjects
from pipeline.session import CATALOG
from pipeline.topics import read_messages, reference_lines
from service.core.avro_schema import META
from service.core.model import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.config import JobSettings
    from pipeline.objects import Address
    from pipeline.table import Position, Table

_THREADS = 1
_PLACE = ("message_partition", "message_offset", "date", "hour")
_ABOUT = ("size", "etag", "checksum", "announced_at", "is_whole", "places")
_RECORDED = ["bucket", "object", "version_id", *_ABOUT]
_OBJECT = ["bucket", "object"]
_REFUSAL = pa.field("refusal", pa.string())


class Retired(NamedTuple):
    """What one run has deleted."""

    objects: int = 0
    bytes: int = 0


class Retirement:
    """One run; `retention_s` is seconds since the newest message that names an object.

    The message's timestamp says since when readers could have had the object. The times of its entries do not: a
    backfill brings old ones today.
    """

    def __init__(self, spark: SparkSession, settings: JobSettings, table: Table, *, retention_s: float) -> None:
        self._spark = spark
        self._settings = settings
        self._topic = settings.worker.kafka.references_topic
        self._table = table
        self._retention_s = retention_s
        self._retired = RetiredObjects(spark, settings)
        self._objects = Objects(settings.worker.s3, threads=_THREADS)
        self._log = structlog.get_logger("retire")

    def run(self, *, run_id: str) -> Retired:
        """Record what may go, then delete what is recorded and may still go; blocks until S3 has deleted it.

        Raises:
            PipelineError: brokers or S3 do not answer; what is recorded by then the next run deletes.
        """
        self._retired.ensure()
        position = self._table.position()
        grounds = self._grounds(position)
        self._record(grounds, position, run_id=run_id)
        return self._delete(grounds)

    def _grounds(self, position: Position) -> Grounds:
        settings = self._settings.pipeline
        passed = read_passed(self._spark, name=settings.audit.verdicts_table, references_topic=self._topic)
        readers = [position.offsets]
        counted = settings.activity.hours_table
        if self._spark.catalog.tableExists(f"{CATALOG}.{counted}"):
            readers.append(read_offsets(self._spark, counted, self._topic))
        return Grounds(
            before_ms=_now_ms() - round(self._retention_s * 1000),
            readers=tuple(readers),
            passed={(one.date, one.hour): one.table_offsets for one in passed},
        )

    def _record(self, grounds: Grounds, position: Position, *, run_id: str) -> None:
        """Outline: all objects of the topic -> those not recorded yet -> judged -> those the table has every row of."""
        known = self._retired.read()
        assert known is not None, "it was created"
        references = self._references().persist(StorageLevel.DISK_ONLY)
        fresh = objects_of(references).join(known.select(*_OBJECT), on=_OBJECT, how="left_anti")
        judged = _judged(fresh, grounds).persist(StorageLevel.DISK_ONLY)
        try:
            refused = {
                row["refusal"]: row["n"] for row in judged.groupBy("refusal").agg(F.count("*").alias("n")).collect()
            }
            may_go = refused.pop(None, 0)
            if may_go:
                oldest = judged.where(F.col("refusal").isNull()).orderBy("announced_at", *_OBJECT)
                chosen = oldest.limit(self._settings.pipeline.compact.retired_max).persist(StorageLevel.DISK_ONLY)
                whole = self._whole(chosen, references, position)
                self._retired.record(whole.select(*_RECORDED), run_id=run_id, at_ms=_now_ms())
                chosen.unpersist()
            self._log.info("objects_judged", may_go=may_go, refused=refused)
        finally:
            judged.unpersist()
            references.unpersist()

    def _references(self) -> DataFrame:
        """Give every line of the topic, with the object that it is of."""
        ends = partition_ends(self._settings.worker.kafka, self._topic)
        ranges = {TopicPartition(self._topic, number): (end.first, end.next) for number, end in ends.items()}
        lines = reference_lines(read_messages(self._spark, self._settings.worker.kafka, ranges))
        of_location = [F.col(f"location.{name}").alias(name) for name in (*_OBJECT, "version_id", "size", "etag")]
        checksum = F.concat_ws(":", "location.checksum.algorithm", "location.checksum.value").alias("checksum")
        return lines.where(F.col("reference_id").isNotNull()).select("*", *of_location, checksum).drop("location")

    def _whole(self, objects: DataFrame, references: DataFrame, position: Position) -> DataFrame:
        """Leave out objects of which the table has not as many rows as their references say: a last look."""
        said = references.join(objects.select(*_OBJECT), on=_OBJECT, how="left_semi")
        times = said.agg(F.min("event_time_min_us").alias("first"), F.max("event_time_max_us").alias("last")).first()
        assert times is not None, "an aggregate has one row"
        first, last = (F.timestamp_micros(F.lit(times[name])) for name in ("first", "last"))
        rows = (
            self._spark.read.option("versionAsOf", str(position.snapshot_id))
            .table(self._table.name)
            .where(F.col(f"{META}.event_time").between(first, last))
            .groupBy(F.col(REFERENCE).alias("reference_id"))
            .agg(F.count("*").alias("rows"))
        )
        lacking = (
            said.groupBy(*_OBJECT, "reference_id")
            .agg(F.max("entries").alias("entries"))
            .join(rows, on="reference_id", how="left")
            .where(~F.col("entries").eqNullSafe(F.coalesce("rows", F.lit(0))))
            .select(*_OBJECT)
            .distinct()
            .persist(StorageLevel.DISK_ONLY)
        )
        count = lacking.count()
        if count:
            self._log.warning("rows_lacking", objects=count, table=self._table.name)
        return objects.join(lacking, on=_OBJECT, how="left_anti")

    def _delete(self, grounds: Grounds) -> Retired:
        recorded = self._retired.read()
        assert recorded is not None, "it was created"
        pending = _judged(recorded.where(F.col("deleted_at").isNull()), grounds).where(F.col("refusal").isNull())
        rows = pending.select("bucket", "object", "version_id", "size").collect()
        if not rows:
            return Retired()
        addresses = [(row["bucket"], row["object"], row["version_id"]) for row in rows]
        self._delete_objects(addresses)
        self._retired.mark_deleted(addresses, at_ms=_now_ms())
        done = Retired(len(rows), sum(row["size"] for row in rows))
        self._log.info("objects_retired", **done._asdict())
        return done

    def _delete_objects(self, addresses: list[Address]) -> None:
        self._objects.delete(addresses)


def objects_of(references: DataFrame) -> DataFrame:
    """Give the objects of references: who has announced which hours of theirs, and whether every byte is someone's."""
    blocks = F.array_sort(F.collect_list(F.struct("start", (F.col("start") + F.col("length")).alias("end"))))
    are_dated = F.count("message_timestamp_ms") == F.count("*")
    found = references.groupBy(*_OBJECT).agg(
        *[F.max(name).alias(name) for name in ("version_id", "size", "etag", "checksum")],
        F.when(are_dated, F.timestamp_millis(F.max("message_timestamp_ms"))).alias("announced_at"),
        blocks.alias("blocks"),
        F.min("header_bytes").alias("header_bytes"),
        F.collect_set(F.struct(*[F.col(name).alias(name.removeprefix("message_")) for name in _PLACE])).alias("places"),
    )
    reached = F.expr(
        "aggregate(blocks, header_bytes, (at, one) -> if(one.start <= at, greatest(at, one.end), at))"
    )  # a hole is never passed: what comes behind it begins later still
    return found.withColumn("is_whole", reached >= F.col("size")).drop("blocks", "header_bytes")


def _judged(objects: DataFrame, grounds: Grounds) -> DataFrame:
    """Add `refusal`: why an object stays, null where it may go."""
    schema = T.StructType([*objects.schema.fields, T.StructField("refusal", T.StringType())])
    return objects.mapInArrow(partial(judge_batches, grounds=grounds), schema)


def judge_batches(batches: Iterable[pa.RecordBatch], *, grounds: Grounds) -> Iterator[pa.RecordBatch]:
    """Judge objects; runs on the executors."""
    for batch in batches:
        refusals = pa.array([refusal_of(_raw(row), grounds) for row in batch.to_pylist()], pa.string())
        yield pa.RecordBatch.from_arrays([*batch.columns, refusals], schema=batch.schema.append(_REFUSAL))


def _raw(row: dict[str, Any]) -> RawObject:
    announced = row["announced_at"]
    places = tuple(Place(**one) for one in row["places"])
    return RawObject(row["is_whole"], None if announced is None else round(announced.timestamp() * 1000), places)


def read_offsets(spark: SparkSession, name: str, topic: str) -> dict[int, int]:
    """Read how far the activity of users is counted."""
    return StateTable(spark, name, columns=T.StructType([]), key=[], run="").offsets(topic)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
