"""Equal (DESIGN 3.2), and digests that agree with it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from log_partitioner.formats.values import Bytes, Date, Decimal, DeclaredMap
from log_partitioner.proof.oracle.equal import canonical, differences, digest
from log_partitioner.proof.oracle.json_text import parse_rounding


def equal(one: str, other: str) -> bool:
    return digest(canonical(parse_rounding(one))) == digest(canonical(parse_rounding(other)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":null}', "{}"),
        ('{"a":{"b":null}}', '{"a":{}}'),
        ("5", "5.0"),
        ("[5]", "[5e0]"),
        ("0", "-0.0"),
        ("1e22", "10000000000000000000000"),
        ("9007199254740992", "9007199254740992.0"),
        ('{"a":1,"b":2}', '{"b":2,"a":1}'),
        ('{"a":1,"a":2}', '{"a":2}'),
        ('"\\u00e9"', '"é"'),
        ("1e400", "1" + "0" * 400),
        ("1" + "0" * 5000, "10e4999"),
    ],
)
def test_equal_values_have_equal_digests(one: str, other: str) -> None:
    assert equal(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", "true"),
        ("0", "false"),
        ("1", '"1"'),
        ("null", '""'),
        ("[null]", "[]"),
        ("[1,2]", "[2,1]"),
        ("9007199254740993", "9007199254740992"),
        ("9007199254740993", "9007199254740992.0"),
        ('{"a":{}}', "{}"),
        ('{"a":[]}', '{"a":{}}'),
        ('"a"', '"A"'),
        ('"e\\u0301"', '"é"'),
        ("1e400", "1e401"),
        ("1e400", "-1e400"),
        ('{"a":"{}"}', '{"a":{}}'),
        ("0.1", "0.10000000000000002"),
    ],
)
def test_different_values_have_different_digests(one: str, other: str) -> None:
    assert not equal(one, other)


def test_differences_name_the_path() -> None:
    one = canonical(parse_rounding('{"a":{"b":[1,{"c":true}]},"d":1,"same":1}'))
    other = canonical(parse_rounding('{"a":{"b":[1,{"c":1}]},"e":"x","same":1.0}'))
    assert list(differences(one, other)) == [
        "a.b[1].c: source true, file 1",
        "d: source 1, file absent",
        'e: source absent, file "x"',
    ]


def test_value_that_json_lacks_is_its_text() -> None:
    declared = DeclaredMap(a=Bytes("/w=="), b=[Decimal("1.250"), Date("2026-03-04")])
    plain = {"a": "/w==", "b": ["1.250", "2026-03-04"]}
    assert not list(differences(canonical(declared), canonical(plain)))
    assert digest(canonical(declared)) == digest(canonical(plain))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60)
@given(one=JSON, other=JSON)
def test_digests_agree_with_differences(one: object, other: object) -> None:
    one, other = canonical(one), canonical(other)
    assert (digest(one) == digest(other)) == (not list(differences(one, other)))
