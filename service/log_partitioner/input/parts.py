"""Parts of a document: JSON text that is not read yet, as bytes, or values that a format has read.

JSON text is split before it is decoded, so that a bad element costs its neighbours nothing.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.values import encode_json
from log_partitioner.input.json_text import (
    FAST_REFUSALS,
    WHITE,
    JsonDecoder,
    UndecodableError,
    split_array,
    split_object,
)

_COMMAS_MAX = 500_000  # of a text with more of them the elements are counted before it is taken apart
_elements_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_members_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])

T = TypeVar("T")


class PartReader:
    """Takes parts apart, and reads them."""

    def __init__(self, json: JsonDecoder, *, elements_max: int) -> None:
        self._json = json
        self._elements_max = elements_max

    def value(self, part: Any) -> Any:
        """Return the value of a part.

        Raises:
            UndecodableError: it is no JSON value we take.
        """
        if type(part) is not bytes:
            return part
        try:
            return self._json.decode_fast(part)
        except FAST_REFUSALS:
            return self._json.decode_tolerant(part)

    def elements(self, part: Any) -> list[Any]:
        """Return the elements of a list as parts, whatever is in them.

        Raises:
            UndecodableError: they are too many, or their text does not tell where one ends.
        """
        if type(part) is list:
            return not_too_many(part, self._elements_max)
        if part.count(b",") > _COMMAS_MAX:  # millions of elements would each take memory
            return split_array(part, elements_max=self._elements_max)
        try:
            elements = _elements_decoder.decode(part)
        except FAST_REFUSALS:
            return split_array(part, elements_max=self._elements_max)
        return [bytes(element) for element in not_too_many(elements, self._elements_max)]


def is_list(part: Any) -> bool:
    """Return whether a part is a list, or begins as one."""
    return part.lstrip(WHITE)[:1] == b"[" if type(part) is bytes else type(part) is list


def is_object(part: Any) -> bool:
    """Return whether a part is an object, or begins as one."""
    return part.lstrip(WHITE)[:1] == b"{" if type(part) is bytes else isinstance(part, dict)


def members_of(part: Any) -> dict[str, Any]:
    """Return the values of an object by key as parts, whatever is in them; the last of a key counts.

    Raises:
        UndecodableError: its text does not tell where a member ends.
    """
    if isinstance(part, dict):
        return dict(part)
    try:
        return {name: bytes(value) for name, value in _members_decoder.decode(part).items()}
    except FAST_REFUSALS:
        return split_object(part)


def text_of(part: Any) -> bytes:
    """Return the JSON text of a part."""
    return part if type(part) is bytes else encode_json(part)


def not_too_many(items: list[T], limit: int) -> list[T]:
    """Return the items.

    Raises:
        UndecodableError: they are more than a record may have.
    """
    if len(items) > limit:
        raise UndecodableError(Reason.TOO_MANY_ENTRIES, f"more than {limit} entries")
    return items
