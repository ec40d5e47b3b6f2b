"""Times and dates of which user-activity counts again, and when it writes."""

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest

from log_partitioner_pipeline.activity import dates_of, whole_hours
from log_partitioner_pipeline.jobs.user_activity import seconds_until_due

UTC_ZONE = ZoneInfo("UTC")


def hour_of(text: str) -> int:
    """Give hours since 1970."""
    return int(datetime.fromisoformat(text).timestamp()) // 3600


def told(hours: list[str], zone: str) -> list[tuple[str, str]]:
    """Give spans as texts, their ends excluded."""
    spans = whole_hours(map(hour_of, hours), ZoneInfo(zone))
    return [(moment(first), moment(last + 1)) for first, last in spans]


def moment(time_us: int) -> str:
    """Give day and time."""
    return f"{datetime.fromtimestamp(time_us // 1_000_000, UTC):%d %H:%M}"


@pytest.mark.parametrize(
    ("hours", "zone", "spans"),
    [
        (["2026-03-04T05Z", "2026-03-04T06Z"], "UTC", [("04 05:00", "04 07:00")]),
        (["2026-03-04T05Z", "2026-03-04T08Z"], "UTC", [("04 05:00", "04 06:00"), ("04 08:00", "04 09:00")]),
        (["2026-03-04T05Z"], "Europe/Berlin", [("04 05:00", "04 06:00")]),
        (["2026-03-04T05Z"], "Asia/Kolkata", [("04 04:30", "04 06:30")]),
        (["2026-10-25T00Z"], "Europe/Berlin", [("25 00:00", "25 02:00")]),
        (["2026-10-25T01Z"], "Europe/Berlin", [("25 00:00", "25 02:00")]),
        (["2026-04-04T14Z"], "Australia/Lord_Howe", [("04 14:00", "04 15:30")]),
        (["1969-12-31T23Z"], "UTC", [("31 23:00", "01 00:00")]),
    ],
)
def test_hours_are_counted_whole(hours: list[str], zone: str, spans: list[tuple[str, str]]) -> None:
    """They are the zone's hours: some begin at half past, and one comes twice when clocks are put back."""
    assert told(hours, zone) == spans


def test_hours_far_apart_are_not_joined() -> None:
    """A late entry costs its hour; if there are too many such, the closest are counted with what is between."""
    far = [hour * 1000 for hour in range(20)]
    assert len(whole_hours(far, UTC_ZONE)) == 20
    joined = whole_hours([*far, 2], UTC_ZONE)
    assert (len(joined), joined[0]) == (20, (0, 3 * 3_600_000_000 - 1))


def test_dates_of_the_zone() -> None:
    """The first and the last of each span."""
    spans = whole_hours([hour_of("2026-03-04T22Z"), hour_of("2026-03-04T23Z")], ZoneInfo("Europe/Berlin"))
    assert dates_of(spans, ZoneInfo("Europe/Berlin")) == [(date(2026, 3, 4), date(2026, 3, 5))]
    assert dates_of(spans, UTC_ZONE) == [(date(2026, 3, 4), date(2026, 3, 4))]


@pytest.mark.parametrize(
    ("written_at_ms", "seconds"), [(0, 0.0), (100_000, 0.0), (150_000, 10.0), (200_000, 60.0), (900_000, 60.0)]
)
def test_states_are_written_once_per_interval(written_at_ms: int, seconds: float) -> None:
    """A writer whose clock was ahead delays no job for longer than an interval."""
    assert seconds_until_due(written_at_ms, now_ms=200_000, interval_s=60.0) == seconds
