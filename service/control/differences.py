"""What was consumed against what a committed flush holds, entry by entry. Plain values in, differences out.

Owns the kinds of differences, and the rule: every remembered entry below the committed offsets is in exactly one row or
one dead letter of that flush, under the user and hour that the second opinion finds, and nothing else is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

from service.control.remembered import IS_DEAD, IS_WHOLE, RememberedEntries, Share, place_hash
from service.formats.dead_letter import DeadLetterHeaders, Reason
from service.formats.identity import StoredRow
from service.formats.model import OffsetRanges, TopicPartition

EXAMPLES_MAX = 20
_BY_SIZE = Reason.TOO_MANY_FIELDS  # whether an entry is over the limits of a schema is not asked of the second opinion


class Difference(StrEnum):
    """How a flush may differ from what was consumed; named as the audit names it, where it does."""

    LOST = "lost"  # consumed, below the committed offset, and no entry of that record is anywhere
    MISSING = "missing"  # others of its record are there
    DUPLICATED = "duplicated"
    UNEXPECTED = "unexpected"  # there, and nothing of the kind was consumed
    MISPLACED = "misplaced"  # under another user, hour or event time
    META = "meta"  # another unique id
    MISJUDGED = "misjudged"  # a dead letter of a good entry, or a row of one that should be dead
    OBJECT_MISSING = "object_missing"
    OBJECT_ALTERED = "object_altered"
    OBJECT_UNREADABLE = "object_unreadable"


class FlushFindings(NamedTuple):
    """What a comparison came to; `places` are the first differences as topic-partition/offset/index."""

    verified: int
    unverified: int
    differences: Mapping[Difference, int]
    places: list[str]


class FlushComparison:
    """Compares one flush.

    `spans` are [first, next) of what it commits by TopicPartition; `whole` those of which every record of the share is
    remembered, so that a row of any other is unexpected.
    """

    def __init__(
        self,
        remembered: Mapping[TopicPartition, RememberedEntries],
        spans: OffsetRanges,
        *,
        share: Share,
        whole: frozenset[TopicPartition],
    ) -> None:
        self._remembered = remembered
        self._spans = spans
        self._share = share
        self._whole = whole
        self._seen = {tp: bytearray(len(entries)) for tp, entries in remembered.items()}
        self._counts: Counter[Difference] = Counter()
        self._places: list[str] = []

    def is_about(self, tp: TopicPartition, first_offset: int, last_offset: int) -> bool:
        """Return whether anything between two offsets, both included, is remembered, or has to be."""
        if self._share.share >= 1 or tp not in self._spans:
            return True
        entries = self._remembered.get(tp)
        return entries is not None and entries.span(first_offset)[0] < entries.span(last_offset)[1]

    def add_row(self, row: StoredRow) -> None:
        """Compare a row of one of its objects."""
        entries = self._remembered.get(row.tp)
        at = None if entries is None else _find(entries, row.offset, row.number)
        if entries is None or at is None:
            if self._is_unexpected(row.tp, row.offset):
                self._note(Difference.UNEXPECTED, row.tp, row.offset, row.number)
            return
        self._see(row.tp, at, row.offset, row.number)
        if entries.flags[at] & IS_DEAD:
            self._note(Difference.MISJUDGED, row.tp, row.offset, row.number)
            return
        if row.user != row.key.user or place_hash(row.key, row.event_time_us) != entries.places[at]:
            self._note(Difference.MISPLACED, row.tp, row.offset, row.number)
        if hash(row.id) != entries.ids[at]:
            self._note(Difference.META, row.tp, row.offset, row.number)

    def add_letter(self, letter: DeadLetterHeaders) -> None:
        """Compare one of its dead letters."""
        tp = TopicPartition(letter.topic, letter.partition)
        entries = self._remembered.get(tp, RememberedEntries())
        begin, stop = entries.span(letter.offset)
        if begin == stop:
            if self._is_unexpected(tp, letter.offset):
                self._note(Difference.UNEXPECTED, tp, letter.offset, 0)
            return
        if letter.reason == Reason.FATAL:  # it stands for all that its record holds
            for at in range(begin, stop):
                self._see(tp, at, entries.offsets[at], entries.indexes[at])
            return
        if letter.indexes is None and stop - begin > 1:  # the others are missing
            self._note(Difference.UNEXPECTED, tp, letter.offset, 0)
        for index in (0,) if letter.indexes is None else letter.indexes:
            if not 0 <= index < stop - begin:
                self._note(Difference.UNEXPECTED, tp, letter.offset, index)
                continue
            self._see(tp, begin + index, letter.offset, index)
            if not entries.flags[begin + index] & (IS_DEAD | IS_WHOLE) and letter.reason != _BY_SIZE:
                self._note(Difference.MISJUDGED, tp, letter.offset, index)

    def add_object(self, kind: Difference) -> None:
        """Count an object that is not what its references say."""
        self._counts[kind] += 1

    def outcome(self, *, is_all_read: bool) -> FlushFindings:
        """Return what it came to; where not all objects could be read, what was not found is not verified."""
        verified = unverified = 0
        for tp, seen in self._seen.items():
            entries = self._remembered[tp]
            found = len(seen) - seen.count(0)
            verified += found
            if not is_all_read:
                unverified += len(seen) - found
            elif found < len(seen):
                self._note_missing(tp, entries, seen)
        return FlushFindings(verified, unverified, dict(self._counts), self._places)

    def _note_missing(self, tp: TopicPartition, entries: RememberedEntries, seen: bytearray) -> None:
        for at in _zeros(seen):
            offset = entries.offsets[at]
            begin, end = entries.span(offset)
            kind = Difference.MISSING if any(seen[begin:end]) else Difference.LOST
            self._note(kind, tp, offset, entries.indexes[at])

    def _is_unexpected(self, tp: TopicPartition, offset: int) -> bool:
        """Return whether it would be remembered, had it been consumed; what is outside the offsets was not."""
        if not self._share.has(tp, offset):
            return False
        first, end = self._spans.get(tp, (0, 0))
        return not first <= offset < end or tp in self._whole or tp_has(self._remembered, tp, offset)

    def _see(self, tp: TopicPartition, at: int, offset: int, index: int) -> None:
        seen = self._seen[tp]
        if seen[at]:
            self._note(Difference.DUPLICATED, tp, offset, index)
        seen[at] = 1

    def _note(self, kind: Difference, tp: TopicPartition, offset: int, index: int) -> None:
        self._counts[kind] += 1
        if len(self._places) < EXAMPLES_MAX:
            self._places.append(f"{kind} {tp}/{offset}/{index}")


def tp_has(remembered: Mapping[TopicPartition, RememberedEntries], tp: TopicPartition, offset: int) -> bool:
    """Return whether entries of an offset are remembered."""
    return tp in remembered and remembered[tp].has(offset)


def _find(entries: RememberedEntries, offset: int, index: int) -> int | None:
    begin, end = entries.span(offset)
    return begin + index if 0 <= index < end - begin else None


def _zeros(seen: bytearray) -> Iterator[int]:
    at = seen.find(0)
    while at >= 0:
        yield at
        at = seen.find(0, at + 1)
