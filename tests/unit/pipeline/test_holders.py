"""The day on which a bucket's lifecycle deletes an object."""

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from log_partitioner_pipeline.holders import end_of

CREATED_AT = datetime(2026, 3, 4, 23, 30, tzinfo=UTC)
KEY = "logs/user=ann/1.avro"
DAYS_30 = {"Status": "Enabled", "Filter": {"Prefix": "logs/"}, "Expiration": {"Days": 30}}


@pytest.mark.parametrize(
    ("rules", "day"),
    [
        ([], None),
        ([DAYS_30], date(2026, 4, 4)),
        ([DAYS_30, {"Status": "Enabled", "Prefix": "", "Expiration": {"Days": 7}}], date(2026, 3, 12)),
        ([DAYS_30, {"Status": "Enabled", "Filter": {}, "Expiration": {"Date": CREATED_AT}}], date(2026, 3, 4)),
        ([DAYS_30 | {"Status": "Disabled"}], None),
        ([DAYS_30 | {"Filter": {"Prefix": "other/"}}], None),
        ([DAYS_30 | {"Filter": {"Tag": {"Key": "k", "Value": "v"}}}], None),
        ([DAYS_30 | {"Filter": {"And": {"Prefix": "logs/", "ObjectSizeGreaterThan": 1}}}], None),
        ([{"Status": "Enabled", "Filter": {"Prefix": ""}, "NoncurrentVersionExpiration": {"NoncurrentDays": 1}}], None),
    ],
)
def test_first_rule_of_the_key_deletes_it(rules: list[dict[str, Any]], day: date | None) -> None:
    """By days, rounded up to midnight of UTC, or by date; other conditions than a prefix are left out."""
    told = "nothing deletes it" if day is None else f"the bucket's lifecycle deletes it on {day}"
    assert end_of(rules, KEY, created_at=CREATED_AT) == told


def test_days_are_those_of_utc() -> None:
    """The zone of the given time does not matter; if the store does not answer, the end is not known."""
    at = CREATED_AT.astimezone(timezone(timedelta(hours=9)))
    assert end_of([DAYS_30], KEY, created_at=at).endswith(" on 2026-04-04")
    assert end_of(None, KEY, created_at=at) == "the store does not tell its lifecycle"
