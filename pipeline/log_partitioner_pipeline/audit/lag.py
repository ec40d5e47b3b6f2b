"""The time that records waited for the flush that covers them, per hour of their timestamps.

It is the time from Kafka's timestamp of a record to the end in its flush record, just before the transaction's commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

HOUR_MS = 3_600_000
_TP = ["topic", "partition"]
# Records and the lines that cover them meet by blocks of so many offsets.
_BLOCK = 10_000


def lags_of(source: DataFrame, flushes: DataFrame) -> DataFrame:
    """Return `begins_ms`, `lag_p50_ms`, `lag_p99_ms`, `lag_max_ms` of records with a timestamp that a flush covers."""
    blocks = F.sequence(_block(F.col("first_offset")), _block(F.col("next_offset") - 1))
    lines = (
        flushes.select("ended_at_ms", F.inline("topic_partitions"))
        .where(F.col("first_offset") < F.col("next_offset"))
        .select(*_TP, "ended_at_ms", "first_offset", "next_offset", F.explode(blocks).alias("block"))
    )
    waited = (
        source.where((F.col("index") <= 0) & F.col("timestamp_ms").isNotNull())
        .select(*_TP, "offset", "timestamp_ms", _block(F.col("offset")).alias("block"))
        .join(lines, on=[*_TP, "block"], how="inner")
        .where((F.col("offset") >= F.col("first_offset")) & (F.col("offset") < F.col("next_offset")))
        .select(hour_of("timestamp_ms"), (F.col("ended_at_ms") - F.col("timestamp_ms")).alias("lag"))
    )
    parts = F.percentile_approx("lag", [0.5, 0.99])
    return (
        waited.groupBy("begins_ms")
        .agg(parts.alias("parts"), F.max("lag").alias("lag_max_ms"))
        .select(
            "begins_ms",
            F.col("parts")[0].alias("lag_p50_ms"),
            F.col("parts")[1].alias("lag_p99_ms"),
            "lag_max_ms",
        )
    )


def hour_of(timestamp_ms: str) -> Column:
    """Return the begin of a timestamp's hour, `begins_ms`."""
    return (F.floor(F.col(timestamp_ms) / HOUR_MS) * HOUR_MS).cast("bigint").alias("begins_ms")


def _block(offset: Column) -> Column:
    return F.floor(offset / _BLOCK).cast("bigint")
