"""Entry -> PartitionKey: its user, and date and hour of its event time (docs/INPUTS.md)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Any, NamedTuple, TypeGuard

import msgspec

from log_partitioner.config.section import parse_path
from log_partitioner.config.settings import Settings
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.model import PartitionKey, SourceRecord
from log_partitioner.partitioning.event_time import LATEST_US, is_absurd, parse_event_time
from log_partitioner.partitioning.locate import Locate, compile_path

USER_CHARS_MAX = 4096
_EXACT_MAX = 2.0**53
_KINDS = {str: "in user.no_values", bool: "true or false", dict: "an object", list: "an array"}


class Placement(NamedTuple):
    """The place of an entry; `fallback_time` is true if the record's timestamp stood in for its event time."""

    key: PartitionKey
    event_time_us: int
    unique_id: str | None
    fallback_time: bool


class Rejection(NamedTuple):
    """Why an entry has no PartitionKey."""

    reason: Reason
    message: str


class Partitioner:
    """Finds the PartitionKey, event time and id of entries by one set of rules."""

    def __init__(self, settings: Settings) -> None:
        self._user_rules, self._time_rules = settings.user, settings.time
        self._no_users = frozenset(settings.user.no_values)
        paths = (settings.user.paths, settings.time.paths, settings.id.paths)
        self._users, self._times, self._ids = map(_compiled, paths)
        self._unit_us, self._date_and_hour = date_and_hour_in(settings.partition.zone)

    def partition(
        self, entry: dict[str, Any], envelope: dict[str, Any] | None, record: SourceRecord
    ) -> Placement | Rejection:
        """Return the place of one entry of a record, or why it is rejected."""
        user = self._user(entry, envelope, record)
        if user is None:
            return Rejection(Reason.NO_USER, self._nobody(entry, envelope, record))
        if len(user) > USER_CHARS_MAX:
            return Rejection(Reason.NO_USER, f"a user of {len(user)} characters, the limit is {USER_CHARS_MAX}")
        event_time_us = self._event_time(entry, envelope, record)
        fallback = event_time_us is None
        if event_time_us is None:
            timestamp_ms = record.timestamp_ms
            if self._time_rules.missing == "dead-letter" or not _is_date(timestamp_ms):
                return Rejection(Reason.NO_EVENT_TIME, "no path of time.paths yields a time within the window")
            event_time_us = timestamp_ms * 1000
        unique_id = self._id(entry, envelope, record) if self._ids else None
        date, hour = self._date_and_hour(event_time_us // self._unit_us)
        return Placement(PartitionKey(user, date, hour), event_time_us, unique_id, fallback)

    def _user(self, entry: dict[str, Any], envelope: dict[str, Any] | None, record: SourceRecord) -> str | None:
        for name, locate in self._users:
            found = locate(entry, envelope, record) if name is None else entry.get(name)
            user = found if type(found) is str else as_name(found)
            if user is not None and user not in self._no_users:
                return user
        return self._user_rules.missing_name

    def _nobody(self, entry: dict[str, Any], envelope: dict[str, Any] | None, record: SourceRecord) -> str:
        """Say why the entry has no user, without quoting any value."""
        found = [locate(entry, envelope, record) for _, locate in self._users]
        told = [
            f"{path} is {_KINDS.get(type(value), 'no integer')}"
            for path, value in zip(self._user_rules.paths, found, strict=True)
            if value is not None
        ]
        return ": ".join(["no path of user.paths yields a user", *filter(None, [", ".join(told)])])

    def _event_time(self, entry: dict[str, Any], envelope: dict[str, Any] | None, record: SourceRecord) -> int | None:
        """Return the first readable time; None if there is none, or it is absurd."""
        for name, locate in self._times:
            found = locate(entry, envelope, record) if name is None else entry.get(name)
            event_time_us = parse_event_time(found, self._time_rules, record.timestamp_ms)
            if event_time_us is not None:
                absurd = is_absurd(event_time_us, record_timestamp_ms=record.timestamp_ms, rules=self._time_rules)
                return None if absurd else event_time_us
        return None

    def _id(self, entry: dict[str, Any], envelope: dict[str, Any] | None, record: SourceRecord) -> str | None:
        for _, locate in self._ids:
            name = as_name(locate(entry, envelope, record))
            if name is not None:
                return name
        return None


def _compiled(paths: tuple[str, ...]) -> list[tuple[str | None, Locate]]:
    """Compile paths; one of a key of the entry, which is most frequent, is that key, too."""
    parsed = map(parse_path, paths)
    keys = [keys[0] if begin == "entry" and len(keys) == 1 else None for begin, keys in parsed]
    return list(zip(keys, map(compile_path, paths), strict=True))


def _is_date(timestamp_ms: int | None) -> TypeGuard[int]:
    return timestamp_ms is not None and 0 <= timestamp_ms < LATEST_US // 1000


def as_name(value: Any) -> str | None:
    """Read a value as a user or an id: a string, or an integer as decimal text; nothing else is one.

    An integer is one however it is written: 42, 42.0 and 4.2e1, as far as every double is exact.
    """
    if type(value) is str:
        return value
    if type(value) is float:
        return str(int(value)) if value.is_integer() and abs(value) <= _EXACT_MAX else None
    if type(value) is msgspec.Raw:  # a number kept as text: an integer of more digits than Python takes
        text = bytes(value).decode()
        return text if text.lstrip("-").isdigit() else None
    return str(value) if type(value) is int or isinstance(value, str) else None


def date_and_hour_in(zone: tzinfo) -> tuple[int, Callable[[int], tuple[str, int]]]:
    """Return a span in microseconds that never crosses an hour of a zone, and a function: its number -> date, hour."""
    unit_s = 3600 if zone is UTC or str(zone) == "UTC" else 1

    @lru_cache(maxsize=10_000)
    def date_and_hour(number: int) -> tuple[str, int]:
        moment = datetime.fromtimestamp(number * unit_s, tz=zone)
        return moment.date().isoformat(), moment.hour

    return unit_s * 1_000_000, date_and_hour
