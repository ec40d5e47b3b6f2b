"""`confluent`: the schema's id is in a header, or before the payload."""

from __future__ import annotations

import struct

from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.model import Headers
from log_partitioner.proof.oracle.format import DeadError

_PREFIX = struct.Struct(">BI")


def confluent(value: bytes, headers: Headers) -> bytes:
    """Return what stands behind the id.

    Raises:
        DeadError: there is no id.
    """
    if "__value_schema_id" in dict(headers):
        return value
    try:
        magic, _ = _PREFIX.unpack_from(value)
    except struct.error as error:
        raise DeadError(Reason.MALFORMED) from error
    if magic != 0:
        raise DeadError(Reason.MALFORMED)
    return value[_PREFIX.size :]
