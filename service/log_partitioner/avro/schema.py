"""Type in the lattice -> Avro schema of a row, as published (DESIGN 3.2, 3.3).

    record entry
      _meta            record meta: who, when and where from; see META_FIELDS
      <name>           ["null", T], default null; property `lp.name`, the original name, where it was changed,
                       property `lp.type` where the Avro type alone does not say which type it is:
        long53             long, every |n| <= 2^53             json                string that holds JSON text
        null               string, null in every entry         empty-object        map, `{}` in every entry
        decimal            string, the digits of a number
      Array items and map values are unions with null too; there `lp.type` stands on the type itself.

Merging two published schemas is the join of their types.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple

from log_partitioner.avro.bounded_cache import BoundedCache
from log_partitioner.avro.names import avro_names, original_of
from log_partitioner.avro.schema_types import ArrayType, MapType, RecordType, Scalar, Type
from log_partitioner.formats.projection import EMPTY_OBJECT, LONG53, NAME_PROPERTY, NULL, TYPE_PROPERTY

META = "_meta"
NAMESPACE = "logs"
CACHED_BYTES_MAX = 64 * 1024 * 1024

ROOT_FIELDS = [
    {"name": "topic", "type": "string"},
    {"name": "partition", "type": "int"},
    {"name": "offset", "type": "long"},
    {"name": "index", "type": ["null", "int"], "default": None},
]
META_FIELDS: list[dict[str, Any]] = [
    {"name": "user", "type": "string"},
    {"name": "event_time", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "id", "type": ["null", "string"], "default": None},
    {"name": "topic", "type": "string"},
    {"name": "partition", "type": "int"},
    {"name": "offset", "type": "long"},
    {"name": "index", "type": "int"},
    {"name": "timestamp", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {
        "name": "root",
        "type": [
            "null",
            {"type": "record", "name": "root", "namespace": f"{NAMESPACE}.meta", "fields": ROOT_FIELDS},
        ],
        "default": None,
    },
]

PLAIN: dict[Scalar, str] = {
    Scalar.BOOL: "boolean",
    Scalar.LONG64: "long",
    Scalar.DOUBLE: "double",
    Scalar.STRING: "string",
    Scalar.BYTES: "bytes",
}
LOGICAL: dict[Scalar, tuple[str, str]] = {
    Scalar.TIMESTAMP: ("long", "timestamp-micros"),
    Scalar.DATE: ("int", "date"),
}
MARKED: dict[Scalar, tuple[str, str]] = {
    Scalar.LONG53: ("long", LONG53),
    Scalar.JSON: ("string", "json"),
    Scalar.NULL: ("string", NULL),
    Scalar.DECIMAL: ("string", "decimal"),
}


class RowSchema(NamedTuple):
    """A published schema: its JSON text and the lower-case hex SHA-256 of that text."""

    text: str
    fingerprint: str


def row_schema(entry_type: RecordType) -> RowSchema:
    """Return the schema of rows with these entries; costs nothing the second time."""
    return _row_schemas.get(entry_type)


def _write_schema(entry_type: RecordType) -> RowSchema:
    text = json.dumps(schema_of(entry_type), separators=(",", ":"))
    return RowSchema(text, hashlib.sha256(text.encode()).hexdigest())


_row_schemas: BoundedCache[RecordType, RowSchema] = BoundedCache(
    _write_schema, weigh=lambda entry_type: entry_type.size, weight_max=CACHED_BYTES_MAX
)


def schema_of(entry_type: RecordType) -> dict[str, Any]:
    """Write the Avro schema of a row."""
    meta = {"type": "record", "name": "meta", "namespace": NAMESPACE, "fields": META_FIELDS}
    fields = _fields_of(entry_type, namespace=f"{NAMESPACE}.entry", reserved=(META,))
    return {
        "type": "record",
        "name": "entry",
        "namespace": NAMESPACE,
        "fields": [{"name": META, "type": meta}, *fields],
    }


def _fields_of(record: RecordType, *, namespace: str, reserved: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    names = avro_names(record.by_name, reserved=reserved)
    fields = []
    for key, child in record.by_name.items():
        name, original = names[key], original_of(key)
        avro, mark = _avro_of(child, name=name, namespace=namespace)
        field: dict[str, Any] = {"name": name, "type": ["null", avro], "default": None}
        if name != original:
            field[NAME_PROPERTY] = original
        if mark is not None:
            field[TYPE_PROPERTY] = mark
        fields.append(field)
    return fields


def _avro_of(child: Type, *, name: str, namespace: str) -> tuple[Any, str | None]:
    """Return the Avro type and the mark of one position.

    A position holds at most one record, named after it; `r_` keeps the name apart from Avro's own type names.
    """
    if isinstance(child, Scalar):
        if child in LOGICAL:
            return dict(zip(("type", "logicalType"), LOGICAL[child], strict=True)), None
        return MARKED.get(child) or (PLAIN[child], None)
    if isinstance(child, ArrayType):
        return {"type": "array", "items": _nullable(child.item, name=name, namespace=namespace)}, None
    if isinstance(child, MapType):
        return {"type": "map", "values": _nullable(child.value, name=name, namespace=namespace)}, None
    if not child.by_name:
        return {"type": "map", "values": ["null", "string"]}, EMPTY_OBJECT
    fields = _fields_of(child, namespace=f"{namespace}.{name}")
    return {"type": "record", "name": f"r_{name}", "namespace": namespace, "fields": fields}, None


def _nullable(child: Type, *, name: str, namespace: str) -> list[Any]:
    avro, mark = _avro_of(child, name=name, namespace=namespace)
    if mark is None:
        return ["null", avro]
    return ["null", {**(avro if isinstance(avro, dict) else {"type": avro}), TYPE_PROPERTY: mark}]
