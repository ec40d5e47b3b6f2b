"""Values of an entry in CSV and in the source, in a form that SQL can compare: digests.

Owns the meaning of CSV texts as values. A string is its own text, an absent or null value the empty text; everything
else (numbers, booleans, arrays, objects) is equal if the text is JSON of an equal value (DESIGN 3.2). `True` is true,
because some languages write it so.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from log_partitioner.proof.oracle.equal import canonical, digest

if TYPE_CHECKING:
    from log_partitioner.proof.oracle.json_text import Parse

_WORDS = ("true", "false")


def value_of_text(text: str, parse: Parse) -> dict[str, Any]:
    """Return the digests of a field of CSV: of its text, and of the value if the text is JSON (else None)."""
    word = text.lower()
    try:
        value = digest(canonical(parse(word if word in _WORDS else text)))
    except (json.JSONDecodeError, RecursionError):
        value = None
    return {"text": digest(text), "value": value}


def value_of_entry(value: object) -> dict[str, Any]:
    """Return the digest of a value of an entry."""
    if value is None or isinstance(value, str):
        return {"is_text": True, "digest": digest(value or "")}
    return {"is_text": False, "digest": digest(canonical(value))}
