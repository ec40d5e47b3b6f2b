"""Compares raw objects with the table for the last time: has it every row of an object, once, with the same values?

An object is read again, by its version, with the audit's own reader, which compares size, checksum and etag on the way;
rows are compared by position, `_meta` and the digest of their values (`oracle.equal`). So rows that were deleted or
doubled, values that were updated, and columns that were dropped or renamed are seen, whoever did it and whenever. Rows
of erased users are in objects and no more in the table: their references count as the same.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from log_partitioner.formats.findings import Kind
from log_partitioner_pipeline.audit import sides
from log_partitioner_pipeline.audit.frames import ENTRY_KEY
from log_partitioner_pipeline.columns import EVENT_TIME, REFERENCE
from log_partitioner_pipeline.erasures import Erasures
from log_partitioner_pipeline.session import CATALOG

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from log_partitioner_pipeline.config import JobSettings

OBJECT = ("bucket", "object")
_ROW = ("reference_id", *ENTRY_KEY, "user", "event_time_us", "timestamp_ms", "id", "root", "digest")
_OTHER_ROWS = "table {table} has other rows than it"


class Outcome(StrEnum):
    """The outcome of a comparison of one object."""

    SAME = "same"  # the table has each of its rows once, and no other under the ids of its references
    GONE = "gone"  # it is not there
    OTHER = "other"  # the table has other rows, or the object cannot be read, or is not what was referenced


def compare_with_table(spark: SparkSession, settings: JobSettings, references: DataFrame) -> DataFrame:
    """Return `bucket`, `object`, `outcome` and, of other ones, a `text` for each object of these references.

    `references` are all into these objects: `reference_rows.REFERENCE` with `bucket` and `object`. The table is read as
    it is when the frame is computed: a caller asks `changes.change_by_others` for changes since then. Costs a request
    and the bytes of each object, the table's rows of the time between the first entry and the last, and one shuffle of
    both.
    """
    once, erased = references.dropDuplicates([*OBJECT, "reference_id"]), Erasures(spark, settings).read()
    in_objects = sides.read_files(spark, settings, once, None).select(
        *[F.col("meta_user").alias(name) if name == "user" else F.col(name) for name in _ROW],
        F.when(F.col("topic").isNotNull(), 1).otherwise(0).alias("rows"),
        (F.col("kind") == Kind.OBJECT_MISSING).alias("is_gone"),
        F.when(F.col("topic").isNull(), F.coalesce("text", F.lit("it cannot be read"))).alias("text"),
    )
    in_table = sides.entries_of(_rows_of_table(spark, settings, once), settings).select(*_ROW, F.lit(-1).alias("rows"))
    both = in_objects.unionByName(in_table, allowMissingColumns=True).withColumn(
        "timestamp_ms", F.coalesce("timestamp_ms", F.lit(-1))
    )
    by_row = both.groupBy(*_ROW).agg(
        (F.sum("rows") != 0).alias("is_other"), _any("is_gone").alias("is_gone"), F.max("text").alias("text")
    )
    by_reference = by_row.groupBy("reference_id").agg(
        _any("is_other").alias("is_other"), _any("is_gone").alias("is_gone"), F.max("text").alias("text")
    )
    differs = F.coalesce("is_other", F.lit(True)) & ~F.col("is_erased")  # noqa: FBT003 - a value of SQL
    is_other = differs | F.col("text").isNotNull()
    outcome = F.when(_any("is_gone"), Outcome.GONE).when(F.bool_or(is_other), Outcome.OTHER).otherwise(Outcome.SAME)
    other_rows = F.lit(_OTHER_ROWS.format(table=settings.pipeline.table.name))
    return (
        once.select(*OBJECT, "reference_id", erased.column().alias("is_erased"))
        .join(by_reference, on="reference_id", how="left")
        .groupBy(*OBJECT)
        .agg(outcome.alias("outcome"), F.coalesce(F.max("text"), other_rows).alias("text"))
    )


def _rows_of_table(spark: SparkSession, settings: JobSettings, references: DataFrame) -> DataFrame:
    """Return the table's rows of these references, with the columns that it has now.

    A snapshot would be read with the columns of its own time (ADR 10): one that was dropped since would still be there.
    """
    times = references.agg(F.min("event_time_min_us").alias("first"), F.max("event_time_max_us").alias("last")).first()
    assert times is not None, "an aggregate has one row"
    first, last = (F.timestamp_micros(F.lit(times[name])) for name in ("first", "last"))
    ids = references.select(F.col("reference_id").alias(REFERENCE)).distinct()
    rows = spark.table(f"{CATALOG}.{settings.pipeline.table.name}")
    return rows.where(F.col(EVENT_TIME).between(first, last)).join(ids, on=REFERENCE, how="left_semi")


def _any(name: str) -> Column:
    return F.coalesce(F.bool_or(name), F.lit(False))  # noqa: FBT003 - a value of SQL
