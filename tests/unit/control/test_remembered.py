"""What is remembered: the same share every time, in order, within the bound."""

from __future__ import annotations

import pytest

from service.control.remembered import ENTRY_BYTES, Remembered, RememberedEntries, Share
from service.formats.identity import DEAD_ENTRY, ConsumedEntry, ConsumedRecord
from service.formats.model import PartitionKey
from tests.fakes.records import P0, P1

ONE = ConsumedRecord([ConsumedEntry(PartitionKey("ann", "2026-01-01", 0), 1, None)])
TWO = ConsumedRecord([*ONE.entries, DEAD_ENTRY])


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_share_is_about_as_large_and_the_same_again(share: float) -> None:
    """A record that is read again is remembered again, by whatever process."""
    chosen = [offset for offset in range(2000) if Share(share).has(P0, offset)]
    assert abs(len(chosen) - 2000 * share) < 100
    assert chosen == [offset for offset in range(2000) if Share(share).has(P0, offset)]
    assert [offset for offset in range(25) if Share(0.2).has(P0, offset)] == [2, 4, 18, 20, 24]


def test_entries_stand_in_the_order_of_offsets_whatever_came_first() -> None:
    """A record that comes late has its place."""
    entries = RememberedEntries()
    for offset, record in ((5, TWO), (9, ONE), (7, TWO)):
        entries.add(offset, record)
    assert list(entries.offsets) == [5, 5, 7, 7, 9]
    assert list(entries.indexes) == [0, 1, 0, 1, 0]
    assert entries.span(7) == (2, 4)
    assert (entries.has(7), entries.has(8), entries.has(10)) == (True, False, False)
    taken = entries.cut(7)
    assert (list(taken.offsets), list(entries.offsets)) == ([5, 5], [7, 7, 9])


def test_what_finds_no_room_is_refused_until_something_is_released() -> None:
    """Taken entries count: they are in memory until they are compared."""
    remembered = Remembered(3 * ENTRY_BYTES)
    assert remembered.add(P0, 1, TWO)
    assert not remembered.add(P1, 5, TWO)
    assert (remembered.is_whole(P0, 1), remembered.is_whole(P1, 5)) == (True, False)
    taken = remembered.take(P0, 2)
    assert not remembered.add(P1, 6, TWO)
    remembered.release(len(taken))
    assert remembered.add(P1, 7, TWO)
    remembered.take(P1, 7)
    assert remembered.is_whole(P1, 7), "what was left out is committed"


def test_forgetting_from_an_offset_keeps_what_stands_before() -> None:
    """What is fetched again is forgotten, what is recorded is not."""
    remembered = Remembered(1000)
    for offset in range(4):
        remembered.add(P0, offset, ONE)
    remembered.forget(P0, from_offset=2)
    assert [remembered.has(P0, offset) for offset in range(4)] == [True, True, False, False]
    assert remembered.bytes == 2 * ENTRY_BYTES
    remembered.forget(P0)
    assert remembered.bytes == 0


def test_what_was_left_out_before_what_is_fetched_again_stays_left_out() -> None:
    """It does not come again: found by seed 44573, as rows of which verification mode knew nothing."""
    remembered = Remembered(ENTRY_BYTES)
    for offset in (1, 2, 5):
        remembered.add(P0, offset, ONE)
    remembered.forget(P0, from_offset=4)
    assert not remembered.is_whole(P0, 1), "2 was left out, and is not fetched again"
    remembered.take(P0, 3)
    assert not remembered.is_whole(P0, 3)
    remembered.take(P0, 4)
    assert remembered.is_whole(P0, 4), "what was left out is committed"
    remembered.add(P0, 4, ONE)
    remembered.add(P0, 5, ONE)
    remembered.forget(P0)
    assert remembered.is_whole(P0, 0), "all of it comes again"
