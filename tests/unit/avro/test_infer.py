"""One entry to its type, and what is done with one that is too large (DESIGN 3.3, 4.5)."""

from typing import Any

import msgspec
import pytest

from log_partitioner.avro.infer import TooDeepError, TooManyFieldsError, fit_entry, infer
from log_partitioner.avro.schema_types import ArrayType, MapType, RecordType, Scalar
from log_partitioner.config.settings import SchemaBounds
from log_partitioner.formats.values import Bytes, Date, Decimal, DeclaredMap, Timestamp
from tests.inferred import infer_entry

T = Scalar
R = RecordType
LIMITS = SchemaBounds(depth_max=3, object_keys_max=2, json_depth_max=5)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, T.NULL),
        (True, T.BOOL),
        (2**53, T.LONG53),
        (2**53 + 1, T.LONG64),
        (-(2**63), T.LONG64),
        (2**63, T.JSON),
        (5.0, T.DOUBLE),
        (msgspec.Raw(b"1e400"), T.JSON),
        ('{"json": "inside a string"}', T.STRING),
        ({}, R({})),
        ([], ArrayType(T.NULL)),
        ([1, None, 2.5], ArrayType(T.DOUBLE)),
        ([2**60, 0.5], ArrayType(T.JSON)),
        ([{"a": 1}, []], ArrayType(T.JSON)),
        ([{}, {"a": 1}, {"a": None, "b": "x"}], ArrayType(R({"a": T.LONG53, "b": T.STRING}))),
        ([{"a": 1}, {"b": 2}, {"c": 3}], ArrayType(MapType(T.LONG53))),
        ({"a": 1, "b": 2, "c": "x"}, MapType(T.JSON)),
        ({"a": {"b": {}}}, R({"a": R({"b": T.JSON})})),
        (Bytes("/w=="), T.BYTES),
        ([Decimal("1.250"), None, Decimal("1e3")], ArrayType(T.DECIMAL)),
        ([Timestamp("2026-03-04T05:06:07.000000Z"), Date("2026-03-04")], ArrayType(T.JSON)),
        ([Date("2026-03-04"), "2026-03-04"], ArrayType(T.JSON)),
        (DeclaredMap(), MapType(T.NULL)),
        ([{"a": 1}, DeclaredMap(b=2), None], ArrayType(MapType(T.LONG53))),
        ([DeclaredMap(a=1), []], ArrayType(T.JSON)),
        ({"a": {"b": DeclaredMap()}}, R({"a": R({"b": T.JSON})})),
    ],
)
def test_value_of_each_kind_has_its_type(value: Any, kind: Any) -> None:
    """Maps are declared, or have more than two keys; below the third level stands JSON."""
    assert infer(value, LIMITS, depth=2) == kind


def test_very_deep_value_exhausts_no_stack() -> None:
    """A value that a decoder let through at any depth is refused by counting, not by recursion."""
    value: Any = 1
    for level in range(50_000):
        value = {"a": value} if level % 2 else [value]
    with pytest.raises(TooDeepError):
        infer_entry({"x": value}, LIMITS)


ENTRY = {"id": 1, "small": {"a": 1}, "large": {"a": 1, "b": 1, "c": 1}}
LONG = {"a": {"x" * 1000: 1}, "b": {"y": 1, "z": 1}}


@pytest.mark.parametrize(
    ("entry", "fields_max", "bytes_max", "turned"),
    [
        (ENTRY, 7, 10**6, set()),
        (ENTRY, 6, 10**6, {"large"}),
        (ENTRY, 3, 10**6, {"large", "small"}),
        ({"a": {"x": 1}, "b": {"x": 1}}, 3, 10**6, {"b"}),
        (LONG, 100, 4500, {"b"}),
        (LONG, 100, 1000, {"a", "b"}),
    ],
)
def test_entry_that_is_too_large_has_its_largest_subtrees_made_json(
    entry: dict[str, Any], fields_max: int, bytes_max: int, turned: set[str]
) -> None:
    """The one with most fields goes first, of two alike the last by name; the rest stay columns, the very same."""
    kind = infer_entry(entry, LIMITS._replace(object_keys_max=100))
    fitted = fit_entry(kind, fields_max=fields_max, bytes_max=bytes_max)
    assert fitted == R({name: T.JSON if name in turned else child for name, child in kind.by_name.items()})
    assert (fitted is kind) == (not turned)


@pytest.mark.parametrize(
    ("entry", "fields_max", "bytes_max"),
    [({"a": {"b": 1}, "c": 1, "d": 1}, 2, 10**6), ({"x" * 1000: 1}, 100, 1000)],
)
def test_entry_with_nothing_left_to_turn_is_refused(entry: dict[str, Any], fields_max: int, bytes_max: int) -> None:
    """Too many top-level keys, or too long ones, are a dead letter."""
    with pytest.raises(TooManyFieldsError, match=f"{len(entry)} fields"):
        fit_entry(infer_entry(entry, LIMITS), fields_max=fields_max, bytes_max=bytes_max)


@pytest.mark.timeout(20)
def test_entry_of_thousands_of_subtrees_is_fitted_in_linear_time() -> None:
    """Four thousand objects, of which nearly all have to become JSON (DESIGN 4.5)."""
    kind = infer_entry({f"k{n}": {"a": 1} for n in range(3_990)}, LIMITS)
    assert fit_entry(kind, fields_max=4_000, bytes_max=10**7).fields == 4_000


@pytest.mark.timeout(20)
def test_objects_with_ever_new_keys_are_inferred_in_linear_time() -> None:
    """A list of lists of objects, each with a key of its own: schema explosion (DESIGN 4.5)."""
    limits = SchemaBounds(16, 500, 100)
    value = [[{f"k{n}": 0} for n in range(500)] for _ in range(100)]
    kind = infer_entry({"x": value}, limits).by_name["x"]
    assert kind == ArrayType(ArrayType(R({f"k{n}": T.LONG53 for n in range(500)})))
    assert infer({f"k{n}": {f"j{n}": 0} for n in range(20_000)}, limits, depth=2) == MapType(MapType(T.LONG53))
