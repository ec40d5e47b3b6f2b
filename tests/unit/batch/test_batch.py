"""A closed batch and the ledgers of its TopicPartitions by literal cases; the laws are in tests/property."""

import pytest

from log_partitioner.batch.batch import Batch, ClosedBatch, Opening
from log_partitioner.batch.ledger import Ledger, Ledgers
from log_partitioner.boundary import Membership
from log_partitioner.control.flush_policy import Size
from log_partitioner.formats.dead_letter import DeadLetter, Reason
from log_partitioner.formats.model import CommittedOffset, SourceRecord, TopicPartition
from tests.fakes.spool import FakeSpool
from tests.strategies import empty_rows

A, B = TopicPartition("app", 0), TopicPartition("app", 1)
OPENING = Opening("b1", 3, Membership(1, "member", None), 10.0, 10_000)


def opened() -> Batch:
    """Open a batch."""
    return Batch(OPENING, FakeSpool().open("b1"), empty_rows())


def closed(ledgers: Ledgers) -> ClosedBatch:
    """Close a batch that has covered what the ledgers say."""
    return opened().close(ledgers.by_tp)


def test_topic_partition_without_records_is_idle_since_its_first_empty_flush() -> None:
    """Idleness begins with the first commit without records and ends with the next record."""
    ledgers = Ledgers()
    ledgers.start(A, CommittedOffset(0))
    ledgers.start(B, CommittedOffset(0))
    ledgers.by_tp[A].cover(0, timestamp_ms=9)
    ledgers.committed(ledgers.by_tp, now_ms=1_000)
    assert (ledgers.by_tp[A].idle_since_ms, ledgers.by_tp[B].idle_since_ms) == (None, 1_000)
    ledgers.committed(ledgers.by_tp, now_ms=2_000)
    assert (ledgers.by_tp[A].idle_since_ms, ledgers.by_tp[B].idle_since_ms) == (2_000, 1_000)
    ledgers.by_tp[B].cover(0, timestamp_ms=None)
    assert ledgers.by_tp[B].idle_since_ms is None


def test_tracker_refuses_what_would_lose_its_place() -> None:
    """W1: moving the position with a batch open, a range that goes backwards."""
    ledgers = Ledgers()
    ledgers.start(A, CommittedOffset(0))
    ledgers.by_tp[A].cover(0, timestamp_ms=None)
    with pytest.raises(AssertionError, match="batch open"):
        ledgers.start(A, CommittedOffset(0))
    with pytest.raises(AssertionError, match="W1"):
        Ledger(5, 4).check(A, in_files=0, dead=0)


def test_committed_offset_carries_the_leader_epoch_of_the_last_record() -> None:
    """The broker checks it against the log; unknown stays unknown, and metadata is the committer's matter."""
    ledgers = Ledgers()
    ledgers.start(A, CommittedOffset(0, leader_epoch=4, metadata="old"))
    ledgers.start(B, CommittedOffset(0, leader_epoch=4))
    assert ledgers.by_tp[A].leader_epoch == 4
    for leader_epoch in (5, 6):
        ledgers.by_tp[A].cover(ledgers.by_tp[A].next_offset, timestamp_ms=None, leader_epoch=leader_epoch)
    ledgers.by_tp[B].cover(0, timestamp_ms=None)
    assert closed(ledgers).next_offsets() == {A: CommittedOffset(2, 6, ""), B: CommittedOffset(1, None, "")}


def test_closed_batch_is_a_value_that_later_records_do_not_change() -> None:
    """Records after the close belong to the next batch; the commit takes the closed one."""
    ledgers = Ledgers()
    ledgers.start(B, CommittedOffset(7))
    ledgers.start(A, CommittedOffset(5))
    ledgers.by_tp[A].cover(5, timestamp_ms=9)
    batch = opened()
    record = SourceRecord(A, 5, 9, None, b"x", ())
    batch.dead_letters.append(DeadLetter(record, Reason.MALFORMED, "", None))
    batch.source_bytes, batch.entries = 12, 1
    value = batch.close(ledgers.by_tp)
    ledgers.by_tp[A].cover(6, timestamp_ms=None)
    batch.dead_letters.clear()
    assert (value.batch_id, value.opening, value.records, value.size) == ("b1", OPENING, 1, Size(12, 1))
    assert value.spans == {A: (5, 6), B: (7, 7)}
    assert list(value.ledgers) == [A, B]
    assert value.next_offsets() == {A: CommittedOffset(6)}
    assert [letter.record for letter in value.dead_letters] == [record]
    assert (value.rows, value.spool) == (batch.rows, batch.spool)


def test_check_of_a_closed_batch_looks_at_every_topic_partition() -> None:
    """W3: an entry that is nowhere stops the flush."""
    ledgers = Ledgers()
    ledgers.start(A, CommittedOffset(0))
    ledgers.start(B, CommittedOffset(0))
    closed(ledgers).check({})
    ledgers.by_tp[B].entries = 1
    closed(ledgers).check({B: 1})
    for in_files in ({}, {A: 1}, {A: 1, B: 1}, {B: 2}, {B: 1, TopicPartition("other", 0): 1}):
        with pytest.raises(AssertionError, match="W3"):
            closed(ledgers).check(in_files)


def test_check_of_a_closed_batch_counts_what_its_dead_letters_name() -> None:
    """W3: a dead letter that got lost stops the flush, though the ledger knows of its entries."""
    ledgers = Ledgers()
    ledgers.start(A, CommittedOffset(0))
    ledgers.by_tp[A].entries, ledgers.by_tp[A].dead_letters = 3, 2
    batch = opened()
    batch.dead_letters.append(DeadLetter(SourceRecord(A, 5, 9, None, b"x", ()), Reason.NO_USER, "", (1, 2)))
    batch.close(ledgers.by_tp).check({A: 1})
    batch.dead_letters.clear()
    with pytest.raises(AssertionError, match="W3: app-0: 0 entries in dead letters, 2 should be"):
        batch.close(ledgers.by_tp).check({A: 1})
