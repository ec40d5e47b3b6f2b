"""Entry -> PartitionKey: who and when it is of (DESIGN 3.1)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeGuard

import msgspec

from service.formats.dead_letter import Reason
from service.formats.model import PartitionKey, SourceRecord
from service.partitioning.event_time import LATEST_US, TimeRules, is_absurd, parse_event_time
from service.partitioning.locate import Locate, compile_path

USER_CHARS_MAX = 4096
_US_PER_HOUR = 3_600_000_000


class KeyRules(NamedTuple):
    """Where user, time and id are found and what becomes of entries without; see `config.settings`."""

    user_paths: tuple[str, ...]
    no_users: frozenset[str]
    missing_user: str | None
    time_paths: tuple[str, ...]
    time: TimeRules
    missing_time: Literal["record-timestamp", "dead-letter"]
    id_paths: tuple[str, ...]
    zone: tzinfo


class Placement(NamedTuple):
    """Where an entry goes; `fallback_time` tells that the record's timestamp stood in for its event time."""

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

    def __init__(self, rules: KeyRules) -> None:
        self._rules = rules
        self._users = [compile_path(path) for path in rules.user_paths]
        self._times = [compile_path(path) for path in rules.time_paths]
        self._ids = [compile_path(path) for path in rules.id_paths]
        self._date_and_hour = _date_and_hour_in(rules.zone)

    def partition(
        self, entry: dict[str, Any], envelope: dict[str, Any] | None, record: SourceRecord
    ) -> Placement | Rejection:
        """Return where one entry of a record goes, or why it is rejected."""
        user = self._user(entry, envelope, record)
        if user is None:
            return Rejection(Reason.NO_USER, "no path of user.paths yields a user")
        if len(user) > USER_CHARS_MAX:
            return Rejection(Reason.NO_USER, f"a user of {len(user)} characters, the limit is {USER_CHARS_MAX}")
        event_time_us = self._event_time(entry, envelope, record)
        fallback = event_time_us is None
        if event_time_us is None:
            if self._rules.missing_time == "dead-letter" or not _is_date(record.timestamp_ms):
                return Rejection(Reason.NO_EVENT_TIME, "no path of time.paths yields a time within the window")
            event_time_us = record.timestamp_ms * 1000
        date, hour = self._date_and_hour(event_time_us)
        key = PartitionKey(user, date, hour)
        return Placement(key, event_time_us, _first_name(self._ids, entry, envelope, record), fallback)

    def _user(self, entry: dict[str, Any], envelope: dict[str, Any] | None, record: SourceRecord) -> str | None:
        for locate in self._users:
            user = as_name(locate(entry, envelope, record))
            if user is not None and user not in self._rules.no_users:
                return user
        return self._rules.missing_user

    def _event_time(self, entry: dict[str, Any], envelope: dict[str, Any] | None, record: SourceRecord) -> int | None:
        """Return the first readable time; None where there is none, or it is absurd."""
        for locate in self._times:
            event_time_us = parse_event_time(locate(entry, envelope, record), self._rules.time)
            if event_time_us is not None:
                absurd = is_absurd(event_time_us, record_timestamp_ms=record.timestamp_ms, rules=self._rules.time)
                return None if absurd else event_time_us
        return None


def _is_date(timestamp_ms: int | None) -> TypeGuard[int]:
    return timestamp_ms is not None and 0 <= timestamp_ms < LATEST_US // 1000


def _first_name(
    paths: list[Locate], entry: dict[str, Any], envelope: dict[str, Any] | None, record: SourceRecord
) -> str | None:
    for locate in paths:
        name = as_name(locate(entry, envelope, record))
        if name is not None:
            return name
    return None


def as_name(value: Any) -> str | None:
    """Read a value as a user or an id: a string, or an integer as decimal text; nothing else is one."""
    if type(value) is str:
        return value
    if type(value) is msgspec.Raw:  # a number kept as text: an integer of more digits than Python takes
        text = bytes(value).decode()
        return text if text.lstrip("-").isdigit() else None
    return str(value) if type(value) is int else None


def _date_and_hour_in(zone: tzinfo) -> Callable[[int], tuple[str, int]]:
    if zone is UTC or str(zone) == "UTC":
        return lambda event_time_us: _utc_hour(event_time_us // _US_PER_HOUR)

    def local(event_time_us: int) -> tuple[str, int]:
        moment = datetime.fromtimestamp(event_time_us // 1_000_000, tz=zone)
        return moment.date().isoformat(), moment.hour

    return local


@lru_cache(maxsize=10_000)
def _utc_hour(hours: int) -> tuple[str, int]:
    moment = datetime.fromtimestamp(hours * 3600, tz=UTC)
    return moment.date().isoformat(), moment.hour
