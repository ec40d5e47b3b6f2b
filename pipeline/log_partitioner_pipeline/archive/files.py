"""The files of an archive: which of them a window reads, and their rows as a frame.

A file is read whole, through `Objects` or from a directory, and taken apart by `rows`. Spark's own CSV reader is not
used: it takes names from settings and not from each file's header, loses the rest of a file to one open quote, and
reports neither file nor number of a broken line. All fields are text, nothing is inferred.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import types as T

from log_partitioner.formats.findings import Kind
from log_partitioner.proof.audit.store import S3_URL, Address
from log_partitioner.proof.oracle.judge import Judge
from log_partitioner.proof.oracle.times import date_and_hour, read_time
from log_partitioner_pipeline.archive.rows import BrokenLine, CsvRow, read_csv, value_of_text
from log_partitioner_pipeline.errors import ArchiveError, ObjectError
from log_partitioner_pipeline.frames import Row, map_rows, struct
from log_partitioner_pipeline.objects import Objects

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from zoneinfo import ZoneInfo

    from pyspark.sql import DataFrame, SparkSession

    from log_partitioner.config.settings import PartitionSettings, Settings, UserSettings
    from log_partitioner.proof.oracle.json_text import Parse
    from log_partitioner_pipeline.audit.result import Window
    from log_partitioner_pipeline.config import CsvSettings, JobSettings

_SUFFIXES = (".csv", ".csv.gz")
_PARTS = {"Y": r"\d{4}", "m": r"\d{2}", "d": r"\d{2}", "H": r"\d{2}"}
_HOUR_MS = 3_600_000
_FILE = struct(file=T.StringType(), is_in_window=T.BooleanType())
_VALUE = struct(text=T.BinaryType(), value=T.BinaryType())
# One row per row of a file; or, with a `kind`, one per finding about a file; or `unread`: it was refused.
# A time that cannot be read has its text only. User, time and value are null if a file has no such column.
ARCHIVED = struct(
    file=T.StringType(),
    line=T.IntegerType(),
    id=T.StringType(),
    user=T.StringType(),
    date=T.StringType(),
    hour=T.IntegerType(),
    event_time_us=T.LongType(),
    time_text=T.StringType(),
    values=T.ArrayType(_VALUE),
    kind=T.StringType(),
    text=T.StringType(),
    is_in_window=T.BooleanType(),
    unread=T.BooleanType(),
)


class ArchivedFile(NamedTuple):
    """A file by its whole name; `is_in_window`: all of it may be in the window, so its broken lines count."""

    name: str
    size: int
    is_in_window: bool


class Period(NamedTuple):
    """[begin, end), both in milliseconds since 1970."""

    begin_ms: int
    end_ms: int

    def overlaps(self, from_ms: int | None, until_ms: int | None, *, margin_ms: int = 0) -> bool:
        """Return whether the period overlaps a window; None means that side of the window is open."""
        is_before = until_ms is not None and self.begin_ms >= until_ms + margin_ms
        is_after = from_ms is not None and self.end_ms <= from_ms - margin_ms
        return not (is_before or is_after)


class Folders:
    """Reads times off paths by a pattern such as `date=%Y-%m-%d/hour=%H`."""

    def __init__(self, pattern: str, zone: ZoneInfo) -> None:
        """Take the pattern, which needs %Y, %m and %d, and may have %H.

        Raises:
            ArchiveError: it has others, one of them twice, or no whole date.
        """
        parts = re.split(r"%(.)", pattern.strip("/"))
        if sorted(parts[1::2]) not in (sorted("Ymd"), sorted("YmdH")):
            raise ArchiveError(
                f"PIPELINE_CSV__FOLDERS {pattern!r} needs each of %Y, %m, %d once, may have %H, no other"
            )
        texts = [f"(?P<{part}>{_PARTS[part]})" if nth % 2 else re.escape(part) for nth, part in enumerate(parts)]
        self._path = re.compile("".join(texts) + "(?:/|$)", re.ASCII)
        self._zone = zone

    def period_of(self, path: str) -> Period | None:
        """Read the period of a file off its path below the location; None if its folders name none."""
        match = self._path.match(path)
        if match is None:
            return None
        numbers = {name: int(text) for name, text in match.groupdict().items()}
        try:
            begin = datetime(numbers["Y"], numbers["m"], numbers["d"], numbers.get("H", 0))  # noqa: DTZ001 - local
        except ValueError:
            return None
        # An hour that the clock shows twice is both: the files of one folder cannot be told apart.
        if "H" in numbers:
            return Period(min(self._moments_ms(begin)), max(self._moments_ms(begin)) + _HOUR_MS)
        return Period(min(self._moments_ms(begin)), max(self._moments_ms(begin + timedelta(days=1))))

    def _moments_ms(self, local: datetime) -> list[int]:
        return [round(local.replace(tzinfo=self._zone, fold=fold).timestamp() * 1000) for fold in (0, 1)]


def list_files(settings: JobSettings, location: str, window: Window) -> list[ArchivedFile]:
    """List the files of the window with its padding; all there are if folders name no time. Blocks for seconds.

    Raises:
        ArchiveError: there is none.
        ObjectError: S3 refuses or does not answer.
    """
    csv = settings.pipeline.csv
    folders = None if csv.folders is None else Folders(csv.folders, csv.zone)
    ends, margin_ms = (window.from_ms, window.until_ms), round(window.padding_s * 1000)
    found, others = [], 0
    for path, name, size in _listed(settings.worker, location):
        period = None if folders is None else folders.period_of(path)
        if period is not None and not period.overlaps(*ends, margin_ms=margin_ms):
            others += 1
            continue
        is_in_window = window.is_everything or (period is not None and period.overlaps(*ends))
        found.append(ArchivedFile(name, size, is_in_window))
    if not found:
        of_others = f", and {others} of other times" if others else ""
        raise ArchiveError(f"{location} has no file for this window that ends in {' or '.join(_SUFFIXES)}{of_others}")
    return found


def _listed(settings: Settings, location: str) -> Iterator[tuple[str, str, int]]:
    """Yield path below the location, whole name and size of each file."""
    if location.startswith(S3_URL):
        bucket, prefix, _ = Address.named(location)
        prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        for one in Objects(settings.s3).list(bucket, prefix):
            if one.key.endswith(_SUFFIXES):
                yield one.key.removeprefix(prefix), f"{S3_URL}{bucket}/{one.key}", one.size
        return
    root = Path(location).absolute()
    if not root.is_dir():
        raise ArchiveError(f"there is no directory {location}")
    for file in sorted(root.rglob("*")):
        if file.name.endswith(_SUFFIXES) and file.is_file():
            yield file.relative_to(root).as_posix(), str(file), file.stat().st_size


def read_files(spark: SparkSession, settings: JobSettings, files: Iterable[ArchivedFile]) -> DataFrame:
    """Read the rows of these files: `ARCHIVED`; nothing happens before an action."""
    named = [(one.name, one.is_in_window) for one in files]
    tasks = max(1, min(len(named), 4 * spark.sparkContext.defaultParallelism))
    read = partial(rows_of, settings=settings.worker, csv=settings.pipeline.csv)
    return map_rows(spark.createDataFrame(named, _FILE).repartition(tasks, "file"), read, ARCHIVED)


def rows_of(files: Iterable[Row], *, settings: Settings, csv: CsvSettings) -> Iterator[Row]:
    """Yield the rows of files; broken lines and an unreadable file as findings, if they are of the window."""
    objects = Objects(settings.s3)
    row_of = partial(_row, csv=csv, parse=Judge(settings).parse, partition=settings.partition, user=settings.user)
    for told in files:
        file = told["file"]
        try:
            for one in read_csv(objects.read_file(file), csv):
                if isinstance(one, BrokenLine):
                    yield told | {"line": one.line, "kind": Kind.CSV_BROKEN, "text": f"line {one.line}: {one.text}"}
                else:
                    yield told | row_of(one)
        except ArchiveError as error:
            yield told | {"kind": Kind.CSV_UNREADABLE, "text": str(error)}
        except (ObjectError, OSError) as error:
            yield told | {"text": f"{file}: {error}", "unread": True}


def _row(row: CsvRow, *, csv: CsvSettings, parse: Parse, partition: PartitionSettings, user: UserSettings) -> Row:
    fields = row.fields
    named, time_text = (name and fields.get(name) for name in (csv.user_column, csv.time_column))
    time_us = read_time(time_text, unit="auto", zone=csv.zone) if time_text else None
    place = None if time_us is None else date_and_hour(time_us, partition.zone)
    date, hour = place or (None, None)
    return {
        "line": row.line,
        "id": fields[csv.id_column] or None,
        "user": user.missing_name or "" if named == "" else named,
        "event_time_us": None if place is None else time_us,
        "time_text": time_text,
        "date": date,
        "hour": hour,
        "values": [None if text is None else value_of_text(text, parse) for text in map(fields.get, csv.values)],
    }
