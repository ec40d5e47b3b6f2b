"""The worker's announcements, and the offsets for which it therefore answers.

Owns the rule for topics that have lost their beginning: batches are left out if a part of them is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from log_partitioner.formats.model import OffsetRanges, TopicPartition
from log_partitioner.proof.audit.whose import nothing_of
from log_partitioner_pipeline.audit.scope import Span, doubts_of, is_before_all, span_of
from log_partitioner_pipeline.topics import lines_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame

    from log_partitioner_pipeline.audit.scope import Asked
    from log_partitioner_pipeline.config import JobSettings

_TP = ["topic", "partition"]


class Announced(NamedTuple):
    """The worker's and backfills' messages as frames: `references` each id once, `repeated` those that come again.

    `runs` is the newest run record of each backfill. `no_flushes`, `no_references` and `no_runs` are messages that
    this code does not know; `elsewhere` are objects that messages of other histories name, if there are any.
    """

    flushes: DataFrame
    lines: DataFrame
    references: DataFrame
    repeated: DataFrame
    by_batch: DataFrame
    dead: DataFrame
    runs: DataFrame
    no_flushes: DataFrame
    no_references: DataFrame
    no_runs: DataFrame
    elsewhere: DataFrame | None = None


class Ground(NamedTuple):
    """The offsets that are audited, and doubts about them.

    Flush records of TopicPartitions `from_the_start` must begin with their first record. `short` are batches that have
    lost references or dead letters; None if all topics have their beginning.
    """

    spans: list[Span]
    from_the_start: list[TopicPartition]
    short: DataFrame | None
    doubts: list[str]

    @property
    def has_all_names(self) -> bool:
        """Whether everything that ever named an object is still there."""
        return self.short is None

    def complete(self, flushes: DataFrame) -> DataFrame:
        """Leave out flush records that have lost a part."""
        return flushes if self.short is None else flushes.join(self.short, on="batch_id", how="left_anti")


def find_ground(
    settings: JobSettings, asked: Asked, announced: Announced, *, is_full: bool, others: Iterable[str] = ()
) -> Ground:
    """Find the offsets that the worker answers for; reads flush records, and their counts if some are gone.

    `others` are groups that have flush records, too.
    """
    has_all_flushes = _has_beginning(asked.flushes)
    from_beginning = settings.worker.kafka.start_at == "beginning" and has_all_flushes
    firsts = _by_tp(_unbroken(announced, asked.flushes), F.min("first_offset"))
    short = None
    floors: dict[TopicPartition, int] = {}
    if not (_has_beginning(asked.references) and _has_beginning(asked.dead_letters)):
        short = _short_batches(announced).select("batch_id")
        floors = _by_tp(announced.lines.join(short, on="batch_id", how="left_semi"), F.max("next_offset"))
    spans, doubts = [], []
    for source in asked.sources:
        first = firsts.get(source.tp)
        covered_first = None if from_beginning else (source.committed if first is None else first)
        floor = floors.get(source.tp)
        span = span_of(source, covered_first=covered_first, floor=floor)
        spans.append(span)
        lacks = None if is_full or has_all_flushes else covered_first  # a full audit says it of the topic
        doubts += doubts_of(span, source, covered_first=first, floor=floor, lacks_flushes_below=lacks)
    if is_full and not has_all_flushes:
        doubts.append("the topic of flush records no longer has its beginning")
    is_unknown = not any(span.tp in firsts for span in spans) and all(span.is_empty for span in spans)
    if is_full and is_unknown and any(span.retained < span.end for span in spans):
        group = settings.worker.kafka.group_id
        doubts.append(nothing_of(group, others))
    if not is_full and not doubts and is_before_all(spans, asked.sources):
        doubts.append("nothing of the window is audited: no flush record covers any of it")
    starts = [span.tp for span in spans if from_beginning and span.first == span.retained and span.tp not in floors]
    return Ground(spans, starts, short, doubts)


def _has_beginning(ranges: OffsetRanges) -> bool:
    return all(first == 0 for first, _ in ranges.values())


def _unbroken(announced: Announced, ranges: OffsetRanges) -> DataFrame:
    """Return the lines from the time on since which no flush record is gone: each partition loses its own beginning."""
    cut = [tp.partition for tp, (first, end) in ranges.items() if 0 < first < end]
    if not cut:
        return announced.lines
    begins = (
        announced.flushes.where(F.col("message_partition").isin(cut))
        .groupBy("message_partition")
        .agg(F.min("ended_at_ms").alias("ended_at_ms"))
        .agg(F.max("ended_at_ms").alias("begins_ms"))
    )
    later = announced.flushes.join(F.broadcast(begins), on=F.col("ended_at_ms") >= F.col("begins_ms"), how="left_semi")
    return lines_of(later)


def _short_batches(announced: Announced) -> DataFrame:
    """Find batches with fewer references or dead letters than their flush record says."""
    letters = (
        announced.dead.where(F.col("batch_id").isNotNull())
        .groupBy("batch_id")
        .agg(F.countDistinct("topic", "partition", "offset", "reason", "first_index").alias("letters"))
    )
    return (
        announced.flushes.join(announced.by_batch, on="batch_id", how="left")
        .join(letters, on="batch_id", how="left")
        .where(
            (F.coalesce("references", F.lit(0)) < F.col("totals.references"))
            | (F.coalesce("letters", F.lit(0)) < F.col("totals.dead_letter_records"))
        )
    )


def _by_tp(lines: DataFrame, value: Column) -> dict[TopicPartition, int]:
    rows = lines.groupBy(*_TP).agg(value.alias("value")).collect()
    return {TopicPartition(row["topic"], row["partition"]): row["value"] for row in rows}
