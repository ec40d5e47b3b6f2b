"""Values of entries that JSON lacks, as a format decodes them (DESIGN 3.3).

In the text of a row each is plain JSON, a string or an object: what it is says the type of the row.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Bytes(str):
    """Bytes, as base64 with padding."""

    __slots__ = ()


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


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"{type(value)} is no value of an entry")


encode_json = msgspec.json.Encoder(enc_hook=_plain).encode
"""Writes a value as JSON text."""
