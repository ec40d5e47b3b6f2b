"""The published schema read anew, from its JSON alone: what a reader outside the service would write.

Shares nothing with `row_encoder` and `type_of`: names, marks and values are mapped here again.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import msgspec

from log_partitioner.formats.values import encode_json

MARK, ORIGINAL = "lp.type", "lp.name"
Schema = Any


def entry_fields(row_schema: Schema) -> list[Schema]:
    """Give the fields of a row that are the entry's own."""
    assert row_schema["fields"][0]["name"] == "_meta"
    fields: list[Schema] = row_schema["fields"][1:]
    return fields


def to_datum(fields: list[Schema], entry: dict[str, Any]) -> dict[str, Any]:
    """Make of an entry what a generic Avro writer takes: Avro names, JSON-marked values as text."""
    return {
        field["name"]: _to_avro(field["type"][1], field.get(MARK), entry.get(field.get(ORIGINAL, field["name"])))
        for field in fields
    }


def _to_avro(kind: Schema, mark: str | None, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, dict):
        mark = kind.get(MARK, mark)
    if mark == "json":
        return encode_json(value).decode()
    if kind == "bytes":
        return b64decode(value)
    if isinstance(kind, dict) and "logicalType" in kind:
        return (date if kind["type"] == "int" else datetime).fromisoformat(value)
    if isinstance(kind, dict) and kind["type"] == "record":
        return to_datum(kind["fields"], value)
    if isinstance(kind, dict) and kind["type"] == "array":
        return [_to_avro(kind["items"][1], None, item) for item in value]
    if isinstance(kind, dict) and kind["type"] == "map" and mark != "empty-object":
        return {key: _to_avro(kind["values"][1], None, item) for key, item in value.items()}
    return value


def parse_exact(text: str) -> Any:
    """Parse JSON, numbers with a fraction to every digit."""
    return json.loads(text, parse_float=Decimal)


def to_entry(fields: list[Schema], row: dict[str, Any], parse: Callable[[str], Any] = parse_exact) -> dict[str, Any]:
    """Make of a row what the entry was: original names, JSON-marked text parsed; a name may have several fields."""
    found: dict[str, Any] = {}
    for field in fields:
        value = _from_avro(field["type"][1], field.get(MARK), row[field["name"]], parse)
        name = field.get(ORIGINAL, field["name"])
        assert value is None or found.get(name) is None, "one of them has a value"
        found[name] = found.get(name) if value is None else value
    return found


def _from_avro(kind: Schema, mark: str | None, value: Any, parse: Callable[[str], Any]) -> Any:
    if value is None:
        return None
    if isinstance(kind, dict):
        mark = kind.get(MARK, mark)
    if mark == "json":
        return parse(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, datetime):
        return f"{value.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(kind, dict) and kind["type"] == "record":
        return to_entry(kind["fields"], value, parse)
    if isinstance(kind, dict) and kind["type"] == "array":
        return [_from_avro(kind["items"][1], None, item, parse) for item in value]
    if isinstance(kind, dict) and kind["type"] == "map":
        return {key: _from_avro(kind["values"][1], None, item, parse) for key, item in value.items()}
    return value


def canonical(value: Any) -> Any:
    """Bring a value into the form in which equal ones (DESIGN 3.2) are the same.

    Absent = null; numbers by value, integers exactly; a double is the shortest decimal that names it.
    """
    if isinstance(value, dict):
        return {name: canonical(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [canonical(item) for item in value]
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, int):
        return Decimal(value)
    if isinstance(value, msgspec.Raw):
        return Decimal(bytes(value).decode())
    return value


def depth_of(value: Any) -> int:
    """Count the levels of nesting of a value; a scalar has none."""
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0
