"""The entries that a state has counted: an exact set of (offset, index) for each TopicPartition, as ranges.

The order in which a set grew does not change its ranges. There are never more of them than entries: consecutive records
that contribute the same indexes are one range.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from operator import itemgetter
from typing import NamedTuple

Place = tuple[int, int]
"""Offset of a record, index of the entry in it."""


class CountedRange(NamedTuple):
    """The entries with an index in [first_index, next_index) of each record in [first_offset, next_offset)."""

    first_offset: int
    next_offset: int
    first_index: int
    next_index: int


_Indexes = tuple[tuple[int, int], ...]
# Records one after the other of which the same entries were counted: [first, next) and which.
_Records = tuple[int, int, _Indexes]
_NOTHING: _Indexes = ()


class CountedEntries:
    """The counted entries of one TopicPartition."""

    __slots__ = ("_records",)

    def __init__(self, ranges: Iterable[CountedRange] = ()) -> None:
        """Take ranges that `ranges` has returned."""
        self._records: list[_Records] = [
            (*offsets, tuple((one.first_index, one.next_index) for one in same))
            for offsets, same in groupby(ranges, key=lambda one: (one.first_offset, one.next_offset))
        ]

    def ranges(self) -> list[CountedRange]:
        """Return the set as ranges, in the order of offsets and indexes."""
        return [CountedRange(first, after, *indexes) for first, after, some in self._records for indexes in some]

    def add(self, places: Iterable[Place]) -> set[Place]:
        """Count entries; returns those that were not counted before."""
        by_offset: dict[int, set[int]] = {}
        for offset, index in places:
            by_offset.setdefault(offset, set()).add(index)
        changed: dict[int, _Indexes] = {}
        added: set[Place] = set()
        for offset, wanted in by_offset.items():
            known = self._indexes_at(offset)
            new = [index for index in wanted if not _holds(known, index)]
            if new:
                changed[offset] = _join_indexes(known, new)
                added.update((offset, index) for index in new)
        if changed:
            replaced = ((offset, offset + 1, indexes) for offset, indexes in changed.items())
            self._records = _join_records(chain(_without(self._records, sorted(changed)), replaced))
        return added

    def _indexes_at(self, offset: int) -> _Indexes:
        at = bisect_right(self._records, offset, key=itemgetter(0)) - 1
        if at < 0 or self._records[at][1] <= offset:
            return _NOTHING
        return self._records[at][2]


def _holds(indexes: _Indexes, index: int) -> bool:
    at = bisect_right(indexes, index, key=itemgetter(0)) - 1
    return at >= 0 and index < indexes[at][1]


def _join_indexes(known: _Indexes, new: Iterable[int]) -> _Indexes:
    joined: list[tuple[int, int]] = []
    for first, after in sorted(chain(known, ((index, index + 1) for index in new))):
        if joined and joined[-1][1] == first:
            joined[-1] = (joined[-1][0], after)
        else:
            joined.append((first, after))
    return tuple(joined)


def _without(records: list[_Records], offsets: list[int]) -> Iterator[_Records]:
    """Yield the rest of these records, without the offsets, which are sorted."""
    at = 0
    for first, after, indexes in records:
        begin = first
        while at < len(offsets) and offsets[at] < after:
            offset = offsets[at]
            at += 1
            if offset >= begin:
                if offset > begin:
                    yield begin, offset, indexes
                begin = offset + 1
        if begin < after:
            yield begin, after, indexes


def _join_records(pieces: Iterable[_Records]) -> list[_Records]:
    joined: list[_Records] = []
    for first, after, indexes in sorted(pieces):
        if joined and joined[-1][1] == first and joined[-1][2] == indexes:
            joined[-1] = (joined[-1][0], after, indexes)
        else:
            joined.append((first, after, indexes))
    return joined
