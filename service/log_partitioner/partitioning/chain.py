"""The source topic chain: the places that a republished record has come from (DESIGN 3.8).

The header holds a JSON list of [topic, partition, offset], the first link first; a link may have an output index as its
fourth part. If a record has several such headers, the last one counts.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from log_partitioner.formats.model import RootLink, SourceRecord

TOPIC_CHARS_MAX = 249

_Int32 = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class _Link(msgspec.Struct, array_like=True):
    """A link that a row can hold: Kafka's bounds, which are those of Avro's int and long. Further parts are ignored."""

    topic: Annotated[str, msgspec.Meta(max_length=TOPIC_CHARS_MAX)]
    partition: _Int32
    offset: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    index: _Int32 | None = None


_chain_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_link_decoder = msgspec.json.Decoder(_Link)


def root_of(record: SourceRecord, header: str) -> RootLink | None:
    """Return the first link of a record's chain; None if there is no chain, or it cannot be read."""
    for name, value in reversed(record.headers):
        if name == header:
            return _first_link(value)
    return None


def _first_link(value: bytes | None) -> RootLink | None:
    try:
        links = _chain_decoder.decode(value or b"[]")
        link = _link_decoder.decode(links[0]) if links else None
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return RootLink(link.topic, link.partition, link.offset, link.index) if link else None
