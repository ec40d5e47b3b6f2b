"""The join of two types by literal cases (DESIGN 3.3)."""

from typing import Any

import pytest

from log_partitioner.avro.schema_types import ArrayType, MapType, RecordType, Scalar, join

T = Scalar
EMPTY = RecordType({})
R = RecordType


def joined(left: Any, right: Any) -> Any:
    """Join under a limit of two keys."""
    return join(left, right, object_keys_max=2)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (T.NULL, T.NULL, T.NULL),
        (T.NULL, T.STRING, T.STRING),
        (T.LONG53, T.LONG64, T.LONG64),
        (T.LONG53, T.DOUBLE, T.DOUBLE),
        (T.LONG64, T.DOUBLE, T.JSON),
        (T.BOOL, T.LONG53, T.JSON),
        (T.STRING, T.LONG53, T.JSON),
        (T.STRING, T.JSON, T.JSON),
        (T.STRING, ArrayType(T.STRING), T.JSON),
        (T.STRING, EMPTY, T.JSON),
        (ArrayType(T.NULL), ArrayType(T.BOOL), ArrayType(T.BOOL)),
        (ArrayType(T.BOOL), ArrayType(T.STRING), ArrayType(T.JSON)),
        (ArrayType(T.BOOL), R({"a": T.BOOL}), T.JSON),
        (ArrayType(T.NULL), EMPTY, T.JSON),
        (ArrayType(T.BOOL), MapType(T.BOOL), T.JSON),
        (EMPTY, R({"a": T.BOOL}), R({"a": T.BOOL})),
        (R({"a": T.NULL}), R({"b": T.BOOL}), R({"a": T.NULL, "b": T.BOOL})),
        (R({"a": T.LONG53}), R({"a": T.DOUBLE}), R({"a": T.DOUBLE})),
        (R({"a": T.LONG53, "b": T.NULL}), R({"c": T.DOUBLE}), MapType(T.DOUBLE)),
        (R({"a": T.LONG53}), MapType(T.STRING), MapType(T.JSON)),
        (EMPTY, MapType(T.STRING), MapType(T.STRING)),
        (MapType(T.NULL), MapType(EMPTY), MapType(EMPTY)),
    ],
)
def test_join_of_two_types_is_the_least_that_holds_both(left: Any, right: Any, expected: Any) -> None:
    """The widening table, in both directions."""
    assert joined(left, right) == expected
    assert joined(right, left) == expected


def test_types_are_values_whose_order_of_keys_does_not_matter() -> None:
    """Equal types are equal keys of a dict, and different kinds are never equal."""
    assert R({"a": T.BOOL, "b": T.NULL}) == R({"b": T.NULL, "a": T.BOOL})
    assert list(R({"b": T.NULL, "a": T.BOOL}).by_name) == ["a", "b"]
    kinds: list[Any] = [EMPTY, R({"a": T.BOOL}), ArrayType(T.NULL), MapType(T.NULL), ArrayType(T.BOOL), MapType(T.BOOL)]
    assert len(set(kinds)) == len(kinds)
    assert all((one == other) == (one is other) for one in kinds for other in kinds)
    assert "Scalar.BOOL" in repr(kinds[1]) + repr(kinds[4]) + repr(kinds[5])
