"""Columns of the table: laws of names and types, whatever schemas come in whatever order."""

from functools import partial, reduce
from random import Random
from time import process_time

from hypothesis import example, given
from hypothesis import strategies as st
from pyiceberg.schema import make_compatible_name
from pyspark.sql import types as T

from log_partitioner_pipeline.columns import (
    admit,
    column_name,
    escape,
    lacks,
    leaves,
    parse_column_name,
    project,
    unescape,
    union,
    union_of,
)

# A column's name says its type, so one name never has two.
_LEAVES = [T.StructField("a__long", T.LongType()), T.StructField("b__string", T.StringType())]


def _structs(depth: int, fields_min: int = 0) -> st.SearchStrategy[T.StructType]:
    """Generate structs of up to three fields, in any order; records in them reach so deep, and none is empty."""
    types: dict[str, st.SearchStrategy[T.DataType]] = {leaf.name: st.just(leaf.dataType) for leaf in _LEAVES}
    if depth:
        inner = _structs(depth - 1, 1)
        types["r"] = inner
        types["l__array_record"] = inner.map(T.ArrayType)
        types["m__map_record"] = inner.map(lambda kind: T.MapType(T.StringType(), kind))
    return (
        st.lists(st.sampled_from(sorted(types)), min_size=fields_min, max_size=3, unique=True)
        .flatmap(lambda names: st.tuples(*(types[name].map(partial(T.StructField, name)) for name in names)))
        .map(lambda fields: T.StructType(list(fields)))
    )


_STRUCTS = _structs(3)


@given(st.text())
def test_names_are_kept_apart(name: str) -> None:
    """What is escaped can be read back, so two names never make one column."""
    assert unescape(escape(name)) == name
    assert parse_column_name(column_name(name, "array_long")) == (name, "array_long")
    assert parse_column_name(column_name(name, "record")) == (name, "record")


@given(st.sets(st.tuples(st.text(alphabet="_x12DF0a-@%.", max_size=6), st.sampled_from(["record", "long"]))))
@example({("1", "long"), ("_1", "long")})
@example({("a-b", "record"), ("a_x2Db", "record")})
@example({("a.b", "long"), ("a%2Eb", "long"), ("a_x252Eb", "long")})
def test_names_are_kept_apart_in_parquet(fields: set[tuple[str, str]]) -> None:
    """Iceberg gives columns other names in its files: those are as many."""
    assert len({make_compatible_name(column_name(name, kind)) for name, kind in fields}) == len(fields)


@given(st.lists(_STRUCTS, max_size=4), st.randoms())
def test_order_does_not_matter(structs: list[T.StructType], random: Random) -> None:
    """Whatever order schemas come in, the columns are the same, and none lacks anything."""
    shuffled = list(structs)
    random.shuffle(shuffled)
    one, other = union_of(structs), union_of(shuffled)
    assert not lacks(one, other)
    assert not lacks(other, one)
    assert not any(lacks(one, struct) for struct in structs)
    assert union(one, one) is one


@given(_STRUCTS, _STRUCTS)
@example(*(T.StructType([T.StructField("r", T.StructType([leaf]))]) for leaf in _LEAVES))
@example(*(T.StructType([T.StructField("l__array_record", T.ArrayType(T.StructType([leaf])))]) for leaf in _LEAVES))
def test_what_is_in_both(present: T.StructType, wanted: T.StructType) -> None:
    """A projection adds nothing to either side and keeps no record without fields, which Parquet cannot write."""
    both = project(present, wanted)
    assert not lacks(present, both)
    assert not lacks(wanted, both)
    assert _is_writable(both)
    assert project(present, present) == present


@given(_STRUCTS, _STRUCTS, st.integers(1, 8))
def test_room_is_bounded(present: T.StructType, wanted: T.StructType, columns_max: int) -> None:
    """Fields come in whole or not at all, and never beyond the bound."""
    admitted = admit(present, wanted, weights={}, columns_max=columns_max)
    assert leaves(admitted) <= max(columns_max, leaves(present))
    assert not lacks(admitted, present)
    taken = [field for field in wanted if not lacks(admitted, T.StructType([field]))]
    assert not lacks(reduce(union, [T.StructType([field]) for field in taken], present), admitted)


def test_names_that_nobody_repeats_cost_little() -> None:
    """A client makes up names, a thousand in each schema: what there is no room for costs next to nothing."""
    begun = process_time()
    structs = [T.StructType([T.StructField(f"{n}-{m}__long", T.LongType()) for m in range(1000)]) for n in range(100)]
    wanted = union_of(structs)
    admitted = admit(T.StructType(_LEAVES), wanted, weights={}, columns_max=1000)
    assert (len(wanted), leaves(admitted)) == (100_000, 1000)
    assert process_time() - begun < 10


def _is_writable(struct: T.StructType) -> bool:
    return all(_has_leaves(field.dataType) for field in struct)


def _has_leaves(kind: T.DataType) -> bool:
    if isinstance(kind, T.StructType):
        return bool(kind) and _is_writable(kind)
    if isinstance(kind, T.ArrayType):
        return _has_leaves(kind.elementType)
    return not isinstance(kind, T.MapType) or _has_leaves(kind.valueType)
