"""Records to entries: every trait of the input."""

import gzip
import json
from typing import Any

import pytest

from log_partitioner import zstd
from log_partitioner.config.settings import InputSettings
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.proof.oracle.decode import GZIP_MAGIC, ZSTD_MAGIC, DecodedEntry, Decoder
from log_partitioner.proof.oracle.json_text import Exact

DEAD = Reason


class Narrow(InputSettings):
    """Records of two entries, entries of three levels."""

    json_depth_max = 3
    entries_per_record_max = 2


def decode(value: bytes | str | None, kind: type[InputSettings] = InputSettings, **settings: Any) -> list[Any]:
    """Give values of entries, and reasons where they are dead."""
    data = value.encode() if isinstance(value, str) else value
    return [_shown(entry) for entry in Decoder(kind(**settings)).decode(data).entries]


def is_whole(value: bytes | str, **settings: Any) -> bool:
    data = value.encode() if isinstance(value, str) else value
    return Decoder(InputSettings(**settings)).decode(data).is_whole


def _shown(entry: DecodedEntry) -> Any:
    return set(entry.reasons) or entry.value


@pytest.mark.parametrize("value", [None, b"", b"[]", b" [ ] ", gzip.compress(b"", mtime=0)])
def test_record_without_entries_has_none(value: bytes | None) -> None:
    assert decode(value) == []


def test_object_is_one_entry_and_array_is_several() -> None:
    assert decode('{"a":1}') == [{"a": 1}]
    assert decode(' [{"a":1},\n{"a":2}] ') == [{"a": 1}, {"a": 2}]


def test_last_of_duplicate_keys_counts() -> None:
    assert decode('{"a":1,"a":{"b":2,"b":3}}') == [{"a": {"b": 3}}]


@pytest.mark.parametrize("value", ["1", "null", '"text"', "true"])
def test_scalar_record_is_not_an_object(value: str) -> None:
    assert decode(value) == [{DEAD.NOT_AN_OBJECT}]
    assert is_whole(value)


@pytest.mark.parametrize(
    "value",
    [
        '{"a":',
        "nonsense",
        '{"a":1} x',
        '[{"a":1}',
        '[{"a":1}] x',
        '[{"a":"x}, {"b":"y"}]',
        '[{},{"a":1]]',
        '[{"a":[}},{}]',
        " ",
        '{"a":NaN}',
        "\ufeff{}",
    ],
)
def test_record_that_cannot_be_split_is_dead_as_a_whole(value: str) -> None:
    assert decode(value) == [{DEAD.MALFORMED}]
    assert is_whole(value)


@pytest.mark.parametrize(
    "element",
    [
        "{'a':1}",
        '{"a":1,}',
        '{"a" 1}',
        '{"a":NaN}',
        '{"a":-Infinity}',
        '{"a":01}',
        '{"a":"\t"}',
        "",
        "x",
    ],
)
def test_malformed_element_is_dead_alone(element: str) -> None:
    good = '{"a":"],[{\\"},","b":[{"c":[1]}]}'
    expected = json.loads(good)
    assert decode(f"[{good},{element},{good}]") == [expected, {DEAD.MALFORMED}, expected]
    assert not is_whole(f"[{good},{element},{good}]")


def test_elements_that_are_no_objects_are_dead_alone() -> None:
    not_an_object = {DEAD.NOT_AN_OBJECT}
    assert decode('[1,{"a":1},null,[{"a":1}]]') == [not_an_object, {"a": 1}, not_an_object, not_an_object]


def test_lone_surrogate_is_dead_alone_and_a_pair_is_not() -> None:
    assert decode(r'[{"a":"\ud800"},{"a":"\ud83d\ude00"},{"\udfff":1}]') == [
        {DEAD.INVALID_UNICODE, DEAD.MALFORMED},
        {"a": "\U0001f600"},
        {DEAD.INVALID_UNICODE, DEAD.MALFORMED},
    ]


def test_lone_surrogate_that_a_later_key_replaces_does_not_count() -> None:
    assert decode(r'{"a":"\ud800","a":1}') == [{"a": 1}]


def test_invalid_utf8_inside_an_element_is_dead_alone() -> None:
    assert decode(b'[{"a":"\xff"},{"a":"\xc3\xa9"}]') == [
        {DEAD.INVALID_UNICODE, DEAD.MALFORMED},
        {"a": "é"},
    ]
    assert decode(b'{"a":"\xff","a":1}') == [{DEAD.INVALID_UNICODE, DEAD.MALFORMED}]


def test_nesting_counts_the_entry_as_first_level() -> None:
    deep = '{"a":' * 3 + "1" + "}" * 3
    assert decode(deep, Narrow) == [json.loads(deep)]
    assert decode(f'[{{}},{{"b":{deep}}}]', Narrow) == [{}, {DEAD.TOO_DEEP}]


def test_nesting_beyond_any_parser_is_dead_alone() -> None:
    bomb = "[" * 100_000 + "]" * 100_000
    (first, second) = decode(f'[{{"a":{bomb}}},{{"b":1}}]')
    assert DEAD.TOO_DEEP in first
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


def test_envelope_holds_entries() -> None:
    text = '{"host":"h","entries":[{"a":1},2]}'
    decoded = Decoder(InputSettings(entries_field="entries")).decode(text.encode())
    assert [_shown(entry) for entry in decoded.entries] == [{"a": 1}, {DEAD.NOT_AN_OBJECT}]
    assert decoded.envelope is not None
    assert decoded.envelope["host"] == "h"


def test_object_without_the_entries_field_is_an_entry() -> None:
    assert decode('{"a":1}', entries_field="entries") == [{"a": 1}]
    assert decode('[{"entries":[]}]', entries_field="entries") == [{"entries": []}]


@pytest.mark.parametrize("entries", ["null", "{}", '"x"', "1"])
def test_entries_that_are_no_list_are_dead_as_a_whole(entries: str) -> None:
    assert decode(f'{{"entries":{entries}}}', entries_field="entries") == [{DEAD.ENTRIES_NOT_A_LIST}]
    assert is_whole(f'{{"entries":{entries}}}', entries_field="entries")


def test_malformed_entry_in_an_envelope_is_dead_alone() -> None:
    text = '{"host":"h","entries":[{"a":1},{"a":}],"z":{"y":[]}}'
    assert decode(text, entries_field="entries") == [{"a": 1}, {DEAD.MALFORMED}]


def test_envelope_that_is_malformed_itself_is_dead_as_a_whole() -> None:
    assert is_whole('{"host":x,"entries":[{"a":1}]}', entries_field="entries")


def test_ndjson_has_one_entry_per_line_that_is_not_blank() -> None:
    text = '{"a":1}\n\n  \t\r\n[{"a":2}]\n{"a":\n{"a":"\\ud800"}\r\n{"a":3}\n'
    not_unicode = {DEAD.INVALID_UNICODE, DEAD.MALFORMED}
    expected = [{"a": 1}, {DEAD.NOT_AN_OBJECT}, {DEAD.MALFORMED}, not_unicode, {"a": 3}]
    assert decode(text, format="ndjson") == expected


@pytest.mark.parametrize("compress", [gzip.compress, zstd.compress])
def test_compressed_values_are_recognised(compress: Any) -> None:
    assert decode(compress(b'{"a":1}')) == [{"a": 1}]
    assert decode(compress(b'[{"a":1},') + compress(b'{"a":2}]')) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    "value", [gzip.compress(b"{}" * 50, mtime=0)[:-9], zstd.compress(b"{}" * 50)[:-3], GZIP_MAGIC, ZSTD_MAGIC]
)
def test_broken_stream_is_dead_as_a_whole(value: bytes) -> None:
    assert decode(value) == [{DEAD.DECOMPRESSION}]


@pytest.mark.parametrize("compress", [gzip.compress, zstd.compress, bytes])
def test_record_over_the_bound_after_decompression_is_dead_as_a_whole(compress: Any) -> None:
    assert decode(compress(b"[" + b" " * 10_000 + b"]"), record_bytes_max=10_000) == [{DEAD.RECORD_TOO_LARGE}]
    assert decode(compress(b"[" + b" " * 9_998 + b"]"), record_bytes_max=10_000) == []


def test_too_many_entries_are_dead_as_a_whole() -> None:
    assert decode("[{},{}]", Narrow) == [{}, {}]
    assert decode("[{},{},{}]", Narrow) == [{DEAD.TOO_MANY_ENTRIES}]
