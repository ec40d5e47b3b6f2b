"""The sides of the comparison as frames: source, files, dead letters, table, and the objects in the bucket.

Owns the reading of each side, and its distribution to tasks; nothing happens before an action.
"""

from __future__ import annotations

import json
from functools import partial, reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.model import TopicPartition
from log_partitioner.proof.audit.put_away import Claim, PutAway, find_put_away
from log_partitioner_pipeline.audit import executors, frames
from log_partitioner_pipeline.audit.windows import is_of
from log_partitioner_pipeline.columns import EVENT_TIME, META, REFERENCE, USER, Struct, of_iceberg
from log_partitioner_pipeline.kafka import MESSAGE, read_messages
from log_partitioner_pipeline.reference_rows import REFERENCE as REFERENCE_COLUMNS
from log_partitioner_pipeline.session import CATALOG

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import Column, SparkSession

    from log_partitioner_pipeline.audit.result import Window
    from log_partitioner_pipeline.audit.scope import Span
    from log_partitioner_pipeline.config import JobSettings
    from log_partitioner_pipeline.table import Position

_TP = ["topic", "partition"]
_REFERENCES_PER_TASK = 500
_OBJECT = ["location.bucket", "location.object"]
_LISTED = T.StructType(
    [
        T.StructField("object", T.StringType()),
        T.StructField("size", T.LongType()),
        T.StructField("modified_ms", T.LongType()),
    ]
)


def reach_of(spark: SparkSession, spans: Iterable[Span], starts: Mapping[TopicPartition, int]) -> DataFrame:
    """Return spans as a frame; `starts` are the records at which flush records must begin, if these are known."""
    rows = [
        (
            *(*span.tp, span.first, span.next, span.window_first, span.window_next),
            *(span.committed, starts.get(span.tp), span.answers_from, span.committed_again),
        )
        for span in spans
    ]
    return spark.createDataFrame(rows, frames.SPAN)


def read_source(spark: SparkSession, settings: JobSettings, spans: Iterable[Span], put_away: PutAway) -> DataFrame:
    """Judge the records of the spans: `frames.SOURCE`; an empty one stands for offsets that a person has skipped."""
    pieces = put_away.around({span.tp: (span.first, span.next) for span in spans})
    parts = [read_messages(spark, settings.worker.kafka, some) for _, some in pieces]
    if empty := [(None, None, *one.tp, one.offset, None, None) for one, _ in pieces if one is not None]:
        parts.append(spark.createDataFrame(empty, MESSAGE))
    messages = reduce(DataFrame.unionByName, parts)
    schema = to_arrow_schema(frames.SOURCE)
    judge = partial(executors.judge_records, settings=settings.worker, put_away=put_away, schema=schema)
    return messages.mapInArrow(judge, frames.SOURCE)


def read_files(
    spark: SparkSession, settings: JobSettings, references: DataFrame, position: Position | None
) -> DataFrame:
    """Read the rows of these references: `frames.ROWS`. `position` has the offsets up to which the table took them."""
    tasks = max(spark.sparkContext.defaultParallelism, references.count() // _REFERENCES_PER_TASK)
    read = partial(
        executors.read_files,
        settings=settings.worker,
        schema=to_arrow_schema(frames.ROWS),
    )
    return (
        references.select(*REFERENCE_COLUMNS.names, _taken(position).alias("taken"))
        .repartition(tasks, *_OBJECT)
        .sortWithinPartitions(*_OBJECT, "location.version_id", "start")
        .mapInArrow(read, frames.ROWS)
    )


def find_what_is_put_away(dead: DataFrame) -> PutAway:
    """Find the offsets that dead letters of unread records stand for."""
    said = dead.where(F.col("reason").isin(Reason.SKIPPED, Reason.FATAL))
    rows = said.select("topic", "partition", "offset", "end_offset", "reason").distinct().collect()
    return find_put_away(
        Claim(TopicPartition(topic, number), first, end, reason) for topic, number, first, end, reason in rows
    )


def _taken(position: Position | None) -> Column:
    taken = F.lit(False)  # noqa: FBT003 - a value of SQL
    for partition, offset in (position.offsets if position is not None else {}).items():
        taken = taken | ((F.col("message_partition") == partition) & (F.col("message_offset") < offset))
    return taken


def read_dead_letters(
    spark: SparkSession, settings: JobSettings, ranges: Mapping[TopicPartition, tuple[int, int]]
) -> DataFrame:
    """Read the entries that dead letters name: `frames.DEAD`."""
    read = partial(
        executors.read_dead_letters,
        settings=settings.worker,
        schema=to_arrow_schema(frames.DEAD),
    )
    messages = read_messages(spark, settings.worker.kafka, ranges)
    return messages.select("key", "value", "partition", "offset", "headers").mapInArrow(read, frames.DEAD)


def read_table(
    spark: SparkSession, settings: JobSettings, position: Position, spans: list[Span], reach: DataFrame
) -> DataFrame:
    """Read the entries of the table as of this snapshot: `frames.TABLE`."""
    return entries_of(rows_of_table(spark, settings, position, spans, reach), settings)


def read_retired(
    settings: JobSettings, references: DataFrame, rows: DataFrame | None, position: Position | None
) -> DataFrame:
    """Read the rows that the table has of these references, whose objects are retired: `frames.ROWS`.

    If the table is gone, or is another one, nobody has these entries any more, and they are `unread`.
    """
    name = settings.pipeline.table.name
    references = references.withColumn("taken", _taken(position))
    address = F.concat(F.lit("s3://"), F.col("location.bucket"), F.lit("/"), F.col("location.object"))
    gone = references.where(~F.col("taken")).withColumns(
        {
            "text": F.concat(address, F.lit(f" is retired, and table {name} does not have its entries")),
            "lost": F.lit(True),  # noqa: FBT003 - a value of SQL
            "unread": F.lit(True),  # noqa: FBT003
            "retired": F.lit(True),  # noqa: FBT003
        }
    )
    if rows is None:
        return _in_form(gone)
    about = references.where("taken").select("reference_id", "user", "date", "hour", "taken", "entries")
    theirs = rows.join(about.select(F.col("reference_id").alias(REFERENCE)), on=REFERENCE, how="left_semi")
    counted = theirs.groupBy(F.col(REFERENCE).alias("reference_id")).agg(F.count("*").alias("n"))
    found = entries_of(theirs, settings).withColumnRenamed("user", "meta_user")
    found = found.join(about, on="reference_id", how="inner")
    lacking = about.join(counted, on="reference_id", how="left").where(F.coalesce("n", F.lit(0)) < F.col("entries"))
    of_retired = {"retired": F.lit(True)}  # noqa: FBT003 - a value of SQL
    return (
        _in_form(gone)
        .unionByName(_in_form(found.withColumns(of_retired)))
        .unionByName(_in_form(lacking.withColumns(of_retired | {"lost": F.lit(True)})))  # noqa: FBT003
    )


def _in_form(rows: DataFrame) -> DataFrame:
    absent = [field for field in frames.ROWS if field.name not in rows.columns]
    return rows.withColumns({field.name: F.lit(None).cast(field.dataType) for field in absent}).select(
        *frames.ROWS.names
    )


def rows_of_table(
    spark: SparkSession, settings: JobSettings, position: Position, spans: list[Span], reach: DataFrame
) -> DataFrame:
    """Return rows of the table as of this snapshot, those of the offsets that are read, as they are."""
    rows = spark.read.option("versionAsOf", str(position.snapshot_id)).table(
        f"{CATALOG}.{settings.pipeline.table.name}"
    )
    first = min((span.first for span in spans), default=0)
    end = max((span.next for span in spans), default=0)
    is_near = (F.col(f"{META}.offset") >= first) & (F.col(f"{META}.offset") < end)  # pushed down to the files
    is_within = (
        (F.col(f"{META}.topic") == F.col("topic"))
        & (F.col(f"{META}.partition") == F.col("partition"))
        & (F.col(f"{META}.offset") >= F.col("first"))
        & (F.col(f"{META}.offset") < F.col("next"))
    )
    spans_of_it = F.broadcast(reach.select(*_TP, "first", "next"))
    return rows.where(is_near).join(spans_of_it, on=is_within, how="left_semi")


def entries_of(rows: DataFrame, settings: JobSettings) -> DataFrame:
    """Restore the entries of rows of the table: `frames.TABLE`."""
    meta = [F.col(f"{META}.{field}").alias(field) for field in ("topic", "partition", "offset", "index", "id")]
    root = F.col(f"{META}.root")
    meta += [
        F.col(USER),
        F.col(REFERENCE).alias("reference_id"),
        F.unix_micros(EVENT_TIME).alias("event_time_us"),
        F.unix_millis(f"{META}.timestamp").alias("timestamp_ms"),
        F.when(
            root.isNotNull() & root["topic"].isNotNull(),
            F.concat_ws("-", root["topic"], root["partition"], root["offset"], root["index"]),
        ).alias("root"),
    ]
    table, schema = columns_of(rows), to_arrow_schema(frames.TABLE)
    read = partial(executors.read_table, settings=settings.worker, columns=table, schema=schema)
    return rows.withColumn(META, F.struct(*meta)).mapInArrow(read, frames.TABLE)


def columns_of(rows: DataFrame) -> Struct:
    """Return the columns of rows of the table, those of a snapshot where they are of one."""
    jvm = rows.sparkSession._jvm  # noqa: SLF001 - py4j is the way in
    assert jvm is not None, "the session runs"
    schema = jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(rows._jdf.schema())  # noqa: SLF001
    return of_iceberg(json.loads(jvm.org.apache.iceberg.SchemaParser.toJson(schema))["fields"])


def list_objects(spark: SparkSession, settings: JobSettings) -> DataFrame:
    """List the objects under the prefix: `object`, `size`, `modified_ms`."""
    read = partial(executors.list_objects, settings=settings.worker, schema=to_arrow_schema(_LISTED))
    return spark.range(0, 1, 1, 1).mapInArrow(read, _LISTED)


def within(frame: DataFrame, reach: DataFrame) -> DataFrame:
    """Keep entries of the offsets that were read."""
    spans = F.broadcast(reach.select(*_TP, "first", "next"))
    return (
        frame.join(spans, on=_TP, how="inner")
        .where((F.col("offset") >= F.col("first")) & (F.col("offset") < F.col("next")))
        .drop("first", "next")
    )


def of_window(source: DataFrame, reach: DataFrame, window: Window) -> DataFrame:
    """Keep rows of the source that are in the window by their record's timestamp, without one by their offset."""
    return mark_window(source, reach, window).where("in_window").drop("in_window")


def mark_window(source: DataFrame, reach: DataFrame, window: Window) -> DataFrame:
    """Return the rows with a column `in_window`: whether `of_window` keeps them."""
    if window.is_everything:
        return source.withColumn("in_window", F.lit(True))  # noqa: FBT003 - a value of SQL
    spans = F.broadcast(reach.select(*_TP, "window_first", "window_next"))
    marked = source.join(spans, on=_TP, how="inner").withColumn("in_window", is_of(window, F.col("timestamp_ms")))
    return marked.drop("window_first", "window_next")
