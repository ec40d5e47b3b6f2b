"""Flush records and references against each other and against the source (DESIGN 3.5, 3.6).

Joins the rows that `judged` compares by the rules of `proof.accounting`. Findings are those that reach into the
window; columns are those of `frames.FINDING`, null if absent.
"""

from __future__ import annotations

from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from log_partitioner.formats.findings import Kind
from log_partitioner_pipeline.audit import judged
from log_partitioner_pipeline.audit.frames import FINDING
from log_partitioner_pipeline.topics import lines_of, sources_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import Column, DataFrame

    from log_partitioner.formats.model import TopicPartition
    from log_partitioner_pipeline.audit.ground import Announced

_TP = ["topic", "partition"]
_MESSAGE_AT = ("message_partition", "message_offset")
# Records and the lines that cover them meet by blocks of so many offsets.
_BLOCK = 10_000
_FLUSH = ("batch_id", "message_offset")
_OF_FLUSH = (
    *("batch_id", "worker", "totals", "topic_partitions", "wrong_parts", "is_counted"),
    *("c_references", "c_letters", "filed", "rejected", "counted"),
)
_FOUND = to_arrow_schema(FINDING)
_OF_REFERENCE = [*_TP, "batch_id", "worker", "reference_id", "user", "date", "hour", "text"]


def flushes_in_window(flushes: DataFrame, reach: DataFrame) -> DataFrame:
    """Choose flush records with an offset of the window that was committed when the audit began."""
    spans = F.broadcast(reach.select(*_TP, "window_first", "window_next", "committed"))
    ids = (
        lines_of(flushes)
        .join(spans, on=_TP, how="inner")
        .where((F.col("first_offset") < F.col("window_next")) & (F.col("next_offset") > F.col("window_first")))
        .where(F.col("first_offset") < F.col("committed"))
        .select(*_MESSAGE_AT)
        .distinct()
    )
    return flushes.join(ids, on=list(_MESSAGE_AT), how="left_semi")


def coverage(lines: DataFrame, spans: DataFrame) -> DataFrame:
    """Check that lines join up to the committed offset, and that the group has committed everything they cover."""
    of_line = ("first_offset", "next_offset", "batch_id", "worker")
    return (
        spans.join(lines.select(*_TP, *of_line), on=_TP, how="left")
        .repartition(*_TP)
        .sortWithinPartitions(*_TP, "first_offset", "next_offset")
        .mapInArrow(partial(judged.judge_coverage, schema=_FOUND), FINDING)
    )


def without_offset(flushes: DataFrame, tps: Collection[TopicPartition]) -> list[DataFrame]:
    """Find TopicPartitions without committed offset that flush records name, and cover nothing of (findings)."""
    if not tps:
        return []
    is_one = reduce(or_, ((F.col("topic") == tp.topic) & (F.col("partition") == tp.partition) for tp in tps))
    named = flushes.select("batch_id", "worker", F.inline("topic_partitions")).where(is_one)
    covers_any = F.bool_or(F.col("first_offset") != F.col("next_offset"))
    text = F.lit("flush records name it, and the group has no committed offset").alias("text")
    by_tp = named.groupBy(*_TP).agg(F.min("batch_id").alias("batch_id"), covers_any.alias("covers_any"))
    return [by_tp.where(~F.col("covers_any")).select(F.lit(Kind.FLUSH_WRONG).alias("kind"), *_TP, "batch_id", text)]


def judge_flushes(
    flushes: DataFrame,
    announced: Announced,
    source: DataFrame,
    spans: DataFrame,
    *,
    windows: judged.Windows,
    excused: Collection[str],
    short: DataFrame | None,
) -> DataFrame:
    """Check flush records against themselves, the source, and what their batches have published.

    Messages that come again count once. Missing references of `excused` batches are no finding. `short` batches have
    lost messages with the beginning of a topic; their messages are not compared.
    """
    judge = partial(judged.judge_flushes, windows=windows, excused=excused, schema=_FOUND)
    first = F.row_number().over(Window.partitionBy("batch_id").orderBy(*_MESSAGE_AT)) == 1
    marked = flushes.withColumn("is_counted", first)
    if short is not None:
        short = short.select("batch_id").distinct().withColumn("is_short", F.lit(True))  # noqa: FBT003 - a value of SQL
        marked = marked.join(short, on="batch_id", how="left").withColumn(
            "is_counted", F.col("is_counted") & F.col("is_short").isNull()
        )
    letter = [*_TP, "offset", "reason", "first_index"]
    named = announced.dead.where(F.col("index").isNotNull()).select("batch_id", "index", *letter)
    filed = sources_of(announced.references).groupBy("batch_id", *_TP).agg(F.sum("entries").alias("n"))
    rejected = named.groupBy("batch_id", *_TP).agg(F.countDistinct("offset", "index").alias("n"))
    letters = named.groupBy("batch_id").agg(F.countDistinct(*letter).alias("c_letters"))
    return (
        marked.join(announced.by_batch.withColumnRenamed("references", "c_references"), on="batch_id", how="left")
        .join(letters, on="batch_id", how="left")
        .fillna(0, ["c_references", "c_letters"])
        .join(_gathered(filed, "filed", "batch_id"), on="batch_id", how="left")
        .join(_gathered(rejected, "rejected", "batch_id"), on="batch_id", how="left")
        .join(_gathered(_counted(announced.lines, source, spans), "counted", *_FLUSH), on=list(_FLUSH), how="left")
        .select(*_OF_FLUSH)
        .mapInArrow(judge, FINDING)
    )


def _gathered(frame: DataFrame, name: str, *key: str) -> DataFrame:
    others = [column for column in frame.columns if column not in key]
    return frame.groupBy(*key).agg(F.collect_list(F.struct(*others)).alias(name))


def _counted(lines: DataFrame, source: DataFrame, spans: DataFrame) -> DataFrame:
    """Count the source's records for each line that was read as a whole."""
    whole = (
        lines.join(F.broadcast(spans), on=_TP, how="inner")
        .where((F.col("first_offset") >= F.col("first")) & (F.col("next_offset") <= F.col("next")))
        .select(*_FLUSH, *_TP, "first_offset", "next_offset")
    )
    blocks = F.sequence(_block(F.col("first_offset")), _block(F.col("next_offset") - 1))
    records = source.where(F.col("index") <= 0).select(
        *_TP, "offset", "timestamp_ms", F.col("entries").alias("n"), _block(F.col("offset")).alias("block")
    )
    key = [*_FLUSH, *_TP, "first_offset"]
    counted = (
        whole.withColumn("block", F.explode(blocks))
        .join(records, on=[*_TP, "block"], how="inner")
        .where((F.col("offset") >= F.col("first_offset")) & (F.col("offset") < F.col("next_offset")))
        .groupBy(*key)
        .agg(
            F.count("*").alias("records"),
            F.sum("n").alias("entries"),
            F.min("offset").alias("min_offset"),
            F.max("offset").alias("max_offset"),
            F.max("timestamp_ms").alias("timestamp_max_ms"),
        )
    )
    return whole.drop("next_offset").join(counted, on=key, how="left").fillna(0, ["records", "entries"])


def wrong_ranges(sources: DataFrame, lines: DataFrame) -> DataFrame:
    """Compare the source ranges of references with the lines of their batch.

    A batch without a flush record leaves a gap between those of others; if there is no gap, its references are surplus.
    """
    both = sources.join(lines_by_batch(lines), on=["batch_id", *_TP], how="left")
    known = lines.select("batch_id").distinct().withColumn("has_flush", F.lit(True))  # noqa: FBT003
    both = both.join(known, on="batch_id", how="left")
    others = lines.select(
        *_TP,
        F.col("batch_id").alias("o_batch"),
        F.col("first_offset").alias("o_first"),
        F.col("next_offset").alias("o_next"),
    )
    unrecorded = (
        both.where(F.col("has_flush").isNull())
        .join(others, on=_TP, how="inner")
        .where((F.col("o_first") < F.col("next_offset")) & (F.col("o_next") > F.col("first_offset")))
        .dropDuplicates(["reference_id"])
        .withColumn(
            "text", F.format_string("of a batch without flush record, offsets are those of batch %s", "o_batch")
        )
    )
    return (
        differing_ranges(both.where(F.col("has_flush")), record="flush record")
        .unionByName(unrecorded.select(*_OF_REFERENCE))
        .select(F.lit(Kind.REFERENCE_WRONG).alias("kind"), *_OF_REFERENCE)
    )


def unread_references(references: DataFrame, chosen: DataFrame, lines: DataFrame, spans: DataFrame) -> DataFrame:
    """Return references that an audit of everything does not read, without a reason to leave them out (findings).

    Reasons are: they are older than what it answers for, or of a flush that the group had not committed when it began.
    """
    begin, end = F.least("first_offset", "min_offset"), F.greatest("next_offset", F.col("max_offset") + 1)
    is_old = end <= F.col("answers_from")
    is_new = (begin >= F.coalesce("committed", F.lit(0))) & (end <= F.col("committed_again"))
    spans = F.broadcast(spans.select(*_TP, "committed", "answers_from", "committed_again"))
    is_later = F.col("committed").isNull() | (F.col("next_offset") > F.col("committed"))
    later = lines.join(spans, on=_TP, how="inner").where(is_later).select("batch_id")
    unread = references.join(chosen.select("reference_id"), on="reference_id", how="left_anti").join(
        later, on="batch_id", how="left_anti"
    )
    explained = (
        sources_of(unread)
        .join(spans, on=_TP, how="left")
        .groupBy("reference_id")
        .agg(F.bool_and(F.coalesce(is_old | is_new, F.lit(False))).alias("is_explained"))  # noqa: FBT003
        .where("is_explained")
    )
    return unread.join(explained, on="reference_id", how="left_anti").select(
        F.lit(Kind.REFERENCE_WRONG).alias("kind"),
        *("batch_id", "worker", "reference_id", "user", "date", "hour"),
        F.col("location.object").alias("object"),
        F.lit("its sources are nowhere in what is audited").alias("text"),
    )


def wrong_messages(references: DataFrame, *, bucket: str) -> DataFrame:
    """Find messages of references with a key other than their batch id, with foreign schema texts, or other buckets."""
    at = F.format_string("message %d/%d", *_MESSAGE_AT)
    is_elsewhere = F.col("location.bucket") != F.lit(bucket)
    wrong = [
        F.when(~F.col("is_keyed"), F.concat(at, F.lit(": its key is not its batch id"))),
        F.when(~F.col("is_text_true"), F.concat(at, F.lit(": the text of its schema has another fingerprint"))),
        F.when(is_elsewhere, F.concat(at, F.lit(f": its bucket is not {bucket}, as the settings say"))),
    ]
    return (
        references.where(~F.col("is_keyed") | ~F.col("is_text_true") | is_elsewhere)
        .withColumn("text", F.concat_ws("; ", *wrong))
        .groupBy(*_MESSAGE_AT)
        .agg(*[F.first(name).alias(name) for name in ("batch_id", "worker", "text")])
        .select(F.lit(Kind.REFERENCE_WRONG).alias("kind"), "batch_id", "worker", "text")
    )


def lines_by_batch(lines: DataFrame) -> DataFrame:
    """Return lines in the form in which `differing_ranges` takes them beside the source ranges of references."""
    return lines.groupBy("batch_id", *_TP).agg(
        F.first("first_offset").alias("l_first"),
        F.first("next_offset").alias("l_next"),
        F.first("worker").alias("l_worker"),
        F.first("generation").alias("l_generation"),
    )


def differing_ranges(both: DataFrame, *, record: str) -> DataFrame:
    """Find source ranges that differ from the line beside them; `record` is the name of that line for a person."""
    is_within = (
        (F.col("first_offset") <= F.col("min_offset"))
        & (F.col("min_offset") <= F.col("max_offset"))
        & (F.col("max_offset") < F.col("next_offset"))
    )
    stated = F.format_string("[%d, %d)", "first_offset", "next_offset")
    differences = F.concat_ws(
        "; ",
        F.when(F.col("l_first").isNull(), F.lit(f"a range of which its {record} says nothing")),
        F.when(
            (F.col("l_first") != F.col("first_offset")) | (F.col("l_next") != F.col("next_offset")),
            F.format_string(f"range %s, its {record} says [%d, %d)", stated, "l_first", "l_next"),
        ),
        F.when(
            (F.col("l_worker") != F.col("worker")) | (F.col("l_generation") != F.col("generation")),
            F.lit(f"worker or generation are not those of its {record}"),
        ),
        F.when(~is_within, F.format_string("offsets %d to %d are not in %s", "min_offset", "max_offset", stated)),
    )
    return both.withColumn("text", differences).where(F.col("text") != "").select(*_OF_REFERENCE)


def _block(offset: Column) -> Column:
    return F.floor(offset / _BLOCK).cast("bigint")
