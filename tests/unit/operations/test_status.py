"""`status`: how group, committed offsets and flush records come together."""

from __future__ import annotations

import msgspec

from log_partitioner.adapters.kafka.admin import Group, Member
from log_partitioner.formats.flush_record import FlushRecord, decode_flush_record, encode_flush_record
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.operations.status import flushes_of, put_together
from tests.golden.example import GOLDEN

P0, P1, P2 = (TopicPartition("app", number) for number in range(3))
RECORD = decode_flush_record((GOLDEN / "flush_record.json").read_bytes())
NOW_MS = RECORD.ended_at_ms + 12_000


def flush(worker: str, partition: int, *, ended_s_ago: int, next_offset: int, up_to_s_ago: int | None) -> FlushRecord:
    """Make the flush record of one TopicPartition."""
    line = msgspec.structs.replace(
        RECORD.topic_partitions[0],
        partition=partition,
        next_offset=next_offset,
        timestamp_max_ms=None if up_to_s_ago is None else NOW_MS - 1000 * up_to_s_ago,
    )
    ended_at_ms = NOW_MS - 1000 * ended_s_ago
    return msgspec.structs.replace(RECORD, worker=worker, ended_at_ms=ended_at_ms, topic_partitions=(line,))


def test_status_of_a_group_says_lag_and_newest_flushes_in_its_first_line() -> None:
    """A worker that has left stays, as long as its flush is among the newest; the newest flush of each counts."""
    group = Group("STABLE", [Member("w1", "host", frozenset({P0, P1}))])
    flushes = [
        flush("w1", 0, ended_s_ago=12, next_offset=90, up_to_s_ago=None),
        flush("w0", 2, ended_s_ago=99, next_offset=50, up_to_s_ago=120),
        flush("w1", 0, ended_s_ago=42, next_offset=80, up_to_s_ago=45),
    ]

    found = put_together(group, {P2: 50, P0: 90, P1: None}, {P0: 1324, P1: 7, P2: 49}, flushes, at_ms=NOW_MS)

    assert found.summary == (
        "1 worker, 3 TopicPartitions, lag 1,234 records, last commit 12 s ago, 1 never committed (not in the lag), "
        "1 without a worker"
    )
    rows = [(one["worker"], one["host"], one["topic_partitions"], one["lag"]) for one in found.workers]
    assert rows == [("w0", None, 0, 0), ("w1", "host", 2, 1234)]
    assert [one["flushed_s_ago"] for one in found.workers] == [99, 12]
    rows = [(one["partition"], one["worker"], one["lag"], one["behind_s"]) for one in found.topic_partitions]
    assert rows == [(0, "w1", 1234, 45), (1, "w1", None, None), (2, None, 0, None)]


def test_status_of_a_group_in_a_rebalance_without_flushes_says_both() -> None:
    """Nothing is known of a worker but that it is there."""
    group = Group("PREPARING_REBALANCING", [Member("w1", "host", frozenset())])

    found = put_together(group, {P0: None}, {P0: None}, [], at_ms=NOW_MS)

    assert found.summary == (
        "1 worker, 1 TopicPartition, lag 0 records, no commit, 1 never committed (not in the lag), 1 without a worker, "
        "the group is in state PREPARING_REBALANCING"
    )
    assert set(found.workers[0].values()) == {"w1", "host", 0, None}


def test_flushes_of_a_group_are_without_others_and_what_cannot_be_read() -> None:
    """Adoptions and other groups stand in the same topic."""
    other = msgspec.structs.replace(RECORD, group_id="other")
    values = [encode_flush_record(RECORD), b"{", (GOLDEN / "adoption.json").read_bytes(), encode_flush_record(other)]
    messages = [SourceRecord(P0, at, None, None, value, ()) for at, value in enumerate(values)]

    assert list(flushes_of(RECORD.group_id, messages)) == [RECORD]
