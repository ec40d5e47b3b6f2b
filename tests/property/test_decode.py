# ruff: noqa: FBT001 - booleans are drawn
"""Bytes to entries: never an exception, nothing lost from the count, all entries can be written (DESIGN 3.1)."""

from __future__ import annotations

import gzip
import json
from functools import partial
from typing import Any

from backports import zstd
from hypothesis import example, given
from hypothesis import strategies as st

from log_partitioner.config.settings import InputSettings
from log_partitioner.formats.model import Headers
from log_partitioner.formats.values import encode_json
from log_partitioner.input.decode import RecordDecoder
from log_partitioner.input.formats import FORMATS
from log_partitioner.input.json_text import JsonDecoder, UndecodableError, split_array, split_object
from tests.fakes.lanes import assert_decoded_alike
from tests.fakes.schemas import with_schema
from tests.property.avro_reading import canonical
from tests.strategies import json_values, names, times_as_many
from tests.toy_format import oracle, worker

ENTRIES_MAX = 50
SCHEMA = {"type": "map", "values": ["null", "long", "string", "bytes", {"type": "array", "items": "double"}]}
SOURCE = b'syntax = "proto3"; message Log { string a = 1; repeated Log some = 4; map<int32, double> numbers = 12; }'
SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "a", "type": SCHEMA}, {"name": "b", "type": "string"}]}
json_entries = st.dictionaries(names, json_values(), max_size=4)
json_texts = st.tuples(
    st.lists(json_entries | json_values(), max_size=4), st.booleans(), st.sampled_from([None, 1])
).map(lambda drawn: json.dumps(drawn[0], ensure_ascii=drawn[1], indent=drawn[2]).encode())
BITS = [b'"', b"\\", b"[", b"]", b"{", b"}", b",", b":", b"\xff", b"\\ud800", b"NaN", b"\n", b"1e999999999999999999999",
        b"-", b"\xef\xbb\xbf", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"yes", b"0" * 20, b"9" * 4400, b"\0"]  # fmt: skip
compressions = st.sampled_from([bytes, gzip.compress, zstd.compress])
assert FORMATS["csv"] is worker.csv and oracle.FORMATS.keys() == FORMATS.keys()  # noqa: PT018
envelope_rules = st.sampled_from(["keep", "drop"])
formats = st.sampled_from(sorted(FORMATS))
csv_lines = st.lists(st.text(max_size=3) | names, max_size=4).map(",".join)
csv = st.lists(csv_lines, max_size=3).map("\n".join).map(str.encode)


@st.composite
def mutated(draw: st.DrawFn, texts: st.SearchStrategy[bytes]) -> bytes:
    """Break a text in a few places."""
    text = draw(texts)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(BITS) | st.binary(max_size=3)) + text[at + draw(st.integers(0, 3)) :]
    return text


envelopes = st.dictionaries(names, json_entries | st.lists(json_entries)).map(json.dumps).map(str.encode)
texts = json_texts | envelopes | csv
broken = (
    st.binary(max_size=60)
    | st.tuples(compressions, mutated(texts)).map(lambda drawn: drawn[0](drawn[1]))
    | mutated(st.tuples(compressions, texts).map(lambda drawn: drawn[0](drawn[1])))
)


class Bounded(InputSettings):
    """Rules with small limits, for any format."""

    entries_per_record_max = ENTRIES_MAX
    format: Any = "json"
    pattern: str | None = '(?P<a>[^,"]*)[,"]?(?P<b>.*)'


def rules_of(form: str = "json", **others: Any) -> InputSettings:
    """Make rules with small limits."""
    return with_schema(
        Bounded(format=form, record_bytes_max=20_000, inexact_numbers="text", **others),
        SOURCE if form == "protobuf" else SCHEMA,
    )


def check(rules: InputSettings, value: bytes, headers: Headers = ()) -> None:
    """W3 for one record: each index is an entry or bad, once; a whole record is one bad entry; all can be written."""
    decoded = RecordDecoder(rules).decode(value, headers)
    assert_decoded_alike(decoded, value, rules, headers)
    found = [index for index, *_ in decoded.entries] + [bad.number for bad in decoded.bad]
    if None in found:
        assert found == [None]
    else:
        assert sorted(map(int, filter(lambda index: index is not None, found))) == list(range(len(found)))
    assert len(found) <= ENTRIES_MAX
    for _, entry, text, _ in decoded.entries:
        assert type(entry) is dict
        encode_json(entry)  # refuses what no UTF-8 can hold
        assert _exact(JsonDecoder(keep_inexact_text=True).decode_again(text)) == _exact(entry)


@times_as_many(4)
@given(formats, st.sampled_from([None, "entries[]", "a[]", "a", "a.a[]", "a[].a[].entries"]), envelope_rules, broken)
def test_decoding_anything_never_raises_counts_everything_and_is_what_the_second_opinion_says(
    form: Any, entries_path: str | None, envelope: str, value: bytes
) -> None:
    """Whatever a producer writes becomes entries and dead letters that add up (W3): bytes, broken JSON, compression."""
    check(rules_of(form, entries_path=entries_path, envelope=envelope), value)


GLUE = b"\3\0" + bytes(16)
prefixes = st.sampled_from(
    [b"", bytes(9), GLUE, GLUE[:17], b"\3\5" + bytes(16), b"\0", b"\0\0\0\0\7", b"\0\0\0\0", b"\1\0\0\0\7"]
)
schema_headers: Any = st.sampled_from([(), (("__value_schema_id", b"\0\0\0\0\7"),), (("other", None),)])


@times_as_many(2)
@given(
    formats,
    st.sampled_from(["none", "confluent", "apicurio8", "glue"]),
    compressions,
    prefixes,
    schema_headers,
    broken | texts,
)
def test_decoding_anything_framed_is_what_the_second_opinion_says(
    form: Any, framing: str, compress: Any, prefix: bytes, headers: Headers, value: bytes
) -> None:
    """The prefix of a serializer, whole, cut short or of another kind, the header, both, and neither."""
    check(rules_of(form, framing=framing), compress(prefix + value), headers)


nested = (
    st.recursive(
        json_entries,
        lambda inner: st.fixed_dictionaries(
            {"a": inner | st.lists(inner | json_values(), max_size=3) | json_values()},
            optional={"b": json_values(), "_envelope": json_values(), "__envelope": json_values()},
        ),
        max_leaves=8,
    )
    .map(json.dumps)
    .map(str.encode)
)


entries_paths = st.sampled_from(["a", "a[]", "a.a", "a[].a", "a.a[]", "a[].a[]", "a[].a[].a"])


@times_as_many(4)
@given(entries_paths, envelope_rules, nested | mutated(nested))
@example("a", "keep", b"{" + b"9" * 4400 + b"}")  # a number where a key is due
def test_decoding_nested_envelopes_is_what_the_second_opinion_says(path: str, envelope: str, value: bytes) -> None:
    """Entries at the end of a path or before it, lists and objects where the other is due, names that are taken."""
    check(rules_of(entries_path=path, envelope=envelope), value)


@given(st.lists(json_entries, max_size=6), st.booleans(), compressions)
def test_decoding_valid_records_gives_the_values_of_the_standard_library(
    some: list[dict[str, Any]],
    ascii_only: bool,
    compress: Any,
) -> None:
    """Array, lines and envelope of the same entries decode to the same values, which are those of `json`."""
    texts = [json.dumps(entry, ensure_ascii=ascii_only) for entry in some]
    envelope = f'{{"v": 1, "entries": [{",".join(texts)}]}}'
    for rules, text in (
        (rules_of(), f"[{','.join(texts)}]"),
        (rules_of("ndjson"), "\r\n".join(["", *texts])),
        (rules_of(entries_path="entries[]", envelope="drop"), envelope),
    ):
        decoded = RecordDecoder(rules).decode(compress(text.encode()))
        assert not decoded.bad
        assert [index for index, *_ in decoded.entries] == list(range(len(some)))
        assert [_exact(entry) for _, entry, *_ in decoded.entries] == [_exact(json.loads(text)) for text in texts]


def _exact(value: Any) -> Any:
    return json.dumps(canonical(value), default=str, sort_keys=True)


@given(st.lists(json_values(), max_size=6), st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_split_array_of_valid_json_gives_the_texts_of_its_elements(
    items: list[Any],
    ascii_only: bool,
    indent: Any,
) -> None:
    """Splitting agrees with parsing, whatever strings and brackets the elements hold."""
    text = json.dumps(items, ensure_ascii=ascii_only, indent=indent)
    assert [json.loads(part) for part in split_array(text.encode(), elements_max=6)] == json.loads(text)


@given(st.dictionaries(names, json_values(), max_size=6), st.booleans())
def test_split_object_of_valid_json_gives_the_texts_of_its_values(
    value: dict[str, Any],
    ascii_only: bool,
) -> None:
    """Splitting agrees with parsing, keys included."""
    text = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert {name: json.loads(part) for name, part in split_object(text).items()} == value


@given(mutated(json_texts), st.integers(0, 3))
def test_split_of_anything_gives_parts_or_a_reason(text: bytes, elements_max: int) -> None:
    """Splitting never raises anything but its own error, and never gives more parts than asked for."""
    for split in (partial(split_array, elements_max=elements_max), split_object):
        try:
            parts = split(text)
        except UndecodableError as error:
            parts = [error.reason.value.encode()]
        assert split is split_object or len(parts) <= max(elements_max, 1)
