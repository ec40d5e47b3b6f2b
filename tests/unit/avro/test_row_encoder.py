"""Rows in bytes by literal cases; their laws are in tests/property."""

from typing import Any

import msgspec
import pytest

from service.avro.infer import TooDeepError
from service.avro.row_encoder import (
    EntryEncoder,
    SchemaMismatch,
    compile_encoder,
    entry_encoder,
    exact_encoder,
    walk_entry,
)
from service.avro.schema_types import ArrayType, Limits, MapType, RecordType, Scalar

T = Scalar
LIMITS = Limits(depth_max=3, object_keys_max=2, json_depth_max=4)
BOTH = pytest.mark.parametrize(
    "make",
    [lambda kind: compile_encoder(kind, LIMITS), lambda kind: lambda e, out: walk_entry(kind, e, out, LIMITS)],
    ids=["compiled", "walked"],
)


def encoded(make: Any, kind: Any, value: Any) -> bytes:
    """Encode an entry of one field."""
    out = bytearray()
    make(RecordType({"f": kind}))({"f": value}, out)
    return bytes(out)


@BOTH
@pytest.mark.parametrize(
    ("kind", "value", "data"),
    [
        (T.NULL, None, b"\0"),
        (T.STRING, None, b"\0"),
        (T.STRING, "é", b"\2\4\xc3\xa9"),
        (T.STRING, " a\n\0", b"\2\x08 a\n\0"),
        (T.BOOL, True, b"\2\1"),
        (T.BOOL, False, b"\2\0"),
        (T.LONG53, -1, b"\2\1"),
        (T.LONG53, 2**53, b"\2\x80\x80\x80\x80\x80\x80\x80\x20"),
        (T.LONG64, 2**63 - 1, b"\2\xfe" + b"\xff" * 8 + b"\1"),
        (T.DOUBLE, 1.0, b"\2\0\0\0\0\0\0\xf0\x3f"),
        (T.DOUBLE, 1, b"\2\0\0\0\0\0\0\xf0\x3f"),
        (T.JSON, {"a": [1, None]}, b'\2\x1e{"a":[1,null]}'.replace(b"\x1e", b"\x1c")),
        (T.JSON, "a", b'\2\6"a"'),
        (T.JSON, 10**20, b"\2\x2a100000000000000000000"),
        (T.JSON, msgspec.Raw(b"1e400"), b"\2\n1e400"),
        (RecordType({}), {}, b"\2\0"),
        (RecordType({"a": T.BOOL}), {}, b"\2\0"),
        (RecordType({"a": T.BOOL}), {"a": True}, b"\2\2\1"),
        (ArrayType(T.BOOL), [], b"\2\0"),
        (ArrayType(T.BOOL), [True, None], b"\2\4\2\1\0\0"),
        (ArrayType(ArrayType(T.BOOL)), [[True], None], b"\2\4\2\2\2\1\0\0\0"),
        (MapType(T.BOOL), {}, b"\2\0"),
        (MapType(T.BOOL), {"k": True, "l": None, "m": False}, b"\2\6\2k\2\1\2l\0\2m\2\0\0"),
    ],
)
def test_value_of_each_type_is_written_as_avro(make: Any, kind: Any, value: Any, data: bytes) -> None:
    """Branch byte, then the value; collections in one block."""
    assert encoded(make, kind, value) == data


@BOTH
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (T.NULL, 0),
        (T.BOOL, 1),
        (T.LONG53, True),
        (T.LONG53, 2**53 + 1),
        (T.LONG53, 1.0),
        (T.LONG64, 2**63),
        (T.LONG64, -(2**63) - 1),
        (T.DOUBLE, 2**53 + 1),
        (T.DOUBLE, True),
        (T.DOUBLE, msgspec.Raw(b"1e400")),
        (T.STRING, 1),
        (T.STRING, {}),
        (RecordType({}), {"a": None}),
        (RecordType({}), []),
        (RecordType({"a": T.BOOL}), {"b": None}),
        (RecordType({"a": T.BOOL}), {"a": "x"}),
        (ArrayType(T.BOOL), {}),
        (ArrayType(T.BOOL), [1]),
        (ArrayType(ArrayType(T.BOOL)), [[True], [1]]),
        (MapType(T.BOOL), []),
        (MapType(T.BOOL), {"k": 1}),
        (MapType(MapType(T.NULL)), {"k": {"l": 1}}),
    ],
)
def test_value_of_another_type_is_a_mismatch(make: Any, kind: Any, value: Any) -> None:
    """True is no integer, 1.0 no integer, 1 a double; null keys count as keys."""
    with pytest.raises(SchemaMismatch):
        encoded(make, kind, value)


@BOTH
def test_entry_with_an_unknown_key_is_a_mismatch_even_where_it_is_null(make: Any) -> None:
    """The schema has every field that occurs."""
    with pytest.raises(SchemaMismatch):
        make(RecordType({"a": T.BOOL}))({"b": None}, bytearray())


@BOTH
def test_json_value_that_nests_too_deep_is_refused(make: Any) -> None:
    """The limit holds inside of JSON text, too."""
    assert encoded(make, T.JSON, [[[1]]]).endswith(b"[[[1]]]")
    with pytest.raises(TooDeepError):
        encoded(make, T.JSON, [[[[]]]])


@pytest.mark.parametrize(
    ("own", "written", "value", "data"),
    [
        (T.NULL, T.STRING, None, b"\0"),
        (T.STRING, T.STRING, "é", b"\2\4\xc3\xa9"),
        (T.STRING, T.JSON, "é", b'\2\x08"\xc3\xa9"'),
        (T.BOOL, T.BOOL, False, b"\2\0"),
        (T.LONG53, T.LONG53, 5000, b"\2\x90\x4e"),
        (T.LONG53, T.LONG64, -1, b"\2\1"),
        (T.LONG53, T.DOUBLE, 1, b"\2\0\0\0\0\0\0\xf0\x3f"),
        (T.LONG64, T.JSON, 2**60, b"\2\x261152921504606846976"),
        (T.JSON, T.JSON, {"a": 1}, b'\2\x0e{"a":1}'),
        (RecordType({}), RecordType({"a": T.BOOL}), {}, b"\2\0"),
        (RecordType({}), MapType(T.BOOL), {}, b"\2\0"),
        (ArrayType(T.NULL), ArrayType(T.BOOL), [None], b"\2\2\0\0"),
    ],
)
def test_value_of_a_known_type_is_written_under_a_wider_one(own: Any, written: Any, value: Any, data: bytes) -> None:
    """What a field is alone, and what it is in its object; fields that the entry lacks are null."""
    entry_type = RecordType({"f": own})
    whole = RecordType({"a": T.BOOL, "e": T.BOOL, "f": written, "z": T.STRING})
    out = bytearray(b"before")
    exact_encoder(entry_type, whole, LIMITS)({"f": value}, out)
    assert bytes(out) == b"before\0\0" + data + b"\0"


def test_entry_of_nothing_is_written_under_any_type() -> None:
    """All fields are null, or there is none."""
    for fields in ({}, {"a": T.BOOL, "b": T.JSON}):
        out = bytearray()
        exact_encoder(RecordType({}), RecordType(fields), LIMITS)({}, out)
        assert out == bytes(len(fields))


def test_encoder_of_a_type_is_one_for_all_who_ask() -> None:
    """Types are interned by value: compiled once, used by every file."""
    kind = RecordType({"some": T.BOOL, "fields": T.STRING})
    again = RecordType({"fields": T.STRING, "some": T.BOOL})
    assert isinstance(entry_encoder(kind, LIMITS), EntryEncoder)
    assert entry_encoder(kind, LIMITS) is entry_encoder(again, LIMITS)
    assert entry_encoder(kind, LIMITS) is not entry_encoder(kind, LIMITS._replace(depth_max=2))


def test_type_of_thousands_of_fields_is_compiled() -> None:
    """As many as the largest schema may have, and more."""
    kind = RecordType({f"f{n:05}": T.NULL for n in range(3_000)})
    out = bytearray()
    compile_encoder(kind, LIMITS)({}, out)
    assert out == bytes(3_000)


@pytest.mark.parametrize("name", ["'", '"', "\\", "\n", "{x}", "%s", "\u2028", "None", "class", "__import__('os')"])
def test_keys_of_any_spelling_are_data_in_generated_code(name: str) -> None:
    """Keys stand in the generated source as literals only."""
    out = bytearray()
    compile_encoder(RecordType({name: RecordType({name: T.STRING})}), LIMITS)({name: {name: "v"}}, out)
    exact = bytearray()
    kind = RecordType({name: T.STRING})
    exact_encoder(kind, kind, LIMITS)({name: "v"}, exact)
    assert (out, exact) == (b"\2\2\2v", b"\2\2v")


def test_deeply_nested_type_is_compiled() -> None:
    """Python allows twenty nested blocks; types may nest deeper than that."""
    kind: Any = T.BOOL
    value: Any = True
    for level in range(31):
        kind = (ArrayType, MapType, lambda child: RecordType({"a": child}))[level % 3](kind)
        value = ([value], {"k": value}, {"a": value})[level % 3]
    limits = Limits(32, 10, 40)
    walked, compiled = bytearray(), bytearray()
    walk_entry(RecordType({"f": kind}), {"f": value}, walked, limits)
    compile_encoder(RecordType({"f": kind}), limits)({"f": value}, compiled)
    assert compiled == walked
