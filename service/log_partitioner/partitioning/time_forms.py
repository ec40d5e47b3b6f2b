"""Reads times in rarer forms of logs, which CPython does not read as ISO 8601 (DESIGN 3.1).

2026-03-04T05:06:60z   20260304T050607Z   2026/03/04 05:06:07   2026-03-04 24:00:00 UTC   2026-03-04
04/Mar/2026:05:06:07 +0000   Wed, 4 Mar 2026 05:06:07 GMT   2026-03-04T05:06:07+01:00[Europe/Paris]
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
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
