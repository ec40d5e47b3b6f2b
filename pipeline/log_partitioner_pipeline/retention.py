"""May a raw object go? Pure: an object, its announcements, and the progress of table and audits -> reason against it.

Owns the rule of retirement (ADR 10). Any doubt keeps an object, because an object can be deleted only once.
"""

from __future__ import annotations

from collections.abc import Container
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from log_partitioner_pipeline.topic_log import Offsets


class Place(NamedTuple):
    """One announcement of entries of one hour in an object: the place of the message, and the hour."""

    partition: int
    offset: int
    date: str
    hour: int


class RawObject(NamedTuple):
    """An object as the references topic knows it: every hour in it, by every message that names it.

    `is_whole`: each of its bytes is of a reference that is known. `announced_at_ms` is the newest timestamp of the
    messages (None: one has none).
    """

    is_whole: bool
    announced_at_ms: int | None
    places: tuple[Place, ...]


class Grounds(NamedTuple):
    """The facts by which objects are judged.

    `before_ms` is the time at which the retention begins. `taken` are the offsets that the table has reached. `passed`
    are the dates and hours of which audits have found source, files and table equal, as far as the references below
    the offsets `known` have entries in them.
    """

    before_ms: int
    taken: Offsets
    known: Offsets
    passed: Container[tuple[str, int]]


class Refusal(StrEnum):
    """Why an object stays."""

    YOUNG = "young"  # not past the retention, or nobody knows whether it is
    PARTLY_KNOWN = "partly_known"  # some of its bytes are of references that the topic no longer has
    NOT_TAKEN = "not_taken"  # the table has not come so far
    NOT_PASSED = "not_passed"  # an hour of it has no clean verdict of an audit that included the table


def refusal_of(raw: RawObject, grounds: Grounds) -> Refusal | None:
    """Return why an object may not be retired; None if it may."""
    if raw.announced_at_ms is None or raw.announced_at_ms >= grounds.before_ms:
        return Refusal.YOUNG
    if not raw.is_whole:
        return Refusal.PARTLY_KNOWN
    if not all(_is_below(place, grounds.taken) for place in raw.places):
        return Refusal.NOT_TAKEN
    if not all(_is_below(place, grounds.known) and (place.date, place.hour) in grounds.passed for place in raw.places):
        return Refusal.NOT_PASSED
    return None


def _is_below(place: Place, offsets: Offsets) -> bool:
    return place.offset < offsets.get(place.partition, 0)
