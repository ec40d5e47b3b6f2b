"""Which texts of CSV are which values of an entry."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_partitioner.proof.oracle.json_text import parse_rounding
from log_partitioner_pipeline.archive.rows import value_of_entry, value_of_text

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def is_same(value: object, text: str) -> bool:
    """As `by_id` compares."""
    source, row = value_of_entry(value), value_of_text(text, parse_rounding)
    return bool(source["digest"] == row["text" if source["is_text"] else "value"])


@given(JSON)
def test_a_value_is_the_same_as_its_text(value: object) -> None:
    """Strings as they are, nothing as the empty text, all else as JSON."""
    value = json.loads(json.dumps(value))
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value)
    assert is_same(value, text)


@given(JSON, JSON)
def test_other_values_have_other_texts(value: object, other: object) -> None:
    """Unless CSV cannot tell them apart: a string that is the JSON of the other, or empty."""
    value, other = json.loads(json.dumps(value)), json.loads(json.dumps(other))
    text = other if isinstance(other, str) else "" if other is None else json.dumps(other)
    if isinstance(value, str):
        assert is_same(value, text) is (value == text)
    elif type(value) is type(other) and isinstance(value, (bool, int)):
        assert is_same(value, text) is (value == other)


@pytest.mark.parametrize(
    ("value", "text", "same"),
    [
        (True, "True", True),
        (False, "FALSE", True),
        (True, "1", False),
        (5, "5.0", True),
        (5, "05", False),
        (5, "", False),
        ({"a": None, "b": [1]}, '{"b": [1.0]}', True),
        ({"b": [1]}, '{"b": [2]}', False),
        ("True", "true", False),
        (None, "null", False),
        (0, "zero", False),
    ],
)
def test_texts_as_older_systems_write_them(value: object, text: str, *, same: bool) -> None:
    """Words of other languages for booleans, numbers by value, objects without what is null."""
    assert is_same(value, text) is same
