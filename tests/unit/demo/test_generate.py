"""The generator: what it makes is determined by its settings, and every trait does occur."""

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pytest

from service import zstd
from tools.demo.entries import AWKWARD_USERS, TIME_SHAPES
from tools.demo.flaws import FLAWS
from tools.demo.generate import GeneratedRecord, generate
from tools.demo.settings import GeneratorSettings, Rates

SETTINGS = GeneratorSettings(seed=1, entries=20_000)


@pytest.fixture(scope="module")
def records() -> list[GeneratedRecord]:
    return list(generate(SETTINGS))


@pytest.fixture(scope="module")
def entries(records: list[GeneratedRecord]) -> list[dict[str, object]]:
    return [entry for record in records if record.flaw is None for entry in decode(record.value)]


def decode(value: bytes | None) -> Iterator[dict[str, object]]:
    decoded = json.loads(unpack(value or b"[]"))
    yield from decoded if isinstance(decoded, list) else [decoded]


def unpack(value: bytes) -> bytes:
    if value.startswith(b"\x1f\x8b"):
        return gzip.decompress(value)
    if value.startswith(b"\x28\xb5\x2f\xfd"):
        return zstd.decompress(value)
    return value


def test_generate_equal_settings_equal_records(records: list[GeneratedRecord]) -> None:
    """Nothing but the settings decides what is made."""
    assert records == list(generate(SETTINGS))


def test_generate_other_seed_other_records(records: list[GeneratedRecord]) -> None:
    """The seed decides about every record."""
    other = list(generate(GeneratorSettings(seed=2, entries=20_000)))

    assert not {record.value for record in records if record.entries} & {
        record.value for record in other if record.entries and record.flaw is None
    }


def test_generate_entries_exactly_as_many_as_asked(records: list[GeneratedRecord]) -> None:
    """Entries count to the number asked for, and those of records without flaw can be decoded."""
    assert sum(record.entries for record in records) == 20_000
    for record in records:
        if record.flaw is None:
            assert record.entries == len(list(decode(record.value)))


def test_generate_record_timestamps_advance_over_the_span(records: list[GeneratedRecord]) -> None:
    """Record timestamps never step back and stay within the span."""
    assert all(earlier.timestamp_ms <= later.timestamp_ms for earlier, later in pairwise(records))
    assert records[0].timestamp_ms == SETTINGS.start_ms
    assert records[-1].timestamp_ms < SETTINGS.start_ms + SETTINGS.span_ms


def test_generate_users_skewed_awkward_and_missing(entries: list[dict[str, object]]) -> None:
    """A few users have most entries; every awkward one occurs; some entries have none."""
    counts = Counter(user for entry in entries if isinstance(user := entry.get("user"), str | int))

    assert counts.most_common(1)[0][1] > 10 * 20_000 / len(counts)
    assert set(AWKWARD_USERS) <= set(counts)
    assert {"-", ""} <= set(counts)
    assert any("user" not in entry for entry in entries)
    assert any(entry.get("user", 0) is None for entry in entries)


def test_generate_event_times_of_every_shape_late_absurd_and_missing(
    entries: list[dict[str, object]],
) -> None:
    """Event times come as text and numbers of every magnitude, and as what is no time."""
    times = [entry.get("time", "missing") for entry in entries]
    texts = [time for time in times if isinstance(time, str)]
    numbers = [time for time in times if isinstance(time, int) and not isinstance(time, bool)]

    assert any(time.endswith("Z") and " " not in time for time in texts)
    assert any(time.endswith("+0200") for time in texts)
    assert any(time.endswith("+02:00") for time in texts)
    assert any(" " in time for time in texts)
    assert any(time.isdigit() for time in texts)
    assert {10, 13, 16} <= {len(str(time)) for time in numbers}
    assert any(isinstance(time, float) for time in times)
    assert {"missing", "1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "yesterday", 0} <= {
        time for time in times if isinstance(time, str | int)
    }
    days_late = [time for time in numbers if len(str(time)) == 13 and time < SETTINGS.start_ms - 80_000_000]
    assert days_late


def test_time_shapes_hold_the_instant() -> None:
    """The shapes of one instant, written out."""
    expected = [
        "2026-01-01T00:00:01Z",
        "2026-01-01T00:00:01.230Z",
        "2026-01-01T00:00:01.230045000Z",
        "2026-01-01T02:00:01+0200",
        "2026-01-01T02:00:01.2+02:00",
        "2026-01-01 00:00:01",
        "2026-01-01 00:00:01.230",
        1_767_225_601,
        1_767_225_601_230,
        1_767_225_601_230_045,
        "1767225601",
        "1767225601230",
        1_767_225_601.230045,
    ]

    assert expected == [shape(1_767_225_601_230_045) for shape in TIME_SHAPES]


def test_generate_record_sizes_and_kinds_of_value(records: list[GeneratedRecord]) -> None:
    """One, three and a hundred entries; nulls, empty arrays, compressed values, keys and headers."""
    assert {0, 1, 3, 100} <= {record.entries for record in records}
    values = [record.value for record in records if record.flaw is None]
    assert {None, b"[]"} <= set(values)
    beginnings = {value[:4] for value in values if value}
    assert b"\x28\xb5\x2f\xfd" in beginnings
    assert any(beginning.startswith(b"\x1f\x8b") for beginning in beginnings)
    assert any(beginning.startswith(b"[") for beginning in beginnings)
    assert {True, False} == {record.key is None for record in records}
    assert {True, False} == {record.headers == () for record in records}


def test_generate_type_conflicts(entries: list[dict[str, object]]) -> None:
    """One field has a few strings among integers, others change between object, array, scalar and null."""

    def types(name: str) -> set[type]:
        return {type(entry[name]) for entry in entries if name in entry}

    strings = sum(isinstance(entry.get("status"), str) for entry in entries)
    assert 1 <= strings <= 40
    assert {int, str} == types("status")
    assert {str, dict} == types("path")
    assert {dict, str} <= types("geo")
    assert {dict, list} == types("request")
    assert {int, float} == types("amount")
    assert {type(None), dict} == types("campaign")


def test_generate_big_integers(entries: list[dict[str, object]]) -> None:
    """Integers lie beyond 2^53, 2^63 and 2^64."""
    numbers = [abs(value) for entry in entries if isinstance(value := entry.get("account"), int)]

    assert any(1 << 53 < number < 1 << 63 for number in numbers)
    assert any(1 << 63 <= number < 1 << 64 for number in numbers)
    assert any(number > 1 << 64 for number in numbers)


def test_generate_odd_keys_and_containers(entries: list[dict[str, object]]) -> None:
    """Keys that no column may have, an own `_meta`, empty containers, deep ones."""
    keys = {key for entry in entries for key in entry}

    assert {"hg.nginx.org", "trac-backend", "1xx", "", "MaxResults", "maxResults", "_meta", "key"} <= keys
    assert any(entry.get("labels") == {} and entry.get("items") == [] for entry in entries)
    assert any(entry.get("labels") == {"a": 1} for entry in entries)
    assert any(
        "tree" in entry and str(entry["tree"]).count("[") + str(entry["tree"]).count("{") >= 40 for entry in entries
    )


def test_generate_texts(entries: list[dict[str, object]], records: list[GeneratedRecord]) -> None:
    """Emoji, JSON inside strings, long texts of many lines; duplicate keys in the raw value."""
    messages = [message for entry in entries if isinstance(message := entry.get("message"), str)]

    assert any("\U0001f600" in message for message in messages)
    assert any(message.startswith('{"a"') for message in messages)
    assert any(message.count("\n") > 200 for message in messages)
    assert any(b'"level":"again"' in (record.value or b"") for record in records)


def test_generate_every_flaw_about_one_percent(records: list[GeneratedRecord]) -> None:
    """Each flaw occurs and leaves a value that strict JSON refuses or that is no array of objects."""
    flaws = Counter(record.flaw for record in records if record.flaw is not None)

    assert set(FLAWS) == set(flaws)
    assert 0.005 < sum(flaws.values()) / len(records) < 0.02


def test_generate_rates_of_zero_leave_plain_records() -> None:
    """Without rates, every record is plain JSON with a user and a time."""
    rates = Rates(**dict.fromkeys(Rates.__dataclass_fields__, 0.0))
    records = list(generate(GeneratorSettings(entries=2000, rates=rates)))

    entries = [entry for record in records for entry in decode(record.value)]
    assert 2000 == len(entries) == len({entry["id"] for entry in entries})
    assert all(entry["user"] and entry["time"] for entry in entries)
    assert {None} == {record.flaw for record in records}
