"""Depth and numbers of entries; all else is told with the worker's decoder, in tests/unit/input and tests/property."""

import json
from typing import Any

from log_partitioner.config.settings import InputSettings
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.proof.oracle.decode import DecodedEntry, Decoder
from log_partitioner.proof.oracle.json_text import Exact


class Narrow(InputSettings):
    """Entries of three levels."""

    json_depth_max = 3


def decode(value: str, kind: type[InputSettings] = InputSettings, **settings: Any) -> list[Any]:
    """Give values of entries, and the reasons of dead ones."""
    return [_shown(entry) for entry in Decoder(kind(**settings)).decode(value.encode()).entries]


def _shown(entry: DecodedEntry) -> Any:
    return set(entry.reasons) or entry.value


def test_nesting_counts_the_entry_as_first_level() -> None:
    deep = '{"a":' * 3 + "1" + "}" * 3
    assert decode(deep, Narrow) == [json.loads(deep)]
    assert decode(f'[{{}},{{"b":{deep}}}]', Narrow) == [{}, {Reason.TOO_DEEP}]


def test_nesting_beyond_any_parser_is_dead_alone() -> None:
    bomb = "[" * 100_000 + "]" * 100_000
    (first, second) = decode(f'[{{"a":{bomb}}},{{"b":1}}]')
    assert Reason.TOO_DEEP in first
    assert second == {"b": 1}


def test_brackets_inside_strings_are_no_nesting() -> None:
    assert decode(json.dumps({"a": "[" * 500}), Narrow) == [{"a": "[" * 500}]


def test_numbers_keep_what_a_double_does_not_hold_only_where_they_must() -> None:
    big = "9" * 5000
    (entry,) = decode(f'{{"a":{big},"b":1e400,"c":9007199254740993,"d":0.1234567890123456789}}')
    assert entry["a"].literal == big
    assert entry["b"] == Exact("1e400", "1e400")
    assert entry["c"] == 9007199254740993
    assert entry["d"] == 0.12345678901234568
    (entry,) = decode('{"d":0.1234567890123456789,"e":0.1}', inexact_numbers="text")
    assert entry == {"d": Exact("0.1234567890123456789", "1234567890123456789e-19"), "e": 0.1}
