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


def confluent(value: bytes, headers: Headers, _bytes_max: int) -> tuple[SchemaRef | None, bytes]:
    """Return the name of the schema, and what stands behind it.

    Raises:
        DeadError: there is no id.
    """
    told = [content for name, content in headers if name == "__value_schema_id"]
    content = (told[0] or b"") if told else value
    ref = _read(content)
    size = 0 if ref is None else _PREFIX.size if ref.kind == "id" else _GUID.size
    if told:  # of Protobuf, more stands behind the name
        return ref, (content[size:] if ref else b"") + value
    if ref is None or ref.kind != "id":
        raise DeadError(Reason.MALFORMED)
    return ref, value[size:]


def _read(content: bytes | None) -> SchemaRef | None:
    for magic, kind, form in ((0, "id", _PREFIX), (1, "guid", _GUID)):
        if content and content[0] == magic and len(content) >= form.size:
            _, name = form.unpack_from(content)
            return SchemaRef("id", name) if kind == "id" else SchemaRef("guid", str(uuid.UUID(bytes=name)))
    return None
