"""References topic -> entries and bytes per user and hour, per user and day (ADR 7).

References are read until the driver has caught up, an interval at most, and counted together. States are written at
most once per interval, always the newest: first days, which are made from hours, then hours, then the offsets. If the
job is killed in between, the next start reads the same references again. A written state knows the entries it has
counted, and a state that was not written is made again. In any other order, a written state would know an entry that a
later one has missed.
"""

from __future__ import annotations

import sys
import time
import uuid
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import structlog
from pyspark.sql import types as T

from log_partitioner_pipeline.activity.entries import ENTRIES, Reading, read_entries
from log_partitioner_pipeline.activity.stages import DAY_KEY, DAYS, HOUR_KEY, HOURS, update_days, update_hours
from log_partitioner_pipeline.activity.tables import StateTable
from log_partitioner_pipeline.errors import OvertakenError, TableError
from log_partitioner_pipeline.jobs import sentences
from log_partitioner_pipeline.kafka import partition_ends
from log_partitioner_pipeline.pieces import encode_share, share_out
from log_partitioner_pipeline.progress import StepProgress
from log_partitioner_pipeline.references import once, weigh
from log_partitioner_pipeline.session import open_session
from log_partitioner_pipeline.topic_identity import require_same_topic
from log_partitioner_pipeline.topic_log import Bounds, Offsets, Slice, count_behind, read_slices, require_unbroken
from log_partitioner_pipeline.whose import OneHistory, claim, history_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from log_partitioner.formats.reference import Reference
    from log_partitioner_pipeline.config import JobSettings

_ATTEMPTS = 5
_SLICES_MAX = 40


def run(settings: JobSettings, *, continuous: bool) -> None:
    """Count everything that was there at the start; with `continuous` go on until stopped.

    Blocks; if states were written less than an interval ago, it waits for the rest of the interval.

    Raises:
        PipelineError: see `log_partitioner_pipeline.errors`.
    """
    job = UserActivity(open_session(settings, name="user-activity"), settings)
    job.run(continuous=continuous)
    sys.stdout.write(sentences.counted(settings, **job.counts) + "\n")


class Update(NamedTuple):
    """States that changed, made from those of the snapshots `hours_base` and `days_base`, and the offsets behind."""

    hours: DataFrame
    hours_base: int
    days: DataFrame
    days_base: int
    dates: set[str]
    offsets: Offsets


class UserActivity:
    """One driver's run."""

    def __init__(self, spark: SparkSession, settings: JobSettings) -> None:
        self._spark = spark
        self._worker = settings.worker
        self._settings = settings.pipeline.activity
        self._topic = settings.worker.kafka.references_topic
        run_id = uuid.uuid4().hex[:12]
        self._hours = StateTable(spark, self._settings.hours_table, columns=HOURS, key=HOUR_KEY, run=run_id)
        self._days = StateTable(spark, self._settings.days_table, columns=DAYS, key=DAY_KEY, run=run_id)
        self._log = structlog.get_logger("user_activity").bind(run=run_id)
        self._written_at_ms = 0
        self._history = OneHistory(settings.worker.kafka, None)
        self._progress = StepProgress(spark, "user-activity")
        self.counts = {"references": 0, "entries": 0}

    def run(self, *, continuous: bool) -> None:
        """Count until everything that is there now is counted, or for ever.

        Raises:
            PipelineError: it cannot go on; the next start does the unfinished work.
        """
        for table in (self._hours, self._days):
            table.ensure(user_buckets=self._settings.user_buckets, identity=self._settings.identity)
        require_same_topic(self._spark, self._hours.name, topic=self._topic, kafka=self._worker.kafka)
        self._history = history_of(self._spark, self._hours.name, self._worker.kafka)
        offsets = self._hours.offsets(self._topic)
        ends = partition_ends(self._worker.kafka, self._topic)
        require_unbroken(offsets, ends, self._topic)
        self._written_at_ms = max(self._days.written_at_ms(), self._hours.written_at_ms())
        self._log.info("user_activity_started", offsets=offsets)
        behind = count_behind(offsets, ends)
        bounds = Bounds(self._settings.references_max)
        try:
            with self._progress:
                self._progress.step("references", total=0 if continuous else behind, unit="offsets")
                while True:
                    slices = read_slices(self._worker.kafka, self._topic, offsets, ends, take=weigh, bounds=bounds)
                    for one in join(slices, interval_s=self._settings.interval_s, now_s=time.monotonic):
                        self._wait_until_due()
                        self._count(one)
                        offsets = one.offsets
                        self._progress.reach(behind - count_behind(offsets, ends))
                    if not continuous:
                        break
                    time.sleep(self._settings.interval_s)
                    ends = partition_ends(self._worker.kafka, self._topic)
        finally:
            self._days.drop_branch()
            self._hours.drop_branch()
        self._log.info("user_activity_ended", offsets=offsets)

    def _wait_until_due(self) -> None:
        time.sleep(seconds_until_due(self._written_at_ms, now_ms=_now_ms(), interval_s=self._settings.interval_s))

    def _count(self, of_it: Slice[Reference]) -> None:
        """Count references: new states of hours -> new states of days -> write all of them, offsets last."""
        begun = time.monotonic()
        references = self._history.take(once(of_it.items))
        claim(self._spark, self._hours.name, self._history)
        changed = self._update(references, of_it.offsets)
        self._written_at_ms = _now_ms()
        entries = sum(reference.entries for reference in references)
        self._progress.count(references=len(references), entries=entries)
        self.counts = {
            "references": self.counts["references"] + len(references),
            "entries": self.counts["entries"] + entries,
        }
        self._log.info(
            "references_counted",
            references=len(references),
            entries=entries,
            changed_hours=changed,
            offsets=of_it.offsets,
            seconds=round(time.monotonic() - begun, 3),
        )

    def _update(self, references: list[Reference], offsets: Offsets) -> int:
        """Make new states and write them, again if another driver has come between; returns how many hours changed."""
        dates = {reference.partition_key.date for reference in references}
        for _ in range(_ATTEMPTS):
            hours_base, days_base = self._hours.head(), self._days.head()
            states = self._hours.read(hours_base, dates=dates)
            hours = update_hours(
                states.join(self._keys(references), on=HOUR_KEY, how="left_semi"),
                self._read(references),
                ranges_max=self._settings.ranges_max,
            ).persist()
            days = update_days(self._days.read(days_base, dates=dates), hours).persist()
            try:
                self._write(Update(hours, hours_base, days, days_base, dates, offsets))
                return hours.count()
            except OvertakenError as error:
                self._log.warning("states_overtaken", error=str(error))
            finally:
                days.unpersist()
                hours.unpersist()
        raise TableError(f"states were changed by others during each of {_ATTEMPTS} attempts to write them")

    def _keys(self, references: list[Reference]) -> DataFrame:
        keys = sorted({reference.partition_key for reference in references})
        return self._spark.createDataFrame(keys, T.StructType([HOURS[name] for name in HOUR_KEY]))

    def _read(self, references: list[Reference]) -> DataFrame:
        """Return the entries of these references; they are read when the frame is needed."""
        shares = share_out(references, tasks=self._spark.sparkContext.defaultParallelism)
        encoded = [encode_share(share) for share in shares]
        reading = Reading(self._worker.s3, self._worker.input, self._settings)
        read = partial(read_entries, encoded=encoded, reading=reading)
        return self._spark.range(0, len(shares), 1, max(1, len(shares))).mapInArrow(read, ENTRIES)

    def _write(self, update: Update) -> None:
        """Write downstream before upstream, and offsets last: the head of this file says why."""
        self._write_days(update)
        self._write_hours(update)
        self._write_offsets(update)

    def _write_days(self, update: Update) -> None:
        if not update.days.isEmpty():
            self._days.merge(update.days, base=update.days_base, dates=update.dates)

    def _write_hours(self, update: Update) -> None:
        if not update.hours.isEmpty():
            self._hours.merge(update.hours, base=update.hours_base, dates=update.dates)

    def _write_offsets(self, update: Update) -> None:
        self._hours.write_offsets(self._topic, update.offsets)


def join(
    slices: Iterable[Slice[Reference]], *, interval_s: float, now_s: Callable[[], float]
) -> Iterator[Slice[Reference]]:
    """Join the slices that are read within an interval, so that each state is written once for all of them.

    A driver that is far behind reads `_SLICES_MAX` at most before it writes: references in hand take its memory.
    """
    some: list[Slice[Reference]] = []
    begun_s = now_s()
    for one in slices:
        some.append(one)
        if len(some) == _SLICES_MAX or now_s() - begun_s >= interval_s:
            yield _one_of(some)
            some, begun_s = [], now_s()
    if some:
        yield _one_of(some)


def _one_of(slices: list[Slice[Reference]]) -> Slice[Reference]:
    return Slice([one for some in slices for one in some.items], slices[-1].offsets)


def seconds_until_due(written_at_ms: int, *, now_ms: int, interval_s: float) -> float:
    """Return the seconds until states may be written again, after they were written last; at most an interval."""
    return min(interval_s, max(0.0, interval_s - (now_ms - written_at_ms) / 1000))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
