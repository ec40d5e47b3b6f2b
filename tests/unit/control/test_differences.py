"""Each kind of difference between what was consumed and what a flush holds, and what is none."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from service.control.differences import EXAMPLES_MAX, Difference, FlushComparison, FlushFindings
from service.control.remembered import RememberedEntries, Share
from service.formats.dead_letter import DeadLetterHeaders, Reason
from service.formats.identity import DEAD_ENTRY, ConsumedEntry, ConsumedRecord, StoredRow
from service.formats.model import OffsetRanges, PartitionKey, TopicPartition
from tests.fakes.records import P0, P1

ANN = PartitionKey("ann", "2026-01-01", 7)
GOOD = ConsumedEntry(ANN, 1_000, "id")
SPANS: OffsetRanges = {P0: (10, 14)}
# 10: two good ones; 11: a good one and a dead one; 12: cannot be split; 13: one good one.
RECORDS = {
    10: ConsumedRecord([GOOD, GOOD]),
    11: ConsumedRecord([GOOD, DEAD_ENTRY]),
    12: ConsumedRecord([DEAD_ENTRY], is_whole=True),
    13: ConsumedRecord([GOOD]),
}


def row(offset: int, index: int = 0, tp: TopicPartition = P0, **changed: object) -> StoredRow:
    """Make a row as it should be."""
    return StoredRow(tp, offset, index, "ann", 1_000, "id", ANN)._replace(**changed)


def letter(offset: int, indexes: tuple[int, ...] | None, reason: str = Reason.NO_USER) -> DeadLetterHeaders:
    """Make a dead letter of P0."""
    return DeadLetterHeaders(reason, "", P0.topic, P0.partition, offset, indexes, "batch", "group", None)


ROWS = [row(10, 0), row(10, 1), row(11, 0), row(13)]
LETTERS = [letter(11, (1,)), letter(12, None, Reason.MALFORMED)]


def compared(
    rows: list[StoredRow],
    letters: list[DeadLetterHeaders],
    *,
    share: float = 1.0,
    is_whole: bool = True,
    is_all_read: bool = True,
) -> FlushFindings:
    """Compare them with RECORDS."""
    share_ = Share(share)
    entries = RememberedEntries()
    for offset, record in RECORDS.items():
        if share_.has(P0, offset):
            entries.add(offset, record)
    whole = frozenset({P0} if is_whole else ())
    comparison = FlushComparison({P0: entries}, SPANS, share=share_, whole=whole)
    for one in letters:
        comparison.add_letter(one)
    for one_row in rows:
        comparison.add_row(one_row)
    return comparison.outcome(is_all_read=is_all_read)


def test_flush_that_holds_what_was_consumed_is_verified() -> None:
    """Every entry is in one row or one dead letter, and nothing else is there."""
    assert compared(ROWS, LETTERS) == FlushFindings(6, 0, {}, [])


@pytest.mark.parametrize(
    ("rows", "letters", "differences", "first"),
    [
        pytest.param(ROWS[:3], LETTERS, {"lost": 1}, "lost source-0/13/0", id="record-is-nowhere"),
        pytest.param(ROWS[:1] + ROWS[2:], LETTERS, {"missing": 1}, "missing source-0/10/1", id="row-is-missing"),
        pytest.param(ROWS, LETTERS[1:], {"missing": 1}, "missing source-0/11/1", id="letter-is-missing"),
        pytest.param(ROWS, LETTERS[:1], {"lost": 1}, "lost source-0/12/0", id="letter-of-a-record-is-missing"),
        pytest.param([*ROWS, ROWS[1]], LETTERS, {"duplicated": 1}, "duplicated source-0/10/1", id="row-twice"),
        pytest.param(ROWS, [*LETTERS, LETTERS[0]], {"duplicated": 1}, "duplicated source-0/11/1", id="letter-twice"),
        pytest.param([*ROWS, row(10, 2)], LETTERS, {"unexpected": 1}, "unexpected source-0/10/2", id="no-such-index"),
        pytest.param([*ROWS, row(14)], LETTERS, {"unexpected": 1}, "unexpected source-0/14/0", id="not-committed"),
        pytest.param([*ROWS, row(9)], LETTERS, {"unexpected": 1}, "unexpected source-0/9/0", id="committed-before"),
        pytest.param([*ROWS, row(1, tp=P1)], LETTERS, {"unexpected": 1}, "unexpected source-1/1/0", id="not-ours"),
        pytest.param(
            ROWS, [*LETTERS, letter(9, None)], {"unexpected": 1}, "unexpected source-0/9/0", id="letter-of-nothing"
        ),
        pytest.param(
            ROWS, [*LETTERS, letter(13, (1,))], {"unexpected": 1}, "unexpected source-0/13/1", id="letter-of-no-index"
        ),
        pytest.param(
            ROWS[2:], [*LETTERS, letter(10, None)], {"unexpected": 1, "misjudged": 1, "missing": 1},
            "unexpected source-0/10/0", id="letter-of-all-of-a-record-that-splits",
        ),
        pytest.param(
            [*ROWS[:3], row(13, user="bea")], LETTERS, {"misplaced": 1}, "misplaced source-0/13/0", id="user-of-meta"
        ),
        pytest.param(
            [*ROWS[:3], row(13, key=PartitionKey("ann", "2026-01-01", 8))], LETTERS, {"misplaced": 1},
            "misplaced source-0/13/0", id="hour-of-the-reference",
        ),
        pytest.param(
            [*ROWS[:3], row(13, event_time_us=1_001)], LETTERS, {"misplaced": 1}, "misplaced source-0/13/0", id="time"
        ),
        pytest.param([*ROWS[:3], row(13, id=None)], LETTERS, {"meta": 1}, "meta source-0/13/0", id="id"),
        pytest.param(
            [*ROWS, row(11, 1)], LETTERS[1:], {"misjudged": 1}, "misjudged source-0/11/1", id="row-of-a-dead-one"
        ),
        pytest.param(
            ROWS[:3], [*LETTERS, letter(13, (0,))], {"misjudged": 1}, "misjudged source-0/13/0", id="good-one-dead"
        ),
    ],
)  # fmt: skip
def test_difference_is_named(
    rows: list[StoredRow], letters: list[DeadLetterHeaders], differences: Mapping[str, int], first: str
) -> None:
    """Its kind is counted, and the place of the first one told."""
    outcome = compared(rows, letters)
    assert outcome.differences == differences
    assert outcome.places[0] == first


@pytest.mark.parametrize(
    "instead",
    [
        pytest.param([letter(13, None, Reason.FATAL)], id="it ended the process"),
        pytest.param([letter(13, (0,), Reason.TOO_MANY_FIELDS)], id="over the limits of a schema"),
        pytest.param([letter(13, None, Reason.TOO_MANY_FIELDS)], id="all of one entry"),
    ],
)
def test_dead_letter_of_a_good_entry_may_have_its_reason(instead: list[DeadLetterHeaders]) -> None:
    """What the worker alone can know is not doubted."""
    assert compared(ROWS[:3], [*LETTERS, *instead]) == FlushFindings(6, 0, {}, [])


def test_dead_letter_fatal_stands_for_all_entries_of_its_record() -> None:
    """It is not decoded, and counts as one."""
    assert compared(ROWS[2:], [*LETTERS, letter(10, None, Reason.FATAL)]) == FlushFindings(6, 0, {}, [])


def test_what_is_not_found_in_part_of_the_objects_is_not_verified() -> None:
    """It may be in one that was not read; what is wrong in those read is wrong."""
    outcome = compared([row(10, 0), row(10, 0)], LETTERS, is_all_read=False)
    assert outcome == FlushFindings(3, 3, {Difference.DUPLICATED: 1}, ["duplicated source-0/10/0"])


def test_rows_beyond_the_share_and_beyond_memory_are_not_judged() -> None:
    """Of a record that is not remembered nothing is known, unless it had to be."""
    chosen = [offset for offset in RECORDS if Share(0.2).has(P0, offset)]
    assert not compared([row(one) for one in range(10, 14) if one not in chosen], [], share=0.0).differences
    assert not compared([*ROWS, row(12, 5)], LETTERS, share=0.0).differences
    entries = RememberedEntries()
    comparison = FlushComparison({P0: entries}, SPANS, share=Share(1.0), whole=frozenset())
    comparison.add_row(row(10))
    assert not comparison.outcome(is_all_read=True).differences


def test_object_is_asked_for_where_it_may_hold_something_remembered() -> None:
    """With a share below 1 most objects need not be read."""
    entries = RememberedEntries()
    entries.add(12, RECORDS[12])
    comparison = FlushComparison({P0: entries}, SPANS, share=Share(0.5), whole=frozenset({P0}))
    assert [comparison.is_about(P0, *span) for span in ((10, 11), (11, 12), (12, 12), (13, 20))] == [
        False, True, True, False,
    ]  # fmt: skip
    assert comparison.is_about(P1, 0, 5), "of what is not committed nothing should be there"
    assert FlushComparison({}, SPANS, share=Share(1.0), whole=frozenset()).is_about(P0, 10, 11)


def test_places_told_are_bounded() -> None:
    """A thousand differences make no endless line."""
    outcome = compared([row(10, index) for index in range(2, 100)], LETTERS)
    assert outcome.differences[Difference.UNEXPECTED] == 98
    assert len(outcome.places) == EXAMPLES_MAX
