"""Raw objects past their retention: recorded as retired in a table, then deleted; only what is in the table (ADR 10).

    references topic -> objects with every hour in them -> may they go (retention.py)?
        -> compared with the table, value by value (table_check.py) -> recorded -> deleted

An object goes when all its contents may: a pack stays for the last of its hours. Nothing is listed. An object is
recorded in a commit before it is deleted: a driver that is killed in between leaves objects that the next run judges
and compares like any other, and deletes, or whose record it withdraws.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import structlog
from pyspark.sql import functions as F
from pyspark.sql import types as T

from log_partitioner.formats.model import TopicPartition
from log_partitioner.proof.audit.store import Address
from log_partitioner_pipeline.acknowledged import Acknowledgements
from log_partitioner_pipeline.audit.audited import read_passed
from log_partitioner_pipeline.changes import change_by_others
from log_partitioner_pipeline.errors import TableError
from log_partitioner_pipeline.frames import Kept, struct
from log_partitioner_pipeline.kafka import partition_ends, read_messages
from log_partitioner_pipeline.objects import Objects
from log_partitioner_pipeline.reference_rows import reference_lines
from log_partitioner_pipeline.retention import Grounds, Place, RawObject, refusal_of
from log_partitioner_pipeline.retired import RetiredObjects
from log_partitioner_pipeline.table import load_table
from log_partitioner_pipeline.table_check import OBJECT, Outcome, compare_with_table
from log_partitioner_pipeline.whose import of_history

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from log_partitioner.formats.flush_record import Lineage
    from log_partitioner_pipeline.config import JobSettings
    from log_partitioner_pipeline.table import Position, Table

_PLACE = ("message_partition", "message_offset", "date", "hour")
_ABOUT = ("size", "etag", "checksum", "announced_at", "is_whole", "places")
_RECORDED = ["bucket", "object", "version_id", *_ABOUT]
_OBJECT = list(OBJECT)
_REFUSAL = pa.field("refusal", pa.string())
_SHOWN = 3
_OBJECTS_MAX = 10_000  # that one run retires, the oldest


class Retired(NamedTuple):
    """Objects that one run has deleted."""

    objects: int = 0
    bytes: int = 0


class JudgedObjects(NamedTuple):
    """Objects that may go, if the table holds what is in them, and those that stay, by reason (`retention.Refusal`)."""

    may_go: int
    refused: dict[str, int]


class Retirement:
    """One run; `retention_s` is seconds since the newest message that names an object.

    The message's timestamp says since when readers could have had the object. The times of its entries do not, because
    a backfill brings old ones today.
    """

    def __init__(
        self, spark: SparkSession, settings: JobSettings, table: Table, *, retention_s: float, lineage: Lineage
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._topic = settings.worker.kafka.references_topic
        self._table = table
        self._retention_s = retention_s
        self._lineage = lineage
        self._retired = RetiredObjects(spark, settings)
        self._objects = Objects(settings.worker.s3)
        self._log = structlog.get_logger("retire")

    def run(self, *, run_id: str) -> Retired:
        """Compare retirable objects with the table, record and delete those that it holds; blocks until S3 is done.

        Raises:
            TableError: the table lacks rows of some objects, which stay, while the others are deleted all the same; or
                others have changed the table meanwhile, and nothing is deleted.
            PipelineError: brokers or S3 do not answer; the next run compares again the objects recorded by then.
        """
        self._retired.ensure()
        position = self._table.position()
        with Kept() as kept:
            references = kept.keep(self._references())
            chosen = kept.keep(self._choose(references, self._grounds(position), kept))
            if chosen.isEmpty():
                return Retired()
            said = references.join(chosen.select(*_OBJECT), on=_OBJECT, how="left_semi")
            outcomes = compare_with_table(self._spark, self._settings, kept.keep(said))
            compared = kept.keep_apart(chosen.join(outcomes, on=_OBJECT, how="inner"))
            self._require_unchanged(position)
            return self._retire(compared, position, run_id=run_id)

    def judge(self) -> JudgedObjects:
        """Count the objects that may go and those that stay; changes nothing."""
        with Kept() as kept:
            return _count(self._judge(self._references(), self._grounds(self._table.position()), kept))

    def _grounds(self, position: Position) -> Grounds:
        passed = read_passed(self._spark, self._settings, self._lineage, table_id=position.table_id)
        return Grounds(
            before_ms=_now_ms() - round(self._retention_s * 1000),
            taken=position.offsets,
            known=passed.offsets,
            passed=passed.hours,
        )

    def _choose(self, references: DataFrame, grounds: Grounds, kept: Kept) -> DataFrame:
        """Outline: all objects of the topic -> without those deleted -> judged -> so many, those recorded first."""
        judged = self._judge(references, grounds, kept)
        self._log.info("objects_judged", **_count(judged)._asdict())
        may_go = judged.where(F.col("refusal").isNull()).drop("refusal", "is_deleted")
        in_order = may_go.orderBy(F.col("is_recorded").desc(), "announced_at", *_OBJECT)
        return in_order.limit(_OBJECTS_MAX)

    def _judge(self, references: DataFrame, grounds: Grounds, kept: Kept) -> DataFrame:
        recorded = self._retired.pin().rows
        if recorded is None:
            recorded = self._spark.createDataFrame([], "bucket string, object string, deleted_at timestamp")
        known = recorded.groupBy(*_OBJECT).agg(F.bool_or(F.col("deleted_at").isNotNull()).alias("is_deleted"))
        every = objects_of(references).join(known, on=_OBJECT, how="left")
        marked = every.where("is_deleted IS NULL OR NOT is_deleted").withColumn(
            "is_recorded", F.col("is_deleted").isNotNull()
        )
        return kept.keep(_judged(marked, grounds))

    def _references(self) -> DataFrame:
        """Return every line of the topic that belongs to the table's history, with its object."""
        ends = partition_ends(self._settings.worker.kafka, self._topic)
        ranges = {TopicPartition(self._topic, number): (end.first, end.next) for number, end in ends.items()}
        lines = reference_lines(read_messages(self._spark, self._settings.worker.kafka, ranges))
        of_location = [F.col(f"location.{name}").alias(name) for name in (*_OBJECT, "version_id", "size", "etag")]
        checksum = F.concat_ws(":", "location.checksum.algorithm", "location.checksum.value").alias("checksum")
        named = Acknowledgements(self._spark, self._settings).read().without(lines.where("reference_id IS NOT NULL"))
        ours = of_history(named, self._lineage, "sources")
        return ours.select("*", *of_location, checksum)

    def _retire(self, compared: DataFrame, position: Position, *, run_id: str) -> Retired:
        """Outline: withdraw what is recorded and not in the table -> record the rest -> look once more -> delete."""
        rows = compared.select("bucket", "object", "version_id", "size", "is_recorded", "outcome", "text").collect()
        others = [row for row in rows if row["outcome"] == Outcome.OTHER]
        self._retired.withdraw([_address(row) for row in others if row["is_recorded"]])
        fresh = compared.where((F.col("outcome") == Outcome.SAME) & ~F.col("is_recorded"))
        if any(row["outcome"] == Outcome.SAME and not row["is_recorded"] for row in rows):
            self._retired.record(fresh.select(*_RECORDED), run_id=run_id, at_ms=_now_ms())
        self._require_unchanged(position)
        # What is recorded and gone a run has deleted that was stopped before it could say so.
        going = [row for row in rows if row["outcome"] == Outcome.SAME or (_is_gone(row) and row["is_recorded"])]
        done = self._delete(going)
        absent = sum(_is_gone(row) and not row["is_recorded"] for row in rows)
        self._log.info("objects_retired", **done._asdict(), differing=len(others), absent=absent)
        if others:
            shown = "; ".join(f"s3://{row['bucket']}/{row['object']}: {row['text']}" for row in others[:_SHOWN])
            raise TableError(
                f"{len(others)} raw objects stay though an audit has passed them, since {self._table.name} has other "
                f"rows now, or they are altered: {shown}. An audit with --table names the entries"
            )
        return done

    def _require_unchanged(self, position: Position) -> None:
        """Make sure that nobody but this pipeline has changed the table since: by its metadata, one request.

        Raises: TableError: it names the change.
        """
        change = change_by_others(load_table(self._spark, self._table.name), position)
        if change is not None:
            raise TableError(
                f"{self._table.name} was changed while raw objects were compared with it: {change}; no object was "
                "deleted, the next run compares again"
            )

    def _delete(self, rows: list[Row]) -> Retired:
        addresses = [_address(row) for row in rows]
        self._delete_objects(addresses)
        self._retired.mark_deleted(addresses, at_ms=_now_ms())
        return Retired(len(rows), sum(row["size"] for row in rows))

    def _delete_objects(self, addresses: list[Address]) -> None:
        self._objects.delete(addresses)


def objects_of(references: DataFrame) -> DataFrame:
    """Return the objects of references, with the announcers of their hours, and whether all bytes are accounted for.

    If references name a key as several objects (versions, say), the object counts as not whole.
    """
    blocks = F.array_sort(F.collect_list(F.struct("start", (F.col("start") + F.col("length")).alias("end"))))
    are_dated = F.count("message_timestamp_ms") == F.count("*")
    found = references.groupBy(*_OBJECT).agg(
        *[F.max(name).alias(name) for name in ("version_id", "size", "etag", "checksum")],
        F.when(are_dated, F.timestamp_millis(F.max("message_timestamp_ms"))).alias("announced_at"),
        blocks.alias("blocks"),
        F.size(F.collect_set(F.struct("version_id", "size", "etag", "checksum"))).alias("objects"),
        F.min("header_bytes").alias("header_bytes"),
        F.collect_set(F.struct(*[F.col(name).alias(name.removeprefix("message_")) for name in _PLACE])).alias("places"),
    )
    reached = F.expr(
        "aggregate(blocks, header_bytes, (at, one) -> if(one.start <= at, greatest(at, one.end), at))"
    )  # a hole is never passed: what comes behind it begins later still
    is_whole = (reached >= F.col("size")) & (F.col("objects") == 1)
    return found.withColumn("is_whole", is_whole).drop("blocks", "header_bytes", "objects")


def _address(row: Row) -> Address:
    return Address(row["bucket"], row["object"], row["version_id"])


def _is_gone(row: Row) -> bool:
    return bool(row["outcome"] == Outcome.GONE)


def _judged(objects: DataFrame, grounds: Grounds) -> DataFrame:
    """Add `refusal`: why an object stays, null if it may go."""
    schema = T.StructType([*objects.schema, *struct(refusal=T.StringType())])
    return objects.mapInArrow(partial(judge_batches, grounds=grounds), schema)


def _count(judged: DataFrame) -> JudgedObjects:
    refused = {row["refusal"]: row["count"] for row in judged.groupBy("refusal").count().collect()}
    return JudgedObjects(refused.pop(None, 0), refused)


def judge_batches(batches: Iterable[pa.RecordBatch], *, grounds: Grounds) -> Iterator[pa.RecordBatch]:
    """Judge objects; runs on the executors."""
    for batch in batches:
        refusals = pa.array([refusal_of(_raw(row), grounds) for row in batch.to_pylist()], pa.string())
        yield pa.RecordBatch.from_arrays([*batch.columns, refusals], schema=batch.schema.append(_REFUSAL))


def _raw(row: dict[str, Any]) -> RawObject:
    announced = row["announced_at"]
    places = tuple(Place(**one) for one in row["places"])
    return RawObject(row["is_whole"], None if announced is None else round(announced.timestamp() * 1000), places)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
