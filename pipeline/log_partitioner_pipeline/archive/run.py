"""The audit against an older system's archived CSV: the same window of the source, another witness.

Owns the order of its steps. It compares by unique id, and its result has the form of every other audit, so that
`compare` can lay both side by side.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from log_partitioner.adapters.kafka.topics import KafkaTopics
from log_partitioner.formats.findings import Kind
from log_partitioner.formats.model import TopicPartition
from log_partitioner_pipeline.archive import by_id, collect, files, span
from log_partitioner_pipeline.archive.source import identify
from log_partitioner_pipeline.audit.result import Archive, Counts, Ids, Result, Witness
from log_partitioner_pipeline.errors import ArchiveError
from log_partitioner_pipeline.frames import Kept
from log_partitioner_pipeline.kafka import read_messages
from log_partitioner_pipeline.progress import StepProgress

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from log_partitioner.config.settings import KafkaSettings
    from log_partitioner_pipeline.archive.span import SourceSpan
    from log_partitioner_pipeline.audit.result import Window
    from log_partitioner_pipeline.config import CsvSettings, JobSettings

_REFUSED_SHOWN = 3
_NOTES = {
    "broken_elsewhere": "lines or files are broken, of which nobody knows that they are of the window",
    "rows_without_id": "rows of the archive have no unique id",
    "rows_timeless": "rows of the archive have an id that is not of the window, and no time that can be read",
    "rows_dead": "rows of the archive are of entries that are no deliverable ones: dead letters here",
    "repeated": "unique ids are more than once in the source itself",
}


class Totals(NamedTuple):
    """Counts of a TopicPartition within the window; `oldest_ms` covers all records that were read."""

    records: int = 0
    entries: int = 0
    deliverable: int = 0
    without_id: int = 0
    oldest_ms: int | None = None


class Judged(NamedTuple):
    """Rows with a time in [from_ms, until_ms) are judged (from_ms None: no lower bound); with doubts and notes."""

    from_ms: int | None
    until_ms: int
    doubts: list[str]
    notes: list[str]


def require_ids(settings: JobSettings) -> None:
    """Check that entries have unique ids.

    Raises:
        ArchiveError: the settings do not name it.
    """
    if not settings.worker.id.paths:
        raise ArchiveError("an archive is compared by unique id: LOGP_ID__PATHS must say where entries have theirs")


def audit_archive(
    spark: SparkSession, settings: JobSettings, location: str, window: Window, *, examples: int = 10
) -> Result:
    """Compare a window with an archive; `examples` is the number of findings kept of each kind.

    Blocks for as long as it takes to read the window, and the files that may belong to it.

    Raises:
        PipelineError, CouldNotTellError: there is no such archive, or brokers or S3 do not answer.
    """
    require_ids(settings)
    with Kept() as kept, StepProgress(spark, "audit") as progress:
        return _audit(spark, settings, location, window, examples=examples, kept=kept, progress=progress)


def _audit(
    spark: SparkSession,
    settings: JobSettings,
    location: str,
    window: Window,
    *,
    examples: int,
    kept: Kept,
    progress: StepProgress,
) -> Result:
    """Outline: the source's offsets -> the archive's files -> both sides -> compare -> the result."""
    started_at_ms = time.time_ns() // 1_000_000
    kafka, csv = settings.worker.kafka, settings.pipeline.csv
    progress.step("topics")
    cluster_id, spans = _ask(kafka, window)
    progress.step("archive")
    listed = files.list_files(settings, location, window)
    progress.count(files=len(listed))
    progress.step("source")
    messages = read_messages(spark, kafka, {one.tp: one.to_read for one in spans})
    identified = kept.keep(identify(messages, settings))
    spans, strays = span.reach_last(spans, span.find_last(identified, window))
    source = span.mark_window(identified, spans, window)
    totals = _totals_of(source)
    total = Totals(*[sum(getattr(one, name) for one in totals.values()) for name in Totals._fields[:-1]])
    judged = find_judged(window, spans, {tp: one.oldest_ms for tp, one in totals.items()}, started_at_ms=started_at_ms)
    progress.step("rows")
    archived = kept.keep(files.read_files(spark, settings, listed))
    refused = refused_files(archived)
    progress.step("comparison")
    rules = by_id.ArchiveRules(
        values=tuple(csv.values),
        time_tolerance_s=csv.time_tolerance_s,
        from_us=None if judged.from_ms is None else judged.from_ms * 1000,
        until_us=judged.until_ms * 1000,
        is_all_read=not refused,
    )
    compared = kept.keep(by_id.compare(source, archived, rules))
    findings = kept.keep(by_id.findings_of(compared, archived))
    found = collect.collect_findings(findings, per_kind=examples)
    by_kind = {one.kind: one.count for one in found}
    counted = by_id.count(archived, compared)
    of_rows, of_columns = remarks_of(counted, total, refused), remarks_of_columns(archived, csv)
    doubts = [*strays, *judged.doubts, *of_rows[0], *of_columns[0]]
    notes = [*judged.notes, *of_rows[1], *of_columns[1]]
    progress.step("hours")
    hours, hours_left_out = collect.collect_hours(
        kept.keep(collect.hours_of(compared, findings)), has_doubts=bool(doubts)
    )
    record_hours = collect.collect_record_hours(source, compared)
    durations = progress.end()
    size = sum(one.size for one in listed)
    return Result(
        against=Witness.CSV,
        run_id=uuid.uuid4().hex[:12],
        started_at_ms=started_at_ms,
        seconds=round(sum(durations.values()), 3),
        places=_places_of(settings, location, cluster_id),
        window=window,
        coverage=[
            span.coverage_of(one, records=of_it.records, entries=of_it.entries)
            for one, of_it in ((one, totals.get(one.tp, Totals())) for one in spans)
        ],
        counts=Counts(
            records=total.records,
            entries=total.entries,
            deliverable=total.deliverable,
            dead=total.entries - total.deliverable,
            in_files=counted["found"],
            rows=counted["rows"],
            objects=len(listed),
            object_bytes=size,
        ),
        findings=found,
        could_not_tell=doubts,
        notes=notes,
        ids=Ids(
            in_source=counted["expected"],
            in_files=counted["of_window"],
            missing=by_kind.get(Kind.MISSING, 0),
            surplus=by_kind.get(Kind.DUPLICATED, 0) + by_kind.get(Kind.UNEXPECTED, 0),
            repeated_in_source=counted["repeated"],
            examples=[],
        ),
        dead_letters={},
        hours=hours,
        hours_left_out=hours_left_out,
        record_hours=record_hours,
        flushes=[],
        references_offsets={},
        archive=Archive(
            files=len(listed),
            bytes=size,
            entries_without_id=total.without_id,
            **{name: counted[name] for name in Archive.__struct_fields__ if name in counted},
        ),
        durations_s=durations,
    )


def _ask(kafka: KafkaSettings, window: Window) -> tuple[str | None, list[SourceSpan]]:
    with KafkaTopics.of(kafka) as topics:
        tps = topics.source_topic_partitions(kafka.sources)
        return topics.cluster_id(), span.find_spans(topics, tps, window)


def _places_of(settings: JobSettings, location: str, cluster_id: str | None) -> dict[str, str]:
    kafka, csv = settings.worker.kafka, settings.pipeline.csv
    columns = {"id": csv.id_column, "user": csv.user_column, "time": csv.time_column}
    named = [f"{name} {column}" for name, column in columns.items() if column is not None]
    return {
        "brokers": kafka.bootstrap_servers,
        **({} if cluster_id is None else {"cluster": cluster_id}),
        "source": ", ".join(kafka.source_topics),
        "archive": location,
        "columns": ", ".join([*named, *csv.values]),
    }


def _totals_of(source: DataFrame) -> dict[TopicPartition, Totals]:
    """Count by TopicPartition; `source` is `source.IDENTIFIED` with `in_window`."""
    rows = source.groupBy("topic", "partition").agg(
        by_id.count_if("in_window and index <= 0").alias("records"),
        by_id.count_if("in_window and index >= 0").alias("entries"),
        by_id.count_if("in_window and deliverable").alias("deliverable"),
        by_id.count_if("in_window and deliverable and id is null").alias("without_id"),
        F.min("timestamp_ms").alias("oldest_ms"),
    )
    return {TopicPartition(topic, number): Totals(*counts) for topic, number, *counts in rows.collect()}


def refused_files(archived: DataFrame) -> list[str]:
    """Return the first files that could not be had, with the reasons."""
    return [row["text"] for row in archived.where("unread").select("text").limit(_REFUSED_SHOWN).collect()]


def remarks_of(counted: Mapping[str, int], total: Totals, refused: list[str]) -> tuple[list[str], list[str]]:
    """Return doubts and notes about the parts of source and archive that cannot be compared."""
    doubts, notes = [], []
    if refused:
        doubts.append(f"files cannot be read: {'; '.join(refused)}")
        doubts.append(f"{counted['expected'] - counted['found']} entries may be in files that cannot be read")
    if total.without_id == total.deliverable > 0:
        doubts.append("no entry of the window has a unique id")
    elif total.without_id:
        notes.append(f"{total.without_id} entries of the window have no unique id, and cannot be compared")
    return doubts, [*notes, *(f"{counted[name]} {text}" for name, text in _NOTES.items() if counted[name])]


def remarks_of_columns(archived: DataFrame, csv: CsvSettings) -> tuple[list[str], list[str]]:
    """Return a doubt about each column of the settings that no row has, a note about each that some rows lack."""
    places = {csv.user_column: "user", csv.time_column: "time_text"}
    places |= {name: f"get(values, {nth})" for nth, name in enumerate(csv.values)}
    lacking = [F.expr(f"count_if({place} is null)") for name, place in places.items() if name is not None]
    counts = archived.where("line is not null and kind is null").agg(F.count("*"), *lacking).first()
    assert counts is not None, "an aggregate has one row"
    names, (rows, *numbers) = [name for name in places if name is not None], counts
    found = [(name, number) for name, number in zip(names, numbers, strict=True) if number]
    return (
        [f"no file has a column {name!r}" for name, number in found if number == rows],
        [f"{number} of {rows} rows are in files without a column {name!r}" for name, number in found if number < rows],
    )


def find_judged(
    window: Window, spans: Iterable[SourceSpan], oldest_ms: Mapping[TopicPartition, int | None], *, started_at_ms: int
) -> Judged:
    """Return the time range in which a row of the archive must have an entry in the source, with doubts and notes.

    A row has no record timestamp, so its event time stands for it. If that leaves open whether the source ever had the
    entry (retention has passed, or the entry came after the source was asked for its end), the row is not judged.
    `oldest_ms` are the oldest record timestamps that were read, `started_at_ms` is before any reading.
    """
    padding_ms = round(window.padding_s * 1000)
    begins = [] if window.from_ms is None else [window.from_ms]
    doubts, notes = [], []
    if window.until_ms is not None and window.until_ms > started_at_ms:
        doubts.append("the window ends in the future")
    for one in spans:
        retained = one.ends.first
        if retained == 0 or one.first > retained:
            continue
        since_ms = oldest_ms.get(one.tp)
        if since_ms is None:
            since_ms = started_at_ms
        begins.append(since_ms + padding_ms)
        says = f"{one.tp}: the source begins at offset {retained}"
        if window.from_ms is None:
            notes.append(f"{says}; what was before it cannot be compared")
        elif since_ms > window.from_ms:
            doubts.append(f"{says}: its retention ends inside the window")
    until_ms = started_at_ms - padding_ms if window.until_ms is None else window.until_ms
    return Judged(max(begins, default=None), until_ms, doubts, notes)
