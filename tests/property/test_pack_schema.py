"""Types of a pack: how exact types merge, their projections back, and the values read under both (DESIGN 3.2, 6).

Compiled code does the same by numbers.
"""

from __future__ import annotations

import io
import json
from functools import reduce
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_partitioner import native
from log_partitioner.avro.infer import TooDeepError
from log_partitioner.avro.names import beside
from log_partitioner.avro.pack_schema import merge, places, projection
from log_partitioner.avro.row_encoder import SchemaMismatch, entry_encoder
from log_partitioner.avro.schema import row_schema, schema_of
from log_partitioner.avro.schema_types import ArrayType, MapType, RecordType, Scalar, Type, join_records
from log_partitioner.batch.types import make_types
from log_partitioner.formats.projection import project
from log_partitioner.formats.values import encode_json
from log_partitioner_pipeline.row_type import type_of
from tests.property.avro_reading import canonical, entry_fields, to_entry
from tests.strategies import LIMITS, decode_again, entries_near, entry_types, times_as_many

T = Scalar


@st.composite
def exact_types(draw: st.DrawFn, whole: RecordType) -> RecordType:
    """Make the type of entries that have less than `whole`: most of them may share a pack."""
    kept = {name: child for name, child in whole.by_name.items() if draw(st.integers(0, 3))}
    return RecordType({name: draw(_narrower(child)) for name, child in kept.items()})


def _narrower(child: Type) -> st.SearchStrategy[Type]:
    own: st.SearchStrategy[Type] = st.just(child)
    if isinstance(child, RecordType):
        own = exact_types(child)
    elif isinstance(child, ArrayType):
        own = _narrower(child.item).map(ArrayType)
    elif isinstance(child, MapType):
        own = _narrower(child.value).map(MapType) | st.just(RecordType({}))
    elif child is T.LONG64:
        own = st.sampled_from([T.LONG53, T.LONG64])
    return st.integers(0, 7).flatmap(lambda dice: own if dice else st.just(T.NULL))


def neighbours(number: int) -> st.SearchStrategy[list[RecordType]]:
    """Make types of PartitionKeys whose entries are alike."""
    near = entry_types().flatmap(lambda whole: st.lists(exact_types(whole), min_size=number, max_size=number))
    return near | st.lists(entry_types(), min_size=number, max_size=number)


@times_as_many(2)
@given(neighbours(2))
def test_merged_type_holds_both(two: list[RecordType]) -> None:
    """Idempotent, and what is held already is the same object again: callers compare by identity."""
    a, b = two
    both = merge(a, b)
    assert merge(a, RecordType(dict(a.by_name))) is a
    assert merge(both, a) is both
    assert merge(both, b) is both


@times_as_many(2)
@given(entry_types().flatmap(lambda whole: st.lists(exact_types(whole), min_size=2, max_size=2)))
def test_merge_of_types_that_agree_is_their_join(two: list[RecordType]) -> None:
    """Then neither the type nor a name depends on who came first."""
    a, b = two
    assert merge(a, b) == merge(b, a) == join_records(a, b, object_keys_max=10**6)


@times_as_many(2)
@given(st.integers(2, 4).flatmap(neighbours))
def test_exact_schema_is_the_projection_of_the_merged_one(some: list[RecordType]) -> None:
    """A reader makes of the object's schema the exact type of each PartitionKey in it, under the object's names."""
    both = reduce(merge, some)
    whole = json.loads(row_schema(both).text)
    for own in some:
        made = json.loads(json.dumps(projection(own, both)))
        exact = project(whole, made)
        assert type_of(exact) == own
        assert (made is None) == (own == both)
        its_names = {field["name"] for field in entry_fields(exact)}
        assert its_names <= {field["name"] for field in entry_fields(whole)}


@times_as_many(2)
@given(st.data())
def test_entry_written_under_the_merged_type_reads_back_equal(data: st.DataObject) -> None:
    """An entry of the PartitionKey's own type fits the merged one, and fastavro reads the values that went in."""
    other, own, more = data.draw(neighbours(3))
    both = merge(merge(other, own), more)
    entry, out = decode_again(encode_json(data.draw(entries_near(own)))), bytearray()
    try:
        entry_encoder(own, both, LIMITS)(entry, out)
    except (SchemaMismatch, TooDeepError):
        return
    fields = entry_fields(json.loads(row_schema(both).text))
    schema = {"type": "record", "name": "entry", "namespace": "logs", "fields": fields}
    row = fastavro.schemaless_reader(io.BytesIO(bytes(out)), schema, None)
    assert canonical(to_entry(fields, row)) == canonical(entry)


@pytest.mark.skipif(not native.IS_INSTALLED, reason="make native")
@times_as_many(4)
@given(st.integers(2, 5).flatmap(neighbours), st.sampled_from([3, 8, 10**6]), st.sampled_from([600, 10**6]))
def test_compiled_types_are_those_of_python(some: list[RecordType], fields_max: int, bytes_max: int) -> None:
    """Sizes, joins, merges and projections, within the same bounds."""
    bounds = LIMITS._replace(fields_max=fields_max, bytes_max=bytes_max)
    ways = [make_types(bounds, is_fast=is_fast) for is_fast in (False, True)]

    def both(ask: Any) -> Any:
        one, other = map(ask, ways)
        assert one == other
        return one

    def known(number: int | None, types: Any) -> Any:
        return number if number is None else (types.type_of(number), types.size(number), types.width(number))

    for count in range(1, len(some) + 1):
        both(lambda types, count=count: known(types.join([*map(types.number, some[:count])]), types))
    merged = some[0]
    for own in some:
        pair = merged, own
        both(lambda types, pair=pair: types.shared(*map(types.number, pair)))
        found = both(lambda types, pair=pair: known(types.merged(*map(types.number, pair)), types))
        if found is not None:
            merged = found[0]
            pair = own, merged
            both(lambda types, pair=pair: types.projection(*map(types.number, pair)))


KEYED = RecordType({"k": T.BOOL})


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (T.LONG53, T.STRING),
        (T.LONG53, T.DOUBLE),
        (T.LONG64, T.DOUBLE),
        (T.BOOL, T.LONG53),
        (T.STRING, T.JSON),
        (T.LONG64, T.JSON),
        (T.BYTES, T.STRING),
        (T.DECIMAL, T.DOUBLE),
        (T.TIMESTAMP, T.LONG53),
        (T.DATE, T.TIMESTAMP),
        (KEYED, MapType(T.BOOL)),
        (KEYED, T.JSON),
        (KEYED, ArrayType(T.BOOL)),
        (RecordType({}), ArrayType(T.NULL)),
        (RecordType({}), T.STRING),
        (ArrayType(T.NULL), T.STRING),
        (ArrayType(T.STRING), ArrayType(T.DOUBLE)),
        (MapType(T.STRING), MapType(T.JSON)),
    ],
)
def test_types_that_would_change_stand_beside_each_other(left: Type, right: Type) -> None:
    """In the innermost object that has the name: the entry, or one in it, in an array or in a map."""
    for one, other in ((left, right), (right, left)):
        expected = RecordType({"f": one, beside("f", 1): other})
        own = RecordType({"f": one}), RecordType({"f": other})
        for at in (lambda kind: kind, lambda kind: RecordType({"o": kind}), ArrayType, MapType):
            assert merge(*(RecordType({"p": at(kind)}) for kind in own)) == RecordType({"p": at(expected)})
        assert merge(*own) == expected
        assert [field.number for field in places(own[0], expected)] == [0]
        assert [field.number for field in places(own[1], expected)] == [1]


def test_further_field_of_a_name_is_the_first_that_takes_a_type() -> None:
    """Null, `{}` and `[]` are the first one's that takes them."""
    kinds = [T.STRING, T.LONG53, T.NULL, T.LONG64, ArrayType(T.NULL), RecordType({}), ArrayType(KEYED), T.BOOL]
    merged = reduce(merge, [RecordType({"f": kind}) for kind in kinds])
    expected = [T.STRING, T.LONG64, ArrayType(KEYED), RecordType({}), T.BOOL]
    assert merged == RecordType({beside("f", number): kind for number, kind in enumerate(expected)})
    assert [projection(RecordType({"f": kind}), merged) for kind in kinds] == [
        [0], [[1, "long53"]], [[0, "null"]], [1], [[2, {"items": "null"}]], [3], [2], [4]
    ]  # fmt: skip


def test_names_are_those_of_the_object() -> None:
    """`a` is a_2 beside `A`, and a in an object of its own; the second field of a name is numbered as well."""
    merged = merge(RecordType({"A": T.BOOL}), merge(RecordType({"a": T.BOOL}), RecordType({"a": T.STRING})))
    assert [field["name"] for field in entry_fields(schema_of(merged))] == ["A", "a_2", "a_3"]
    exact = project(schema_of(merged), projection(RecordType({"a": T.STRING}), merged))
    assert [(field["name"], field["lp.name"]) for field in entry_fields(exact)] == [("a_3", "a")]


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (T.NULL, T.JSON, T.JSON),
        (T.NULL, T.DATE, T.DATE),
        (T.NULL, KEYED, KEYED),
        (T.LONG53, T.LONG64, T.LONG64),
        (RecordType({}), KEYED, KEYED),
        (RecordType({}), MapType(T.DOUBLE), MapType(T.DOUBLE)),
        (ArrayType(T.NULL), ArrayType(KEYED), ArrayType(KEYED)),
        (ArrayType(KEYED), ArrayType(RecordType({"l": T.NULL})), ArrayType(RecordType({"k": T.BOOL, "l": T.NULL}))),
        (MapType(T.NULL), MapType(T.LONG53), MapType(T.LONG53)),
    ],
)
def test_types_that_change_no_value_share_a_pack(left: Type, right: Type, expected: Type) -> None:
    """Null, `{}` and `[]` get a type, long53 becomes long64, fields are added."""
    assert merge(RecordType({"f": left}), RecordType({"f": right})) == RecordType({"f": expected})
    assert merge(RecordType({"f": right}), RecordType({"f": left})) == RecordType({"f": expected})


def test_objects_of_a_pack_may_have_any_number_of_keys() -> None:
    """The bound on the keys of nested objects is one of exact types."""
    some = [RecordType({"o": RecordType({f"k{number}": T.BOOL})}) for number in range(2 * LIMITS.object_keys_max)]
    assert reduce(merge, some).fields == 1 + len(some)
