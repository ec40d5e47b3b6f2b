"""Small files of the table -> large ones, hour by hour; the end of old snapshots and of raw objects (DESIGN 8).

Only hours are taken whose newest verdict is clean and covers every reference with rows in the hour. The other hours
stay as they were written, so that a fault can still be traced file by file. Raw objects are retired if a retention is
set.
"""

from __future__ import annotations

import sys
import time
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

import structlog

from log_partitioner.formats.flush_record import Lineage
from log_partitioner_pipeline.activity import DAYS_TABLE, HOURS_TABLE
from log_partitioner_pipeline.announced import ANNOUNCED_AT, table_names
from log_partitioner_pipeline.audit.verdicts import read_passed
from log_partitioner_pipeline.entries import EntryTable
from log_partitioner_pipeline.errors import PipelineError
from log_partitioner_pipeline.jobs import sentences
from log_partitioner_pipeline.progress import StepProgress
from log_partitioner_pipeline.retire import Retired, Retirement
from log_partitioner_pipeline.session import CATALOG, open_session
from log_partitioner_pipeline.upkeep import FileHour, Rewritten, Upkeep
from log_partitioner_pipeline.whose import choose_group, group_of, require_group

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from log_partitioner_pipeline.config import JobSettings
    from log_partitioner_pipeline.table import Offsets

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


class PassedHour(NamedTuple):
    """An hour whose newest verdict is clean: hours since 1970 in UTC, and the offsets that the verdict covers."""

    hour: int
    offsets: Offsets


def run(settings: JobSettings) -> None:
    """Compact once; blocks until it is done. Safe while materialize runs.

    Raises:
        PipelineError: see `log_partitioner_pipeline.errors`.
    """
    done = Compact(open_session(settings, name="compact"), settings).run()
    sys.stdout.write(sentences.compacted(settings, **done._asdict()) + "\n")


class Compact:
    """One run."""

    def __init__(self, spark: SparkSession, settings: JobSettings) -> None:
        self._spark = spark
        self._all_settings = settings
        self._settings = settings.pipeline.compact
        self._verdicts = settings.pipeline.audit.verdicts_table
        self._topic = settings.worker.kafka.references_topic
        self._lineage = Lineage(settings.worker.kafka.group_id, [])
        self._zone = settings.worker.partition.zone
        self.table = EntryTable(spark, settings.pipeline.table, topic=self._topic)
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
            now_ms = time.time_ns() // 1_000_000
            today = datetime.now(UTC).date()
            announced = [Upkeep(self._spark, f"{CATALOG}.{name}") for name in table_names(self._all_settings)]
            for upkeep in filter(Upkeep.is_there, announced):
                upkeep.rewrite_days(ANNOUNCED_AT, before=today)
            orphans = 0
            for upkeep in filter(Upkeep.is_there, (self.upkeep, *announced, *self._beside())):
                upkeep.expire(before_ms=now_ms - round(self._settings.snapshots_s * 1000))
                orphans += upkeep.remove_orphans(before_ms=now_ms - _ORPHAN_AGE_MS)
            self._log.info("table_compacted", hours=hours, **rewritten._asdict(), orphans=orphans)
            progress.step("raw objects")
            return Compacted(hours, *rewritten, retired=self._retire())

    def _choose_group(self) -> None:
        """Choose the table's group; refuse the table if the settings name another group, or one that has adopted it."""
        chosen = choose_group(self._all_settings, of_table=group_of(self._spark, self.table.name))
        require_group(self._spark, self._all_settings, chosen.lineage)
        self._all_settings, self._lineage = chosen.settings, chosen.lineage

    def _rewrite(self, progress: StepProgress) -> tuple[list[int], Rewritten]:
        """Choose hours and rewrite them; choose again if references were appended in between."""
        for _ in range(_ATTEMPTS):
            progress.step("hours")
            position = self.table.position()
            hours = choose(self.upkeep.file_hours(), self._passed_hours(), files_min=self._settings.files_min)
            if not hours:
                break
            progress.step("files")
            rewritten = self.upkeep.rewrite(hours, position=position)
            if rewritten is not None:
                progress.count(hours=len(hours))
                return hours, rewritten
        return [], Rewritten(0, 0)

    def _beside(self) -> list[Upkeep]:
        """Return the tables of other jobs: their states are replaced every minute, and old files stay until expiry."""
        settings = self._all_settings.pipeline
        names = (
            *(settings.table.beside(HOURS_TABLE), settings.table.beside(DAYS_TABLE)),
            *(settings.audit.verdicts_table, settings.compact.retired_table),
        )
        return [Upkeep(self._spark, f"{CATALOG}.{name}") for name in names]

    def _retire(self) -> Retired:
        retention_s = self._settings.retention_s
        if retention_s is None:
            return Retired()
        retirement = Retirement(
            self._spark, self._all_settings, self.table, retention_s=retention_s, lineage=self._lineage
        )
        return retirement.run(run_id=uuid.uuid4().hex[:12])

    def _passed_hours(self) -> list[PassedHour]:
        """Return the hours of UTC that have passed; none in a zone whose hours are no hours of UTC."""
        passed = read_passed(
            self._spark, name=self._verdicts, references_topic=self._topic, group_id=self._lineage.group_id
        )
        try:
            return [
                PassedHour(hour, one.offsets) for one in passed for hour in utc_hours(one.date, one.hour, self._zone)
            ]
        except PipelineError as error:
            self._log.warning("nothing_is_rewritten", reason=str(error))
            return []


def choose(files: list[FileHour], passed: list[PassedHour], *, files_min: int) -> list[int]:
    """Choose the hours to rewrite, in their order: those that have passed, with enough files in a partition."""
    covered = {one.hour: one.offsets for one in passed}
    return sorted(
        one.hour
        for one in files
        if one.files_per_partition >= files_min and one.hour in covered and _covers(covered[one.hour], one.offsets)
    )


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
