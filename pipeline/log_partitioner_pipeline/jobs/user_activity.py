"""Table of entries -> entries and bytes per user and hour, per user and day (ADR 7).

At most once per interval the hours are counted to which entries were added since the position that the states have
reached, and what has changed is written: first days, then hours, then the position. If the job is killed in between,
the next start counts the same hours again. In another order, it would find hours unchanged whose days were not written.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import structlog

from log_partitioner_pipeline.activity import (
    DAYS,
    DAYS_TABLE,
    HOURS,
    HOURS_TABLE,
    PROPERTY_COUNTED,
    StateTable,
    changed,
    count_hours,
    counted_at,
    dates_of,
    sum_days,
    times_within,
    touched_hours,
    whole_hours,
)
from log_partitioner_pipeline.entries import EntryTable
from log_partitioner_pipeline.jobs import sentences
from log_partitioner_pipeline.progress import StepProgress
from log_partitioner_pipeline.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from log_partitioner_pipeline.activity import Dates
    from log_partitioner_pipeline.config import JobSettings
    from log_partitioner_pipeline.table import Position


def run(settings: JobSettings, *, continuous: bool) -> None:
    """Count everything that is in the table; with `continuous` go on until stopped.

    Blocks; if states were written less than an interval ago, it waits for the rest of the interval.

    Raises:
        PipelineError: see `log_partitioner_pipeline.errors`.
    """
    job = UserActivity(open_session(settings, name="user-activity"), settings)
    job.run(continuous=continuous)
    sys.stdout.write(sentences.counted(settings, hours=job.hours) + "\n")


class Update(NamedTuple):
    """States that have changed, all of these dates, and the position at which they were counted."""

    hours: DataFrame
    days: DataFrame
    dates: Dates
    position: Position


class UserActivity:
    """One driver's run; `hours` are the states of users' hours that it has written."""

    def __init__(self, spark: SparkSession, settings: JobSettings) -> None:
        self._spark = spark
        self._settings = settings.pipeline.activity
        self._zone = settings.worker.partition.zone
        self._entries = EntryTable(spark, settings)
        self._hours = StateTable(spark, settings, HOURS_TABLE, HOURS)
        self._days = StateTable(spark, settings, DAYS_TABLE, DAYS)
        self._log = structlog.get_logger("user_activity")
        self._progress = StepProgress(spark, "user-activity")
        self.hours = 0

    def run(self, *, continuous: bool) -> None:
        """Count until everything that is there now is counted, or for ever.

        Raises:
            PipelineError: it cannot go on; the next start does the unfinished work.
        """
        self._entries.ensure()
        with self._progress:
            self._catch_up()
            while continuous:
                time.sleep(self._settings.interval_s)
                self._catch_up()

    def _catch_up(self) -> None:
        if self._position().sequence_number <= (reached := self._reached()):
            return
        written_at_ms = max(self._days.written_at_ms(), self._hours.written_at_ms())
        now_ms = time.time_ns() // 1_000_000
        time.sleep(seconds_until_due(written_at_ms, now_ms=now_ms, interval_s=self._settings.interval_s))
        self._count(self._position(), since=reached)

    def _position(self) -> Position:
        """Read the position of the table, and make sure of the tables of states.

        Raises:
            TableError: it is not the table whose entries they have counted.
        """
        position = self._entries.position()
        of_states = {
            "log-partitioner.counted-table": str(position.table_id),
            "log-partitioner.counted-identity": self._settings.identity,
            "log-partitioner.counted-zone": str(self._zone),
        }
        for table in (self._hours, self._days):
            table.ensure_of(of_states)
        return position

    def _count(self, position: Position, *, since: int) -> None:
        """Outline: hours with new files -> counts of them -> those that have changed -> sums of their days."""
        begun = time.monotonic()
        self._progress.step("hours")
        touched = touched_hours(self._spark, self._entries.name, since=since)
        spans = whole_hours(touched, self._zone)
        if not spans:
            return
        dates = dates_of(spans, self._zone)
        rows = self._spark.sql(f"SELECT * FROM {self._entries.name} VERSION AS OF {position.snapshot_id}")
        counts = count_hours(rows.where(times_within(spans)), self._zone, by_roots=self._settings.identity == "root")
        states = self._hours.states(dates)
        hours = counted_at(changed(counts, states), position).persist()
        days = counted_at(sum_days(hours, states), position).persist()
        try:
            update, number = Update(hours, days, dates, position), hours.count()
            self._progress.step("states")
            if number:
                self._write(update)
            else:
                self._write_position(update)
        finally:
            # Each write of states lets Spark plan again what reads them, under another key than `unpersist` looks for.
            self._spark.catalog.clearCache()
        self.hours += number
        self._progress.count(states=number)
        self._log.info(
            "users_counted",
            hours=len(touched),
            states=number,
            offsets=position.offsets,
            sequence_number=position.sequence_number,
            seconds=round(time.monotonic() - begun, 3),
        )

    def _write(self, update: Update) -> None:
        """Write downstream before upstream, and the position last: the head of this file says why."""
        self._write_days(update)
        self._write_hours(update)
        self._write_position(update)

    def _write_days(self, update: Update) -> None:
        self._days.merge(update.days, dates=update.dates)

    def _write_hours(self, update: Update) -> None:
        self._hours.merge(update.hours, dates=update.dates)

    def _write_position(self, update: Update) -> None:
        """Write the position that the states have reached.

        A driver that comes back late may set it back, which costs counting again and nothing else.
        """
        self._hours.set_properties({PROPERTY_COUNTED: str(update.position.sequence_number)})

    def _reached(self) -> int:
        return int(self._hours.properties().get(PROPERTY_COUNTED, "0"))


def seconds_until_due(written_at_ms: int, *, now_ms: int, interval_s: float) -> float:
    """Return the seconds until states may be written again, after they were written last; at most an interval."""
    return min(interval_s, max(0.0, interval_s - (now_ms - written_at_ms) / 1000))
