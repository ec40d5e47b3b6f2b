"""The published schema: what stands in it, and what is refused when it is read (DESIGN 3.2, 3.3)."""

import hashlib
import json
from typing import Any

import pytest

from log_partitioner.avro.schema import row_schema, schema_of
from log_partitioner.avro.schema_types import ArrayType, MapType, RecordType, Scalar
from log_partitioner_pipeline.row_type import type_of

T = Scalar


def field_of(kind: Any, name: str = "f") -> dict[str, Any]:
    """Publish one field."""
    fields = schema_of(RecordType({name: kind}))["fields"]
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


@pytest.mark.parametrize(
    ("original", "name"), [("_meta", "_meta_2"), ("_META", "_META_2"), ("a-b", "a_x2Db"), ("1", "_1"), ("", "_")]
)
def test_field_whose_name_had_to_change_keeps_the_original(original: str, name: str) -> None:
    """The original name is a property; an entry's own `_meta` is a collision like any other."""
    field = field_of(T.BOOL, original)
    assert (field["name"], field["lp.name"]) == (name, original)


def test_root_of_a_row_may_have_an_index() -> None:
    """Two records of one root offset are told apart by it, where a link has one."""
    meta = schema_of(RecordType({}))["fields"][0]["type"]
    root = meta["fields"][-1]["type"][1]
    assert root["fields"][-1] == {"name": "index", "type": ["null", "int"], "default": None}


def test_fingerprint_is_the_sha256_of_the_text() -> None:
    """A schema object is named by what it holds."""
    schema = row_schema(RecordType({"a": T.BOOL}))
    assert schema.fingerprint == hashlib.sha256(schema.text.encode()).hexdigest()
    assert json.loads(schema.text) == schema_of(RecordType({"a": T.BOOL}))


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
