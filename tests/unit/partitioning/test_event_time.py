"""Event times of real logs: texts, epochs, units, zones, and what is absurd (DESIGN 3.1)."""

from datetime import UTC
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from log_partitioner.config.settings import TimeSettings
from log_partitioner.partitioning.event_time import LATEST_US, EpochUnit, is_absurd, parse_event_time

NOON = 1_714_564_800_000_000  # 2024-05-01T12:00:00Z
HOUR = 3_600_000_000
BERLIN = ZoneInfo("Europe/Berlin")


def rules(unit: EpochUnit = "auto", zone: Any = UTC) -> TimeSettings:
    """Make rules with a window from 2000 to a day ahead."""
    return TimeSettings(epoch_unit=unit, zone=zone)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-05-01T12:00:00Z", NOON),
        ("2024-05-01T12:00Z", NOON),
        ("2024-05-01t12:00:00Z", NOON),
        ("2024-05-01 12:00:00Z", NOON),
        ("2024-05-01T12:00:00", NOON),
        ("2024-05-01T14:00:00+02:00", NOON),
        ("2024-05-01T14:00:00+0200", NOON),
        ("2024-05-01T07:30:00-0430", NOON),
        ("2024-05-01T12:00:00.5Z", NOON + 500_000),
        ("2024-05-01T12:00:00.123Z", NOON + 123_000),
        ("2024-05-01T12:00:00.123456Z", NOON + 123_456),
        ("2024-05-01T12:00:00.123456789Z", NOON + 123_456),
        ("2024-05-01T12:00:00.1234567890123Z", NOON + 123_456),
        ("0001-01-01T00:00:00+14:00", -62_135_596_800_000_000 - 14 * HOUR),
        ("9999-12-31T23:59:59Z", 253_402_300_799_000_000),
    ],
)
def test_iso_text_of_each_form_is_its_moment(text: str, expected: int) -> None:
    """Any fraction, Z, +hh:mm, +hhmm, a space for T; without a zone the configured one."""
    assert parse_event_time(text, rules()) == expected


@pytest.mark.parametrize(
    ("text", "hours_after_midnight_utc"),
    [
        ("2024-03-31T01:59:59", 0.9997222222222222),
        ("2024-03-31T02:30:00", 1.5),  # does not exist: taken as if the clock had not been put forward
        ("2024-03-31T03:00:00", 1),
        ("2024-10-27T02:30:00", 0.5),  # exists twice: the first
        ("2024-10-27T03:00:00", 2),
        ("2024-10-27T02:30:00+01:00", 1.5),
    ],
)
def test_text_without_a_zone_around_a_change_of_clocks_is_told_apart(
    text: str, hours_after_midnight_utc: float
) -> None:
    """Local times that exist twice or not at all get the same moment every time."""
    midnight = parse_event_time(f"{text[:10]}T00:00:00Z", rules(zone=BERLIN))
    assert midnight is not None
    assert parse_event_time(text, rules(zone=BERLIN)) == midnight + round(hours_after_midnight_utc * HOUR)


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (1_714_564_800, "auto", NOON),
        (1_714_564_800_000, "auto", NOON),
        (1_714_564_800_000_000, "auto", NOON),
        (1_714_564_800_000_000_000, "auto", NOON),
        ("1714564800", "auto", NOON),
        ("1714564800000", "auto", NOON),
        ("+1714564800", "auto", NOON),
        ("1714564800000." + 14 * "0", "auto", NOON),  # of 28 characters, as many as are read
        (1_714_564_800.25, "auto", NOON + 250_000),
        ("1714564800.250001", "auto", NOON + 250_001),
        ("1714564800.123456789", "auto", NOON + 123_457),
        (1_714_564_800_123.5, "ms", NOON + 123_500),
        (99_999_999_999, "auto", 99_999_999_999_000_000),
        (100_000_000_000, "auto", 100_000_000_000_000),
        (99_999_999_999_999, "auto", 99_999_999_999_999_000),
        (100_000_000_000_000, "auto", 100_000_000_000_000),
        (100_000_000_000_000_000, "auto", 100_000_000_000_000),
        (1_714_564_800_000_000_999, "ns", NOON),
        (5, "s", 5_000_000),
        (5, "ms", 5_000),
        (5, "us", 5),
        (1_999, "ns", 1),
        (0, "auto", 0),
        (-1, "s", -1_000_000),
    ],
)
def test_epoch_is_read_by_its_unit_or_by_its_magnitude(value: Any, unit: EpochUnit, expected: int) -> None:
    """Seconds to nanoseconds, as number or text; `auto` tells them apart by their size."""
    assert parse_event_time(value, rules(unit)) == expected


@pytest.mark.parametrize(
    "value",
    [None, True, False, "", " ", "yesterday", "12:00:00", "2024-13-01T00:00:00Z", "2024-02-30T00:00:00Z",
     "2024-05-01T25:00:00Z", "2024-05-01T12:00:00+99:00", "1e9",
     "\u0662\u0660\u0662\u0664-05-01T12:00:00Z", "\u0665", "NaN", "inf", "1.", ".5", "--5", [], {},
     "2024-05-01T12:00:00Z\ud800",
     ["2024-05-01T12:00:00Z"], {"$date": 1}, " 1714564800", "2024-05-01T12:00:00Z "],
)  # fmt: skip
def test_value_that_is_no_time_is_none(value: Any) -> None:
    """What no rule reads is no time; the next path is tried."""
    assert parse_event_time(value, rules()) is None


@pytest.mark.parametrize("unit", ["auto", "s", "ms", "us", "ns"])
@pytest.mark.parametrize("value", [1e308, -1e308, 1.7e303, 10**4299, -(10**4299), "9" * 20 + "." + "9" * 20, "1" * 21])
def test_number_of_any_size_in_any_unit_does_not_raise(value: Any, unit: EpochUnit) -> None:
    """What is far beyond any calendar is absurd or no time, never an exception."""
    time_us = parse_event_time(value, rules(unit))
    assert time_us is None or is_absurd(time_us, record_timestamp_ms=None, rules=rules()) or isinstance(value, str)


@pytest.mark.parametrize(
    ("time_us", "timestamp_ms", "absurd"),
    [
        (946_684_800_000_000, None, False),
        (946_684_799_999_999, None, True),
        (0, None, True),
        (NOON, None, False),
        (NOON + 24 * HOUR, NOON // 1000, False),
        (NOON + 24 * HOUR + 1, NOON // 1000, True),
        (NOON, NOON // 1000 + 10**9, False),
        (NOON, 0, False),  # Kafka's timestamp is before the window: no clock of today
        (NOON, 946_684_799_999, False),
        (NOON, 946_684_800_000, True),
        (LATEST_US - 1, 253_402_300_799_999, False),
        (LATEST_US, 253_402_300_799_999, True),
        (LATEST_US - 1, None, False),
        (LATEST_US, None, True),
        (10**30, None, True),
        (-(10**30), None, True),
    ],
)
def test_time_outside_the_window_is_absurd(time_us: int, timestamp_ms: int | None, absurd: bool) -> None:  # noqa: FBT001 - a case
    """The window ends a while after Kafka's timestamp of the record, so that reading again gives the same answer."""
    assert is_absurd(time_us, record_timestamp_ms=timestamp_ms, rules=rules()) is absurd


def test_window_from_the_first_year_still_keeps_every_hour_nameable() -> None:
    """No zone is asked for a day before the first or after the last of the calendar."""
    open_rules = TimeSettings(earliest="0001-01-01T00:00:00Z", future_max_s=10**24)
    first = parse_event_time("0001-01-01T12:00:00Z", open_rules)
    assert first is not None
    assert is_absurd(first, record_timestamp_ms=None, rules=open_rules)
    assert not is_absurd(first + 24 * HOUR, record_timestamp_ms=None, rules=open_rules)
