"""What references held whose objects are retired: the table has it, under their ids (DESIGN 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from pipeline.columns import REFERENCE
from pipeline.errors import RangeError
from pipeline.retired import RetiredObjects
from pipeline.session import CATALOG
from pipeline.topics import references as parse_references
from service.core.avro_schema import META

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.backfill.ranges import Ranges
    from pipeline.config import JobSettings

_SHOWN = 3
_PLACE = ("topic", "partition", "offset", "index")
_RANGE = "topic string, partition int, start bigint, stop bigint"


class Split(NamedTuple):
    """Messages whose references' objects are there, and the entries within the ranges of those that are retired."""

    messages: DataFrame
    places: DataFrame | None


def split_retired(spark: SparkSession, settings: JobSettings, messages: DataFrame, ranges: Ranges) -> Split:
    """Tell references apart by whether their objects are retired; blocks to make sure that the table has the latter.

    Raises:
        RangeError: the table lacks entries of theirs, so that nobody can tell what was held.
    """
    ids = RetiredObjects(spark, settings).reference_ids()
    if ids is None:
        return Split(messages, None)
    with_id = messages.withColumn("reference_id", F.get_json_object(F.col("value").cast("string"), "$.reference_id"))
    there = with_id.join(ids, on="reference_id", how="left_anti").drop("reference_id")
    retired = _intersecting(
        spark, parse_references(messages).every.join(ids, on="reference_id", how="left_semi"), ranges
    )
    if retired.isEmpty():
        return Split(there, None)
    name = f"{CATALOG}.{settings.pipeline.table.name}"
    if not spark.catalog.tableExists(name):
        raise RangeError(f"objects of this range are retired, and there is no table {name} to tell what they held")
    rows = spark.table(name).select(
        F.col(REFERENCE).alias("reference_id"), *[F.col(f"{META}.{field}").alias(field) for field in _PLACE]
    )
    counted = rows.groupBy("reference_id").agg(F.count("*").alias("rows"))
    lacking = (
        retired.join(counted, on="reference_id", how="left")
        .where(F.coalesce("rows", F.lit(0)) < F.col("entries"))
        .select("reference_id")
    )
    if shown := [row["reference_id"] for row in lacking.limit(_SHOWN).collect()]:
        raise RangeError(
            f"objects of this range are retired, and {name} lacks entries of references {', '.join(shown)}: "
            "what they held cannot be told"
        )
    theirs = rows.join(retired.select("reference_id"), on="reference_id", how="left_semi")
    inside = (F.col("offset") >= F.col("start")) & (F.col("offset") < F.col("stop"))
    within = theirs.join(F.broadcast(_frame(spark, ranges)), on=["topic", "partition"], how="inner").where(inside)
    return Split(there, within.select(*_PLACE))


def _intersecting(spark: SparkSession, references: DataFrame, ranges: Ranges) -> DataFrame:
    spans = F.broadcast(_frame(spark, ranges))
    sources = references.select("reference_id", F.inline("sources")).drop("entries")
    reaches = (F.col("min_offset") < F.col("stop")) & (F.col("max_offset") >= F.col("start"))
    ids = sources.join(spans, on=["topic", "partition"], how="inner").where(reaches).select("reference_id").distinct()
    return references.join(ids, on="reference_id", how="left_semi").select("reference_id", "entries")


def _frame(spark: SparkSession, ranges: Ranges) -> DataFrame:
    return spark.createDataFrame([(*tp, span.start, span.stop) for tp, span in sorted(ranges.items())], _RANGE)
