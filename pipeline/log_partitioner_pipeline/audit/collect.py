"""Frames -> the bounded parts of the result: examples, hours, flushes, ids, counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from log_partitioner.formats.findings import Kind
from log_partitioner_pipeline.audit.lag import hour_of, lags_of
from log_partitioner_pipeline.audit.result import (
    Example,
    Finding,
    FlushedRange,
    FlushSeen,
    Hour,
    Ids,
    RecordHour,
    Verdict,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

_TP = ["topic", "partition"]
_HOUR = ["date", "hour"]
_NAMED_KINDS = (Kind.MISSING, Kind.DUPLICATED, Kind.UNEXPECTED, Kind.MISPLACED, Kind.ALTERED)
_SIZES = ("file_bytes_p50", "file_bytes_p99", "file_bytes_max")
HOURS_MAX = 5000
"""Hours in a result, the newest."""
_FLUSHES_MAX = 5000
_IDS_SHOWN = 20
_USER_CHARS_MAX = 200


def collect_examples(
    findings: DataFrame, references: DataFrame, lines: DataFrame, *, per_kind: int
) -> dict[str, list[Example]]:
    """Take the first findings of each kind, and look up their object, batch and worker."""
    rows = _first_of_each_kind(findings, per_kind)
    _look_up_references(rows, references)
    _look_up_batches(rows, lines)
    return _examples_of(rows)


def collect_plain_examples(findings: DataFrame, *, per_kind: int) -> dict[str, list[Example]]:
    """Take the first findings of each kind as they are."""
    return _examples_of(_first_of_each_kind(findings, per_kind))


def count_by_kind(findings: DataFrame) -> dict[str, int]:
    """Add up findings by kind."""
    return {row["kind"]: row["n"] for row in findings.groupBy("kind").agg(F.sum("count").alias("n")).collect()}


def findings_of(by_kind: dict[str, int], examples: dict[str, list[Example]]) -> list[Finding]:
    """Return the findings in the order of their kinds."""
    return [
        Finding(kind=kind, count=by_kind[kind], examples=examples.get(kind, [])) for kind in Kind if by_kind.get(kind)
    ]


def findings_by_hour(findings: DataFrame) -> DataFrame:
    """Return findings of entries by date and hour: `findings`, a map from kind to count.

    A finding of several hours counts in each of them, so one with count 0 (it is counted in another) counts here.
    """
    return (
        findings.where(F.col("date").isNotNull())
        .groupBy(*_HOUR, "kind")
        .agg(F.sum(F.greatest("count", F.lit(1))).alias("n"))
        .groupBy(*_HOUR)
        .agg(F.map_from_entries(F.collect_list(F.struct("kind", "n"))).alias("findings"))
    )


def _first_of_each_kind(findings: DataFrame, most: int) -> list[dict[str, Any]]:
    order = [F.col(name).asc_nulls_last() for name in ("topic", "partition", "offset", "index", "reference_id", "text")]
    nth = F.row_number().over(Window.partitionBy("kind").orderBy(*order))
    chosen = findings.where(F.col("count") > 0).withColumn("nth", nth).where(F.col("nth") <= most)
    return [row.asDict() for row in chosen.orderBy("kind", "nth").drop("nth").collect()]


def _examples_of(rows: list[dict[str, Any]]) -> dict[str, list[Example]]:
    examples: dict[str, list[Example]] = {}
    for row in rows:
        kind = row.pop("kind")
        row["text"] = row["text"] or ""
        examples.setdefault(kind, []).append(Example(**row))
    return examples


def _look_up_references(rows: list[dict[str, Any]], references: DataFrame) -> None:
    wanted = sorted({row["reference_id"] for row in rows if row["reference_id"] and not row["object"]})
    if not wanted:
        return
    found = (
        references.where(F.col("reference_id").isin(wanted))
        .select("reference_id", F.col("location.object").alias("object"), "batch_id", "worker")
        .collect()
    )
    by_id = {one["reference_id"]: one for one in found}
    for row in rows:
        one = by_id.get(row["reference_id"])
        if one is not None:
            row.update({name: row[name] or one[name] for name in ("object", "batch_id", "worker")})


def _look_up_batches(rows: list[dict[str, Any]], lines: DataFrame) -> None:
    """Name the batch that covers the record, if nothing else told it."""
    wanted = [row for row in rows if row["batch_id"] is None and row["offset"] is not None]
    if not wanted:
        return
    condition = F.lit(False)  # noqa: FBT003 - a value of SQL
    for topic, partition, offset in {(row["topic"], row["partition"], row["offset"]) for row in wanted}:
        condition = condition | (
            (F.col("topic") == topic)
            & (F.col("partition") == partition)
            & (F.col("first_offset") <= offset)
            & (F.col("next_offset") > offset)
        )
    found = lines.where(condition).select(*_TP, "first_offset", "next_offset", "batch_id", "worker").collect()
    for row in wanted:
        for line in found:
            is_same = (line["topic"], line["partition"]) == (row["topic"], row["partition"])
            if is_same and line["first_offset"] <= row["offset"] < line["next_offset"]:
                row.update(batch_id=line["batch_id"], worker=line["worker"])


def hours_of(
    compared: DataFrame, findings: DataFrame, in_window: DataFrame, references: DataFrame, *, has_doubts: bool
) -> DataFrame:
    """Return one row per date and hour with anything of the window; `in_window` are its references."""
    entries = (
        compared.where(F.col("date").isNotNull())
        .groupBy(*_HOUR)
        .agg(
            _count(F.col("deliverable")).alias("expected"),
            _count(F.col("deliverable") & (F.col("in_files") > 0)).alias("in_files"),
            _count(F.col("deliverable") & (F.col("in_dead_letters") > 0)).alias("in_dead_letters"),
        )
    )
    files = in_window.groupBy(*_HOUR).agg(
        F.countDistinct("location.object").alias("files"),
        F.sum("length").alias("bytes"),
        F.countDistinct("user").alias("users"),
        F.percentile_approx("length", [0.5, 0.99]).alias("sizes"),
        F.max("length").alias("file_bytes_max"),
    )
    read = compared.select(F.inline("row_places")).groupBy(*_HOUR).agg(F.count("*").alias("rows"))
    announced = references.groupBy(*_HOUR).agg(F.sum("entries").alias("announced"))
    clean = Verdict.COULD_NOT_TELL if has_doubts else Verdict.CLEAN
    counts = ["expected", "in_files", "in_dead_letters", "files", "bytes", "users"]
    return (
        entries.join(findings_by_hour(findings), on=_HOUR, how="full")
        .join(files, on=_HOUR, how="full")
        .join(read, on=_HOUR, how="left")
        .join(announced, on=_HOUR, how="left")
        .withColumns({name: F.coalesce(name, F.lit(0)) for name in counts})
        .withColumn("is_whole", F.coalesce("rows", F.lit(0)) == F.coalesce("announced", F.lit(0)))
        .withColumn("verdict", F.when(F.col("findings").isNotNull(), Verdict.FINDINGS).otherwise(clean))
        .withColumn("findings", F.coalesce("findings", F.create_map().cast("map<string, bigint>")))
        .withColumns({name: F.col("sizes")[nth] for nth, name in enumerate(_SIZES[:2])})
        .select(*_HOUR, "verdict", "is_whole", *counts, "findings", *_SIZES)
    )


def collect_hours(hours: DataFrame) -> tuple[list[Hour], int]:
    """Take the newest hours, in their order; also returns how many were left out."""
    rows = hours.orderBy(F.col("date").desc(), F.col("hour").desc()).limit(HOURS_MAX).collect()
    left_out = max(0, hours.count() - HOURS_MAX)
    return [_hour(row) for row in reversed(rows)], left_out


def _hour(row: Row) -> Hour:
    fields = row.asDict()
    found = dict(sorted(fields.pop("findings").items()))
    named = {kind.value: found.get(kind, 0) for kind in _NAMED_KINDS}
    return Hour(verdict=Verdict(fields.pop("verdict")), findings=found, **named, **fields)


def collect_record_hours(source: DataFrame, compared: DataFrame, flushes: DataFrame) -> list[RecordHour]:
    """Take the newest hours of record timestamps, in their order."""
    begins = hour_of("timestamp_ms")
    records = source.groupBy(begins).agg(
        _count(F.col("index") <= 0).alias("records"), _count(F.col("index") >= 0).alias("entries")
    )
    surplus = F.expr("aggregate(findings, 0L, (n, one) -> n + if(one.kind = 'duplicated', one.count, 0L))")
    missing = F.expr("exists(findings, one -> one.kind in ('missing', 'dead_letter_missing'))")
    found = (
        compared.where("in_source")
        .groupBy(begins)
        .agg(
            _count(F.col("in_files") > 0).alias("in_files"),
            _count(F.col("in_dead_letters") > 0).alias("in_dead_letters"),
            _count(missing).alias("missing"),
            F.sum(surplus).alias("duplicated"),
        )
        .withColumnRenamed("begins_ms", "found_ms")
    )
    same = F.col("begins_ms").eqNullSafe(F.col("found_ms"))
    names = ["records", "entries", "in_files", "in_dead_letters", "missing", "duplicated"]
    rows = (
        records.join(found, on=same, how="left")
        .select("begins_ms", *[F.coalesce(name, F.lit(0)).alias(name) for name in names])
        .join(lags_of(source, flushes), on="begins_ms", how="left")
        .orderBy(F.col("begins_ms").desc())
        .limit(HOURS_MAX)
        .collect()
    )
    return [RecordHour(**row.asDict()) for row in reversed(rows)]


def collect_flushes(flushes: DataFrame) -> tuple[list[FlushSeen], int]:
    """Take the newest flush records, in their order; also returns how many were left out."""
    rows = flushes.orderBy(F.col("ended_at_ms").desc()).limit(_FLUSHES_MAX).collect()
    return [_flush(row) for row in reversed(rows)], max(0, flushes.count() - _FLUSHES_MAX)


def _flush(row: Row) -> FlushSeen:
    totals = row["totals"]
    ranges = [
        FlushedRange(
            topic=line["topic"],
            partition=line["partition"],
            first_offset=line["first_offset"],
            next_offset=line["next_offset"],
            entries=line["entries"],
            dead_letters=line["dead_letters"],
            timestamp_max_ms=line["timestamp_max_ms"],
        )
        for line in row["topic_partitions"]
    ]
    names = ("batch_id", "worker", "boot", "seq", "generation", "reason", "started_at_ms", "ended_at_ms")
    return FlushSeen(
        **{name: row[name] for name in names},
        entries=totals["entries"],
        entries_in_files=totals["entries_in_files"],
        dead_letters=totals["dead_letters"],
        references=totals["references"],
        bytes=totals["bytes"],
        ranges=ranges,
    )


def collect_ids(compared: DataFrame) -> Ids:
    """Compare unique ids by their occurrences, whatever their positions; an id only in dead letters has no row."""
    zero, one = F.lit(0).alias("f"), F.lit(1)
    is_dead = (F.col("in_files") == 0) & (F.col("in_dead_letters") > 0)
    deliverable = compared.where(F.col("deliverable") & F.col("id").isNotNull() & ~is_dead)
    expected = deliverable.select("id", one.alias("s"), zero)
    found = compared.select(F.explode("row_ids").alias("id")).where(F.col("id").isNotNull())
    both = expected.unionByName(found.select("id", F.lit(0).alias("s"), one.alias("f")))
    by_id = both.groupBy("id").agg(F.sum("s").alias("s"), F.sum("f").alias("f"))
    sums = by_id.agg(
        F.sum("s").alias("in_source"),
        F.sum("f").alias("in_files"),
        F.sum(F.greatest(F.col("s") - F.col("f"), F.lit(0))).alias("missing"),
        F.sum(F.greatest(F.col("f") - F.col("s"), F.lit(0))).alias("surplus"),
        _count(F.col("s") > 1).alias("repeated_in_source"),
    ).first()
    assert sums is not None, "an aggregate has one row"
    different = by_id.where(F.col("s") != F.col("f")).orderBy("id").limit(_IDS_SHOWN).collect()
    shown = [f"{row['id'][:_USER_CHARS_MAX]}: {row['s']} in the source, {row['f']} in files" for row in different]
    return Ids(examples=shown, **{name: value or 0 for name, value in sums.asDict().items()})


def collect_counts(compared: DataFrame, rows: DataFrame, references: DataFrame, flushes: DataFrame) -> dict[str, int]:
    """Count the fields of `result.Counts`; the table's too, 0 if it was not asked for."""
    entries = compared.agg(
        _count(F.col("deliverable")).alias("deliverable"),
        _count(F.col("in_source") & ~F.col("deliverable")).alias("dead"),
        _count(F.col("in_files") > 0).alias("in_files"),
        _count(F.col("in_dead_letters") > 0).alias("in_dead_letters"),
        F.sum("in_table").alias("in_table"),
    )
    objects = (
        references.groupBy("location.bucket", "location.object", "location.version_id")
        .agg(F.count("*").alias("n"), F.first("location.size").alias("size"), F.bool_or("retired").alias("is_retired"))
        .agg(
            F.sum("n").alias("references"),
            F.count("*").alias("objects"),
            F.sum("size").alias("object_bytes"),
            _count(F.col("is_retired")).alias("objects_retired"),
        )
    )
    flushed = flushes.agg(F.count("*").alias("flushes"))
    is_row = F.col("topic").isNotNull()
    read = rows.agg(_count(is_row).alias("rows"), _count(is_row & F.col("retired")).alias("rows_retired"))
    found: dict[str, int] = {}
    for frame in (entries, objects, flushed, read):
        row = frame.first()
        assert row is not None, "an aggregate has one row"
        found |= {name: value or 0 for name, value in row.asDict().items()}
    return found


def _count(condition: Column) -> Column:
    return F.count(F.when(condition, 1))
