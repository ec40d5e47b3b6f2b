"""Avro's binary forms of long, double and string (Avro specification 1.12, "Binary encoding")."""

from __future__ import annotations

from struct import Struct

pack_double = Struct("<d").pack
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


def encode_string(value: str) -> bytes:
    """Encode a string: its length in bytes, then UTF-8."""
    encoded = value.encode()
    return encode_long(len(encoded)) + encoded
