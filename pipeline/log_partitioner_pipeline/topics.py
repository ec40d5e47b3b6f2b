"""Messages of topics as columns: flush records, run records, references.

Owns the fields of flush and run records that SQL needs, and the merge of parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from log_partitioner_pipeline.reference_rows import REFERENCE, expand

if TYPE_CHECKING:
    from collections.abc import Callable


_MESSAGE_AT = ("message_partition", "message_offset")


class References(NamedTuple):
    """References as columns: `every` id once, `repeated` ones, and messages without references."""

    every: DataFrame
    repeated: DataFrame
    unreadable: DataFrame


def reference_lines(messages: DataFrame) -> DataFrame:
    """Return every line of every message (`reference_rows.REFERENCE`)."""
    return messages.select("partition", "offset", "timestamp_ms", "key", "value").mapInArrow(expand, REFERENCE)


def references(messages: DataFrame, *, keep: Callable[[DataFrame], DataFrame] | None = None) -> References:
    """Return references as columns (`reference_rows.REFERENCE`), the first line of each id.

    `keep`, if given, keeps the frame that the three have in common, so that it is computed once.
    """
    by_id = Window.partitionBy("reference_id").orderBy(*_MESSAGE_AT, "line")
    is_reference = F.col("reference_id").isNotNull()
    ranked = reference_lines(messages).withColumn("nth", F.when(is_reference, F.row_number().over(by_id)))
    if keep is not None:
        ranked = keep(ranked)
    return References(
        every=ranked.where(F.col("nth") == 1).drop("nth"),
        repeated=ranked.where(F.col("nth") > 1).drop("nth"),
        unreadable=ranked.where(F.col("nth").isNull()).drop("nth"),
    )


def sources_of(references: DataFrame) -> DataFrame:
    """Return the source ranges of references, each with its reference."""
    return references.select(
        "reference_id", "batch_id", "worker", "generation", "user", "date", "hour", F.inline("sources")
    )
