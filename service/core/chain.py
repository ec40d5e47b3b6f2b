"""The source topic chain: where a republished record came from (DESIGN 3.8).

The header holds a JSON list of [topic, partition, offset], the first link first.
"""

from __future__ import annotations

import msgspec

from service.core.model import RootLink, SourceRecord

_decoder = msgspec.json.Decoder(list[tuple[str, int, int]])


def root_of(record: SourceRecord, header: str) -> RootLink | None:
    """Give the first link of a record's chain; None where there is no chain, or it cannot be read."""
    for name, value in reversed(record.headers):
        if name == header and value is not None:
            try:
                links = _decoder.decode(value)
            except (msgspec.MsgspecError, UnicodeError):
                return None
            return RootLink(*links[0]) if links else None
    return None
