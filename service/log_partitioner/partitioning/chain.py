"""Reads the chain of a record (DESIGN 3.8): its root, and whether it is a replay, which a republisher published again.

The header `source-topic-chain` holds a JSON list of links [topic, partition, offset, index, by], the first link first;
if a record has several such headers, the last one counts. The first link is the *root*; it may lack index and `by`.
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

from log_partitioner.formats.model import CHAIN_HEADER, RootLink, SourceRecord, WayPlace, last_header
from log_partitioner.formats.offset_metadata import WAYS_BYTES_MAX, Ways

TopicName = Annotated[str, msgspec.Meta(max_length=249)]
Int32 = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Int64 = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _Link(msgspec.Struct, array_like=True):
    """A link that a row can hold: Kafka's bounds are the bounds of Avro's int and long. Further parts are ignored."""

    topic: TopicName
    partition: Int32
    offset: Int64
    index: Int32 | None = None


class _NamedLink(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A link that a way can have: five parts, and no more."""

    topic: TopicName
    partition: Int32
    offset: Int64
    index: Int32
    by: Annotated[str, msgspec.Meta(min_length=1)]


_chain_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_link_decoder = msgspec.json.Decoder(_Link)
_named_decoder = msgspec.json.Decoder(Annotated[list[_NamedLink], msgspec.Meta(min_length=1)])


def root_of(record: SourceRecord) -> RootLink | None:
    """Return the first link of a record's chain; None if there is no chain, or it cannot be read."""
    if not (text := last_header(record.headers, CHAIN_HEADER)):
        return None
    try:
        links = _chain_decoder.decode(text)
        link = _link_decoder.decode(links[0]) if links else None
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return RootLink(link.topic, link.partition, link.offset, link.index) if link else None


def place_of(record: SourceRecord) -> WayPlace | None:
    """Return the place of a record; None if it has no chain, one in which any link lacks a part, or was not read."""
    if record.unreadable is not None:
        return None
    try:
        links = _named_decoder.decode(last_header(record.headers, CHAIN_HEADER) or b"")
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    way = json.dumps([(link.topic, link.partition, link.by) for link in links], separators=(",", ":"))
    key = urlsafe_b64encode(sha256(way.encode()).digest()[:8])[:11].decode()
    return WayPlace(key, (links[0].offset, *(link.index for link in links)))


class WayPlaces:
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
