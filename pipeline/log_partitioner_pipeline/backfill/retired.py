"""Entries of references whose objects are retired; the table has them, under the references' ids (ADR 10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from log_partitioner_pipeline.columns import META, REFERENCE
from log_partitioner_pipeline.errors import RangeError
from log_partitioner_pipeline.frames import ENTRY_KEY
from log_partitioner_pipeline.session import CATALOG
from log_partitioner_pipeline.table import load_table, position_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from log_partitioner_pipeline.backfill.ranges import Ranges
    from log_partitioner_pipeline.config import JobSettings

_SHOWN = 3
_RANGE = "topic string, partition int, start bigint, stop bigint"


def places_of_retired(spark: SparkSession, settings: JobSettings, references: DataFrame, ranges: Ranges) -> DataFrame:
    """Return the entries within the ranges of references whose objects are retired: columns of a place.

    Blocks to make sure that the table has them all; they are read from the same snapshot.

    Raises:
        RangeError: it lacks some, so that nobody can tell which entries were held.
    """
    name = f"{CATALOG}.{settings.pipeline.table.name}"
    if not spark.catalog.tableExists(name):
        raise RangeError(f"objects of this range are retired, and there is no table {name} to tell what they held")
    snapshot_id = position_of(load_table(spark, name)).snapshot_id
    rows = (
        spark.read.option("versionAsOf", str(snapshot_id))
        .table(name)
        .select(F.col(REFERENCE).alias("reference_id"), *[F.col(f"{META}.{field}").alias(field) for field in ENTRY_KEY])
    )
    counted = rows.groupBy("reference_id").agg(F.count("*").alias("rows"))
    lacking = (
        references.join(counted, on="reference_id", how="left")
        .where(F.coalesce("rows", F.lit(0)) < F.col("entries"))
        .select("reference_id")
    )
    if shown := [row["reference_id"] for row in lacking.limit(_SHOWN).collect()]:
        raise RangeError(
            f"objects of this range are retired, and {name} lacks entries of references {', '.join(shown)}: "
            "what they held cannot be told"
        )
    theirs = rows.join(references.select("reference_id"), on="reference_id", how="left_semi")
    inside = (F.col("offset") >= F.col("start")) & (F.col("offset") < F.col("stop"))
    within = theirs.join(F.broadcast(frame_of(spark, ranges)), on=["topic", "partition"], how="inner").where(inside)
    return within.select(*ENTRY_KEY)


def intersecting(spark: SparkSession, references: DataFrame, ranges: Ranges) -> DataFrame:
    """Choose references that may hold entries of these ranges."""
    spans = F.broadcast(frame_of(spark, ranges))
    sources = references.select("reference_id", F.inline("sources")).drop("entries")
    reaches = (F.col("min_offset") < F.col("stop")) & (F.col("max_offset") >= F.col("start"))
    ids = sources.join(spans, on=["topic", "partition"], how="inner").where(reaches).select("reference_id").distinct()
    return references.join(ids, on="reference_id", how="left_semi")


def frame_of(spark: SparkSession, ranges: Ranges) -> DataFrame:
    """Return ranges as a frame."""
    return spark.createDataFrame([(*tp, span.start, span.stop) for tp, span in sorted(ranges.items())], _RANGE)
