"""Event times of real logs: one table, read alike by both lanes and by the second opinion; and what is absurd."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from log_partitioner import native
from log_partitioner.batch.fast_lane import why_no_lane
from log_partitioner.config.settings import TimeSettings
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.partitioning.event_time import LATEST_US, EpochUnit, is_absurd, parse_event_time
from log_partitioner.partitioning.partitioner import Partitioner, Placement
from log_partitioner.proof.oracle.locate import Surroundings, TimeRule
from log_partitioner.proof.oracle.times import date_and_hour, read_time
from tests.fakes.lanes import recorded, settings

AT = 1_772_600_767_000_000  # 2026-03-04T05:06:07Z
NOON = 1_714_564_800_000_000  # 2024-05-01T12:00:00Z
MINUTE, HOUR = 60_000_000, 3_600_000_000
MIDNIGHT = AT - 5 * HOUR - 6 * MINUTE - 7_000_000
BERLIN = ZoneInfo("Europe/Berlin")
Read = Callable[..., int | None]


def by_worker(value: Any, unit: EpochUnit = "auto", zone: tzinfo = UTC) -> int | None:
    """Read as the worker does."""
    return parse_event_time(value, TimeSettings(epoch_unit=unit, zone=zone))


def by_second_opinion(value: Any, unit: EpochUnit = "auto", zone: tzinfo = UTC) -> int | None:
    """Read as audits do."""
    return read_time(value, unit=unit, zone=zone)


def by_fast_lane(text: str, zone: tzinfo = UTC) -> int | None:
    """Read as the fast lane does, which knows the shape from the record before."""
    values = [json.dumps({"user": "ann", "time": time}).encode() for time in ("2026-03-04T05:06:07Z", text)]
    records = [SourceRecord(TopicPartition("app", 0), n, None, None, value, ()) for n, value in enumerate(values)]
    rows, _ = recorded(records, settings(time=TimeSettings(zone=str(zone), missing="dead-letter")), is_fast=True)
    row = rows.get((1, 0))
    return None if row is None else row.event_time_us


FAST_LANE = pytest.param(by_fast_lane, marks=pytest.mark.skipif(not native.IS_INSTALLED, reason="make native"))
PARSERS = pytest.mark.parametrize("read", [by_worker, by_second_opinion])
READERS = pytest.mark.parametrize("read", [by_worker, by_second_opinion, FAST_LANE])
READ = {
    "2026-03-04t05:06:07z": AT,
    "2026-03-04T05:06:07.5z": AT + 500_000,
    "2026-03-04T05:06:07+01": AT - HOUR,
    "2026-03-04T05:06:07-0230": AT + 2 * HOUR + 30 * MINUTE,
    "2026-03-04T05:06:07+23:59": AT - 23 * HOUR - 59 * MINUTE,
    "2026-03-04 05:06:07,123": AT + 123_000,
    "2026-03-04 05:06:07 UTC": AT,
    "2026-03-04 05:06:07.123 GMT": AT + 123_000,
    "2026-03-04 05:06:07 Z": AT,
    "2026-03-04 05:06:07 +0000": AT,
    "2026-03-04 05:06:07 -0700": AT + 7 * HOUR,
    "2026-03-04 05:06:07 +01:30": AT - HOUR - 30 * MINUTE,
    "2026-03-04 05:06:07.123456789 +0000 UTC": AT + 123_456,
    "2026-03-04 05:06:07 -0700 PDT": AT + 7 * HOUR,
    "2026-03-04T05:06:07.123+01:00[Europe/Paris]": AT - HOUR + 123_000,
    "2026-03-04T05:06:07Z[UTC]": AT,
    "20260304T050607Z": AT,
    "20260304T050607": AT,
    "20260304T050607.250+0100": AT - HOUR + 250_000,
    "20260304T0506Z": AT - 7_000_000,
    "20260304 05:06:07": AT,
    "2026/03/04 05:06:07": AT,
    "2026/03/04 05:06:07.123 +0000": AT + 123_000,
    "04/Mar/2026:05:06:07 +0000": AT,
    "04/mar/2026:05:06:07 -0200": AT + 2 * HOUR,
    "04-Mar-2026 05:06:07": AT,
    "Wed, 04 Mar 2026 05:06:07 GMT": AT,
    "Wed, 4 Mar 2026 05:06:07 +0000 (UTC)": AT,
    "4 MAR 2026 05:06 +0000": AT - 7_000_000,
    "2026-03-04": MIDNIGHT,
    "2026/03/04": MIDNIGHT,
    "04/Mar/2026": MIDNIGHT,
    "2026-03-03T24:00:00Z": MIDNIGHT,
    "2026-03-03 24:00": MIDNIGHT,
    "2026-03-03T24:00:00.000+01:00": MIDNIGHT - HOUR,
    "2026-03-03T23:59:60Z": MIDNIGHT,
    "2026-03-03T23:59:60.5Z": MIDNIGHT + 500_000,
    "20260303T235960Z": MIDNIGHT,
    "2016-12-31T18:59:60-05:00": 1_483_228_800_000_000,
    "2024-02-29": 1_709_164_800_000_000,
    "2026-03-04T05:06Z": AT - 7_000_000,
    "2026-03-04 05:06:07Z": AT,
    "2026-03-04T05:06:07": AT,
    "2026-03-04T07:06:07+02:00": AT,
    "2026-03-04T07:06:07+0200": AT,
    "2026-03-04T00:36:07-0430": AT,
    "2026-03-04T05:06:07.123456999Z": AT + 123_456,
    "2026-03-04T05:06:07.1234567890123Z": AT + 123_456,
}
NO_TIMES = [
    "01/02/2026", "03/04/2026 05:06:07", "04.03.2026 05:06:07", "4/3/26", "2026-3-4", "2026-03", "2026-W10-3",
    "Mar  4 05:06:07", "Wed Mar  4 05:06:07 2026", "05:06:07", "2026-03-04 05", "2026-03-04-05", "2026-03-04Z",
    "2026-03-04 05:06:07 CET", "2026-03-04 05:06:07 Europe/Paris", "2026-03-04T05:06:07[Europe/Paris]",
    "2026-03-04 05:06:07  UTC", "2026-03-04 05:06:07 UTC ", " 2026-03-04", "2026-03-04\n", "2026-03-04 05:06:07 +24:00",
    "2026-03-04 05:06:07 +", "2026-03-04 05:06:07 +1", "2026-03-04T05:06:61Z",
    "2026-03-04T05:06:07+24:00",
    "2026-03-04T24:00:01Z", "2026-03-04T24:00:00.1Z", "2026-03-04T24:01", "2026-03-04T25:00", "2026-03-04T05:60:00Z",
    "2026/03/04 05:06:07 +0060", "2026/03/04 05:06.5",
    "2026/03-04", "2026-02-29", "2026-13-01", "2026-00-10", "2026-03-00", "0000-00-00 00:00:00", "0000-03-04",
    "20260304T05060Z", "20260304T05", "20260304T0506.5Z", "20260304T05:0607", "04/Mar/26",
    "04/Mrz/2026", "04 Mar/2026", "004/Mar/2026", "Mittwoch, 04 Mar 2026", "Wed 04 Mar 2026", "Wed,04 Mar 2026",
    "2026-03-04T05:06:07Z[", "2026-03-04T05:06:07Z[]", "2026-03-04T05:06:07Z[a b]", "2026-03-04 05:06:07 +0000 U",
    "2026-03-04 05:06:07 +0000 (UTC", "2026-03-04 05:06:07 +0000UTC", "2026-03-04 05:06:07 Z PDT",
    "", " ", "yesterday", "NaN", "inf", "1.", ".5", "--5", "\u0665", " 1714564800", "1e9", "2026-03-04T05Z",
    "2026-03-04T05:06:07+99:00", "2026-03-04T05:06:07Z\ud800",
    "\u0662\u0660\u0662\u0666-03-04", "2026-03-04\u00a005:06:07", "2026-03-04T05:06:07\u017a", "1.772600767e+09",
]  # fmt: skip


@READERS
@pytest.mark.parametrize(("text", "expected"), READ.items(), ids=READ)
def test_time_of_each_form_is_its_moment(read: Read, text: str, expected: int) -> None:
    """RFC 3339 with leap seconds, 24:00 and small letters, basic ISO, CLF, RFC 2822, slashes, dates alone."""
    assert read(text) == expected


@READERS
@pytest.mark.parametrize("text", NO_TIMES)
def test_text_that_is_ambiguous_or_broken_is_no_time(read: Read, text: str) -> None:
    """Days before months or after, names of zones, times without a date; without a year if Kafka has no timestamp."""
    assert read(text) is None


@PARSERS
@pytest.mark.parametrize("value", [None, True, False, [], {}, ["2024-05-01T12:00:00Z"], {"$date": 1}])
def test_value_that_is_no_time_is_none(read: Read, value: Any) -> None:
    """The next path is tried."""
    assert read(value) is None


@READERS
@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026/03/04 05:06:07", 1_772_597_167),
        ("2026-03-04", 1_772_578_800),  # a date alone begins at the zone's midnight
        ("2024-03-31T01:59:59", 1_711_846_799),
        ("2024-03-31T02:30:00", 1_711_848_600),  # does not exist: taken as if the clock had not been put forward
        ("2024-03-31T03:00:00", 1_711_846_800),
        ("2024-10-27T02:30:00", 1_729_989_000),  # exists twice: the first
        ("2024-10-27T03:00:00", 1_729_994_400),
        ("2024-10-27T02:30:00+01:00", 1_729_992_600),
        ("2024-10-27 02:59:60", 1_729_994_400),
        ("2024-10-27T24:00:00", 1_730_070_000),
    ],
)
def test_form_without_a_zone_is_local_time(read: Read, text: str, seconds: int) -> None:
    """Times that exist twice or not at all get the same moment every time; 24:00 is found behind a change of clocks."""
    assert read(text, zone=BERLIN) == seconds * 1_000_000


@PARSERS
@pytest.mark.parametrize("text", ["9999-12-31T24:00:00", "9999-12-31T24:00:00Z", "9999-12-31T23:59:60"])
def test_form_beyond_the_calendar_is_a_time_of_none(read: Read, text: str) -> None:
    """It is read, and absurd: the next path is not asked."""
    read_as = read(text)
    assert read_as is not None
    assert read_as >= 253_402_214_400_000_000


@PARSERS
@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        ("0001-01-01T00:00:00+14:00", "auto", -62_135_596_800_000_000 - 14 * HOUR),
        ("1969-12-31T23:59:59.999999Z", "auto", -1),
        ("9999-12-31T23:59:59Z", "auto", 253_402_300_799_000_000),
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
        ("1714564800.0000015", "auto", NOON + 2),
        (1714564800.1234567, "auto", NOON + 123_457),
        (0.0000025, "s", 2),
        (2.5, "us", 2),
        (-1, "ns", -1),
        (1.7145648866978074e18, "ns", 1_714_564_886_697_807),
        (-1, "s", -1_000_000),
    ],
)
def test_epoch_is_read_by_its_unit_or_by_its_magnitude(read: Read, value: Any, unit: EpochUnit, expected: int) -> None:
    """Seconds to nanoseconds, as number or text; `auto` tells them apart by their size."""
    assert read(value, unit) == expected


@pytest.mark.parametrize("unit", ["auto", "s", "ms", "us", "ns"])
@pytest.mark.parametrize("value", [1e308, -1e308, 1.7e303, 10**4299, -(10**4299), "9" * 20 + "." + "9" * 20, "1" * 21])
def test_number_of_any_size_in_any_unit_does_not_raise(value: Any, unit: EpochUnit) -> None:
    """A number far beyond any calendar is absurd or no time, never an exception."""
    time_us = by_worker(value, unit)
    assert (
        time_us is None or is_absurd(time_us, record_timestamp_ms=None, rules=TimeSettings()) or isinstance(value, str)
    )


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
    assert is_absurd(time_us, record_timestamp_ms=timestamp_ms, rules=TimeSettings()) is absurd
    record = SourceRecord(TopicPartition("app", 0), 0, timestamp_ms, None, None, ())
    rule = TimeRule(TimeSettings(epoch_unit="us", missing="dead-letter"))
    found = rule.time_of({"time": time_us}, Surroundings(record, None, json.loads), timestamp_ms)
    assert found == (None if absurd else time_us)


def test_window_from_the_first_year_still_keeps_every_hour_nameable() -> None:
    """No zone is asked for a day before the first or after the last of the calendar."""
    open_rules = TimeSettings(earliest="0001-01-01T00:00:00Z", future_max_s=10**24)
    first = parse_event_time("0001-01-01T12:00:00Z", open_rules)
    assert first is not None
    assert is_absurd(first, record_timestamp_ms=None, rules=open_rules)
    assert not is_absurd(first + 24 * HOUR, record_timestamp_ms=None, rules=open_rules)


def test_date_and_hour_of_the_second_opinion_are_those_of_the_zone() -> None:
    """The worker's are in tests/property; beyond the calendar there is no date."""
    assert date_and_hour(NOON, ZoneInfo("Pacific/Auckland")) == ("2024-05-02", 0)
    assert date_and_hour(1 << 70, UTC) is None


def by_rules(value: str, rules: TimeSettings, timestamp: str | None = None) -> int | None:
    """Read as worker and second opinion do: the time of an entry whose record has a timestamp."""
    timestamp_ms = None if timestamp is None else at(timestamp) // 1000
    record = SourceRecord(TopicPartition("app", 0), 0, timestamp_ms, None, None, ())
    rules = rules.model_copy(update={"missing": "dead-letter"})
    judged = TimeRule(rules).time_of({"time": value}, Surroundings(record, None, json.loads), timestamp_ms)
    placed = Partitioner(settings(time=rules)).partition({"user": "ann", "time": value}, None, record)
    assert judged == (placed.event_time_us if isinstance(placed, Placement) else None)
    return judged


def at(text: str) -> int:
    """Return the microseconds of an ISO 8601 text."""
    return round(datetime.fromisoformat(text).timestamp() * 1_000_000)


@pytest.mark.parametrize(
    ("text", "timestamp", "expected"),
    [
        ("Mar  4 05:06:07", "2026-03-04T05:06:08Z", "2026-03-04T05:06:07Z"),
        ("mar 04 05:06:07.250", "2026-03-04T05:06:08Z", "2026-03-04T05:06:07.250Z"),
        ("Dec 31 23:59:58", "2026-01-01T00:00:05Z", "2025-12-31T23:59:58Z"),
        ("Dec 31 23:59:60", "2026-01-01T00:00:05Z", "2026-01-01T00:00:00Z"),
        ("Jan  1 00:00:03", "2025-12-31T23:59:59Z", "2026-01-01T00:00:03Z"),  # the sender's clock is ahead
        ("Jan  3 00:00:03", "2025-12-31T23:59:59Z", "2025-01-03T00:00:03Z"),  # not by more than time.future_max_s
        ("Mar  5 05:06:08", "2026-03-04T05:06:08Z", "2026-03-05T05:06:08Z"),
        ("Mar  5 05:06:09", "2026-03-04T05:06:08Z", "2025-03-05T05:06:09Z"),
        ("Feb 29 12:00:00", "2025-01-07T00:00:00Z", "2024-02-29T12:00:00Z"),
        ("Feb 29 12:00:00", "2026-03-04T05:06:08Z", None),
        ("Feb 30 12:00:00", "2026-03-04T05:06:08Z", None),
        ("Mar  4 05:06:07", None, None),
        ("Mar  4 05:06:07", "1999-12-31T23:59:59Z", None),  # Kafka's timestamp is no clock's
        ("Mar  4 05:06:07 2026", "2026-03-04T05:06:08Z", None),
        ("Mar  4 05:06", "2026-03-04T05:06:08Z", None),
        ("Mär  4 05:06:07", "2026-03-04T05:06:08Z", None),
    ],
)
def test_text_without_a_year_is_of_the_newest_within_the_window(
    text: str, timestamp: str | None, expected: str | None
) -> None:
    """As syslog writes it: the record's timestamp says the year, also around the turn of one."""
    assert by_rules(text, TimeSettings(), timestamp) == (None if expected is None else at(expected))


def test_newest_year_is_that_of_the_zone_and_one_of_the_calendar() -> None:
    rules = TimeSettings(zone="Pacific/Auckland")
    assert by_rules("Jan  1 05:00:00", rules, "2025-12-30T20:00:00Z") == at("2026-01-01T05:00:00+13:00")
    rules = TimeSettings(future_max_s=10**24)
    assert by_rules("Mar  4 05:06:07", rules, "2026-03-04T05:06:08Z") == at("9999-03-04T05:06:07Z")


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("%d/%m/%Y %H:%M:%S", "04/03/2026 05:06:07", "2026-03-04T05:06:07Z"),
        ("%m/%d/%Y %H:%M:%S", "3/4/2026  5:06:07", "2026-03-04T05:06:07Z"),
        ("%d.%m.%Y %H:%M", "04.03.2026 05:06", "2026-03-04T05:06:00Z"),
        ("%d.%m.%Y", "04.03.2026", "2026-03-04T00:00:00Z"),
        ("%Y%m%d%H%M%S", "20260304050607.123456789", "2026-03-04T05:06:07.123456Z"),
        ("%y/%m/%d %H:%M:%S", "26/03/04 05:06:07,5", "2026-03-04T05:06:07.5Z"),
        ("%a %b %d %H:%M:%S %Y", "Wed Mar  4 05:06:07.5 2026", "2026-03-04T05:06:07.5Z"),
        ("%Y年%m月%d日 %H:%M:%S", "2026年3月4日 05:06:07", "2026-03-04T05:06:07Z"),
        ("100%% [%d/%b/%Y] %H:%M:%S %z", "100% [04/MAR/2026] 05:06:07 +0130", "2026-03-04T05:06:07+01:30"),
        ("%d-%b-%Y %H:%M:%S%z", "04-Mar-2026 05:06:07z", "2026-03-04T05:06:07Z"),
        ("%m%d %H:%M:%S", "0304 05:06:07.123456", "2026-03-04T05:06:07.123456Z"),
        ("%m-%d %H:%M:%S", "12-31 23:59:59", "2025-12-31T23:59:59Z"),
        ("%Y-%d-%m %H:%M:%S", "2026-04-03 05:06:07", "2026-03-04T05:06:07Z"),  # before any other form
        ("%d/%m/%Y %H:%M:%S", "2026-03-04T05:06:07Z", "2026-03-04T05:06:07Z"),  # and then the others
        ("%d/%m/%Y %H:%M:%S", "Mar  4 05:06:07", "2026-03-04T05:06:07Z"),
        ("%d/%m/%Y %H:%M:%S", "31/02/2026 05:06:07", None),
        ("%d/%m/%Y %H:%M:%S", "04/13/2026 05:06:07", None),
        ("%d/%m/%Y %H:%M:%S", "04/03/2026 25:06:07", None),
        ("%d/%m/%Y %H:%M:%S", "04/03/2026 05:06:61", None),
        ("%d/%m/%Y %H:%M:%S", "04/03/2026 05:06:07 ", None),
        ("%d/%m/%Y %H:%M:%S", "04/03/2026\t05:06:07", None),
        ("%d %b %Y", "04 Mrz 2026", None),
        ("%d/%m/%Y %z", "04/03/2026 +2400", None),
        ("%d/%m/%Y", "\u0660\u0664/03/2026", None),
    ],
)
def test_text_of_the_format_is_read_before_any_other(form: str, text: str, expected: str | None) -> None:
    read = by_rules(text, TimeSettings(format=form), "2026-03-04T06:00:00Z")
    assert read == (None if expected is None else at(expected))


@pytest.mark.parametrize(
    "form", ["", "%H:%M:%S", "%d/%Y", "%m/%Y", "%d%d%m", "%d%m%b", "%d%m%y%Y", "%d%m%S%f", "%d%m%", "%d%m%s", "%D%m"]
)
def test_format_that_names_no_day_once_is_refused(form: str) -> None:
    with pytest.raises(ValidationError, match="must be a day, a month and more, such as %d/%m/%Y"):
        TimeSettings(format=form)


@pytest.mark.skipif(not native.IS_INSTALLED, reason="make native")
def test_fast_lane_which_reads_frequent_forms_first_is_not_entered_with_a_format() -> None:
    assert why_no_lane(settings(time=TimeSettings(format="%Y-%d-%m"))) == "time.format is set"


def test_local_time_of_a_format_is_that_of_the_zone() -> None:
    rules = TimeSettings(format="%d.%m.%Y %H:%M", zone="Europe/Berlin")
    assert by_rules("04.03.2026 05:06", rules) == at("2026-03-04T05:06:00+01:00")


times_like = st.lists(
    st.sampled_from(["Mar", "Feb", "Dec", " 4", "29", "31", "00", " ", ":", "/", ".", ",", "2026", "26", "Z", "+01:00"])
).map("".join)
forms = st.sampled_from(["%b %d %H:%M:%S", "%d/%m/%Y %H:%M:%S%z", "%y%m%d", "%d%b%Y", "%b%d %H:%M:%S %z", "%m.%d"])


@given(
    times_like, forms, st.sampled_from(["2026-01-01T00:00:00Z", "2024-12-31T23:59:59Z", "2024-03-01T00:00:00Z", None])
)
def test_any_text_by_any_format_is_what_the_second_opinion_says(text: str, form: str, timestamp: str | None) -> None:
    by_rules(text, TimeSettings(format=form, zone="Pacific/Auckland"), timestamp)
