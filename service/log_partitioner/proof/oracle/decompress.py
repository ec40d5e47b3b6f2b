"""Value-level compression, recognised by magic bytes (DESIGN 3.1), within a bound on the result.

Owns gzip and zstd streams of one or more members; holds no more than the bound in memory.
"""

from __future__ import annotations

import zlib
from typing import Protocol

from log_partitioner.zstd import ZstdDecompressor, ZstdError
from log_partitioner.zstd import decompress as decompress_zstandard

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_GZIP_WINDOW_BITS = 31


__all__ = ["BrokenStreamError", "TooLargeError", "ZstdError", "decompress", "decompress_zstandard"]


class TooLargeError(Exception):
    """The value is larger than the bound."""


class BrokenStreamError(Exception):
    """The compressed stream is cut off or damaged."""


class _Member(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def decompress(value: bytes, *, bytes_max: int) -> bytes:
    """Undo the compression of a value, if it has one.

    Raises:
        TooLargeError: more than `bytes_max` bytes come out.
        BrokenStreamError: the stream is cut off or damaged.
    """
    if value.startswith(GZIP_MAGIC):
        value = _members(value, GZIP_MAGIC, bytes_max)
    elif value.startswith(ZSTD_MAGIC):
        value = _members(value, ZSTD_MAGIC, bytes_max)
    if len(value) > bytes_max:
        raise TooLargeError
    return value


def _members(rest: bytes, magic: bytes, bytes_max: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while rest:
        if not rest.startswith(magic):
            if magic == GZIP_MAGIC and not rest.strip(b"\0"):
                break  # gzip files may be padded with zeros
            raise BrokenStreamError
        member: _Member = zlib.decompressobj(_GZIP_WINDOW_BITS) if magic == GZIP_MAGIC else ZstdDecompressor()
        try:
            part = member.decompress(rest, bytes_max + 1 - size)
        except (zlib.error, ZstdError) as error:
            raise BrokenStreamError from error
        parts.append(part)
        size += len(part)
        if size > bytes_max:
            raise TooLargeError
        if not member.eof:
            raise BrokenStreamError
        rest = member.unused_data
    return b"".join(parts)
