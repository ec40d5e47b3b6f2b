"""Types of entries by their shapes, with literal entries; that they are those of inference is in tests/property."""

import tracemalloc
from typing import Any

import msgspec
import pytest

from service.avro import entry_types
from service.avro.entry_types import EntryTypes, SchemaBounds
from service.avro.infer import TooDeepError, TooManyFieldsError
from service.avro.schema_types import ArrayType, Limits, MapType, RecordType, Scalar

T = Scalar
BOUNDS = SchemaBounds(Limits(depth_max=3, object_keys_max=2, json_depth_max=5), fields_max=6, bytes_max=10**6)
WIDE = SchemaBounds(Limits(16, 500, 100), fields_max=1000, bytes_max=512 * 1024)


def test_type_of_one_shape_is_one_object() -> None:
    """Comparing costs nothing then: the rows of a batch are counted by it."""
    types = EntryTypes(BOUNDS)
    first = types.of({"a": 1, "b": {"c": "x"}, "d": None})
    assert types.of({"a": 2**53, "b": {"c": "y"}, "d": None}) is first
    assert first == RecordType({"a": T.LONG53, "b": RecordType({"c": T.STRING}), "d": T.NULL})
    assert types.of({"a": 1, "d": [True]}) is types.of({"a": 7, "d": [False, None]})


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1, T.LONG53),
        (-(2**53), T.LONG53),
        (2**53 + 1, T.LONG64),
        (2**64, T.JSON),
        (1.0, T.DOUBLE),
        (True, T.BOOL),
        (None, T.NULL),
        ("1", T.STRING),
        (msgspec.Raw(b"1e400"), T.JSON),
        ({}, RecordType({})),
        ([], ArrayType(T.NULL)),
        ([1, 2**60], ArrayType(T.LONG64)),
        ([1, "x"], ArrayType(T.JSON)),
        ({"x": 2**60}, RecordType({"x": T.LONG64})),
        ({"x": {"y": 1}}, RecordType({"x": RecordType({"y": T.LONG53})})),
        ({"x": {"y": {"z": 1}}}, RecordType({"x": RecordType({"y": T.JSON})})),
        ({"x": 1, "y": 2, "z": 3}, MapType(T.LONG53)),
    ],
)
def test_each_value_of_a_field_that_was_seen_with_others_has_its_own_type(value: Any, kind: Any) -> None:
    """What a shape leaves open is looked at anew: large integers, objects, lists."""
    types = EntryTypes(BOUNDS)
    for before in (1, 2**60, "x", {}, [], {"x": 1}, {"x": {"y": 1}}, value):
        types.of({"f": before, "g": 1})
    assert types.of({"f": value, "g": 1}) == RecordType({"f": kind, "g": T.LONG53})


def test_order_of_keys_makes_another_shape_of_the_same_type() -> None:
    """Shapes are how entries come; types are by name."""
    types = EntryTypes(BOUNDS)
    assert types.of({"a": 1, "b": "x"}) == types.of({"b": "x", "a": 1})


def test_entry_that_no_schema_holds_is_refused_each_time() -> None:
    """Also when its shape is known already; entries of other shapes are none the worse."""
    types = EntryTypes(BOUNDS)
    for _ in range(3):
        with pytest.raises(TooDeepError):
            types.of({"a": [[[[[1]]]]]})
        with pytest.raises(TooManyFieldsError):
            types.of({f"k{n}": n for n in range(7)})
        with pytest.raises(TooManyFieldsError):
            types.of({f"k{n}": [n] for n in range(7)})
        assert types.of({"a": [1]}) == RecordType({"a": ArrayType(T.LONG53)})


def test_entry_that_is_too_large_alone_has_its_largest_subtree_made_json() -> None:
    """There is no schema in which it would fit otherwise."""
    types = EntryTypes(BOUNDS)
    entry = {"a": 1, "b": {"x": {"y": 2, "z": 3}}, "c": {"x": 1}, "d": 1}
    assert types.of(entry).by_name["b"] is T.JSON
    assert types.of(entry) is types.of(entry)


@pytest.mark.parametrize(
    "make",
    [
        lambda n: {f"k{n}": n},
        lambda n: {f"k{n}" + "x" * 500: n},
        lambda n: {f"k{n}" + "\U0001f600" * 50: n},
        lambda n: {f"k{n}-{m}": n for m in range(20)},
        lambda n: {"a": {f"k{n}": n}, "b": 1},
        lambda n: {"a": [{f"k{n}": n}], "b": 1},
        lambda n: {f"k{m}": "x" if n >> m & 1 else n for m in range(14)},
        lambda n: {"a": {f"k{m}": "x" if n >> m & 1 else n for m in range(14)}, "b": 1},
    ],
    ids=["key", "long", "wide", "many", "nested", "listed", "kinds", "nested kinds"],
)
def test_entries_of_ever_new_shapes_take_no_more_memory_than_they_are_weighed(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hostile or dynamic keys: what is kept is not larger than said, and at the bound everything is forgotten."""
    types = EntryTypes(WIDE)
    texts = [msgspec.json.encode(make(n)) for n in range(600)]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for text in texts:
            types.of(msgspec.json.decode(text))
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0 < kept <= types._weight
    monkeypatch.setattr(entry_types, "SHAPES_BYTES_MAX", types._weight // 4)
    types = EntryTypes(WIDE)
    for n in range(600):
        types.of(make(n))
        assert types._weight <= entry_types.SHAPES_BYTES_MAX
    assert types.of(make(0)) == EntryTypes(WIDE).of(make(0))
