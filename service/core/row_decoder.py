"""Avro bytes -> entry, by the type they were written with: what sealing needs to write a row under a later schema.

The values are those that `service.core.row_encoder` takes: original names, JSON-marked text as `msgspec.Raw`;
null fields are left out (DESIGN 3.2: absent = null).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from service.core.avro_binary import decode_double, decode_long, decode_string
from service.core.lattice import ArrayType, MapType, RecordType, Scalar, Type


def decode_entry(record: RecordType, data: bytes, at: int) -> tuple[dict[str, Any], int]:
    """Decode the fields of a record at `at`; returns the entry and the position behind it."""
    entry: dict[str, Any] = {}
    for name, child in record.by_name.items():
        if not data[at]:
            at += 1
        elif child is Scalar.STRING:  # most are
            entry[name], at = decode_string(data, at + 1)
        else:
            entry[name], at = _decode_present(child, data, at + 1)
    return entry, at


def _decode_nullable(child: Type, data: bytes, at: int) -> tuple[Any, int]:
    return _decode_present(child, data, at + 1) if data[at] else (None, at + 1)


def _decode_present(child: Type, data: bytes, at: int) -> tuple[Any, int]:
    if isinstance(child, Scalar):
        return _SCALARS[child](data, at)
    if isinstance(child, RecordType):
        return decode_entry(child, data, at) if child.by_name else ({}, at + 1)
    if isinstance(child, ArrayType):
        items = []
        count, at = decode_long(data, at)
        for _ in range(count):
            item, at = _decode_nullable(child.item, data, at)
            items.append(item)
        return items, at + 1 if count else at
    return _decode_map(child, data, at)


def _decode_map(child: MapType, data: bytes, at: int) -> tuple[dict[str, Any], int]:
    values: dict[str, Any] = {}
    count, at = decode_long(data, at)
    for _ in range(count):
        name, at = decode_string(data, at)
        values[name], at = _decode_nullable(child.value, data, at)
    return values, at + 1 if count else at


def _decode_json(data: bytes, at: int) -> tuple[msgspec.Raw, int]:
    length, at = decode_long(data, at)
    return msgspec.Raw(data[at : at + length]), at + length


def _decode_bool(data: bytes, at: int) -> tuple[bool, int]:
    return data[at] == 1, at + 1


def _decode_null(_data: bytes, _at: int) -> tuple[None, int]:
    raise AssertionError("a null-typed value is always written as null")


_SCALARS: dict[Scalar, Callable[[bytes, int], tuple[Any, int]]] = {
    Scalar.NULL: _decode_null,
    Scalar.BOOL: _decode_bool,
    Scalar.LONG53: decode_long,
    Scalar.LONG64: decode_long,
    Scalar.DOUBLE: decode_double,
    Scalar.STRING: decode_string,
    Scalar.JSON: _decode_json,
}
