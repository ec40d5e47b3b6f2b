"""The lattice of types (DESIGN 3.3): laws of the join, inference, and the published schema as its closed form."""

from __future__ import annotations

import json
from functools import reduce
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_partitioner.avro.infer import TooDeepError, fit_entry, infer
from log_partitioner.avro.names import avro_names
from log_partitioner.avro.schema import row_schema, schema_of
from log_partitioner.avro.schema_types import ArrayType, MapType, RecordType, Scalar, Type, join, join_records, to_map
from log_partitioner.formats.values import DeclaredMap
from log_partitioner_pipeline.row_type import type_of
from tests.inferred import infer_entry
from tests.property.avro_reading import depth_of
from tests.strategies import LIMITS, entries, entry_types, names, scalars, times_as_many, types, values

KEYS_MAX = LIMITS.object_keys_max
pairs = st.tuples(types(), types())
triples = st.tuples(types(), types(), types())


def joined(left: Type, right: Type) -> Type:
    """Join under the limits of these tests."""
    return join(left, right, object_keys_max=KEYS_MAX)


def type_of_all(some: list[dict[str, Any]]) -> RecordType:
    """Join the types of entries in the order given."""
    inferred = (infer_entry(entry, LIMITS) for entry in some)
    return reduce(lambda a, b: join_records(a, b, object_keys_max=KEYS_MAX), inferred, RecordType({}))


@given(triples)
def test_join_of_three_types_is_associative(three: tuple[Type, Type, Type]) -> None:
    """It does not matter which two of three types meet first."""
    a, b, c = three
    assert joined(joined(a, b), c) == joined(a, joined(b, c))


@given(pairs)
def test_join_of_two_types_is_commutative(two: tuple[Type, Type]) -> None:
    """It does not matter which of two types comes first."""
    a, b = two
    assert joined(a, b) == joined(b, a)


@given(types())
def test_join_with_itself_null_and_json_is_a_lattices(a: Type) -> None:
    """A type joined with itself is itself, null is the bottom and json the top."""
    assert joined(a, a) is a
    assert joined(a, Scalar.NULL) is a
    assert joined(Scalar.NULL, a) is a
    assert joined(a, Scalar.JSON) is Scalar.JSON
    assert joined(Scalar.JSON, a) is Scalar.JSON


@given(pairs)
def test_join_with_a_type_already_held_returns_the_same_object(two: tuple[Type, Type]) -> None:
    """Callers compare by identity: joining what is held already gives the left object itself."""
    a, b = two
    both = joined(a, b)
    assert joined(both, a) is both
    assert joined(both, b) is both
    if both == a:
        assert both is a


@given(pairs)
def test_types_that_are_equal_have_equal_hashes(two: tuple[Type, Type]) -> None:
    """Types are keys of caches: equal ones have equal hashes, however they came about."""
    a, b = two
    assert hash(joined(a, b)) == hash(joined(b, a))


@given(st.lists(entries(leaves=5), max_size=5), st.randoms(use_true_random=False))
def test_schema_of_entries_in_any_order_is_the_same_text(some: list[dict[str, Any]], random: Any) -> None:
    """Neither the order of entries nor the order of keys in them shows in the published schema."""
    shuffled = [dict(random.sample(list(entry.items()), len(entry))) for entry in some]
    random.shuffle(shuffled)
    assert row_schema(type_of_all(some)) == row_schema(type_of_all(shuffled))


@given(st.lists(entries(leaves=6), max_size=4))
def test_schema_of_entries_has_every_field_that_occurs_and_no_other(some: list[dict[str, Any]]) -> None:
    """At every path that is a record, its fields are the keys that occur there."""
    entry_type = type_of_all(some)
    assert entry_type.by_name.keys() == {name for entry in some for name in entry}
    _check_exact(entry_type, some)


def _check_exact(kind: Type, found: list[Any]) -> None:
    present = [value for value in found if value is not None]
    if isinstance(kind, RecordType):
        assert kind.by_name.keys() == {name for value in present for name in value}
        for name, child in kind.by_name.items():
            _check_exact(child, [value.get(name) for value in present])
    elif isinstance(kind, ArrayType):
        _check_exact(kind.item, [item for value in present for item in value])
    elif isinstance(kind, MapType):
        is_declared = any(type(value) is DeclaredMap for value in present)
        assert is_declared or len({name for value in present for name in value}) > KEYS_MAX
        _check_exact(kind.value, [item for value in present for item in value.values()])
    elif kind is Scalar.NULL:
        assert not present
    elif kind is not Scalar.JSON:
        assert present


@times_as_many(4)
@given(st.lists(values(leaves=5), max_size=6) | st.lists(st.dictionaries(names, scalars, max_size=2), max_size=4))
def test_inferred_type_of_a_list_is_the_join_of_its_items(items: list[Any]) -> None:
    """Inferring many values together gives what joining them one by one gives, or refuses what one alone refuses."""
    try:
        one_by_one = [infer(item, LIMITS, depth=3) for item in items]
    except TooDeepError:
        one_by_one = None
    try:
        together = infer(items, LIMITS, depth=2)
    except TooDeepError:
        together = None
    expected = None if one_by_one is None else ArrayType(reduce(joined, one_by_one, Scalar.NULL))
    assert together == expected


@times_as_many(2)
@given(values(leaves=8), st.text(alphabet="[{", max_size=8), st.lists(values(leaves=2), max_size=1))
def test_inference_refuses_exactly_what_nests_too_deep(value: Any, around: str, beside: list[Any]) -> None:
    """An entry is refused if and only if it nests deeper than json_depth_max, wherever it does."""
    for bracket in around:
        value = [*beside, value] if bracket == "[" else {"x": value, **{f"b{n}": one for n, one in enumerate(beside)}}
    try:
        infer_entry({"x": value}, LIMITS)
        refused = False
    except TooDeepError:
        refused = True
    assert refused == (1 + depth_of(value) > LIMITS.json_depth_max)


@given(values(leaves=15))
def test_inferred_types_respect_depth_and_keys_rules(value: Any) -> None:
    """No type with parts stands beyond depth_max, and no nested record has more than object_keys_max fields."""
    try:
        kind = infer(value, LIMITS, depth=2)
    except TooDeepError:
        return
    _check_rules(kind, depth=2)


def _check_rules(kind: Type, *, depth: int) -> None:
    if isinstance(kind, Scalar):
        return
    assert depth <= LIMITS.depth_max
    if isinstance(kind, RecordType):
        assert len(kind.by_name) <= KEYS_MAX
        for child in kind.by_name.values():
            _check_rules(child, depth=depth + 1)
    else:
        _check_rules(kind.item if isinstance(kind, ArrayType) else kind.value, depth=depth + 1)


@given(entry_types())
def test_record_with_too_many_keys_and_its_map_hold_the_same(record: RecordType) -> None:
    """A record is below the map it becomes, so that both give the same join with any map."""
    as_map = to_map(record, object_keys_max=KEYS_MAX)
    assert joined(as_map, to_map(record, object_keys_max=KEYS_MAX)) is as_map
    for child in record.by_name.values():
        assert joined(as_map.value, child) is as_map.value


@given(entry_types())
def test_published_schema_read_back_is_the_type(entry_type: RecordType) -> None:
    """`type_of` undoes `schema_of`, through the JSON text."""
    assert type_of(json.loads(row_schema(entry_type).text)) == entry_type


@given(st.tuples(entry_types(), entry_types()))
def test_published_schemas_merged_are_the_schema_of_the_merged_entries(two: tuple[RecordType, RecordType]) -> None:
    """Merging two references' schemas needs the schemas alone."""
    a, b = two
    published = [type_of(json.loads(row_schema(kind).text)) for kind in two]
    merged = join_records(*published, object_keys_max=KEYS_MAX)
    assert row_schema(merged) == row_schema(join_records(a, b, object_keys_max=KEYS_MAX))


@given(entry_types())
def test_published_schema_is_one_that_avro_takes(entry_type: RecordType) -> None:
    """Every published schema is parsed by fastavro: names are legal, and no record is defined twice."""
    fastavro.parse_schema(schema_of(entry_type))


@given(entry_types(), st.integers(0, 12), st.integers(0, 2000))
def test_fitted_type_is_within_the_limits_and_holds_the_entry(
    entry_type: RecordType, fields_max: int, bytes_max: int
) -> None:
    """Fitting turns whole top-level fields into JSON until the type is small enough, and none more than needed."""
    try:
        fitted = fit_entry(entry_type, fields_max=fields_max, bytes_max=bytes_max)
    except ValueError:
        smallest = RecordType({n: Scalar.JSON if c.fields else c for n, c in entry_type.by_name.items()})
        assert smallest.fields > fields_max or smallest.size > bytes_max
        return
    assert fitted.fields <= fields_max
    assert fitted.size <= bytes_max
    assert joined(fitted, entry_type) is fitted or len(entry_type.by_name) > KEYS_MAX
    turned = [n for n, c in entry_type.by_name.items() if fitted.by_name[n] is not c]
    if turned:
        last = min(turned, key=lambda n: (entry_type.by_name[n].fields, entry_type.by_name[n].size, n))
        without = RecordType({**fitted.by_name, last: entry_type.by_name[last]})
        assert without.fields > fields_max or without.size > bytes_max


@given(entry_types())
def test_count_of_fields_is_that_of_the_published_schema(entry_type: RecordType) -> None:
    """`fields` counts the fields of the entry in the published schema, nested ones too."""
    assert entry_type.fields == sum(map(_count_fields, schema_of(entry_type)["fields"][1:]))


def _count_fields(field: dict[str, Any]) -> int:
    return 1 + _count_below(field["type"])


def _count_below(kind: Any) -> int:
    if isinstance(kind, list):
        return sum(map(_count_below, kind))
    if isinstance(kind, dict):
        below = sum(map(_count_fields, kind.get("fields", [])))
        return below + _count_below(kind.get("items")) + _count_below(kind.get("values"))
    return 0


@given(st.sets(st.text(max_size=4)))
def test_published_names_are_those_of_the_original_fields(originals: set[str]) -> None:
    """Each field carries its original name as a property exactly if the Avro name differs."""
    fields = schema_of(RecordType(dict.fromkeys(originals, Scalar.BOOL)))["fields"][1:]
    found = {field.get("lp.name", field["name"]): field["name"] for field in fields}
    assert found == avro_names(originals, reserved=("_meta",))
    assert all("lp.name" not in field or field["lp.name"] != field["name"] for field in fields)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (Scalar.LONG53, Scalar.LONG64, Scalar.LONG64),
        (Scalar.LONG53, Scalar.DOUBLE, Scalar.DOUBLE),
        (Scalar.LONG64, Scalar.DOUBLE, Scalar.JSON),
        (RecordType({"a": Scalar.LONG53, "b": Scalar.NULL}), RecordType({"c": Scalar.DOUBLE}), MapType(Scalar.DOUBLE)),
        (RecordType({"a": Scalar.LONG53}), MapType(Scalar.STRING), MapType(Scalar.JSON)),
        (RecordType({}), MapType(Scalar.STRING), MapType(Scalar.STRING)),
    ],
)
def test_join_of_numbers_and_of_maps_is_the_least_that_holds_both(left: Type, right: Type, expected: Type) -> None:
    """The rest of the table is the second opinion's join, to which any entries are held."""
    assert join(left, right, object_keys_max=2) == join(right, left, object_keys_max=2) == expected


def test_types_are_values_whose_order_of_keys_does_not_matter() -> None:
    """Equal types are equal keys of a dict, and different kinds are never equal."""
    assert RecordType({"a": Scalar.BOOL, "b": Scalar.NULL}) == RecordType({"b": Scalar.NULL, "a": Scalar.BOOL})
    assert list(RecordType({"b": Scalar.NULL, "a": Scalar.BOOL}).by_name) == ["a", "b"]
    leaves = [Scalar.NULL, Scalar.BOOL]
    kinds = [RecordType({}), RecordType({"a": Scalar.BOOL}), *map(ArrayType, leaves), *map(MapType, leaves)]
    assert len(set(kinds)) == len(kinds)
    assert all((one == other) == (one is other) for one in kinds for other in kinds)
    assert "Scalar.BOOL" in repr(kinds[1]) + repr(kinds[3]) + repr(kinds[5])
