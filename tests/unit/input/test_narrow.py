"""A record narrowed to some of its entries: their own bytes, read as before; and what cannot be narrowed."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_partitioner.config.settings import InputSettings
from log_partitioner.input.decode import RecordDecoder
from log_partitioner.input.narrow import NarrowError, narrow

PATH = {"entries_path": "a.b[].c[]"}
ENVELOPE = (
    b'{"v": 1.0, "a": {"b": [{"c": [{"n": 1}, {"n":1e400}], "host": "x"}, {"c": [3, {"n": 4}]}, {"n": 5}]}, "v": 2 }'
)
LAST_COUNTS = b'{"a": 0, "\\u0061": [ {"n": 1}, {"n": 2} ], "z": {}}'
CONFLUENT = b"\0\0\0\0\7"


@pytest.mark.parametrize(
    ("value", "indexes", "of", "expected", "given"),
    [
        (b'[{"n": 1.50}, {"n": 2}, {"n": NaN}]', {0, 2}, 3, b'[{"n": 1.50}, {"n": NaN}]', {}),
        (b'\n[1, "x]", {"n" : 3} ]', {1}, 3, b'[ "x]"]', {}),
        (b'{"n": 1}\n\nnothing\r\n{"n": 3}', {1, 2}, 3, b'nothing\r\n{"n": 3}', {"format": "ndjson"}),
        (gzip.compress(b'[{"n": 1}, {}]'), {1}, 2, b"[ {}]", {}),
        (CONFLUENT + b'[{"n": 1}, {}]', {0}, 2, CONFLUENT + b'[{"n": 1}]', {"framing": "confluent"}),
        (ENVELOPE, {1}, 5, b'{"v": 1.0, "a":{"b":[{"c":[ {"n":1e400}], "host": "x"}]}, "v": 2 }', PATH),
        (ENVELOPE, {2, 4}, 5, b'{"v": 1.0, "a":{"b":[{"c":[3]}, {"n": 5}]}, "v": 2 }', PATH),
        (LAST_COUNTS, {1}, 2, b'{"a": 0, "\\u0061":[ {"n": 2} ], "z": {}}', {"entries_path": "a[]"}),
    ],
    ids=["array", "array-of-no-objects", "lines", "compressed", "framed", "envelope", "envelope-several", "last-key"],
)
def test_narrowed_record_has_the_bytes_of_its_entries_and_what_stands_around_them(
    value: bytes, indexes: set[int], of: int, expected: bytes, given: dict[str, Any]
) -> None:
    """Numbers, duplicate keys and what is no JSON stay as they were written."""
    assert narrow(value, (), indexes, of_entries=of, rules=InputSettings(**given)) == expected


@pytest.mark.parametrize(
    ("value", "of", "given", "why"),
    [
        (b'{"n": 1}', 2, {}, "had 2 entries, and has 1"),
        (b'[{"n": 1}, {"n": 2}', 1, {}, "cannot be told apart"),
        (b"\2\0", 1, {"format": "otlp"}, "whole or not at all"),
    ],
    ids=["other-settings", "not-split", "binary"],
)
def test_record_that_cannot_be_narrowed_is_refused(value: bytes, of: int, given: dict[str, Any], why: str) -> None:
    """By a sentence, before anything of it is left out."""
    with pytest.raises(NarrowError, match=why):
        narrow(value, (), {0}, of_entries=of, rules=InputSettings(**given))


def test_record_whose_framing_is_compressed_is_refused() -> None:
    """The length of what follows is the prefix's to know."""
    import zlib  # noqa: PLC0415 - of this test alone

    value = b"\3\5" + bytes(16) + zlib.compress(b"[{}, {}]")
    with pytest.raises(NarrowError, match="compressed"):
        narrow(value, (), {0}, of_entries=2, rules=InputSettings(framing="glue"))


elements = st.sampled_from(
    [b"1", b'{"n": 1}', b'{"e": [{}, 2]}', b'{"e": 3}', b'{"e": []}', b"nul", b' {"e":[[]],"e":[{}]}']
)
documents = st.lists(elements).map(b",".join)


@given(documents, st.sampled_from([b"[%b]", b'{"e": [%b]}', b'{"x": 1, "e": {"e": [%b]}}']), st.data())
def test_narrowed_record_reads_as_the_entries_that_were_kept(inside: bytes, form: bytes, data: st.DataObject) -> None:
    """Any entries may be kept, in an array or in an envelope of any depth; otherwise the record is refused."""
    rules = InputSettings(entries_path="e[].e[]")
    value = form % inside
    decoded = RecordDecoder(rules).decode(value)
    of = len(decoded.entries) + len(decoded.bad)
    if not of:
        return
    indexes = data.draw(st.sets(st.integers(0, of - 1), min_size=1))
    try:
        narrowed = RecordDecoder(rules).decode(narrow(value, (), indexes, of_entries=of, rules=rules))
    except NarrowError:
        assert any(one.number is None for one in decoded.bad) or b"[[]]" in value or b"nul" in value
        return
    assert [entry for _, entry, *_ in narrowed.entries] == [
        entry for index, entry, *_ in decoded.entries if index in indexes
    ]
