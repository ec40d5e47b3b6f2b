"""Decompresses the values of records, to bounded sizes and in linear time."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Protocol

from log_partitioner import zstd
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.input.json_text import UndecodableError

_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_GZIP_WINDOW_BITS = 31
_PIECE_BYTES = 16 * 1024


class _Member(Protocol):
    """A decompressor of one gzip member or zstd frame."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def decompress(value: bytes, limit: int) -> bytes:
    """Decompress a value that begins as gzip or zstd does; any other is its own content.

    Raises:
        UndecodableError: the compressed data is damaged, or the content has more than `limit` bytes.
    """
    try:
        if value.startswith(_GZIP_MAGIC):
            value = _decompress_members(value, limit, _gzip_member)
        elif value.startswith(_ZSTD_MAGIC):
            value = _decompress_members(value, limit, zstd.ZstdDecompressor)
    except (zlib.error, zstd.ZstdError, EOFError) as error:
        raise UndecodableError(Reason.DECOMPRESSION, str(error)) from error
    if len(value) > limit:
        raise UndecodableError(Reason.RECORD_TOO_LARGE, f"more than {limit} bytes")
    return value


def inflate(data: bytes, limit: int) -> bytes:
    """Decompress data of zlib; raises as `decompress`."""
    try:
        content = _decompress_members(data, limit, zlib.decompressobj)
    except (zlib.error, EOFError) as error:
        raise UndecodableError(Reason.DECOMPRESSION, str(error)) from error
    if len(content) > limit:
        raise UndecodableError(Reason.RECORD_TOO_LARGE, f"more than {limit} bytes")
    return content


def _gzip_member() -> _Member:
    return zlib.decompressobj(_GZIP_WINDOW_BITS)


def _decompress_members(data: bytes, limit: int, new: Callable[[], _Member]) -> bytes:
    """Decompress one member or frame after the other to at most limit + 1 bytes, in linear time.

    The decompressor copies all bytes behind the end of a member, so members are fed in small pieces. Zeros may follow
    gzip members.

    Raises:
        EOFError: the compressed data ends early.
    """
    out = bytearray()
    at = 0
    while at < len(data) and len(out) <= limit:
        if at and new is _gzip_member and not data[at] and not data[at:].strip(b"\0"):
            break
        member = new()
        while not member.eof and len(out) <= limit:
            piece = data[at : at + _PIECE_BYTES]
            if not piece:
                raise EOFError("the compressed data ends early")
            out += member.decompress(piece, limit + 1 - len(out))
            at += len(piece)
        if member.eof:
            at -= len(member.unused_data)
    return bytes(out)
