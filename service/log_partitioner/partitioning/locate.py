r"""Finds the user, event time and id of an entry by paths, compiled once (docs/INPUTS.md).

a.b            key `b` in the object under key `a` of the entry; `\.` is a dot inside a key
a::b           key `b` in the JSON text under key `a`; `\:` is a colon inside a key
envelope:a.b   the same in the envelope
key            the record key as text;    key:a.b   the record key read as a JSON object
header:name    the last header of that name, as text
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from log_partitioner.config.section import INSIDE, parse_path
from log_partitioner.formats.model import SourceRecord, last_header
from log_partitioner.input.json_text import JsonDecoder, UndecodableError

_inner = JsonDecoder(keep_inexact_text=False)

Locate = Callable[[dict[str, Any], dict[str, Any] | None, SourceRecord], Any]


def is_plain(path: str) -> bool:
    """Tell whether a path leads into the entry or its envelope, but into no text, or is the record key as text."""
    begin, keys = parse_path(path)
    return (begin in ("entry", "envelope") and INSIDE not in keys) or (begin == "key" and not keys)


def compile_path(path: str) -> Locate:
    """Compile one path; the result gives None if nothing is found, and never raises.

    Raises:
        ValueError: the path is not of the form above.
    """
    begin, keys = parse_path(path)
    match begin:
        case "header":
            return lambda _entry, _envelope, record: _text(last_header(record.headers, keys[0]))
        case "key" if not keys:
            return lambda _entry, _envelope, record: _text(record.key)
        case "key":
            return lambda _entry, _envelope, record: _walk(_value_in(record.key), keys)
        case "envelope":
            return lambda _entry, envelope, _record: _walk(envelope, keys)
    return lambda entry, _envelope, _record: _walk(entry, keys)


def _walk(value: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        if key == INSIDE:
            value = _value_in(value) if type(value) is str else None
            continue
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def _text(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _value_in(value: bytes | str | None) -> Any:
    """Read JSON text inside a value; None if it is not JSON."""
    try:
        return _inner.decode_again(value.encode() if isinstance(value, str) else value) if value else None
    except UndecodableError:
        return None
