"""Offsets that the worker has put away: nobody can read them, or decoding them ended it. Nobody tries again here."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from service.formats.model import FATAL, OffsetRanges, SourceRecord, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping


class PutAway(NamedTuple):
    """What dead letters stand for: `fatal` records, and `ends` of [first, end) offsets that cannot be read."""

    ends: Mapping[tuple[TopicPartition, int], int]
    fatal: frozenset[tuple[TopicPartition, int]]

    def seen(self, record: SourceRecord) -> SourceRecord:
        """Give a record as the worker has seen it."""
        place = record.tp, record.offset
        if place in self.fatal:
            return record._replace(unreadable=FATAL)
        if place in self.ends:
            return record._replace(unreadable="nobody can", end_offset=self.ends[place])
        return record

    def around(self, ranges: OffsetRanges) -> list[OffsetRanges]:
        """Cut ranges into those that can be read: each has one of a TopicPartition, as Spark reads them."""
        pieces = [dict(ranges)]
        for (tp, first), end in sorted(self.ends.items()):
            for piece in [one for one in pieces if tp in one and one[tp][0] < end and first < one[tp][1]]:
                begin, stop = piece[tp]
                piece[tp] = (begin, max(begin, first))
                pieces.append({tp: (min(end, stop), stop)})
        return pieces

    def starts_in(self, ranges: OffsetRanges) -> list[tuple[TopicPartition, int]]:
        """Give the first of each of the offsets in these ranges that cannot be read."""
        return [(tp, first) for tp, first in self.ends if tp in ranges and first in range(*ranges[tp])]


NOTHING = PutAway({}, frozenset())
