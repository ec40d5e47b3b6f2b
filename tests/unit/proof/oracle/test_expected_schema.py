"""Types of entries, their join, and how a published schema may differ from them."""

import json

import pytest

from log_partitioner.config.settings import SchemaBounds
from log_partitioner.proof.oracle.expected_schema import (
    Array,
    Map,
    Record,
    Type,
    is_covered_by,
    is_over,
    paths_of,
    schema_differences,
    without_subtrees,
)
from log_partitioner.proof.oracle.json_text import parse_rounding
from log_partitioner.proof.oracle.published_schema import PublishedSchema, RestoreError
from tests.unit.proof.audit.world import column, row_schema


def record(**fields: Type) -> Record:
    return Record(tuple(sorted(fields.items(), key=lambda item: item[0])))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (record(a=record(b="null", c="null")), False),
        (record(a=record(b="null", c=Array(record(d="null")))), True),
        (Record((("x" * 100, "null"),)), True),
    ],
)
def test_entry_of_too_many_fields_or_too_long_names_is_over_a_bound(kind: Type, *, expected: bool) -> None:
    """Nested ones count."""
    assert is_over(kind, SchemaBounds(fields_max=3, bytes_max=600)) == expected


def test_differences_name_field_and_types() -> None:
    expected = record(a="long53", b=record(c="string"), d=Array("null"), e="string", f=Map("string"))
    published = record(a="long64", b=record(c="string", ghost="null"), d=Array("string"), f=Array("string"))
    assert list(schema_differences(expected, published)) == [
        "a: long64 where the entries make it long53",
        "b.ghost: field occurs in no entry (null)",
        "d[]: string where the entries make it null",
        "e: field is missing (string)",
        "f: array where the entries make it map",
    ]


def test_subtree_of_an_oversized_entry_may_be_json_but_a_scalar_may_not() -> None:
    expected = record(a=record(b="null"), c="string")
    assert without_subtrees(expected, record(a="json", c="json")) == record(a="json", c="string")


@pytest.mark.parametrize(
    ("own", "merged"),
    [
        (record(a="long53"), record(b="long53")),
        (record(a="long53"), record(a="double")),
        (record(a="long64"), record(a="double")),
        (record(a="long53"), record(a="json")),
        (record(a="string"), record(a="json")),
        (record(a="json"), record(a="string")),
        (record(a=record(b="string")), record(a=Map("string"))),
        (record(a=Record(())), record(a=Array("null"))),
        (record(a=Record(())), record(a="json")),
        (record(a=Array("null")), record(a="json")),
        (record(a=Array("long53")), record(a=Array("double"))),
        (record(a=Array("string")), record(a=Map("string"))),
        (record(a="bytes"), record(a="string")),
    ],
)
def test_pack_schema_that_changes_another_type_does_not_cover(own: Type, merged: Type) -> None:
    assert not is_covered_by(own, merged)


def test_paths_name_nested_fields() -> None:
    kind = record(a=record(b="null"), c=Array(record(d="string")), e=Map(record(f="string")))
    assert list(paths_of(kind)) == [("a",), ("a", "b"), ("c",), ("c", "[]", "d"), ("e",), ("e", "{}", "f")]


def published(*columns: dict[str, object]) -> PublishedSchema:
    return PublishedSchema(json.dumps(row_schema(*columns)), parse_rounding)


def test_published_schema_reads_marks_and_original_names() -> None:
    nested = {"type": "record", "name": "N", "fields": [column("x_x21", "string", "json", original="x!")]}
    numbers = {"type": "map", "values": ["null", {"type": "long", "lp.type": "long53"}]}
    lists = {"type": "array", "items": ["null", {"type": "array", "items": ["null", "double"]}]}
    schema = published(
        column("a", "long"), column("b", nested), column("c", numbers), column("d", lists),
        column("e", {"type": "map", "values": ["null", "string"]}, "empty-object"),
        column("f", "string", "null"), column("g", "bytes"), column("h", "string", "decimal"),
        column("i", {"type": "long", "logicalType": "timestamp-micros"}),
        column("j", {"type": "int", "logicalType": "date"}),
    )  # fmt: skip
    assert schema.problems == []
    assert schema.type == record(
        a="long64",
        b=Record((("x!", "json"),)),
        c=Map("long53"),
        d=Array(Array("double")),
        e=Record(()),
        f="null",
        g="bytes",
        h="decimal",
        i="timestamp",
        j="date",
    )
    row = {
        "a": 1,
        "b": {"x_x21": '{"k":[1.0,null]}'},
        "c": {"k": 1, "n": None},
        "d": [[5.0], None],
        "e": {},
        "f": None,
        "g": b"\xff",
        "h": "1.250",
        "i": -1,
        "j": -719_162,
    }
    assert schema.restore(row) == {
        "a": 1,
        "b": {"x!": {"k": [1, None]}},
        "c": {"k": 1},
        "d": [[5], None],
        "e": {},
        "g": "/w==",
        "h": "1.250",
        "i": "1969-12-31T23:59:59.999999Z",
        "j": "0001-01-01",
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "a", "type": "string"},
        {"name": "a", "type": ["string", "null"]},
        {"name": "a", "type": ["null", "string"]},
        column("a", "int"),
        column("a", "float"),
        column("a", "string", "long53"),
        column("a", "long", "timestamp-micros"),
        column("a", {"type": "long", "logicalType": "timestamp-millis"}),
        column("a", {"type": "long", "logicalType": "timestamp-micros"}, "long53"),
        column("a", {"type": "int", "logicalType": "time-millis"}),
        column("a", {"type": "bytes", "logicalType": "decimal", "precision": 4}),
        column("a", {"type": "array", "items": "string"}),
    ],
)
def test_published_schema_of_another_form_is_reported(wrong: dict[str, object]) -> None:
    assert published(wrong).problems


def test_names_that_differ_by_case_only_are_reported() -> None:
    assert published(column("a", "string"), column("A", "string")).problems
    assert published(column("_META", "string")).problems
    assert published(column("x_2", "string"), column("x_3", "string", original="x_2")).beside == ["x_2"]


def test_fields_of_one_name_beside_each_other_are_named_in_their_order() -> None:
    """A pack may have such fields; the reader of an exact schema is told of them."""
    pair = [column("x", "string"), column("x_2", "boolean", original="x")]
    both = published(*pair)
    assert (both.problems, both.beside) == ([], ["x"])
    assert published(*[{**column("x", "string"), "name": one} for one in ("x", "x")]).problems
    assert published(column("x_2", "string", original="x"), column("x", "boolean")).problems
    assert both.restore({"x": None, "x_2": True}) == {"x": True}
    own = published(column("x", "boolean"))
    assert is_covered_by(own.type, both.type)
    assert not is_covered_by(published(column("x", "double")).type, both.type)


def test_name_that_is_not_made_of_the_original_ones_is_reported() -> None:
    assert published(column("a_x2Db", "string", original="a-b")).problems == []
    assert published(column("a_b", "string", original="a-b")).problems
    assert published(column("a_2", "string", original="a")).problems


def test_other_meta_is_reported() -> None:
    schema = row_schema()
    del schema["fields"][0]["type"]["fields"][8]
    assert PublishedSchema(json.dumps(schema), parse_rounding).problems


@pytest.mark.parametrize("row", [{"a": "{", "b": None}, {"a": None, "b": "x"}])
def test_column_that_does_not_hold_what_its_mark_says_is_refused(row: dict[str, str | None]) -> None:
    schema = published(column("a", "string", "json"), column("b", "string", "null"))
    with pytest.raises(RestoreError):
        schema.restore(row)


def test_names_of_a_pack_are_kept() -> None:
    """In nested records, too; the schema of an object has its own."""
    inner = {"type": "record", "name": "r_x", "fields": [column("a_2", "string", original="a")]}
    for columns in [column("a_2", "string", original="a")], [column("x", inner)]:
        text = json.dumps(row_schema(*columns))
        assert PublishedSchema(text, parse_rounding, keeps_names=True).problems == []
        assert len(PublishedSchema(text, parse_rounding).problems) == 1
