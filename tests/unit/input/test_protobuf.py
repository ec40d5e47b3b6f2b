"""Protobuf as input: which value each type becomes, schemas of a file and of a registry, and payloads that are dead."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from log_partitioner.config.settings import InputSettings
from log_partitioner.errors import RegistryError
from log_partitioner.formats.schema import Schema, SchemaRef
from log_partitioner.formats.values import Bytes, DeclaredMap
from log_partitioner.input.decode import RecordDecoder
from log_partitioner.input.formats import find_format_problems
from log_partitioner.protoc import _compile, compile_schema
from tests.fakes.lanes import assert_decoded_alike, decode_alike, settings
from tests.fakes.messages import SCHEMA, message_class

FRAMED = InputSettings(format="protobuf", framing="confluent")
ALL = b"\0\0\0\0\7\0"


def find(_ref: SchemaRef) -> Schema:
    """Give the one schema."""
    return SCHEMA


def decoded(value: bytes, rules: InputSettings = FRAMED) -> Any:
    """Decode a value, hold it to the second opinion, and give its entry, or what is bad."""
    found = decode_alike(value, rules, (), find)
    if found.bad:
        (bad,) = found.bad
        return f"{bad.reason}: {bad.message}"
    ((_, entry, _, _),) = found.entries
    return entry


def all_with(**fields: Any) -> bytes:
    """Write a message, framed."""
    return ALL + message_class()(**fields).SerializeToString()


VALUES = [
    ({"plain_int64": 2**63 - 1, "plain_uint64": 2**64 - 1}, {"plain_int64": 2**63 - 1, "plain_uint64": 2**64 - 1}),
    ({"plain_int32": 0}, {}),
    ({"maybe_int32": 0, "maybe_bool": False}, {"maybe_int32": 0, "maybe_bool": False}),
    ({"plain_float": 0.1}, {"plain_float": 0.10000000149011612}),
    ({"some_double": [1.5, float("inf"), float("nan")]}, {"some_double": [1.5, "Infinity", "NaN"]}),
    ({"plain_bytes": b"\0\xff"}, {"plain_bytes": Bytes("AP8=")}),
    ({"levels": [0, 1, -1, 9]}, {"levels": ["NONE", "LOW", "MINUS", 9]}),
    ({"by_bool": {True: 1}, "by_int32": {-7: 0}}, {"by_int32": {"-7": "NONE"}, "by_bool": {"true": "LOW"}}),
    ({"text": ""}, {"text": ""}),
    ({"message": {}}, {"message": {}}),
    ({"known_81": {"seconds": 1}}, {"known_81": "1970-01-01T00:00:01Z"}),
    ({"known_81": {"seconds": -1, "nanos": 120_000_000}}, {"known_81": "1969-12-31T23:59:59.120Z"}),
    ({"known_81": {"nanos": 1}}, {"known_81": "1970-01-01T00:00:00.000000001Z"}),
    ({"known_81": {"seconds": 10**12}}, {"known_81": {"seconds": 10**12}}),
    ({"known_82": {"seconds": -1, "nanos": -500_000}}, {"known_82": "-1.000500s"}),
    ({"known_82": {"seconds": 1, "nanos": -1}}, {"known_82": {"seconds": 1, "nanos": -1}}),
    ({"known_83": {"a": [1, None, {"b": True}]}}, {"known_83": {"a": [1.0, None, {"b": True}]}}),
    ({"known_86": {"type_url": "t", "value": b"x"}}, {"known_86": {"type_url": "t", "value": "eA=="}}),
    ({"known_90": {}}, {"known_90": 0}),
    ({"older": {"grouped": {"data": b"x"}}}, {"older": {"grouped": {"data": "eA=="}}}),
]


@pytest.mark.parametrize(("fields", "entry"), VALUES)
def test_message_becomes_an_entry(fields: dict[str, Any], entry: dict[str, Any]) -> None:
    assert decoded(all_with(**fields)) == entry


def test_map_stays_a_map_and_bytes_stay_bytes() -> None:
    entry = decoded(all_with(by_string={"x": 1}, plain_bytes=b"x"))
    assert (type(entry["by_string"]), type(entry["plain_bytes"])) == (DeclaredMap, Bytes)


def test_text_of_proto2_that_is_no_utf8_is_bytes() -> None:
    assert decoded(ALL + b"\xf2\x06\3\x0a\1\xff") == {"older": {"text": Bytes("/w==")}}


def test_extension_stands_under_its_full_name() -> None:
    older = message_class("tests.Older")
    message = older(text="x")
    (extension,) = older.DESCRIPTOR.file.extensions_by_name.values()
    message.Extensions[extension] = "y"
    assert decoded(ALL + b"\xf2\x06" + bytes([message.ByteSize()]) + message.SerializeToString()) == {
        "older": {"text": "x", "[tests.further]": "y"}
    }


def test_field_that_the_schema_lacks_is_kept_as_it_stands() -> None:
    """A producer has a later schema than the one that it names."""
    later = b"\xf8\x7f\x07" + b"\xfa\x7f\x02hi" + b"\xfb\x7f\x08\x01\xfc\x7f"
    kept = [
        {"field": 2047, "wire_type": 0, "value": 7},
        {"field": 2047, "wire_type": 2, "value": "aGk="},
        {"field": 2047, "wire_type": 3, "value": [{"field": 1, "wire_type": 0, "value": 1}]},
    ]
    assert decoded(all_with(text="x") + later) == {"text": "x", "_unknown": kept}


@pytest.mark.parametrize(
    ("place", "payload", "found"),
    [
        (b"\0", b"", {}),
        (b"\2\2", b"\x0a\1u", {"user": "u"}),
        (b"\4\2\0", b"\x0a\1u", {"user": "u"}),
        (b"\2\0", b"\x08\1", {"plain_double": 0}),
        (b"\2\x08", b"", "malformed: it has no message (4,)"),
        (b"\2\1", b"", "malformed: message [-1] of its schema"),
        (b"\xff\xff\x03", b"", "malformed: a message within -32768 others"),
        (b"\x80", b"", "malformed: it ends within the place of its message"),
        (b"", b"", "malformed: it ends within the place of its message"),
    ],
)
def test_message_is_found_by_its_place_in_the_schema(place: bytes, payload: bytes, found: Any) -> None:
    """Confluent's serializers write how many indexes there are, and these; a zero is the first message."""
    value = b"\0\0\0\0\7" + place + payload
    if found == {"plain_double": 0}:
        found = "malformed: it is no message of its schema"
        value += b"\xff"
    told = decoded(value)
    assert told == found if isinstance(found, dict) else told.startswith(found)


def test_place_of_the_message_may_stand_in_the_header() -> None:
    headers = (("__value_schema_id", b"\1" + bytes(16) + b"\2\2"),)
    found = RecordDecoder(FRAMED, find).decode(b"\x0a\1u", headers)
    assert_decoded_alike(found, b"\x0a\1u", FRAMED, headers, find)
    assert [entry for _, entry, *_ in found.entries] == [{"user": "u"}]


DEAD = [
    (b"\x0a", "malformed: it is no message of its schema"),
    (b"\x72\1\xff", "malformed: it is no message of its schema"),
    (b"\xba\x06" * 2, "malformed: it is no message of its schema"),
    (b"\xf2\x06\4\x22\2\x0a\0\xff", "malformed: it is no message of its schema"),
    (b"\xf2\x06\7\x2a\5\x0a\1\xff\x10\1", "invalid_unicode: a key is no UTF-8"),
]


@pytest.mark.parametrize(("payload", "reason"), DEAD)
def test_payload_that_is_no_message_is_dead(payload: bytes, reason: str) -> None:
    assert decoded(ALL + payload).startswith(reason)


def nested(levels: int) -> bytes:
    """Write messages, each in another."""
    payload = b""
    for _ in range(levels):
        size, length = len(payload), b""
        while size > 0x7F:
            length, size = length + bytes([size & 0x7F | 0x80]), size >> 7
        payload = b"\xba\x06" + length + bytes([size]) + payload
    return payload


def test_messages_that_nest_too_deep_are_dead_whatever_the_library_takes() -> None:
    assert decoded(ALL + nested(90)) != {}
    assert decoded(ALL + nested(120)).startswith("malformed")
    assert decoded(ALL + nested(3)) == {"inner": {"inner": {"inner": {}}}}


def test_few_bytes_do_not_become_much_json() -> None:
    """A million messages without a field take two bytes each, and a hundred as JSON."""
    rules = FRAMED.model_copy(update={"record_bytes_max": 100_000})
    assert decoded(ALL + b"\xc2\x06\0" * 30_000, rules).startswith("record_too_large: as JSON it is larger")


# Schemas.


def with_file(tmp_path: Path, content: bytes, name: str = "it.proto", **others: Any) -> InputSettings:
    """Give settings with a schema file."""
    file = tmp_path / name
    file.write_bytes(content)
    return InputSettings(format="protobuf", schema_file=file, **others)


PLAIN = b'syntax = "proto3"; package a.b; message Log { string user = 1; } message Other { int32 n = 1; }'


def test_schema_file_is_a_source_or_what_the_compiler_makes_of_it(tmp_path: Path) -> None:
    compiled = _compile("it.proto", {"it.proto": PLAIN.decode()})
    for name, content in (("it.proto", PLAIN), ("it.desc", compiled)):
        rules = with_file(tmp_path, content, name)
        assert not [*find_format_problems(settings(input=rules))]
        assert decoded(b"\x0a\1u", rules) == {"user": "u"}
        (tmp_path / name).unlink()
        assert decoded(b"\x0a\1u", pickle.loads(pickle.dumps(rules))) == {"user": "u"}  # noqa: S301 - made here


def test_message_of_a_file_is_named_by_a_setting(tmp_path: Path) -> None:
    rules = with_file(tmp_path, PLAIN, schema_message="a.b.Other")
    assert not [*find_format_problems(settings(input=rules))]
    assert decoded(b"\x08\7", rules) == {"n": 7}
    framed = with_file(tmp_path, PLAIN, schema_message="a.b.Other", framing="confluent")
    assert decoded(b"\0\0\0\0\1\0\x08\7", framed) == {"n": 7}


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [
        (b"message {", None, "schema.proto:1:9: Expected message name."),
        (b'syntax = "proto3"; import "away.proto";', None, "away.proto: File not found."),
        (b'syntax = "proto3";', None, "it has no message (0,)"),
        (PLAIN, "a.b.Nothing", "it has no message a.b.Nothing"),
        (b"\xff\xfe", None, "'utf-8' codec"),
    ],
)
def test_file_that_is_no_schema_is_told_at_the_start(
    tmp_path: Path, content: bytes, name: str | None, said: str
) -> None:
    rules = with_file(tmp_path, content, schema_message=name)
    (problem,) = find_format_problems(settings(input=rules))
    assert problem.startswith(f"input.schema_file ({tmp_path / 'it.proto'}) holds no schema: {said}")


@pytest.mark.parametrize("name", ["../away.proto", "/away.proto", "a/../../away.proto"])
def test_name_of_a_reference_leads_nowhere_else(name: str) -> None:
    with pytest.raises(ValueError, match="is no name of a file"):
        compile_schema(Schema("", ((name, "x"),)))


def test_reference_may_have_any_other_name() -> None:
    """A file of the name that we give to the schema itself is not taken for it."""
    main = 'syntax = "proto3"; import "schema.proto"; message M { C c = 1; }'
    other = 'syntax = "proto3"; message C { int32 n = 1; }'
    schema = Schema(main, (("schema.proto", other),))
    decoded = RecordDecoder(FRAMED, lambda _ref: schema).decode(ALL + b"\x0a\2\x08\7")
    assert [entry for _, entry, *_ in decoded.entries] == [{"c": {"n": 7}}]


def test_schema_may_import_what_serializers_take_for_part_of_protobuf() -> None:
    """Rules and documentation of Confluent's clients, their decimals, dates and money of Google: none is registered."""
    source = """
        syntax = "proto3";
        import "confluent/meta.proto"; import "confluent/types/decimal.proto"; import "confluent/type/variant.proto";
        import "google/type/date.proto"; import "google/type/money.proto";
        message Log {
          option (confluent.message_meta).doc = "a log";
          string user = 1 [(confluent.field_meta) = {tags: ["PII"]}];
          confluent.type.Decimal price = 2; google.type.Date day = 3;
        }
    """
    payload = b"\x0a\3ann" + b"\x12\6\x0a\2\x04\xd2\x18\2" + b"\x1a\5\x08\xea\x0f\x10\3"
    decoded = RecordDecoder(FRAMED, lambda _ref: Schema(source)).decode(ALL + payload)
    assert_decoded_alike(decoded, ALL + payload, FRAMED, (), lambda _ref: Schema(source))
    ((_, entry, *_),) = decoded.entries
    assert entry == {"user": "ann", "price": {"value": "BNI=", "scale": 2}, "day": {"year": 2026, "month": 3}}


@pytest.mark.parametrize("ends", ["exit", "signal", "time", "disk"])
def test_compiler_that_cannot_run_blames_no_schema(ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records wait, as for a registry that does not answer."""
    if ends == "disk":
        monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    elif ends == "time":
        monkeypatch.setattr("log_partitioner.protoc._COMPILE_S", 0.001)
    else:
        program = "sh", "-c", "kill -9 $$" if ends == "signal" else "echo No module named grpc_tools >&2; exit 1"
        run = subprocess.run
        monkeypatch.setattr(subprocess, "run", lambda _command, **how: run(program, **how))
    decoder = RecordDecoder(FRAMED, lambda _ref: Schema(f'syntax = "proto3"; message {ends} {{}}'))
    with pytest.raises(RegistryError, match="a schema cannot be compiled"):
        decoder.decode(ALL)


@pytest.mark.parametrize(
    ("source", "payload", "entry"),
    [
        (
            'edition = "2023"; option features.utf8_validation = NONE; message M { string a = 1; }',
            b"\x0a\2\xff\xfe",
            {"a": "//4="},
        ),
        (
            'syntax = "proto3"; package google.protobuf; message Timestamp { string when = 1; }',
            b"\x0a\1x",
            {"when": "x"},
        ),
        ('syntax = "proto3"; message M { int32 _unknown = 1; }', b"\x08\1\x10\2", {
            "_unknown": 1, "__unknown": [{"field": 2, "wire_type": 0, "value": 2}]
        }),
    ],
)  # fmt: skip
def test_schemas_that_few_write_are_read_alike(source: str, payload: bytes, entry: dict[str, Any]) -> None:
    """Unchecked texts, types with Google's names, and fields with our own names."""
    decoded = RecordDecoder(FRAMED, lambda _ref: Schema(source)).decode(ALL + payload)
    assert_decoded_alike(decoded, ALL + payload, FRAMED, (), lambda _ref: Schema(source))
    assert [entry for _, entry, *_ in decoded.entries] == [entry]


def test_registry_with_a_schema_of_another_kind_costs_its_records_only() -> None:
    decoder = RecordDecoder(FRAMED, lambda _ref: Schema('{"type": "string"}'))
    (bad,) = decoder.decode(ALL).bad
    assert bad.message.startswith("id 7 of the registry is no schema of input.format protobuf: schema.proto:1:1")


@pytest.mark.parametrize(("form", "package"), [("protobuf", "protobuf, grpcio-tools"), ("otlp", "opentelemetry-proto")])
def test_package_that_is_not_installed_is_named(form: Any, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("grpc_tools", "opentelemetry.proto.logs.v1.logs_pb2"):
        monkeypatch.setitem(sys.modules, name, None)
    (problem,) = find_format_problems(settings(input=InputSettings(format=form)))
    assert problem == f"input.format {form} needs {package}: pip install 'log-partitioner[formats]'"
