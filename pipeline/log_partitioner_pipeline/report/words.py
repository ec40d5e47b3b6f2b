"""Numbers, sizes, instants (UTC) and durations in words for a person; None is written as a dash."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NONE = "\N{EN DASH}"
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_WHOLE_FROM = 100


def plain(name: str) -> str:
    """Write a name of the code in words."""
    return name.replace("_", " ")


def number(value: float | None) -> str:
    """Write a number with separated thousands."""
    return _NONE if value is None else f"{value:,}"


def plural(count: int, one: str, several: str) -> str:
    """Write a number with its noun."""
    return f"{number(count)} {one if count == 1 else several}"


def size(value: int | None) -> str:
    """Write bytes in the unit that fits."""
    if value is None:
        return _NONE
    unit = next((nth for nth in range(4) if value < 1024 ** (nth + 1)), 4)
    amount = value / 1024**unit
    return f"{amount:.{0 if unit == 0 or amount >= _WHOLE_FROM else 1}f} {_UNITS[unit]}"


def moment(at_ms: int | None) -> str:
    """Write an instant to the millisecond; the number if no calendar has it."""
    if at_ms is None:
        return _NONE
    try:
        return f"{_EPOCH + timedelta(milliseconds=at_ms):%Y-%m-%d %H:%M:%S}.{at_ms % 1000:03}"
    except OverflowError:
        return f"{at_ms} ms"


def seconds(value_ms: float | None) -> str:
    """Write milliseconds as a duration in the two largest units."""
    if value_ms is None:
        return _NONE
    sign, rest = ("\N{MINUS SIGN}" if value_ms < 0 else ""), abs(value_ms) / 1000
    for unit, name, part, lower in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if rest >= unit:
            return f"{sign}{rest // unit:.0f} {name} {rest % unit // part:.0f} {lower}"
    return f"{sign}{rest:.1f} s" if rest >= 1 else f"{sign}{abs(value_ms):.0f} ms"
