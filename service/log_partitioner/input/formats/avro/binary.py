"""Bytes -> values: numbers, texts and items in Avro's binary encoding, as far as a record may grow."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.values import Bytes, number_or_text
from log_partitioner.input.formats.avro.logical import DECIMAL_BYTES_MAX
from log_partitioner.input.json_text import UndecodableError

VALUE_BYTES = 4  # of JSON, for a value with what parts it from the next
_VARINT_BITS = 70  # in ten bytes
_LONG_BITS, _INT_MAX = 64, 2**31 - 1
MORE, _DIGITS = 0x80, 0x7F
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")


class Cursor:
    """A payload, how far it is read, and the room for values that is left, in bytes of JSON."""

    __slots__ = ("at", "data", "room")

    def __init__(self, data: bytes, room: int) -> None:
        self.data, self.at, self.room = data, 0, room

    def take(self, count: int) -> bytes:
        """Read so many bytes."""
        begin, end = self.at, self.at + count
        if not begin <= end <= len(self.data):
            raise malformed(f"{count} bytes are due at byte {begin} of {len(self.data)}")
        self.at = end
        return self.data[begin:end]

    def make_room(self, size: int) -> None:
        """Count a value of so many bytes, before it takes memory."""
        self.room -= size
        if self.room < 0:
            raise UndecodableError(Reason.RECORD_TOO_LARGE, "as JSON it is larger than input.record_bytes_max")


Decode = Callable[[Cursor, int], Any]
"""Reads a value; if it is an object or a list, it stands at that depth."""


def malformed(message: str) -> UndecodableError:
    """Make the error of a payload that is no value of its schema."""
    return UndecodableError(Reason.MALFORMED, message)


def then(convert: Callable[[Any], Any], decode: Decode) -> Decode:
    """Read a value, and convert it."""
    return lambda cursor, depth: convert(decode(cursor, depth))


def items(cursor: Cursor) -> Iterator[None]:
    """Yield once for each item of a list or a map."""
    while count := long(cursor):
        if count < 0:
            long(cursor)  # bytes of the block
        for _ in range(abs(count)):
            cursor.make_room(VALUE_BYTES)
            yield


def long(cursor: Cursor, _depth: int = 0) -> int:
    """Read an integer of at most 64 bits."""
    data, at = cursor.data, cursor.at
    byte = data[at]
    at += 1
    if byte < MORE:
        cursor.at = at
        return (byte >> 1) ^ -(byte & 1)
    number, shift = byte & _DIGITS, 7
    while byte & MORE:
        if shift == _VARINT_BITS:
            raise malformed(f"the number at byte {cursor.at} has more than ten bytes")
        byte = data[at]
        at += 1
        number |= (byte & _DIGITS) << shift
        shift += 7
    if number >> _LONG_BITS:
        raise malformed(f"the number at byte {cursor.at} has more than 64 bits")
    cursor.at = at
    return (number >> 1) ^ -(number & 1)


def int32(cursor: Cursor, _depth: int) -> int:
    """Read an integer of at most 32 bits."""
    number = long(cursor)
    if not -_INT_MAX - 1 <= number <= _INT_MAX:
        raise malformed(f"{number} is no int")
    return number


def boolean(cursor: Cursor, _depth: int) -> bool:
    """Read 0 or 1."""
    byte = cursor.data[cursor.at]
    if byte > 1:
        raise malformed(f"{byte} is no boolean")
    cursor.at += 1
    return byte == 1


def floating(form: struct.Struct) -> Decode:
    """Read a number of a width; NaN and infinities are text."""

    def decode(cursor: Cursor, _depth: int) -> float | str:
        (number,) = form.unpack_from(cursor.data, cursor.at)
        cursor.at += form.size
        return number_or_text(number)

    return decode


def binary(cursor: Cursor, _depth: int) -> bytes:
    """Read a length, and so many bytes."""
    return cursor.take(long(cursor))


def short_bytes(cursor: Cursor, depth: int) -> bytes:
    """Read bytes, few enough to be the digits of a number."""
    data = binary(cursor, depth)
    if len(data) > DECIMAL_BYTES_MAX:
        raise malformed(f"a decimal of {len(data)} bytes")
    return data


def string(cursor: Cursor, _depth: int = 0) -> str:
    """Read a length, and so many bytes of UTF-8."""
    size, begin = long(cursor), cursor.at
    cursor.at = end = begin + size
    if not begin <= end <= len(cursor.data):
        raise malformed(f"{size} bytes are due at byte {begin} of {len(cursor.data)}")
    try:
        return cursor.data[begin:end].decode()
    except UnicodeDecodeError as error:
        raise UndecodableError(Reason.INVALID_UNICODE, str(error)) from error


PRIMITIVES: dict[str, Decode] = {
    "null": lambda _cursor, _depth: None,
    "boolean": boolean,
    "int": int32,
    "long": long,
    "float": floating(_FLOAT),
    "double": floating(_DOUBLE),
    "bytes": then(Bytes.of, binary),
    "string": string,
}
