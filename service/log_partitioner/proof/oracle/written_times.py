"""Times as people and programs write them, taken apart token by token (DESIGN 3.1).

Owns the forms that are not ISO-8601 with date, time and colons; shares no rule with the worker.
"""

from __future__ import annotations

import re
from calendar import timegm
from datetime import UTC, date, datetime, timedelta, tzinfo

_TOKEN = re.compile(r"\d+|[a-z]+|.", re.DOTALL)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NAMES = ("", "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_WEEKDAYS = frozenset({"mon", "tue", "wed", "thu", "fri", "sat", "sun"})
_MONTHS = {name.lower(): number for number, name in enumerate(_NAMES)}
_UTC = frozenset({"z", "ut", "utc", "gmt"})
_REGION = re.compile(r"[a-z0-9_/+-]+")
_NEVER = 1 << 100
_LAST_SECOND = 24 * 3600

Clock = tuple[int, int]
"""Seconds since midnight, and microseconds."""


def read_written(text: str, zone: tzinfo) -> int | None:
    """Return a time in microseconds since 1970; None if the text is none. The result may be outside calendars."""
    if not text.isascii():
        return None
    tokens = _TOKEN.findall(text.lower())
    day, rest = _cut_date(tokens)
    if day is None:
        return None
    found = _read_clock(rest)
    if found is None:
        return None
    (seconds, micros), offset_s = found
    since_s = timegm((day.year, day.month, day.day, 0, 0, 0)) + seconds
    if offset_s is not None:
        return (since_s - offset_s) * 1_000_000 + micros
    try:
        local = _EPOCH + timedelta(seconds=since_s, microseconds=micros)
        return (local.replace(tzinfo=zone) - _EPOCH) // _MICROSECOND
    except OverflowError:
        return _NEVER


def _cut_date(tokens: list[str]) -> tuple[date | None, list[str]]:
    match tokens:
        case [name, ",", " ", *rest] if name in _WEEKDAYS:
            return _cut_named(rest)
        case [year, "-" | "/" as mark, month, again, day, *rest] if mark == again and _are(year, month, day):
            return _date(int(year), int(month), int(day)), rest
        case [digits, *rest] if digits.isdigit() and len(digits) == len("20260304"):
            return _date(int(digits[:4]), int(digits[4:6]), int(digits[6:])), rest
    return _cut_named(tokens)


def _cut_named(tokens: list[str]) -> tuple[date | None, list[str]]:
    match tokens:
        case [day, " " | "/" | "-" as mark, name, again, year, *rest] if mark == again and name in _MONTHS:
            if year.isdigit() and len(year) == len("2026") and day.isdigit() and len(day) in (1, 2):
                return _date(int(year), _MONTHS[name], int(day)), rest
    return None, []


def _are(year: str, *numbers: str) -> bool:
    return year.isdigit() and len(year) == len("2026") and _are_pairs(*numbers)


def _are_pairs(*numbers: str) -> bool:
    return all(one.isdigit() and len(one) == len("03") for one in numbers)


def _date(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def _read_clock(tokens: list[str]) -> tuple[Clock, int | None] | None:
    """Read the rest behind a date: nothing, or a clock and maybe a zone; its offset is None if there is none."""
    match tokens:
        case []:
            return (0, 0), None
        case ["t" | " " | ":", h, ":", m, ":", s, "." | ",", fraction, *rest]:
            clock = _clock([h, m, s], fraction)
        case ["t" | " " | ":", h, ":", m, ":", s, *rest]:
            clock = _clock([h, m, s])
        case ["t" | " " | ":", h, ":", m, *rest]:
            clock = _clock([h, m])
        case ["t" | " " | ":", digits, "." | ",", fraction, *rest] if len(digits) == len("050607"):
            clock = _clock([digits[at : at + 2] for at in (0, 2, 4)], fraction)
        case ["t" | " " | ":", digits, *rest] if len(digits) in (len("0506"), len("050607")):
            clock = _clock([digits[at : at + 2] for at in range(0, len(digits), 2)])
        case _:
            return None
    if clock is None:
        return None
    if not rest:
        return clock, None
    offset_s = _offset_of(rest[1:] if rest[0] == " " else rest)
    return None if offset_s is None else (clock, offset_s)


def _clock(parts: list[str], fraction: str = "0") -> Clock | None:
    if not _are_pairs(*parts) or not fraction.isdigit():
        return None
    hours, minutes, seconds = (*map(int, parts), 0)[:3]
    micros = int(f"{fraction}00000"[:6])
    in_day = 3600 * hours + 60 * minutes + seconds
    if minutes >= 60 or seconds > 60 or in_day > _LAST_SECOND + (hours < 24):  # noqa: PLR2004 - a clock's
        return None
    return None if in_day == _LAST_SECOND and hours == 24 and micros else (in_day, micros)  # noqa: PLR2004


def _offset_of(tokens: list[str]) -> int | None:
    """Read a zone in seconds before UTC; a name behind an offset, or in brackets, adds nothing."""
    match tokens:
        case [name, *rest] if name in _UTC:
            offset_s: int | None = 0
        case ["+" | "-" as sign, h, ":", m, *rest]:
            offset_s = _ahead(sign, h, m)
        case ["+" | "-" as sign, digits, *rest] if len(digits) == len("+0100") - 1:
            offset_s = _ahead(sign, digits[:2], digits[2:])
        case ["+" | "-" as sign, h, *rest]:
            offset_s = _ahead(sign, h, "00")
        case _:
            return None
    if tokens[0] in ("+", "-"):
        match rest:
            case [" ", "(", name, ")", *after] if _is_name(name):
                rest = after
            case [" ", name, *after] if _is_name(name):
                rest = after
    if rest and not (rest[0] == "[" and rest[-1] == "]" and _REGION.fullmatch("".join(rest[1:-1]))):
        return None
    return offset_s


def _is_name(text: str) -> bool:
    return text.isalpha() and 2 <= len(text) <= 5  # noqa: PLR2004 - such as CET


def _ahead(sign: str, hours: str, minutes: str) -> int | None:
    if not _are_pairs(hours, minutes) or int(hours) > 23 or int(minutes) > 59:  # noqa: PLR2004 - a clock's
        return None
    return (int(hours) * 3600 + int(minutes) * 60) * (-1 if sign == "-" else 1)
