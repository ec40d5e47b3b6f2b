"""Run records of backfills against their messages, and the losses that backfills make good (DESIGN 8).

Owns two rules: which missing entries of a flush record a backfill makes good, and that data of a backfill needs a run
record. The driver receives data in proportion to runs and TopicPartitions.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from pyspark.sql import Window
from pyspark.sql import functions as F

from log_partitioner.formats.findings import Kind
from log_partitioner.formats.flush_record import BackfillRecord
from log_partitioner.formats.model import TopicPartition
from log_partitioner.proof.accounting import Sums, Wrong, judge_run
from log_partitioner_pipeline.audit import accounts
from log_partitioner_pipeline.audit.frames import ENTRY_KEY, FINDING
from log_partitioner_pipeline.audit.judged import finding
from log_partitioner_pipeline.backfill.outbox import BATCH_PREFIX
from log_partitioner_pipeline.topics import lines_of, sources_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, Row, SparkSession

    from log_partitioner_pipeline.audit.ground import Announced, Ground

_TP = ["topic", "partition"]
_LETTER = [*_TP, "offset", "reason", "first_index"]
_RECORD = "run record"
_REFERENCES, _MESSAGES, _LETTERS, _FILES, _DEAD = "references", "messages", "letters", "files", "dead"
_OF_RUN = {_REFERENCES: "references", _MESSAGES: "reference_messages", _LETTERS: "dead_letter_records"}


class Seen(NamedTuple):
    """The data read: the window's references, the rows of all references read, and the offsets."""

    selected: DataFrame
    rows: DataFrame
    reach: DataFrame


class JudgedRuns(NamedTuple):
    """The outcome of judging backfills: findings, and notes for the reader.

    `excused` are batches that lack references for a reason: backfills have made them good, or are still running.
    """

    findings: list[DataFrame]
    notes: list[str]
    excused: list[str]


def is_backfilled() -> Column:
    """Return whether a batch is a backfill's."""
    return F.col("batch_id").startswith(BATCH_PREFIX)


def newest(records: DataFrame) -> DataFrame:
    """Return the newest record of each run; `before` is the progress in the record before it, if still there."""
    of_run = Window.partitionBy("batch_id").orderBy("message_partition", "message_offset")
    backwards = Window.partitionBy("batch_id").orderBy(F.desc("message_partition"), F.desc("message_offset"))
    return (
        records.where(F.col("batch_id").isNotNull())
        .withColumns({"before": F.lag("published").over(of_run), "nth": F.row_number().over(backwards)})
        .where(F.col("nth") == 1)
        .drop("nth")
    )


def judge_runs(spark: SparkSession, flushes: DataFrame, announced: Announced, ground: Ground, seen: Seen) -> JudgedRuns:
    """Return findings and notes about the run records in the window, and the batches that their backfills excuse."""
    findings, notes = _without_run(seen, announced), []
    runs = _reaching(announced.runs, seen.reach)
    found = sorted(runs.collect())
    mended = _mended(ground.complete(flushes), announced, seen, [run["batch_id"] for run in found]) if found else []
    going_on = []
    for run in found:
        published, messages = run["published"] or 0, run["messages"] or 0
        if published < messages:
            going_on.append(run["batch_id"])
            notes.append(f"{run['batch_id']} has published {published} of {messages} messages, and goes on from there")
    if found and ground.short is None:
        findings += [_judged(spark, found, announced, ground), _wrong_ranges(runs, seen.selected)]
    elif found:
        notes.append("what run records of backfills say is not counted: messages of theirs may be gone")
    return JudgedRuns(findings, notes, mended + going_on)


def _reaching(runs: DataFrame, reach: DataFrame) -> DataFrame:
    """Choose the runs whose ranges reach into the window."""
    spans = F.broadcast(reach.select(*_TP, "window_first", "window_next"))
    ids = (
        runs.select("batch_id", F.inline("topic_partitions"))
        .join(spans, on=_TP, how="inner")
        .where((F.col("first_offset") < F.col("window_next")) & (F.col("next_offset") > F.col("window_first")))
        .select("batch_id")
        .distinct()
    )
    return runs.join(ids, on="batch_id", how="left_semi")


def _without_run(seen: Seen, announced: Announced) -> list[DataFrame]:
    """Find references and dead letters of the window that name a backfill without a run record."""
    text = F.lit(f"of a backfill without {_RECORD}").alias("text")
    ids = announced.runs.select("batch_id")
    references = seen.selected.where(is_backfilled()).join(ids, on="batch_id", how="left_anti")
    spans = F.broadcast(seen.reach.select(*_TP, "window_first", "window_next"))
    letters = (
        announced.dead.where(is_backfilled())
        .join(ids, on="batch_id", how="left_anti")
        .join(spans, on=_TP, how="inner")
        .where((F.col("offset") >= F.col("window_first")) & (F.col("offset") < F.col("window_next")))
    )
    return [
        references.select(
            F.lit(Kind.REFERENCE_WRONG).alias("kind"),
            *("reference_id", "batch_id", "worker", "user", "date", "hour"),
            F.col("location.object").alias("object"),
            text,
        ),
        letters.select(F.lit(Kind.DEAD_LETTER_WRONG).alias("kind"), *_TP, "offset", "batch_id", text).distinct(),
    ]


def _judged(spark: SparkSession, runs: list[Row], announced: Announced, ground: Ground) -> DataFrame:
    """Count the messages of each run, and compare."""
    ids = [run["batch_id"] for run in runs]
    sums = _sums(announced, ids)
    committed = {span.tp: span.committed or 0 for span in ground.spans}
    flushed = announced.flushes.where(F.col("batch_id").isin(ids)).select("batch_id").distinct().collect()
    twice = Wrong(Kind.BACKFILL_WRONG, "there is a flush record of this batch id, too")
    findings = [finding(twice, row.asDict()) for row in flushed]
    for run in runs:
        row = run.asDict(recursive=True)
        try:
            record = msgspec.convert(row, BackfillRecord)
        except msgspec.ValidationError as error:
            findings.append(finding(Wrong(Kind.BACKFILL_WRONG, f"it lacks what a run record has: {error}"), row))
            continue
        wrongs = judge_run(record, sums[record.batch_id], committed, before=row["before"])
        findings += [finding(wrong, row) for wrong in wrongs]
    return spark.createDataFrame(findings, FINDING)


def _sums(announced: Announced, ids: list[str]) -> dict[str, Sums]:
    """Add up references, dead letters and their entries by run: one row for each run, TopicPartition and kind."""
    theirs = F.col("batch_id").isin(ids)
    own = announced.references.where(theirs)
    letters = announced.dead.where(theirs & F.col("index").isNotNull())
    parts: list[tuple[DataFrame, Sequence[Column | str], str, Column]] = [
        (own, _nowhere(), _REFERENCES, F.lit(1)),
        (own.select("batch_id", "message_partition", "message_offset").distinct(), _nowhere(), _MESSAGES, F.lit(1)),
        (letters.select("batch_id", *_LETTER).distinct(), _nowhere(), _LETTERS, F.lit(1)),
        (sources_of(own), _TP, _FILES, F.col("entries")),
        (letters, _TP, _DEAD, F.lit(1)),
    ]
    counted = [
        frame.select("batch_id", *place, F.lit(what).alias("what"), number.cast("bigint").alias("n"))
        for frame, place, what, number in parts
    ]
    together = reduce(lambda one, other: one.unionByName(other), counted)
    found = {batch_id: Sums() for batch_id in ids}
    for row in together.groupBy("batch_id", *_TP, "what").agg(F.sum("n").alias("n")).collect():
        batch_id, what, count = row["batch_id"], row["what"], row["n"]
        sums = found[batch_id]
        if what in _OF_RUN:
            setattr(sums, _OF_RUN[what], count)
        else:
            by_tp = sums.in_files if what == _FILES else sums.dead_letters
            by_tp[TopicPartition(row["topic"], row["partition"])] += count
    return found


def _nowhere() -> list[Column]:
    return [F.lit(None).cast("string").alias("topic"), F.lit(None).cast("int").alias("partition")]


def _wrong_ranges(runs: DataFrame, selected: DataFrame) -> DataFrame:
    """Compare the source ranges of references with the lines of their run record."""
    lines = accounts.lines_by_batch(lines_of(runs))
    known = F.broadcast(runs.select("batch_id"))
    sources = sources_of(selected).join(known, on="batch_id", how="left_semi")
    both = sources.join(F.broadcast(lines), on=["batch_id", *_TP], how="left")
    return accounts.differing_ranges(both, record=_RECORD).select(F.lit(Kind.REFERENCE_WRONG).alias("kind"), "*")


def _mended(flushes: DataFrame, announced: Announced, seen: Seen, ids: list[str]) -> list[str]:
    """Name the batches that lack references whose entries these backfills have published again.

    References of a batch and rows of backfills in its ranges must together be all its entries. If the ranges were not
    read as a whole, only the entries that were read are compared, one by one, and not their number.
    """
    said = flushes.select("batch_id", "totals").join(announced.by_batch, on="batch_id", how="left")
    short = said.where(F.coalesce("references", F.lit(0)) < F.col("totals.references"))
    wanted = {
        row["batch_id"]: row["n"]
        for row in short.select("batch_id", F.col("totals.entries_in_files").alias("n")).collect()
    }
    if not wanted:
        return []
    of_short = F.col("batch_id").isin(list(wanted))
    own = announced.references.where(of_short).groupBy("batch_id").agg(F.sum("entries").alias("n"))
    lines = announced.lines.where(of_short).join(F.broadcast(seen.reach), on=_TP, how="inner")
    is_within = (F.col("first_offset") >= F.col("first")) & (F.col("next_offset") <= F.col("next"))
    wholes = lines.groupBy("batch_id").agg(F.bool_and(is_within).alias("is_whole"))
    of_backfills = announced.references.where(F.col("batch_id").isin(ids)).select("reference_id")
    again = seen.rows.where(F.col("topic").isNotNull()).join(of_backfills, on="reference_id", how="left_semi")
    spans = F.broadcast(lines.select("batch_id", *_TP, "first_offset", "next_offset"))
    good = (
        again.select(*ENTRY_KEY)
        .distinct()
        .join(spans, on=_TP, how="inner")
        .where((F.col("offset") >= F.col("first_offset")) & (F.col("offset") < F.col("next_offset")))
        .groupBy("batch_id")
        .agg(F.count("*").alias("good"))
    )
    kept = {row["batch_id"]: row["n"] for row in own.collect()}
    return [
        row["batch_id"]
        for row in good.join(wholes, on="batch_id", how="inner").collect()
        if not row["is_whole"] or kept.get(row["batch_id"], 0) + row["good"] >= wanted[row["batch_id"]]
    ]
