"""Small files of the table -> large ones, hour by hour; the end of old snapshots and of raw objects (DESIGN 8).

Only hours are taken whose newest verdict is clean and covers every reference with rows in the hour. The other hours
stay as they were written, so that a fault can still be traced file by file. Raw objects are retired if a retention is
set.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections import Counter
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

import structlog

from log_partitioner.formats.flush_record import Lineage
from log_partitioner_pipeline.acknowledged import ACKNOWLEDGED_TABLE
from log_partitioner_pipeline.activity import DAYS_TABLE, HOURS_TABLE
from log_partitioner_pipeline.announced import ANNOUNCED_AT, table_names
from log_partitioner_pipeline.audit import audited
from log_partitioner_pipeline.audit.audited import read_passed
from log_partitioner_pipeline.entries import EntryTable
from log_partitioner_pipeline.errors import PipelineError, TableError
from log_partitioner_pipeline.jobs import sentences
from log_partitioner_pipeline.progress import StepProgress
from log_partitioner_pipeline.retire import JudgedObjects, Retired, Retirement
from log_partitioner_pipeline.retired import RETIRED_TABLE
from log_partitioner_pipeline.session import CATALOG, open_session
from log_partitioner_pipeline.upkeep import FILES_MIN, FileHour, Rewritten, Upkeep
from log_partitioner_pipeline.whose import choose_group, group_of, require_group

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import SparkSession

    from log_partitioner_pipeline.config import JobSettings
    from log_partitioner_pipeline.topic_log import Offsets

_HOUR_S = 3600
_FOLDS = (0, 1)
_ORPHAN_AGE_MS = 3 * 86_400_000  # longer than any commit takes; Iceberg's own default
_ATTEMPTS = 5


class Compacted(NamedTuple):
    """The work of one run; `hours` count from 1970 in UTC."""

    hours: list[int]
    files_before: int
    files_after: int
    retired: Retired = Retired()


class Left(StrEnum):
    """Why an hour is not rewritten."""

    FEW_FILES = "few_files"  # in each partition
    NOT_PASSED = "not_passed"  # by an audit
    GROWN = "grown"  # since the audit that it has passed


class Foreseen(NamedTuple):
    """The work that a run would do now.

    `hours` would be rewritten, and `days` of announcements; `left` counts other hours. `objects` is None if raw objects
    are never retired.
    """

    hours: list[FileHour]
    left: Counter[Left]
    days: int
    snapshots: int
    orphans: int
    objects: JudgedObjects | None


def run(settings: JobSettings, *, dry_run: bool = False) -> None:
    """Compact once, or say what that would do; blocks until it is done. Safe while materialize runs.

    Raises:
        PipelineError: see `log_partitioner_pipeline.errors`.
    """
    job = Compact(open_session(settings, name="compact"), settings)
    if dry_run:
        said = sentences.would_compact(settings, **job.foresee()._asdict())
    else:
        said = sentences.compacted(settings, **job.run()._asdict())
    sys.stdout.write(f"{said}\n")


class Compact:
    """One run."""

    def __init__(self, spark: SparkSession, settings: JobSettings) -> None:
        self._spark = spark
        self._all_settings = settings
        self._settings = settings.pipeline.compact
        self._lineage = Lineage(settings.worker.kafka.group_id, [])
        self._zone = settings.worker.partition.zone
        self.table = EntryTable(spark, settings)
        self.upkeep = Upkeep(spark, self.table.name)
        self._log = structlog.get_logger("compact")

    def run(self) -> Compacted:
        """Rewrite small files, expire snapshots, retire objects.

        Raises:
            PipelineError: see `log_partitioner_pipeline.errors`; the steps done by then stay done.
        """
        with StepProgress(self._spark, "compact") as progress:
            self.table.ensure()
            self._choose_group()
            hours, rewritten = self._rewrite(progress)
            progress.step("snapshots")
            for upkeep in self._announced():
                upkeep.rewrite_days(ANNOUNCED_AT, before=datetime.now(UTC).date())
            orphans = 0
            for upkeep in self._every():
                upkeep.expire(before_ms=self._expired_before_ms())
                orphans += upkeep.remove_orphans(before_ms=_now_ms() - _ORPHAN_AGE_MS)
            self._log.info("table_compacted", hours=hours, **rewritten._asdict(), orphans=orphans)
            progress.step("raw objects")
            return Compacted(hours, *rewritten, retired=self._retire())

    def foresee(self) -> Foreseen:
        """Return the work that `run` would do now; changes nothing.

        Raises:
            PipelineError: see `log_partitioner_pipeline.errors`.
        """
        if not self.table.is_there:
            raise TableError(f"there is no table {self.table.name}: materialize makes it")
        self._choose_group()
        passed = self._passed_hours()
        hours = [(one, reason_to_leave(one, passed)) for one in self.upkeep.file_hours()]
        today, retirement = datetime.now(UTC).date(), self._retirement()
        return Foreseen(
            hours=sorted(one for one, reason in hours if reason is None),
            left=Counter(reason for _, reason in hours if reason is not None),
            days=sum(one.count_days(ANNOUNCED_AT, before=today) for one in self._announced()),
            snapshots=sum(one.count_expired(before_ms=self._expired_before_ms()) for one in self._every()),
            orphans=sum(one.count_orphans(before_ms=_now_ms() - _ORPHAN_AGE_MS) for one in self._every()),
            objects=None if retirement is None else retirement.judge(),
        )

    def _choose_group(self) -> None:
        """Choose the table's group; refuse the table if the settings name another group, or one that has adopted it."""
        chosen = choose_group(self._all_settings, of_table=group_of(self.table))
        require_group(self.table, chosen.lineage)
        self._all_settings, self._lineage = chosen.settings, chosen.lineage

    def _rewrite(self, progress: StepProgress) -> tuple[list[int], Rewritten]:
        """Choose hours and rewrite them; choose again if references were appended in between."""
        for _ in range(_ATTEMPTS):
            progress.step("hours")
            position = self.table.position()
            hours = choose(self.upkeep.file_hours(), self._passed_hours())
            if not hours:
                break
            progress.step("files")
            rewritten = self.upkeep.rewrite(hours, position=position)
            if rewritten is not None:
                progress.count(hours=len(hours))
                return hours, rewritten
        return [], Rewritten(0, 0)

    def _announced(self) -> list[Upkeep]:
        return self._upkeep_of(table_names(self._all_settings))

    def _every(self) -> list[Upkeep]:
        """Return all tables; the states of other jobs are replaced every minute, and old files stay until expiry."""
        settings = self._all_settings.pipeline
        beside = (
            *(settings.table.beside(HOURS_TABLE), settings.table.beside(DAYS_TABLE)),
            *(*audited.table_names(self._all_settings), settings.table.beside(RETIRED_TABLE)),
            settings.table.beside(ACKNOWLEDGED_TABLE),
        )
        return [self.upkeep, *self._announced(), *self._upkeep_of(beside)]

    def _upkeep_of(self, names: Iterable[str]) -> list[Upkeep]:
        return [one for name in names if (one := Upkeep(self._spark, f"{CATALOG}.{name}")).is_there()]

    def _expired_before_ms(self) -> int:
        return _now_ms() - round(self._settings.snapshots_s * 1000)

    def _retire(self) -> Retired:
        retirement = self._retirement()
        return Retired() if retirement is None else retirement.run(run_id=uuid.uuid4().hex[:12])

    def _retirement(self) -> Retirement | None:
        retention_s, settings = self._settings.retention_s, self._all_settings
        if retention_s is None:
            return None
        return Retirement(self._spark, settings, self.table, retention_s=retention_s, lineage=self._lineage)

    def _passed_hours(self) -> dict[int, Offsets]:
        """Return the hours whose newest verdict is clean, with the offsets of references that it covers.

        Hours count from 1970 in UTC. In a zone whose hours are not hours of UTC there are none.
        """
        passed = read_passed(self._spark, self._all_settings, self._lineage)
        try:
            hours = (hour for date, of_zone in passed.hours for hour in utc_hours(date, of_zone, self._zone))
            return dict.fromkeys(hours, passed.offsets)
        except PipelineError as error:
            self._log.warning("nothing_is_rewritten", reason=str(error))
            return {}


def choose(files: list[FileHour], passed: Mapping[int, Offsets]) -> list[int]:
    """Choose the hours to rewrite, in their order: those that have passed, with enough files in a partition."""
    return sorted(one.hour for one in files if reason_to_leave(one, passed) is None)


def reason_to_leave(one: FileHour, passed: Mapping[int, Offsets]) -> Left | None:
    """Return why an hour is not rewritten, None if it is; `passed` has the offsets that verdicts cover."""
    if one.files_per_partition < FILES_MIN:
        return Left.FEW_FILES
    if one.hour not in passed:
        return Left.NOT_PASSED
    return None if _covers(passed[one.hour], one.offsets) else Left.GROWN


def utc_hours(date: str, hour: int, zone: ZoneInfo) -> set[int]:
    """Return the hours since 1970 in UTC that an hour of a zone is: two when the clock is put back.

    Raises:
        PipelineError: hours of that zone begin in the middle of those of UTC, by which the table is partitioned.
    """
    local = datetime.fromisoformat(date).replace(hour=hour, tzinfo=zone)
    begins = {int(local.replace(fold=fold).timestamp()) for fold in _FOLDS}
    if any(begin % _HOUR_S for begin in begins):
        raise PipelineError(
            f"hours of {zone} are not hours of UTC: the verdict of one says nothing about a whole other"
        )
    return {begin // _HOUR_S for begin in begins}


def _covers(covered: Offsets, needed: Offsets) -> bool:
    return all(covered.get(partition, 0) >= offset for partition, offset in needed.items())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
