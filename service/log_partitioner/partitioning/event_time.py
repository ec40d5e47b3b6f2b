"""Event time of an entry: text or number -> microseconds since the epoch, or None (DESIGN 3.1).

Depends on the entry and its record alone, never on a clock: a record that is read again gets the same PartitionKey.
Rarer forms of logs, which CPython does not read as ISO 8601:

2026-03-04T05:06:60z   20260304T050607Z   2026/03/04 05:06:07   2026-03-04 24:00:00 UTC   2026-03-04
04/Mar/2026:05:06:07 +0000   Wed, 4 Mar 2026 05:06:07 GMT   2026-03-04T05:06:07+01:00[Europe/Paris]
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Any, Literal

import msgspec

from log_partitioner.config.settings import TimeSettings

EpochUnit = Literal["auto", "s", "ms", "us", "ns"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST_US = -62_135_510_400_000_000  # 0001-01-02 and
LATEST_US = 253_402_214_400_000_000  # 9999-12-31, so that every zone can name the hour
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?\Z", re.ASCII)
_NUMBER_CHARS_MAX = 28  # what Decimal multiplies exactly, and more than any calendar needs
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}", re.ASCII)
# Decided by magnitude: seconds until the year 5138, milliseconds until then, microseconds until then.
_MAGNITUDES: tuple[tuple[float, EpochUnit], ...] = ((1e11, "s"), (1e14, "ms"), (1e17, "us"))
_MICROS_PER: dict[EpochUnit, int] = {"s": 1_000_000, "ms": 1_000, "us": 1}
_NANOS_PER_MICRO = 1_000


def parse_event_time(value: Any, rules: TimeSettings) -> int | None:
    """Read one value as microseconds since the epoch; None if it is no time."""
    kind = type(value)
    if kind is str:
        return _parse_text(value, rules)
    if kind is int or kind is float:
        return _from_epoch(value, rules.epoch_unit)
    if kind is msgspec.Raw and bytes(value).lstrip(b"-").isdigit():  # an integer of more digits than Python takes
        return LATEST_US
    return _parse_text(value, rules) if isinstance(value, str) else None


def is_absurd(event_time_us: int, *, record_timestamp_ms: int | None, rules: TimeSettings) -> bool:
    """Return whether a time lies outside the window.

    Its upper end needs Kafka's timestamp of the record; a timestamp before the window is ignored, because no clock made
    it.
    """
    if event_time_us < rules.earliest_us or event_time_us < EARLIEST_US or event_time_us >= LATEST_US:
        return True
    if record_timestamp_ms is None:
        return False
    newest_us = record_timestamp_ms * 1000
    return event_time_us > newest_us + rules.future_max_us and newest_us >= rules.earliest_us


def _parse_text(text: str, rules: TimeSettings) -> int | None:
    if _ISO.match(text):
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return read_form(text, rules.zone)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=rules.zone)
        return _micros(moment - _EPOCH)
    if _NUMBER.match(text):
        if len(text) > _NUMBER_CHARS_MAX:
            return LATEST_US  # a time, but an absurd one
        return _from_epoch(Decimal(text) if "." in text else int(text), rules.epoch_unit)
    return read_form(text, rules.zone)


def _from_epoch(value: Any, unit: EpochUnit) -> int | None:
    """Convert an int, float or Decimal of units to the nearest microsecond; whole nanoseconds downwards."""
    if unit == "auto":
        unit = next((name for limit, name in _MAGNITUDES if abs(value) < limit), "ns")
    if unit == "ns" and type(value) is int:
        return value // _NANOS_PER_MICRO
    try:
        micros: int = round(value / _NANOS_PER_MICRO if unit == "ns" else value * _MICROS_PER[unit])
    except OverflowError:  # a float in a configured unit
        return None
    return micros


_BEYOND_US = 1 << 60  # a time, and none of any calendar
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_FORM = re.compile(
    rf"""(?: (\d{{4}}) ([-/]?) (\d\d) \2 (\d\d)
           | (?:(?:mon|tue|wed|thu|fri|sat|sun),[ ])? (\d\d?) ([ /-]) ({"|".join(_MONTHS)}) \6 (\d{{4}}) )
         (?: [t :] (\d\d) (:?) (\d\d) (?: \10 (\d\d) (?: [.,] (\d+) )? )?
             ( [ ]? (?: z | utc? | gmt | ([+-]) (\d\d) (?: :? (\d\d) )? (?: [ ][a-z]{{2,5}} | [ ]\([a-z]{{2,5}}\) )? )
               (?: \[[\w/+-]+\] )? )? )? \Z""",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_HOURS, _MINUTES, _LEAP_SECOND = 24, 60, 60


def read_form(text: str, zone: tzinfo) -> int | None:
    """Read a text in microseconds since the epoch; None if it is no time. A date alone is its first moment.

    A leap second is the second after it; 24:00:00 is the next day's first moment. A name behind an offset says nothing.
    """
    found = _FORM.match(text)
    if found is None:
        return None
    year, _, month, day, day_first, _, name, year_last, *clock = found.groups()
    hour, _, minute, second, fraction, is_zoned, sign, ahead_h, ahead_m = clock
    hours, minutes, seconds = int(hour or 0), int(minute or 0), int(second or 0)
    micros = int((fraction or "0")[:6].ljust(6, "0"))
    if hours > _HOURS or minutes >= _MINUTES or seconds > _LEAP_SECOND:
        return None
    if hours == _HOURS and (minutes or seconds or micros):
        return None
    offset = timedelta(hours=int(ahead_h or 0), minutes=int(ahead_m or 0))
    if offset >= timedelta(days=1) or int(ahead_m or 0) >= _MINUTES:
        return None
    try:
        midnight = datetime(
            int(year or year_last),
            int(month) if month else 1 + _MONTHS.index(name.lower()),
            int(day or day_first),
            tzinfo=UTC if is_zoned else None,
        )
    except ValueError:
        return None
    since_midnight = timedelta(hours=hours, minutes=minutes, seconds=seconds, microseconds=micros)
    if is_zoned:
        return _micros(midnight - _EPOCH + since_midnight + (offset if sign == "-" else -offset))
    try:
        return _micros((midnight + since_midnight).replace(tzinfo=zone) - _EPOCH)
    except OverflowError:
        return _BEYOND_US


def _micros(since: timedelta) -> int:
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
