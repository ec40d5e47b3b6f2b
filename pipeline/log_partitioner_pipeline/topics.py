"""Messages of topics as columns: flush records, run records, references.

Owns the fields of flush and run records that SQL needs, and the merge of parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from log_partitioner.formats.reference import FORMAT_VERSION
from log_partitioner_pipeline.reference_rows import REFERENCE, expand

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column

_MESSAGE_AT = ("message_partition", "message_offset")
_LINE = (
    "array<struct<topic string, partition int, first_offset bigint, next_offset bigint, min_offset bigint, "
    "max_offset bigint, timestamp_max_ms bigint, records bigint, entries bigint, dead_letters bigint>>"
)
_FLUSH = (
    "format_version int, batch_id string, part int, parts int, group_id string, from_group string, "
    "worker string, boot string, seq bigint, generation bigint, reason string, "
    f"started_at_ms bigint, ended_at_ms bigint, topic_partitions {_LINE}, totals struct<records bigint, "
    "entries bigint, entries_in_files bigint, dead_letters bigint, dead_letter_records bigint, "
    "references bigint, bytes bigint>"
)
_BACKFILL = (
    "format_version int, batch_id string, group_id string, worker string, generation bigint, started_at_ms bigint, "
    "committed_at_ms bigint, outbox string, published bigint, messages bigint, "
    "topic_partitions array<struct<topic string, partition int, first_offset bigint, next_offset bigint, "
    "entries_in_files bigint, dead_letters bigint>>, totals struct<references bigint, entries_in_files bigint, "
    "dead_letters bigint, dead_letter_records bigint, bytes bigint>"
)


class References(NamedTuple):
    """References as columns: `every` id once, `repeated` ones, and messages without references."""

    every: DataFrame
    repeated: DataFrame
    unreadable: DataFrame


def flush_records(messages: DataFrame) -> DataFrame:
    """Return whole flush records as columns, their parts put together; other messages have no batch id.

    `wrong_parts` lists the parts that are there and their number, unless each is there exactly once; then it is null.
    """
    records = messages.select("partition", "offset", _parsed(_FLUSH).alias("flush")).select(
        F.col("partition").alias("message_partition"), F.col("offset").alias("message_offset"), "flush.*"
    )
    records = records.where(F.col("from_group").isNull()).drop("from_group")  # an adoption is none
    is_part = F.coalesce(F.col("parts") > 1, F.lit(False))  # noqa: FBT003 - a value of SQL
    whole = records.where(~is_part).withColumn("wrong_parts", F.lit(None).cast("string"))
    in_order = F.array_sort(F.collect_list(F.struct("part", *_MESSAGE_AT, "topic_partitions")))
    shared = [name for name in records.columns if name not in (*_MESSAGE_AT, "part", "topic_partitions")]
    merged = (
        records.where(is_part)
        .groupBy("batch_id")
        .agg(*[F.first(name).alias(name) for name in shared if name != "batch_id"], in_order.alias("some"))
        .withColumns(
            {
                "message_partition": F.col("some")[0]["message_partition"],
                "message_offset": F.col("some")[0]["message_offset"],
                "topic_partitions": F.flatten("some.topic_partitions"),
                "part": F.lit(1),
                "wrong_parts": F.when(
                    F.col("some.part") != F.sequence(F.lit(1), F.col("parts")),
                    F.format_string("parts %s of %d", F.array_join(F.col("some.part"), ", "), "parts"),
                ),
            }
        )
    )
    return whole.unionByName(merged.select(*whole.columns))


def run_records(messages: DataFrame) -> DataFrame:
    """Return run records of backfills as columns; other messages have no batch id."""
    return messages.select("partition", "offset", _parsed(_BACKFILL).alias("run")).select(
        F.col("partition").alias("message_partition"), F.col("offset").alias("message_offset"), "run.*"
    )


def lines_of(flushes: DataFrame) -> DataFrame:
    """Return the lines of flush records (or run records) that cover an offset, each with its flush."""
    return flushes.select("batch_id", "worker", "generation", *_MESSAGE_AT, F.inline("topic_partitions")).where(
        F.col("first_offset") != F.col("next_offset")
    )


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


def _parsed(schema: str) -> Column:
    """Parse the value; null if it is not of the format that this code knows."""
    parsed = F.from_json(F.col("value").cast("string"), schema)
    return F.when(parsed["format_version"] == FORMAT_VERSION, parsed)
