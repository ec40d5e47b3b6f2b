"""Avro's binary forms of long, double and string, and back (Avro specification 1.12, "Binary encoding")."""

from __future__ import annotations

from struct import Struct

_double = Struct("<d")
pack_double = _double.pack
_CONTINUES = 0x80  # the bit of a byte that says that more follow
_TWO_BYTES, _FOUR_BYTES = 1 << 14, 1 << 28
_LOW = _TWO_BYTES - 1
_GOING_ON = [bytes((low % 128 | _CONTINUES, low // 128 | _CONTINUES)) for low in range(_TWO_BYTES)]
_LAST = [bytes((n,)) if n < _CONTINUES else bytes((n % 128 | _CONTINUES, n // 128)) for n in range(_TWO_BYTES)]


def encode_long(value: int) -> bytes:
    """Encode an int64: zigzag, then seven bits a byte, lowest first; two bytes at a time from tables."""
    rest = (value << 1) ^ (value >> 63)
    if rest < _TWO_BYTES:
        return _LAST[rest]
    if rest < _FOUR_BYTES:
        return _GOING_ON[rest & _LOW] + _LAST[rest >> 14]
    out = _GOING_ON[rest & _LOW] + _GOING_ON[rest >> 14 & _LOW]
    rest >>= 28
    while rest >= _TWO_BYTES:
        out += _GOING_ON[rest & _LOW]
        rest >>= 14
    return out + _LAST[rest]


def decode_long(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Decode an int64 at `at`; returns the value and the position behind it."""
    byte = data[at]
    at += 1
    rest = byte & 0x7F
    shift = 7
    while byte & _CONTINUES:
        byte = data[at]
        at += 1
        rest |= (byte & 0x7F) << shift
        shift += 7
    return (rest >> 1) ^ -(rest & 1), at


def decode_double(data: bytes | memoryview, at: int) -> tuple[float, int]:
    """Decode a double at `at`; returns the value and the position behind it."""
    return _double.unpack_from(data, at)[0], at + 8


def encode_string(value: str) -> bytes:
    """Encode a string: its length in bytes, then UTF-8."""
    encoded = value.encode()
    return encode_long(len(encoded)) + encoded


def decode_string(data: bytes, at: int) -> tuple[str, int]:
    """Decode a string at `at`; returns the value and the position behind it."""
    length = data[at]
    at += 1
    if length < _CONTINUES:
        length >>= 1  # it is never negative
    else:
        length, at = decode_long(data, at - 1)
    return data[at : at + length].decode(), at + length
