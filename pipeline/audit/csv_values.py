"""Values that CSV and the source have of an entry, in a form that can be compared in SQL: digests.

Owns which texts of CSV are which values. A string is its own text, an absent or null value the empty text; everything
else (numbers, booleans, arrays, objects) is equal if the text is JSON of an equal value (DESIGN 3.2). `True` is true,
since that is how some languages write it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from service.oracle.equal import canonical, digest

if TYPE_CHECKING:
    from service.oracle.json_text import Parse

_WORDS = ("true", "false")


def value_of_text(text: str, parse: Parse) -> dict[str, Any]:
    """Stand for a field of CSV: its text, and the value that it is JSON of (None: of none)."""
    word = text.lower()
    try:
        value = digest(canonical(parse(word if word in _WORDS else text)))
    except (json.JSONDecodeError, RecursionError):
        value = None
    return {"text": digest(text), "value": value}


def value_of_entry(value: object) -> dict[str, Any]:
    """Stand for what an entry has."""
    if value is None or isinstance(value, str):
        return {"is_text": True, "digest": digest(value or "")}
    return {"is_text": False, "digest": digest(canonical(value))}
