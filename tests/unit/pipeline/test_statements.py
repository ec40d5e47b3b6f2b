"""Statements of a reference, held to its object: the key, the fields of its rows, and exact schemas."""

from __future__ import annotations

import json
from functools import reduce
from itertools import product

import pytest
from msgspec.structs import replace

from log_partitioner.avro.infer import infer_entry
from log_partitioner.avro.pack_schema import merge, projection
from log_partitioner.avro.schema import row_schema
from log_partitioner.formats.model import PartitionKey
from log_partitioner.formats.object_key import data_key, pack_key
from log_partitioner.formats.reference import Reference
from log_partitioner.proof.oracle.json_text import parse_rounding
from log_partitioner.proof.oracle.published_schema import PublishedSchema
from log_partitioner_pipeline.audit.object_reader import ObjectReader
from log_partitioner_pipeline.audit.schemas import absent_fields
from log_partitioner_pipeline.audit.statements import is_under_its_key, wrong_fields
from tests.pipeline.packs import KEY, Entry, Written, write_object
from tests.strategies import SCHEMA_BOUNDS
from tests.unit.proof.audit.world import settings

# The key of its object: who looks by path must find the same.

(REFERENCE,) = write_object([Entry(KEY, {"n": 1})]).references


def reference_to(key: str, user: str) -> Reference:
    """Make a reference to an object, of this user at five o'clock."""
    location = replace(REFERENCE.location, object=key)
    return replace(REFERENCE, location=location, partition_key=PartitionKey(user, "2026-03-04", 5))


@pytest.mark.parametrize("user", ["u", "a/b:c@d", "user=/date=x", "ä ö", "~", "%41", "A" * 100, "Ü" * 4000])
def test_a_key_names_its_users_hour(user: str) -> None:
    """Whatever the user is called: as the worker writes it, it is right, and nothing else is."""
    key = data_key("p/user=x/date=y", PartitionKey(user, "2026-03-04", 5), batch_id="b", number=1)
    one = reference_to(key, user)
    assert is_under_its_key(one)
    assert not is_under_its_key(reference_to(key, user + "!"))
    assert not is_under_its_key(replace(one, partition_key=PartitionKey(user, "2026-03-05", 5)))
    assert not is_under_its_key(replace(one, partition_key=PartitionKey(user, "2026-03-04", 6)))
    assert is_under_its_key(reference_to("p/b-1.avro", user))


def test_a_key_of_a_pack_names_its_hour_if_it_has_one() -> None:
    """Whoever is in it, and nothing where it is of several hours."""
    one = reference_to(pack_key("p", ("2026-03-04", 5), batch_id="b", number=1), "u")
    assert is_under_its_key(one)
    assert not is_under_its_key(replace(one, partition_key=PartitionKey("u", "2026-03-04", 6)))
    assert not is_under_its_key(replace(one, partition_key=PartitionKey("u", "2026-03-05", 5)))
    assert is_under_its_key(reference_to(pack_key("p", None, batch_id="b", number=1), "u"))


# Each difference from its rows is said, and what cannot be told from rows is not.


def said(own: set[str], present: set[str]) -> list[str]:
    """Give what is wrong with an exact schema of these fields, where rows have values in those that are present."""
    written = write_object([Entry(KEY, {"n": 1, "m": "a", "x": None}, 0)])
    header = PublishedSchema(written.schema.text, parse_rounding)
    types = tuple(one for one in header.type.fields if one[0] in own)  # type: ignore[union-attr]
    header.type = header.type._replace(fields=types)  # type: ignore[union-attr]
    return list(wrong_fields(header, present))


def test_fields_of_a_reference_that_is_true() -> None:
    """A field that is null in all rows looks as one that no row has."""
    assert said({"n"}, {"n"}) == []
    assert said({"n", "x"}, {"n"}) == []


def test_fields_that_rows_do_not_bear_out() -> None:
    """One that no row has a value for, one that the schema lacks."""
    assert said({"m", "n"}, {"n"}) == ["its schema gives a type to what has no value in its rows: 'm'"]
    assert said(set(), {"n"}) == ["its rows have fields that its schema has not: 'n'"]


# Fields of an object's schema that none of its references has, by their projections.

BOB = PartitionKey("bob", *KEY[1:])


def pack() -> Written:
    """Write two PartitionKeys with a field of their own each, and different ones inside an object and a list."""
    entries = [
        Entry(KEY, {"n": 1, "o": {"a": 1}, "l": [{"p": 1}], "x y": "s"}, 0),
        Entry(BOB, {"m": 1, "o": {"b": 1}, "l": [{"q": {"r": 1}}], "x y": None}, 1),
    ]
    return write_object(entries)


def absent(*numbers: int) -> list[str]:
    """Give the fields of the pack's schema that none of these references has."""
    written = pack()
    projections = [written.references[number].projection for number in numbers]
    return sorted(absent_fields(json.loads(written.schema.text), projections))


def test_each_field_is_some_references() -> None:
    """Together the references have all; one with the whole schema has all alone."""
    assert absent(0, 1) == []
    assert list(absent_fields(json.loads(pack().schema.text), [None])) == []


def test_fields_that_nobody_has_are_named_by_their_path() -> None:
    """Inside of objects and lists, too; what is inside of an absent one is not named again."""
    assert absent(0) == ["l[].q", "m", "o.b"]
    assert absent(1) == ["l[].p", "n", "o.a"]
    assert absent() == ["l", "m", "n", "o", "x y"]


def test_what_is_null_or_empty_throughout_has_no_fields() -> None:
    """A reference may have a field of an object without any of those inside."""
    schema = json.loads(pack().schema.text)
    names = [field["name"] for field in schema["fields"][1:]]
    object_, items = names.index("o"), names.index("l")
    for leaf in ("null", "empty-object"):
        said = [number if number != object_ else [number, leaf] for number in range(len(names))]
        assert sorted(absent_fields(schema, [said])) == ["o.a", "o.b"]
    said = [number if number != items else [number, {"items": "null"}] for number in range(len(names))]
    assert sorted(absent_fields(schema, [said])) == ["l[].p", "l[].q"]


# What a projection of an object's schema may differ in.


def test_names_that_differ_by_case_alone_are_right_in_a_pack() -> None:
    """128 users with one field each, all integers: no name has several fields, and Avro names are numbered."""
    entries = [{"".join(letters): 1} for letters in product(*((one, one.upper()) for one in "request"))]
    own = [infer_entry(entry, SCHEMA_BOUNDS) for entry in entries]
    merged = reduce(merge, own)
    reader = ObjectReader(settings())
    exact = [reader.exact_schema(row_schema(merged).text, json.dumps(projection(one, merged))) for one in own]
    assert [problem for one in exact for problem in one.problems] == []
