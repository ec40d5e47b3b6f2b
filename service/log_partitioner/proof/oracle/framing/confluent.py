"""`confluent`: the schema's id is in a header, or before the payload."""

from __future__ import annotations

import struct
import uuid

from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.model import Headers
from log_partitioner.formats.schema import SchemaRef
from log_partitioner.proof.oracle.format import DeadError

_PREFIX = struct.Struct(">BI")
_GUID = struct.Struct(">B16s")
_FORMS = ((b"\0", _PREFIX), (b"\1", _GUID))


def confluent(value: bytes, headers: Headers, _bytes_max: int) -> tuple[SchemaRef | None, bytes]:
    """Return the name of the schema, and what stands behind it.

    Raises:
        DeadError: there is no id.
    """
    told = [content for name, content in headers if name == "__value_schema_id"]
    content = (told[0] or b"") if told else value
    size = next((form.size for magic, form in _FORMS if content[:1] == magic and len(content) >= form.size), 0)
    if not told and size != _PREFIX.size:
        raise DeadError(Reason.MALFORMED)
    ref = _read(content) if size else None
    return (ref, (content[size:] if size else b"") + value) if told else (ref, content[size:])  # Protobuf's place


def _read(content: bytes) -> SchemaRef | None:
    if content[0]:
        return SchemaRef("guid", str(uuid.UUID(bytes=content[1 : _GUID.size])))
    _, number = _PREFIX.unpack_from(content)
    return SchemaRef("id", number) if number < 2**31 else None
