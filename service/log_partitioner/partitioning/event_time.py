"""Event time of an entry: text or number -> microseconds since the epoch, or None (docs/INPUTS.md).

Depends on the entry and its record alone, never on a clock: a record that is read again gets the same PartitionKey.
Rarer forms of logs, which CPython does not read as ISO 8601:

2026-03-04T05:06:60z   20260304T050607Z   2026/03/04 05:06:07   2026-03-04 24:00:00 UTC   2026-03-04
04/Mar/2026:05:06:07 +0000   Wed, 4 Mar 2026 05:06:07 GMT   2026-03-04T05:06:07+01:00[Europe/Paris]
Mar  4 05:06:07, as syslog has it: of the newest year by which the time is within the window of its record

The format of the settings, if there is one, is tried before all of them.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal

import msgspec

from log_partitioner.config.section import TIME_PARTS
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


def parse_event_time(value: Any, rules: TimeSettings, record_timestamp_ms: int | None = None) -> int | None:
    """Read one value as microseconds since the epoch; None if it is no time.

    A text without a year needs Kafka's timestamp of the record.
    """
    kind = type(value)
    if kind is str:
        return _parse_text(value, rules, record_timestamp_ms)
    if kind is int or kind is float:
        return _from_epoch(value, rules.epoch_unit)
    if kind is msgspec.Raw and bytes(value).lstrip(b"-").isdigit():  # an integer of more digits than Python takes
        return LATEST_US
    return _parse_text(value, rules, record_timestamp_ms) if isinstance(value, str) else None


def is_absurd(event_time_us: int, *, record_timestamp_ms: int | None, rules: TimeSettings) -> bool:
    """Return whether a time lies outside the window.

    Its upper end needs Kafka's timestamp of the record; a timestamp before the window is ignored, because no clock made
    it.
    """
    if event_time_us < rules.earliest_us or event_time_us < EARLIEST_US or event_time_us >= LATEST_US:
        return True
    latest_us = _latest_us(record_timestamp_ms, rules)
    return latest_us is not None and event_time_us > latest_us


def _latest_us(record_timestamp_ms: int | None, rules: TimeSettings) -> int | None:
    """Return the end of the window; None if the record's timestamp is no clock's."""
    if record_timestamp_ms is None or record_timestamp_ms * 1000 < rules.earliest_us:
        return None
    return record_timestamp_ms * 1000 + rules.future_max_us


def _parse_text(text: str, rules: TimeSettings, record_timestamp_ms: int | None) -> int | None:
    if rules.format is not None:
        by_format = _read_by(rules.format, text, rules, record_timestamp_ms)
        if by_format is not None:
            return by_format
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
    event_time_us = read_form(text, rules.zone)
    return _read_by(_SYSLOG, text, rules, record_timestamp_ms) if event_time_us is None else event_time_us


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


_SYSLOG = "%b %d %H:%M:%S"
_DIRECTIVES = {
    "%Y": r"(?P<Y>\d{4})",
    "%y": r"(?P<y>\d\d)",
    "%m": r"(?P<m>\d\d?+)",
    "%b": f"(?P<b>(?i:{'|'.join(_MONTHS)}))",
    "%d": r"(?P<d>\d\d?+)",
    "%a": "(?i:mon|tue|wed|thu|fri|sat|sun)",
    "%H": r"(?P<H>\d\d?+)",
    "%M": r"(?P<M>\d\d)",
    "%S": r"(?P<S>\d\d)(?>(?:[.,](?P<f>\d++))?)",
    "%z": r"(?P<z>(?i:z|utc|gmt)|[+-]\d\d:?\d\d)",
    "%%": "%",
}


@lru_cache
def _pattern_of(form: str) -> re.Pattern[str]:
    parts = (
        _DIRECTIVES.get(part) or (" +" if part[0] == " " else re.escape(part)) for part in TIME_PARTS.findall(form)
    )
    return re.compile("".join(parts), re.ASCII)


def _read_by(form: str, text: str, rules: TimeSettings, record_timestamp_ms: int | None) -> int | None:
    """Read a text of a form; without a year it is of the newest one that is not beyond the window of its record."""
    found = _pattern_of(form).fullmatch(text)
    if found is None:
        return None
    part = found.groupdict()
    month = int(part["m"] if "m" in part else 1 + _MONTHS.index(part["b"].lower()))
    clock = f"{part.get('H') or 0:0>2}:{part.get('M') or 0:0>2}:{part.get('S') or 0:0>2}.{part.get('f') or 0}"
    rest = f"-{month:02}-{part['d']:0>2} {clock} {part.get('z') or ''}".rstrip()
    if "Y" in part or "y" in part:
        return read_form((part.get("Y") or f"20{part['y']}") + rest, rules.zone)
    latest_us = _latest_us(record_timestamp_ms, rules)
    if latest_us is None:
        return None
    latest_us = min(latest_us, LATEST_US - 1)
    last = (_EPOCH + timedelta(microseconds=latest_us)).year
    times = (read_form(f"{year:04}{rest}", rules.zone) for year in (last + 1, last, last - 1))
    return next((time_us for time_us in times if time_us is not None and time_us <= latest_us), None)


def _micros(since: timedelta) -> int:
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
