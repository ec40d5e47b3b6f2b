"""Equal (DESIGN 3.2): absent = null, numbers by value, the last of duplicate keys, everything else identical.

Owns the canonical form, in which equal entries are the same bytes, and the digest that stands for an entry. A
value that JSON lacks (`formats.values`) is its text there.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING

from log_partitioner.proof.oracle.json_text import Exact, exact

if TYPE_CHECKING:
    from collections.abc import Iterator

DIGEST_BYTES = 16
# No entry holds a lone surrogate, so an object under this key is nothing but a number.
NUMBER_KEY = "\ud800"
# From here on a double is infinite: the same number may come as an integer or as an overflowing literal.
_DOUBLE_OVERFLOW = 1 << 1024
_TEXT_CHARS_MAX = 60

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), check_circular=False).encode


def canonical(value: object) -> object:
    """Bring a parsed value into the form in which equal values are the same."""
    if type(value) is str:
        return value  # the most frequent first
    if isinstance(value, dict):
        return {key: canonical(item) for key, item in value.items() if item is not None}
    if type(value) is list:
        return [canonical(item) for item in value]
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, Exact):
        return {NUMBER_KEY: value.normal}
    if isinstance(value, int) and abs(value) >= _DOUBLE_OVERFLOW:
        return {NUMBER_KEY: exact(str(value)).normal}
    return str(value) if isinstance(value, str) else value


def digest(value: object) -> bytes:
    """Return the digest of a value in canonical form; equal values have equal digests."""
    return blake2b(_encode(value).encode(), digest_size=DIGEST_BYTES).digest()


def differences(expected: object, actual: object, path: str = "") -> Iterator[str]:
    """Yield the places at which two values in canonical form differ."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in sorted(expected.keys() | actual.keys()):
            yield from differences(expected.get(key), actual.get(key), f"{path}.{key}" if path else key)
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for index, (one, other) in enumerate(zip(expected, actual, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif type(expected) is not type(actual) or expected != actual:
        yield f"{path or 'entry'}: source {_shown(expected)}, file {_shown(actual)}"


def _shown(value: object) -> str:
    text = "absent" if value is None else _encode(value)
    return text if len(text) <= _TEXT_CHARS_MAX else text[: _TEXT_CHARS_MAX - 3] + "..."
