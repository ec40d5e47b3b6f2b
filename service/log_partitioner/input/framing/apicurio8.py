"""`apicurio8`: Apicurio's global id of the schema, as the serializers of its version 2 write it by default."""

from __future__ import annotations

from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.model import Headers
from log_partitioner.formats.schema import SchemaRef
from log_partitioner.input.json_text import UndecodableError

_ID_MAX = 2**63 - 1
_PREFIX_BYTES = 9  # a zero, and the id
PLAIN = b"\0", _PREFIX_BYTES


def apicurio8(value: bytes, _headers: Headers, _bytes_max: int) -> tuple[SchemaRef | None, bytes]:
    """Return the schema's name, and the payload behind it.

    Raises:
        UndecodableError: there is no id.
    """
    if value[0] or len(value) < _PREFIX_BYTES:
        raise UndecodableError(Reason.MALFORMED, "no global id of a schema before it: input.framing = none reads that")
    number = int.from_bytes(value[1:_PREFIX_BYTES])
    return SchemaRef("global_id", number) if number <= _ID_MAX else None, value[_PREFIX_BYTES:]
