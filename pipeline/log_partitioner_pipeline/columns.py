"""Exact schemas of references -> columns of the table: names, types, and how values get there (DESIGN 3.3, 8).

A value's column depends on its path and the type that its reference gives it, and on nothing else: not on other
references, their order, or the rest of a pack. Types that Iceberg cannot widen get columns beside each other; no column
is ever renamed or retyped.

    record            name                    a struct; the columns of its fields stand in it
    long53, long64    name__long              bigint
    double            name__double
    string, boolean   name__string, name__boolean
    array of T        name__array_T           T by these rules, without the name: `tags__array_string`
    map to T          name__map_T             `labels__map_long`, `spans__array_record`
    json              name__json              JSON text
    untyped           name__json              `{}`, `[]`, `[null]`, an object of nulls: its JSON text
    null in all       no column               absent = null (DESIGN 3.2)

A table has at most so many columns as its settings say. Fields beyond stand together in `_rest`, an object as JSON
text: a hostile client can fill the table's columns, but neither grow it without bound nor lose a value of anybody.

Names are the original ones; `escape` keeps them apart from each other and from what SQL, Iceberg and the rules above
use. `parse_column_name` reads a column's name back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from pyspark.sql import types as T

from log_partitioner.avro.schema import META
from log_partitioner.avro.schema_types import ArrayType, RecordType, Scalar, Type
from log_partitioner.formats import projection
from log_partitioner.formats.projection import NAME_PROPERTY
from log_partitioner_pipeline.row_type import type_of

REFERENCE = "_reference"
REST = "_rest"
RESERVED = (META, REFERENCE, REST)
# Iceberg's metadata columns: a table with a column of such a name cannot be read.
_OF_ICEBERG = (
    *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"),
    *("_change_type", "_change_ordinal", "_commit_snapshot_id"),
)
JSON = "json"
RECORD = "record"

_SEPARATOR = "__"
_UNESCAPED = re.compile(r"[A-Za-z0-9_@-]")
_HEXADECIMAL = re.compile(r"_x[0-9A-F]")
_SCALARS: dict[Scalar, tuple[str, T.DataType]] = {
    Scalar.BOOL: ("boolean", T.BooleanType()),
    Scalar.LONG53: ("long", T.LongType()),
    Scalar.LONG64: ("long", T.LongType()),
    Scalar.DOUBLE: ("double", T.DoubleType()),
    Scalar.STRING: ("string", T.StringType()),
    Scalar.JSON: (JSON, T.StringType()),
}
META_TYPE = T.StructType(
    [
        T.StructField("user", T.StringType()),
        T.StructField("event_time", T.TimestampType()),
        T.StructField("id", T.StringType()),
        T.StructField("topic", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("offset", T.LongType()),
        T.StructField("index", T.IntegerType()),
        T.StructField("timestamp", T.TimestampType()),
        T.StructField(
            "root",
            T.StructType(
                [
                    T.StructField("topic", T.StringType()),
                    T.StructField("partition", T.IntegerType()),
                    T.StructField("offset", T.LongType()),
                    T.StructField("index", T.IntegerType()),
                ]
            ),
        ),
    ]
)
FIXED_FIELDS = [
    T.StructField(META, META_TYPE),
    T.StructField(REFERENCE, T.StringType()),
    T.StructField(REST, T.StringType()),
]

Avro = Any  # nested JSON
Convert = Callable[[Any], Any]


class Column(NamedTuple):
    """The column for the values of one position.

    `kind` is the ending of the name, or `record` for records, which keep theirs. `convert` turns a value that is not
    null into the table's; it is None if the value stays as it is.
    """

    kind: str
    type: T.DataType
    convert: Convert | None


class FieldPlan(NamedTuple):
    """One field of a file: its Avro name, its column's name, and how a value that is not null is converted."""

    avro_name: str
    column: str
    convert: Convert | None


class FilePlan(NamedTuple):
    """How rows of one exact schema become rows of the table.

    `columns` are the entry's own; `rest` are the fields that go to the column of that name instead.
    """

    fields: tuple[FieldPlan, ...]
    columns: T.StructType
    rest: tuple[FieldPlan, ...] = ()

    def fit(self, columns: T.StructType) -> FilePlan:
        """Return the plan for a table with no more than these columns."""
        present = {field.name: field.dataType for field in columns}
        fitting = {
            field.name
            for field in self.columns
            if field.name in present and not lacks(present[field.name], field.dataType)
        }
        return FilePlan(
            fields=tuple(field for field in self.fields if field.column in fitting),
            columns=T.StructType([field for field in self.columns if field.name in fitting]),
            rest=tuple(field for field in self.fields if field.column not in fitting),
        )


@lru_cache(maxsize=4096)
def plan_of(schema_text: str, projected: str = "null") -> FilePlan:
    """Plan the columns of the schema that a projection (JSON text) makes of an object's; rows are read by the object's.

    Raises:
        ValueError: it is not a row schema of this product, or no projection of it.
    """
    schema = projection.project(_parsed(schema_text), json.loads(projected))
    return FilePlan(*_plan_record(type_of(schema), schema["fields"][1:], reserved=(*RESERVED, *_OF_ICEBERG)))


@lru_cache(maxsize=16)
def _parsed(schema_text: str) -> Avro:
    return json.loads(schema_text)


def project(present: T.StructType, wanted: T.StructType) -> T.StructType:
    """Return the fields that both have, in the order of `present`.

    Records with nothing in common are left out: Parquet has no group without fields.
    """
    types = {field.name: field.dataType for field in wanted}
    both = [(field.name, _project(field.dataType, types[field.name])) for field in present if field.name in types]
    return T.StructType([T.StructField(name, kind) for name, kind in both if kind is not None])


def _project(present: T.DataType, wanted: T.DataType) -> T.DataType | None:
    if isinstance(present, T.StructType) and isinstance(wanted, T.StructType):
        return project(present, wanted) or None
    if isinstance(present, T.ArrayType) and isinstance(wanted, T.ArrayType):
        element = _project(present.elementType, wanted.elementType)
        return None if element is None else T.ArrayType(element)
    if isinstance(present, T.MapType) and isinstance(wanted, T.MapType):
        value = _project(present.valueType, wanted.valueType)
        return None if value is None else T.MapType(T.StringType(), value)
    return present


def admit(present: T.StructType, wanted: T.StructType, *, weights: Mapping[str, int], columns_max: int) -> T.StructType:
    """Return `present`, grown by the fields of `wanted` for which there is room.

    Fields of the entry are admitted whole or not at all, the most frequent first; `weights` are entries by column.
    """
    admitted = {field.name: field for field in present}
    columns, has_grown = leaves(present), False
    for field in sorted(wanted, key=lambda field: (-weights.get(field.name, 0), field.name)):
        known = admitted.get(field.name)
        grown = _grown(known, field)
        if grown is None:
            continue
        more = leaves(grown.dataType) - (0 if known is None else leaves(known.dataType))
        if columns + more <= columns_max:
            admitted[field.name] = grown
            columns, has_grown = columns + more, True
    return T.StructType(list(admitted.values())) if has_grown else present


def leaves(kind: T.DataType) -> int:
    """Count the columns that a type is stored as."""
    if isinstance(kind, T.StructType):
        return sum(leaves(field.dataType) for field in kind)
    if isinstance(kind, T.ArrayType):
        return leaves(kind.elementType)
    return 1 + leaves(kind.valueType) if isinstance(kind, T.MapType) else 1


def lacks(present: T.DataType, wanted: T.DataType) -> bool:
    """Return whether `present` lacks something of `wanted`; types of one name never differ otherwise."""
    return union(present, wanted) is not present


def union_of(columns: Iterable[T.StructType]) -> T.StructType:
    """Return the columns of all of these."""
    united: dict[str, T.StructField] = {}
    for struct in columns:
        for field in struct:
            _unite(united, field)
    return T.StructType(list(united.values()))


def union(one: T.DataType, other: T.DataType) -> T.DataType:
    """Return the type that has the fields of both, new ones behind; `one` itself if `other` adds nothing."""
    if isinstance(one, T.StructType) and isinstance(other, T.StructType):
        return _union_of_structs(one, other)
    if isinstance(one, T.ArrayType) and isinstance(other, T.ArrayType):
        element = union(one.elementType, other.elementType)
        return one if element is one.elementType else T.ArrayType(element)
    if isinstance(one, T.MapType) and isinstance(other, T.MapType):
        value = union(one.valueType, other.valueType)
        return one if value is one.valueType else T.MapType(T.StringType(), value)
    assert one == other, f"a column's name says its type, yet one is {one} and {other}"
    return one


def _union_of_structs(one: T.StructType, other: T.StructType) -> T.StructType:
    united = {field.name: field for field in one}
    grown = [field for field in other if _unite(united, field)]
    return T.StructType(list(united.values())) if grown else one


def _unite(united: dict[str, T.StructField], field: T.StructField) -> bool:
    """Merge a field into others; returns whether it adds anything."""
    grown = _grown(united.get(field.name), field)
    if grown is not None:
        united[field.name] = grown
    return grown is not None


def _grown(known: T.StructField | None, field: T.StructField) -> T.StructField | None:
    """Return a field that has all of both; None if the known one has."""
    if known is None:
        return field
    kind = union(known.dataType, field.dataType)
    return None if kind is known.dataType else T.StructField(field.name, kind)


def escape(name: str, *, reserved: tuple[str, ...] = ()) -> str:
    """Write an original name so that it can be (part of) a column's name; injective, `unescape` undoes it.

    Letters, digits, `_`, `-` and `@` stay, the second of two `_` and everything else is %XX of its UTF-8 bytes;
    the empty name is `%`. So is a `_` before a digit at the beginning, or before `x` and a digit of hexadecimal: in
    Parquet files Iceberg writes `_1` for `1` and `_x2D` for `-`, and no two columns may meet there.
    """
    if not name:
        return "%"
    escaped = "".join(_escape_character(name, at) for at in range(len(name)))
    return f"%{ord(name[0]):02X}{escaped[1:]}" if name.lower() in reserved else escaped


def _escape_character(name: str, at: int) -> str:
    character = name[at]
    is_plain = _UNESCAPED.fullmatch(character) is not None and name[at - 1 : at + 1] != _SEPARATOR
    if character == "_" and (_HEXADECIMAL.match(name, at) or (at == 0 and name[1:2].isdigit())):
        is_plain = False
    return character if is_plain else "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))


def unescape(escaped: str) -> str:
    """Undo `escape`."""
    return "" if escaped == "%" else unquote_to_bytes(escaped).decode("utf-8", "surrogatepass")


def column_name(name: str, kind: str, *, reserved: tuple[str, ...] = ()) -> str:
    """Name the column of a field with this original name and kind."""
    escaped = escape(name, reserved=reserved)
    return escaped if kind == RECORD else f"{escaped}{_SEPARATOR}{kind}"


def parse_column_name(column: str) -> tuple[str, str]:
    """Read a column's name back: the field's original name and the kind."""
    escaped, separator, kind = column.rpartition(_SEPARATOR)
    return (unescape(escaped), kind) if separator else (unescape(column), RECORD)


def _plan_record(
    record: RecordType, avro_fields: list[Avro], *, reserved: tuple[str, ...] = ()
) -> tuple[tuple[FieldPlan, ...], T.StructType]:
    plans, columns = [], []
    for field in avro_fields:
        avro_name, avro = field["name"], field["type"]
        name = field.get(NAME_PROPERTY, avro_name)
        column = _column_of(record.by_name[name], avro)
        if column is not None:
            named = column_name(name, column.kind, reserved=reserved)
            plans.append(FieldPlan(avro_name, named, column.convert))
            columns.append(T.StructField(named, column.type))
    return tuple(plans), T.StructType(columns)


def _column_of(child: Type, union: Avro) -> Column | None:
    """Return the column of a position, `["null", T]`; None if there is nothing but null."""
    if isinstance(child, Scalar):
        return None if child is Scalar.NULL else Column(*_SCALARS[child], None)
    avro = union[1]
    if isinstance(child, RecordType):
        fields, columns = _plan_record(child, avro["fields"] if child.by_name else [])
        return Column(RECORD, columns, _record_converter(fields)) if fields else _untyped(lambda _: "{}")
    if isinstance(child, ArrayType):
        inner = _column_of(child.item, avro["items"])
        if inner is not None:
            return Column(f"array_{inner.kind}", T.ArrayType(inner.type), _array_converter(inner.convert))
    else:
        inner = _column_of(child.value, avro["values"])
        if inner is not None:
            return Column(f"map_{inner.kind}", T.MapType(T.StringType(), inner.type), _map_converter(inner.convert))
    return _untyped(json.dumps)


def _untyped(convert: Convert) -> Column:
    return Column(JSON, T.StringType(), convert)


def _record_converter(fields: tuple[FieldPlan, ...]) -> Convert:
    def convert(row: dict[str, Any]) -> dict[str, Any]:
        found = {}
        for avro_name, column, convert_value in fields:
            value = row[avro_name]
            if value is not None:
                found[column] = value if convert_value is None else convert_value(value)
        return found

    return convert


def _array_converter(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda values: [None if value is None else convert(value) for value in values]


def _map_converter(convert: Convert | None) -> Convert:
    # Arrow takes the pairs of a map, not a dict.
    if convert is None:
        return lambda values: list(values.items())
    return lambda values: [(key, None if value is None else convert(value)) for key, value in values.items()]
