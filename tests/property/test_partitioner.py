# ruff: noqa: FBT001 - booleans are drawn
"""Users in object keys, and event times: bounded, injective, and never an exception (DESIGN 3.1, 3.4)."""

from __future__ import annotations

import posixpath
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from hypothesis import assume, given
from hypothesis import strategies as st

from log_partitioner.config.settings import IdSettings, PartitionSettings, Settings, TimeSettings, UserSettings
from log_partitioner.formats.model import PartitionKey, SourceRecord, TopicPartition
from log_partitioner.formats.object_key import KEY_SAFE_CHARS_MAX, data_key, key_safe
from log_partitioner.partitioning.event_time import LATEST_US, EpochUnit, parse_event_time
from log_partitioner.partitioning.partitioner import Partitioner, Placement, Rejection
from tests.fakes.lanes import assert_judged_alike, settings
from tests.strategies import entries, floats, integers, times_as_many, values

SAFE = re.compile(r"[A-Za-z0-9_%~-]*\Z")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Pacific/Kiritimati", "Pacific/Niue")
UNITS: tuple[EpochUnit, ...] = ("auto", "s", "ms", "us", "ns")
users = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=150) | st.sampled_from(
    [
        "../../x",
        "/etc/x",
        "..\\",
        ".",
        "..",
        "a/b",
        "%2e%2e",
        "~",
        "a~b",
        "\0",
        "CON",
        "-",
        "x" * 10_000,
        "é",
        "e\u0301",
    ]
)
time_rules = st.builds(TimeSettings, epoch_unit=st.sampled_from(UNITS), zone=st.sampled_from(ZONES))


@given(users, users)
def test_users_that_differ_have_encodings_that_differ(one: str, other: str) -> None:
    """The encoding is injective, also without case folding of the bytes it escapes."""
    assert (key_safe(one) == key_safe(other)) == (one == other)


@given(users)
def test_encoded_user_is_bounded_safe_as_a_path_and_reads_back(user: str) -> None:
    """At most 100 bytes of harmless characters; up to that bound the user reads back."""
    encoded = key_safe(user)
    assert len(encoded.encode()) <= KEY_SAFE_CHARS_MAX
    assert SAFE.match(encoded)
    assert "~" in encoded or unquote(encoded) == user
    assert "~" not in encoded or len(user.encode()) * 3 > KEY_SAFE_CHARS_MAX


@given(users, st.dates(), st.integers(0, 23))
def test_object_key_of_any_user_stays_below_its_prefix(user: str, date: Any, hour: int) -> None:
    """No user climbs out of the prefix, makes an empty or dotted segment, or a key that S3 refuses for its length."""
    key = data_key("logs", PartitionKey(user, date.isoformat(), hour), batch_id="b" * 40, number=10**6, attempt=3)
    assert posixpath.normpath(key) == key
    assert key.count("/") == 4
    assert len(key.encode()) <= 1024


@given(
    values() | integers | floats | st.datetimes().map(str) | st.integers().map(str) | st.floats().map(str), time_rules
)
def test_event_time_of_any_value_is_a_number_or_none(value: Any, rules: TimeSettings) -> None:
    """Reading a time never raises, whatever stands where a time is expected."""
    assert type(parse_event_time(value, rules)) in (int, type(None))


@given(
    st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)),  # noqa: DTZ001 - the offset is drawn
    st.integers(-23 * 60 - 59, 23 * 60 + 59),
    st.sampled_from("Tt "),
    st.booleans(),
)
def test_event_time_of_iso_text_is_exact_to_the_microsecond(
    moment: datetime,
    offset_minutes: int,
    separator: str,
    with_colon: bool,
) -> None:
    """Any moment written with any offset reads back exactly."""
    aware = moment.replace(tzinfo=timezone(timedelta(minutes=offset_minutes)))
    text = aware.isoformat(sep=separator)
    if not with_colon:
        text = text[:-3] + text[-2:]
    rules = TimeSettings(zone="Asia/Kathmandu")
    assert parse_event_time(text, rules) == (aware - EPOCH) // timedelta(microseconds=1)


@given(st.integers(1 - 10**20, 10**20 - 1), st.sampled_from(UNITS))
def test_event_time_of_a_number_and_of_its_text_are_the_same(number: int, unit: EpochUnit) -> None:
    """It does not matter whether a producer quotes its epochs."""
    rules = TimeSettings(epoch_unit=unit)
    assert parse_event_time(str(number), rules) == parse_event_time(number, rules)


def rules_of(zone: str, *, missing_user: str | None, missing_time: Any) -> Settings:
    """Make settings by which a partitioner looks everywhere."""
    return settings(
        user=UserSettings(
            paths=("user", "a.b", "envelope:user", "key", "key:user", "header:user"), missing_name=missing_user
        ),
        time=TimeSettings(
            paths=("time", "a.c", "envelope:time", "header:time"),
            earliest="1970-01-01T00:00:00Z",
            missing=missing_time,
        ),
        id=IdSettings(paths=("id", "key:id")),
        partition=PartitionSettings(zone=zone),
    )


some_rules = st.builds(
    rules_of,
    st.sampled_from(ZONES),
    missing_user=st.none() | st.just("unknown"),
    missing_time=st.sampled_from(["record-timestamp", "dead-letter"]),
)
records = st.builds(
    SourceRecord,
    st.just(TopicPartition("app", 0)),
    st.integers(0, 2**40),
    st.none() | st.integers(0, 2**60),
    st.none() | st.binary(max_size=20) | st.just(b'{"user": "bob", "id": 7}'),
    st.none(),
    st.lists(st.tuples(st.sampled_from(["user", "time"]), st.none() | st.binary(max_size=8)), max_size=3).map(tuple),
)


@times_as_many(4)
@given(some_rules, entries() | st.fixed_dictionaries({"user": values(leaves=2), "time": values(leaves=2)}), records)
def test_placing_any_entry_gives_a_key_or_a_reason(
    rules: Settings, entry: dict[str, Any], record: SourceRecord
) -> None:
    """Placing never raises; a placed entry has a user, a time that a row can hold, and the hour it lies in.

    The second opinion, by other code, says the same.
    """
    where, envelope = Partitioner(rules), {"user": entry.get("x")}
    placed = where.partition(entry, envelope, record)
    assert_judged_alike(placed, entry, envelope, record, rules)
    if isinstance(placed, Rejection):
        return
    assert placed.key.user not in ("", "-")
    assert 0 <= placed.event_time_us < LATEST_US
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", placed.key.date)
    assert where.partition(entry, envelope, record) == placed


@given(st.sampled_from(ZONES), st.integers(0, LATEST_US - 1))
def test_date_and_hour_of_a_time_are_those_of_the_zone(zone: str, time_us: int) -> None:
    """The PartitionKey names the local hour in which the moment lies, at any year and offset."""
    moment = (EPOCH + timedelta(microseconds=time_us)).astimezone(ZoneInfo(zone))
    assume(moment.year <= 9999)
    where = Partitioner(rules_of(zone, missing_user="u", missing_time="record-timestamp"))
    record = SourceRecord(TopicPartition("app", 0), 0, LATEST_US // 1000 - 1, None, None, ())
    text = (EPOCH + timedelta(microseconds=time_us)).isoformat()
    placed = where.partition({"time": text}, None, record)
    assert isinstance(placed, Placement)
    assert (placed.key.date, placed.key.hour) == (moment.date().isoformat(), moment.hour)
    assert placed.event_time_us == time_us
