"""Avro as input: which value each type becomes, and hostile payloads, which are dead letters that say why."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import resource
from decimal import Decimal as Number
from pathlib import Path
from typing import Any

import fastavro
import pytest

from log_partitioner.config.settings import InputSettings
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.model import Headers
from log_partitioner.formats.schema import Schema, SchemaRef
from log_partitioner.formats.values import Bytes, Date, Decimal, DeclaredMap, Timestamp
from log_partitioner.input.decode import RecordDecoder
from log_partitioner.input.format import SchemaError
from log_partitioner.input.formats import find_format_problems
from tests.fakes.lanes import assert_decoded_alike, decode_alike, settings
from tests.fakes.schemas import with_schema

MAX = 2**63 - 1
MIN = -MAX - 1
MANY = b"\xff" * 9 + b"\1"  # as a number -2^63, as the count of a block 2^63
RED = {"type": "enum", "name": "x.Colour", "symbols": ["RED", "GREEN"]}
SIZE = {"type": "record", "name": "x.Size", "fields": [{"name": "cm", "type": "int"}]}


def record(*types: Any) -> Any:
    """Give the schema of a record whose fields are f0, f1 and so on."""
    return {"type": "record", "name": "R", "fields": [{"name": f"f{n}", "type": one} for n, one in enumerate(types)]}


def logical(name: str, kind: str = "long", **others: Any) -> Any:
    """Give the schema of a logical type."""
    return {"type": kind, "logicalType": name, **others}


def fixed(size: int, **others: Any) -> Any:
    """Give the schema of so many bytes."""
    return {"type": "fixed", "name": "x.F", "size": size, **others}


def plain(schema: Any) -> Any:
    """Take logical types away, so that fastavro writes what it is given."""
    if isinstance(schema, list):
        return [plain(one) for one in schema]
    return {k: plain(v) for k, v in schema.items() if k != "logicalType"} if isinstance(schema, dict) else schema


def write(schema: Any, value: Any) -> bytes:
    """Write a value as a producer does."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, plain(schema), value)
    return out.getvalue()


def decoded(schema: Any, payload: bytes, **rules: Any) -> Any:
    """Decode a payload, hold it to the second opinion, and give its entries, or the one that is bad."""
    given = with_schema(InputSettings(format="avro", **rules), schema)
    found = decode_alike(payload, given)
    return [entry for _, entry, *_ in found.entries] or found.bad[0]


VALUES = [
    ("boolean", True, True),
    ("int", -(2**31), -(2**31)),
    ("long", MIN, MIN),
    ("long", MAX, MAX),
    ("float", 0.10000000149011612, 0.10000000149011612),
    ("double", 0.1, 0.1),
    ("double", float("nan"), "NaN"),
    ("double", float("inf"), "Infinity"),
    ("float", float("-inf"), "-Infinity"),
    ("bytes", b"\xff\0", Bytes("/wA=")),
    ("string", "é\0", "é\0"),
    (fixed(2), b"\xff\0", Bytes("/wA=")),
    (RED, "GREEN", "GREEN"),
    (SIZE, {"cm": 7}, {"cm": 7}),
    ({"type": "array", "items": "int"}, [1, 2], [1, 2]),
    ({"type": "map", "values": "int"}, {"a": 1}, DeclaredMap({"a": 1})),
    (["null", "string"], None, None),
    (["null", "string"], "s", "s"),
    (["int", "string", SIZE], {"cm": 7}, {"cm": 7}),
    ([RED, SIZE], {"cm": 7}, {"x.Size": {"cm": 7}}),
    ([RED, SIZE, "null"], None, None),
    ([RED, SIZE, "string"], "blue", {"string": "blue"}),
    ([RED, fixed(1)], b"\xff", {"x.F": Bytes("/w==")}),
    (logical("date", "int"), 0, Date("1970-01-01")),
    (logical("date", "int"), -719162, Date("0001-01-01")),
    (logical("date", "int"), -719163, -719163),
    (logical("date", "int"), 2**31 - 1, 2**31 - 1),
    (logical("timestamp-millis"), -1, Timestamp("1969-12-31T23:59:59.999000Z")),
    (logical("timestamp-micros"), 253_402_300_799_999_999, Timestamp("9999-12-31T23:59:59.999999Z")),
    (logical("timestamp-micros"), 253_402_300_800_000_000, 253_402_300_800_000_000),
    (logical("timestamp-millis"), MAX, MAX),
    (logical("timestamp-millis"), 10**8 * 31_556_952_000, 10**8 * 31_556_952_000),
    (logical("timestamp-nanos"), 1, 1),
    (logical("local-timestamp-millis"), 1, "1970-01-01T00:00:00.001000"),
    (logical("local-timestamp-micros"), MIN, MIN),
    (logical("local-timestamp-nanos"), 1, 1),
    (logical("time-millis", "int"), 86_399_999, "23:59:59.999000"),
    (logical("time-millis", "int"), 86_400_000, 86_400_000),
    (logical("time-micros"), 1, "00:00:00.000001"),
    (logical("time-micros"), -1, -1),
    (logical("uuid", "string"), "no uuid", "no uuid"),
    (fixed(16, logicalType="uuid"), bytes(range(16)), "00010203-0405-0607-0809-0a0b0c0d0e0f"),
    (fixed(12, logicalType="duration"), b"\1\0\0\0\2\0\0\0\x8b\x0b\0\0", "P1M2DT2.955S"),
    (logical("decimal", "bytes", precision=4, scale=3), b"\x04\xe2", Decimal("1.250")),
    (logical("decimal", "bytes", precision=4, scale=3), b"\xff", Decimal("-0.001")),
    (logical("decimal", "bytes", precision=4), b"", Decimal("0")),
    (fixed(2, logicalType="decimal", precision=4, scale=1), b"\xff\xff", Decimal("-0.1")),
    (logical("decimal", "bytes", precision=400, scale=300), b"\5", Decimal("5e-300")),
    (logical("decimal", "bytes", precision=1, scale=2), b"\5", Bytes("BQ==")),
    (logical("decimal", "bytes"), b"\5", Bytes("BQ==")),
    (logical("unheard-of", "bytes"), b"\5", Bytes("BQ==")),
    ({**RED, "fields": "none"}, "RED", "RED"),  # what other types have
    ([{"type": "int", "is_named": True}, RED], 1, 1),
]


@pytest.mark.parametrize(("schema", "written", "expected"), VALUES)
def test_value_of_each_type_is_what_an_entry_has(schema: Any, written: Any, expected: Any) -> None:
    """Alone, in an array of maps, and in a union with null."""
    alone, listed = record(schema), record({"type": "array", "items": {"type": "map", "values": schema}})
    (first,) = decoded(alone, write(alone, {"f0": written}))
    (second,) = decoded(listed, write(listed, {"f0": [{"k": written}]}))
    found = [first["f0"], second["f0"][0]["k"]]
    if not isinstance(schema, list):
        optional = record(["null", schema])
        assert decoded(optional, write(optional, {"f0": None})) == [{"f0": None}]
        found += [decoded(optional, write(optional, {"f0": written}))[0]["f0"]]
    assert found == [expected] * len(found)
    assert {*map(type, found)} == {type(expected)}


def test_decimal_is_exact_however_long_it_is() -> None:
    digits = "9" * 4000
    payload = int(digits).to_bytes(1662, "big", signed=True)
    schema = record(logical("decimal", "bytes", precision=4000, scale=10))
    assert decoded(schema, write(schema, {"f0": payload})) == [{"f0": f"{digits[:-10]}.{digits[-10:]}"}]
    assert Number(digits[:-10] + "." + digits[-10:]).as_tuple().exponent == -10


@pytest.mark.parametrize(
    ("schema", "payload", "reason", "said"),
    [
        ("string", b"\2a", Reason.NOT_AN_OBJECT, "an entry is an object, not str"),
        ({"type": "map", "values": "int"}, b"\0", Reason.NOT_AN_OBJECT, "an entry is an object, not a map"),
        (record("int"), b"\2\2", Reason.MALFORMED, "1 bytes follow its value"),
        (record("int"), b"\x82", Reason.MALFORMED, "it ends within a value, after 1 bytes"),
        (record("double"), b"\0\0", Reason.MALFORMED, "it ends within a value, after 2 bytes"),
        (record("int"), b"\x80\x80\x80\x80\x10", Reason.MALFORMED, "2147483648 is no int"),
        (record("long"), b"\xff" * 9 + b"\2", Reason.MALFORMED, "the number at byte 0 has more than 64 bits"),
        (record("long"), b"\x80" * 10 + b"\0", Reason.MALFORMED, "the number at byte 0 has more than ten bytes"),
        (record("boolean"), b"\7", Reason.MALFORMED, "7 is no boolean"),
        (record("string"), b"\1", Reason.MALFORMED, "-1 bytes are due at byte 1 of 1"),
        (record("bytes"), b"\x80\x80\x80\x80\x10", Reason.MALFORMED, "2147483648 bytes are due at byte 5 of 5"),
        (record("string"), b"\2\xff", Reason.INVALID_UNICODE, "'utf-8' codec"),
        (record(RED), b"\4", Reason.MALFORMED, "symbol 2 of an enum of 2"),
        (record(RED), b"\1", Reason.MALFORMED, "symbol -1 of an enum of 2"),
        (record(["null", "int"]), b"\4", Reason.MALFORMED, "branch 2 of a union of 2"),
        (record(["null", "int"]), b"\1", Reason.MALFORMED, "branch -1 of a union of 2"),
        (record({"type": "array", "items": "int"}), MANY + b"\0", Reason.MALFORMED, "it ends within a value"),
        (record(logical("decimal", "bytes", precision=9)), b"\xd2\x1a" + b"\1" * 1705, Reason.MALFORMED, "a decimal"),
    ],
)  # fmt: skip
def test_payload_that_is_no_value_of_the_schema_is_dead_and_says_why(
    schema: Any, payload: bytes, reason: Reason, said: str
) -> None:
    bad = decoded(schema, payload)
    assert bad.reason is reason
    assert bad.message.startswith(said)


ENDLESS: Any = {"type": "record", "name": "R", "fields": [{"name": "next", "type": "R"}]}
LINKED: Any = {"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]}
LISTS: Any = record(["null", {"type": "array", "items": "R"}])
DOUBLING: Any = record(
    *({"type": "record", "name": f"D{n}", "fields": [{"name": x, "type": f"D{n - 1}" if n else "null"} for x in "ab"]}
      for n in range(40))
)  # fmt: skip
EMPTY = {"type": "record", "name": "E", "fields": []}
WIDE = {"type": "record", "name": "W", "fields": [{"name": f"f{n}" * 50, "type": "null"} for n in range(99)]}
LONG = {"type": "enum", "name": "L", "symbols": ["x" * 10_000]}


@pytest.mark.parametrize(
    ("schema", "payload", "reason"),
    [
        (LINKED, b"\2" * 10**6 + b"\0", Reason.TOO_DEEP),
        (LISTS, b"\2\2" * 10**5, Reason.TOO_DEEP),
        (ENDLESS, b"\0", Reason.TOO_DEEP),
        (DOUBLING, b"\0", Reason.RECORD_TOO_LARGE),
        *(
            (record({"type": "array", "items": items}), MANY + b"\0" * 2, Reason.RECORD_TOO_LARGE)
            for items in ("null", EMPTY, fixed(0), WIDE)
        ),
        (record({"type": "array", "items": "int"}), b"\x80\x89\x7a" + b"\1" * 10**6 + b"\0", Reason.RECORD_TOO_LARGE),
        (record({"type": "array", "items": LONG}), b"\xa0\x8d\x06" + b"\0" * 50_001, Reason.RECORD_TOO_LARGE),
    ],
)  # fmt: skip
def test_few_bytes_become_neither_a_deep_nor_a_large_value(schema: Any, payload: bytes, reason: Reason) -> None:
    """Recursive schemas, items without width, records of nothing but names: memory stays within the bound."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert decoded(schema, payload, record_bytes_max=2**21).reason is reason
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024


def test_nesting_up_to_the_limit_is_read() -> None:
    assert decoded(LINKED, b"\2" * 99 + b"\0")[0]["next"]["next"] is not None
    assert decoded(LINKED, b"\2" * 100 + b"\0").reason is Reason.TOO_DEEP


def test_record_of_nothing_but_null_is_an_entry_without_a_byte() -> None:
    assert decoded(record("null"), b"\0\0\0\0\7", framing="confluent") == [{"f0": None}]


def test_list_at_the_top_has_an_entry_in_each_record() -> None:
    schema = {"type": "array", "items": SIZE}
    assert decoded(schema, write(schema, [{"cm": 1}, {"cm": 2}])) == [{"cm": 1}, {"cm": 2}]


def test_path_leads_to_entries_and_what_is_around_them_is_kept() -> None:
    schema = record("string", {"type": "array", "items": SIZE})
    (entry,) = decoded(schema, write(schema, {"f0": "host", "f1": [{"cm": 1}]}), entries_path="f1[]")
    assert entry == {"cm": 1, "_envelope": {"f0": "host"}}


def test_names_are_found_in_their_namespace() -> None:
    inner = {"type": "record", "name": "In", "fields": [{"name": "of", "type": ["null", "a.b.Out", "In"]}]}
    schema = {"type": "record", "name": "Out", "namespace": "a.b", "fields": [{"name": "in", "type": inner}]}
    value = {"in": {"of": ("a.b.In", {"of": None})}}
    assert decoded(schema, write(schema, value)) == [{"in": {"of": {"a.b.In": {"of": None}}}}]


NO_SCHEMAS = [
    ("{", "Expecting property name"),
    ('"text"', "text is no type"),
    ("7", "7 is no type"),
    ('{"type": "record", "name": "R"}', "a type lacks 'fields'"),
    ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "Nowhere"}]}', "Nowhere is no type"),
    ('{"type": "fixed", "name": "F", "size": -1}', "-1 is no size"),
    ('{"type": "enum", "name": "E", "symbols": [1]}', "1 is no name"),
    ('{"type": "record", "name": "R", "fields": [{"name": 1, "type": "int"}]}', "1 is no name"),
    (json.dumps(record("int")).replace("f0", "\\ud800"), "'utf-8' codec"),
    (json.dumps(record({**EMPTY, "name": "R"})), "R is there twice"),
    (json.dumps(record("int", "int")).replace("f1", "f0"), "R has two fields of one name"),
    ('{"type": ' * 100_000, "it nests without end"),
    ('{"type": ' * 5_000 + '"int"' + "}" * 5_000, "it nests without end"),
    (json.dumps(record(EMPTY, EMPTY)), "E is there twice"),
    ('{"type": "record", "name": "int", "fields": []}', "int is there twice"),
    ('{"type": "record", "name": ".R", "fields": [{"name": "a", "type": ["null", "R"]}]}', "R is no type"),
    ('{"type": "enum", "name": "E", "symbols": {"RED": 1}}', "{'RED': 1} is no list"),
    ('{"type": "enum", "name": "E", "symbols": "RED"}', "RED is no list"),
    ('{"type": "record", "name": "R", "fields": {}}', "{} is no list"),
    (json.dumps(record(["null", {"type": ["int"]}])), "a union stands in a union"),
]


@pytest.mark.parametrize(("text", "said"), NO_SCHEMAS)
def test_schema_that_is_none_is_told_at_the_start(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "it.avsc"
    file.write_text(text)
    rules = InputSettings(format="avro", schema_file=file)
    (problem,) = find_format_problems(settings(input=rules))
    assert problem.startswith(f"input.schema_file ({file}) holds no schema: {said}")
    with pytest.raises(SchemaError):
        RecordDecoder(rules)


def test_schema_goes_with_settings_to_where_its_file_is_not(tmp_path: Path) -> None:
    """As from the driver of a Spark job to its tasks, by pickle."""
    file = tmp_path / "it.avsc"
    file.write_text(json.dumps(SIZE))
    rules = InputSettings(format="avro", schema_file=file)
    assert not [*find_format_problems(settings(input=rules))]
    file.unlink()
    elsewhere = pickle.loads(pickle.dumps(rules))  # noqa: S301 - made here
    assert [entry for _, entry, *_ in RecordDecoder(elsewhere).decode(b"\2").entries] == [{"cm": 1}]


@pytest.mark.parametrize("magic", [b"\x1f\x8b", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"])
def test_value_that_begins_like_compressed_ones_by_chance_is_read_as_it_is(magic: bytes) -> None:
    """As one in 65,536 does whose first field is a random `fixed` or double; one that is compressed is read, too."""
    schema = record(fixed(16, logicalType="uuid"), "string")
    payload = write(schema, {"f0": magic.ljust(16, b"\xaa"), "f1": "x"})
    (entry,) = decoded(schema, payload)
    assert entry["f0"].startswith(magic[:2].hex())
    assert decoded(schema, gzip.compress(payload)) == [entry]


@pytest.mark.parametrize("text", [text for text, _ in NO_SCHEMAS])
def test_record_of_a_schema_that_is_none_is_malformed_to_worker_and_second_opinion(text: str) -> None:
    """Its payload does not matter: it may happen to be a value of the rest of the schema."""
    rules = InputSettings(format="avro", framing="confluent")
    for payload in (b"", b"\0"):
        (bad,) = decode_alike(b"\0\0\0\0\7" + payload, rules, (), lambda _ref: Schema(text)).bad
        assert bad.reason is Reason.MALFORMED


NAMED = SchemaRef("id", 7)
SIZED = {"type": "record", "name": "Log", "fields": [{"name": "size", "type": "x.Size"}]}
REGISTRY: dict[SchemaRef, Schema] = {
    NAMED: Schema(json.dumps(SIZED), (("x.Size", json.dumps(SIZE)),)),
    SchemaRef("guid", "00000000-0000-0000-0000-000000000007"): Schema(json.dumps(SIZE)),
    SchemaRef("id", 8): Schema('{"type": "object"}'),
}


@pytest.mark.parametrize(
    ("value", "header", "found"),
    [
        (b"\0\0\0\0\7\2", None, {"size": {"cm": 1}}),
        (b"\2", b"\0\0\0\0\7", {"size": {"cm": 1}}),
        (b"\2", b"\1" + bytes(15) + b"\7", {"cm": 1}),
        (
            b"\0\0\0\0\x08\2",
            None,
            "malformed: id 8 of the registry is no schema of input.format avro: object",
        ),
        (b"\0\0\0\0\x09\2", None, "unknown_schema: the schema registry does not know id 9"),
        (b"\2", b"\3", "malformed: it holds no id of a schema that a registry can have"),
        (b"\0\0\0\0", None, "malformed: no id of a schema, neither in a header __value_schema_id nor before it"),
        (b"\0\0\0\0\7", None, "malformed: it ends within a value, after 0 bytes"),
    ],
)
def test_schema_is_the_registrys_by_the_name_that_a_record_has(
    value: bytes, header: bytes | None, found: dict[str, Any] | str
) -> None:
    """A schema that cannot be read costs its own records only."""
    headers: Headers = () if header is None else (("__value_schema_id", header),)
    rules = InputSettings(format="avro", framing="confluent")
    decoded = RecordDecoder(rules, REGISTRY.get).decode(value, headers)
    assert_decoded_alike(decoded, value, rules, headers, REGISTRY.get)
    if isinstance(found, dict):
        assert [entry for _, entry, *_ in decoded.entries] == [found]
    else:
        (bad,) = decoded.bad
        assert f"{bad.reason}: {bad.message}".startswith(found)


def test_registry_is_asked_once_for_a_schema_and_again_for_one_that_it_does_not_know() -> None:
    asked: list[SchemaRef] = []

    def find(ref: SchemaRef) -> Schema | None:
        asked.append(ref)
        return REGISTRY.get(ref)

    decoder = RecordDecoder(InputSettings(format="avro", framing="confluent"), find)
    for number in (7, 9, 7, 9):
        decoder.decode(b"\0" + number.to_bytes(4) + b"\2")
    assert [ref.value for ref in asked] == [7, 9, 9]
