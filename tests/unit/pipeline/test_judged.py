"""Flush records as Spark hands them over: those that lack something are a finding, and end no audit."""

from functools import partial
from typing import Any

import msgspec
import pyarrow as pa

from log_partitioner.formats.findings import Kind
from log_partitioner.formats.model import TopicPartition
from log_partitioner_pipeline.audit.judged import judge_coverage, judge_flushes
from tests.unit.test_accounting import ONE, TOTALS, line

FOUND = pa.schema([("kind", pa.string()), ("count", pa.int64()), ("text", pa.string())])


def found(**changed: Any) -> list[tuple[str, int]]:
    """Judge a flush record that is true but for what is changed."""
    numbers = {"records": 8, "entries": 8, "min_offset": 1, "max_offset": 9, "timestamp_max_ms": 5}
    place = {"topic": "logs", "partition": 0}
    row = {
        "batch_id": "b",
        "worker": "w",
        "group_id": "g",
        "wrong_parts": None,
        "is_counted": True,
        "totals": msgspec.structs.asdict(TOTALS),
        "topic_partitions": [msgspec.structs.asdict(line())],
        "c_references": 3,
        "c_letters": 1,
        "filed": [place | {"n": 6}],
        "rejected": [place | {"n": 2}],
        "counted": [place | {"first_offset": 0} | numbers],
    }
    batch = pa.RecordBatch.from_pylist([row | changed])
    judge = partial(judge_flushes, windows={ONE: (5, 20)}, schema=FOUND)
    return [(one["kind"], one["count"]) for out in judge([batch], excused=["x"]) for one in out.to_pylist()]


def test_true_flush_record() -> None:
    assert found() == []


def test_what_its_parts_say() -> None:
    """Each part of a row comes to where it is compared."""
    assert found(wrong_parts="parts 1 of 2", filed=None) == [(Kind.FLUSH_WRONG, 1)]  # and nothing that follows
    assert found(counted=[]) == []  # not read as a whole
    assert found(filed=None) == [(Kind.FLUSH_WRONG, 1)]
    assert found(rejected=None) == [(Kind.FLUSH_WRONG, 1)]
    assert found(filed=None, is_counted=False) == []
    assert found(c_references=1) == [(Kind.REFERENCE_MISSING, 2)]
    assert found(c_references=1, batch_id="x") == []


def test_record_that_lacks_something() -> None:
    """Null is what Spark reads where a field is not there."""
    assert found(totals={"records": 8}) == [(Kind.FLUSH_WRONG, 1)]
    assert found(topic_partitions=[{"topic": "logs", "partition": None}]) == [(Kind.FLUSH_WRONG, 1)]
    assert found(topic_partitions=[msgspec.structs.asdict(line()), None]) == [(Kind.FLUSH_WRONG, 1)]


def test_what_is_not_of_the_window_is_not_told() -> None:
    tp = TopicPartition("logs", 1)
    lines = [msgspec.structs.asdict(line(tp))]
    place = {"topic": "logs", "partition": 1}
    assert found(topic_partitions=lines, filed=None, rejected=[place | {"n": 2}]) == []


def test_coverage_of_several_topic_partitions() -> None:
    """Across batches of rows: a gap, what lies behind the committed offsets, one without any line."""
    span = {"window_first": 0, "window_next": 1000, "start": 0, "committed": 30, "committed_again": 30}
    rows = [
        {"topic": "logs", "partition": number, **span, "first_offset": first, "next_offset": after, "batch_id": "b"}
        for number, lines in enumerate([[(0, 10), (20, 30)], [(0, 30), (30, 40), (40, 50)], [(None, None)]])
        for first, after in lines
    ]
    batches = [pa.RecordBatch.from_pylist([row | {"worker": "w"}]) for row in rows]
    schema = pa.schema([("kind", pa.string()), ("partition", pa.int64()), ("text", pa.string())])
    told = [tuple(one.values()) for out in judge_coverage(batches, schema=schema) for one in out.to_pylist()]
    assert told == [
        (Kind.FLUSH_GAP, 0, "no flush record covers [10, 20)"),
        (Kind.FLUSH_WRONG, 1, "flush records cover [30, 50), which the group has not committed"),
        (Kind.FLUSH_GAP, 2, "no flush record covers [0, 30)"),
    ]
