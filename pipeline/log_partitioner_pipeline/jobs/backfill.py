"""Partitions a range of the source again, as far as no committed reference or dead letter holds it (DESIGN 8).

Everything is written before anything is published: objects, then the outbox, then transactions. A run that was killed
goes on by its id, from its outbox if it has one, else from the beginning, with objects of its own.
"""

from __future__ import annotations

import re
import secrets
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import structlog
from pyspark.sql import functions as F

from log_partitioner.adapters.kafka.topics import KafkaTopics
from log_partitioner.formats.flush_record import Lineage
from log_partitioner.proof.audit.window import FlushWindow
from log_partitioner_pipeline.acknowledged import Acknowledgements
from log_partitioner_pipeline.backfill.held import HeldEntries, settled_ends
from log_partitioner_pipeline.backfill.outbox import Outbox, Run, find_outbox, write_outbox
from log_partitioner_pipeline.backfill.publish import Publication, Published
from log_partitioner_pipeline.backfill.ranges import Wanted, format_offsets, parse_offsets, resolve
from log_partitioner_pipeline.backfill.split import pieces_of
from log_partitioner_pipeline.backfill.write import written
from log_partitioner_pipeline.errors import OvertakenError, PipelineError, RangeError
from log_partitioner_pipeline.jobs import sentences
from log_partitioner_pipeline.kafka import last_offsets
from log_partitioner_pipeline.objects import Objects
from log_partitioner_pipeline.progress import StepProgress
from log_partitioner_pipeline.publisher import Publisher
from log_partitioner_pipeline.retired import RetiredObjects
from log_partitioner_pipeline.session import open_session
from log_partitioner_pipeline.whose import choose_group

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from log_partitioner.formats.model import TopicPartition
    from log_partitioner_pipeline.config import JobSettings
    from log_partitioner_pipeline.retired import RetiredSnapshot


_NO_RANGE = "a range is missing: give --from and --until, such as --from 2026-03-04T05:00Z, or --offsets"
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Options(NamedTuple):
    """The options of the command line."""

    wanted: Wanted
    run_id: str | None = None
    dry_run: bool = False


class Summary(NamedTuple):
    """The entries that a dry run would publish, because no committed message holds them, counted by destination."""

    entries_in_files: int
    partition_keys: int
    dead_letters: dict[str, int]


def run(settings: JobSettings, options: Options) -> None:
    """Run a backfill, or summarise a dry run; blocks until everything is published and visible.

    Raises:
        PipelineError: see `log_partitioner_pipeline.errors`.
    """
    job = Backfill(settings, options.run_id or new_run_id())
    if options.dry_run:
        sys.stdout.write(sentences.would_publish(**job.summarise(options.wanted)._asdict()) + "\n")
    else:
        sys.stdout.write(sentences.published(settings, job.run_id, job.run(options.wanted)) + "\n")


def read_options(given: argparse.Namespace) -> Options:
    """Parse the command line.

    Raises:
        RangeError: the offsets cannot be read, or times are given, too.
        PipelineError: the run id is not one.
    """
    if given.offsets is not None and (given.begin, given.end) != (None, None):
        raise RangeError("a range is given by --offsets, or by --from and --until, not by both")
    if given.run_id is not None and not _RUN_ID.fullmatch(given.run_id):
        raise PipelineError(f"a run id has letters, digits, `-`, `_` and `.`, not {given.run_id!r}")
    offsets = None if given.offsets is None else parse_offsets(given.offsets)
    wanted = Wanted(offsets, *FlushWindow.between(given.begin, given.end))
    if wanted.is_nothing and given.run_id is None:
        raise RangeError(f"{_NO_RANGE}; or go on with a run that has begun, by its --run-id")
    return Options(wanted, given.run_id, given.dry_run)


def new_run_id() -> str:
    """Name a run by time and chance."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(4)}"


class Backfill:
    """One driver of one run. A Spark session is taken only if there is no outbox yet."""

    def __init__(self, settings: JobSettings, run_id: str, *, spark: SparkSession | None = None) -> None:
        self.run_id = run_id
        self._settings = settings
        self._worker = settings.worker
        self._assumes_unheld = settings.pipeline.backfill.assume_forgotten_unheld
        self._spark = spark
        self._objects = Objects(self._worker.s3)
        self._lineage = Lineage(self._worker.kafka.group_id, [])
        self._log = structlog.get_logger("backfill").bind(run=run_id)

    def run(self, wanted: Wanted) -> Published:
        """Go on with the run, or begin it.

        Raises:
            PipelineError: it cannot go on; nothing is half published, and the same run id goes on later.
        """
        self._choose_group()
        s3 = self._worker.s3
        outbox = find_outbox(self._objects, s3.bucket, s3.prefix, self.run_id)
        if outbox is None:
            outbox = self._prepare(self._begin(wanted))
        else:
            self._log.info("backfill_continued", messages=outbox.messages)
        self._require_same_topics(outbox.run)
        published = self.publish(outbox)
        self._log.info("backfill_ended", messages=outbox.messages, published_now=published.messages)
        return published

    def summarise(self, wanted: Wanted) -> Summary:
        """Summarise the entries that would be published; writes nothing.

        Raises:
            PipelineError: the range is refused, or cannot be read.
        """
        self._choose_group()
        run = self._begin(wanted)
        with self._retired() as retired:
            pieces = self._pieces(run, retired)
            entries = F.when(F.col("indexes").isNull(), 1).otherwise(F.size("indexes"))
            by_place = pieces.groupBy("user", "date", "hour", "reason").agg(F.sum(entries).alias("entries"))
            by_reason = by_place.groupBy("reason")
            sums = by_reason.agg(F.sum("entries").alias("entries"), F.count("*").alias("places")).collect()
        files = [row for row in sums if row["reason"] is None]
        dead = {row["reason"]: row["entries"] for row in sums if row["reason"] is not None}
        return Summary(sum(row["entries"] for row in files), sum(row["places"] for row in files), dead)

    def publish(self, outbox: Outbox) -> Published:
        """Publish the rest of an outbox."""
        publisher = Publisher(self._worker)
        return Publication(outbox, publisher, self._objects, self._worker).publish()

    def _choose_group(self) -> None:
        self._settings, self._lineage, _ = choose_group(self._settings)
        self._worker = self._settings.worker

    def _begin(self, wanted: Wanted) -> Run:
        """Fix the range, then the ends of the topics to search for held entries; in this order, none escapes."""
        if wanted.is_nothing:
            raise RangeError(f"{_NO_RANGE}: run {self.run_id} has none yet")
        kafka, forgotten = self._worker.kafka, self._assumes_unheld
        ranges = resolve(kafka, wanted, self._last_offsets)
        self._log.info("backfill_started", offsets=format_offsets(ranges))
        with KafkaTopics.of(kafka) as topics:
            reference_ends, dead_letter_ends = (
                settled_ends(topics, topic, may_lack_beginning=forgotten)
                for topic in (kafka.references_topic, kafka.dead_letters_topic)
            )
        return Run(
            run_id=self.run_id,
            started_at_ms=time.time_ns() // 1_000_000,
            group_id=kafka.group_id,
            references_topic=kafka.references_topic,
            dead_letters_topic=kafka.dead_letters_topic,
            ranges=ranges,
            reference_ends=reference_ends,
            dead_letter_ends=dead_letter_ends,
        )

    @contextmanager
    def _retired(self) -> Iterator[RetiredSnapshot]:
        """Fix which objects are retired for the block; at its end refuse the result if that has changed.

        An object that is retired meanwhile may be gone when it is read; that error is reported as this one, too.

        Raises:
            OvertakenError: objects were retired, or a retirement was withdrawn.
        """
        objects = RetiredObjects(self._session(), self._settings)
        fixed = objects.pin()
        try:
            yield fixed
        except Exception as error:
            self._require_same(objects, fixed, cause=error)
            raise
        self._require_same(objects, fixed)

    def _require_same(self, objects: RetiredObjects, fixed: RetiredSnapshot, *, cause: Exception | None = None) -> None:
        if not fixed.has_same_objects(objects.pin()):
            raise OvertakenError(
                f"raw objects were retired while run {self.run_id} looked what is held: nothing is published; "
                "the same run again looks anew"
            ) from cause

    def _pieces(self, run: Run, retired: RetiredSnapshot) -> DataFrame:
        """Outline: source records of the range, joined with the indexes that are held of each -> the rest of them."""
        spark = self._session()
        acknowledged = Acknowledgements(spark, self._settings).read()
        held = HeldEntries(spark, self._settings, run, self._lineage, acknowledged)
        return pieces_of(held.source(), held.by_record(retired), self._worker)

    def _prepare(self, run: Run) -> Outbox:
        """Write all objects, then the outbox."""
        with self._retired() as retired:
            parts = self._write(run, retired)
        outbox = self._write_outbox(run, parts)
        self._log.info("outbox_written", messages=outbox.messages, parts=len(outbox.parts))
        return outbox

    def _write(self, run: Run, retired: RetiredSnapshot) -> list[tuple[str, int, str]]:
        tasks = self._session().sparkContext.defaultParallelism
        with StepProgress(self._session(), "backfill") as progress:
            progress.step("files")
            parts = written(self._pieces(run, retired), run, self._worker, tasks=tasks)
            return [(row["key"], row["messages"], row["sha256"]) for row in parts.collect()]

    def _write_outbox(self, run: Run, parts: list[tuple[str, int, str]]) -> Outbox:
        s3 = self._worker.s3
        return write_outbox(self._objects, s3.bucket, s3.prefix, run, parts)

    def _last_offsets(
        self, ranges: dict[TopicPartition, tuple[int, int]], from_ms: int | None, until_ms: int
    ) -> dict[TopicPartition, int]:
        if not any(first < end for first, end in ranges.values()):
            return {}
        return last_offsets(self._session(), self._worker.kafka, ranges, from_ms=from_ms, until_ms=until_ms)

    def _session(self) -> SparkSession:
        if self._spark is None:
            self._spark = open_session(self._settings, name="backfill")
        return self._spark

    def _require_same_topics(self, run: Run) -> None:
        kafka = self._worker.kafka
        ours = (kafka.group_id, kafka.references_topic, kafka.dead_letters_topic)
        theirs = (run.group_id, run.references_topic, run.dead_letters_topic)
        if ours != theirs:
            raise PipelineError(f"run {run.run_id} is of group and topics {theirs}, the settings say {ours}")
