"""User, event time and id of an entry."""

from typing import Any
from zoneinfo import ZoneInfo

import pytest

from log_partitioner.config.settings import TimeSettings, UserSettings
from log_partitioner.formats.model import CHAIN_HEADER, RootLink, SourceRecord, TopicPartition
from log_partitioner.proof.oracle.json_text import exact, parse_rounding
from log_partitioner.proof.oracle.locate import Path, Surroundings, TimeRule, UserRule, id_of, parse_path, root_of
from log_partitioner.proof.oracle.times import EpochUnit, date_and_hour, read_time

UTC = ZoneInfo("UTC")
NOON = 1_714_564_800_000_000  # 2024-05-01T12:00:00Z
NOON_MS = NOON // 1000


def around(key: bytes | None = None, envelope: Any = None, **headers: bytes | None) -> Surroundings:
    record = SourceRecord(TopicPartition("t", 0), 0, None, key, None, tuple(headers.items()))
    return Surroundings(record, envelope, parse_rounding)


def user(entry: dict[str, Any], *paths: str, surroundings: Surroundings | None = None) -> str | None:
    return UserRule(UserSettings(paths=paths)).user_of(entry, surroundings or around())


def test_path_reads_prefixes_and_escaped_dots() -> None:
    assert parse_path(r"a.b\.c.d") == Path("entry", ("a", "b.c", "d"))
    assert parse_path("envelope:a.b") == Path("envelope", ("a", "b"))
    assert parse_path("key") == Path("key", ())
    assert parse_path("key:a") == Path("key", ("a",))
    assert parse_path("header:x.y") == Path("header", ("x.y",))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("ann", "ann"),
        (7, "7"),
        (-7, "-7"),
        ("x" * 4096, "x" * 4096),
        ("x" * 4097, None),
        (exact("9" * 5000), None),
        (True, None),
        (7.0, "7"),
        (-0.0, "0"),
        (7.5, None),
        (2.0**53, "9007199254740992"),
        (2.0**53 + 2, None),
        ("", None),
        ("-", None),
        (None, None),
        (["ann"], None),
        ({}, None),
    ],
)
def test_user_is_a_string_or_an_integer_that_means_somebody(value: object, expected: str | None) -> None:
    assert user({"user": value}, "user") == expected


def test_user_is_the_first_path_with_a_value() -> None:
    assert user({"a": {"b": "-"}, "c.d": "ann"}, "a.b", "x.y", r"c\.d") == "ann"
    assert user({"a": "text"}, "a.b", "a") == "text"


def test_user_is_found_outside_the_entry() -> None:
    assert user({}, "envelope:who.id", surroundings=around(envelope={"who": {"id": 5}})) == "5"
    assert user({}, "envelope:who", surroundings=around()) is None
    assert user({}, "key", surroundings=around(key="änn".encode())) == "änn"
    assert user({}, "key", surroundings=around(key=b"\xff")) is None
    assert user({}, "key:a.b", surroundings=around(key=b'{"a":{"b":"ann"}}')) == "ann"
    assert user({}, "key:a", surroundings=around(key=b"not json")) is None
    assert user({}, "key:a", surroundings=around(key=rb'{"a":"\ud800"}')) is None
    assert user({}, "header:h", surroundings=around(h=b"ann")) == "ann"
    assert user({}, "header:h", surroundings=around(h=None)) is None


def test_last_header_of_a_name_counts() -> None:
    record = SourceRecord(TopicPartition("t", 0), 0, None, None, None, (("h", b"1"), ("h", b"2"), ("g", b"3")))
    assert user({}, "header:h", surroundings=Surroundings(record, None, parse_rounding)) == "2"


def test_missing_user_has_the_configured_name() -> None:
    rule = UserRule(UserSettings(missing_name="nobody"))
    assert rule.user_of({}, around()) == "nobody"


def test_id_is_text_or_nothing() -> None:
    paths = Path("entry", ("a",)), Path("entry", ("b",))
    assert id_of(paths, {"a": 1.5, "b": 12}, around()) == "12"
    assert id_of(paths, {"a": ""}, around()) == ""
    assert id_of(paths, {}, around()) is None


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (b'[["a",1,2],["b",3,4]]', RootLink("a", 1, 2)),
        (b'[["a",1,2,7]]', RootLink("a", 1, 2, 7)),
        (b'[["a",1,2,0,"more"]]', RootLink("a", 1, 2, 0)),
        (b'[["a",1,2,-1]]', None),
        (b'[["a",1,2,2147483647]]', RootLink("a", 1, 2, 2147483647)),
        (b'[["a",1,2,2147483648]]', None),
        (b'[["a",1,2,true]]', None),
        (b'[["a",1,2,7.0]]', None),
        (b'[["a",1,2,null]]', RootLink("a", 1, 2)),
        (b'[["a",true,2]]', None),
        (b"[]", None),
        (b'[["a",1]]', None),
        (b'{"a":1}', None),
        (b"x", None),
        (None, None),
    ],
)
def test_root_is_the_first_link_of_the_chain(header: bytes | None, expected: RootLink | None) -> None:
    assert root_of(around(**{CHAIN_HEADER: header})) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-05-01T12:00:00Z", NOON),
        ("2024-05-01 12:00:00Z", NOON),
        ("2024-05-01T12:00Z", NOON),
        ("2024-05-01T14:00:00+02:00", NOON),
        ("2024-05-01T14:00:00+0200", NOON),
        ("2024-05-01T14:00:00+02", NOON),
        ("2024-05-01T06:30:00-05:30", NOON),
        ("2024-05-01T12:00:00.1Z", NOON + 100_000),
        ("2024-05-01T12:00:00.123456999Z", NOON + 123_456),
        ("2024-05-01T12:00:00.1234567890123Z", NOON + 123_456),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("2024-05-01T12Z", None),
        ("2024-05-01T25:00:00Z", None),
        ("2024-02-30T12:00:00Z", None),
        ("yesterday", None),
        ("", None),
    ],
)
def test_iso_text_is_read_to_the_microsecond(text: str, expected: int | None) -> None:
    assert read_time(text, unit="auto", zone=UTC) == expected


def test_text_without_offset_is_local_time() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    assert read_time("2024-05-01T14:00:00", unit="auto", zone=berlin) == NOON
    # The hour that the clock shows twice means its first time.
    assert read_time("2024-10-27T02:30:00", unit="auto", zone=berlin) == 1_729_989_000_000_000


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (NOON // 10**6, "auto", NOON),
        (NOON // 10**3, "auto", NOON),
        (NOON, "auto", NOON),
        (NOON * 1000 + 999, "auto", NOON),
        (str(NOON // 10**3), "auto", NOON),
        ("1714564800.5", "auto", NOON + 500_000),
        ("1714564800.0000015", "auto", NOON + 2),
        ("9" * 100, "auto", 1 << 100),
        (1714564800.1234567, "auto", NOON + 123_457),
        (0.0000025, "s", 2),
        (99_999_999_999, "auto", 99_999_999_999_000_000),
        (100_000_000_000, "auto", 100_000_000_000_000),
        (5, "ms", 5_000),
        (5, "us", 5),
        (1999, "ns", 1),
        (1.7145648866978074e18, "ns", 1_714_564_886_697_807),
        (-1, "ns", -1),
        (2.5, "us", 2),
        (True, "s", None),
        ([1], "s", None),
        (exact("1e400"), "s", None),
    ],
)
def test_epoch_numbers_are_read_by_unit_or_magnitude(value: object, unit: EpochUnit, expected: int | None) -> None:
    assert read_time(value, unit=unit, zone=UTC) == expected


def time_of(entry: dict[str, Any], timestamp_ms: int | None = NOON_MS, **settings: Any) -> int | None:
    return TimeRule(TimeSettings(**{"paths": ("a", "b"), **settings})).time_of(entry, around(), timestamp_ms)


def test_first_readable_time_counts() -> None:
    assert time_of({"a": "unreadable", "b": "2024-05-01T11:00:00Z"}) == NOON - 3_600_000_000


def test_first_readable_time_that_is_absurd_is_not_replaced_by_the_next() -> None:
    assert time_of({"a": 1, "b": "2024-05-01T11:00:00Z"}) == NOON


def test_window_includes_its_bounds() -> None:
    day = 86_400_000_000
    assert time_of({"a": "2024-05-02T12:00:00Z"}) == NOON + day
    assert time_of({"a": "2024-05-02T12:00:00.000001Z"}) == NOON
    assert time_of({"a": "2000-01-01T00:00:00Z"}) == 946_684_800_000_000
    assert time_of({"a": "1999-12-31T23:59:59.999999Z"}) == NOON


def test_window_that_begins_at_the_epoch_has_no_negative_times() -> None:
    """An epoch of 0 is a bound as any other; one of the first year ends before the last day that zones can name."""
    assert time_of({"a": -1}, earliest="1970-01-01T00:00:00Z", missing="dead-letter") is None
    assert time_of({"a": 0}, earliest="1970-01-01") == 0
    assert time_of({"a": -1}, earliest="0001-01-01") == -1_000_000
    assert time_of({"a": "0001-01-01T23:00:00Z"}, earliest="0001-01-01") == NOON
    assert time_of({"a": "9999-12-31T00:00:00Z"}, timestamp_ms=None) is None
    assert time_of({}, timestamp_ms=253_402_214_400_000) is None


def test_record_timestamp_before_the_window_judges_no_time() -> None:
    """It is no clock's: 0, or what a producer counts in seconds."""
    assert time_of({"a": "2024-05-01T12:00:00Z"}, timestamp_ms=0) == NOON
    assert time_of({"a": "2024-05-01T12:00:00Z"}, timestamp_ms=NOON_MS // 1000) == NOON
    assert time_of({"a": "2024-05-01T12:00:00Z"}, timestamp_ms=946_684_800_000) == 946_684_800_000_000


def test_missing_time_is_the_records_or_dead() -> None:
    assert time_of({}) == NOON
    assert time_of({}, missing="dead-letter") is None
    assert time_of({}, timestamp_ms=None) is None
    assert time_of({"a": "2030-01-01T00:00:00Z"}, timestamp_ms=None) == 1_893_456_000_000_000


def test_date_and_hour_are_those_of_the_zone() -> None:
    assert date_and_hour(NOON, UTC) == ("2024-05-01", 12)
    assert date_and_hour(NOON, ZoneInfo("Asia/Kolkata")) == ("2024-05-01", 17)
    assert date_and_hour(NOON, ZoneInfo("Pacific/Auckland")) == ("2024-05-02", 0)
    assert date_and_hour(-1, UTC) == ("1969-12-31", 23)
    assert date_and_hour(1 << 70, UTC) is None
