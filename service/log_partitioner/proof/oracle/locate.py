"""Finds user, event time and id (docs/INPUTS.md) in the entry, the envelope, the key or a header.

Owns paths and the policies for values that are missing or absurd.
"""

from __future__ import annotations

import json
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from log_partitioner.formats.model import CHAIN_HEADER, RootLink
from log_partitioner.proof.oracle.json_text import (
    Exact,
    Parse,
    holds_lone_surrogates,
    may_hold_surrogates,
    parse_rounding,
)
from log_partitioner.proof.oracle.times import END_US, FIRST_US, read_bound, read_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from log_partitioner.config.settings import TimeSettings, UserSettings
    from log_partitioner.formats.model import SourceRecord
    from log_partitioner.proof.oracle.decode import JsonObject

_TOPIC_CHARS_MAX = 249
_USER_CHARS_MAX = 4096
_EXACT_MAX = 1 << 53  # every integer up to it is a double


class Path(NamedTuple):
    """A place to look: `origin` is entry, envelope, key or header; without `keys` it is the whole record key.

    An empty key leads into JSON text.
    """

    origin: str
    keys: tuple[str, ...]


def parse_path(text: str) -> Path:
    """Read a path as settings write it."""
    if text == "key":
        return Path("key", ())
    origin, colon, keys = text.partition(":")
    if origin == "header" and colon:
        return Path(origin, (keys,))
    if origin not in ("envelope", "key") or not colon:
        origin, keys = "entry", text
    marked = keys.replace("\\.", "\0").replace("\\:", "\1").replace("::", "..")
    return Path(origin, tuple(part.replace("\0", ".").replace("\1", ":") for part in marked.split(".")))


class Surroundings:
    """The parts of a record that all its entries share: envelope, key and headers."""

    def __init__(self, record: SourceRecord, envelope: JsonObject | None, parse: Parse) -> None:
        self.envelope = envelope
        self.record = record
        self._parse = parse

    def within(self, envelope: JsonObject | None) -> Surroundings:
        """Return the same around an entry of another envelope."""
        if envelope is self.envelope:
            return self
        other = copy(self)
        other.envelope = envelope
        return other

    @cached_property
    def key_text(self) -> str | None:
        """The record key as text."""
        return _utf8(self.record.key)

    @cached_property
    def key_json(self) -> object:
        """The record key as JSON; None if it is not JSON."""
        return self.json_in(self.key_text)

    def json_in(self, text: object) -> object:
        """Return the value of a JSON text; None if it is not JSON."""
        if not isinstance(text, str):
            return None
        try:
            value = self._parse(text)
        except (json.JSONDecodeError, RecursionError):
            return None
        return None if may_hold_surrogates(text) and holds_lone_surrogates(value) else value

    @cached_property
    def headers(self) -> dict[str, str | None]:
        """The last header of each name as text."""
        return {name: _utf8(value) for name, value in self.record.headers}


def values_at(paths: tuple[Path, ...], entry: JsonObject, around: Surroundings) -> Iterator[object]:
    """Yield the value at each path, in order, without those that are absent or null."""
    for origin, keys in paths:
        value: object = entry
        if origin == "envelope":
            value = around.envelope
        elif origin == "header":
            value = around.headers
        elif origin == "key":
            value = around.key_json if keys else around.key_text
        for key in keys:
            value = around.json_in(value) if not key else value.get(key) if isinstance(value, dict) else None
        if value is not None:
            yield value


def text_of(value: object) -> str | None:
    """Return a string, or an integer in any form of JSON, as text; None for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, float) and -_EXACT_MAX <= value <= _EXACT_MAX and value == int(value):
        return str(int(value))
    return value.literal if isinstance(value, Exact) and value.is_integer else None


def root_of(around: Surroundings) -> RootLink | None:
    """Return the first link of a record's source topic chain (DESIGN 3.8): [topic, partition, offset, index, ...].

    A link beyond Kafka's bounds does not count, nor does a link with an invalid index: without it, two outputs of one
    root would look like a replay.
    """
    try:
        links = parse_rounding(around.headers.get(CHAIN_HEADER) or "")
    except (ValueError, RecursionError):
        return None
    return link_of(links[0]) if isinstance(links, list) and links else None


def link_of(link: Any) -> RootLink | None:
    """Return the first parts of a link; None if it is not one."""
    match link:
        case [str(topic), partition, offset, *more] if (
            len(topic) <= _TOPIC_CHARS_MAX and _is_natural(partition, bits=31) and _is_natural(offset, bits=63)
        ):
            index = more[0] if more else None
            if index is None or _is_natural(index, bits=31):
                return RootLink(topic, partition, offset, index)
    return None


def _is_natural(number: object, *, bits: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 1 << bits


def id_of(paths: tuple[Path, ...], entry: JsonObject, around: Surroundings) -> str | None:
    """Return the unique id of an entry as text, or None if there is none."""
    texts = map(text_of, values_at(paths, entry, around))
    return next((text for text in texts if text is not None), None)


class UserRule:
    """Finds the user of an entry."""

    def __init__(self, settings: UserSettings) -> None:
        self._paths = tuple(map(parse_path, settings.paths))
        self._no_values = frozenset(settings.no_values)
        self._otherwise = settings.missing_name

    def user_of(self, entry: JsonObject, around: Surroundings) -> str | None:
        """Return the user, or None if the entry is dead for want of one."""
        for value in values_at(self._paths, entry, around):
            text = text_of(value)
            if text is not None and text not in self._no_values:
                return text if len(text) <= _USER_CHARS_MAX else None
        return self._otherwise


class TimeRule:
    """Finds the event time of an entry."""

    def __init__(self, settings: TimeSettings) -> None:
        self._settings = settings
        self._paths = tuple(map(parse_path, settings.paths))
        self._zone = settings.zone
        self._earliest_us = read_bound(str(settings.earliest), self._zone)
        self._ahead_us = round(settings.future_max_s * 1_000_000)

    def time_of(self, entry: JsonObject, around: Surroundings, timestamp_ms: int | None) -> int | None:
        """Return the event time in microseconds, or None if the entry is dead for want of one."""
        rules, latest_us = self._settings, self._latest_us(timestamp_ms)
        for value in values_at(self._paths, entry, around):
            time_us = read_time(value, unit=rules.epoch_unit, zone=self._zone, form=rules.format, latest_us=latest_us)
            if time_us is not None:
                if max(self._earliest_us, FIRST_US) <= time_us < END_US and (latest_us is None or time_us <= latest_us):
                    return time_us
                break
        if self._settings.missing == "dead-letter" or timestamp_ms is None or not 0 <= timestamp_ms * 1_000 < END_US:
            return None
        return timestamp_ms * 1_000

    def _latest_us(self, timestamp_ms: int | None) -> int | None:
        """Return the end of the window; None if the record's timestamp is no clock's."""
        if timestamp_ms is None or timestamp_ms * 1_000 < self._earliest_us:
            return None
        return timestamp_ms * 1_000 + self._ahead_us


def _utf8(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
