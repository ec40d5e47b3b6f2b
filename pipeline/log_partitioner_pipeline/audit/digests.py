"""Digests by which rows of files and of the table are compared: of one row, and summed up over those of a reference."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, NamedTuple

from log_partitioner.formats.model import RootLink

Row = dict[str, Any]

_META = ("topic", "partition", "offset", "index", "user", "event_time", "id")
_ROOT = RootLink._fields
_BYTES = 8


def digest_of(meta: Row, values: bytes) -> bytes:
    """Return the digest of a row: of its `_meta` (`event_time` in microseconds), and of the digest of its values."""
    root = meta["root"]
    timestamp_ms = -1 if meta["timestamp"] is None else meta["timestamp"]
    place = None if root is None or root["topic"] is None else [root[name] for name in _ROOT]
    said = repr([*(meta[name] for name in _META), timestamp_ms, place])
    return blake2b(said.encode("utf-8", "surrogatepass") + values, digest_size=_BYTES).digest()


class Digests(NamedTuple):
    """Number and sum of digests, its halves apart, so that no sum of a reference's rows leaves 64 bits."""

    rows: int = 0
    low: int = 0
    high: int = 0

    def with_row(self, digest: bytes) -> Digests:
        """Return them with one row more."""
        high, low = divmod(int.from_bytes(digest), 1 << 32)
        return Digests(self.rows + 1, self.low + low, self.high + high)
