"""Rows in bytes by literal cases; their laws are in tests/property."""

import sys
from typing import Any

import msgspec
import pytest

from service.core.lattice import ArrayType, Limits, MapType, RecordType, Scalar
from service.core.row_decoder import decode_entry
from service.core.row_encoder import EntryEncoder, Misfit, compile_encoder, entry_encoder, walk_entry
from service.core.schema_infer import TooDeepError

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
    mask = make(RecordType({"f": kind}))({"f": value}, out)
    assert mask == (1 if value is None else 0)
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
def test_value_of_another_type_is_a_misfit(make: Any, kind: Any, value: Any) -> None:
    """True is no integer, 1.0 no integer, 1 a double; null keys count as keys."""
    with pytest.raises(Misfit):
        encoded(make, kind, value)


@BOTH
def test_entry_with_an_unknown_key_is_a_misfit_even_where_it_is_null(make: Any) -> None:
    """The schema has every field that occurs."""
    with pytest.raises(Misfit):
        make(RecordType({"a": T.BOOL}))({"b": None}, bytearray())


@BOTH
def test_json_value_that_nests_too_deep_is_refused(make: Any) -> None:
    """The limit holds inside of JSON text, too."""
    assert encoded(make, T.JSON, [[[1]]]).endswith(b"[[[1]]]")
    with pytest.raises(TooDeepError):
        encoded(make, T.JSON, [[[[]]]])


def test_decoded_null_typed_value_is_a_bug() -> None:
    """Nothing but null is ever written there."""
    with pytest.raises(AssertionError, match="always written as null"):
        decode_entry(RecordType({"f": T.NULL}), b"\2", 0)


def test_encoder_of_a_type_is_one_for_all_who_ask() -> None:
    """Types are interned by value: compiled once, used by every file."""
    kind = RecordType({"some": T.BOOL, "fields": T.STRING})
    again = RecordType({"fields": T.STRING, "some": T.BOOL})
    assert isinstance(entry_encoder(kind, LIMITS), EntryEncoder)
    assert entry_encoder(kind, LIMITS) is entry_encoder(again, LIMITS)
    assert entry_encoder(kind, LIMITS) is not entry_encoder(kind, LIMITS._replace(depth_max=2))


def test_type_of_more_fields_than_python_writes_in_decimal_is_compiled() -> None:
    """Python refuses decimals of too many digits (CVE-2020-10735), which the mask of 15,000 fields has by default."""
    kind = RecordType({f"f{n:05}": T.NULL for n in range(2_200)})
    digits = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        mask = compile_encoder(kind, LIMITS)({}, bytearray())
    finally:
        sys.set_int_max_str_digits(digits)
    assert mask == 2**2_200 - 1


@pytest.mark.parametrize("name", ["'", '"', "\\", "\n", "{x}", "%s", "\u2028", "None", "class", "__import__('os')"])
def test_keys_of_any_spelling_are_data_in_generated_code(name: str) -> None:
    """Keys stand in the generated source as literals only."""
    out = bytearray()
    compile_encoder(RecordType({name: RecordType({name: T.STRING})}), LIMITS)({name: {name: "v"}}, out)
    assert out == b"\2\2\2v"


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
