"""What verification mode remembers of consumed entries: numbers in columns, 29 bytes an entry, within a bound.

    offset · index · hash of user, date, hour and event time · hash of the unique id · flags

Owns which records are remembered: a share of them, the same ones whenever they are read again.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_left
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from service.formats.identity import ConsumedRecord
from service.formats.model import PartitionKey, TopicPartition

ENTRY_BYTES = 29
IS_DEAD, IS_WHOLE = 1, 2
_HASHES = 1 << 64


class Share(NamedTuple):
    """Chooses a share of all records, from 0 to 1, by a hash of (topic, partition, offset).

    Of single records, not of ranges: what is lost at once is many, of which any small share has some.
    """

    share: float

    def has(self, tp: TopicPartition, offset: int) -> bool:
        """Return whether a record is chosen."""
        if self.share >= 1:
            return True
        return hash((_seed_of(tp), offset)) % _HASHES < self.share * _HASHES  # of integers: alike in all processes


@lru_cache(maxsize=10_000)
def _seed_of(tp: TopicPartition) -> int:
    return zlib.crc32(f"{tp.topic}\0{tp.partition}".encode())


def place_hash(key: PartitionKey, event_time_us: int) -> int:
    """Stand for where an entry belongs; comparable within this process."""
    return hash((key.user, key.date, key.hour, event_time_us))


class RememberedEntries:
    """The remembered entries of one TopicPartition, by offset and index."""

    __slots__ = ("flags", "ids", "indexes", "offsets", "places")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.indexes = array("i")
        self.places = array("q")
        self.ids = array("q")
        self.flags = array("b")

    def __len__(self) -> int:
        return len(self.offsets)

    def span(self, offset: int) -> tuple[int, int]:
        """Return [begin, end) of the entries of an offset."""
        begin = bisect_left(self.offsets, offset)
        return begin, bisect_left(self.offsets, offset + 1, begin)

    def has(self, offset: int) -> bool:
        """Return whether entries of an offset are remembered."""
        if not self.offsets or offset > self.offsets[-1]:
            return False
        begin, end = self.span(offset)
        return begin < end

    def add(self, offset: int, record: ConsumedRecord) -> None:
        """Remember a record, in the order of offsets, whatever the order of arrival."""
        if self.offsets and offset < self.offsets[-1]:
            later = RememberedEntries()
            later.add(offset, record)
            at = bisect_left(self.offsets, offset)
            for name in self.__slots__:
                getattr(self, name)[at:at] = getattr(later, name)
            return
        whole = IS_WHOLE if record.is_whole else 0
        for index, (key, event_time_us, entry_id) in enumerate(record.entries):
            self.offsets.append(offset)
            self.indexes.append(index)
            self.places.append(0 if key is None else place_hash(key, event_time_us))
            self.ids.append(hash(entry_id))
            self.flags.append(IS_DEAD | whole if key is None else whole)

    def cut(self, offset: int) -> RememberedEntries:
        """Take away and return what is below an offset."""
        end = bisect_left(self.offsets, offset)
        taken = RememberedEntries()
        for name in self.__slots__:
            column = getattr(self, name)
            setattr(taken, name, column[:end])
            del column[:end]
        return taken


class Remembered:
    """What is remembered of all TopicPartitions, in `bytes_max` together with what was taken and not yet released."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._entries = 0
        self._by_tp: dict[TopicPartition, RememberedEntries] = {}
        self._cut_short: dict[TopicPartition, int] = {}  # no record behind this offset was left out

    @property
    def by_tp(self) -> Mapping[TopicPartition, RememberedEntries]:
        """What is remembered, to be read only."""
        return self._by_tp

    @property
    def bytes(self) -> int:
        """Bytes of what is remembered, and of what was taken and not yet released."""
        return self._entries * ENTRY_BYTES

    def add(self, tp: TopicPartition, offset: int, record: ConsumedRecord) -> bool:
        """Remember a record; gives False where there is no room."""
        if self.bytes + len(record.entries) * ENTRY_BYTES > self._bytes_max:
            self._cut_short[tp] = max(offset, self._cut_short.get(tp, offset))
            return False
        self._by_tp.setdefault(tp, RememberedEntries()).add(offset, record)
        self._entries += len(record.entries)
        return True

    def has(self, tp: TopicPartition, offset: int) -> bool:
        """Return whether a record with entries is remembered."""
        return tp in self._by_tp and self._by_tp[tp].has(offset)

    def is_whole(self, tp: TopicPartition, first: int) -> bool:
        """Return whether no record at an offset or behind it was left out for lack of room."""
        return self._cut_short.get(tp, -1) < first

    def take(self, tp: TopicPartition, next_offset: int) -> RememberedEntries:
        """Take what is below an offset; it counts until it is released."""
        return self._by_tp[tp].cut(next_offset) if tp in self._by_tp else RememberedEntries()

    def release(self, entries: int) -> None:
        """Give back the room of so many entries that were taken."""
        self._entries -= entries
        assert self._entries >= 0, "more was released than was taken"

    def forget(self, tp: TopicPartition, *, from_offset: int = 0) -> None:
        """Forget what is at an offset and behind it: it is read again; what was left out before it is not."""
        entries = self._by_tp.pop(tp, None)
        if tp in self._cut_short:
            self._cut_short[tp] = min(self._cut_short[tp], from_offset - 1)
        if entries is not None:
            kept = entries.cut(from_offset)
            self._entries -= len(entries)
            if len(kept):
                self._by_tp[tp] = kept
