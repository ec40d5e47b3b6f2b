"""One audit from top to bottom: the request, the sides, their comparison, the accounts, the result.

Owns the order of the steps and the frames kept between them; every rule stands in the module that the step calls. The
driver receives nothing proportional to entries, only counts, a bounded number of examples, hours and flushes.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from log_partitioner.adapters.kafka.topics import KafkaTopics
from log_partitioner.formats.findings import Kind
from log_partitioner.formats.model import TopicPartition
from log_partitioner_pipeline import topics
from log_partitioner_pipeline.audit import (
    accounts,
    backfills,
    collect,
    findings,
    object_bytes,
    schemas,
    scope,
    sides,
    stored,
)
from log_partitioner_pipeline.audit.announced import read_announced
from log_partitioner_pipeline.audit.compare import compare
from log_partitioner_pipeline.audit.ground import Announced, Ground, find_ground
from log_partitioner_pipeline.audit.result import Counts, Ids, Result
from log_partitioner_pipeline.audit.retired import ReferenceReader, doubt_columns, find_position
from log_partitioner_pipeline.audit.verdicts import write_verdicts
from log_partitioner_pipeline.audit.windows import reach_last
from log_partitioner_pipeline.errors import TableError
from log_partitioner_pipeline.kafka import read_messages
from log_partitioner_pipeline.kept import Kept
from log_partitioner_pipeline.progress import StepProgress
from log_partitioner_pipeline.whose import choose_group, require_group

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from log_partitioner.formats.flush_record import Lineage
    from log_partitioner_pipeline.audit.result import Window
    from log_partitioner_pipeline.config import AuditSettings, JobSettings
    from log_partitioner_pipeline.table import Position

_SHOWN = 3
_TP = ["topic", "partition"]
_MESSAGE_AT = ("message_partition", "message_offset")
_NOT_OF_ENTRIES = ("reference", "object", "flush", "backfill", "table")


class Options(NamedTuple):
    """Options of the audit; `examples` is the number of findings kept of each kind."""

    window: Window
    table: bool = False
    list_objects: bool = False
    verdicts: bool = True
    require_caught_up: bool = False
    examples: int = 10


class Auditor:
    """One run; `run` is called once."""

    def __init__(self, spark: SparkSession, settings: JobSettings, options: Options) -> None:
        self._spark = spark
        self._settings = settings
        self._options = options
        self._run_id = uuid.uuid4().hex[:12]
        self._started_at_ms = time.time_ns() // 1_000_000
        self._doubts: list[str] = []
        self._notes: list[str] = []
        self._kept = Kept()
        self._progress = StepProgress(spark, "audit")
        self._files = ReferenceReader(spark, settings, self._kept.keep_apart)

    def run(self) -> Result:
        """Do everything; blocks for as long as reading the window takes.

        Raises:
            PipelineError, CouldNotTellError: there is no such table, or brokers do not answer.
        """
        with self._kept, self._progress:
            return self._run()

    def _run(self) -> Result:  # noqa: PLR0915 - the list of all steps
        """Outline: announced messages -> audited offsets -> the sides -> compare -> accounts -> result."""
        step, window = self._progress.step, self._options.window
        step("topics")
        group = choose_group(self._settings)
        self._settings = group.settings
        self._notes += [f"messages of group {one} are of another history: left out" for one in group.others]
        position = self._position(group.lineage) if self._options.table else None
        with KafkaTopics.of(self._settings.worker.kafka) as brokers:
            asked = scope.ask_all(brokers, self._settings.worker.kafka, window)
            cluster_id = brokers.cluster_id()
        self._doubts += asked.doubts
        announced = read_announced(self._spark, group, asked, self._kept, step=step)
        put_away = sides.find_what_is_put_away(announced.dead)
        reached = reach_last(self._spark, self._settings.worker.kafka, asked.sources, window, put_away)
        asked = asked._replace(sources=reached)
        is_full = self._options.window.is_everything
        ground = find_ground(self._settings, asked, announced, is_full=is_full, others=group.others)
        self._doubts += ground.doubts
        step("source")
        source = self._kept.keep(sides.read_source(self._spark, self._settings, ground.spans, put_away))
        reach = sides.reach_of(self._spark, ground.spans, _starts(source, ground))
        in_window = sides.of_window(source, reach, window)
        totals = _totals(in_window)
        self._progress.count(entries=sum(entries for _, entries in totals.values()))
        self._doubt_uncommitted(ground)
        step("files")
        chosen = self._files.choose(announced.references, reach)
        self._progress.count(files=chosen.count())
        near, rows, doubts = self._files.read(chosen, position, ground.spans, reach)
        self._doubts += doubts
        selected = near.where("in_window")
        step("comparison")
        compared = self._kept.keep_apart(
            compare(
                source=source,
                rows=sides.within(rows.where(F.col("topic").isNotNull()), reach),
                dead=sides.within(announced.dead.where(F.col("index").isNotNull()), reach),
                table=self._read_table(position, ground, reach),
                spans=reach,
                window=window,
            )
        )
        step("accounts")
        flushes = self._kept.keep(accounts.flushes_in_window(announced.flushes, reach))
        flushed = selected.where(~backfills.is_backfilled())
        entries = findings.entry_findings(compared, rows, near)
        self._doubt_unread(rows, announced.dead, entries.unread)
        seen = backfills.Seen(selected, rows, reach)
        runs_judged = backfills.judge_runs(self._spark, flushes, announced, ground, seen)
        self._notes += runs_judged.notes
        found = [
            entries.findings,
            findings.row_findings(rows, selected),
            findings.letter_findings(announced.dead, reach, is_full=is_full),
            findings.repeated_references(announced.repeated, selected.select("reference_id")),
            accounts.coverage(announced.lines, reach),
            self._judge_flushes(flushes, announced, source, reach, ground, runs_judged.excused),
            accounts.wrong_ranges(topics.sources_of(flushed), announced.lines),
            *object_bytes.wrong_bytes(announced.references, selected, short=ground.short, excused=runs_judged.excused),
            accounts.wrong_messages(selected, bucket=self._settings.worker.s3.bucket),
            *accounts.without_offset(announced.flushes, [span.tp for span in ground.spans if span.committed is None]),
            schemas.wrong_schemas(self._settings, announced, selected),
            *runs_judged.findings,
            *self._unread_references(announced, chosen, reach),
            *self._unreadable(announced),
        ]
        listed = None
        if self._options.list_objects:
            step("listing")
            listed = self._list_objects(announced, ground, found)
        step("findings")
        told = self._kept.keep_apart(findings.union(found))
        by_kind = collect.count_by_kind(told)
        ids = self._ids(compared, by_kind)
        examples = collect.collect_examples(
            told, announced.references, announced.lines, per_kind=self._options.examples
        )
        step("hours")
        hours = self._kept.keep(
            collect.hours_of(compared, told, selected, announced.references, has_doubts=bool(self._doubts))
        )
        found_hours, hours_left_out = collect.collect_hours(hours)
        record_hours = collect.collect_record_hours(in_window, compared, flushes)
        found_flushes, flushes_left_out = collect.collect_flushes(flushes)
        counts = collect.collect_counts(compared, rows, selected, flushes)
        if position is None:
            del counts["in_table"]
        self._notes += self._files.notes(counts, listed)
        dead_letters = compared.select(F.explode("dead_reasons").alias("reason")).groupBy("reason").count().collect()
        if self._options.verdicts:
            step("verdicts")
            self._write_verdicts(hours, asked.references_offsets, position, group.lineage)
        durations = self._progress.end()
        return Result(
            run_id=self._run_id,
            started_at_ms=self._started_at_ms,
            seconds=round(sum(durations.values()), 3),
            places=self._places(cluster_id),
            window=window,
            coverage=[
                scope.coverage_of(span, records=records, entries=entries)
                for span in ground.spans
                for records, entries in [totals.get(span.tp, (0, 0))]
            ],
            counts=Counts(
                records=sum(records for records, _ in totals.values()),
                entries=sum(entries for _, entries in totals.values()),
                objects_listed=None if listed is None else listed.count(),
                **counts,
            ),
            findings=collect.findings_of(by_kind, examples),
            could_not_tell=self._doubts,
            notes=self._notes,
            ids=ids,
            dead_letters={row["reason"]: row["count"] for row in sorted(dead_letters)},
            hours=found_hours,
            hours_left_out=hours_left_out,
            record_hours=record_hours,
            flushes=found_flushes,
            flushes_left_out=flushes_left_out,
            references_offsets=asked.references_offsets,
            table_offsets=None if position is None else position.offsets,
            durations_s=durations,
        )

    @property
    def _audit(self) -> AuditSettings:
        return self._settings.pipeline.audit

    # What was announced.

    def _unreadable(self, announced: Announced) -> list[DataFrame]:
        """Return findings about unknown messages; in a full audit only, because nobody knows their window."""
        found = []
        for frame, kind, name in (
            (announced.no_flushes, Kind.FLUSH_WRONG, "flush record"),
            (announced.no_references, Kind.REFERENCE_WRONG, "message of references"),
            (announced.no_runs, Kind.BACKFILL_WRONG, "run record"),
        ):
            text = F.format_string(f"message %d/%d is no {name} that this code knows", *_MESSAGE_AT)
            if self._options.window.is_everything:
                found.append(frame.select(F.lit(kind).alias("kind"), text.alias("text")))
            elif count := frame.count():
                self._notes.append(f"{count} messages are no {name}s that this code knows")
        return found

    def _judge_flushes(
        self,
        flushes: DataFrame,
        announced: Announced,
        source: DataFrame,
        reach: DataFrame,
        ground: Ground,
        excused: list[str],
    ) -> DataFrame:
        return accounts.judge_flushes(
            flushes,
            announced,
            source,
            reach,
            windows={span.tp: (span.window_first, span.window_next) for span in ground.spans},
            excused=excused,
            short=ground.short,
        )

    def _unread_references(self, announced: Announced, chosen: DataFrame, reach: DataFrame) -> list[DataFrame]:
        """Return findings about references that were not read; in a full audit only: a window leaves others out."""
        if not self._options.window.is_everything:
            return []
        return [accounts.unread_references(announced.references, chosen, announced.lines, reach)]

    # What cannot be told.

    def _doubt_uncommitted(self, ground: Ground) -> None:
        """Count records of the window that are not committed yet; a full audit only notes them, unless asked."""
        options = self._options
        now_ms = time.time_ns() // 1_000_000
        if options.window.until_ms is not None and options.window.until_ms > now_ms:
            self._doubts.append("the window ends in the future")
        if options.window.is_everything and not options.require_caught_up:
            self._notes += scope.beyond_notes(ground.spans)
            return
        beyond = {span.tp: (max(span.next, span.window_first), span.beyond) for span in ground.spans}
        messages = read_messages(self._spark, self._settings.worker.kafka, beyond)
        reach = sides.reach_of(self._spark, ground.spans, {})
        waiting = sides.of_window(messages, reach, options.window).groupBy("topic", "partition").count().collect()
        self._doubts += [
            f"{row['topic']}-{row['partition']}: {row['count']} records of the window are not committed yet"
            for row in sorted(waiting)
        ]

    def _doubt_unread(self, rows: DataFrame, dead: DataFrame, unread: DataFrame) -> None:
        refused = rows.where("unread").select("reference_id", "text").limit(_SHOWN + 1).collect()
        if refused:
            self._doubts.append(f"objects cannot be read: {'; '.join(row['text'] for row in refused[:_SHOWN])}")
            self._doubts.append(f"{unread.count()} entries may be in objects that cannot be read")
        letters = dead.where("unread").select("text").limit(_SHOWN).collect()
        if letters:
            self._doubts.append(f"objects cannot be read: {'; '.join(row['text'] for row in letters)}")

    # Sides that not every audit has.

    def _position(self, lineage: Lineage) -> Position:
        position = find_position(self._spark, self._settings)
        if position is None:
            raise TableError(f"there is no table {self._settings.pipeline.table.name}")
        require_group(self._spark, self._settings, lineage)
        self._doubts += doubt_columns(self._spark, self._settings, position)
        return position

    def _read_table(self, position: Position | None, ground: Ground, reach: DataFrame) -> DataFrame | None:
        if position is None:
            return None
        return sides.read_table(self._spark, self._settings, position, ground.spans, reach)

    def _list_objects(self, announced: Announced, ground: Ground, found: list[DataFrame]) -> DataFrame:
        """List the prefix; objects that nothing names are findings, or notes if the settings say so."""
        listed = self._kept.keep(sides.list_objects(self._spark, self._settings))
        before_ms = self._started_at_ms - round(self._audit.unreferenced_age_s * 1000)
        all_of_it = stored.sort_out(listed, announced, self._settings.worker.s3, before_ms=before_ms)
        found.append(stored.schema_findings(all_of_it.no_schemas))
        texts = {
            "are what backfills keep of their runs": all_of_it.outboxes,
            "are, or may be, of backfills that have not published all they will": all_of_it.awaited,
            "under the prefix are of nothing that is known here": all_of_it.foreign,
        }
        if not ground.has_all_names:
            texts["are named by nothing, but references or dead letters have lost their beginning"] = all_of_it.orphans
        elif self._audit.unreferenced == "finding":
            found.append(stored.orphan_findings(all_of_it.orphans))
        else:
            texts["are named by nothing committed"] = all_of_it.orphans
        counts = {text: frame.count() for text, frame in texts.items()}
        self._notes += [f"{count} objects {text}" for text, count in counts.items() if count]
        return all_of_it.old

    def _ids(self, compared: DataFrame, by_kind: dict[str, int]) -> Ids | None:
        if not self._settings.worker.id.paths:
            return None
        ids = collect.collect_ids(compared)
        if ids.repeated_in_source:
            self._notes.append(f"{ids.repeated_in_source} unique ids are more than once in the source itself")
        is_explained = any(not kind.startswith(_NOT_OF_ENTRIES) for kind in by_kind)
        if ids.missing + ids.surplus and not is_explained:
            by_kind[Kind.ID_MISMATCH] = ids.missing + ids.surplus
        return ids

    # Results.

    def _write_verdicts(
        self, hours: DataFrame, references_offsets: dict[int, int], position: Position | None, lineage: Lineage
    ) -> None:
        write_verdicts(
            self._spark,
            hours,
            name=self._audit.verdicts_table,
            kafka=self._settings.worker.kafka,
            references_offsets=references_offsets,
            position=position,
            started_at_ms=self._started_at_ms,
            window=self._options.window,
            run_id=self._run_id,
            groups=lineage.groups,
        )

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


def _starts(source: DataFrame, ground: Ground) -> dict[TopicPartition, int]:
    """Return the first record of each TopicPartition whose flush records must begin with it."""
    firsts = source.groupBy(*_TP).agg(F.min("offset").alias("first")).collect()
    found = {TopicPartition(row["topic"], row["partition"]): row["first"] for row in firsts}
    return {tp: found[tp] for tp in ground.from_the_start if tp in found}


def _totals(source: DataFrame) -> dict[TopicPartition, tuple[int, int]]:
    """Count records and entries by TopicPartition."""
    rows = source.groupBy(*_TP).agg(
        F.count(F.when(F.col("index") <= 0, 1)).alias("records"),
        F.count(F.when(F.col("index") >= 0, 1)).alias("entries"),
    )
    return {TopicPartition(row["topic"], row["partition"]): (row["records"], row["entries"]) for row in rows.collect()}
