"""The generator: what it makes is determined by its settings, and its traits do occur."""

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from log_partitioner import zstd
from tools.demo.entries import AWKWARD_USERS
from tools.demo.flaws import FLAWS
from tools.demo.generate import GeneratedRecord, generate
from tools.demo.settings import GeneratorSettings

SETTINGS = GeneratorSettings(seed=1, entries=20_000)


@pytest.fixture(scope="module")
def records() -> list[GeneratedRecord]:
    return list(generate(SETTINGS))


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


def test_generate_entries_exactly_as_many_as_asked(records: list[GeneratedRecord]) -> None:
    """Entries count to the number asked for, and those of records without flaw can be decoded."""
    assert sum(record.entries for record in records) == 20_000
    for record in records:
        if record.flaw is None:
            assert record.entries == len(list(decode(record.value)))


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


Entries = list[dict[str, object]]
TRAITS: dict[str, Callable[[Entries], bool]] = {
    "awkward users": lambda entries: all(any(one.get("user") == user for one in entries) for user in AWKWARD_USERS),
    "no user": lambda entries: any("user" not in one for one in entries),
    "times of many types": lambda entries: {str, int, float} <= {type(one.get("time")) for one in entries},
    "absurd times": lambda entries: {"9999-12-31T23:59:59Z", "yesterday"} <= {str(one.get("time")) for one in entries},
    "types that conflict": lambda entries: {dict, list} <= {type(one.get("request")) for one in entries},
    "integers beyond 64 bits": lambda entries: any(
        isinstance(number := one.get("account"), int) and abs(number) > 1 << 64 for one in entries
    ),
    "keys that no column may have": lambda entries: {"", "1xx", "_meta"} <= {key for one in entries for key in one},
}


@pytest.mark.parametrize("trait", TRAITS)
def test_generate_trait_occurs(records: list[GeneratedRecord], trait: str) -> None:
    """A demo, a chaos run or a benchmark without it would show less than it says."""
    entries = [entry for record in records if record.flaw is None for entry in decode(record.value)]
    assert TRAITS[trait](entries)


def test_generate_every_flaw_about_one_percent(records: list[GeneratedRecord]) -> None:
    """Each flaw occurs and leaves a value that strict JSON refuses or that is no array of objects."""
    flaws = Counter(record.flaw for record in records if record.flaw is not None)

    assert set(FLAWS) == set(flaws)
    assert 0.005 < sum(flaws.values()) / len(records) < 0.02
