"""Decides which records belong to a window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from log_partitioner.proof.audit.put_away import NOTHING, PutAway
from log_partitioner_pipeline.audit import scope
from log_partitioner_pipeline.kafka import last_offsets

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from log_partitioner.config.settings import KafkaSettings
    from log_partitioner_pipeline.audit.result import Window
    from log_partitioner_pipeline.audit.scope import Source


def is_of(window: Window, timestamp_ms: Column) -> Column:
    """Return whether a record is of the window: by its timestamp, or by `offset`, `window_first` and `window_next`."""
    if window.is_everything:
        return F.lit(True)  # noqa: FBT003 - a value of SQL
    by_time = F.lit(True)  # noqa: FBT003 - a value of SQL
    if window.from_ms is not None:
        by_time = by_time & (timestamp_ms >= window.from_ms)
    if window.until_ms is not None:
        by_time = by_time & (timestamp_ms < window.until_ms)
    by_offset = (F.col("offset") >= F.col("window_first")) & (F.col("offset") < F.col("window_next"))
    return F.when(timestamp_ms.isNotNull(), by_time).otherwise(by_offset)


def reach_last(
    spark: SparkSession, kafka: KafkaSettings, sources: list[Source], window: Window, put_away: PutAway = NOTHING
) -> list[Source]:
    """Move the ends of a window behind its last records; blocks while it reads everything behind its `until`."""
    if window.until_ms is None:
        return sources
    for _, behind in put_away.around(scope.behind(sources)):
        last = last_offsets(spark, kafka, behind, from_ms=window.from_ms, until_ms=window.until_ms)
        sources = scope.reaching_to(sources, last)
    return sources
