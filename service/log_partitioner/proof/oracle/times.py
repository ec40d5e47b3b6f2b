"""Converts a value to an event time in microseconds since 1970 (docs/INPUTS.md), and that to date and hour.

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
_NO_YEAR = "%b %d %H:%M:%S"
_PIECES = {
    "%Y": ("year", re.compile(r"\d{4}", re.ASCII)),
    "%y": ("short", re.compile(r"\d\d", re.ASCII)),
    "%m": ("month", re.compile(r"\d\d?", re.ASCII)),
    "%b": ("month", re.compile("[a-zA-Z]{3}")),
    "%d": ("day", re.compile(r"\d\d?", re.ASCII)),
    "%a": ("", re.compile("mon|tue|wed|thu|fri|sat|sun", re.IGNORECASE | re.ASCII)),
    "%H": ("hour", re.compile(r"\d\d?", re.ASCII)),
    "%M": ("minute", re.compile(r"\d\d", re.ASCII)),
    "%S": ("second", re.compile(r"\d\d([.,]\d+)?", re.ASCII)),
    "%z": ("zone", re.compile(r"z|utc|gmt|[+-]\d\d:?\d\d", re.IGNORECASE | re.ASCII)),
}
_REGION = re.compile(r"(\[[a-z0-9_/+-]+\])?")
# Decimal holds these exactly by default, and they are more than any calendar needs.
_DIGITS_MAX = 28
_PER_UNIT = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}
# Beyond any window; what cannot be held is readable and absurd.
_NEVER = 1 << 100


def read_time(
    value: object, *, unit: EpochUnit, zone: tzinfo, form: str | None = None, latest_us: int | None = None
) -> int | None:
    """Read a value as a time, by its form if it has one; None if it is none. The result may be outside every calendar.

    Without `latest_us` a text that names no year is no time.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _from_number(value, unit)
    if isinstance(value, Exact):
        return _NEVER if value.is_integer else None
    if not isinstance(value, str):
        return None
    if form is not None and (formed := _by_form(value, form, zone, latest_us)) is not None:
        return formed
    if (match := _NUMERIC.fullmatch(value)) is None:
        of_words = _from_words(value, zone)
        return _by_form(value, _NO_YEAR, zone, latest_us) if of_words is None else of_words
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


def _by_form(text: str, form: str, zone: tzinfo, latest_us: int | None) -> int | None:
    """Read a text piece by piece as a form says; None if it is another, or if nobody knows its year."""
    found: dict[str, str] = {}
    for piece in re.findall(r"%.| +|[^%]", form, re.DOTALL):
        literal = re.compile(" +" if piece[0] == " " else re.escape(piece[-1]))
        name, pattern = _PIECES.get(piece, ("", literal))
        match = pattern.match(text)
        if match is None:
            return None
        found[name] = match[0]
        text = text[match.end() :]
    return None if text else _of_parts(found, zone, latest_us)


def _of_parts(found: dict[str, str], zone: tzinfo, latest_us: int | None) -> int | None:
    second, _, fraction = found.get("second", "0").replace(",", ".").partition(".")
    of_day = _since_midnight(int(found.get("hour", 0)), int(found.get("minute", 0)), int(second), fraction)
    offset = _zone(found["zone"].lower()) if "zone" in found else None
    if of_day is None or ("zone" in found and offset is None):
        return None
    years = [int(found["year"])] if "year" in found else [2000 + int(found["short"])] if "short" in found else []
    end_us = _NEVER + 1
    if not years and latest_us is not None:
        end_us = min(latest_us, END_US - 1)
        last = (_EPOCH + end_us * _MICROSECOND).year
        years = [last + 1, last, last - 1]
    for year in years:
        since = _day({"year": f"{year}", "month": found["month"].lower(), "day": found["day"]})
        if since is not None:
            since += of_day
            time_us = _local(since, zone) if offset is None else (since - offset) // _MICROSECOND
            if time_us <= end_us:
                return time_us
    return None


def _day(found: re.Match[str] | dict[str, str]) -> timedelta | None:
    """Return the time from 1970 to the day; None if there is no such day."""
    month = found["month"]
    number = int(month) if month.isdigit() else _MONTHS.index(month) + 1 if month in _MONTHS else 0
    with suppress(ValueError):
        return datetime(int(found["year"]), number, int(found["day"]), tzinfo=UTC) - _EPOCH
    return None


def _time_of_day(clock: re.Match[str]) -> timedelta | None:
    """Return the time since midnight: up to the next one, and a leap second is the second after it."""
    hours, minutes, seconds = (int(clock[number] or 0) for number in (1, 3, 4))
    return _since_midnight(hours, minutes, seconds, clock[5] or "")


def _since_midnight(hours: int, minutes: int, seconds: int, fraction: str) -> timedelta | None:
    since = timedelta(minutes=minutes, seconds=seconds, microseconds=int(f"{fraction}000000"[:6]))
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
