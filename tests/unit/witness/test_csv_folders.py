"""Folders that name day or hour -> which files a window reads."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_partitioner_pipeline.archive.files import Folders, Period
from log_partitioner_pipeline.errors import ArchiveError

ZONES = ["UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe"]
HOURLY, DAILY = "date=%Y-%m-%d/hour=%H", "%Y/%m/%d"
MOMENTS = st.datetimes(datetime(2015, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - by hypothesis


@given(MOMENTS, st.sampled_from(ZONES), st.sampled_from([HOURLY, DAILY]))
def test_a_moment_is_in_the_period_of_its_folder(moment: datetime, zone: str, pattern: str) -> None:
    """In every zone, at changes of the clock, too; and a period is no longer than it must be."""
    folder = moment.astimezone(ZoneInfo(zone)).strftime(pattern)
    period = Folders(pattern, ZoneInfo(zone)).period_of(f"{folder}/part-1.csv.gz")
    assert period is not None
    at_ms = round(moment.timestamp() * 1000) - (1 if moment.microsecond >= 999_500 else 0)
    assert period.begin_ms <= at_ms < period.end_ms
    most = timedelta(hours=2) if pattern == HOURLY else timedelta(hours=25)
    assert period.end_ms - period.begin_ms <= most.total_seconds() * 1000


@pytest.mark.parametrize(
    ("path", "begin", "hours"),
    [
        ("2026/10/25/02", "2026-10-25T00:00:00Z", 2),  # the clock shows this hour twice
        ("2026/10/25/03", "2026-10-25T02:00:00Z", 1),
        ("2026/03/29/03", "2026-03-29T01:00:00Z", 1),
    ],
)
def test_an_hour_that_the_clock_shows_twice_is_both(path: str, begin: str, hours: int) -> None:
    """Files of one folder cannot be told apart."""
    period = Folders(f"{DAILY}/%H", ZoneInfo("Europe/Berlin")).period_of(path)
    begin_ms = round(datetime.fromisoformat(begin).timestamp() * 1000)
    assert period == Period(begin_ms, begin_ms + hours * 3_600_000)


@pytest.mark.parametrize("path", ["a.csv", "x/2026/03/04/a.csv", "2026/02/31/a.csv", "2026/3/4/a.csv"])
def test_a_path_that_names_no_day_has_no_period(path: str) -> None:
    """It is read under every window."""
    assert Folders(DAILY, ZoneInfo("UTC")).period_of(path) is None


@pytest.mark.parametrize("pattern", ["%Y/%m", "%Y/%m/%d/%M", "%Y/%m/%d/%d", "logs"])
def test_a_pattern_without_a_day_is_refused(pattern: str) -> None:
    """In words, before anything is read."""
    with pytest.raises(ArchiveError, match="PIPELINE_CSV__FOLDERS"):
        Folders(pattern, ZoneInfo("UTC"))


@pytest.mark.parametrize(
    ("from_ms", "until_ms", "margin_ms", "overlaps"),
    [
        (None, None, 0, True),
        (200, None, 0, False),
        (199, None, 0, True),
        (None, 100, 0, False),
        (None, 101, 0, True),
        (250, 300, 50, False),
        (249, 300, 50, True),
        (0, 50, 50, False),
        (0, 51, 50, True),
    ],
)
def test_windows_are_half_open(from_ms: int | None, until_ms: int | None, margin_ms: int, *, overlaps: bool) -> None:
    """A period that ends where a window begins is not of it, unless the margin says so."""
    assert Period(100, 200).overlaps(from_ms, until_ms, margin_ms=margin_ms) is overlaps
