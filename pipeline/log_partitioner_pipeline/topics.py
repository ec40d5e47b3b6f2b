"""Topics as frames: committed messages of offset ranges; flush records, run records, references as columns.

Owns how Spark reads Kafka in one go, the fields of flush and run records that SQL needs, and the merge of parts.
"""

from __future__ import annotations

import json
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from log_partitioner.formats.model import SourceRecord, TopicPartition, readable
from log_partitioner.formats.reference import FORMAT_VERSION
from log_partitioner_pipeline.client_reader import read_ranges, split_off
from log_partitioner_pipeline.kafka import spark_options
from log_partitioner_pipeline.reference_rows import REFERENCE, expand

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import Column, SparkSession

    from log_partitioner.config.settings import KafkaSettings
    from log_partitioner.formats.model import OffsetRanges

# Records that one task reads, about: judging them takes some seconds.
_RECORDS_PER_TASK = 200_000
MESSAGE = T.StructType(
    [
        T.StructField("key", T.BinaryType()),
        T.StructField("value", T.BinaryType()),
        T.StructField("topic", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("offset", T.LongType()),
        T.StructField("timestamp_ms", T.LongType()),
        T.StructField(
            "headers",
            T.ArrayType(
                T.StructType([T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())]),
            ),
        ),
    ]
)
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


def read_messages(
    spark: SparkSession, settings: KafkaSettings, ranges: Mapping[TopicPartition, tuple[int, int]]
) -> DataFrame:
    """Read the committed messages of these ranges; nothing happens before an action."""
    ranges = {tp: span for tp, span in ranges.items() if span[0] < span[1]}
    if not ranges:
        return spark.createDataFrame([], MESSAGE)
    return _load(spark, settings, ranges, has_headers=True)


def last_offsets(
    spark: SparkSession,
    settings: KafkaSettings,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    *,
    from_ms: int | None,
    until_ms: int,
) -> dict[TopicPartition, int]:
    """Find the last committed record with a timestamp from `from_ms` to before `until_ms` in each of these ranges.

    Brokers find the first record as late as a moment, and one record with a clock ahead hides all records behind it.
    Blocks for as long as reading the ranges takes; TopicPartitions without such a record are absent.
    """
    ranges = {tp: span for tp, span in ranges.items() if span[0] < span[1]}
    if not ranges:
        return {}
    messages = _load(spark, settings, ranges, has_headers=False)
    times = messages.where(F.col("timestamp_ms") < until_ms)
    if from_ms is not None:
        times = times.where(F.col("timestamp_ms") >= from_ms)
    rows = times.groupBy("topic", "partition").agg(F.max("offset").alias("last")).collect()
    return {TopicPartition(row["topic"], row["partition"]): row["last"] for row in rows}


def _load(
    spark: SparkSession,
    settings: KafkaSettings,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    *,
    has_headers: bool,
) -> DataFrame:
    readable, others = split_off(settings, ranges)
    frames = []
    if readable:
        frames.append(_load_by_spark(spark, settings, readable, has_headers=has_headers))
    if others:
        frames.append(read_ranges(spark, settings, others, MESSAGE, records_per_task=_RECORDS_PER_TASK))
    return reduce(DataFrame.unionByName, frames)


def _load_by_spark(
    spark: SparkSession, settings: KafkaSettings, ranges: OffsetRanges, *, has_headers: bool
) -> DataFrame:
    topics: dict[str, list[int]] = {}
    firsts: dict[str, dict[str, int]] = {}
    nexts: dict[str, dict[str, int]] = {}
    for tp, (first, end) in ranges.items():
        topics.setdefault(tp.topic, []).append(tp.partition)
        firsts.setdefault(tp.topic, {})[str(tp.partition)] = first
        nexts.setdefault(tp.topic, {})[str(tp.partition)] = end
    options = spark_options(settings, "")
    del options["subscribe"]
    records = sum(end - first for first, end in ranges.values())
    headers = F.col("headers") if has_headers else F.lit(None).cast(MESSAGE["headers"].dataType).alias("headers")
    return (
        spark.read.format("kafka")
        .options(**options)
        .option("assign", json.dumps(topics))
        .option("startingOffsets", json.dumps(firsts))
        .option("endingOffsets", json.dumps(nexts))
        .option("includeHeaders", str(has_headers).lower())
        .option("minPartitions", max(len(ranges), records // _RECORDS_PER_TASK))
        .load()
        .select("key", "value", "topic", "partition", "offset", _timestamp_ms(), headers)
    )


def record_of(message: Mapping[str, Any]) -> SourceRecord:
    """Return the record of a row with the columns of MESSAGE."""
    pairs = tuple((header["key"], header["value"]) for header in message["headers"] or ())
    headers, unreadable = readable(pairs)
    return SourceRecord(
        tp=TopicPartition(message["topic"], message["partition"]),
        offset=message["offset"],
        timestamp_ms=message["timestamp_ms"],
        key=message["key"],
        value=message["value"],
        headers=headers,
        unreadable=unreadable,
    )


def _timestamp_ms() -> Column:
    """Return the timestamp; null if there is none, which -1 says, or one that the worker ignores."""
    return F.when(F.unix_millis("timestamp") >= 0, F.unix_millis("timestamp")).alias("timestamp_ms")


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
