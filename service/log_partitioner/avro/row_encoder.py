"""Entry -> Avro bytes, byte-identical to fastavro: a closure for each field of a type, made once.

An encoder writes entries of an exact type under a merged one that holds it. It accepts exactly the entries that the
exact type holds and raises `SchemaMismatch` for all others: no wrong row is ever written. Every nullable value is
written as union branch 0 (null) or 1, which is the byte 00 or 02.
"""

from __future__ import annotations

import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any, TypeVar

import msgspec

from log_partitioner.avro.binary import encode_long, encode_string, pack_double
from log_partitioner.avro.infer import INT64_MAX, INT64_MIN, LONG53_MAX, require_depth
from log_partitioner.avro.pack_schema import places
from log_partitioner.avro.schema_types import ArrayType, MapType, RecordType, Scalar, Type
from log_partitioner.config.settings import SchemaBounds

Encode = Callable[[Any, bytearray], None]
"""Appends a value that is not null; raises SchemaMismatch or TooDeepError: then the caller drops the appended bytes."""

T = TypeVar("T")

_SMALL = 4096
_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_EPOCH, _MICROSECOND = datetime(1970, 1, 1), timedelta(microseconds=1)  # noqa: DTZ001 - all are UTC
_encode_json = msgspec.json.Encoder().encode


class _PresentLongs(dict[int, bytes]):
    """Branch 1 and a long; the small ones are ready."""

    def __missing__(self, value: int) -> bytes:
        return b"\2" + encode_long(value)


_PRESENT_LONG = _PresentLongs({number: b"\2" + encode_long(number) for number in range(-_SMALL, _SMALL)})


class SchemaMismatch(Exception):  # noqa: N818 - says what the entry is
    """The entry does not fit the type."""


def entry_encoder(own: RecordType, merged: RecordType, limits: SchemaBounds) -> Encode:
    """Return the encoder of entries within an exact type, under a merged one that holds it."""
    return _object_encoder(own, merged, limits, depth=1)


def _object_encoder(own: RecordType, merged: RecordType, limits: SchemaBounds, *, depth: int) -> Encode:
    """Return the encoder of an object at `depth`; it writes no branch, and looks only at fields that are there."""
    number_of: dict[str, int] = {}
    fields: dict[int, tuple[str, Encode]] = {}
    for one in places(own, merged):
        number_of[one.name] = one.number
        fields[one.number] = one.name, _encoder(one.own, one.merged, limits, depth + 1)
    find, width = number_of.__getitem__, len(merged.by_name)

    def encode(value: dict[str, Any], out: bytearray) -> None:
        try:
            numbers = sorted(map(find, value))
        except KeyError:
            raise SchemaMismatch from None
        following = 0
        for number in numbers:
            if number > following:
                out += bytes(number - following)  # null in each field between
            following = number + 1
            name, encode_field = fields[number]
            field = value[name]
            if field is None:
                out.append(0)
            else:
                encode_field(field, out)
        out += bytes(width - following)

    return encode


def _encoder(own: Type, merged: Type, limits: SchemaBounds, depth: int) -> Encode:
    """Return the encoder of values within a type at `depth`; it writes branch 1 first."""
    if isinstance(own, Scalar):
        return _json_encoder(limits, depth) if own is Scalar.JSON else _SCALARS[own]
    if isinstance(own, ArrayType) and isinstance(merged, ArrayType):
        return _array_encoder(_encoder(own.item, merged.item, limits, depth + 1))
    if isinstance(own, MapType) and isinstance(merged, MapType):
        return _map_encoder(_encoder(own.value, merged.value, limits, depth + 1))
    assert isinstance(own, RecordType), f"{merged} does not hold {own}"
    if not isinstance(merged, RecordType) or not merged.by_name:
        return _encode_empty
    encode_object = _object_encoder(own, merged, limits, depth=depth)

    def encode(value: Any, out: bytearray) -> None:
        if type(value) is not dict:
            raise SchemaMismatch
        out.append(2)
        encode_object(value, out)

    return encode


def _array_encoder(encode_item: Encode) -> Encode:
    def encode(value: Any, out: bytearray) -> None:
        if type(value) is not list:
            raise SchemaMismatch
        out.append(2)
        if value:
            out += encode_long(len(value))
        for item in value:
            if item is None:
                out.append(0)
            else:
                encode_item(item, out)
        out.append(0)

    return encode


def _map_encoder(encode_item: Encode) -> Encode:
    def encode(value: Any, out: bytearray) -> None:
        if type(value) is not dict:
            raise SchemaMismatch
        out.append(2)
        if value:
            out += encode_long(len(value))
        for name, item in value.items():
            out += encode_string(name)
            if item is None:
                out.append(0)
            else:
                encode_item(item, out)
        out.append(0)

    return encode


def _json_encoder(limits: SchemaBounds, depth: int) -> Encode:
    def encode(value: Any, out: bytearray) -> None:
        if type(value) in (dict, list):
            require_depth(value, limits, depth=depth)
        text = _encode_json(value)
        out += _PRESENT_LONG[len(text)]
        out += text

    return encode


def _encode_null(_value: Any, _out: bytearray) -> None:
    raise SchemaMismatch


def _encode_empty(value: Any, out: bytearray) -> None:
    if type(value) is not dict or value:
        raise SchemaMismatch
    out += b"\2\0"


def _encode_bool(value: Any, out: bytearray) -> None:
    if type(value) is not bool:
        raise SchemaMismatch
    out += b"\2\1" if value else b"\2\0"


def _encode_long53(value: Any, out: bytearray) -> None:
    if type(value) is not int or not -LONG53_MAX <= value <= LONG53_MAX:
        raise SchemaMismatch
    out += _PRESENT_LONG[value]


def _encode_long64(value: Any, out: bytearray) -> None:
    if type(value) is not int or not INT64_MIN <= value <= INT64_MAX:
        raise SchemaMismatch
    out += _PRESENT_LONG[value]


def _encode_double(value: Any, out: bytearray) -> None:
    if type(value) is not float and (type(value) is not int or not -LONG53_MAX <= value <= LONG53_MAX):
        raise SchemaMismatch
    out.append(2)
    out += pack_double(value)


def _encode_text(value: Any, out: bytearray) -> None:
    if type(value) is not str:
        raise SchemaMismatch
    text = value.encode()
    out += _PRESENT_LONG[len(text)]
    out += text


def _read(value: Any, read: Callable[[str], T], write: Callable[[T], str]) -> T:
    """Read a text in the one form that its type writes."""
    if type(value) is not str:
        raise SchemaMismatch
    try:
        found = read(value)
    except ValueError:
        raise SchemaMismatch from None
    if write(found) != value:
        raise SchemaMismatch
    return found


def _encode_bytes(value: Any, out: bytearray) -> None:
    data = _read(value, a2b_base64, lambda data: b2a_base64(data, newline=False).decode())
    out += _PRESENT_LONG[len(data)]
    out += data


def _encode_decimal(value: Any, out: bytearray) -> None:
    if type(value) is not str or not _DECIMAL.fullmatch(value):
        raise SchemaMismatch
    _encode_text(value, out)


def _encode_timestamp(value: Any, out: bytearray) -> None:
    moment = _read(
        value,
        lambda text: datetime.fromisoformat(text[:-1]).replace(tzinfo=None),
        lambda moment: f"{moment.isoformat(timespec='microseconds')}Z",
    )
    out += _PRESENT_LONG[(moment - _EPOCH) // _MICROSECOND]


def _encode_date(value: Any, out: bytearray) -> None:
    out += _PRESENT_LONG[_read(value, date.fromisoformat, date.isoformat).toordinal() - _EPOCH.toordinal()]


_SCALARS: dict[Scalar, Encode] = {
    Scalar.NULL: _encode_null,
    Scalar.BOOL: _encode_bool,
    Scalar.LONG53: _encode_long53,
    Scalar.LONG64: _encode_long64,
    Scalar.DOUBLE: _encode_double,
    Scalar.STRING: _encode_text,
    Scalar.BYTES: _encode_bytes,
    Scalar.DECIMAL: _encode_decimal,
    Scalar.TIMESTAMP: _encode_timestamp,
    Scalar.DATE: _encode_date,
}
