"""`glue`: AWS Glue's prefix, which names a version of a schema and how the payload is compressed."""

from __future__ import annotations

from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.model import Headers
from log_partitioner.input.compression import inflate
from log_partitioner.input.json_text import UndecodableError

_PREFIX_BYTES = 18  # a version, a kind of compression, a UUID
_PLAIN, _ZLIB = b"\3\0", b"\3\5"
PLAIN = _PLAIN, _PREFIX_BYTES


def glue(value: bytes, _headers: Headers, bytes_max: int) -> tuple[None, bytes]:
    """Return the payload; the worker asks no registry for its schema.

    Raises:
        UndecodableError: there is no such prefix, or the compressed payload is damaged or has more than `bytes_max`.
    """
    kind, payload = value[:2], value[_PREFIX_BYTES:]
    if kind not in (_PLAIN, _ZLIB) or len(value) < _PREFIX_BYTES:
        raise UndecodableError(Reason.MALFORMED, "no prefix of AWS Glue before it: input.framing = none reads that")
    return None, payload if kind == _PLAIN else inflate(payload, bytes_max)
