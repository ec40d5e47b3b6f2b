r"""Finds the user, event time and id of an entry by paths, compiled once (DESIGN 3.1), and the root of a record.

a.b            key `b` in the object under key `a` of the entry; `\.` is a dot inside a key
a::b           key `b` in the JSON text under key `a`; `\:` is a colon inside a key
envelope:a.b   the same in the envelope
key            the record key as text;    key:a.b   the record key read as a JSON object
header:name    the last header of that name, as text

The root is the first link of the source topic chain (DESIGN 3.8, `chain.py`). Its header holds a JSON list of [topic,
partition, offset], the first link first; a link may have an output index as its fourth part. If a record has several
such headers, the last one counts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import msgspec

from log_partitioner.config.section import INSIDE, parse_path
from log_partitioner.formats.model import CHAIN_HEADER, RootLink, SourceRecord

_INT_DIGITS_MAX = 4300  # beyond it Python refuses to make an int

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
            return lambda _entry, _envelope, record: _header(record, keys[0])
        case "key" if not keys:
            return lambda _entry, _envelope, record: _text(record.key)
        case "key":
            return lambda _entry, _envelope, record: _walk(_json_object(record.key), keys)
        case "envelope":
            return lambda _entry, envelope, _record: _walk(envelope, keys)
    return lambda entry, _envelope, _record: _walk(entry, keys)


def _walk(value: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        if key == INSIDE:
            value = _json_object(value) if type(value) is str else None
            continue
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def _header(record: SourceRecord, name: str) -> str | None:
    for header, value in reversed(record.headers):
        if header == name:
            return _text(value)
    return None


def _text(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _json_object(value: bytes | str | None) -> Any:
    if not value:
        return None
    try:
        return msgspec.json.decode(value)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _with_any_numbers(value)


def _with_any_numbers(value: bytes | str) -> Any:
    """Decode JSON that may have numbers which neither an int nor a double holds; None if it is none."""
    try:
        text = value if isinstance(value, str) else value.decode()
        found = json.loads(text, parse_int=_int, parse_float=_float, parse_constant=_refuse)
        json.dumps(found, ensure_ascii=False, default=repr).encode()  # refuses what no UTF-8 can hold
    except (ValueError, RecursionError):
        return None
    return found


def _int(digits: str) -> int | msgspec.Raw:
    return int(digits) if len(digits) <= _INT_DIGITS_MAX else msgspec.Raw(digits.encode())


def _float(text: str) -> float | msgspec.Raw:
    value = float(text)
    return msgspec.Raw(text.encode()) if math.isinf(value) else value


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


TOPIC_CHARS_MAX = 249

TopicName = Annotated[str, msgspec.Meta(max_length=TOPIC_CHARS_MAX)]
Int32 = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Int64 = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _Link(msgspec.Struct, array_like=True):
    """A link that a row can hold: Kafka's bounds, which are those of Avro's int and long. Further parts are ignored."""

    topic: TopicName
    partition: Int32
    offset: Int64
    index: Int32 | None = None


_chain_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_link_decoder = msgspec.json.Decoder(_Link)


def root_of(record: SourceRecord) -> RootLink | None:
    """Return the first link of a record's chain; None if there is no chain, or it cannot be read."""
    for name, value in reversed(record.headers):
        if name == CHAIN_HEADER:
            return _first_link(value)
    return None


def _first_link(value: bytes | None) -> RootLink | None:
    try:
        links = _chain_decoder.decode(value or b"[]")
        link = _link_decoder.decode(links[0]) if links else None
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return RootLink(link.topic, link.partition, link.offset, link.index) if link else None
