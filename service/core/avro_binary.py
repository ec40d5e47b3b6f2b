"""Avro's binary forms of long, double and string, and back (Avro specification 1.12, "Binary encoding")."""

from __future__ import annotations

from struct import Struct

_double = Struct("<d")
pack_double = _double.pack
_CONTINUES = 0x80  # the bit of a byte that says that more follow


def encode_long(value: int) -> bytes:
    """Encode an int64: zigzag, then seven bits a byte, lowest first."""
    rest = (value << 1) ^ (value >> 63)
    if rest < _CONTINUES:
        return bytes((rest,))
    out = bytearray()
    while rest >= _CONTINUES:
        out.append((rest & 0x7F) | _CONTINUES)
        rest >>= 7
    out.append(rest)
    return bytes(out)


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
    length, at = decode_long(data, at)
    return data[at : at + length].decode(), at + length
