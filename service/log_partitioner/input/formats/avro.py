"""`avro`: a payload is one value in Avro's binary encoding, by the schema of its writer (DESIGN 3.1).

A schema becomes closures, one a type. They end on any payload: values count towards the bytes of a record, so that a
few bytes cannot become more JSON than that.
"""

from __future__ import annotations

import json
import struct
from binascii import b2a_base64
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from log_partitioner.config.settings import InputSettings
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.values import Bytes, DeclaredMap
from log_partitioner.input.format import Format, Read, SchemaError
from log_partitioner.input.formats.avro_logical import DECIMAL_BYTES_MAX, converter
from log_partitioner.input.json_text import UndecodableError

_VALUE_BYTES = 4  # of JSON, for a value with what parts it from the next
_VARINT_BITS = 70  # in ten bytes
_LONG_BITS, _INT_MAX = 64, 2**31 - 1
_MORE, _DIGITS = 0x80, 0x7F
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")


class _Cursor:
    __slots__ = ("at", "data", "room")

    def __init__(self, data: bytes, room: int) -> None:
        self.data, self.at, self.room = data, 0, room

    def take(self, count: int) -> bytes:
        begin, end = self.at, self.at + count
        if not begin <= end <= len(self.data):
            raise _malformed(f"{count} bytes are due at byte {begin} of {len(self.data)}")
        self.at = end
        return self.data[begin:end]

    def make_room(self, size: int) -> None:
        self.room -= size
        if self.room < 0:
            raise UndecodableError(Reason.RECORD_TOO_LARGE, "as JSON it is larger than input.record_bytes_max")


_Decode = Callable[[_Cursor, int], Any]
"""Reads a value; if it is an object or a list, it stands at that depth."""


class _Type(NamedTuple):
    name: str
    decode: _Decode
    is_named: bool = False


def avro(rules: InputSettings) -> Format:
    """Take a payload as one value."""
    return Format(read_by=partial(_read_by, rules))


def _read_by(rules: InputSettings, schema: str) -> Read:
    try:
        parsed = json.loads(schema)
        json.dumps(parsed, ensure_ascii=False).encode()  # names stand in rows
        decode = _Types(rules.json_depth_max).of(parsed, "").decode
    except KeyError as error:
        raise SchemaError(f"a type lacks {error}") from error
    except RecursionError as error:
        raise SchemaError("it nests without end") from error
    except (ValueError, TypeError) as error:
        raise SchemaError(str(error)) from error

    def read(payload: bytes) -> Any:
        cursor = _Cursor(payload, rules.record_bytes_max)
        try:
            value = decode(cursor, 1)
        except (IndexError, struct.error) as error:
            raise _malformed(f"it ends within a value, after {len(payload)} bytes") from error
        if cursor.at < len(payload):
            raise _malformed(f"{len(payload) - cursor.at} bytes follow its value")
        return value

    return read


class _Types:
    """Types of one schema."""

    def __init__(self, depth_max: int) -> None:
        self._depth_max = depth_max
        self._named: dict[str, _Type] = {}

    def of(self, schema: Any, space: str) -> _Type:
        """Return the type of a part of the schema, in a namespace."""
        if isinstance(schema, list):
            return self._union([self.of(branch, space) for branch in schema])
        if isinstance(schema, str):
            known = _PRIMITIVES.get(schema) or self._named.get(_full_name(schema, space)) or self._named.get(schema)
            if known is None:
                raise SchemaError(f"{schema} is no type")
            return known
        if not isinstance(schema, dict):
            raise SchemaError(f"{schema} is no type")
        kind = schema["type"]
        if kind == "array":
            return _Type(kind, self._array(self.of(schema["items"], space).decode))
        if kind == "map":
            return _Type(kind, self._map(self.of(schema["values"], space).decode))
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(kind, schema, _full_name(_name(schema["name"]), schema.get("namespace", space)))
        made, convert = self.of(kind, space), converter(schema)
        if convert is None:
            return made
        return made._replace(decode=_then(convert, _short_bytes if kind == "bytes" else made.decode))

    def _define(self, kind: str, schema: dict[str, Any], name: str) -> _Type:
        if name in self._named:
            raise SchemaError(f"{name} is there twice")
        fields: dict[str, _Decode] = {}
        if kind == "enum":
            decode = _enum([*map(_name, schema["symbols"])])
        elif kind == "fixed":
            decode = _fixed(_size(schema["size"]), converter(schema) or _base64)
        else:
            decode = self._record(fields, sum(_VALUE_BYTES + len(_name(one["name"])) for one in schema["fields"]))
        self._named[name] = made = _Type(name, decode, is_named=True)
        if kind in ("record", "error"):  # a field may be of the record itself
            space = name.rpartition(".")[0]
            fields.update((one["name"], self.of(one["type"], space).decode) for one in schema["fields"])
            if len(fields) < len(schema["fields"]):
                raise SchemaError(f"{name} has two fields of one name")
        return made

    def _record(self, fields: dict[str, _Decode], size: int) -> _Decode:
        def decode(cursor: _Cursor, depth: int) -> dict[str, Any]:
            self._require_depth(depth)
            cursor.make_room(size)
            return {name: field(cursor, depth + 1) for name, field in fields.items()}

        return decode

    def _array(self, item: _Decode) -> _Decode:
        def decode(cursor: _Cursor, depth: int) -> list[Any]:
            self._require_depth(depth)
            return [item(cursor, depth + 1) for _ in _items(cursor)]

        return decode

    def _map(self, value: _Decode) -> _Decode:
        def decode(cursor: _Cursor, depth: int) -> DeclaredMap:
            self._require_depth(depth)
            return DeclaredMap({_string(cursor): value(cursor, depth + 1) for _ in _items(cursor)})

        return decode

    def _union(self, branches: list[_Type]) -> _Type:
        is_tagged = sum(one.is_named for one in branches) > 1
        decoders = [self._tag(one) if is_tagged and one.name != "null" else one.decode for one in branches]

        def decode(cursor: _Cursor, depth: int) -> Any:
            byte = cursor.data[cursor.at]
            if byte < _MORE and not byte & 1:  # most are
                cursor.at += 1
                number = byte >> 1
            else:
                number = _long(cursor)
            if not 0 <= number < len(decoders):
                raise _malformed(f"branch {number} of a union of {len(decoders)}")
            return decoders[number](cursor, depth)

        return _Type("union", decode)

    def _tag(self, branch: _Type) -> _Decode:
        def decode(cursor: _Cursor, depth: int) -> dict[str, Any]:
            self._require_depth(depth)
            cursor.make_room(_VALUE_BYTES + len(branch.name))
            return {branch.name: branch.decode(cursor, depth + 1)}

        return decode

    def _require_depth(self, depth: int) -> None:
        if depth > self._depth_max:
            raise UndecodableError(Reason.TOO_DEEP, f"nested deeper than {self._depth_max}")


def _malformed(message: str) -> UndecodableError:
    return UndecodableError(Reason.MALFORMED, message)


def _name(given: Any) -> str:
    if not isinstance(given, str):
        raise SchemaError(f"{given} is no name")
    return given


def _size(given: Any) -> int:
    if not isinstance(given, int) or given < 0:
        raise SchemaError(f"{given} is no size")
    return given


def _full_name(name: str, space: str | None) -> str:
    return f"{space}.{name}" if space and "." not in name else name


def _then(convert: Callable[[Any], Any], decode: _Decode) -> _Decode:
    return lambda cursor, depth: convert(decode(cursor, depth))


def _items(cursor: _Cursor) -> Iterator[None]:
    """Yield once for each item of a list or a map."""
    while count := _long(cursor):
        if count < 0:
            _long(cursor)  # bytes of the block
        for _ in range(abs(count)):
            cursor.make_room(_VALUE_BYTES)
            yield


def _long(cursor: _Cursor, _depth: int = 0) -> int:
    data, at = cursor.data, cursor.at
    byte = data[at]
    at += 1
    if byte < _MORE:
        cursor.at = at
        return (byte >> 1) ^ -(byte & 1)
    number, shift = byte & _DIGITS, 7
    while byte & _MORE:
        if shift == _VARINT_BITS:
            raise _malformed(f"the number at byte {cursor.at} has more than ten bytes")
        byte = data[at]
        at += 1
        number |= (byte & _DIGITS) << shift
        shift += 7
    if number >> _LONG_BITS:
        raise _malformed(f"the number at byte {cursor.at} has more than 64 bits")
    cursor.at = at
    return (number >> 1) ^ -(number & 1)


def _int(cursor: _Cursor, _depth: int) -> int:
    number = _long(cursor)
    if not -_INT_MAX - 1 <= number <= _INT_MAX:
        raise _malformed(f"{number} is no int")
    return number


def _boolean(cursor: _Cursor, _depth: int) -> bool:
    byte = cursor.data[cursor.at]
    if byte > 1:
        raise _malformed(f"{byte} is no boolean")
    cursor.at += 1
    return byte == 1


def _floating(form: struct.Struct) -> _Decode:
    def decode(cursor: _Cursor, _depth: int) -> float | str:
        (number,) = form.unpack_from(cursor.data, cursor.at)
        cursor.at += form.size
        if number - number == 0:
            return float(number)
        return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"  # noqa: PLR0124 - as NaN does

    return decode


def _bytes(cursor: _Cursor, _depth: int) -> bytes:
    return cursor.take(_long(cursor))


def _short_bytes(cursor: _Cursor, depth: int) -> bytes:
    data = _bytes(cursor, depth)
    if len(data) > DECIMAL_BYTES_MAX:
        raise _malformed(f"a decimal of {len(data)} bytes")
    return data


def _string(cursor: _Cursor, _depth: int = 0) -> str:
    size, begin = _long(cursor), cursor.at
    cursor.at = end = begin + size
    if not begin <= end <= len(cursor.data):
        raise _malformed(f"{size} bytes are due at byte {begin} of {len(cursor.data)}")
    try:
        return cursor.data[begin:end].decode()
    except UnicodeDecodeError as error:
        raise UndecodableError(Reason.INVALID_UNICODE, str(error)) from error


def _base64(data: bytes) -> Bytes:
    return Bytes(b2a_base64(data, newline=False).decode())


def _enum(symbols: list[str]) -> _Decode:
    def decode(cursor: _Cursor, _depth: int) -> str:
        number = _long(cursor)
        if not 0 <= number < len(symbols):
            raise _malformed(f"symbol {number} of an enum of {len(symbols)}")
        cursor.make_room(len(symbols[number]))
        return symbols[number]

    return decode


def _fixed(size: int, convert: Callable[[bytes], Any]) -> _Decode:
    return lambda cursor, _depth: convert(cursor.take(size))


_PRIMITIVES = {
    name: _Type(name, decode)
    for name, decode in {
        "null": lambda _cursor, _depth: None,
        "boolean": _boolean,
        "int": _int,
        "long": _long,
        "float": _floating(_FLOAT),
        "double": _floating(_DOUBLE),
        "bytes": _then(_base64, _bytes),
        "string": _string,
    }.items()
}
