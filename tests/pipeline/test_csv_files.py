"""The frames of the CSV witness: files and what is wrong with them, records of a window, parts of the result."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from log_partitioner.formats.findings import Kind
from log_partitioner.formats.model import TopicPartition
from log_partitioner_pipeline.archive import by_id, collect, run, span
from log_partitioner_pipeline.archive.by_id import ArchiveRules
from log_partitioner_pipeline.archive.files import ArchivedFile, read_files
from log_partitioner_pipeline.archive.run import Totals
from log_partitioner_pipeline.archive.source import IDENTIFIED
from log_partitioner_pipeline.archive.span import SourceSpan
from log_partitioner_pipeline.audit.result import Example, Hour, Verdict, Window
from log_partitioner_pipeline.config import CsvSettings
from log_partitioner_pipeline.kafka import Ends
from tests.pipeline.conftest import settings_of

WORKER = {
    "LOGP_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
    "LOGP_KAFKA__SOURCE_TOPICS": '["none"]',
    "LOGP_S3__BUCKET": "none",
    "PIPELINE_CSV__TIME_COLUMN": "at",
}
RULES = ArchiveRules(values=(), time_tolerance_s=1, from_us=None, until_us=1 << 60)
FILES = {
    "inside.csv": "id,at\na,2026-03-04T05:00:00\nbroken\n,2026-03-04T05:00:00\n",
    "outside.csv": "id,at\nbroken\nb,\nc,2026-03-04T05:00:00\n",
    "damaged.csv": "no,columns\n",
}


@pytest.fixture
def files(tmp_path: Path) -> list[ArchivedFile]:
    """Two readable files, one of them not of the window, and one without the column of the id."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return [ArchivedFile(str(tmp_path / name), 1, name != "outside.csv") for name in FILES]


def test_what_cannot_be_had_makes_nothing_missing(
    spark: SparkSession, files: list[ArchivedFile], tmp_path: Path
) -> None:
    """An entry that is in no file is missing, unless one of the files is gone: then the audit cannot tell."""
    settings = settings_of(WORKER)
    entry = {"topic": "logs", "partition": 0, "offset": 7, "index": 0, "deliverable": True, "id": "lost"}
    source = spark.createDataFrame([tuple(entry.get(name) for name in IDENTIFIED.names)], IDENTIFIED)
    source = source.withColumn("in_window", F.lit(True))  # noqa: FBT003 - a value of SQL
    archived = read_files(spark, settings, files).cache()
    compared = by_id.compare(source, archived, RULES)
    found = {(row["kind"], row["id"], Path(row["object"] or "-").name) for row in told(compared, archived)}
    of_files = {(Kind.CSV_BROKEN, None, "inside.csv"), (Kind.CSV_UNREADABLE, None, "damaged.csv")}
    of_rows = {(Kind.UNEXPECTED, "a", "inside.csv"), (Kind.UNEXPECTED, "c", "outside.csv")}
    counted = by_id.count(archived, compared)
    assert found == of_files | of_rows | {(Kind.MISSING, "lost", "-")}
    assert (run.refused_files(archived), run.remarks_of(counted, Totals(), [])[0]) == ([], [])
    assert [hour.missing for hour in collect.collect_record_hours(source, compared)] == [1]
    assert counted == {
        "rows": 4,
        "rows_without_id": 1,
        "broken_lines": 2,
        "broken_elsewhere": 1,
        "rows_compared": 2,
        "rows_dead": 0,
        "rows_not_judged": 1,
        "rows_timeless": 1,
        "expected": 1,
        "found": 0,
        "of_window": 0,
        "repeated": 0,
    }

    gone = [*files, ArchivedFile(str(tmp_path / "gone.csv"), 1, is_in_window=True)]
    archived = read_files(spark, settings, gone).cache()
    refused = run.refused_files(archived)
    compared = by_id.compare(source, archived, RULES._replace(is_all_read=not refused))
    assert {(row["kind"], row["id"]) for row in told(compared, archived)} == {one[:2] for one in of_files | of_rows}
    assert [hour.missing for hour in collect.collect_record_hours(source, compared)] == [0]
    doubts, _ = run.remarks_of(by_id.count(archived, compared), Totals(), refused)
    assert doubts[0].startswith(f"files cannot be read: {tmp_path / 'gone.csv'}")
    assert doubts[1:] == ["1 entries may be in files that cannot be read"]


def told(compared: DataFrame, archived: DataFrame) -> list[Row]:
    """All findings."""
    return by_id.findings_of(compared, archived).collect()


def test_a_column_that_files_do_not_have_is_told(spark: SparkSession, tmp_path: Path) -> None:
    """A misspelt column would be compared in no row: a doubt if no file has it, a note if some files lack it."""
    for name, text in {"old.csv": "id,at\na,\n", "new.csv": "id,at,who,n\nb,,,\nc,,,\n"}.items():
        (tmp_path / name).write_text(text)
    csv = CsvSettings(time_column="at", user_column="who", values={"n": "number", "m": "msg"})
    settings = settings_of(WORKER)
    settings = settings.model_copy(update={"pipeline": settings.pipeline.model_copy(update={"csv": csv})})
    files = [ArchivedFile(str(file), 1, is_in_window=True) for file in tmp_path.iterdir()]
    assert run.remarks_of_columns(read_files(spark, settings, files), csv) == (
        ["no file has a column 'm'"],
        ["1 of 3 rows are in files without a column 'who'", "1 of 3 rows are in files without a column 'n'"],
    )


def test_records_are_of_a_window_by_timestamp_and_without_one_by_offset(spark: SparkSession) -> None:
    """[from, until) of timestamps, open if no end is given; the last one with a timestamp ends the window."""
    tp, times = TopicPartition("logs", 0), [None, 1000, 1999, 2000, 999, 1000, None]
    rows = [(*tp, offset, at) for offset, at in enumerate(times)]
    source = spark.createDataFrame(rows, "topic string, partition int, offset long, timestamp_ms long")

    spans = [SourceSpan(tp, Ends(0, 7), 0, 7, 1, 6)]

    def marked(window: Window) -> list[int]:
        found = span.mark_window(source, spans, window).where("in_window").collect()
        return sorted(row["offset"] for row in found)

    window = Window(from_ms=1000, until_ms=2000, padding_s=0)
    assert marked(window) == [1, 2, 5]
    assert marked(Window(from_ms=1000, until_ms=None, padding_s=0)) == [1, 2, 3, 5]
    assert marked(Window(from_ms=None, until_ms=None, padding_s=0)) == [1, 2, 3, 4, 5]
    without_any = source.withColumn("timestamp_ms", F.lit(None).cast("long"))
    assert span.mark_window(without_any, spans, window).where("in_window").count() == 5
    assert span.find_last(source, window) == {tp: 5}
    assert span.find_last(without_any, window) == {}


def test_the_result_has_all_counts_and_the_first_examples(spark: SparkSession) -> None:
    """By kind and by hour; a file's finding has no hour; an hour without findings is clean or could not be told."""
    rows = [
        ("missing", "logs", 0, 9, 0, "2026-03-04", 5, "later"),
        ("missing", "logs", 0, 8, 0, "2026-03-04", 6, "first"),
        ("unexpected", None, None, None, None, "2026-03-04", 5, "nowhere"),
        ("csv_broken", None, None, None, None, None, None, "line 4"),
    ]
    columns = "kind string, topic string, partition int, offset long, index int, date string, hour int, text string"
    findings = spark.createDataFrame(rows, columns)
    missing, unexpected, broken = collect.collect_findings(findings, per_kind=1)
    assert [(one.kind, one.count) for one in (missing, unexpected, broken)] == [
        (Kind.MISSING, 2),
        (Kind.UNEXPECTED, 1),
        (Kind.CSV_BROKEN, 1),
    ]
    first = {"topic": "logs", "partition": 0, "offset": 8, "index": 0, "date": "2026-03-04", "hour": 6}
    assert missing.examples == [Example(text="first", **first)]  # type: ignore[arg-type]

    entries = [("2026-03-04", hour, True, hour < 6) for hour in (6, 6, 4)] + [("2026-03-04", 3, False, True)]
    compared = spark.createDataFrame(entries, "date string, hour int, is_expected boolean, in_archive boolean")
    hours = collect.hours_of(compared, findings)
    for has_doubts, clean in ((False, Verdict.CLEAN), (True, Verdict.COULD_NOT_TELL)):
        told, left_out = collect.collect_hours(hours, has_doubts=has_doubts)
        assert (told, left_out) == (
            [
                hour_of(4, clean, expected=1, in_files=1),
                hour_of(5, Verdict.FINDINGS, findings={"missing": 1, "unexpected": 1}),
                hour_of(6, Verdict.FINDINGS, expected=2, findings={"missing": 1}),
            ],
            0,
        )


def hour_of(hour: int, verdict: Verdict, **told: Any) -> Hour:
    """One hour of a day, not whole."""
    return Hour(date="2026-03-04", hour=hour, verdict=verdict, **told)
