"""Flush records side by side: each offset has one batch that answers for it, stands in a gap, or is not committed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from log_partitioner.formats.flush_record import FlushRecord
from log_partitioner.formats.model import TopicPartition
from log_partitioner.proof.accounting import ExitCode
from log_partitioner.proof.audit import ranges
from log_partitioner.proof.audit.ranges import OffsetSpan, Ranges, Reached, hull, notes_of
from tests.unit.proof.audit.world import APP_0, APP_1, World, clean_world, record

TP = TopicPartition("logs", 0)


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
    """Its number of entries is not known."""
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


# A full audit's words for offsets that are not committed: both audits have the same, whatever the exit code.


def test_a_partition_that_nobody_consumes_is_named() -> None:
    """Its entries are in no file, and the audited rest is clean."""
    assert notes_of([Reached(TP, 10, 1510, None)]) == [
        "logs-0: nothing was ever committed, so none of its 1,500 offsets is audited"
    ]
    assert notes_of([Reached(TP, 7, 7, None)]) == [
        "logs-0: nothing was ever committed, so none of its 0 offsets is audited"
    ], "its records are gone already"
    assert notes_of([Reached(TP, 0, 0, None)]) == []


def test_offsets_behind_the_committed_one_are_counted() -> None:
    """Only offsets that retention has left count; an end before the committed offset is a doubt of its own."""
    assert notes_of([Reached(TP, 0, 100, 90)]) == ["logs-0: 10 offsets are not committed yet, so they are not audited"]
    assert notes_of([Reached(TP, 95, 100, 90)]) == ["logs-0: 5 offsets are not committed yet, so they are not audited"]
    assert notes_of([Reached(TP, 0, 100, 100), Reached(TP, 0, 100, 120)]) == []


def test_of_many_those_with_most_are_named() -> None:
    """A result of a thousand TopicPartitions stays short enough to be read."""
    many = [Reached(TopicPartition("logs", at), 0, at, 0) for at in range(24)]
    notes = notes_of([*many, Reached(TopicPartition("logs", 99), 0, 1, None)])
    assert notes[0].startswith("logs-99: nothing was ever committed")
    assert notes[1] == "logs-23: 23 offsets are not committed yet, so they are not audited"
    assert len(notes) == 22
    assert notes[-1] == "3 more TopicPartitions: 6 offsets are not committed yet, so they are not audited"


def test_the_audit_by_command_says_it() -> None:
    """A note does not change the exit code; with --require-caught-up it is a doubt instead."""
    world = clean_world()
    world.source.append(record(APP_1, 2, {"user": "ann"}))
    world.ends[APP_1] = 3
    world.build()
    report = world.audit(caught_up=False)
    assert report.exit_code is ExitCode.CLEAN
    assert report.findings.notes == ["app-1: 1 offsets are not committed yet, so they are not audited"]
    assert world.audit(caught_up=True).findings.notes == []
