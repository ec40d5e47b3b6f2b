"""`confluent`: a header, or five bytes before the payload, have the id of its schema."""

from __future__ import annotations

from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.model import Headers
from log_partitioner.formats.schema import SchemaRef
from log_partitioner.input.json_text import UndecodableError

HEADER = "__value_schema_id"
_PREFIX_BYTES = 5  # a zero, and the id
PLAIN = b"\0", _PREFIX_BYTES
_ID_MAX = 2**31 - 1
_GUID_BYTES = 17  # a one, and the GUID


def confluent(value: bytes, headers: Headers, _bytes_max: int) -> tuple[SchemaRef | None, bytes]:
    """Return the schema's name and the payload; a header goes before the prefix, and its value has none.

    Raises:
        UndecodableError: there is neither.
    """
    for name, content in headers:
        if name == HEADER:
            ref, rest = _named_by(content or b"")
            return ref, rest + value
    if value[0] or len(value) < _PREFIX_BYTES:
        message = f"no id of a schema, neither in a header {HEADER} nor before it: input.framing = none reads that"
        raise UndecodableError(Reason.MALFORMED, message)
    return _named_by(value)


def _named_by(content: bytes) -> tuple[SchemaRef | None, bytes]:
    """Read a GUID or an id; returns the rest, too: with Protobuf it is the place of the message in its schema."""
    if content[:1] == b"\1" and len(content) >= _GUID_BYTES:
        digits = content[1:_GUID_BYTES].hex()
        guid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
        return SchemaRef("guid", guid), content[_GUID_BYTES:]
    if content[:1] == b"\0" and len(content) >= _PREFIX_BYTES:
        number = int.from_bytes(content[1:_PREFIX_BYTES])
        return SchemaRef("id", number) if number <= _ID_MAX else None, content[_PREFIX_BYTES:]
    return None, b""
