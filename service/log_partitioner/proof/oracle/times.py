"""Converts a value to an event time in microseconds since 1970 (DESIGN 3.1), and that to date and hour.

Owns which texts and numbers are times, and takes texts apart piece by piece; `locate` decides whether a time is absurd.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Literal

from log_partitioner.proof.oracle.json_text import Exact

EpochUnit = Literal["auto", "s", "ms", "us", "ns"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# Every zone can name the hour of what lies between: the second day of the first year, the last but one of the last.
FIRST_US = (datetime(1, 1, 2, tzinfo=UTC) - _EPOCH) // _MICROSECOND
END_US = (datetime(9999, 12, 31, tzinfo=UTC) - _EPOCH) // _MICROSECOND
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}.*", re.ASCII | re.DOTALL)
_NUMERIC = re.compile(r"[+-]?\d+(\.\d+)?", re.ASCII)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAY = re.compile(r"(?P<year>\d{4})([-/]?)(?P<month>\d\d)\2(?P<day>\d\d)")
_NAMED_DAY = re.compile(r"((mon|tue|wed|thu|fri|sat|sun), )?(?P<day>\d\d?)([ /-])(?P<month>[a-z]{3})\4(?P<year>\d{4})")
_CLOCK = re.compile(r"[t :](\d\d)(:?)(\d\d)(?:\2(\d\d)(?:[.,](\d+))?)?")
_OFFSET = re.compile(r"([+-])(\d\d)(?::?(\d\d))?( [a-z]{2,5}| \([a-z]{2,5}\))?")
_UTC = re.compile(r"z|utc?|gmt")
_REGION = re.compile(r"(\[[a-z0-9_/+-]+\])?")
# Decimal holds these exactly by default, and they are more than any calendar needs.
_DIGITS_MAX = 28
_PER_UNIT = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}
# Beyond any window; what cannot be held is readable and absurd.
_NEVER = 1 << 100


def read_time(value: object, *, unit: EpochUnit, zone: tzinfo) -> int | None:
    """Read a value as a time; None if it is none. The result may be outside every calendar."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _from_number(value, unit)
    if isinstance(value, Exact):
        return _NEVER if value.is_integer else None
    if not isinstance(value, str):
        return None
    if (match := _NUMERIC.fullmatch(value)) is None:
        return _from_words(value, zone)
    if len(value) > _DIGITS_MAX:
        return _NEVER
    return _from_number(int(value) if match[1] is None else Decimal(value), unit)


def read_bound(text: str, zone: tzinfo) -> int:
    """Read a valid ISO 8601 time; without an offset, as a text of an entry may be, it is local time of `zone`."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    return (moment - _EPOCH) // _MICROSECOND


def date_and_hour(time_us: int, zone: tzinfo) -> tuple[str, int] | None:
    """Return the date and hour of a time in a zone; None outside the calendar."""
    try:
        moment = (_EPOCH + timedelta(microseconds=time_us)).astimezone(zone)
    except (OverflowError, ValueError):
        return None
    return moment.date().isoformat(), moment.hour


def _from_number(number: float | Decimal, unit: EpochUnit) -> int | None:
    """Convert units to the nearest microsecond, whole nanoseconds downwards; None if no float holds the result."""
    times, per = _PER_UNIT[_unit_of(number) if unit == "auto" else unit]
    if isinstance(number, int):
        return number * times // per
    with suppress(OverflowError):
        return round(number * times / per)
    return None


def _unit_of(number: float | Decimal) -> EpochUnit:
    magnitude = abs(int(number))
    if magnitude < 10**11:
        return "s"
    if magnitude < 10**14:
        return "ms"
    return "us" if magnitude < 10**17 else "ns"


def _from_words(text: str, zone: tzinfo) -> int | None:
    """Read a text that is no number: as ISO 8601 by the standard library, else a date, maybe a clock, maybe a zone."""
    if _ISO.fullmatch(text):
        with suppress(ValueError):
            return read_bound(text, zone)
    text = text.lower() if text.isascii() else ""
    found = _DAY.match(text) or _NAMED_DAY.match(text)
    since = None if found is None else _day(found)
    if found is None or since is None:
        return None
    if not (rest := text[found.end() :]):
        return _local(since, zone)
    clock = _CLOCK.match(rest)
    of_day = None if clock is None else _time_of_day(clock)
    if clock is None or of_day is None:
        return None
    if not (rest := rest[clock.end() :]):
        return _local(since + of_day, zone)
    offset = _zone(rest.removeprefix(" "))
    return None if offset is None else (since + of_day - offset) // _MICROSECOND


def _day(found: re.Match[str]) -> timedelta | None:
    """Return the time from 1970 to the day; None if there is no such day."""
    month = found["month"]
    number = int(month) if month.isdigit() else _MONTHS.index(month) + 1 if month in _MONTHS else 0
    with suppress(ValueError):
        return datetime(int(found["year"]), number, int(found["day"]), tzinfo=UTC) - _EPOCH
    return None


def _time_of_day(clock: re.Match[str]) -> timedelta | None:
    """Return the time since midnight: up to the next one, and a leap second is the second after it."""
    hours, minutes, seconds = (int(clock[number] or 0) for number in (1, 3, 4))
    since = timedelta(minutes=minutes, seconds=seconds, microseconds=int(f"{clock[5] or 0}00000"[:6]))
    is_over = hours > 23 and (hours > 24 or since)  # noqa: PLR2004 - a clock's
    return None if is_over or minutes > 59 or seconds > 60 else since + timedelta(hours=hours)  # noqa: PLR2004


def _zone(text: str) -> timedelta | None:
    """Return the offset of a zone; a name behind the offset, or in brackets, adds nothing."""
    found = _OFFSET.match(text) or _UTC.match(text)
    if found is None or not _REGION.fullmatch(text, found.end()):
        return None
    if found.re is _UTC:
        return timedelta()
    hours, minutes = int(found[2]), int(found[3] or 0)
    if hours > 23 or minutes > 59:  # noqa: PLR2004 - a clock's
        return None
    return timedelta(hours=hours, minutes=minutes) * (-1 if found[1] == "-" else 1)


def _local(since: timedelta, zone: tzinfo) -> int:
    try:
        return ((_EPOCH + since).replace(tzinfo=zone) - _EPOCH) // _MICROSECOND
    except OverflowError:
        return _NEVER
