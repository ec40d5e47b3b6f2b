"""Tells a replay by the chain of its record (DESIGN 3.8): an output that a republisher has published once more.

The header `source-topic-chain` holds a JSON list of links [topic, partition, offset, index, by], the first link first.
The *way* of a record is (topic, partition, by) of all its links; its *place* is the offset of the first link, then the
index of each. Along one way Kafka keeps the order, so a place that is not higher than all before it was recorded
already. Between ways there is no order. A record with a link that lacks index or `by` has no way, and is no replay.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Annotated

import msgspec

from log_partitioner.formats.model import CHAIN_HEADER, SourceRecord, WayPlace
from log_partitioner.formats.offset_metadata import WAYS_BYTES_MAX, Ways
from log_partitioner.partitioning.locate import Int32, Int64, TopicName


class _NamedLink(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A link that a way can have: five parts, and no more."""

    topic: TopicName
    partition: Int32
    offset: Int64
    index: Int32
    by: Annotated[str, msgspec.Meta(min_length=1)]


_decoder = msgspec.json.Decoder(Annotated[list[_NamedLink], msgspec.Meta(min_length=1)])


def place_of(record: SourceRecord) -> WayPlace | None:
    """Return the place of a record; None if it has no chain, one in which any link lacks a part, or was not read."""
    if record.unreadable is not None:
        return None
    text = next((value for name, value in reversed(record.headers) if name == CHAIN_HEADER), None)
    try:
        links = _decoder.decode(text or b"")
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    way = json.dumps([(link.topic, link.partition, link.by) for link in links], separators=(",", ":"))
    key = urlsafe_b64encode(sha256(way.encode()).digest()[:8])[:11].decode()
    return WayPlace(key, (links[0].offset, *(link.index for link in links)))


class Recorded:
    """The highest place recorded of each way of one TopicPartition, the least recently used way first.

    They fit into the metadata of a committed offset: beyond WAYS_BYTES_MAX the first ones are `dropped`, and replays
    along these are recorded twice.
    """

    def __init__(self, ways: Mapping[str, tuple[int, ...]] | None = None) -> None:
        self._places = dict(ways or {})
        self._bytes = sum(map(_bytes_of, self._places.values()))
        self.dropped = 0

    @property
    def ways(self) -> Ways:
        """A copy of the places by way."""
        return dict(self._places)

    def highest(self, way: str) -> tuple[int, ...] | None:
        """Return the highest place recorded of a way, None if none is known."""
        return self._places.get(way)

    def move(self, place: WayPlace) -> None:
        """Note the highest place of a way, which is used by that."""
        known = self._places.pop(place.way, None)
        assert known is None or place.numbers >= known, f"W2: {place} is lower than {known}"
        self._places[place.way] = place.numbers
        self._bytes += _bytes_of(place.numbers) - (0 if known is None else _bytes_of(known))
        while self._bytes > WAYS_BYTES_MAX:
            self._bytes -= _bytes_of(self._places.pop(next(iter(self._places))))
            self.dropped += 1


def _bytes_of(numbers: tuple[int, ...]) -> int:
    """Return how many bytes a way takes in metadata: `"q3Jd8s0aXc4":[17,0],`."""
    return 16 + sum(len(str(number)) + 1 for number in numbers)
