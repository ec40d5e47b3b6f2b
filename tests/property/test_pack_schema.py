"""The worker's merge of exact types in a pack, its projections back, and the values read under both (DESIGN 3.2, 6)."""

from __future__ import annotations

import io
import json

import fastavro
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from log_partitioner.avro.infer import TooDeepError
from log_partitioner.avro.row_encoder import SchemaMismatch, walk_entry
from log_partitioner.avro.schema import META, row_schema, schema_of
from log_partitioner.avro.schema_types import ArrayType, MapType, RecordType, Scalar, Type, join_records
from log_partitioner.batch.pack_schema import IncompatibleError, MergedFields, Merging
from log_partitioner.formats.projection import project
from tests.property.avro_reading import canonical, entry_fields, to_entry
from tests.strategies import LIMITS, entries_near, entry_types, merge_entries, names, times_as_many

KEYS_MAX = LIMITS.object_keys_max
T = Scalar


def merged(left: RecordType | None, right: RecordType | None) -> RecordType | None:
    """Merge under the limits of these tests; None where they may not share a pack."""
    if left is None or right is None:
        return None
    try:
        return merge_entries(left, right, reserved=(META,), keys_max=KEYS_MAX)
    except IncompatibleError:
        return None


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


@given(entry_types())
def test_merging_a_type_with_itself_gives_the_same_object(own: RecordType) -> None:
    """Idempotent; callers compare by identity."""
    assert merged(own, own) is own
    assert merged(own, RecordType(dict(own.by_name))) is own


@times_as_many(2)
@given(neighbours(2))
def test_merge_is_commutative(two: list[RecordType]) -> None:
    """Neither the type nor the refusal depends on who came first."""
    a, b = two
    assert merged(a, b) == merged(b, a)


@times_as_many(2)
@given(neighbours(3))
def test_merge_is_associative_in_success_and_in_refusal(three: list[RecordType]) -> None:
    """Which PartitionKeys may share a pack does not depend on the order in which they were put together."""
    a, b, c = three
    assert merged(merged(a, b), c) == merged(a, merged(b, c))


@times_as_many(2)
@given(neighbours(2))
def test_merged_type_is_the_join_and_holds_both(two: list[RecordType]) -> None:
    """The merge refuses some joins and makes no other; what is held already is the same object again."""
    a, b = two
    both = merged(a, b)
    assume(both is not None)
    assert both == join_records(a, b, object_keys_max=KEYS_MAX)
    assert merged(both, a) is both
    assert merged(both, b) is both


@times_as_many(4)
@given(st.integers(2, 6).flatmap(neighbours), st.sampled_from([3, 6, 100]), st.sampled_from([500, 1_500, 10**6]))
def test_merge_that_grows_is_the_merge_of_pairs(some: list[RecordType], fields_max: int, bytes_max: int) -> None:
    """It takes and refuses the same types, one after the other, and is as it was after a refusal."""
    merging, both = Merging(some[0], reserved=(META,), keys_max=KEYS_MAX), some[0]
    for own in some[1:]:
        wider = merged(both, own)
        fits = wider is not None and wider.fields <= fields_max and wider.size <= bytes_max
        assert merging.add(own, fields_max=fields_max, bytes_max=bytes_max) == fits
        both = wider if fits and wider is not None else both
        assert merging.entry_type == both
    assert merging.entry_type is merging.entry_type


@times_as_many(2)
@given(st.integers(2, 4).flatmap(neighbours))
def test_exact_schema_is_the_projection_of_the_merged_one(some: list[RecordType]) -> None:
    """A reader makes of the object's schema, letter by letter, the schema of each PartitionKey in it."""
    both: RecordType | None = some[0]
    for one in some[1:]:
        both = merged(both, one)
    assume(both is not None)
    assert both is not None
    whole = json.loads(row_schema(both).text)
    for own in some:
        projection = json.loads(json.dumps(MergedFields(both).projection(own)))
        exact = project(whole, projection)
        assert exact == schema_of(own)
        assert json.dumps(exact, separators=(",", ":")) == row_schema(own).text
        assert (projection is None) == (own == both)


@times_as_many(2)
@given(st.data())
def test_entry_written_under_the_merged_type_reads_back_equal(data: st.DataObject) -> None:
    """What fits the PartitionKey's own type fits the merged one, and fastavro reads the values that went in."""
    own, other = data.draw(neighbours(2))
    both = merged(own, other)
    assume(both is not None)
    assert both is not None
    entry = data.draw(entries_near(own))
    try:
        walk_entry(own, entry, bytearray(), LIMITS)
    except (SchemaMismatch, TooDeepError):
        return
    out = bytearray()

    walk_entry(both, entry, out, LIMITS)

    fields = entry_fields(json.loads(row_schema(both).text))
    schema = {"type": "record", "name": "entry", "namespace": "logs", "fields": fields}
    row = fastavro.schemaless_reader(io.BytesIO(bytes(out)), schema, None)
    assert canonical(to_entry(fields, row)) == canonical(entry)


@times_as_many(2)
@given(st.lists(st.sets(names, max_size=5), min_size=2, max_size=2))
def test_merge_renames_no_field(originals: list[set[str]]) -> None:
    """Fields that share an original name share an Avro name, wherever they stand; colliding ones are kept apart."""
    own, other = (RecordType(dict.fromkeys(some, T.BOOL)) for some in originals)
    both = merged(own, other)
    if both is None:
        return
    avro = {field.get("lp.name", field["name"]): field["name"] for field in entry_fields(schema_of(both))}
    for one in (own, other):
        for field in entry_fields(schema_of(one)):
            assert avro[field.get("lp.name", field["name"])] == field["name"]


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
        (KEYED, MapType(T.BOOL)),
        (KEYED, T.JSON),
        (KEYED, ArrayType(T.BOOL)),
        (RecordType({}), ArrayType(T.NULL)),
        (RecordType({}), T.STRING),
        (ArrayType(T.NULL), T.STRING),
        (ArrayType(T.STRING), ArrayType(T.DOUBLE)),
        (MapType(T.STRING), MapType(T.JSON)),
        (RecordType({"a-b": T.BOOL}), RecordType({"a_x2Db": T.BOOL})),
        (RecordType({"A": T.BOOL}), RecordType({"a": T.BOOL})),
        (RecordType({"A": T.BOOL, "a": T.BOOL}), RecordType({"a_2": T.BOOL})),
        (RecordType(dict.fromkeys("abc", T.BOOL)), RecordType({"d": T.BOOL})),
    ],
)
def test_types_that_would_change_a_type_or_a_name_do_not_share_a_pack(left: Type, right: Type) -> None:
    """Refused in both orders and at any depth: in a field, in a nested object, in an array."""
    for one, other in ((left, right), (right, left)):
        for at in (lambda kind: kind, lambda kind: RecordType({"o": kind}), ArrayType, MapType):
            assert merged(RecordType({"f": at(one)}), RecordType({"f": at(other)})) is None


def test_entries_whose_names_collide_do_not_share_a_pack() -> None:
    """`a` is a_2 beside `A`, and a alone: the second would not keep its exact schema."""
    assert merged(RecordType({"A": T.BOOL}), RecordType({"a": T.BOOL})) is None
    assert merged(RecordType({"A": T.BOOL, "a": T.BOOL}), RecordType({"a": T.BOOL})) is None
    assert merged(RecordType({"A": T.BOOL, "a": T.BOOL}), RecordType({"A": T.BOOL})) is not None


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (T.NULL, T.JSON, T.JSON),
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
    assert merged(RecordType({"f": left}), RecordType({"f": right})) == RecordType({"f": expected})
    assert merged(RecordType({"f": right}), RecordType({"f": left})) == RecordType({"f": expected})


def test_top_level_of_an_entry_may_have_any_number_of_keys() -> None:
    """The bound on keys is one of nested objects, as in the lattice."""
    wide = RecordType(dict.fromkeys("abcdef", T.BOOL))
    assert merged(wide, RecordType({"g": T.BOOL})) == RecordType(dict.fromkeys("abcdefg", T.BOOL))
