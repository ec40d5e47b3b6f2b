"""What ended the process: which records were in hand at unclean ends, and how carefully to go on after them.

    1. an end with records in hand is unclean; ends_max of them in a row at the same offsets are no chance
    2. then few records are taken at once, and after one more unclean end one at a time, its name on the disk before it
       is decoded
    3. a record that ended the process ends_max times while it was alone in hand becomes a dead letter, undecoded

Any other end, and getting past these offsets, begin to count anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from service.formats.model import TopicPartition

FEW = 50  # records

Offsets = dict[str, tuple[int, int]]
"""[first, end) by TopicPartition."""


class CrashHistory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is remembered from one process to the next.

    `in_hand` are the records of this moment; `suspect` those of the last unclean end, `ends` how many there were in a
    row at the same offsets, `alone` how many of these with one and the same record; `fatal` are to be put away.
    """

    in_hand: Offsets = {}
    suspect: Offsets = {}
    ends: int = 0
    alone: int = 0
    fatal: tuple[tuple[str, int], ...] = ()


encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(CrashHistory)


class PollPace(NamedTuple):
    """How many records to take at once, and whether the name of each must be on the disk before it is decoded."""

    records_max: int
    is_synced: bool


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
    spans = list(last.in_hand.items())
    alone = 0
    if len(spans) == 1 and spans[0][1][1] - spans[0][1][0] == 1:
        alone = 1 + (last.alone if last.in_hand == last.suspect else 0)
    fatal = last.fatal
    if alone >= ends_max:
        fatal = (*fatal, (spans[0][0], spans[0][1][0]))
    return CrashHistory(suspect=last.in_hand, ends=1 + (last.ends if is_same else 0), alone=alone, fatal=fatal)


def pace_after(
    history: CrashHistory, next_offsets: Mapping[TopicPartition, int], *, ends_max: int, records_max: int
) -> PollPace:
    """Return how many records to take at once: as many as usual, unless a suspect that is ours lies ahead."""
    is_ahead = any(next_offset < history.suspect.get(str(tp), (0, 0))[1] for tp, next_offset in next_offsets.items())
    if history.ends < ends_max or not is_ahead:
        return PollPace(records_max, is_synced=False)
    return PollPace(min(FEW, records_max), is_synced=False) if history.ends == ends_max else PollPace(1, is_synced=True)


def _overlap(one: tuple[int, int], other: tuple[int, int] | None) -> bool:
    return other is not None and one[0] < other[1] and other[0] < one[1]
