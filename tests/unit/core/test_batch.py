"""Ledgers by literal cases: what a flush record says of a TopicPartition (DESIGN 3.6)."""

import pytest

from service.core.batch import Ledger, Ledgers
from service.core.model import TopicPartition

A, B = TopicPartition("app", 0), TopicPartition("app", 1)


def test_record_without_entries_is_covered_and_counted() -> None:
    """A batch is empty only when it covers no offset: a tombstone is covered, too."""
    ledgers = Ledgers()
    ledgers.own(A, 5)
    assert ledgers.is_empty
    ledgers.by_tp[A].cover(7, timestamp_ms=None)
    assert not ledgers.is_empty
    assert ledgers.next_offsets() == {A: 8}
    assert (ledgers.by_tp[A].first_offset, ledgers.by_tp[A].min_offset, ledgers.by_tp[A].max_offset) == (5, 7, 7)


def test_topic_partition_without_records_is_idle_since_its_first_empty_flush() -> None:
    """Idleness begins with the first commit without records and ends with the next record."""
    ledgers = Ledgers()
    ledgers.own(A, 0)
    ledgers.own(B, 0)
    ledgers.by_tp[A].cover(0, timestamp_ms=9)
    ledgers.committed(now_ms=1_000)
    assert (ledgers.by_tp[A].idle_since_ms, ledgers.by_tp[B].idle_since_ms) == (None, 1_000)
    ledgers.committed(now_ms=2_000)
    assert (ledgers.by_tp[A].idle_since_ms, ledgers.by_tp[B].idle_since_ms) == (2_000, 1_000)
    ledgers.by_tp[B].cover(0, timestamp_ms=None)
    assert ledgers.by_tp[B].idle_since_ms is None


def test_largest_timestamp_is_kept_when_later_records_are_older() -> None:
    """Timestamps of producers are in no order; the largest of the batch counts."""
    ledger = Ledger(0, 0)
    for offset, timestamp_ms in enumerate([5, None, 9, 7]):
        ledger.cover(offset, timestamp_ms=timestamp_ms)
    assert ledger.timestamp_max_ms == 9


def test_topic_partition_owned_twice_is_refused_and_unknown_one_disowned_in_silence() -> None:
    """Owning twice is a bug of ours; a revoke of what is not owned happens (confluent-kafka-python issue 1551)."""
    ledgers = Ledgers()
    ledgers.own(A, 0)
    with pytest.raises(AssertionError, match="owned already"):
        ledgers.own(A, 0)
    ledgers.disown(B)
    assert ledgers.by_tp.keys() == {A}


def test_rewind_with_a_batch_open_is_refused() -> None:
    """W1: what is covered must be committed or forgotten before the position moves."""
    ledgers = Ledgers()
    ledgers.own(A, 0)
    ledgers.by_tp[A].cover(0, timestamp_ms=None)
    with pytest.raises(AssertionError, match="batch open"):
        ledgers.rewind(A, 0)


def test_range_that_goes_backwards_is_noticed() -> None:
    """W1: next_offset is never below first_offset."""
    with pytest.raises(AssertionError, match="W1"):
        Ledger(5, 4).check(A)
