"""An Avro object container file as bytes: the end of its header, and the rows of any of its blocks.

Owns reading by position, so that an object is read once however many references point into it. fastavro reads header
and blocks, from their schemas in the Avro specification ("Object Container Files").
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
_SYNC = {"type": "fixed", "name": "sync", "size": 16}
_HEADER = fastavro.parse_schema({"type": "record", "name": "header", "fields": [
    {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": len(_MAGIC)}},
    {"name": "metadata", "type": {"type": "map", "values": "bytes"}},
    {"name": "sync", "type": _SYNC},
]})  # fmt: skip
_BLOCK = fastavro.parse_schema({"type": "record", "name": "block", "fields": [
    {"name": "rows", "type": "long"},
    {"name": "data", "type": "bytes"},
    {"name": "sync", "type": _SYNC},
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
        self._stream = io.BytesIO(data)
        header: Any = fastavro.schemaless_reader(self._stream, _HEADER, None)
        if header["magic"] != _MAGIC:
            raise ValueError("it does not begin as an Avro file does")
        self.header_bytes = self._stream.tell()
        self.schema: str = header["metadata"]["avro.schema"].decode()
        self.sync = header["sync"]
        self.decompress = _CODECS[header["metadata"].get("avro.codec", b"null").decode()]

    def rows(self, begin: int, end: int, schema: Any) -> Iterator[Any]:
        """Yield the rows of the blocks in [begin, end), decoded by a parsed schema.

        Raises:
            ValueError: these bytes are not whole blocks; damaged blocks raise other errors, too.
        """
        while begin < end:
            self._stream.seek(begin)
            block: Any = fastavro.schemaless_reader(self._stream, _BLOCK, None)
            begin = self._stream.tell()
            if begin > end or block["sync"] != self.sync or block["rows"] < 1:
                raise ValueError("a byte range does not hold whole blocks")
            yield from _rows(self.decompress(block["data"]), block["rows"], schema)


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


def _rows(data: bytes, rows: int, schema: Any) -> Iterator[Any]:
    stream = io.BytesIO(data)
    for _ in range(rows):
        yield fastavro.schemaless_reader(stream, schema, None)
    if stream.read(1):
        raise ValueError("a block holds more bytes than its rows")
