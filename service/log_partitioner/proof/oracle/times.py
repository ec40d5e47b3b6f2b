"""Converts a value to an event time in microseconds since 1970 (DESIGN 3.1), and that to date and hour.

Owns which texts and numbers are times; `locate` decides whether a time is absurd.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Literal

from log_partitioner.proof.oracle.json_text import Exact
from log_partitioner.proof.oracle.written_times import read_written

EpochUnit = Literal["auto", "s", "ms", "us", "ns"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# Every zone can name the hour of what lies between: the second day of the first year, the last but one of the last.
FIRST_US = (datetime(1, 1, 2, tzinfo=UTC) - _EPOCH) // _MICROSECOND
END_US = (datetime(9999, 12, 31, tzinfo=UTC) - _EPOCH) // _MICROSECOND
_DATE_AND_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}.*", re.ASCII | re.DOTALL)
_NUMERIC = re.compile(r"[+-]?\d+(\.\d+)?", re.ASCII)
# What Decimal holds exactly by default, and more than any calendar needs.
_DIGITS_MAX = 28
_PER_MICROSECOND = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}
_EXACT_PER_MICROSECOND = {unit: Decimal(repr(factor)) for unit, factor in _PER_MICROSECOND.items()}
# Beyond any window; what cannot be held is readable and absurd.
_NEVER = 1 << 100


def read_time(value: object, *, unit: EpochUnit, zone: tzinfo) -> int | None:
    """Read a value as a time; None if it is none. The result may be outside every calendar."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return _from_integer(value, unit)
    if isinstance(value, float):
        return _from_float(value, unit)
    if isinstance(value, Exact):
        return _NEVER if value.is_integer else None
    if isinstance(value, str):
        return _from_text(value, unit, zone)
    return None


def read_bound(text: str, zone: tzinfo) -> int:
    """Read a time of the settings, which is valid; without an offset it is local time of `zone`."""
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
    return f"{moment.year:04}-{moment.month:02}-{moment.day:02}", moment.hour


def _from_text(text: str, unit: EpochUnit, zone: tzinfo) -> int | None:
    match = _NUMERIC.fullmatch(text)
    if match is None:
        return _from_words(text, zone)
    if len(text) > _DIGITS_MAX:
        return _NEVER
    return _from_integer(int(text), unit) if match[1] is None else _from_decimal(Decimal(text), unit)


def _from_words(text: str, zone: tzinfo) -> int | None:
    if _DATE_AND_TIME.fullmatch(text):
        with suppress(ValueError):
            return read_bound(text, zone)
    return read_written(text, zone)


def _from_integer(number: int, unit: EpochUnit) -> int:
    if unit == "auto":
        unit = _unit_of(number)
    match unit:
        case "s":
            return number * 1_000_000
        case "ms":
            return number * 1_000
        case "us":
            return number
        case _:
            return number // 1_000


def _from_float(number: float, unit: EpochUnit) -> int | None:
    try:
        return round(number * _PER_MICROSECOND[_unit_of(number) if unit == "auto" else unit])
    except (OverflowError, ValueError):
        return None


def _from_decimal(number: Decimal, unit: EpochUnit) -> int:
    return round(number * _EXACT_PER_MICROSECOND[_unit_of(number) if unit == "auto" else unit])


def _unit_of(number: float | Decimal) -> EpochUnit:
    magnitude = abs(int(number))
    if magnitude < 10**11:
        return "s"
    if magnitude < 10**14:
        return "ms"
    return "us" if magnitude < 10**17 else "ns"
