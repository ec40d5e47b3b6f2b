"""Finds the record that ended the process, by the records in hand at unclean ends in a row. Pure.

    1. an end with records in hand is unclean; the next process takes these records FEW at once, in batches of their own
    2. after one more end at the same records, it takes each record alone: alone in its batch, and in hand while it is
       decoded and recorded, not while anything is spilled or flushed
    3. a record that was alone in hand at two ends in a row becomes a dead letter, undecoded

Any other end does not blame a record, because the batch as a whole may have caused it (memory or disk was full). Such
an end, or a commit behind these offsets, restarts the count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

FEW = 200  # records: a poll in ten flushes, by default
_ALONE, _FATAL = 2, 4  # unclean ends in a row; at the third and the fourth a record was alone in hand

Offsets = dict[str, tuple[int, int]]
"""[first, end) by TopicPartition."""


class CrashHistory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The memory that one process leaves to the next.

    `in_hand` are the records being taken now, `suspect` those of the last unclean end; `ends` counts the unclean ends
    in a row at the same records.
    """

    in_hand: Offsets = {}
    suspect: Offsets = {}
    ends: int = 0

    def is_fatal(self, tp: str, offset: int) -> bool:
        """Return whether a record is not to be decoded."""
        return self.ends >= _FATAL and self.suspect.get(tp) == (offset, offset + 1)


encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(CrashHistory)


class PollPart(NamedTuple):
    """Records [first, stop) of a poll to take at once; if `is_careful`, into a batch of their own."""

    first: int
    stop: int
    is_careful: bool


def decode(line: bytes) -> CrashHistory:
    """Parse the memory of an earlier process; an empty one if the line is not in our form."""
    try:
        return _decoder.decode(line)
    except msgspec.DecodeError:
        return CrashHistory()


def after_end(last: CrashHistory) -> CrashHistory:
    """Return the memory with which a process starts, from the one that the process before has left."""
    if not last.in_hand:
        return last if last.ends >= _FATAL else CrashHistory()
    is_same = any(_overlap(span, last.suspect.get(name)) for name, span in last.in_hand.items())
    return CrashHistory(suspect=last.in_hand, ends=1 + (last.ends if is_same else 0))


def cut(suspects: Sequence[bool], ends: int) -> Iterator[PollPart]:
    """Cut a poll into parts to take at once; `suspects` says of each record whether it is suspect."""
    end = 0
    for is_suspect, run in groupby(suspects):
        begin, end = end, end + len(list(run))
        size = end - begin if not is_suspect else FEW if ends < _ALONE else 1
        for first in range(begin, end, size):
            yield PollPart(first, min(first + size, end), is_careful=is_suspect)


def _overlap(one: tuple[int, int], other: tuple[int, int] | None) -> bool:
    return other is not None and one[0] < other[1] and other[0] < one[1]
