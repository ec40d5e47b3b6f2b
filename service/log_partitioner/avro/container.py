r"""Avro object container file: header and blocks as bytes (Avro specification 1.12, "Object Container Files").

header   Obj\x01, metadata map (avro.schema, avro.codec, ours), 16 bytes of sync marker
block    long rows, long bytes, compressed rows, sync marker
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Literal

from log_partitioner import zstd
from log_partitioner.avro.binary import encode_long, encode_string

Codec = Literal["zstandard", "deflate", "null"]
Compress = Callable[[bytes | bytearray], bytes]
SYNC_BYTES = 16
MAGIC = b"Obj\x01"
_ZSTD_LEVEL = 1
_DEFLATE_LEVEL = 6


def header(schema_text: str, *, codec: Codec, sync: bytes, metadata: Mapping[str, str]) -> bytes:
    """Write the header; `metadata` are our own keys beside Avro's two."""
    assert len(sync) == SYNC_BYTES, f"a sync marker has {SYNC_BYTES} bytes, not {len(sync)}"
    entries = {"avro.schema": schema_text, "avro.codec": codec, **metadata}
    out = bytearray(MAGIC)
    out += encode_long(len(entries))
    for name, value in entries.items():
        out += encode_string(name)
        out += encode_string(value)
    out += b"\0"
    out += sync
    return bytes(out)


def block(rows: int, data: bytes | bytearray, *, compress: Compress, sync: bytes) -> bytes:
    """Compress the rows and write one block."""
    assert rows > 0, "a block without rows ends some readers"
    packed = compress(data)
    return b"".join((encode_long(rows), encode_long(len(packed)), packed, sync))


def compressor(codec: Codec) -> Compress:
    """Make a compressor of blocks, which it takes one after the other; for one thread.

    A zstandard compressor is reused, because making one costs several times as much as a small block.
    """
    if codec == "zstandard":
        frames = zstd.ZstdCompressor(level=_ZSTD_LEVEL)
        return lambda data: frames.compress(data, zstd.ZstdCompressor.FLUSH_FRAME)
    if codec == "deflate":  # Avro's has neither header nor checksum (RFC 1951)
        return lambda data: zlib.compress(data, _DEFLATE_LEVEL, wbits=-15)
    return bytes
