"""Flush records side by side: each offset has one batch that answers for it, or stands in a gap."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from log_partitioner.formats.flush_record import FlushRecord
from log_partitioner.proof.audit import ranges
from log_partitioner.proof.audit.ranges import OffsetSpan, Ranges, hull
from tests.unit.proof.audit.world import APP_0, APP_1, World


def flushes_of(lines: list[tuple[int, int]]) -> list[FlushRecord]:
    """Give flush records of one range each, by first offset and length."""
    ranges = {f"b{number}": {APP_0: (first, first + length)} for number, (first, length) in enumerate(lines)}
    return World([], [], [], ranges, {}, {}).build().flush_records


@given(
    lines=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8)), max_size=5),
    start=st.none() | st.integers(0, 20),
    committed=st.integers(0, 25),
)
def test_each_offset_up_to_the_committed_one_is_owned_once(
    lines: list[tuple[int, int]], start: int | None, committed: int
) -> None:
    """By a batch whose record covers it, or by none if no record does; from the first that is covered, or the start."""
    spans = Ranges(flushes_of(lines), {APP_0: committed}).owned({} if start is None else {APP_0: start})
    owners = [(offset, owner) for owner, span in spans for offset in range(span.first, span.next)]
    begins = [first for first, length in lines if length] + ([] if start is None else [start])
    covering = {
        offset: {f"b{number}" for number, (first, length) in enumerate(lines) if first <= offset < first + length}
        for offset, _ in owners
    }
    assert sorted(offset for offset, _ in owners) == list(range(min(begins, default=committed), committed))
    assert all(owner in covering[offset] if covering[offset] else owner is None for offset, owner in owners)


def test_long_gap_comes_in_pieces() -> None:
    """Nobody knows how many entries there are in it."""
    size = ranges.GAP_OFFSETS_MAX
    spans = Ranges([], {APP_0: 2 * size + 5, APP_1: None}).owned({APP_0: 3})
    assert spans == [
        (None, OffsetSpan(APP_0, 3, size + 3)),
        (None, OffsetSpan(APP_0, size + 3, 2 * size + 3)),
        (None, OffsetSpan(APP_0, 2 * size + 3, 2 * size + 5)),
    ]


def test_hull_of_spans_is_within_what_there_is() -> None:
    """One range of each TopicPartition, cut to that of others."""
    spans = [OffsetSpan(APP_0, 5, 9), OffsetSpan(APP_0, 2, 4), OffsetSpan(APP_1, 1, 2)]
    assert hull(spans) == {APP_0: (2, 9), APP_1: (1, 2)}
    assert hull(spans, within={APP_0: (3, 7)}) == {APP_0: (3, 7)}
