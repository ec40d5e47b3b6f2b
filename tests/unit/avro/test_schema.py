"""The published schema: what stands in it, and what is refused when it is read (DESIGN 3.2, 3.3)."""

from typing import Any

import pytest

from log_partitioner.avro.schema import schema_of
from log_partitioner.avro.schema_types import ArrayType, MapType, RecordType, Scalar
from log_partitioner_pipeline.row_type import type_of

T = Scalar


def field_of(kind: Any) -> dict[str, Any]:
    """Publish one field."""
    fields = schema_of(RecordType({"f": kind}))["fields"]
    assert len(fields) == 2
    field: dict[str, Any] = fields[1]
    return field


@pytest.mark.parametrize(
    ("kind", "avro", "mark"),
    [
        (T.BOOL, "boolean", None),
        (T.LONG53, "long", "long53"),
        (T.LONG64, "long", None),
        (T.DOUBLE, "double", None),
        (T.STRING, "string", None),
        (T.JSON, "string", "json"),
        (T.NULL, "string", "null"),
        (RecordType({}), {"type": "map", "values": ["null", "string"]}, "empty-object"),
    ],
)
def test_field_of_each_type_is_nullable_and_marked_where_avro_does_not_say_it(kind: Any, avro: Any, mark: Any) -> None:
    """Every field is ["null", T] with default null; marks tell apart what Avro writes alike."""
    expected = {"name": "f", "type": ["null", avro], "default": None}
    assert field_of(kind) == (expected if mark is None else {**expected, "lp.type": mark})


def test_field_of_array_and_map_carries_the_mark_on_the_item() -> None:
    """Items and values are nullable too; their mark stands on the type itself."""
    item = ["null", {"type": "long", "lp.type": "long53"}]
    assert field_of(ArrayType(T.LONG53))["type"] == ["null", {"type": "array", "items": item}]
    assert field_of(MapType(T.LONG53))["type"] == ["null", {"type": "map", "values": item}]
    assert field_of(ArrayType(T.NULL))["type"][1]["items"] == ["null", {"type": "string", "lp.type": "null"}]
    assert field_of(MapType(RecordType({})))["type"][1]["values"] == [
        "null",
        {"type": "map", "values": ["null", "string"], "lp.type": "empty-object"},
    ]


META = schema_of(RecordType({}))["fields"][0]


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"fields": []},
        {"fields": [{"name": "a", "type": ["null", "string"]}]},
        {"fields": [META, {"name": "a", "type": "string"}]},
        {"fields": [META, {"name": "a", "type": ["string", "null"]}]},
        {"fields": [META, {"name": "a", "type": ["null", "string", "long"]}]},
        {"fields": [META, {"name": "a", "type": ["null", "int"]}]},
        {"fields": [META, {"name": "a", "type": ["null", "string"], "lp.type": "new"}]},
        {"fields": [META, {"name": "a", "type": ["null", {"type": "array", "items": "string"}]}]},
    ],
)
def test_schema_that_is_not_ours_is_refused(schema: dict[str, Any]) -> None:
    """Only row schemas of this product are read back; a wider union is not guessed at."""
    with pytest.raises(ValueError, match=r"row|union|type"):
        type_of(schema)
