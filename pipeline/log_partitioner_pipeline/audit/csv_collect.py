"""Frames of an audit by unique id -> counts, findings, hours, ids; the counterpart of `collect`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from log_partitioner.formats.findings import Kind
from log_partitioner.formats.model import TopicPartition
from log_partitioner_pipeline.audit.collect import findings_by_hour
from log_partitioner_pipeline.audit.findings import union
from log_partitioner_pipeline.audit.frames import ENTRY_KEY
from log_partitioner_pipeline.audit.lag import hour_of
from log_partitioner_pipeline.audit.result import Ids, RecordHour, Verdict

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_HOUR = ["date", "hour"]
_ABOUT = ["timestamp_ms", "user", "date", "hour", "id", "object"]
_SHOWN = 3


class Totals(NamedTuple):
    """Counts of a TopicPartition within the window; `oldest_ms` covers all records that were read."""

    records: int
    entries: int
    deliverable: int
    without_id: int
    oldest_ms: int | None


NOTHING = Totals(0, 0, 0, 0, None)


def totals_of(source: DataFrame) -> dict[TopicPartition, Totals]:
    """Count by TopicPartition; `source` is `frames.IDENTIFIED` with `in_window`."""
    is_in, is_deliverable = F.col("in_window"), F.coalesce("deliverable", F.lit(False))  # noqa: FBT003 - a value of SQL
    rows = (
        source.groupBy("topic", "partition")
        .agg(
            _count(is_in & (F.col("index") <= 0)).alias("records"),
            _count(is_in & (F.col("index") >= 0)).alias("entries"),
            _count(is_in & is_deliverable).alias("deliverable"),
            _count(is_in & is_deliverable & F.col("id").isNull()).alias("without_id"),
            F.min("timestamp_ms").alias("oldest_ms"),
        )
        .collect()
    )
    names = Totals._fields
    return {TopicPartition(row["topic"], row["partition"]): Totals(*[row[name] for name in names]) for row in rows}


def findings_of(compared: DataFrame, archived: DataFrame) -> tuple[DataFrame, list[str]]:
    """Return findings about entries, rows and files of the window, and doubts.

    If a file could not be read, no entry counts as missing: it may be in that file.
    """
    entries = compared.select(*ENTRY_KEY, *_ABOUT, F.inline("findings"))
    of_files = archived.where(F.col("kind").isNotNull() & F.col("is_in_window")).select(
        "kind", F.col("file").alias("object"), "text"
    )
    refused = archived.where("unread").select("text").limit(_SHOWN).collect()
    if not refused:
        return union([entries, of_files]), []
    is_missing = F.col("kind") == Kind.MISSING
    missing = entries.where(is_missing).count()
    doubts = [
        f"files cannot be read: {'; '.join(row['text'] for row in refused)}",
        f"{missing} entries may be in files that cannot be read",
    ]
    return union([entries.where(~is_missing), of_files]), doubts


def count_rows(archived: DataFrame, compared: DataFrame) -> dict[str, int]:
    """Count the fields of `result.Archive`, and write its notes."""
    is_row, is_other = F.col("line").isNotNull() & F.col("kind").isNull(), F.col("in_archive") & ~F.col("of_window")
    is_alien = is_other & ~F.col("is_judged")
    parts = [
        archived.agg(
            _count(is_row).alias("rows"),
            _count(is_row & F.col("id").isNull()).alias("rows_without_id"),
            _count(F.col("kind") == Kind.CSV_BROKEN).alias("broken_lines"),
            _count(F.col("kind").isNotNull() & ~F.col("is_in_window")).alias("broken_elsewhere"),
        ),
        compared.agg(
            _count(F.col("in_archive") & (F.col("of_window") | F.col("is_judged"))).alias("rows_compared"),
            _count(F.col("in_archive") & F.col("in_window") & ~F.col("deliverable")).alias("rows_dead"),
            _count(is_alien).alias("rows_not_judged"),
            _count(is_alien & F.col("is_timeless")).alias("rows_timeless"),
        ),
    ]
    return {name: value for part in parts for row in part.collect() for name, value in row.asDict().items()}


def collect_ids(compared: DataFrame, by_kind: dict[str, int]) -> Ids:
    """Count entries of the window with an id, and those found."""
    is_expected = F.col("deliverable") & F.col("in_window")
    row = compared.agg(
        _count(is_expected).alias("in_source"),
        _count(F.col("in_archive") & F.col("of_window")).alias("in_files"),
        _count(is_expected & ~F.col("in_archive")).alias("missing"),
        F.count_distinct(F.when(is_expected & (F.col("nth") > 1), F.col("id"))).alias("repeated_in_source"),
    ).first()
    assert row is not None, "an aggregate has one row"
    surplus = by_kind.get(Kind.DUPLICATED, 0) + by_kind.get(Kind.UNEXPECTED, 0)
    return Ids(surplus=surplus, examples=[], **row.asDict())


def hours_of(compared: DataFrame, findings: DataFrame, *, is_whole: bool, has_doubts: bool) -> DataFrame:
    """Return one row per date and hour with anything of the window."""
    is_expected = F.col("deliverable") & F.col("in_window")
    entries = (
        compared.where(is_expected)
        .groupBy(*_HOUR)
        .agg(F.count("*").alias("expected"), _count(F.col("in_archive")).alias("in_files"))
    )
    clean = Verdict.COULD_NOT_TELL if has_doubts else Verdict.CLEAN
    return entries.join(findings_by_hour(findings), on=_HOUR, how="full").select(
        *_HOUR,
        F.when(F.col("findings").isNotNull(), Verdict.FINDINGS).otherwise(clean).alias("verdict"),
        F.lit(is_whole).alias("is_whole"),
        *[F.coalesce(name, F.lit(0)).alias(name) for name in ("expected", "in_files")],
        F.coalesce("findings", F.create_map().cast("map<string, bigint>")).alias("findings"),
    )


def collect_record_hours(source: DataFrame, compared: DataFrame, *, most: int) -> list[RecordHour]:
    """Take the newest hours of record timestamps, in their order; nothing of an archive is in dead letters."""
    records = (
        source.where("in_window")
        .groupBy(hour_of("timestamp_ms"))
        .agg(_count(F.col("index") <= 0).alias("records"), _count(F.col("index") >= 0).alias("entries"))
    )
    found = (
        compared.where("of_window")
        .groupBy(hour_of("timestamp_ms").alias("found_ms"))
        .agg(
            _count(F.col("in_archive") & F.col("in_window")).alias("in_files"),
            _count(_has(Kind.MISSING)).alias("missing"),
            _count(_has(Kind.DUPLICATED)).alias("duplicated"),
        )
    )
    rows = (
        records.join(found, on=F.col("begins_ms").eqNullSafe(F.col("found_ms")), how="left")
        .na.fill(0, ["in_files", "missing", "duplicated"])
        .drop("found_ms")
        .orderBy(F.col("begins_ms").desc())
        .limit(most)
        .collect()
    )
    return [RecordHour(in_dead_letters=0, **row.asDict()) for row in reversed(rows)]


def _has(kind: Kind) -> Column:
    return F.exists("findings", lambda one: one["kind"] == kind)


def _count(condition: Column) -> Column:
    return F.count(F.when(condition, 1))
