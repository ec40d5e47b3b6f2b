"""What ended the process: which records were in hand at unclean ends, and how carefully to go on after them.

    1. an end with records in hand is unclean; ends_max of them in a row at the same offsets are no chance
    2. then these records are taken few at once, and after one more unclean end one at a time, its name on the disk
       before it is decoded; the batch is flushed before, so that it holds nothing else
    3. a record that ended the process ends_max times while it was alone in hand, and in its batch, becomes a dead
       letter, undecoded: of any other the batch may have been the cause, as where memory ends

Any other end, and getting past these offsets, begin to count anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

FEW = 50  # records

Offsets = dict[str, tuple[int, int]]
"""[first, end) by TopicPartition."""


class CrashHistory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is remembered from one process to the next.

    `in_hand` are the records of this moment, `is_alone` says whether it is one, in a batch of its own; `suspect` those
    of the last unclean end, `ends` how many there were in a row at the same offsets, `alone` how many of these with one
    and the same record alone; `fatal` are to be put away.
    """

    in_hand: Offsets = {}
    is_alone: bool = False
    suspect: Offsets = {}
    ends: int = 0
    alone: int = 0
    fatal: tuple[tuple[str, int], ...] = ()


encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(CrashHistory)


class PollPart(NamedTuple):
    """Records [first, stop) of a poll to take at once; where that is careful, into a batch of their own."""

    first: int
    stop: int
    is_careful: bool


def decode(line: bytes) -> CrashHistory:
    """Read what was remembered; nothing where it is not what we write."""
    try:
        return _decoder.decode(line)
    except msgspec.DecodeError:
        return CrashHistory()


def after_end(last: CrashHistory, *, ends_max: int) -> CrashHistory:
    """Return what to remember at the start of a process, from what the one before has left."""
    if not last.in_hand:
        return CrashHistory(fatal=last.fatal)
    is_same = any(_overlap(span, last.suspect.get(name)) for name, span in last.in_hand.items())
    alone = 1 + (last.alone if last.in_hand == last.suspect else 0) if last.is_alone else 0
    fatal = last.fatal
    if alone >= ends_max:
        ((name, (offset, _)),) = last.in_hand.items()
        fatal = (*fatal, (name, offset))
    return CrashHistory(suspect=last.in_hand, ends=1 + (last.ends if is_same else 0), alone=alone, fatal=fatal)


def cut(suspects: Sequence[bool], ends: int, *, ends_max: int) -> Iterator[PollPart]:
    """Cut a poll into what is taken at once; `suspects` says of each record whether it is one."""
    if ends < ends_max or not any(suspects):
        yield PollPart(0, len(suspects), is_careful=False)
        return
    records_max = FEW if ends == ends_max else 1
    end = 0
    for is_suspect, run in groupby(suspects):
        begin, end = end, end + len(list(run))
        size = records_max if is_suspect else end - begin
        for first in range(begin, end, size):
            yield PollPart(first, min(first + size, end), is_careful=is_suspect)


def _overlap(one: tuple[int, int], other: tuple[int, int] | None) -> bool:
    return other is not None and one[0] < other[1] and other[0] < one[1]
