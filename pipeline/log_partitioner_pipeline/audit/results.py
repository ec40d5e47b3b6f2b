"""Judged batches -> the bounded parts of the result: examples, hours, flushes, coverage, unique ids."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import functions as F

from log_partitioner.errors import CouldNotTellError
from log_partitioner.formats.findings import Kind
from log_partitioner.formats.model import TopicPartition
from log_partitioner_pipeline.audit.judged import HOUR_MS, FoundAt, HourCounts, JudgedBatches, percentile
from log_partitioner_pipeline.audit.result import (
    Counts,
    Coverage,
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
    from collections.abc import Callable, Iterable

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from log_partitioner.formats.model import SourceRecord
    from log_partitioner.proof.audit.audit import Index
    from log_partitioner.proof.audit.context import Ground
    from log_partitioner.proof.audit.judge import BatchJudge

HOURS_MAX = 5000
"""Hours in a result, the newest."""
FLUSHES_MAX = 5000
_IDS_SHOWN = 20
_ID_CHARS_MAX = 200
_SIDES = ("in_source", "in_files")
_ORDER = ("topic", "partition", "offset", "index", "reference_id", "text")


def findings_of(judged: JudgedBatches, index: Index, judge: BatchJudge, *, examples: int) -> list[Finding]:
    """Return all findings by kind, with the first examples of each; their records are read again, for time and id."""
    counts = sum(map(Counter, judged.kinds.values()), Counter[Kind]())
    workers = {record.batch_id: record.worker for record in index.flushes}
    workers |= {batch_id: run.worker for batch_id, run in index.runs.items()}
    record_of = _reader_of(judge, index.ground)
    found = []
    for kind in (kind for kind in Kind if counts[kind]):
        some = [one for one in judged.examples if one.kind is kind]
        some.sort(key=lambda one: [(value is None, value) for value in (getattr(one, name) for name in _ORDER)])
        shown = [_example(one, workers.get(one.batch_id or ""), record_of) for one in some[:examples]]
        found.append(Finding(kind=kind, count=counts[kind], examples=shown))
    return found


def _reader_of(judge: BatchJudge, ground: Ground) -> Callable[[FoundAt], dict[str, Any]]:
    """Return a function that reads the record of a finding again, and says what is known of its entry."""

    @cache
    def read(tp: TopicPartition, offset: int) -> SourceRecord | None:
        try:
            record = judge.context.read_again(tp, offset)
        except CouldNotTellError:
            return None
        return None if record is None else ground.put_away.seen(record)  # none that stands alone is decoded

    def record_of(one: FoundAt) -> dict[str, Any]:
        tp = TopicPartition(one.topic or "", one.partition or 0)
        record = read(tp, one.offset) if tp in ground.source and one.offset is not None else None
        if record is None:
            return {}
        about: dict[str, Any] = {"timestamp_ms": record.timestamp_ms}
        entries = judge.context.judge.judge(record).entries
        entry = entries[one.index].deliverable if one.index is not None and one.index < len(entries) else None
        if entry is not None:
            user, date, hour = entry.key
            about |= {"id": entry.id, "user": user, "date": date, "hour": hour}
        return about

    return record_of


def _example(one: FoundAt, worker: str | None, record_of: Callable[[FoundAt], dict[str, Any]]) -> Example:
    fields = {name: value for name, value in msgspec.structs.asdict(one).items() if name != "kind"}
    return Example(**fields | record_of(one), worker=worker)


def counts_of(judged: JudgedBatches, index: Index, *, in_table: int | None, listed: int | None) -> Counts:
    """Return the counts of the result; tasks have counted by the names of the small audit."""
    counts = judged.counts
    expected = sum(hour.expected for hour in judged.hours.values())
    return Counts(
        records=counts.get("source_records", 0),
        entries=counts.get("source_entries", 0),
        deliverable=expected,
        dead=counts.get("source_entries", 0) - expected,
        in_files=counts.get("entries_in_files", 0),
        in_dead_letters=counts.get("entries_in_dead_letters", 0),
        rows=counts.get("rows_read", 0),
        in_table=in_table,
        references=counts.get("references", 0),
        objects=counts.get("objects", 0),
        object_bytes=counts.get("object_bytes", 0),
        flushes=len(index.flushes),
        objects_retired=counts.get("objects_retired", 0),
        rows_retired=counts.get("rows_retired", 0),
        objects_listed=listed,
    )


def hours_of(judged: JudgedBatches, *, has_doubts: bool) -> tuple[list[Hour], int]:
    """Return the newest hours, in their order, and how many were left out.

    Findings of a batch that belong to no hour make the verdict of each of its hours.
    """
    undecided = Verdict.COULD_NOT_TELL if has_doubts else Verdict.CLEAN
    faulty = {place.batch for place in judged.kinds if place.date is None}
    hours: dict[tuple[str, int], tuple[HourCounts, Counter[str], list[bool]]] = {}
    for place in {*judged.hours, *judged.kinds}:
        if place.date is None or place.hour is None:
            continue
        counts, kinds, wrong = hours.setdefault((place.date, place.hour), (HourCounts(), Counter(), []))
        counts.add(judged.hours.get(place, HourCounts()))
        kinds.update({kind.value: count for kind, count in judged.kinds.get(place, {}).items()})
        wrong.append(place.batch in faulty or place in judged.kinds)
    found = [
        Hour(
            date=date,
            hour=hour,
            verdict=Verdict.FINDINGS if any(wrong) else undecided,
            findings=dict(sorted(kinds.items())),
            **msgspec.structs.asdict(counts),
        )
        for (date, hour), (counts, kinds, wrong) in sorted(hours.items())
    ]
    return found[-HOURS_MAX:], max(0, len(found) - HOURS_MAX)


def record_hours_of(judged: JudgedBatches) -> list[RecordHour]:
    """Return the newest hours of record timestamps, in their order; records without one come first."""
    hours = sorted(judged.record_hours.items(), key=lambda one: (one[0] is not None, one[0] or 0))
    return [
        RecordHour(
            begins_ms=None if hour is None else hour * HOUR_MS,
            lag_p50_ms=percentile(counts.lags, 0.5),
            lag_p99_ms=percentile(counts.lags, 0.99),
            lag_max_ms=max(counts.lags, default=None),
            **{name: value for name, value in msgspec.structs.asdict(counts).items() if name != "lags"},
        )
        for hour, counts in hours[-HOURS_MAX:]
    ]


def flushes_of(index: Index) -> tuple[list[FlushSeen], int]:
    """Return the newest flush records, in their order, and how many were left out."""
    flushes = sorted(index.flushes, key=lambda record: record.ended_at_ms)
    names = ("batch_id", "worker", "boot", "seq", "generation", "reason", "started_at_ms", "ended_at_ms")
    totals = ("entries", "entries_in_files", "dead_letters", "references", "bytes")
    seen = [
        FlushSeen(
            **{name: getattr(record, name) for name in names},
            **{name: getattr(record.totals, name) for name in totals},
            ranges=[
                FlushedRange(**{name: getattr(line, name) for name in FlushedRange.__struct_fields__})
                for line in record.topic_partitions
            ],
        )
        for record in flushes[-FLUSHES_MAX:]
    ]
    return seen, max(0, len(flushes) - FLUSHES_MAX)


def coverage_of(judged: JudgedBatches, index: Index) -> list[Coverage]:
    """Return which offsets were audited."""
    found = []
    for tp, first, end, committed in index.reached:
        audited = index.ground.source.get(tp, (first, first))
        records, entries = judged.source.get((tp.topic, tp.partition), (0, 0))
        found.append(
            Coverage(
                topic=tp.topic,
                partition=tp.partition,
                retained_offset=first,
                end_offset=end,
                committed_offset=committed,
                first_offset=audited[0],
                next_offset=audited[1],
                window_first_offset=audited[0],
                window_next_offset=audited[1],
                records=records,
                entries=entries,
            )
        )
    return found


def ids_of(judged: DataFrame) -> Ids:
    """Compare unique ids by how often they occur, wherever they are; columns of `bundles.JUDGED`."""
    sides = [F.sum(name).alias(name) for name in _SIDES]
    by_id = judged.where(F.col("id").isNotNull()).groupBy("id").agg(*sides)
    source, files = F.col("in_source"), F.col("in_files")
    sums = by_id.agg(
        F.sum(source).alias("in_source"),
        F.sum(files).alias("in_files"),
        F.sum(F.greatest(source - files, F.lit(0))).alias("missing"),
        F.sum(F.greatest(files - source, F.lit(0))).alias("surplus"),
        F.count_if(source > 1).alias("repeated_in_source"),
    ).first()
    assert sums is not None, "an aggregate has one row"
    different = by_id.where(source != files).orderBy("id").limit(_IDS_SHOWN).collect()
    shown = [_said_of_id(*row) for row in different]
    return Ids(examples=shown, **{name: value or 0 for name, value in sums.asDict().items()})


def ids_of_rows(batches: Iterable[pa.RecordBatch]) -> Ids:
    """Compare unique ids as `ids_of` does, of batches in memory."""
    sides: Counter[tuple[str, str]] = Counter()
    for batch in batches:
        for row in batch.select(["id", *_SIDES]).to_pylist():
            if row["id"] is not None:
                sides.update({(row["id"], side): row[side] for side in _SIDES})
    by_id = {name: (sides[name, _SIDES[0]], sides[name, _SIDES[1]]) for name, _ in sides}
    return Ids(
        in_source=sum(one[0] for one in by_id.values()),
        in_files=sum(one[1] for one in by_id.values()),
        missing=sum(max(0, one - other) for one, other in by_id.values()),
        surplus=sum(max(0, other - one) for one, other in by_id.values()),
        repeated_in_source=sum(one > 1 for one, _ in by_id.values()),
        examples=[_said_of_id(name, *one) for name, one in sorted(by_id.items()) if one[0] != one[1]][:_IDS_SHOWN],
    )


def _said_of_id(name: str, in_source: int, in_files: int) -> str:
    return f"{name[:_ID_CHARS_MAX]}: {in_source} in the source, {in_files} in files"
