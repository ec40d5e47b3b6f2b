"""Small files of the table -> large ones, hour by hour, and the end of old snapshots (DESIGN 8).

Only hours are taken whose newest verdict is clean and covers every reference that the hour has rows of: what the audit
has not passed is left as it was written, so that what is wrong can still be told file by file.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

import structlog

from pipeline.errors import PipelineError
from pipeline.session import CATALOG, open_session
from pipeline.table import Table
from pipeline.upkeep import FileHour, Rewritten, Upkeep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.config import JobSettings
    from pipeline.table import Offsets

_BRANCH = "compact"
_HOUR_S = 3600
_FOLDS = (0, 1)


class Compacted(NamedTuple):
    """What one run did; hours since 1970, in UTC."""

    hours: list[int]
    files_before: int
    files_after: int


class PassedHour(NamedTuple):
    """An hour whose newest verdict is clean: hours since 1970 in UTC, and the offsets that the verdict covers."""

    hour: int
    offsets: Offsets


def run(settings: JobSettings) -> None:
    """Compact once; blocks until it is done. Safe beside a running materialize.

    Raises:
        PipelineError: see `pipeline.errors`.
    """
    Compact(open_session(settings, name="compact"), settings).run()


class Compact:
    """One run."""

    def __init__(self, spark: SparkSession, settings: JobSettings) -> None:
        self._spark = spark
        self._settings = settings.pipeline.compact
        self._verdicts = f"{CATALOG}.{settings.pipeline.audit.verdicts_table}"
        self._topic = settings.worker.kafka.references_topic
        self._zone = ZoneInfo(settings.worker.partition.zone)
        self.table = Table(spark, settings.pipeline.table, topic=self._topic, branch=_BRANCH)
        self.upkeep = Upkeep(spark, self.table.name)
        self._log = structlog.get_logger("compact")

    def run(self) -> Compacted:
        """Rewrite what may be rewritten, then expire snapshots and forget branches of drivers that are gone."""
        self.table.ensure()
        position = self.table.position()
        hours = choose(self.upkeep.file_hours(), self._passed_hours(), files_min=self._settings.files_min)
        done = Compacted(hours, *(self.upkeep.rewrite(hours, position=position) if hours else Rewritten(0, 0)))
        now_ms = time.time_ns() // 1_000_000
        dropped = self.upkeep.drop_branches(before_ms=now_ms - round(self._settings.branches_s * 1000))
        self.upkeep.expire(before_ms=now_ms - round(self._settings.snapshots_s * 1000))
        self._log.info("table_compacted", **done._asdict(), branches_dropped=dropped)
        return done

    def _passed_hours(self) -> list[PassedHour]:
        """Read the newest verdict of each hour, and keep the clean ones."""
        if not self._spark.catalog.tableExists(self._verdicts):
            return []
        newest = self._spark.sql(
            f"SELECT date, hour, max_by(struct(verdict, is_whole, references_offsets), audited_at) AS newest "
            f"FROM {self._verdicts} WHERE references_topic = :topic GROUP BY date, hour",
            args={"topic": self._topic},
        )
        return [
            PassedHour(hour, dict(row.newest.references_offsets))
            for row in newest.where("newest.verdict = 'clean' AND newest.is_whole").collect()
            for hour in utc_hours(row.date, row.hour, self._zone)
        ]


def choose(files: list[FileHour], passed: list[PassedHour], *, files_min: int) -> list[int]:
    """Choose the hours to be rewritten, in their order: those with so many files in a partition that have passed."""
    covered = {one.hour: one.offsets for one in passed}
    return sorted(
        one.hour
        for one in files
        if one.files_per_partition >= files_min and one.hour in covered and _covers(covered[one.hour], one.offsets)
    )


def utc_hours(date: str, hour: int, zone: ZoneInfo) -> set[int]:
    """Give the hours since 1970 in UTC that an hour of a zone is: two where a clock is put back.

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
