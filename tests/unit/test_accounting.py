"""The sums that must add up: each fault is said once, in its place; the same rules serve both audits."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from log_partitioner.formats.findings import Kind
from log_partitioner.formats.flush_record import (
    BackfilledTopicPartition,
    BackfillRecord,
    BackfillTotals,
    FlushedTopicPartition,
    FlushTotals,
)
from log_partitioner.formats.model import TopicPartition
from log_partitioner.formats.reference import SourceRange
from log_partitioner.proof.accounting import (
    Counted,
    Sums,
    Wrong,
    judge_joins,
    judge_line,
    judge_published,
    judge_range,
    judge_run,
    judge_totals,
    judge_uncommitted,
)

ONE, OTHER = TopicPartition("logs", 0), TopicPartition("logs", 1)
COMMITTED = {ONE: 10, OTHER: 8}


def summed(
    references: int, messages: int, letters: int, files: dict[TopicPartition, int], dead: dict[TopicPartition, int]
) -> Sums:
    """Give sums."""
    sums = Sums(references=references, reference_messages=messages, dead_letter_records=letters)
    sums.in_files.update(files)
    sums.dead_letters.update(dead)
    return sums


# Run records of backfills.


def run_line(tp: TopicPartition, first: int, after: int, files: int, dead: int) -> BackfilledTopicPartition:
    """Give a line of a run record."""
    return BackfilledTopicPartition(
        topic=tp.topic,
        partition=tp.partition,
        first_offset=first,
        next_offset=after,
        entries_in_files=files,
        dead_letters=dead,
    )


RUN = BackfillRecord(
    batch_id="backfill-1",
    group_id="group",
    worker="backfill",
    generation=0,
    started_at_ms=1,
    committed_at_ms=2,
    outbox="",
    published=5,
    messages=5,
    topic_partitions=(run_line(ONE, 0, 10, 5, 4), run_line(OTHER, 3, 8, 2, 0)),
    totals=BackfillTotals(references=30, entries_in_files=7, dead_letters=4, dead_letter_records=2, bytes=1),
)


def run_sums(references: int = 30, messages: int = 3, *, one: int = 5, other: int = 2, dead: int = 4) -> Sums:
    """Add up what the record says, with other numbers of entries if some are given."""
    return summed(references, messages, 2, {ONE: one, OTHER: other}, {ONE: dead})


def of_run(record: BackfillRecord = RUN, counted: Sums | None = None) -> list[Wrong]:
    """Judge a run."""
    return list(judge_run(record, counted or run_sums(), COMMITTED))


def test_true_run_record() -> None:
    """Nothing is wrong, for a run that goes on either."""
    assert of_run() == []
    assert of_run(replace(RUN, messages=9)) == []


def test_missing_references_of_a_run_are_said_and_not_what_follows() -> None:
    """Two messages are gone with twenty references and five entries: the number of references, no sums."""
    assert of_run(counted=run_sums(10, 1, one=0)) == [
        Wrong(Kind.REFERENCE_MISSING, "its run record says 30 references, there are 10", number=20)
    ]


def test_surplus_references_of_a_run() -> None:
    """One too many, with two entries: the number, the sums, the line."""
    found = of_run(counted=run_sums(31, 4, other=4))
    assert [one.kind for one in found] == [Kind.REFERENCE_WRONG, Kind.BACKFILL_WRONG, Kind.BACKFILL_WRONG]
    assert found[1].text == "7 entries in files, counted 9; 5 messages, counted 6"
    assert found[2] == Wrong(
        Kind.BACKFILL_WRONG, "its run record says 2 entries in files and 0 dead, counted 4 and 0", OTHER, 3
    )


def test_dead_letters_of_a_run() -> None:
    """Entries and messages are counted apart."""
    (totals,) = of_run(replace(RUN, totals=replace(RUN.totals, dead_letter_records=3), published=6))
    assert totals.text == "3 messages with dead letters, counted 2; 6 messages, counted 5"
    totals, line = of_run(counted=run_sums(dead=3))
    assert totals.text == "4 dead letters, counted 3"
    assert line.tp == ONE


def test_topic_partition_that_a_run_does_not_name() -> None:
    """Data of it is wrong, though totals agree."""
    record = replace(RUN, topic_partitions=RUN.topic_partitions[:1])
    assert of_run(record) == [Wrong(Kind.BACKFILL_WRONG, "its run record says nothing of this TopicPartition", OTHER)]


def test_range_of_a_run_that_is_not_committed() -> None:
    """A backfill takes only offsets that the group has committed; other TopicPartitions are not judged."""
    lines = (RUN.topic_partitions[0], run_line(OTHER, 3, 9, 2, 0), run_line(TopicPartition("else", 0), 0, 99, 0, 0))
    assert of_run(replace(RUN, topic_partitions=lines)) == [
        Wrong(Kind.BACKFILL_WRONG, "[3, 9) is not below the committed offset 8", OTHER, 3)
    ]


# Flush records.


def line(tp: TopicPartition = ONE, **numbers: Any) -> FlushedTopicPartition:
    """Give a line of ten offsets: eight records, two of them in dead letters."""
    own = {
        "first_offset": 0,
        "next_offset": 10,
        "min_offset": 1,
        "max_offset": 9,
        "timestamp_max_ms": 5,
        "idle_since_ms": None,
        "records": 8,
        "entries": 8,
        "dead_letters": 2,
    }
    return FlushedTopicPartition(topic=tp.topic, partition=tp.partition, **(own | numbers))


TOTALS = FlushTotals(
    records=8,
    entries=8,
    entries_in_files=6,
    dead_letters=2,
    dead_letter_records=1,
    references=3,
    bytes=1,
)


def test_flush_record_against_itself() -> None:
    """Its totals are the sums of its lines, and every entry is in a file or in a dead letter."""
    assert list(judge_totals(TOTALS, [line()])) == []
    (wrong,) = judge_totals(TOTALS, [line(), line(OTHER, records=0, entries=1, dead_letters=0)])
    assert wrong == Wrong(Kind.FLUSH_WRONG, "total of entries is 8, its lines say 9")
    (wrong,) = judge_totals(replace(TOTALS, entries_in_files=5), [line()])
    assert wrong.text == "8 entries, accounted for are 7"


def test_flush_record_against_the_source() -> None:
    """All differences of a line are one finding; a line without records has no newest one."""
    assert list(judge_line(line(), Counted(8, 8, 1, 9, 5))) == []
    (wrong,) = judge_line(line(), Counted(9, 8, 0, 9, 6))
    text = "[0, 10): records is 8, counted 9; min_offset is 1, counted 0; timestamp_max_ms is 5, counted 6"
    assert wrong == Wrong(Kind.FLUSH_WRONG, text, ONE, 0, 10)
    nothing = line(records=0, entries=0, dead_letters=0, min_offset=None, max_offset=None)
    assert list(judge_line(nothing, Counted(0, 0, None, None, None))) == []
    (wrong,) = judge_line(line(records=1, entries=1), Counted(0, 0, None, None, None))
    assert "min_offset is 1, counted none" in wrong.text


@pytest.mark.parametrize(
    ("sums", "good", "expected"),
    [
        (summed(3, 1, 1, {ONE: 6}, {ONE: 2}), None, []),
        (summed(2, 1, 1, {ONE: 5}, {ONE: 2}), None, [(Kind.REFERENCE_MISSING, 1)]),
        (summed(0, 0, 1, {}, {ONE: 2}), None, [(Kind.REFERENCE_MISSING, 3)]),
        (summed(4, 1, 1, {ONE: 7}, {ONE: 2}), None, [(Kind.REFERENCE_WRONG, 1)]),
        (summed(3, 1, 1, {ONE: 5}, {ONE: 2}), None, [(Kind.FLUSH_WRONG, 1)]),
        (summed(3, 1, 1, {ONE: 6}, {ONE: 1}), None, [(Kind.FLUSH_WRONG, 1)]),
        (summed(3, 1, 0, {ONE: 6}, {}), None, []),  # the entries are missing, which is said
        (summed(3, 1, 2, {ONE: 6}, {ONE: 2}), None, [(Kind.FLUSH_WRONG, 1)]),
        (summed(3, 1, 1, {ONE: 6}, {ONE: 1, OTHER: 1}), None, [(Kind.FLUSH_WRONG, 1)] * 2),
        (summed(2, 1, 1, {ONE: 5}, {ONE: 2}), summed(9, 9, 0, {ONE: 1}, {}), []),
        (summed(2, 1, 1, {ONE: 4}, {ONE: 2}), summed(9, 9, 0, {ONE: 1}, {}), [(Kind.FLUSH_WRONG, 1)]),
        (summed(3, 1, 1, {ONE: 6}, {ONE: 2}), summed(9, 9, 0, {ONE: 1}, {}), [(Kind.FLUSH_WRONG, 1)]),
        (summed(3, 1, 0, {ONE: 6}, {}), summed(9, 0, 9, {}, {ONE: 2}), []),
        (summed(3, 1, 0, {ONE: 6}, {}), summed(9, 0, 9, {}, {ONE: 1}), [(Kind.FLUSH_WRONG, 1)]),
    ],
)
def test_flush_record_against_what_was_published(
    sums: Sums, good: Sums | None, expected: list[tuple[Kind, int]]
) -> None:
    """Missing output is said once; backfills must make good exactly the entries that are lacking."""
    assert [(one.kind, one.number) for one in judge_published(TOTALS, [line()], sums, good)] == expected


class Span(NamedTuple):
    """A range."""

    first_offset: int
    next_offset: int


@given(
    spans=st.lists(st.tuples(st.integers(0, 20), st.integers(1, 8)), max_size=6),
    start=st.none() | st.integers(0, 12),
    committed=st.integers(0, 25),
)
def test_lines_join_exactly_where_nothing_is_found(
    spans: list[tuple[int, int]], start: int | None, committed: int
) -> None:
    """Every offset from the start to the committed one is covered once, and each offset found is covered otherwise."""
    lines = sorted(Span(first, first + length) for first, length in spans)
    near = [one for one in lines if one.first_offset < committed]
    begin = min([one.first_offset for one in near[:1]] + ([start] if start is not None else []), default=committed)
    covered = [sum(one.first_offset <= offset < one.next_offset for one in near) for offset in range(60)]
    found = [wrong for wrong, _ in judge_joins(ONE, lines, start=start, committed=committed)]
    gaps = {n for one in found if one.kind is Kind.FLUSH_GAP for n in range(one.offset or 0, one.end or 0)}
    overlaps = {n for one in found if one.kind is Kind.FLUSH_OVERLAP for n in range(one.offset or 0, one.end or 0)}
    assert gaps == {offset for offset in range(begin, committed) if not covered[offset]}
    assert overlaps == {offset for offset in range(60) if covered[offset] > 1}


def test_line_that_runs_backwards() -> None:
    """It covers nothing, and those around it may join."""
    lines = [Span(0, 10), Span(10, 5), Span(10, 20)]
    (wrong,) = [wrong for wrong, _ in judge_joins(ONE, lines, start=0, committed=20)]
    assert (wrong.kind, wrong.text) == (Kind.FLUSH_WRONG, "[10, 5) runs backwards")


def test_dead_letters_that_are_missing_are_said_where_the_source_is_gone() -> None:
    """No other check would."""
    sums = summed(3, 1, 0, {ONE: 6}, {})
    assert list(judge_published(TOTALS, [line()], sums)) == []
    (wrong,) = judge_published(TOTALS, [line()], sums, has_source=False)
    assert wrong.text == "[0, 10): 2 entries dead, its dead letters say 0"


def test_what_is_covered_and_not_committed() -> None:
    """All of it is one finding of the TopicPartition; without a committed offset it is everything."""
    lines = [Span(0, 5), Span(5, 9), Span(9, 12)]
    assert list(judge_uncommitted(ONE, lines, committed=12)) == []
    ((wrong, first),) = judge_uncommitted(ONE, lines, committed=7)
    assert (wrong.offset, wrong.end, first) == (7, 12, lines[1])
    ((wrong, first),) = judge_uncommitted(ONE, lines, committed=None)
    assert (wrong.offset, wrong.end, first) == (0, 12, lines[0])


def test_source_range_of_a_reference() -> None:
    """It is that of its record, and its offsets are within it."""
    source = SourceRange("logs", 0, 0, 10, 2, 9, 5)
    assert list(judge_range(source, (0, 10), record="flush record")) == []
    assert list(judge_range(source, None, record="run record")) == ["a range of which its run record says nothing"]
    wrong = list(judge_range(replace(source, max_offset=10), (0, 11), record="flush record"))
    assert wrong == ["range [0, 10), its flush record says [0, 11)", "offsets 2 to 10 are not in [0, 10)"]
