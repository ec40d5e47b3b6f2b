"""One audit from top to bottom: what there is, batch by batch, the table, the listing, the result.

Owns the order of the steps, and the place where batches are judged: this process, or tasks of Spark if there are many.
The driver receives nothing proportional to entries: counts, a bounded number of examples, hours and flushes.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from log_partitioner.adapters.kafka.topics import KafkaTopics
from log_partitioner.adapters.schema_registry import schema_finder
from log_partitioner.formats.findings import Kind
from log_partitioner.proof.audit import audit as small
from log_partitioner.proof.audit.judge import BatchJudge, bundles
from log_partitioner.proof.audit.ranges import hull
from log_partitioner.proof.audit.source import GivenUp
from log_partitioner.proof.audit.store import S3Reader
from log_partitioner.proof.audit.window import FlushWindow
from log_partitioner_pipeline.acknowledged import Acknowledged, Acknowledgements
from log_partitioner_pipeline.audit import in_table, listing, results
from log_partitioner_pipeline.audit.audited import write_audited, write_result
from log_partitioner_pipeline.audit.bundles import (
    THREADS,
    Bench,
    Retired,
    WantedOutput,
    entries_frame,
    frame_of,
    judge_frame,
    read_judged,
    retired_of,
)
from log_partitioner_pipeline.audit.judged import BatchHour, FoundAt, JudgedBatches, PlacedFindings
from log_partitioner_pipeline.audit.result import Ids, Result
from log_partitioner_pipeline.entries import EntryTable
from log_partitioner_pipeline.erasures import Erasures
from log_partitioner_pipeline.errors import TableError
from log_partitioner_pipeline.frames import Kept
from log_partitioner_pipeline.progress import StepProgress
from log_partitioner_pipeline.retired import RetiredObjects, RetiredSnapshot
from log_partitioner_pipeline.whose import choose_group, require_group

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from log_partitioner.formats.model import TopicPartition
    from log_partitioner.proof.audit.announced import AnnouncedBatch
    from log_partitioner.proof.audit.audit import Index
    from log_partitioner.proof.audit.flush import Strays
    from log_partitioner_pipeline.audit.result import Window
    from log_partitioner_pipeline.config import JobSettings
    from log_partitioner_pipeline.table import Position

HERE_ENTRIES_MAX = 300_000
"""Entries that are judged in this process: with more, tasks of Spark are done sooner than one thread."""
_OF_OBJECTS = frozenset({Kind.OBJECT_MISSING, Kind.OBJECT_ALTERED, Kind.OBJECT_UNREADABLE})
_GIVEN_UP = {
    GivenUp.ERASED: "erased users, whose objects are gone",
    GivenUp.ACKNOWLEDGED: "objects whose loss is acknowledged",
}
_NOT_OF_ENTRIES = ("reference", "object", "flush", "backfill", "table")


class Options(NamedTuple):
    """Options of the audit; `examples` is the number of findings kept of each kind.

    Without verdicts nothing is written; then, and without the table and a listing, a few entries need no Spark at all.
    """

    window: Window
    table: bool = False
    list_objects: bool = False
    verdicts: bool = True
    require_caught_up: bool = False
    examples: int = 10
    here_entries_max: int = HERE_ENTRIES_MAX


class Auditor:
    """One run; `run` is called once. `open_spark` is called if Spark is needed."""

    def __init__(self, open_spark: Callable[[], SparkSession], settings: JobSettings, options: Options) -> None:
        self._open_spark = open_spark
        self._settings = settings
        self._options = options
        self._run_id = uuid.uuid4().hex[:12]
        self._started_at_ms = time.time_ns() // 1_000_000
        self._findings = PlacedFindings(examples_max=options.examples, is_acknowledged=self._is_acknowledged)
        self._judged = JudgedBatches()
        self._kept = Kept()
        self._progress = StepProgress(None, "audit")
        self._wanted = WantedOutput(
            references=options.table, ids=bool(settings.worker.id.paths), examples=options.examples
        )
        self._rows: list[pa.RecordBatch] = []
        self._of_tasks: DataFrame | None = None

    @cached_property
    def _spark(self) -> SparkSession:
        spark = self._open_spark()
        self._progress.watch(spark)
        return spark

    def run(self) -> Result:
        """Do everything; blocks for as long as reading the window takes.

        Raises:
            PipelineError, CouldNotTellError: there is no such table, or brokers or the store do not answer.
        """
        with self._kept, self._progress:
            return self._run()

    def _run(self) -> Result:
        """Outline: announcements -> batches with strays -> all others -> table -> listing -> result -> its tables."""
        options, step = self._options, self._progress.step
        step("topics")
        group = choose_group(self._settings)
        self._settings = group.settings
        worker = self._settings.worker
        position = None
        if options.table:
            position = self._position()
            require_group(EntryTable(self._spark, self._settings), group.lineage)
        window = FlushWindow(options.window.from_ms, options.window.until_ms)
        asked = small.Options(options.require_caught_up, options.examples, THREADS, window)
        s3 = S3Reader(worker.s3, threads=THREADS)
        with KafkaTopics.of(worker.kafka) as topics:
            cluster_id = topics.cluster_id()
            finder = schema_finder(worker)
            audit = small.Audit(worker, asked, topics, s3.get, group.lineage, self._findings, find_schema=finder)
            index = audit.index()
            with BatchJudge(index.ground, topics, s3.get, self._findings, threads=THREADS) as judge:
                step("batches")
                strays = self._judge_all(index, judge)
                audit.conclude(index, judge, records=self._judged.counts.get("source_records", 0))
                in_table_rows = None
                if position is not None:
                    step("table")
                    in_table_rows = self._compare_table(index, strays, position)
                listed = None
                if options.list_objects:
                    step("listing")
                    listed = self._list_objects(index)
                step("findings")
                self._judged.doubts += self._findings.doubts
                self._judged.notes += self._findings.notes
                ids = self._compare_ids(index)
                self._note_retired(listed)
                found = results.findings_of(self._judged, index, judge, examples=options.examples)
        hours, hours_left_out = results.hours_of(self._judged, has_doubts=bool(self._judged.doubts))
        flushes, flushes_left_out = results.flushes_of(index)
        durations = self._progress.end()
        result = Result(
            run_id=self._run_id,
            started_at_ms=self._started_at_ms,
            seconds=round(sum(durations.values()), 3),
            places=self._places(cluster_id),
            window=options.window,
            coverage=results.coverage_of(self._judged, index),
            counts=results.counts_of(
                self._judged, index, in_table=in_table_rows, listed=None if listed is None else listed.count()
            ),
            findings=found,
            could_not_tell=self._judged.doubts,
            notes=self._judged.notes,
            ids=ids,
            dead_letters=dict(sorted(self._judged.dead_letters.items())),
            hours=hours,
            hours_left_out=hours_left_out,
            record_hours=results.record_hours_of(self._judged),
            flushes=flushes,
            flushes_left_out=flushes_left_out,
            references_offsets={tp.partition: end for tp, (_, end) in index.references.items()},
            table_offsets=None if position is None else position.offsets,
            durations_s=durations,
        )
        if options.verdicts:  # findings first: an older clean row of theirs counts no more from then on
            whole = index.whole
            write_audited(
                self._spark,
                self._settings,
                {place: counts for place, counts in self._judged.hours.items() if place.batch in whole},
                self._judged.kinds,
                result=result,
                position=position,
                taken=set() if position is None else _taken(index, position, worker.kafka.references_topic),
            )
            write_result(self._spark, self._settings, result)
        return result

    # Batches.

    @property
    def _needs_spark(self) -> bool:
        options = self._options
        return options.table or options.list_objects or options.verdicts

    @cached_property
    def _retired(self) -> RetiredSnapshot:
        return RetiredObjects(self._spark, self._settings).pin()

    @cached_property
    def _wanted_by_tables(self) -> WantedOutput:
        """The same that is wanted, with what tables say is given up."""
        return self._wanted._replace(
            erased=Erasures(self._spark, self._settings).read(), acknowledged=self._acknowledged
        )

    @cached_property
    def _acknowledged(self) -> Acknowledged:
        return Acknowledgements(self._spark, self._settings).read()

    def _is_acknowledged(self, tp: TopicPartition, offset: int) -> bool:
        return tp.topic not in self._settings.worker.kafka.sources and self._acknowledged.has_message(tp, offset)

    def _judge_all(self, index: Index, judge: BatchJudge) -> Strays:
        """Judge batches with strays here, then all others: here if they are few, else in tasks. Returns the strays."""
        asks_tables = self._needs_spark or bool(index.straying)
        if asks_tables:
            self._wanted = self._wanted_by_tables
            judge.context.retired = self._rows_of_retired(index.straying)
        bench = Bench(judge, self._findings, self._wanted)
        strays, straying = judge.judge_straying(index.straying, index.begins)
        self._take(bench.rows(straying))
        del straying
        others = index.others
        entries = sum(record.totals.entries for batch in others for record in batch.records)
        if entries <= self._options.here_entries_max and not (asks_tables and self._retired.rows is not None):
            rows = [row for bundle in bundles(others) for row in bench.rows(list(judge.judge(bundle, strays)))]
            found = self._read(row for batch in rows for row in batch.to_pylist())
            if is_lost := any(_OF_OBJECTS & kinds.keys() for kinds in found.kinds.values()):
                self._doubt_retirement()
            known = self._wanted_by_tables if is_lost else self._wanted
            has_more = is_lost and (self._retired.rows is not None or known != self._wanted)
            if asks_tables or not has_more:  # else tables tell what is lost here, and why
                self._take(rows)
                return strays
            self._wanted = known
        retired = in_table.retired_rows(self._spark, self._settings, self._retired, others)
        frame = frame_of(self._spark, others, retired)
        self._of_tasks = self._kept.keep(judge_frame(frame, index.ground, strays, self._wanted))
        self._of_tasks.count()  # in all tasks at once; then the driver takes one part after the other
        rows_judged = self._of_tasks.where("judged IS NOT NULL").select("judged")
        self._judged.add(self._read(rows_judged.toLocalIterator()), examples_max=self._options.examples)
        self._doubt_retirement()
        return strays

    def _read(self, rows: Iterable[Any]) -> JudgedBatches:
        return read_judged(rows, examples_max=self._options.examples)

    def _doubt_retirement(self) -> None:
        if not self._retired.has_same_objects(RetiredObjects(self._spark, self._settings).pin()):
            self._judged.doubts.append("objects were being retired while the audit was reading: audit again")

    def _take(self, rows: Iterable[pa.RecordBatch]) -> None:
        """Take what was judged in this process."""
        rows = list(rows)
        found = self._read(row for batch in rows for row in batch.to_pylist())
        self._judged.add(found, examples_max=self._options.examples)
        self._rows += rows

    def _rows_of_retired(self, batches: list[AnnouncedBatch]) -> Retired:
        rows = in_table.retired_rows(self._spark, self._settings, self._retired, batches) if batches else None
        return {} if rows is None else retired_of(row.asDict() for row in rows.collect())

    @cached_property
    def _frame(self) -> DataFrame:
        """All rows that were judged, here and in tasks."""
        frames = [self._spark.createDataFrame(pa.Table.from_batches(self._rows))]
        if self._of_tasks is not None:
            frames.append(self._of_tasks)
        return reduce(DataFrame.union, frames)

    # The table.

    def _position(self) -> Position:
        position = in_table.find_position(self._spark, self._settings)
        if position is None:
            raise TableError(f"there is no table {self._settings.pipeline.table.name}")
        self._judged.doubts += in_table.doubts_of_columns(self._spark, self._settings, position)
        return position

    def _compare_table(self, index: Index, strays: Strays, position: Position) -> int:
        """Compare digests by reference, then the rows of those that differ; returns how many rows the table has."""
        spark, settings, keep = self._spark, self._settings, self._kept.keep
        every = self._frame.where("reference_id IS NOT NULL")
        judged = every.where("NOT given_up")
        near = hull(span for batch in index.batches for span in batch.spans)
        rows = in_table.rows_at(spark, settings, position, near, judged)
        if self._options.window.is_everything and not self._judged.doubts:  # else references may be unknown here
            rows = rows.union(in_table.rows_within(spark, settings, position, index.ground.source, every))
        sums = keep(in_table.sums_of(rows, settings))
        differing = keep(in_table.compare_sums(judged, sums, position))
        places = differing.select("reference_id", "batch_id").collect()
        if places:
            wanted = {row["batch_id"] for row in places}
            batches = [batch for batch in index.batches if batch.name in wanted]
            frame = frame_of(spark, batches, in_table.retired_rows(spark, settings, self._retired, batches))
            names = frozenset(row["reference_id"] for row in places)
            in_files = entries_frame(frame, index.ground, strays, names)
            self._add_findings(keep(in_table.findings_of(in_files, differing, rows, settings)))
        total = sums.agg(F.sum("rows")).first()
        return (total and total[0]) or 0

    def _add_findings(self, findings: DataFrame) -> None:
        """Take findings, columns of `in_table.FINDING`: counts of all, the first examples of each kind."""
        place = ["batch_id", "date", "hour"]
        for row in findings.groupBy(*place, "kind").agg(F.sum("count").alias("n")).collect():
            kinds = self._judged.kinds.setdefault(BatchHour(*(row[name] for name in place)), {})
            kinds[Kind(row["kind"])] = kinds.get(Kind(row["kind"]), 0) + row["n"]
        nth = F.row_number().over(Over.partitionBy("kind").orderBy("topic", "partition", "offset", "index", "object"))
        first = findings.withColumn("nth", nth).where(F.col("nth") <= self._options.examples).drop("nth")
        self._judged.examples += [FoundAt(**row.asDict() | {"kind": Kind(row["kind"])}) for row in first.collect()]

    # Objects that nothing names, unique ids, notes.

    def _list_objects(self, index: Index) -> DataFrame:
        """List the prefix; objects that nothing names are findings, or notes if the settings say so."""
        spark, worker, audit = self._spark, self._settings.worker, self._settings.pipeline.audit
        listed = self._kept.keep(listing.list_objects(spark, worker))
        named = listing.named_objects(spark, worker, references=index.references, letters=index.letters)
        before_ms = self._started_at_ms - round(audit.unreferenced_age_s * 1000)
        finished = [run.batch_id for run in index.runs.values() if run.is_finished]
        all_of_it = listing.sort_out(listed, self._kept.keep(named), worker.s3, finished=finished, before_ms=before_ms)
        texts = {
            "are what backfills keep of their runs": all_of_it.outboxes,
            "are, or may be, of backfills that have not published all they will": all_of_it.awaited,
            "under the prefix are of nothing that is known here": all_of_it.foreign,
        }
        if not index.ground.are_whole:
            texts["are named by nothing, but references or dead letters have lost their beginning"] = all_of_it.orphans
        elif audit.unreferenced == "finding":
            self._add_findings(listing.findings_of(all_of_it.orphans))
        else:
            texts["are named by nothing committed"] = all_of_it.orphans
        counts = {text: frame.count() for text, frame in texts.items()}
        self._judged.notes += [f"{count} objects {text}" for text, count in counts.items() if count]
        return all_of_it.old

    def _compare_ids(self, index: Index) -> Ids | None:
        """Compare unique ids; a difference is a finding if all of source and files was read, and nothing is wrong."""
        if not self._wanted.ids:
            return None
        ids = results.ids_of(self._frame) if self._of_tasks is not None else results.ids_of_rows(self._rows)
        if ids.repeated_in_source:
            self._judged.notes.append(f"{ids.repeated_in_source} unique ids are more than once in the source itself")
        kinds = {kind for some in self._judged.kinds.values() for kind in some}
        is_explained = any(not kind.startswith(_NOT_OF_ENTRIES) for kind in kinds) or bool(self._judged.doubts)
        is_explained |= any(self._judged.counts.get(reason) for reason in GivenUp)
        is_explained |= bool(index.straying or index.ground.lows)
        if ids.missing + ids.surplus and not is_explained:
            self._judged.kinds.setdefault(BatchHour(None), {})[Kind.ID_MISMATCH] = ids.missing + ids.surplus
        return ids

    def _note_retired(self, listed: DataFrame | None) -> None:
        """Note what is given up, retired objects that were judged by the table, and those that still exist."""
        counts, notes = self._judged.counts, self._judged.notes
        for reason, text in _GIVEN_UP.items():
            if count := counts.get(reason, 0):
                notes.append(f"{count} entries are of {text}: nobody has them")
        if not self._needs_spark or (recorded := self._retired.rows) is None:
            return
        if count := counts.get("objects_retired", 0):
            rows, table = counts.get("rows_retired", 0), self._settings.pipeline.table.name
            notes.append(f"{count} objects are retired: table {table} has their {rows} entries")
        if listed is None:
            if count := recorded.where(F.col("deleted_at").isNull()).count():
                notes.append(f"{count} objects are recorded as retired, and not yet as deleted")
        else:
            ours = recorded.where(F.col("bucket") == self._settings.worker.s3.bucket).select("object").distinct()
            if count := listed.join(ours, on="object", how="left_semi").count():
                notes.append(f"{count} objects are recorded as retired, and still there")

    def _places(self, cluster_id: str | None) -> dict[str, str]:
        kafka, s3 = self._settings.worker.kafka, self._settings.worker.s3
        places = {
            "brokers": kafka.bootstrap_servers,
            **({} if cluster_id is None else {"cluster": cluster_id}),
            "group": kafka.group_id,
            "source": ", ".join(kafka.source_topics),
            "references": kafka.references_topic,
            "flush records": kafka.flushes_topic,
            "dead letters": kafka.dead_letters_topic,
            "objects": f"s3://{s3.bucket}/{s3.prefix}" + (f" at {s3.endpoint_url}" if s3.endpoint_url else ""),
        }
        return places | ({"table": self._settings.pipeline.table.name} if self._options.table else {})


def _taken(index: Index, position: Position, references_topic: str) -> set[str]:
    """Return the batches of which the table has taken every reference."""
    return {
        batch.name
        for batch in index.batches
        if all(
            end <= position.offsets.get(tp.partition, 0)
            for tp, (_, end) in batch.places.items()
            if tp.topic == references_topic
        )
    }
