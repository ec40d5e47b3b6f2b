"""Messages of the references topic as columns (`reference_rows.REFERENCE`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from log_partitioner_pipeline.reference_rows import REFERENCE, expand

if TYPE_CHECKING:
    from collections.abc import Callable


class References(NamedTuple):
    """References as columns, each id once, and messages without references."""

    every: DataFrame
    unreadable: DataFrame


def reference_lines(messages: DataFrame) -> DataFrame:
    """Return every line of every message."""
    return messages.select("partition", "offset", "timestamp_ms", "key", "value").mapInArrow(expand, REFERENCE)


def references(messages: DataFrame, *, keep: Callable[[DataFrame], DataFrame]) -> References:
    """Return the first line of each reference id; `keep` keeps the frame from which both results come."""
    by_id = Window.partitionBy("reference_id").orderBy("message_partition", "message_offset", "line")
    is_reference = F.col("reference_id").isNotNull()
    ranked = keep(reference_lines(messages).withColumn("nth", F.when(is_reference, F.row_number().over(by_id))))
    return References(
        every=ranked.where(F.col("nth") == 1).drop("nth"), unreadable=ranked.where(F.col("nth").isNull()).drop("nth")
    )
