"""JSON text -> values: a fast decoder, and a tolerant one for text that the fast one refuses (docs/INPUTS.md).

Integers are exact. A number that a double does not hold is rounded and counted, or kept as `msgspec.Raw`; one beyond
the doubles is always kept. Duplicate keys: the last wins. NaN and Infinity are not JSON.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

import msgspec

from log_partitioner.formats.dead_letter import Reason

WHITE = b" \t\r\n"  # JSON's: a form feed is none
_EXACT_CHARS = 16  # 15 significant digits and a point: every decimal of that length survives a double,
_EXACT_FROM = 2.3e-308  # from here on: smaller ones have fewer bits
_INT_DIGITS_MAX = 4300  # beyond it Python refuses to make an int (CVE-2020-10735); such a number is kept as text


class UndecodableError(ValueError):
    """The text is not a JSON value that we accept; `reason` is the reason of its dead letter."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class JsonDecoder:
    """Decodes JSON text; `rounded` counts the numbers that lost digits so far."""

    def __init__(self, *, keep_inexact_text: bool) -> None:
        self.rounded = 0
        self._keep_inexact_text = keep_inexact_text
        # Decodes, or raises one of FAST_REFUSALS: then `decode_tolerant` has to look again.
        self.decode_fast: Callable[[bytes], Any] = msgspec.json.Decoder(float_hook=self._float).decode
        # Rounded numbers were counted the first time.
        self._again = self.decode_fast if keep_inexact_text else msgspec.json.Decoder().decode

    def decode_again(self, text: bytes) -> Any:
        """Decode text again with the same result as the first time."""
        try:
            return self._again(text)
        except FAST_REFUSALS:
            return self.decode_tolerant(text)

    def decode_tolerant(self, text: bytes) -> Any:
        """Decode one value that the fast decoder refused.

        Raises:
            UndecodableError: it is no JSON, or holds text that no UTF-8 can hold, or nests without end.
        """
        try:
            value = json.loads(
                text.decode(), parse_int=self._int, parse_float=self._float, parse_constant=_refuse_constant
            )
            json.dumps(value, ensure_ascii=False, default=_no_text).encode()
        except UnicodeError as error:
            raise UndecodableError(Reason.INVALID_UNICODE, str(error)) from error
        except RecursionError as error:
            raise UndecodableError(Reason.TOO_DEEP, "nested without end") from error
        except ValueError as error:
            raise UndecodableError(Reason.MALFORMED, str(error)) from error
        return value

    def _float(self, text: str) -> float | msgspec.Raw:
        value = float(text)
        if _EXACT_FROM <= value < math.inf and len(text) <= _EXACT_CHARS:  # most are
            return value
        if math.isinf(value):
            return msgspec.Raw(text.encode())
        if (len(text) > _EXACT_CHARS or abs(value) < _EXACT_FROM) and not _holds(value, text):
            if self._keep_inexact_text:
                return msgspec.Raw(text.encode())
            self.rounded += 1
        return value

    def _int(self, text: str) -> int | msgspec.Raw:
        return int(text) if len(text) <= _INT_DIGITS_MAX else msgspec.Raw(text.encode())


FAST_REFUSALS = (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _holds(value: float, text: str) -> bool:
    """Return whether a double is exactly the number of a literal."""
    try:
        return Decimal(text) == Decimal(repr(value))
    except InvalidOperation:  # an exponent beyond Decimal's own: only a zero is still exact
        return not text.lower().partition("e")[0].strip("-0.")


def _no_text(value: Any) -> None:
    """Stand in for a number kept as text while strings are checked."""
    assert isinstance(value, msgspec.Raw), f"JSON has no {type(value).__name__}"


_TOKEN = re.compile(rb'"(?>(?:[^"\\]|\\.)*)"|[]["{},]', re.DOTALL)  # a quote alone: a string that never ends
_CLOSES = {b"]": b"[", b"}": b"{"}
_KEY = re.compile(rb'[ \t\r\n]*("(?:[^"\\]|\\.)*")[ \t\r\n]*:', re.DOTALL)


def split_array(text: bytes, *, elements_max: int) -> list[bytes]:
    """Split the text of an array into the texts of its elements, whatever is in them.

    Raises:
        UndecodableError: it is not an array, or its brackets and quotes do not tell where elements end, or it has
            more elements than that.
    """
    return _split(text, b"[", b"]", parts_max=elements_max)


def split_object(text: bytes) -> dict[str, bytes]:
    """Split the text of an object into the texts of its values by key, whatever is in them.

    Raises:
        UndecodableError: it is not an object, or its keys, brackets and quotes do not tell where values end.
    """
    members = ((member, _key_in(member)) for member in _split(text, b"{", b"}", parts_max=len(text)))
    return {_text_of(key[1]): member[key.end() :] for member, key in members}


def with_member(text: bytes, key: str, value: bytes) -> bytes:
    """Return the text of an object with another value of one of its members, the last of that key.

    Raises:
        UndecodableError: as `split_object`.
    """
    members = _split(text, b"{", b"}", parts_max=len(text))
    keys = [_key_in(member) for member in members]
    at = max(number for number, found in enumerate(keys) if _text_of(found[1]) == key)
    members[at] = members[at][: keys[at].end()] + value
    return b"{%b}" % b",".join(members)


def _key_in(member: bytes) -> re.Match[bytes]:
    key = _KEY.match(member)
    if key is None:
        raise UndecodableError(Reason.MALFORMED, "a member of an object has no key")
    return key


def _text_of(key: bytes) -> str:
    """Decode a key; one that no UTF-8 can hold would fail later, when it is written."""
    try:
        text: str = json.loads(key.decode())
        text.encode()
    except UnicodeError as error:
        raise UndecodableError(Reason.INVALID_UNICODE, str(error)) from error
    except ValueError as error:
        raise UndecodableError(Reason.MALFORMED, str(error)) from error
    return text


def _split(text: bytes, opening: bytes, closing: bytes, *, parts_max: int) -> list[bytes]:
    """Split at the commas that stand directly inside the outermost brackets."""
    text = text.strip(WHITE)
    if not (text.startswith(opening) and text.endswith(closing)):
        raise UndecodableError(Reason.MALFORMED, "neither an object nor an array")
    elements = []
    open_brackets: list[bytes] = []
    start = 1
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark in (b"[", b"{"):
            open_brackets.append(mark)
        elif mark in _CLOSES:
            if not open_brackets or open_brackets.pop() != _CLOSES[mark]:
                raise UndecodableError(Reason.MALFORMED, f"a bracket at byte {token.start()} closes nothing")
            if not open_brackets and token.end() != len(text):
                raise UndecodableError(Reason.MALFORMED, f"the text goes on at byte {token.end()} of {len(text)}")
        elif mark == b'"':  # looking on would cost the square of the length
            raise UndecodableError(Reason.MALFORMED, f"the string at byte {token.start()} never ends")
        elif mark == b"," and len(open_brackets) == 1:
            elements.append(text[start : token.start()])
            start = token.end()
            if len(elements) >= parts_max:  # and one more follows the comma
                raise UndecodableError(Reason.TOO_MANY_ENTRIES, f"more than {parts_max} entries")
    if open_brackets:
        raise UndecodableError(Reason.MALFORMED, f"{len(open_brackets)} brackets stay open")
    last = text[start:-1]
    if elements or last.strip(WHITE):
        elements.append(last)
    return elements
