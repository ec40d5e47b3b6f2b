"""`apicurio8`: a zero, and the schema's global id in eight bytes."""

from __future__ import annotations

import struct

from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.model import Headers
from log_partitioner.formats.schema import SchemaRef
from log_partitioner.proof.oracle.format import DeadError

_PREFIX = struct.Struct(">BQ")


def apicurio8(value: bytes, _headers: Headers, _bytes_max: int) -> tuple[SchemaRef | None, bytes]:
    """Return the name of the schema, and what stands behind it.

    Raises:
        DeadError: there is no id.
    """
    try:
        magic, number = _PREFIX.unpack_from(value)
    except struct.error as error:
        raise DeadError(Reason.MALFORMED) from error
    if magic:
        raise DeadError(Reason.MALFORMED)
    return SchemaRef("global_id", number) if number < 2**63 else None, value[_PREFIX.size :]
