"""The audit against an older system's archived CSV: the same window of the source, another witness.

Owns the order of its steps. It knows nothing of this product's work: no reference, no committed offset. It compares by
unique id, and its result has the form of every other audit, so that `comparison` can lay both side by side.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, NamedTuple

from log_partitioner.adapters.kafka.topics import KafkaTopics
from log_partitioner_pipeline import topics
from log_partitioner_pipeline.audit import by_id, collect, csv_archive, csv_collect, scope, sides
from log_partitioner_pipeline.audit.csv_source import identify
from log_partitioner_pipeline.audit.csv_window import find_judged
from log_partitioner_pipeline.audit.kept import Kept
from log_partitioner_pipeline.audit.result import Archive, Counts, Result, Witness
from log_partitioner_pipeline.audit.windows import reach_last
from log_partitioner_pipeline.errors import ArchiveError
from log_partitioner_pipeline.progress import StepProgress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from log_partitioner.formats.model import TopicPartition
    from log_partitioner_pipeline.audit.csv_archive import ArchivedFile
    from log_partitioner_pipeline.audit.csv_collect import Totals
    from log_partitioner_pipeline.audit.result import Window
    from log_partitioner_pipeline.audit.scope import Span
    from log_partitioner_pipeline.config import JobSettings


class CsvOptions(NamedTuple):
    """Options of the audit; `examples` is the number of findings kept of each kind."""

    window: Window
    location: str
    examples: int = 10


def require_ids(settings: JobSettings) -> None:
    """Check that entries have unique ids.

    Raises:
        ArchiveError: the settings do not name it.
    """
    if not settings.worker.id.paths:
        raise ArchiveError("an archive is compared by unique id: LOGP_ID__PATHS must say where entries have theirs")


class CsvAuditor:
    """One run; `run` is called once."""

    def __init__(self, spark: SparkSession, settings: JobSettings, options: CsvOptions) -> None:
        require_ids(settings)
        self._spark = spark
        self._settings = settings
        self._options = options
        self._run_id = uuid.uuid4().hex[:12]
        self._started_at_ms = time.time_ns() // 1_000_000
        self._doubts: list[str] = []
        self._notes: list[str] = []
        self._kept = Kept()
        self._progress = StepProgress(spark, "audit")

    def run(self) -> Result:
        """Do everything; blocks for as long as it takes to read the window, and the files that may belong to it.

        Raises:
            PipelineError, CouldNotTellError: there is no such archive, or brokers or S3 do not answer.
        """
        with self._kept, self._progress:
            return self._run()

    def _run(self) -> Result:
        """Outline: the source's offsets -> the archive's files -> both sides -> compare -> the result."""
        step, window, settings = self._progress.step, self._options.window, self._settings
        step("topics")
        cluster_id, spans = self._spans()
        step("archive")
        files = csv_archive.list_files(settings, self._options.location, window)
        step("source")
        reach = sides.reach_of(self._spark, spans, {})
        messages = topics.read_messages(
            self._spark, settings.worker.kafka, {span.tp: (span.first, span.next) for span in spans}
        )
        source = self._kept.keep(sides.mark_window(identify(messages, settings), reach, window))
        totals = csv_collect.totals_of(source)
        rules = self._rules(spans, totals)
        self._progress.count(files=len(files))
        step("rows")
        archived = self._kept.keep(csv_archive.read_files(self._spark, settings, files))
        step("comparison")
        compared = self._kept.keep(by_id.compare(source, archived, rules))
        told, unread = csv_collect.findings_of(compared, archived)
        told = self._kept.keep(told)
        self._doubts += unread
        by_kind = collect.count_by_kind(told)
        examples = collect.collect_plain_examples(told, per_kind=self._options.examples)
        archive = self._archive(files, archived, compared, totals)
        ids = csv_collect.collect_ids(compared, by_kind)
        if ids.repeated_in_source:
            self._notes.append(f"{ids.repeated_in_source} unique ids are more than once in the source itself")
        step("hours")
        most = settings.pipeline.audit.hours_max
        hours = self._kept.keep(
            csv_collect.hours_of(
                compared, told, is_whole=self._options.window.is_everything, has_doubts=bool(self._doubts)
            )
        )
        found_hours, hours_left_out = collect.collect_hours(hours, most=most)
        record_hours = csv_collect.collect_record_hours(source, compared, most=most)
        sums = list(totals.values())
        durations = self._progress.end()
        return Result(
            against=Witness.CSV,
            run_id=self._run_id,
            started_at_ms=self._started_at_ms,
            seconds=round(sum(durations.values()), 3),
            places=self._places(cluster_id),
            window=window,
            coverage=[
                scope.coverage_of(span, records=one.records, entries=one.entries)
                for span in spans
                for one in [totals.get(span.tp, csv_collect.NOTHING)]
            ],
            counts=Counts(
                records=sum(one.records for one in sums),
                entries=sum(one.entries for one in sums),
                deliverable=sum(one.deliverable for one in sums),
                dead=sum(one.entries - one.deliverable for one in sums),
                in_files=ids.in_source - ids.missing,
                rows=archive.rows,
                objects=archive.files,
                object_bytes=archive.bytes,
            ),
            findings=collect.findings_of(by_kind, examples),
            could_not_tell=self._doubts,
            notes=self._notes,
            ids=ids,
            dead_letters={},
            hours=found_hours,
            hours_left_out=hours_left_out,
            record_hours=record_hours,
            flushes=[],
            references_offsets={},
            archive=archive,
            durations_s=durations,
        )

    def _spans(self) -> tuple[str | None, list[Span]]:
        kafka, window = self._settings.worker.kafka, self._options.window
        with KafkaTopics.of(kafka) as brokers:
            tps = [tp for topic in kafka.source_topics for tp in brokers.topic_partitions(topic)]
            sources = scope.ask(brokers, tps, window, dict.fromkeys(tps))
            cluster_id = brokers.cluster_id()
        sources = reach_last(self._spark, kafka, sources, window)
        return cluster_id, [scope.whole_span_of(one) for one in sources]

    def _rules(self, spans: list[Span], totals: dict[TopicPartition, Totals]) -> by_id.ArchiveRules:
        csv, user = self._settings.pipeline.csv, self._settings.worker.user
        oldest_ms = {tp: one.oldest_ms for tp, one in totals.items()}
        judged = find_judged(self._options.window, spans, oldest_ms, started_at_ms=self._started_at_ms)
        self._doubts += judged.doubts
        self._notes += judged.notes
        return by_id.ArchiveRules(
            values=tuple(csv.values),
            time_tolerance_s=csv.time_tolerance_s,
            no_user=user.missing_name,
            from_us=None if judged.from_ms is None else judged.from_ms * 1000,
            until_us=judged.until_ms * 1000,
        )

    def _archive(
        self,
        files: list[ArchivedFile],
        archived: DataFrame,
        compared: DataFrame,
        totals: dict[TopicPartition, Totals],
    ) -> Archive:
        """Count the rows read, and name the parts of the archive that cannot be compared."""
        counted = csv_collect.count_rows(archived, compared)
        deliverable = sum(one.deliverable for one in totals.values())
        without_id = sum(one.without_id for one in totals.values())
        if without_id == deliverable > 0:
            self._doubts.append("no entry of the window has a unique id")
        elif without_id:
            self._notes.append(f"{without_id} entries of the window have no unique id, and cannot be compared")
        said = {
            "broken_elsewhere": "lines or files are broken, of which nobody knows that they are of the window",
            "rows_without_id": "rows of the archive have no unique id",
            "rows_timeless": "rows of the archive have an id that is not of the window, and no time that can be read",
            "rows_dead": "rows of the archive are of entries that are no deliverable ones: dead letters here",
        }
        self._notes += [f"{counted[name]} {text}" for name, text in said.items() if counted[name]]
        return Archive(
            files=len(files),
            bytes=sum(one.size for one in files),
            entries_without_id=without_id,
            **{name: counted[name] for name in Archive.__struct_fields__ if name in counted},
        )

    def _places(self, cluster_id: str | None) -> dict[str, str]:
        kafka, csv = self._settings.worker.kafka, self._settings.pipeline.csv
        columns = {"id": csv.id_column, "user": csv.user_column, "time": csv.time_column}
        named = [f"{name} {column}" for name, column in columns.items() if column is not None]
        return {
            "brokers": kafka.bootstrap_servers,
            **({} if cluster_id is None else {"cluster": cluster_id}),
            "source": ", ".join(kafka.source_topics),
            "archive": self._options.location,
            "columns": ", ".join([*named, *csv.values]),
        }
