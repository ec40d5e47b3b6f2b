"""The exact schema as a projection of the object's, on the golden message."""

import json
from typing import Any

import pytest

from log_partitioner.avro.schema import schema_of
from log_partitioner.avro.schema_types import ArrayType, MapType, RecordType, Scalar
from log_partitioner.formats.projection import project
from log_partitioner.formats.reference import decode_references
from tests.golden.example import GOLDEN, MERGED, TYPES

SCHEMA: dict[str, Any] = json.loads((GOLDEN / "pack.avsc").read_text())
ANN, BOB, OTHER = decode_references((GOLDEN / "references.json").read_bytes())
T = Scalar


def test_exact_schemas_of_the_golden_message_are_those_of_its_entries() -> None:
    """Every field that occurs, and no other; the schema in the header has them all."""
    assert schema_of(MERGED) == SCHEMA
    assert [project(SCHEMA, one.projection) for one in (ANN, BOB, OTHER)] == [
        schema_of(kind) for kind in TYPES.values()
    ]


def test_projection_of_none_is_the_schema_itself() -> None:
    """An object of one PartitionKey, or one that has all of its pack's."""
    assert project(SCHEMA, None) is SCHEMA


def test_projection_reaches_into_arrays_maps_and_records() -> None:
    """Where only a part differs, only a part is said."""
    whole = RecordType({"a": ArrayType(ArrayType(T.LONG64)), "m": MapType(RecordType({"x": T.JSON, "y": T.BOOL}))})
    own = RecordType({"a": ArrayType(ArrayType(T.LONG53)), "m": MapType(RecordType({"x": T.NULL}))})
    projection = [[0, {"items": {"items": "long53"}}], [1, {"values": [[0, "null"]]}]]
    assert project(schema_of(whole), projection) == schema_of(own)


def test_schema_given_is_not_changed() -> None:
    """Readers keep one parsed schema for all references of an object."""
    before = json.dumps(SCHEMA)
    for one in (ANN, BOB, OTHER):
        project(SCHEMA, one.projection)
    assert json.dumps(SCHEMA) == before


@pytest.mark.parametrize(
    "projection",
    [
        5,
        "null",
        {"items": "null"},
        [5],
        [-1],
        [2, 1],
        [1, 1],
        ["0"],
        [[]],
        [[0]],
        [[0.5, "null"]],
        [[0, None]],
        [[0, "new"]],
        [[0, [0]]],
        [[0, {"items": "null"}]],
        [[1, {"fields": "null"}]],
        [[1, {"name": "null"}]],
        [[1, [1]]],
        [[2, "long53"]],
        [[3, "empty-object"]],
        [[4, "empty-object"]],
        [[4, {"values": "null"}]],
        [[4, {}]],
        [[4, {"items": "long53"}]],
    ],
)
def test_what_is_no_projection_of_the_schema_is_refused(projection: Any) -> None:
    """Other fields, other parts, fields twice or out of order, a type that does not become the object's."""
    with pytest.raises(ValueError, match="no projection"):
        project(SCHEMA, projection)
