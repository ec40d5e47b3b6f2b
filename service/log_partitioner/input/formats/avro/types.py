"""A schema -> closures that read its values, one a type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.values import Bytes, DeclaredMap
from log_partitioner.input.format import SchemaError
from log_partitioner.input.formats.avro.binary import (
    MORE,
    PRIMITIVES,
    VALUE_BYTES,
    Cursor,
    Decode,
    items,
    long,
    malformed,
    short_bytes,
    string,
    then,
)
from log_partitioner.input.formats.avro.logical import converter
from log_partitioner.input.json_text import UndecodableError

_UNION = "union"


class Type(NamedTuple):
    """The name of a type, or its kind, and what reads its values; `is_named`: its schema gives it the name."""

    name: str
    decode: Decode
    is_named: bool = False


class AvroTypes:
    """Types of one schema."""

    def __init__(self, depth_max: int) -> None:
        self._depth_max = depth_max
        self._named = {name: Type(name, decode) for name, decode in PRIMITIVES.items()}

    def of(self, schema: Any, space: str) -> Type:
        """Return the type of a part of the schema, in a namespace."""
        if isinstance(schema, list):
            return self._union([self.of(branch, space) for branch in schema])
        if isinstance(schema, str):
            name = schema if schema in PRIMITIVES else _full_name(schema, space)
            known = self._named.get(name) or self._named.get(schema)
            if known is None:
                raise SchemaError(f"{schema} is no type")
            return known
        if not isinstance(schema, dict):
            raise SchemaError(f"{schema} is no type")
        kind = schema["type"]
        if kind == "array":
            return Type(kind, self._array(self.of(schema["items"], space).decode))
        if kind == "map":
            return Type(kind, self._map(self.of(schema["values"], space).decode))
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(kind, schema, _full_name(_name(schema["name"]), schema.get("namespace", space)))
        made, convert = self.of(kind, space), converter(schema)
        if convert is None:
            return made
        return made._replace(decode=then(convert, short_bytes if kind == "bytes" else made.decode))

    def _define(self, kind: str, schema: dict[str, Any], name: str) -> Type:
        if name in self._named:
            raise SchemaError(f"{name} is there twice")
        fields: dict[str, Decode] = {}
        if kind == "enum":
            decode = _enum([*map(_name, _list(schema["symbols"]))])
        elif kind == "fixed":
            decode = _fixed(_size(schema["size"]), converter(schema) or Bytes.of)
        else:
            decode = self._record(fields, sum(VALUE_BYTES + len(_name(one["name"])) for one in _list(schema["fields"])))
        self._named[name] = made = Type(name, decode, is_named=True)
        if kind in ("record", "error"):  # a field may be of the record itself
            space = name.rpartition(".")[0]
            fields.update((one["name"], self.of(one["type"], space).decode) for one in schema["fields"])
            if len(fields) < len(schema["fields"]):
                raise SchemaError(f"{name} has two fields of one name")
        return made

    def _record(self, fields: dict[str, Decode], size: int) -> Decode:
        def decode(cursor: Cursor, depth: int) -> dict[str, Any]:
            self._require_depth(depth)
            cursor.make_room(size)
            return {name: field(cursor, depth + 1) for name, field in fields.items()}

        return decode

    def _array(self, item: Decode) -> Decode:
        def decode(cursor: Cursor, depth: int) -> list[Any]:
            self._require_depth(depth)
            return [item(cursor, depth + 1) for _ in items(cursor)]

        return decode

    def _map(self, value: Decode) -> Decode:
        def decode(cursor: Cursor, depth: int) -> DeclaredMap:
            self._require_depth(depth)
            return DeclaredMap({string(cursor): value(cursor, depth + 1) for _ in items(cursor)})

        return decode

    def _union(self, branches: list[Type]) -> Type:
        if any(one.name == _UNION and not one.is_named for one in branches):
            raise SchemaError("a union stands in a union")
        is_tagged = sum(one.is_named for one in branches) > 1
        decoders = [self._tag(one) if is_tagged and one.name != "null" else one.decode for one in branches]

        def decode(cursor: Cursor, depth: int) -> Any:
            byte = cursor.data[cursor.at]
            if byte < MORE and not byte & 1:  # most are
                cursor.at += 1
                number = byte >> 1
            else:
                number = long(cursor)
            if not 0 <= number < len(decoders):
                raise malformed(f"branch {number} of a union of {len(decoders)}")
            return decoders[number](cursor, depth)

        return Type(_UNION, decode)

    def _tag(self, branch: Type) -> Decode:
        def decode(cursor: Cursor, depth: int) -> dict[str, Any]:
            self._require_depth(depth)
            cursor.make_room(VALUE_BYTES + len(branch.name))
            return {branch.name: branch.decode(cursor, depth + 1)}

        return decode

    def _require_depth(self, depth: int) -> None:
        if depth > self._depth_max:
            raise UndecodableError(Reason.TOO_DEEP, f"nested deeper than {self._depth_max}")


def _name(given: Any) -> str:
    if not isinstance(given, str):
        raise SchemaError(f"{given} is no name")
    return given


def _list(given: Any) -> list[Any]:
    if not isinstance(given, list):
        raise SchemaError(f"{given} is no list")
    return given


def _size(given: Any) -> int:
    if not isinstance(given, int) or given < 0:
        raise SchemaError(f"{given} is no size")
    return given


def _full_name(name: str, space: str | None) -> str:
    return f"{space}.{name}" if space and "." not in name else name


def _enum(symbols: list[str]) -> Decode:
    def decode(cursor: Cursor, _depth: int) -> str:
        number = long(cursor)
        if not 0 <= number < len(symbols):
            raise malformed(f"symbol {number} of an enum of {len(symbols)}")
        cursor.make_room(len(symbols[number]))
        return symbols[number]

    return decode


def _fixed(size: int, convert: Callable[[bytes], Any]) -> Decode:
    return lambda cursor, _depth: convert(cursor.take(size))
