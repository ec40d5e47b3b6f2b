"""Values of entries that JSON lacks, as a format decodes them (DESIGN 3.3).

In the text of a row each is plain JSON, a string or an object: what it is says the type of the row.
"""

from __future__ import annotations

from binascii import b2a_base64
from typing import Any

import msgspec


class Bytes(str):
    """Bytes, as base64 with padding."""

    __slots__ = ()

    @classmethod
    def of(cls, data: bytes) -> Bytes:
        """Write bytes."""
        return cls(b2a_base64(data, newline=False).decode())


class Decimal(str):
    """A decimal number of any scale, as its digits: `1.250`."""

    __slots__ = ()


class Timestamp(str):
    """An instant of the years 1 to 9999, as RFC 3339 with six digits and `Z`: `2026-03-04T05:06:07.000000Z`."""

    __slots__ = ()


class Date(str):
    """A day of these years, as `2026-03-04`."""

    __slots__ = ()


class DeclaredMap(dict[str, Any]):
    """An object whose keys are data, however many they are."""

    __slots__ = ()


def number_or_text(number: float) -> float | str:
    """Return a number as JSON can have it: NaN and infinities are text."""
    if number - number == 0:
        return number
    return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"  # noqa: PLR0124 - as NaN does


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"{type(value)} is no value of an entry")


encode_json = msgspec.json.Encoder(enc_hook=_plain).encode
"""Writes a value as JSON text."""
