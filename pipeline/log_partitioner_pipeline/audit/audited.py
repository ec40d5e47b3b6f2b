"""Results of audits as tables beside that of the entries: `audit_runs`, `audit_findings` and `audited` (DESIGN 8).

`audited` has one row for each batch and hour that an audit has judged as a whole. An hour has passed when the newest
row of every batch with entries in it is clean, and of as many references as the batch has: so windows compose, whatever
came late, a backfill that goes on is audited again, and a finding stays open until an audit has seen its own batch
clean. An audit with the table says by `table_id` which one it was, and by `table_verdict` whether it had the same rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from log_partitioner_pipeline import written
from log_partitioner_pipeline.announced import FLUSHES, REFERENCES, AnnouncedTable
from log_partitioner_pipeline.audit.result import Result, Verdict
from log_partitioner_pipeline.session import CATALOG
from log_partitioner_pipeline.whose import of_history

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

    from log_partitioner.formats.findings import Kind
    from log_partitioner.formats.flush_record import Lineage
    from log_partitioner_pipeline.audit.judged import BatchHour, HourCounts
    from log_partitioner_pipeline.config import JobSettings
    from log_partitioner_pipeline.table import Position
    from log_partitioner_pipeline.topic_log import Offsets

AUDITED, RUNS, FINDINGS = "audited", "audit_runs", "audit_findings"
_HOUR = ("batch_id", "date", "hour")
_RUN_COLUMNS = (
    "run_id string, started_at timestamp, seconds double, verdict string, window_from timestamp, "
    "window_until timestamp, group_id string, references_topic string, counts map<string, bigint>, "
    "findings map<string, bigint>, could_not_tell array<string>, notes array<string>"
)
_FINDING_COLUMNS = (
    "run_id string, started_at timestamp, kind string, count bigint, text string, topic string, partition int, "
    "offset bigint, index int, timestamp_ms bigint, user string, date string, hour int, id string, "
    "reference_id string, object string, batch_id string, worker string"
)
_AUDITED_COLUMNS = (
    "batch_id string, date string, hour int, verdict string, references bigint, expected bigint, found bigint, "
    "findings map<string, bigint>, group_id string, references_topic string, audited_at timestamp, run_id string, "
    "table_verdict string, table_id string, table_snapshot bigint, table_schema int"
)


class Passed(NamedTuple):
    """Dates and hours (of the partition zone) that have passed, and the offsets of references up to which they have."""

    hours: set[tuple[str, int]]
    offsets: Offsets


def table_names(settings: JobSettings) -> list[str]:
    """Return the names of all these tables."""
    return [settings.pipeline.table.beside(name) for name in (AUDITED, RUNS, FINDINGS)]


def write_result(spark: SparkSession, settings: JobSettings, result: Result) -> None:
    """Append the run and its examples of findings; makes the tables if they are not there."""
    run = {"run_id": result.run_id, "started_at": 1000 * result.started_at_ms}
    kafka = settings.worker.kafka
    counts = {name: count for name, count in msgspec.to_builtins(result.counts).items() if count is not None}
    row = run | {
        "seconds": result.seconds,
        "verdict": result.verdict,
        "window_from": _micros(result.window.from_ms),
        "window_until": _micros(result.window.until_ms),
        "group_id": kafka.group_id,
        "references_topic": kafka.references_topic,
        "counts": counts,
        "findings": {finding.kind: finding.count for finding in result.findings},
        "could_not_tell": result.could_not_tell,
        "notes": result.notes,
    }
    _append(spark, settings, RUNS, _RUN_COLUMNS, "months(started_at)", [row])
    found = [
        run | {"kind": one.kind} | msgspec.structs.asdict(example)
        for one in result.findings
        for example in one.examples
    ]
    _append(spark, settings, FINDINGS, _FINDING_COLUMNS, "months(started_at)", found)


def write_audited(
    spark: SparkSession,
    settings: JobSettings,
    hours: Mapping[BatchHour, HourCounts],
    findings: Mapping[BatchHour, Mapping[Kind, int]],
    *,
    result: Result,
    position: Position | None,
    taken: Container[str],
) -> None:
    """Append what was found of each batch and hour. `position` is the table's, None if it was not audited.

    Findings of a batch that belong to no hour are in each of its hours. The table has batches that it has `taken`.
    """
    of_batch = {place.batch: kinds for place, kinds in findings.items() if place.date is None}
    kafka, rows = settings.worker.kafka, list[dict[str, object]]()
    clean = None if result.could_not_tell else Verdict.CLEAN
    for place in sorted(place for place in {*hours, *findings} if None not in place):
        kinds = {**of_batch.get(place.batch, {}), **findings.get(place, {})}
        of_table = any(kind.startswith("table") for kind in kinds)
        of_files = any(not kind.startswith("table") for kind in kinds)
        counts = hours.get(place)
        row: dict[str, object] = dict(zip(_HOUR, place, strict=True)) | {
            "verdict": Verdict.FINDINGS if of_files else clean,
            "references": counts.references if counts else 0,
            "expected": counts.expected if counts else 0,
            "found": counts.in_files + counts.in_dead_letters if counts else 0,
            "findings": kinds,
            "group_id": kafka.group_id,
            "references_topic": kafka.references_topic,
            "audited_at": 1000 * (result.started_at_ms + round(1000 * result.seconds)),
            "run_id": result.run_id,
        }
        if position is not None and place.batch in taken:
            row |= {
                "table_verdict": Verdict.FINDINGS if of_table else clean,
                "table_id": position.table_id,
                "table_snapshot": position.snapshot_id,
                "table_schema": position.schema_id,
            }
        rows.append(row)
    _append(spark, settings, AUDITED, _AUDITED_COLUMNS, "truncate(7, date)", rows)


def read_passed(spark: SparkSession, settings: JobSettings, lineage: Lineage, *, table_id: str | None = None) -> Passed:
    """Read which hours of a history have passed in files, and with a `table_id` in that table, too.

    No hour passes that has a batch of offsets that another batch has flushed, too, however far apart they were audited.
    """
    name = f"{CATALOG}.{settings.pipeline.table.beside(AUDITED)}"
    announced, flushes = (AnnouncedTable(spark, settings, one) for one in (REFERENCES, FLUSHES))
    if not (spark.catalog.tableExists(name) and announced.is_there and flushes.is_there):
        return Passed(set(), {})
    known = announced.position().offsets  # before the references are read: so these may only be more
    kafka = settings.worker.kafka
    references = of_history(spark.table(announced.name).where("reference_id IS NOT NULL"), lineage, "sources")
    batches = references.groupBy(*_HOUR).agg(F.countDistinct("reference_id").alias("n"))
    again = _flushed_again(of_history(spark.table(flushes.name), lineage, "topic_partitions"))
    ours = spark.table(name).where(
        (F.col("references_topic") == kafka.references_topic) & F.col("group_id").isin(*lineage.groups)
    )
    of_it = F.when(F.col("table_id") == F.lit(table_id), F.col("audited_at"))
    newest = ours.groupBy(*_HOUR).agg(
        _newest("verdict", F.col("audited_at")).alias("files"), _newest("table_verdict", of_it).alias("in_table")
    )
    is_open = " OR ".join(
        [
            f"coalesce({side}.verdict = '{Verdict.FINDINGS}', false) "
            f"OR n > 0 AND coalesce({side}.verdict != '{Verdict.CLEAN}' OR {side}.references < n, true)"
            for side in (["files"] if table_id is None else ["files", "in_table"])
        ]
        + ["is_again"]
    )
    hours = newest.join(batches, on=list(_HOUR), how="full").join(again, on="batch_id", how="left")
    by_hour = hours.groupBy("date", "hour").agg(F.bool_or(F.expr(is_open)).alias("is_open"))
    passed = by_hour.where("NOT coalesce(is_open, false)").collect()
    return Passed({(row["date"], row["hour"]) for row in passed}, known)


def _newest(verdict: str, at: Column) -> Column:
    """Take the newest verdict that was decided, with the references that it was of."""
    decided = F.when(F.col(verdict).isNotNull(), at)
    return F.max_by(F.struct(F.col(verdict).alias("verdict"), "references"), decided)


def _flushed_again(flushes: DataFrame) -> DataFrame:
    """Return the batches with offsets of which an earlier one has some: `batch_id`, `is_again`."""
    lines = flushes.select("batch_id", F.inline("topic_partitions")).where("first_offset < next_offset")
    before = Over.partitionBy("topic", "partition").orderBy("first_offset", "next_offset", "batch_id")
    reached = F.max("next_offset").over(before.rowsBetween(Over.unboundedPreceding, -1))
    found = lines.withColumn("reached", reached).where("first_offset < reached")
    return found.select("batch_id", F.expr("true AS is_again")).distinct()


def _append(
    spark: SparkSession, settings: JobSettings, name: str, columns: str, places: str, rows: Iterable[dict[str, object]]
) -> None:
    table = f"{CATALOG}.{settings.pipeline.table.beside(name)}"
    written.ensure(spark, table, columns, places=places)
    written.append(spark, table, list(rows))


def _micros(at_ms: int | None) -> int | None:
    return None if at_ms is None else 1000 * at_ms
