"""The archive of an older system as a frame of rows: which files there are, and how executors read them.

A file is read whole, by boto3 or from a directory, and taken apart by `csv_lines`. Spark's own CSV reader is not used:
it takes names from settings and not from each file's header, loses the rest of a file to one open quote, and reports
neither file nor number of a broken line. Objects come to executors through `log_partitioner_pipeline.objects`, here as
everywhere. All fields are text, nothing is inferred.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from log_partitioner.formats.findings import Kind
from log_partitioner.proof.oracle.judge import Judge
from log_partitioner.proof.oracle.times import date_and_hour, read_time
from log_partitioner_pipeline.audit.csv_folders import Folders, Period
from log_partitioner_pipeline.audit.csv_lines import BrokenLine, CsvRow, read_csv
from log_partitioner_pipeline.audit.csv_values import value_of_text
from log_partitioner_pipeline.audit.executors import Row, batched
from log_partitioner_pipeline.audit.frames import ARCHIVED
from log_partitioner_pipeline.errors import ArchiveError, ObjectError
from log_partitioner_pipeline.objects import Objects

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from log_partitioner.config.settings import Settings
    from log_partitioner_pipeline.audit.result import Window
    from log_partitioner_pipeline.config import CsvSettings, JobSettings

_S3 = "s3://"
_SUFFIXES = (".csv", ".csv.gz")
_FILE = T.StructType([T.StructField("file", T.StringType()), T.StructField("is_in_window", T.BooleanType())])


class ArchivedFile(NamedTuple):
    """A file by its whole name; `is_in_window`: all of it may be in the window, so its broken lines count."""

    name: str
    size: int
    is_in_window: bool


def list_files(settings: JobSettings, location: str, window: Window) -> list[ArchivedFile]:
    """List the files of the window with its padding; all there are if folders name no time. Blocks for seconds.

    Raises:
        ArchiveError: there is none.
        ObjectError: S3 refuses or does not answer.
    """
    csv = settings.pipeline.csv
    folders = None if csv.folders is None else Folders(csv.folders, str(csv.zone))
    margin_ms = round(window.padding_s * 1000)
    found, others = [], 0
    for path, name, size in _listed(settings.worker, location):
        period = None if folders is None else folders.period_of(path)
        if period is not None and not period.overlaps(window.from_ms, window.until_ms, margin_ms=margin_ms):
            others += 1
            continue
        found.append(ArchivedFile(name, size, _is_in_window(period, window)))
    if not found:
        of_others = f", and {others} of other times" if others else ""
        raise ArchiveError(f"{location} has no file for this window that ends in {' or '.join(_SUFFIXES)}{of_others}")
    return found


def _is_in_window(period: Period | None, window: Window) -> bool:
    if window.is_everything:
        return True
    return period is not None and period.overlaps(window.from_ms, window.until_ms)


def _listed(settings: Settings, location: str) -> Iterator[tuple[str, str, int]]:
    """Yield path below the location, whole name and size of each file."""
    if location.startswith(_S3):
        bucket, _, prefix = location.removeprefix(_S3).partition("/")
        prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        for one in Objects(settings.s3, threads=1).list(bucket, prefix):
            if one.key.endswith(_SUFFIXES):
                yield one.key.removeprefix(prefix), f"{_S3}{bucket}/{one.key}", one.size
        return
    root = Path(location).absolute()
    if not root.is_dir():
        raise ArchiveError(f"there is no directory {location}")
    for file in sorted(root.rglob("*")):
        if file.name.endswith(_SUFFIXES) and file.is_file():
            yield file.relative_to(root).as_posix(), str(file), file.stat().st_size


def read_files(spark: SparkSession, settings: JobSettings, files: Iterable[ArchivedFile]) -> DataFrame:
    """Read the rows of these files: `frames.ARCHIVED`; nothing happens before an action."""
    rows = [(one.name, one.is_in_window) for one in files]
    read = partial(
        _read,
        settings=settings.worker,
        csv=settings.pipeline.csv,
        schema=to_arrow_schema(ARCHIVED),
    )
    tasks = max(1, min(len(rows), 4 * spark.sparkContext.defaultParallelism))
    return spark.createDataFrame(rows, _FILE).repartition(tasks, "file").mapInArrow(read, ARCHIVED)


def _read(
    batches: Iterable[pa.RecordBatch], *, settings: Settings, csv: CsvSettings, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    reader = _Reader(settings, csv)
    yield from batched((row for batch in batches for one in batch.to_pylist() for row in reader.rows(**one)), schema)


class _Reader:
    """Reads files on an executor."""

    def __init__(self, settings: Settings, csv: CsvSettings) -> None:
        self._objects = Objects(settings.s3, threads=1)
        self._csv = csv
        self._parse = Judge(settings).parse
        self._zone = csv.zone
        self._partition_zone = settings.partition.zone

    def rows(self, file: str, *, is_in_window: bool) -> Iterator[Row]:
        """Yield the rows of a file; broken lines and an unreadable file as findings, if they are of the window."""
        try:
            data = self._data(file)
        except (ObjectError, OSError) as error:
            yield {"file": file, "text": f"{file}: {error}", "unread": True}
            return
        told = {"file": file, "is_in_window": is_in_window}
        try:
            for one in read_csv(data, self._csv):
                if isinstance(one, BrokenLine):
                    yield told | {"line": one.line, "kind": Kind.CSV_BROKEN, "text": f"line {one.line}: {one.text}"}
                else:
                    yield {"file": file} | self._row(one)
        except ArchiveError as error:
            yield told | {"kind": Kind.CSV_UNREADABLE, "text": str(error)}

    def _data(self, file: str) -> bytes:
        if not file.startswith(_S3):
            return Path(file).read_bytes()
        bucket, _, key = file.removeprefix(_S3).partition("/")
        stored = self._objects.fetch((bucket, key, None))
        if stored is None:
            raise ObjectError("it was listed, and is no longer there")
        return stored.data

    def _row(self, row: CsvRow) -> Row:
        csv, fields = self._csv, row.fields
        time_text = None if csv.time_column is None else fields.get(csv.time_column) or None
        time_us = None if time_text is None else read_time(time_text, unit=csv.time_unit, zone=self._zone)
        place = None if time_us is None else date_and_hour(time_us, self._partition_zone)
        date, hour = (None, None) if place is None else place
        return {
            "line": row.line,
            "id": fields[csv.id_column] or None,
            "user": None if csv.user_column is None else fields.get(csv.user_column),
            "event_time_us": None if place is None else time_us,
            "time_text": time_text,
            "date": date,
            "hour": hour,
            "values": [self._value(fields.get(column)) for column in csv.values],
        }

    def _value(self, text: str | None) -> Row | None:
        return None if text is None else value_of_text(text, self._parse)
