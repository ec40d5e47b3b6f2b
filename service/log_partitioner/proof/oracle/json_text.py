"""JSON text to Python values, strictly, with exact numbers.

Owns the JSON that the audit accepts, and its form of numbers; knows nothing of records.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import NamedTuple

# What int() converts without a process-wide setting; longer integers are legal JSON all the same.
_INTEGER_DIGITS_MAX = 4300
_NUMBER = re.compile(r"(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_BRACKET = re.compile(r'"(?:[^"\\]+|\\.)*"?|[\[\]{}]', re.DOTALL)

Parse = Callable[[str], object]
"""Parses JSON; raises json.JSONDecodeError (for NaN and Infinity, too), RecursionError beyond what settings allow."""


class Exact(NamedTuple):
    """A number that neither int nor float holds here: its literal and a form equal for equal numbers."""

    literal: str
    normal: str

    @property
    def is_integer(self) -> bool:
        """Whether it was written as an integer."""
        return self.literal.lstrip("-").isdecimal()


def exact(literal: str) -> Exact:
    """Hold a number by its digits."""
    return Exact(literal, _normal(literal))


def may_hold_surrogates(text: str) -> bool:
    """Return whether a closer look for lone surrogates is needed."""
    # The scan costs more than parsing; text of which neither is true, as most is, holds neither form.
    return (not text.isascii() or "\\u" in text) and _SURROGATE_ESCAPE.search(text) is not None


def holds_invalid_bytes(text: str) -> bool:
    """Return whether text that was decoded with `surrogateescape` held bytes that are not UTF-8."""
    return _SURROGATE.search(text) is not None


def holds_lone_surrogates(value: object) -> bool:
    """Return whether a parsed value holds a string that is not Unicode."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def depth_of_text(text: str) -> int:
    """Count the levels of nesting in text that need not be valid JSON."""
    depth = deepest = 0
    for token in _BRACKET.finditer(text):
        if token[0] in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif token[0] in "]}":
            depth -= 1
    return deepest


def depth_of(value: object) -> int:
    """Count the levels of nesting of a value; a scalar has none."""
    depth, level = 0, [value]
    while found := [one for one in level if isinstance(one, dict) or type(one) is list]:
        depth += 1
        level = [inner for one in found for inner in (one.values() if isinstance(one, dict) else one)]
    return depth


def _normal(literal: str) -> str:
    match = _NUMBER.fullmatch(literal)
    assert match is not None, f"{literal[:40]!r} is not a JSON number"
    sign, whole, fraction, exponent = match[1], match[2], match[3] or "", match[4] or "0"
    if len(exponent) > _INTEGER_DIGITS_MAX:
        return literal
    digits = (whole + fraction).lstrip("0")
    significant = digits.rstrip("0")
    if not significant:
        return "0"
    return f"{sign}{significant}e{int(exponent) - len(fraction) + len(digits) - len(significant)}"


def _integer(literal: str) -> int | Exact:
    return int(literal) if len(literal) <= _INTEGER_DIGITS_MAX else exact(literal)


def _rounded(literal: str) -> float | Exact:
    number = float(literal)
    return exact(literal) if math.isinf(number) else number


def _kept(literal: str) -> float | Exact:
    number = float(literal)
    if math.isinf(number) or _normal(repr(number)) != _normal(literal):
        return exact(literal)
    return number


def _refuse(literal: str) -> object:
    raise json.JSONDecodeError("not a JSON number", literal, 0)


parse_rounding: Parse = json.JSONDecoder(parse_float=_rounded, parse_int=_integer, parse_constant=_refuse).decode
"""A number that a double does not hold is rounded to the nearest."""
parse_keeping: Parse = json.JSONDecoder(parse_float=_kept, parse_int=_integer, parse_constant=_refuse).decode
"""A number that a double does not hold is kept as `Exact`."""
