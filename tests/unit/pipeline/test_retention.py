"""Which raw objects may go: every reference taken, audited with the table, and old enough; in doubt an object stays."""

import pytest

from log_partitioner_pipeline.retention import Grounds, Place, RawObject, Refusal, refusal_of

HOUR = ("2026-03-04", 5)
NEXT_HOUR = ("2026-03-04", 6)
GROUNDS = Grounds(before_ms=1000, taken={0: 10, 1: 10}, known={0: 8, 1: 10}, passed={HOUR, NEXT_HOUR})


def place(partition: int, offset: int, hour: tuple[str, int] = HOUR) -> Place:
    """Make a place."""
    return Place(partition, offset, *hour)


def judged(*places: Place, is_whole: bool = True, announced_at_ms: int | None = 999) -> Refusal | None:
    """Judge an object."""
    return refusal_of(RawObject(is_whole, announced_at_ms, places), GROUNDS)


def test_object_with_one_reference() -> None:
    """All offsets are next ones: the last that is below all of them may go."""
    assert judged(place(0, 7)) is None
    assert judged(place(0, 8)) is Refusal.NOT_PASSED
    assert judged(place(1, 9)) is None
    assert judged(place(1, 10)) is Refusal.NOT_TAKEN
    assert judged(place(2, 0)) is Refusal.NOT_TAKEN


def test_hour_without_a_verdict() -> None:
    """An hour without an audit that includes the table."""
    assert judged(place(0, 0, ("2026-03-04", 7))) is Refusal.NOT_PASSED
    assert judged(place(0, 4, NEXT_HOUR)) is None


def test_a_pack_goes_with_the_last_of_its_hours() -> None:
    """Entries of two hours in one object: one that is not passed, or not taken, keeps both."""
    first, second = place(0, 1), place(0, 2, NEXT_HOUR)
    assert judged(first, second) is None
    assert judged(first, second._replace(hour=7)) is Refusal.NOT_PASSED
    assert judged(first, second._replace(offset=10)) is Refusal.NOT_TAKEN


def test_object_of_which_a_reference_is_gone() -> None:
    """Bytes that no known reference names have an unknown hour and unknown offsets."""
    assert judged(place(0, 1), is_whole=False) is Refusal.PARTLY_KNOWN


@pytest.mark.parametrize("announced_at_ms", [1000, 2000, None])
def test_object_that_is_young_or_of_no_known_age(announced_at_ms: int | None) -> None:
    """It stays, whatever else is said of it."""
    assert judged(place(0, 1), announced_at_ms=announced_at_ms) is Refusal.YOUNG
