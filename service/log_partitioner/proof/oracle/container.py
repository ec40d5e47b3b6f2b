"""An Avro object container file as bytes: the end of its header, and the rows of any of its blocks.

Owns reading by position, so that an object is read once however many references point into it; jobs read blocks by it,
too. fastavro reads the header, from its schema in the Avro specification ("Object Container Files").
"""

from __future__ import annotations

import io
import struct
import zlib
from typing import TYPE_CHECKING, Any

import fastavro

from log_partitioner.zstd import ZstdError
from log_partitioner.zstd import decompress as decompress_zstandard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from log_partitioner.formats.reference import Reference

# What a damaged file makes fastavro and the codecs raise.
UNREADABLE = (
    ValueError, TypeError, KeyError, IndexError, EOFError, OverflowError, MemoryError, AssertionError,
    struct.error, zlib.error, ZstdError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType,
)  # fmt: skip

Span = tuple[int, int]

_MAGIC = b"Obj\x01"
_LONG_BITS = 64
_HEADER = fastavro.parse_schema({"type": "record", "name": "header", "fields": [
    {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": len(_MAGIC)}},
    {"name": "metadata", "type": {"type": "map", "values": "bytes"}},
    {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": 16}},
]})  # fmt: skip
_CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda data: data,
    "deflate": lambda data: zlib.decompress(data, wbits=-15),
    "zstandard": decompress_zstandard,
}


class Container:
    """The bytes of an object, its header read: `schema` is the text, `header_bytes` the position of the first block."""

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self._data = data
        stream = io.BytesIO(data)
        header: Any = fastavro.schemaless_reader(stream, _HEADER, None)
        if header["magic"] != _MAGIC:
            raise ValueError("it does not begin as an Avro file does")
        self.header_bytes = stream.tell()
        self.schema: str = header["metadata"]["avro.schema"].decode()
        self._sync = header["sync"]
        self._decompress = _CODECS[header["metadata"].get("avro.codec", b"null").decode()]

    def rows(self, begin: int, end: int, schema: Any) -> Iterator[Any]:
        """Yield the rows of the blocks in [begin, end), decoded by a parsed schema.

        Raises:
            ValueError: these bytes are not whole blocks; damaged blocks raise other errors, too.
        """
        for rows, data in self.blocks(self._data, begin, end):
            yield from rows_in(data, rows, schema)

    def blocks(self, data: bytes, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield the number of rows and the encoded rows of the blocks in [begin, end) of bytes of such a file.

        Raises:
            ValueError: as `rows`.
        """
        while begin < end:
            rows, at = _long(data, begin)
            size, at = _long(data, at)
            behind = at + size
            begin = behind + len(self._sync)
            if rows < 1 or size < 0 or begin > end or data[behind:begin] != self._sync:
                raise ValueError("a byte range does not hold whole blocks")
            yield rows, self._decompress(data[at:behind])


def spans_of(reference: Reference, container: Container) -> list[Span]:
    """Return the [begin, end) of a reference's blocks.

    Raises:
        ValueError: its byte ranges do not begin with the header, or are not within the object.
    """
    (first, length), *further = reference.location.ranges
    if first != 0 or length < container.header_bytes:
        raise ValueError("its first byte range is not the header")
    spans = [(container.header_bytes, length), *((start, start + more) for start, more in further)]
    if any(begin < container.header_bytes or end < begin or end > container.size for begin, end in spans):
        raise ValueError("a byte range is outside the object's blocks")
    return [span for span in spans if span[0] < span[1]]


def _long(data: bytes, at: int) -> tuple[int, int]:
    """Return the long at a position, and the position behind it: zigzag, seven bits a byte, the lowest first."""
    rest = 0
    for shift in range(0, _LONG_BITS, 7):
        byte = data[at]
        at += 1
        rest |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the bit of a byte that says that more follow
            return (rest >> 1) ^ -(rest & 1), at
    raise ValueError("a number is longer than any long")


def rows_in(data: bytes, rows: int, schema: Any) -> Iterator[Any]:
    """Yield so many rows of a block, decoded by a parsed schema.

    Raises:
        ValueError: there are others behind them; damaged rows raise other errors, too.
    """
    stream = io.BytesIO(data)
    for _ in range(rows):
        yield fastavro.schemaless_reader(stream, schema, None)
    if stream.read(1):
        raise ValueError("a block holds more bytes than its rows")
