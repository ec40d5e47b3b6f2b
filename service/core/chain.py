"""The source topic chain: where a republished record came from (DESIGN 3.8).

The header holds a JSON list of [topic, partition, offset], the first link first; a link may have an output index as
its fourth part. Where the header stands several times the last one counts.
"""

from __future__ import annotations

import msgspec

from service.core.model import RootLink, SourceRecord


class _Link(msgspec.Struct, array_like=True):
    topic: str
    partition: int
    offset: int
    index: int | None = None


_decoder = msgspec.json.Decoder(list[_Link])


def root_of(record: SourceRecord, header: str) -> RootLink | None:
    """Give the first link of a record's chain; None where there is no chain, or it cannot be read."""
    for name, value in reversed(record.headers):
        if name == header:
            return _first_link(value)
    return None


def _first_link(value: bytes | None) -> RootLink | None:
    try:
        links = _decoder.decode(value or b"[]")
    except (msgspec.MsgspecError, UnicodeError):
        return None
    return RootLink(links[0].topic, links[0].partition, links[0].offset) if links else None
