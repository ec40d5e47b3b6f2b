"""On the executors: flush records and counts of their batches -> findings (`log_partitioner.proof.accounting`)."""

from __future__ import annotations

from collections import deque
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from log_partitioner.formats.findings import Kind
from log_partitioner.formats.flush_record import FlushedTopicPartition, FlushTotals
from log_partitioner.formats.model import TopicPartition
from log_partitioner.proof.accounting import (
    Counted,
    Sums,
    Wrong,
    judge_joins,
    judge_line,
    judge_published,
    judge_totals,
    judge_uncommitted,
)
from log_partitioner_pipeline.audit.executors import batched

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import pyarrow as pa

    from log_partitioner_pipeline.audit.executors import Batches, Row

Windows = dict[TopicPartition, tuple[int, int]]
"""The audited offsets [first, next) by TopicPartition."""


_ROWS_AT_ONCE = 64


class LineOfFlush(NamedTuple):
    """The range of a TopicPartition in one flush record, with the record's batch and worker."""

    first_offset: int
    next_offset: int
    batch_id: str
    worker: str


def judge_flushes(
    batches: Batches, *, windows: Windows, excused: Collection[str], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Judge flush records, each against the sums of source and messages (`accounts.judge_flushes`).

    Missing references of `excused` batches are no finding, because there is a reason for them.
    """
    excused = frozenset(excused)
    rows = (found for row in _rows(batches) for found in _flush(row, windows, excused))
    yield from batched(rows, schema)


def _flush(row: Row, windows: Windows, excused: Collection[str]) -> Iterator[Row]:
    try:
        totals = msgspec.convert(row["totals"], FlushTotals)
        lines = [
            msgspec.convert(line and line | {"idle_since_ms": None}, FlushedTopicPartition)
            for line in row["topic_partitions"]
        ]
    except msgspec.ValidationError as error:
        yield finding(Wrong(Kind.FLUSH_WRONG, f"it lacks what a flush record has: {error}"), row)
        return
    for wrong in _wrongs(row, totals, lines):
        is_elsewhere = wrong.tp is not None and not _is_in(windows.get(wrong.tp), wrong.offset, wrong.end)
        is_excused = row["batch_id"] in excused and wrong.kind in (Kind.REFERENCE_MISSING, Kind.REFERENCE_WRONG)
        if not is_elsewhere and not is_excused:
            yield finding(wrong, row)


def _wrongs(row: Row, totals: FlushTotals, lines: list[FlushedTopicPartition]) -> Iterator[Wrong]:
    if row["wrong_parts"] is not None:  # and nothing else of what it adds up to
        yield Wrong(Kind.FLUSH_WRONG, row["wrong_parts"])
    else:
        yield from judge_totals(totals, lines)
    counted = {(one["topic"], one["partition"], one["first_offset"]): one for one in row["counted"] or ()}
    for line in lines:
        one = counted.get((line.topic, line.partition, line.first_offset))
        if one is not None:
            yield from judge_line(line, Counted(*(one[name] for name in Counted._fields)))
    if row["is_counted"] and row["wrong_parts"] is None:
        sums = Sums(references=row["c_references"], dead_letter_records=row["c_letters"])
        for name, by_tp in (("filed", sums.in_files), ("rejected", sums.dead_letters)):
            by_tp.update({TopicPartition(one["topic"], one["partition"]): one["n"] for one in row[name] or ()})
        yield from judge_published(totals, lines, sums)


def judge_coverage(batches: Batches, *, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Judge how lines join: the lines of each TopicPartition together, in offset order, with its span."""
    by_tp = groupby(_rows(batches), key=_tp)
    yield from batched((found for tp, some in by_tp for found in _covered(tp, some)), schema)


def _covered(tp: TopicPartition, rows: Iterator[Row]) -> Iterator[Row]:
    """Outline: lines pass by once; those that are not committed are kept."""
    span = next(rows)
    window, again = (span["window_first"], span["window_next"]), span["committed_again"]
    near: list[LineOfFlush] = []

    def passing() -> Iterator[LineOfFlush]:
        for row in chain([span], rows):
            if row["first_offset"] is None:
                return
            line = LineOfFlush(*(row[name] for name in LineOfFlush._fields))
            is_committed = again is not None and line.next_offset <= again
            if not is_committed and _is_in(window, max(line.first_offset, again or 0), line.next_offset):
                near.append(line)
            yield line

    lines = passing()
    for wrong, line in judge_joins(tp, lines, start=span["start"], committed=span["committed"] or 0):
        if _is_in(window, wrong.offset, wrong.end):
            yield finding(wrong, {} if line is None else line._asdict())
    deque(lines, maxlen=0)  # those behind the committed offset
    for wrong, line in judge_uncommitted(tp, near, committed=again):
        yield finding(wrong, line._asdict())


def _rows(batches: Batches) -> Iterator[Row]:
    """Yield rows, some at a time: one may have thousands of lines."""
    for batch in batches:
        for at in range(0, batch.num_rows, _ROWS_AT_ONCE):
            yield from batch.slice(at, _ROWS_AT_ONCE).to_pylist()


def _is_in(window: tuple[int, int] | None, begin: int | None, end: int | None) -> bool:
    return window is not None and (begin is None or begin < window[1]) and (end is None or end > window[0])


def _tp(row: Row) -> TopicPartition:
    return TopicPartition(row["topic"], row["partition"])


def finding(wrong: Wrong, of: Mapping[str, Any]) -> Row:
    """Return a fault as a row of `frames.FINDING`; `of` may have its batch id and worker."""
    topic, partition = wrong.tp or (None, None)
    return {
        "kind": wrong.kind.value,
        "count": wrong.number,
        "topic": topic,
        "partition": partition,
        "offset": wrong.offset,
        "batch_id": of.get("batch_id"),
        "worker": of.get("worker"),
        "text": wrong.text,
    }
