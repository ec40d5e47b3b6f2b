"""`glue`: 3, 0 or 5 (zlib), a UUID of sixteen bytes, the payload."""

from __future__ import annotations

import zlib

from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.model import Headers
from log_partitioner.proof.oracle.format import DeadError

_UUID_END = 18


def glue(value: bytes, _headers: Headers, bytes_max: int) -> tuple[None, bytes]:
    """Return what stands behind the prefix, decompressed.

    Raises:
        DeadError: there is no such prefix, or it is no zlib, or too large.
    """
    payload, out, left = value[_UUID_END:], b"", bytes_max + 1
    if len(value) < _UUID_END or value[0] != 3 or value[1] not in (0, 5):  # noqa: PLR2004 - of Glue
        raise DeadError(Reason.MALFORMED)
    if value[1] == 0:
        return None, payload
    while payload and left:
        stream = zlib.decompressobj()
        try:
            part = stream.decompress(payload, left)
        except zlib.error as error:
            raise DeadError(Reason.DECOMPRESSION) from error
        out, left, payload = out + part, left - len(part), stream.unused_data
        if left and not stream.eof:
            raise DeadError(Reason.DECOMPRESSION)
    if not left:
        raise DeadError(Reason.RECORD_TOO_LARGE)
    return None, out
