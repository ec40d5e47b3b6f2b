"""One entry to its type, and what is done with one that is too large (DESIGN 3.3, 4.5)."""

from typing import Any

import msgspec
import pytest

from service.avro.infer import TooDeepError, TooManyFieldsError, fit_entry, infer, infer_entry
from service.avro.schema_types import ArrayType, Limits, MapType, RecordType, Scalar

T = Scalar
R = RecordType
LIMITS = Limits(depth_max=3, object_keys_max=2, json_depth_max=5)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, T.NULL),
        (True, T.BOOL),
        (0, T.LONG53),
        (2**53, T.LONG53),
        (-(2**53), T.LONG53),
        (2**53 + 1, T.LONG64),
        (2**63 - 1, T.LONG64),
        (-(2**63), T.LONG64),
        (2**63, T.JSON),
        (-(2**63) - 1, T.JSON),
        (5.0, T.DOUBLE),
        (msgspec.Raw(b"1e400"), T.JSON),
        ("", T.STRING),
        ('{"json": "inside a string"}', T.STRING),
        ({}, R({})),
        ([], ArrayType(T.NULL)),
        ([None], ArrayType(T.NULL)),
        ([1, None, 2.5], ArrayType(T.DOUBLE)),
        ([1, "a"], ArrayType(T.JSON)),
        ([2**60, 0.5], ArrayType(T.JSON)),
        ([1, [1]], ArrayType(T.JSON)),
        ([{"a": 1}, []], ArrayType(T.JSON)),
        ([{}, {"a": 1}, {"a": None, "b": "x"}], ArrayType(R({"a": T.LONG53, "b": T.STRING}))),
        ([{"a": 1}, {"b": 2}, {"c": 3}], ArrayType(MapType(T.LONG53))),
        ([[1], [], [None, 0.5]], ArrayType(ArrayType(T.DOUBLE))),
        ({"a": 1, "b": 2}, R({"a": T.LONG53, "b": T.LONG53})),
        ({"a": 1, "b": 2, "c": "x"}, MapType(T.JSON)),
        ({"a": {"b": 1}}, R({"a": R({"b": T.LONG53})})),
        ({"a": {"b": {}}}, R({"a": R({"b": T.JSON})})),
        ({"a": {"b": [1]}}, R({"a": R({"b": T.JSON})})),
    ],
)
def test_value_of_each_kind_has_its_type(value: Any, kind: Any) -> None:
    """Types of JSON values, with maps beyond two keys and JSON below the third level."""
    assert infer(value, LIMITS, depth=2) == kind


def test_entry_with_many_keys_stays_a_record() -> None:
    """Only nested objects become maps."""
    assert infer_entry({"a": 1, "b": None, "c": "x"}, LIMITS) == R({"a": T.LONG53, "b": T.NULL, "c": T.STRING})


def nested(levels: int, inside: Any = 1) -> Any:
    """Make objects and lists in turn around a value."""
    value = inside
    for level in range(levels):
        value = {"a": value} if level % 2 else [value]
    return value


@pytest.mark.parametrize("depth_max", [1, 3, 5])
@pytest.mark.parametrize("around", [lambda v: {"x": v}, lambda v: {"x": [1, v]}, lambda v: {"x": [{}, v, {"a": "b"}]}])
def test_entry_deeper_than_the_limit_is_refused_wherever_it_is_deep(depth_max: int, around: Any) -> None:
    """The limit counts all levels, whether they would be columns or JSON."""
    limits = LIMITS._replace(depth_max=depth_max)
    base = 1 if around(0) == {"x": 0} else 2
    infer_entry(around(nested(5 - base)), limits)
    with pytest.raises(TooDeepError):
        infer_entry(around(nested(6 - base)), limits)
    with pytest.raises(TooDeepError):
        infer_entry(around(nested(6 - base, inside=[])), limits)


def test_very_deep_value_exhausts_no_stack() -> None:
    """A value that a decoder let through at any depth is refused by counting, not by recursion."""
    with pytest.raises(TooDeepError):
        infer_entry({"x": nested(50_000)}, LIMITS)


def fit(entry: dict[str, Any], *, fields_max: int = 100, bytes_max: int = 10**6) -> RecordType:
    """Infer an entry and fit it."""
    kind = infer_entry(entry, LIMITS._replace(object_keys_max=100))
    return fit_entry(kind, fields_max=fields_max, bytes_max=bytes_max)


def test_entry_within_the_limits_is_left_as_it_is() -> None:
    """The very same type."""
    kind = infer_entry({"a": {"b": 1}}, LIMITS)
    assert fit_entry(kind, fields_max=2, bytes_max=10**6) is kind


def test_entry_with_too_many_fields_has_its_largest_subtree_made_json() -> None:
    """The one with most fields goes first; the rest stay columns."""
    entry = {"id": 1, "small": {"a": 1}, "large": {"a": 1, "b": 1, "c": 1}}
    assert fit(entry, fields_max=6) == R({"id": T.LONG53, "large": T.JSON, "small": R({"a": T.LONG53})})
    assert fit(entry, fields_max=3) == R({"id": T.LONG53, "large": T.JSON, "small": T.JSON})


def test_entry_with_two_subtrees_alike_has_the_last_by_name_made_json() -> None:
    """The rule looks at the entry alone and always decides the same."""
    assert fit({"a": {"x": 1}, "b": {"x": 1}}, fields_max=3) == R({"a": R({"x": T.LONG53}), "b": T.JSON})


def test_entry_with_a_schema_of_too_many_bytes_has_long_keys_made_json() -> None:
    """Long keys cost bytes, not fields."""
    entry = {"a": {"x" * 1000: 1}, "b": {"y": 1, "z": 1}}
    assert fit(entry, bytes_max=1000) == R({"a": T.JSON, "b": T.JSON})
    assert fit(entry, bytes_max=4500) == R({"a": infer({"x" * 1000: 1}, LIMITS, depth=2), "b": T.JSON})


def test_entry_with_nothing_left_to_turn_is_refused() -> None:
    """Too many top-level keys, or too long ones, are a dead letter."""
    with pytest.raises(TooManyFieldsError, match="3 fields"):
        fit({"a": 1, "b": 2, "c": 3}, fields_max=2)
    with pytest.raises(TooManyFieldsError):
        fit({"x" * 1000: 1}, bytes_max=1000)
    with pytest.raises(TooManyFieldsError):
        fit({"a": {"b": 1}, "c": 1, "d": 1}, fields_max=2)


@pytest.mark.timeout(20)
def test_entry_of_thousands_of_subtrees_is_fitted_in_linear_time() -> None:
    """Four thousand objects, of which nearly all have to become JSON (DESIGN 4.5)."""
    kind = infer_entry({f"k{n}": {"a": 1} for n in range(3_990)}, LIMITS)
    assert fit_entry(kind, fields_max=4_000, bytes_max=10**7).fields == 4_000


@pytest.mark.timeout(20)
def test_objects_with_ever_new_keys_are_inferred_in_linear_time() -> None:
    """A list of lists of objects, each with a key of its own: schema explosion (DESIGN 4.5)."""
    limits = Limits(16, 500, 100)
    value = [[{f"k{n}": 0} for n in range(500)] for _ in range(100)]
    kind = infer_entry({"x": value}, limits).by_name["x"]
    assert kind == ArrayType(ArrayType(R({f"k{n}": T.LONG53 for n in range(500)})))
    assert infer({f"k{n}": {f"j{n}": 0} for n in range(20_000)}, limits, depth=2) == MapType(MapType(T.LONG53))
