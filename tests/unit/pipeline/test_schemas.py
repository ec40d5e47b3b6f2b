"""Fields of an object's schema that none of its references has, by their projections."""

import json

from log_partitioner.formats.model import PartitionKey
from log_partitioner_pipeline.audit.schemas import absent_fields
from tests.pipeline.packs import KEY, Entry, Written, write_object

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
