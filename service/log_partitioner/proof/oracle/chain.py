"""Decides which records of a TopicPartition are replays, by the ways of their chains (DESIGN 3.8).

Owns the order along a way, and how much of all ways a committed offset has room for.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import TYPE_CHECKING

from log_partitioner.formats.model import CHAIN_HEADER, WayPlace
from log_partitioner.formats.offset_metadata import WAYS_BYTES_MAX
from log_partitioner.proof.oracle.locate import Surroundings, link_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_LINK_PARTS = 5


def place_of(around: Surroundings) -> WayPlace | None:
    """Return the place of a record; None if it has no chain, or a link in it is not named in full."""
    links = around.json_in(around.headers.get(CHAIN_HEADER))
    if not isinstance(links, list) or not links:
        return None
    names: list[list[object]] = []
    at: list[int] = []
    for link in links:
        found = link_of(link)
        if found is None or found.index is None or len(link) != _LINK_PARTS:
            return None
        by = link[-1]
        if not isinstance(by, str) or not by:
            return None
        names.append([found.topic, found.partition, by])
        at += [found.index] if at else [found.offset, found.index]
    digest = sha256(_json(names).encode()).digest()
    return WayPlace(urlsafe_b64encode(digest[:8]).decode().rstrip("="), tuple(at))


class WaysPassed:
    """How far each way has come; the way that was used last is the last one."""

    def __init__(self, ways: Mapping[str, tuple[int, ...]]) -> None:
        self.ways = dict(ways)

    def is_replay(self, place: WayPlace) -> bool:
        """Return whether a record is to be discarded, and let its way come to it otherwise."""
        reached = self.ways.pop(place.way, ())
        self.ways[place.way] = max(place.numbers, reached)
        while sum(len(f'"{way}":{_json(at)},') for way, at in self.ways.items()) > WAYS_BYTES_MAX:
            del self.ways[next(iter(self.ways))]
        return place.numbers <= reached


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
