"""Flush records and references against each other and against the source (DESIGN 3.5, 3.6).

Owns contiguity, and the statements of flush records that can be counted again. Findings are those that reach into the
window; columns are those of `frames.FINDING`, what is absent is null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from pipeline.audit.result import Kind
from pipeline.topics import sources_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from pipeline.audit.ground import Announced

_TP = ["topic", "partition"]
_MESSAGE_AT = ("message_partition", "message_offset")
# Records and the lines that cover them meet by blocks of so many offsets.
_BLOCK = 10_000
_OF_REFERENCE = [*_TP, "batch_id", "worker", "reference_id", "user", "date", "hour", "text"]


def gaps_and_overlaps(lines: DataFrame, spans: DataFrame) -> DataFrame:
    """Check that lines join from `start` (null: wherever they begin) to the committed offset."""
    ordered = Window.partitionBy(*_TP).orderBy("first_offset", "next_offset").rowsBetween(Window.unboundedPreceding, -1)
    settled = lines.join(F.broadcast(spans), on=_TP, how="inner").where(F.col("first_offset") < F.col("committed"))
    before = F.max("next_offset").over(ordered)
    joined = settled.withColumn("reached", F.coalesce(before, F.least("start", "first_offset"), "first_offset"))
    between = joined.where(F.col("first_offset") != F.col("reached")).select(
        *_TP,
        F.when(F.col("first_offset") > F.col("reached"), Kind.FLUSH_GAP).otherwise(Kind.FLUSH_OVERLAP).alias("kind"),
        F.least("reached", "first_offset").alias("begin"),
        F.when(F.col("first_offset") > F.col("reached"), F.col("first_offset"))
        .otherwise(F.least("reached", "next_offset"))
        .alias("end"),
        "batch_id",
        "worker",
        "window_first",
        "window_next",
    )
    reached = settled.groupBy(*_TP).agg(F.max("next_offset").alias("reached"))
    ends = spans.join(reached, on=_TP, how="left").withColumn("reached", F.coalesce("reached", "start"))
    behind = ends.where(F.col("reached") < F.col("committed")).select(
        *_TP,
        F.lit(Kind.FLUSH_GAP).alias("kind"),
        F.col("reached").alias("begin"),
        F.col("committed").alias("end"),
        F.lit(None).cast("string").alias("batch_id"),
        F.lit(None).cast("string").alias("worker"),
        "window_first",
        "window_next",
    )
    reaches_in = (F.col("begin") < F.col("window_next")) & (F.col("end") > F.col("window_first"))
    name = F.format_string("[%d, %d)", "begin", "end")
    text = F.when(F.col("kind") == Kind.FLUSH_GAP, F.concat(F.lit("no flush record covers "), name)).otherwise(
        F.concat(F.lit("more than one flush record covers "), name)
    )
    return (
        between.unionByName(behind)
        .where(reaches_in)
        .select("kind", *_TP, F.col("begin").alias("offset"), "batch_id", "worker", text.alias("text"))
    )


def uncommitted(lines: DataFrame, spans: DataFrame) -> DataFrame:
    """Find what flush records cover and the group has not committed: its offsets are gone, set back, or another's.

    A flush record and the offsets are committed as one, so `committed_again` is never behind a line.
    """
    is_above = F.col("committed_again").isNull() | (F.col("next_offset") > F.col("committed_again"))
    begin = F.greatest("first_offset", F.coalesce("committed_again", "first_offset"))
    above = (
        lines.join(F.broadcast(spans), on=_TP, how="inner")
        .where(is_above)
        .where((begin < F.col("window_next")) & (F.col("next_offset") > F.col("window_first")))
        .groupBy(*_TP)
        .agg(
            F.min(begin).alias("offset"),
            F.max("next_offset").alias("end"),
            F.min_by("batch_id", "first_offset").alias("batch_id"),
            F.min_by("worker", "first_offset").alias("worker"),
        )
    )
    text = F.format_string("flush records cover [%d, %d), which the group has not committed", "offset", "end")
    return above.select(F.lit(Kind.FLUSH_WRONG).alias("kind"), *_TP, "offset", "batch_id", "worker", text.alias("text"))


def wrong_lines(lines: DataFrame, source: DataFrame, spans: DataFrame) -> DataFrame:
    """Count what the source holds for each line that was read as a whole, and compare."""
    whole = (
        lines.join(F.broadcast(spans), on=_TP, how="inner")
        .where((F.col("first_offset") >= F.col("first")) & (F.col("next_offset") <= F.col("next")))
        .where((F.col("first_offset") < F.col("window_next")) & (F.col("next_offset") > F.col("window_first")))
        .drop("first", "next", "window_first", "window_next", "committed", "start")
    )
    blocks = F.sequence(_block(F.col("first_offset")), _block(F.col("next_offset") - 1))
    records = source.where(F.col("index") <= 0).select(
        *_TP, "offset", "timestamp_ms", F.col("entries").alias("n"), _block(F.col("offset")).alias("block")
    )
    key = [*_TP, "batch_id", "first_offset", "next_offset", "message_offset"]
    counted = (
        whole.select(*key, F.explode(blocks).alias("block"))
        .join(records, on=[*_TP, "block"], how="inner")
        .where((F.col("offset") >= F.col("first_offset")) & (F.col("offset") < F.col("next_offset")))
        .groupBy(*key)
        .agg(
            F.count("*").alias("c_records"),
            F.sum("n").alias("c_entries"),
            F.min("offset").alias("c_min_offset"),
            F.max("offset").alias("c_max_offset"),
            F.max("timestamp_ms").alias("c_timestamp_max_ms"),
        )
    )
    names = ["records", "entries", "min_offset", "max_offset", "timestamp_max_ms"]
    both = whole.join(counted, on=key, how="left").withColumns(
        {f"c_{name}": F.coalesce(f"c_{name}", F.lit(0)) for name in names[:2]}
    )
    differences = [
        F.when(
            ~F.col(name).eqNullSafe(F.col(f"c_{name}")),
            F.format_string(f"{name} is %s, counted %s", _shown(name), _shown(f"c_{name}")),
        )
        for name in names
        # a flush without a record may know no newest one, or that of the flush before
    ]
    differences[-1] = F.when(F.col("c_records") > 0, differences[-1])
    return (
        both.withColumn("wrong", F.concat_ws("; ", *differences))
        .where(F.col("wrong") != "")
        .select(
            F.lit(Kind.FLUSH_WRONG).alias("kind"),
            *_TP,
            F.col("first_offset").alias("offset"),
            "batch_id",
            "worker",
            F.format_string("[%d, %d): %s", "first_offset", "next_offset", "wrong").alias("text"),
        )
    )


def wrong_totals(flushes: DataFrame) -> DataFrame:
    """Check each flush record against itself: its parts are all there, totals are the sums of its lines.

    And the conservation law holds. Of one that lacks a part nothing else is said.
    """
    names = {
        "records": "records",
        "entries": "entries",
        "dead_letters": "dead_letters",
        "discarded_replays": "discarded_replays",
    }
    differences = [
        F.when(
            F.col(f"totals.{total}") != _sum_of(line),
            F.format_string(f"total of {total} is %d, its lines say %d", F.col(f"totals.{total}"), _sum_of(line)),
        )
        for total, line in names.items()
    ]
    accounted = F.col("totals.entries_in_files") + F.col("totals.dead_letters") + F.col("totals.discarded_replays")
    differences.append(
        F.when(
            F.col("totals.entries") != accounted,
            F.format_string("%d entries, accounted for are %d", F.col("totals.entries"), accounted),
        )
    )
    return (
        flushes.withColumn("wrong", F.coalesce("wrong_parts", F.concat_ws("; ", *differences)))
        .where(F.col("wrong") != "")
        .select(F.lit(Kind.FLUSH_WRONG).alias("kind"), "batch_id", "worker", F.col("wrong").alias("text"))
    )


def miscounted_entries(flushes: DataFrame, announced: Announced, spans: DataFrame) -> DataFrame:
    """Compare what flush records say became of their entries with what their batches have published.

    Nothing is said of files where the number of references differs, nor of dead letters where some are missing: that is
    a finding already, or made good by a backfill. Messages that come again count once.
    """
    letter = [*_TP, "offset", "reason", "first_index"]
    named = announced.dead.where(F.col("index").isNotNull()).select("batch_id", "index", *letter)
    said = (
        flushes.withColumn("nth", F.row_number().over(Window.partitionBy("batch_id").orderBy(*_MESSAGE_AT)))
        .where(F.col("nth") == 1)
        .select("batch_id", "worker", "totals", "topic_partitions")
        .join(announced.by_batch.withColumnRenamed("references", "c_references"), on="batch_id", how="left")
        .join(
            named.groupBy("batch_id").agg(
                F.countDistinct(*_TP, "offset", "index").alias("c_dead"),
                F.countDistinct(*letter).alias("c_letters"),
            ),
            on="batch_id",
            how="left",
        )
        .fillna(0, ["c_references", "c_dead", "c_letters"])
    )
    filed = sources_of(announced.references).groupBy("batch_id", *_TP).agg(F.sum("entries").alias("filed"))
    buried = named.groupBy("batch_id", *_TP).agg(F.countDistinct("offset", "index").alias("buried"))
    lines = (
        said.select("batch_id", "worker", "totals", "c_references", "c_letters", F.inline("topic_partitions"))
        .where(F.col("first_offset") != F.col("next_offset"))
        .join(F.broadcast(spans.select(*_TP, "window_first", "window_next")), on=_TP, how="inner")
        .where((F.col("first_offset") < F.col("window_next")) & (F.col("next_offset") > F.col("window_first")))
        .withColumn("in_files", F.col("entries") - F.col("dead_letters") - F.col("discarded_replays"))
        .join(filed, on=["batch_id", *_TP], how="left")
        .join(buried, on=["batch_id", *_TP], how="left")
        .fillna(0, ["filed", "buried"])
    )
    differences = F.concat_ws(
        "; ",
        F.when(
            (F.col("c_references") == F.col("totals.references")) & (F.col("filed") != F.col("in_files")),
            F.format_string("%d entries in files, its references say %d", "in_files", "filed"),
        ),
        F.when(
            (F.col("c_letters") >= F.col("totals.dead_letter_records")) & (F.col("buried") != F.col("dead_letters")),
            F.format_string("%d entries dead, its dead letters say %d", "dead_letters", "buried"),
        ),
    )
    wrong = F.lit(Kind.FLUSH_WRONG).alias("kind")
    of_lines = (
        lines.withColumn("wrong", differences)
        .where(F.col("wrong") != "")
        .select(
            wrong,
            *_TP,
            F.col("first_offset").alias("offset"),
            *("batch_id", "worker"),
            F.format_string("[%d, %d): %s", "first_offset", "next_offset", "wrong").alias("text"),
        )
    )
    letters = F.col("totals.dead_letter_records")
    of_letters = said.where((F.col("c_dead") == F.col("totals.dead_letters")) & (F.col("c_letters") != letters)).select(
        wrong,
        F.lit(None).cast("string").alias("topic"),
        F.lit(None).cast("int").alias("partition"),
        F.lit(None).cast("bigint").alias("offset"),
        *("batch_id", "worker"),
        F.format_string("its flush record says %d dead letters, there are %d", letters, "c_letters").alias("text"),
    )
    return of_lines.unionByName(of_letters)


def miscounted_references(flushes: DataFrame, found: DataFrame) -> DataFrame:
    """Compare how many references a batch has with how many its flush record says; `found` is by batch."""
    both = flushes.select("batch_id", "worker", F.col("totals.references").alias("said")).join(
        found.select("batch_id", F.col("references").alias("found")), on="batch_id", how="left"
    )
    both = both.withColumn("found", F.coalesce("found", F.lit(0)))
    text = F.format_string("its flush record says %d references, there are %d", "said", "found")
    fewer = F.col("found") < F.col("said")
    return both.where(F.col("found") != F.col("said")).select(
        F.when(fewer, Kind.REFERENCE_MISSING).otherwise(Kind.REFERENCE_WRONG).alias("kind"),
        F.when(fewer, F.col("said") - F.col("found")).otherwise(1).cast("bigint").alias("count"),
        "batch_id",
        "worker",
        text.alias("text"),
    )


def wrong_ranges(sources: DataFrame, lines: DataFrame) -> DataFrame:
    """Compare the source ranges of references with the lines of their batch.

    A batch without flush record is a gap between those of others; where it is none, its references are too many.
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
    strays = (
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
        .unionByName(strays.select(*_OF_REFERENCE))
        .select(F.lit(Kind.REFERENCE_WRONG).alias("kind"), *_OF_REFERENCE)
    )


def stray_references(references: DataFrame, chosen: DataFrame, lines: DataFrame, spans: DataFrame) -> DataFrame:
    """Find references of which an audit of everything reads nothing, though it has no reason to leave them out.

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


def wrong_messages(references: DataFrame) -> DataFrame:
    """Find messages of references whose key is not their batch id, and texts of schemas that are other schemas'."""
    at = F.format_string("message %d/%d", *_MESSAGE_AT)
    wrong = [
        F.when(~F.col("is_keyed"), F.concat(at, F.lit(": its key is not its batch id"))),
        F.when(~F.col("is_text_true"), F.concat(at, F.lit(": the text of its schema has another fingerprint"))),
    ]
    return (
        references.where("not is_keyed or not is_text_true")
        .withColumn("text", F.concat_ws("; ", *wrong))
        .groupBy(*_MESSAGE_AT)
        .agg(*[F.first(name).alias(name) for name in ("batch_id", "worker", "text")])
        .select(F.lit(Kind.REFERENCE_WRONG).alias("kind"), "batch_id", "worker", "text")
    )


def other_groups(flushes: DataFrame, group: str) -> DataFrame:
    """Find flush records of another group: their offsets are not those that are audited."""
    text = F.format_string("of group %s, audited is %s", "group_id", F.lit(group))
    return flushes.where(F.col("group_id") != group).select(
        F.lit(Kind.FLUSH_WRONG).alias("kind"), "batch_id", "worker", text.alias("text")
    )


def lines_by_batch(lines: DataFrame) -> DataFrame:
    """Give lines in the form that `differing_ranges` wants them in beside the source ranges of references."""
    return lines.groupBy("batch_id", *_TP).agg(
        F.first("first_offset").alias("l_first"),
        F.first("next_offset").alias("l_next"),
        F.first("worker").alias("l_worker"),
        F.first("generation").alias("l_generation"),
    )


def differing_ranges(both: DataFrame, *, record: str) -> DataFrame:
    """Find source ranges that are not those of the line beside them; `record` is what a person calls its place."""
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


def _shown(name: str) -> Column:
    return F.coalesce(F.col(name).cast("string"), F.lit("none"))


def _sum_of(line: str) -> Column:
    return F.expr(f"aggregate(topic_partitions, 0L, (sum, line) -> sum + line.{line})")
