"""Text -> value of a setting: times and sizes with units, lists with commas, objects as JSON. Pure.

Each function takes a value from a source: a text of the environment, or a value of TOML or of an argument. A value that
is no text goes on to pydantic unchanged. A refusal names the expected form and never repeats the value, which may be a
secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime

_SECONDS: Mapping[str, float] = {"": 1, "ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_BYTES: Mapping[str, int] = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", start=1)},
    **{f"{letter}i{b}": 1024**power for power, letter in enumerate("kmgt", start=1) for b in ("", "b")},
}
_QUANTITY = re.compile(r"\s*([-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)
TIME = "must be a time such as 500ms, 30s, 5m, 1h or 1d, or a number of seconds"
SIZE = "must be a size such as 64KiB, 256MiB or 2GiB, or a whole number of bytes"
LIST = 'must be a list: a,b or, as JSON, ["a", "b"]'
START = "must be beginning, fail, or a time with its zone such as 2026-11-27T09:00:00Z, from which on records are read"
OBJECT = 'must be a JSON object such as {"name": "value"}'


def seconds_of(given: object) -> object:
    """Return the seconds of a time with its unit."""
    return _quantity(given, _SECONDS, TIME) if isinstance(given, str) else given


def bytes_of(given: object) -> object:
    """Return the bytes of a size with its unit."""
    return _quantity(given, _BYTES, SIZE) if isinstance(given, str) else given


def _quantity(text: str, units: Mapping[str, float], expected: str) -> float:
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2].lower() not in units:
        raise ValueError(expected)
    return float(match[1]) * units[match[2].lower()]


def start_of(given: object) -> object:
    """Return the start of a new group: `beginning`, `fail`, or a time in milliseconds since the epoch."""
    if given in ("beginning", "fail") or (type(given) is int and given >= 0):
        return given
    try:
        moment = given if isinstance(given, datetime) else datetime.fromisoformat(str(given))
    except ValueError:
        raise ValueError(START) from None
    if moment.tzinfo is None:
        raise ValueError(START)
    return max(0, round(moment.timestamp() * 1000))


def list_of(given: object) -> object:
    """Return the names in a text: a JSON list, or names with commas between them."""
    if not isinstance(given, str):
        return given
    text = given.strip()
    if text.startswith('"'):  # the quotes of a shell or of an env file that arrived with the value
        text = f"[{text}]"
    if not text.startswith("["):
        return [name.strip() for name in text.split(",") if name.strip()]
    return _json(text, list, LIST)


def object_of(given: object) -> object:
    """Return the object that a text is."""
    return _json(given, dict, OBJECT) if isinstance(given, str) else given


def property_of(given: object) -> object:
    """Return the value of a property as the text that its library reads; numbers and booleans become texts."""
    if isinstance(given, bool):
        return str(given).lower()
    return str(given) if isinstance(given, int | float) else given


def _json(text: str, kind: type, expected: str) -> object:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(expected) from None
    if not isinstance(value, kind):
        raise ValueError(expected)  # noqa: TRY004 - pydantic takes a ValueError for a refusal
    return value
