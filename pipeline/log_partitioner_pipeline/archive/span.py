"""Offsets of the source that a window reads, and which of its records are of the window.

Brokers know the first record as late as a moment. All of the window stands before the first record that is later than
its end by the padding: that is what the padding says. A record that does not keep to it makes a doubt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F
from pyspark.sql import types as T

from log_partitioner.formats.model import TopicPartition
from log_partitioner_pipeline.audit.result import Coverage
from log_partitioner_pipeline.frames import struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import Column, DataFrame

    from log_partitioner.adapters.kafka.topics import Ends, KafkaTopics
    from log_partitioner_pipeline.audit.result import Window

_OFFSETS_BEHIND = 1000
_TP = ["topic", "partition"]
_WINDOW = struct(topic=T.StringType(), partition=T.IntegerType(), window_first=T.LongType(), window_next=T.LongType())


class SourceSpan(NamedTuple):
    """The offsets of one TopicPartition that belong to a window.

    [first, next) is the window with its padding; [window_first, window_next) begins at the first record of the window
    and ends behind its last one, or further on.
    """

    tp: TopicPartition
    ends: Ends
    first: int
    next: int
    window_first: int
    window_next: int

    @property
    def to_read(self) -> tuple[int, int]:
        """[first, next) offsets to read: some are behind the padding, to see that nothing of the window is there."""
        return self.first, min(self.next + _OFFSETS_BEHIND, self.ends.next)


def find_spans(topics: KafkaTopics, tps: Iterable[TopicPartition], window: Window) -> list[SourceSpan]:
    """Ask brokers for the offsets of a window; blocks for seconds.

    Raises:
        CouldNotTellError: no broker answers.
    """
    tps = list(tps)
    ends = {tp: topics.ends(tp) for tp in tps}
    padding_ms = round(window.padding_s * 1000)

    def offsets_at(moment_ms: int) -> dict[TopicPartition, int]:
        found = topics.offsets_at(tps, max(0, moment_ms))
        return {tp: _clamp(offset, ends[tp]) for tp, offset in found.items()}

    first = window_first = {tp: one.first for tp, one in ends.items()}
    end = window_end = {tp: one.next for tp, one in ends.items()}
    if window.from_ms is not None:
        first, window_first = offsets_at(window.from_ms - padding_ms), offsets_at(window.from_ms)
    if window.until_ms is not None:
        window_end, end = offsets_at(window.until_ms), offsets_at(window.until_ms + padding_ms)
    return [SourceSpan(tp, ends[tp], first[tp], end[tp], window_first[tp], window_end[tp]) for tp in tps]


def _clamp(offset: int | None, ends: Ends) -> int:
    """Return an offset that is there; None means that no record is so late."""
    return ends.next if offset is None else min(max(offset, ends.first), ends.next)


def find_last(source: DataFrame, window: Window) -> dict[TopicPartition, int]:
    """Find the last record of each TopicPartition whose timestamp is in the window."""
    rows = source.where(_is_in(window)).groupBy(*_TP).agg(F.max("offset")).collect()
    return {TopicPartition(topic, number): last for topic, number, last in rows}


def reach_last(spans: Iterable[SourceSpan], last: Mapping[TopicPartition, int]) -> tuple[list[SourceSpan], list[str]]:
    """Extend each window to behind its `last` record, which one with its clock ahead hides from brokers.

    Also returns a doubt about each TopicPartition with a record of the window behind its padding.
    """
    reached, doubts = [], []
    for one in spans:
        behind = last.get(one.tp, -1) + 1
        reached.append(one._replace(window_next=max(one.window_next, behind), next=max(one.next, behind)))
        if behind > one.next:
            doubts.append(
                f"{one.tp}: offset {behind - 1} is of the window, and stands behind offset {one.next}, which is later "
                "than the window's end by more than the padding: give a longer --padding"
            )
    return reached, doubts


def mark_window(source: DataFrame, spans: Iterable[SourceSpan], window: Window) -> DataFrame:
    """Return the rows with a column `in_window`: by their record's timestamp, without one by their offset."""
    rows = [(*one.tp, one.window_first, one.window_next) for one in spans]
    of_tp = F.broadcast(source.sparkSession.createDataFrame(rows, _WINDOW))
    by_offset = (F.col("offset") >= F.col("window_first")) & (F.col("offset") < F.col("window_next"))
    in_window = F.when(F.col("timestamp_ms").isNotNull(), _is_in(window)).otherwise(by_offset)
    marked = source.join(of_tp, on=_TP, how="inner").withColumn("in_window", in_window)
    return marked.drop("window_first", "window_next")


def _is_in(window: Window) -> Column:
    at = F.col("timestamp_ms")
    is_in = at.isNotNull()
    if window.from_ms is not None:
        is_in = is_in & (at >= window.from_ms)
    return is_in if window.until_ms is None else is_in & (at < window.until_ms)


def coverage_of(span: SourceSpan, *, records: int, entries: int) -> Coverage:
    """Return a span in the form of the result; records and entries are those in the window."""
    return Coverage(
        topic=span.tp.topic,
        partition=span.tp.partition,
        retained_offset=span.ends.first,
        end_offset=span.ends.next,
        committed_offset=None,
        first_offset=span.first,
        next_offset=span.next,
        window_first_offset=span.window_first,
        window_next_offset=span.window_next,
        records=records,
        entries=entries,
    )
