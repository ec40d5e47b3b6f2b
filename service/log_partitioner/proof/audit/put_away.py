"""Offsets that are in no file as a whole: skipped by a person, of an unknown schema, or the end of a worker.

A record that ended a worker is decoded again in a process of its own, which it may end.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from multiprocessing import get_context
from typing import TYPE_CHECKING, NamedTuple

from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.model import FATAL, SKIPPED, UNKNOWN_SCHEMA, OffsetRanges, SourceRecord, TopicPartition
from log_partitioner.proof.oracle.judge import Judge

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from log_partitioner.config.settings import Settings
    from log_partitioner.formats.schema import FindSchema

DECODE_S = 60.0
_ALONE = {Reason.FATAL.value: FATAL, Reason.UNKNOWN_SCHEMA.value: UNKNOWN_SCHEMA}
CLAIMING = frozenset({Reason.SKIPPED, *_ALONE})  # the reasons of dead letters that stand for offsets as a whole
Reader = Callable[[OffsetRanges], Iterable[SourceRecord]]


class Claim(NamedTuple):
    """A dead letter that stands for offsets [first, end) as a whole; only skipped offsets have an `end`."""

    tp: TopicPartition
    first: int
    end: int | None
    reason: str


class ReadableRanges(NamedTuple):
    """Ranges to read, and the records that stand for skipped offsets before them, if these begin in the ranges."""

    stand_in: SourceRecord | None
    ranges: OffsetRanges


class PutAway(NamedTuple):
    """Offsets behind dead letters: `ends` of [first, end) that a person has skipped, and why others are `alone`."""

    ends: Mapping[tuple[TopicPartition, int], int]
    alone: Mapping[tuple[TopicPartition, int], str]

    def seen(self, record: SourceRecord) -> SourceRecord:
        """Return a record as the worker has seen it."""
        place = record.tp, record.offset
        if place in self.alone:
            return record._replace(unreadable=self.alone[place])
        if place in self.ends:
            return record._replace(unreadable=SKIPPED)
        return record

    def read(self, read: Reader, ranges: OffsetRanges) -> Iterator[SourceRecord]:
        """Yield the records of the source, and one record in place of offsets that a person has skipped."""
        for stand_in, readable in self.around(ranges):
            if stand_in is not None:
                yield stand_in
            yield from map(self.seen, read(readable))

    def around(self, ranges: OffsetRanges) -> list[ReadableRanges]:
        """Cut ranges around skipped offsets, which may be unreadable; the pieces of a TopicPartition are in order.

        Each piece has one range of a TopicPartition, as Spark reads them.
        """
        pieces = [ReadableRanges(None, dict(ranges))]
        for (tp, first), end in sorted(self.ends.items()):
            for _, piece in [one for one in pieces if tp in one.ranges and _meet(one.ranges[tp], first, end)]:
                begin, stop = piece[tp]
                piece[tp] = (begin, max(begin, first))
                stand_in = self.seen(SourceRecord(tp, first, None, None, None, ())) if begin <= first else None
                pieces.append(ReadableRanges(stand_in, {tp: (min(end, stop), stop)}))
        return pieces


def find_put_away(claims: Iterable[Claim]) -> PutAway:
    """Gather the offsets that dead letters stand for."""
    claims = list(claims)
    ends = {(one.tp, one.first): one.end for one in claims if one.reason == Reason.SKIPPED and one.end is not None}
    return PutAway(ends, {(one.tp, one.first): _ALONE[one.reason] for one in claims if one.reason in _ALONE})


def _meet(offsets: tuple[int, int], first: int, end: int) -> bool:
    begin, stop = offsets
    return first < stop and begin < end


def decodes_alone(settings: Settings, record: SourceRecord, find_schema: FindSchema | None) -> bool:
    """Return whether a record has an entry to deliver; blocks for a minute at most."""
    process = get_context("spawn").Process(target=_decode, args=(settings, record, find_schema), daemon=True)
    process.start()
    process.join(DECODE_S)
    process.kill()
    process.join()
    return process.exitcode == 0


def _decode(settings: Settings, record: SourceRecord, find_schema: FindSchema | None) -> None:
    judged = Judge(settings, find_schema).judge(record)
    sys.exit(0 if any(entry.deliverable for entry in judged.entries) else 1)
