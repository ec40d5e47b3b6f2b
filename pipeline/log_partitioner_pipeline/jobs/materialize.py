"""References topic -> table, exactly once (DESIGN 8).

The table itself states the offsets it has reached. The messages behind them are read in slices of so many references
and bytes (`topic_log`); each slice is one commit of rows and offsets together. A continuous run catches
up once an interval, and at once if that took longer: it never waits while it is behind.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import structlog

from log_partitioner.adapters.kafka.topics import KafkaTopics
from log_partitioner.proof.audit.whose import of_group
from log_partitioner_pipeline import complete
from log_partitioner_pipeline.acknowledged import Acknowledgements
from log_partitioner_pipeline.announced import DEAD_LETTERS, FLUSHES, REFERENCES, AnnouncedTable
from log_partitioner_pipeline.columns import Struct, wanted_by
from log_partitioner_pipeline.complete import Completeness
from log_partitioner_pipeline.entries import EntryTable
from log_partitioner_pipeline.errors import PipelineError
from log_partitioner_pipeline.metrics import TABLE, Gauges
from log_partitioner_pipeline.objects import Objects
from log_partitioner_pipeline.parquet import write_files
from log_partitioner_pipeline.pieces import projection_text
from log_partitioner_pipeline.progress import StepProgress
from log_partitioner_pipeline.references import SchemaTexts, once, weigh
from log_partitioner_pipeline.session import open_session
from log_partitioner_pipeline.topic_log import Bounds, Slice, count_behind, read_slices, require_unbroken
from log_partitioner_pipeline.whose import OneHistory, claim, history_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from log_partitioner.adapters.kafka.topics import Ends
    from log_partitioner.formats.reference import Reference
    from log_partitioner_pipeline.config import JobSettings
    from log_partitioner_pipeline.topic_log import Offsets

_NEWEST_HOURS = """
SELECT hour, count(*) AS entries, count(DISTINCT user) AS users
FROM {table} GROUP BY hour ORDER BY hour DESC LIMIT 10
"""


def run(settings: JobSettings, *, continuous: bool, show: bool = False) -> None:
    """Bring the table up to date; with `continuous` go on until stopped; with `show` query it at the end.

    Blocks until everything there was at the start is in the table.

    Raises:
        PipelineError: see `log_partitioner_pipeline.errors`.
    """
    spark = open_session(settings, name="materialize")
    job = Materialize(spark, settings)
    job.run(continuous=continuous)
    if show:
        query = _NEWEST_HOURS.format(table=job.table_name).strip()
        sys.stdout.write(f"{query}\n")
        spark.sql(query).show(truncate=False)


class Materialize:
    """One driver's run."""

    def __init__(self, spark: SparkSession, settings: JobSettings) -> None:
        self._spark = spark
        self._worker = settings.worker
        self._settings = settings.pipeline.materialize
        self._topic = settings.worker.kafka.references_topic
        run_id = uuid.uuid4().hex[:12]
        self._table = EntryTable(spark, settings)
        self._acknowledged = Acknowledgements(spark, settings).read()
        self._references = AnnouncedTable(spark, settings, REFERENCES)
        self._beside = [AnnouncedTable(spark, settings, kind) for kind in (DEAD_LETTERS, FLUSHES)]
        self._objects = Objects(settings.worker.s3)
        self._schema_texts = SchemaTexts(self._objects)
        self._log = structlog.get_logger("materialize").bind(run=run_id)
        self._offsets: Offsets = {}
        self._complete = Completeness({})
        self._history = OneHistory(settings.worker.kafka, None)
        self._progress = StepProgress(spark, "materialize")
        self._metrics = Gauges(TABLE, settings.worker.kafka.group_id)

    @property
    def table_name(self) -> str:
        """The table, as SQL names it."""
        return self._table.name

    def run(self, *, continuous: bool) -> None:
        """Materialise until everything is in the table, or for ever.

        Raises:
            PipelineError: it cannot go on; nothing is half done.
        """
        if continuous and self._settings.metrics_port is not None:
            self._serve(self._settings.metrics_port)
        self._table.ensure()
        self._history = history_of(self._table, self._worker.kafka)
        self._offsets = self._table.position().offsets
        self._complete = Completeness(self._table.properties())
        self._log.info("materialize_started", offsets=self._offsets, columns=len(self._table.fields()))
        with self._progress:
            self._catch_up()
            while continuous:
                due = time.monotonic() + self._settings.interval_s
                self._catch_up()
                time.sleep(max(0.0, due - time.monotonic()))
        self._log.info("materialize_ended", offsets=self._offsets)

    def _catch_up(self) -> None:
        """Commit everything that there is now: first what was announced, then its entries."""
        kafka = self._worker.kafka
        self._table.require_same_topic(kafka)
        lineage = self._history.lineage
        group = kafka if lineage is None else of_group(self._worker, lineage.group_id).kafka
        with KafkaTopics.of(group) as topics:
            now, committed = complete.ask(topics, group)
            settled, open_ones = topics.settled(topics.topic_partitions(self._topic))
        ends = {tp.partition: end for tp, end in settled.items()}
        self._progress.step("announcements")
        passed_over = self._acknowledged
        announced = {table.topic: table.catch_up(acknowledged=passed_over) for table in self._beside}
        announced[self._topic] = self._references.catch_up(ends, acknowledged=passed_over)
        if any(announced.values()):
            self._log.info("announcements_materialized", rows=announced)
        known = self._references.known(self._offsets, ends)
        require_unbroken(self._offsets, known, self._topic)
        behind = count_behind(self._offsets, known)
        self._metrics.set("offsets_behind", behind)
        self._progress.step("references", total=behind, unit="offsets")
        for one in self._slices(ends):
            self._commit(one)
            left = count_behind(one.offsets, known)
            self._progress.reach(behind - left)
            self._metrics.set("offsets_behind", left)
            self._metrics.set("last_commit_timestamp_seconds", time.time())
        if lineage is not None and not open_ones:
            self._table.set_properties(self._complete.reach(now, committed))
        self._metrics.set("caught_up_timestamp_seconds", time.time())
        if self._settings.metrics_file is not None:
            self._write(self._settings.metrics_file)

    def _serve(self, port: int) -> None:
        try:
            self._metrics.serve(port)
        except OSError as error:
            raise PipelineError(f"no metrics on PIPELINE_MATERIALIZE__METRICS_PORT {port}: {error}") from error

    def _write(self, file: Path) -> None:
        try:
            self._metrics.write(file)
        except OSError as error:  # the table is what matters
            self._log.warning("metrics_not_written", file=str(file), message=str(error))

    def _slices(self, ends: dict[int, Ends]) -> Iterator[Slice[Reference]]:
        """Read on to these ends: what the topic has lost from the table of references, then the topic."""
        bounds, passed_over = Bounds(self._settings.references_max), self._acknowledged
        yield from self._references.lost_slices(self._offsets, ends, acknowledged=passed_over, bounds=bounds)
        take = partial(weigh, is_acknowledged=passed_over.has_message)
        yield from read_slices(self._worker.kafka, self._topic, self._offsets, ends, take=take, bounds=bounds)

    def _commit(self, of_it: Slice[Reference]) -> None:
        """Outline: references -> those that are new -> columns of exact schemas -> files -> one commit."""
        begun = time.monotonic()
        every = self._history.take(once(of_it.items))
        references = [one for one in every if not self._acknowledged.has_object(one.location)]
        claim(self._table, self._history)
        held = self._references.announced_before(references, self._offsets)
        new = [reference for reference in references if reference.reference_id not in held]
        wanted = self._wanted(new)
        self._table.widen(wanted)
        files = write_files(self._spark, new, self._table.target_of(wanted), s3=self._worker.s3)
        entries = sum(reference.entries for reference in new)
        self._table.append(files, base=self._offsets, offsets=of_it.offsets, rows=entries, also=self._complete.told())
        self._offsets = of_it.offsets
        self._progress.count(references=len(new), entries=entries)
        self._log.info(
            "references_materialized",
            references=len(new),
            held_already=len(held),
            acknowledged=len(every) - len(references),
            entries=entries,
            objects=len({reference.location.object for reference in new}),
            schemas=len(wanted),
            files=len(files),
            offsets=of_it.offsets,
            seconds=round(time.monotonic() - begun, 3),
        )

    def _wanted(self, references: list[Reference]) -> list[Struct]:
        """Return the columns that each exact schema wants, those of the most entries first.

        Raises:
            PipelineError: a schema is not of this product, or a projection does not fit its schema.
        """
        texts = self._schema_texts.of(references)
        entries: Counter[tuple[str, str]] = Counter()
        for reference in references:
            entries[reference.schema.fingerprint, projection_text(reference)] += reference.entries
        wanted = []
        for (fingerprint, projection), _ in sorted(entries.items(), key=lambda one: (-one[1], one[0])):
            try:
                wanted.append(wanted_by(texts[fingerprint], projection))
            except (ValueError, KeyError, TypeError) as error:
                raise PipelineError(f"schema {fingerprint}, projection {projection}: {error}") from error
        return wanted
