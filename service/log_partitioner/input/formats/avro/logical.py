"""Values of Avro's logical types as entries have them; out of the years 1 to 9999, or of a day, a number stays one."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any

from log_partitioner.formats.values import Date, Decimal, Timestamp

DECIMAL_BYTES_MAX = 1700  # Python writes no integer of more than 4300 digits
_SCALE_MAX = 64  # beyond it an exponent follows the digits
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - UTC, or of no zone
_DAY_US = 86_400_000_000
_MILLISECOND_US = 1000
_UUID_BYTES = 16
_DURATION = struct.Struct("<III")

Convert = Callable[[Any], Any]


def converter(schema: Mapping[str, Any]) -> Convert | None:
    """Return what makes an entry's value of the underlying one; None if the logical type is not known, or not valid."""
    kind, logical, size = schema["type"], schema.get("logicalType"), schema.get("size", 0)
    if not isinstance(kind, str) or not isinstance(logical, str):
        return None
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision:
            return None
        return partial(_decimal, scale=scale) if kind == "bytes" or size <= DECIMAL_BYTES_MAX else None
    if kind == "fixed":
        return {("uuid", _UUID_BYTES): _uuid, ("duration", _DURATION.size): _duration}.get((logical, size))
    return _NUMBERS.get((kind, logical))


def _decimal(data: bytes, *, scale: int) -> Decimal:
    number = int.from_bytes(data, "big", signed=True)
    if not scale:
        return Decimal(number)
    if scale > _SCALE_MAX:
        return Decimal(f"{number}e-{scale}")
    digits = f"{abs(number):0{scale + 1}}"
    return Decimal(f"{'-' * (number < 0)}{digits[:-scale]}.{digits[-scale:]}")


def _uuid(data: bytes) -> str:
    digits = data.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _duration(data: bytes) -> str:
    months, days, milliseconds = _DURATION.unpack(data)
    seconds, rest = divmod(milliseconds, 1000)
    return f"P{months}M{days}DT{seconds}.{rest:03}S"


def _date(days: int) -> Date | int:
    try:
        return Date(date.fromordinal(_EPOCH.toordinal() + days).isoformat())
    except (ValueError, OverflowError):
        return days


def _local(count: int, *, unit_us: int) -> str | int:
    try:
        return (_EPOCH + timedelta(microseconds=count * unit_us)).isoformat(timespec="microseconds")
    except OverflowError:
        return count


def _timestamp(count: int, *, unit_us: int) -> Timestamp | int:
    local = _local(count, unit_us=unit_us)
    return Timestamp(f"{local}Z") if isinstance(local, str) else local


def _time(count: int, *, unit_us: int) -> str | int:
    microseconds = count * unit_us
    if not 0 <= microseconds < _DAY_US:
        return count
    return (_EPOCH + timedelta(microseconds=microseconds)).time().isoformat(timespec="microseconds")


_NUMBERS: dict[tuple[str, str], Convert] = {
    ("int", "date"): _date,
    ("int", "time-millis"): partial(_time, unit_us=_MILLISECOND_US),
    ("long", "time-micros"): partial(_time, unit_us=1),
    ("long", "timestamp-millis"): partial(_timestamp, unit_us=_MILLISECOND_US),
    ("long", "timestamp-micros"): partial(_timestamp, unit_us=1),
    ("long", "local-timestamp-millis"): partial(_local, unit_us=_MILLISECOND_US),
    ("long", "local-timestamp-micros"): partial(_local, unit_us=1),
}
