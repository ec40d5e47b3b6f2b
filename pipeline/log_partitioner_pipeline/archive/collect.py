"""Frames -> the bounded parts of the result: findings with their first examples, hours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from log_partitioner.formats.findings import Kind
from log_partitioner_pipeline.archive.by_id import count_if
from log_partitioner_pipeline.audit.result import Example, Finding, Hour, RecordHour, Verdict
from log_partitioner_pipeline.frames import ENTRY_KEY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_HOUR = ["date", "hour"]
_HOUR_MS = 3_600_000
_HOURS_MAX = 5000
_NUMBERS = (Kind.MISSING.value, Kind.DUPLICATED.value)


def collect_findings(findings: DataFrame, *, per_kind: int) -> list[Finding]:
    """Count findings by kind, in the order of `Kind`, and take the first ones of each."""
    counts = {row["kind"]: row["count"] for row in findings.groupBy("kind").count().collect()}
    order = [F.col(name).asc_nulls_last() for name in (*ENTRY_KEY, "text")]
    nth = F.row_number().over(Window.partitionBy("kind").orderBy(*order))
    chosen = findings.withColumn("nth", nth).where(F.col("nth") <= per_kind).orderBy("kind", "nth").drop("nth")
    examples: dict[str, list[Example]] = {}
    for row in chosen.collect():
        fields = row.asDict()
        examples.setdefault(fields.pop("kind"), []).append(Example(**fields))
    return [Finding(kind=kind, count=counts[kind], examples=examples.get(kind, [])) for kind in Kind if kind in counts]


def hours_of(compared: DataFrame, findings: DataFrame) -> DataFrame:
    """Return one row per date and hour with anything of the window; `findings` is a map from kind to count."""
    entries = (
        compared.where("is_expected")
        .groupBy(*_HOUR)
        .agg(F.count("*").alias("expected"), count_if("in_archive").alias("in_files"))
    )
    found = (
        findings.where("date is not null")
        .groupBy(*_HOUR, "kind")
        .agg(F.count("*").alias("n"))
        .groupBy(*_HOUR)
        .agg(F.map_from_entries(F.collect_list(F.struct("kind", "n"))).alias("findings"))
    )
    return entries.join(found, on=_HOUR, how="full").na.fill(0, ["expected", "in_files"])


def collect_hours(hours: DataFrame, *, has_doubts: bool) -> tuple[list[Hour], int]:
    """Take the newest hours, in their order; also returns how many were left out."""
    clean = Verdict.COULD_NOT_TELL if has_doubts else Verdict.CLEAN
    rows = hours.orderBy(F.col("date").desc(), F.col("hour").desc()).limit(_HOURS_MAX).collect()
    taken = [
        Hour(
            date=row["date"],
            hour=row["hour"],
            verdict=Verdict.FINDINGS if row["findings"] else clean,
            expected=row["expected"],
            in_files=row["in_files"],
            findings=dict(sorted((row["findings"] or {}).items())),
        )
        for row in reversed(rows)
    ]
    return taken, max(0, hours.count() - _HOURS_MAX)


def collect_record_hours(source: DataFrame, compared: DataFrame) -> list[RecordHour]:
    """Take the newest hours of record timestamps, in their order; nothing of an archive is in dead letters."""
    begins_ms = _begin_of_hour().alias("begins_ms")
    records = (
        source.where("in_window")
        .groupBy(begins_ms)
        .agg(count_if("index <= 0").alias("records"), count_if("index >= 0").alias("entries"))
    )
    found = (
        compared.where("of_window")
        .groupBy(_begin_of_hour().alias("found_ms"))
        .agg(
            count_if("in_archive and (is_expected or is_dead)").alias("in_files"),
            *[count_if(f"exists(findings, one -> one.kind = '{kind}')").alias(kind) for kind in _NUMBERS],
        )
    )
    rows = (
        records.join(found, on=F.col("begins_ms").eqNullSafe(F.col("found_ms")), how="left")
        .na.fill(0, ["in_files", *_NUMBERS])
        .drop("found_ms")
        .orderBy(F.col("begins_ms").desc())
        .limit(_HOURS_MAX)
        .collect()
    )
    return [RecordHour(in_dead_letters=0, **row.asDict()) for row in reversed(rows)]


def _begin_of_hour() -> Column:
    return (F.floor(F.col("timestamp_ms") / _HOUR_MS) * _HOUR_MS).cast("bigint")
