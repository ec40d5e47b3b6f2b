"""The bytes of objects against the references into them: behind its header each byte is of exactly one reference.

The check reads no object: references state the size of their object, and which of its bytes are theirs (DESIGN 6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from log_partitioner.formats.findings import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame

_OBJECT = ["bucket", "object", "version_id"]
_AT = ("message_partition", "message_offset", "line")


def wrong_bytes(
    references: DataFrame, selected: DataFrame, *, short: DataFrame | None, excused: Iterable[str]
) -> list[DataFrame]:
    """Find bytes that two references have, and bytes that none has, of the objects of the `selected` ones.

    `short` are batches that have lost references with the beginning of their topic; their objects are not judged. Bytes
    without a reference are no finding in `excused` batches.
    """
    spans = references if short is None else references.join(short, on="batch_id", how="left_anti")
    spans = spans.select(
        *[F.col(f"location.{name}").alias(name) for name in (*_OBJECT, "size")],
        *("reference_id", "batch_id", "worker", "user", "date", "hour", "header_bytes", "start", *_AT),
        (F.col("start") + F.col("length")).alias("end"),
    )
    theirs = selected.select(*[F.col(f"location.{name}").alias(name) for name in _OBJECT[:2]]).distinct()
    before = Window.partitionBy(*_OBJECT).orderBy("start", *_AT).rowsBetween(Window.unboundedPreceding, -1)
    in_order = spans.join(theirs, on=_OBJECT[:2], how="left_semi").withColumn(
        "reached", F.coalesce(F.max("end").over(before), "header_bytes")
    )
    return [_shared(in_order), _unnamed(in_order.where(~F.col("batch_id").isin(list(excused))))]


def _shared(in_order: DataFrame) -> DataFrame:
    text = F.format_string(
        "bytes [%d, %d) of its object are the header's, or of another reference", "start", F.least("end", "reached")
    )
    return in_order.where(F.col("start") < F.col("reached")).select(
        F.lit(Kind.REFERENCE_WRONG).alias("kind"),
        *("object", "reference_id", "batch_id", "worker", "user", "date", "hour"),
        text.alias("text"),
    )


def _unnamed(in_order: DataFrame) -> DataFrame:
    """Outline: holes before a reference, and what is behind the last one."""
    holes = in_order.where(F.col("start") > F.col("reached")).select(
        *_OBJECT, "batch_id", "worker", F.col("reached").alias("begin"), F.col("start").alias("until")
    )
    tails = (
        in_order.groupBy(*_OBJECT)
        .agg(F.max("end").alias("begin"), F.max("size").alias("until"), *map(_any, ("batch_id", "worker")))
        .where(F.col("begin") < F.col("until"))
    )
    text = F.format_string("no reference has its bytes [%d, %d)", "begin", "until")
    return holes.unionByName(tails).select(
        F.lit(Kind.OBJECT_UNREFERENCED).alias("kind"), "object", "batch_id", "worker", text.alias("text")
    )


def _any(name: str) -> Column:
    return F.min(name).alias(name)
