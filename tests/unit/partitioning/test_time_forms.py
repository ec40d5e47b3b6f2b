"""Times as real logs write them: one table, read alike by both lanes and by the second opinion (DESIGN 3.1)."""

import json
from collections.abc import Callable
from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo

import pytest

from log_partitioner import native
from log_partitioner.config.settings import TimeSettings
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.partitioning.event_time import parse_event_time
from log_partitioner.proof.oracle.times import read_time
from tests.fakes.lanes import recorded, settings

AT = 1_772_600_767_000_000  # 2026-03-04T05:06:07Z
MINUTE, HOUR = 60_000_000, 3_600_000_000
MIDNIGHT = AT - 5 * HOUR - 6 * MINUTE - 7_000_000
Read = Callable[[str, tzinfo], int | None]


def by_worker(text: str, zone: tzinfo = UTC) -> int | None:
    """Read as the worker does."""
    return parse_event_time(text, TimeSettings(zone=zone))


def by_second_opinion(text: str, zone: tzinfo = UTC) -> int | None:
    """Read as audits do."""
    return read_time(text, unit="auto", zone=zone)


def by_fast_lane(text: str, zone: tzinfo = UTC) -> int | None:
    """Read as the fast lane does, which knows the shape from the record before."""
    values = [json.dumps({"user": "ann", "time": time}).encode() for time in ("2026-03-04T05:06:07Z", text)]
    records = [SourceRecord(TopicPartition("app", 0), n, None, None, value, ()) for n, value in enumerate(values)]
    rows, _ = recorded(records, settings(time=TimeSettings(zone=str(zone), missing="dead-letter")), is_fast=True)
    row = rows.get((1, 0))
    return None if row is None else row.event_time_us


FAST_LANE = pytest.param(by_fast_lane, marks=pytest.mark.skipif(not native.IS_INSTALLED, reason="make native"))
PARSERS = [by_worker, by_second_opinion]
READERS = pytest.mark.parametrize("read", [*PARSERS, FAST_LANE])
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
    "\u0662\u0660\u0662\u0666-03-04", "2026-03-04\u00a005:06:07", "2026-03-04T05:06:07\u017a", "1.772600767e+09",
]  # fmt: skip


@READERS
@pytest.mark.parametrize(("text", "expected"), READ.items(), ids=READ)
def test_time_of_each_form_is_its_moment(read: Read, text: str, expected: int) -> None:
    """RFC 3339 with leap seconds, 24:00 and small letters, basic ISO, CLF, RFC 2822, slashes, dates alone."""
    assert read(text, UTC) == expected


@READERS
@pytest.mark.parametrize("text", NO_TIMES)
def test_text_that_is_ambiguous_or_broken_is_no_time(read: Read, text: str) -> None:
    """Days before months or after, names of zones, times without a date or a year: nothing is guessed."""
    assert read(text, UTC) is None


@READERS
def test_form_without_a_zone_is_local_time(read: Read) -> None:
    """A date alone begins at the zone's midnight; 24:00 is found behind a change of clocks, too."""
    berlin = ZoneInfo("Europe/Berlin")
    assert read("2026/03/04 05:06:07", berlin) == AT - HOUR
    assert read("2026-03-04", berlin) == MIDNIGHT - HOUR
    assert read("2024-10-27T24:00:00", berlin) == 1_730_070_000_000_000
    assert read("2024-10-27 02:59:60", berlin) == 1_729_994_400_000_000


@pytest.mark.parametrize("read", PARSERS)
@pytest.mark.parametrize("text", ["9999-12-31T24:00:00", "9999-12-31T24:00:00Z", "9999-12-31T23:59:60"])
def test_form_beyond_the_calendar_is_a_time_of_none(read: Read, text: str) -> None:
    """It is read, and absurd: the next path is not asked."""
    read_as = read(text, UTC)
    assert read_as is not None
    assert read_as >= 253_402_214_400_000_000
