"""The columns of the table: names, types, and which of them the values of a reference fill (DESIGN 8, ADR 8).

A column has the plain name of its path, in lower case, and the type of the values that came first:

    object                  struct
    integer                 bigint
    other number            double, whose column takes integers of up to 53 bits, too
    text, decimal, boolean  string, string, boolean
    bytes, instant, date    binary, timestamptz, date
    array, map              array, map of these, if all items fit

Whatever does not fit stands in `_rest`, one JSON object in the form of the entry: values of another type, of types that
disagree within a reference, of names that only differ where a column's name cannot (`Status` beside `status`), and
what there is no room for. So no value is lost, no column is ever renamed or retyped, and every engine can read the
table, whether it tells upper case from lower or not.

If the original name differs, it is the column's comment.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple

from log_partitioner.avro.schema_types import ArrayType, RecordType, Scalar, Type
from log_partitioner.formats import projection
from log_partitioner.formats.projection import NAME_PROPERTY
from log_partitioner_pipeline.row_type import type_of

USER, EVENT_TIME, HOUR, REFERENCE, META, REST = "user", "event_time", "hour", "_reference", "_meta", "_rest"
_ICEBERGS_OWN = (
    *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"),
    *("_change_type", "_change_ordinal", "_commit_snapshot_id"),
)
RESERVED = frozenset((USER, EVENT_TIME, HOUR, REFERENCE, META, REST, *_ICEBERGS_OWN))
_NAME_CHARS_MAX = 128
_DEPTH_MAX = 20

LONG53 = "long53"  # an integer that a double holds, too; as a column it is a long
_SCALARS = {
    Scalar.BOOL: "boolean",
    Scalar.LONG53: LONG53,
    Scalar.LONG64: "long",
    Scalar.DOUBLE: "double",
    Scalar.STRING: "string",
    Scalar.DECIMAL: "string",
    Scalar.BYTES: "binary",
    Scalar.TIMESTAMP: "timestamptz",
    Scalar.DATE: "date",
}
_JOINED = {frozenset((LONG53, "long")): "long", frozenset((LONG53, "double")): "double"}


@dataclass
class Struct:
    """A struct, or the table itself: its columns by name."""

    columns: dict[str, Column] = field(default_factory=dict)

    def find(self, original: str, *, is_top: bool = False) -> tuple[str, Kind] | None:
        """Return the name and the kind of the column of values with this name; None if it has none, or is another's."""
        name = column_name(original, is_top=is_top)
        column = self.columns.get(name)
        return (name, column.kind) if column is not None and column.original == original else None


@dataclass
class Column:
    """A column, or a part of one: the original name of its values, and their kind."""

    original: str
    kind: Kind


@dataclass
class ListOf:
    """An array."""

    item: Kind


@dataclass
class MapOf:
    """A map from text."""

    value: Kind


Kind = str | Struct | ListOf | MapOf
"""A type of columns; a scalar's is the name of Iceberg's type, or `long53`."""


def struct_of(**kinds: Kind) -> Struct:
    """Make a struct of columns that are named as their values."""
    return Struct({name: Column(name, kind) for name, kind in kinds.items()})


def strings(*names: str) -> dict[str, Kind]:
    """Name columns of texts."""
    return dict.fromkeys(names, "string")


def longs(*names: str) -> dict[str, Kind]:
    """Name columns of integers."""
    return dict.fromkeys(names, "long")


_PLACE: dict[str, Kind] = {"topic": "string", "partition": "int", "offset": "long", "index": "int"}
_META = struct_of(id="string", **_PLACE, timestamp="timestamptz", root=struct_of(**_PLACE), bytes="long")
_FIXED: dict[str, Kind] = {
    USER: "string",
    EVENT_TIME: "timestamptz",
    HOUR: "timestamptz",
    REFERENCE: "string",
    META: _META,
    REST: "string",
}
FIXED = struct_of(**_FIXED)
"""The columns of every table: whose an entry is, of when, from which reference and record, and what no column takes."""


def column_name(original: str, *, is_top: bool = False) -> str:
    """Return the name of a column of values with this name; several may have the same."""
    name = "".join(one if one.isalnum() else "_" for one in original.lower())
    if not name or name[0].isdecimal():
        name = f"_{name}"
    return f"{name}_" if is_top and name in RESERVED else name


def kind_of(type_: Type, *, depth: int = 0) -> Kind | None:
    """Return the kind of a type's values; None if they have none, and stand in `_rest` unless a column takes them."""
    if isinstance(type_, Scalar):
        return _SCALARS.get(type_)
    if depth > _DEPTH_MAX:
        return None
    if isinstance(type_, RecordType):
        struct = Struct()
        for original, child in type_.by_name.items():
            name = column_name(original, is_top=depth == 0)
            kind = kind_of(child, depth=depth + 1)
            if kind is not None and len(name) <= _NAME_CHARS_MAX:
                struct.columns.setdefault(name, Column(original, kind))
        return struct if struct.columns else None
    inner = kind_of(type_.item if isinstance(type_, ArrayType) else type_.value, depth=depth + 1)
    if inner is None:
        return None
    return ListOf(inner) if isinstance(type_, ArrayType) else MapOf(inner)


def join(one: Kind, other: Kind) -> Kind | None:
    """Return the kind that takes the values of both; None if they disagree. Columns of structs stay as in `one`."""
    if isinstance(one, Struct) and isinstance(other, Struct):
        both = Struct(dict(one.columns))
        _widen(both, other)
        return both
    if isinstance(one, ListOf) and isinstance(other, ListOf):
        item = join(one.item, other.item)
        return None if item is None else ListOf(item)
    if isinstance(one, MapOf) and isinstance(other, MapOf):
        value = join(one.value, other.value)
        return None if value is None else MapOf(value)
    if isinstance(one, str) and isinstance(other, str):
        return one if one == other else _JOINED.get(frozenset((one, other)))
    return None


def _widen(struct: Struct, more: Struct) -> None:
    for name, column in more.columns.items():
        known = struct.columns.get(name)
        if known is None:
            struct.columns[name] = column
        elif known.original == column.original and (joined := join(known.kind, column.kind)) is not None:
            struct.columns[name] = Column(known.original, joined)


def admit(table: Struct, wanted: Iterable[Struct], *, columns_max: int) -> Struct:
    """Return the table with the wanted columns that fit beside it and have room; itself if none does.

    The first have precedence, so they should be the most frequent. Structs grow column by column, the outer ones before
    those within; an array or a map as a whole.
    """
    joined = Struct()
    for struct in wanted:
        _widen(joined, struct)
    grown = deepcopy(table)
    room = columns_max - leaves(grown)
    level = deque([(grown, joined)])
    while level:
        present, more = level.popleft()
        for name, column in more.columns.items():
            known = present.columns.get(name)
            if known is not None and known.original != column.original:
                continue
            if isinstance(column.kind, Struct):
                known = present.columns.setdefault(name, Column(column.original, Struct()))
                if isinstance(known.kind, Struct):
                    level.append((known.kind, column.kind))
                continue
            kind = _settled(column.kind) if known is None else join(known.kind, column.kind)
            cost = 0 if kind is None else leaves(kind) - (0 if known is None else leaves(known.kind))
            if kind is not None and cost <= room:
                present.columns[name] = Column(column.original, kind)
                room -= cost
    _drop_empty(grown)
    return table if grown == table else grown


def leaves(kind: Kind) -> int:
    """Count the columns that a kind is stored as."""
    if isinstance(kind, Struct):
        return sum(leaves(column.kind) for column in kind.columns.values())
    if isinstance(kind, ListOf):
        return leaves(kind.item)
    return 1 + leaves(kind.value) if isinstance(kind, MapOf) else 1


def _settled(kind: Kind) -> Kind:
    """Make a column's kind of what values were seen."""
    if isinstance(kind, Struct):
        return Struct({name: Column(one.original, _settled(one.kind)) for name, one in kind.columns.items()})
    if isinstance(kind, ListOf):
        return ListOf(_settled(kind.item))
    if isinstance(kind, MapOf):
        return MapOf(_settled(kind.value))
    return "long" if kind == LONG53 else kind


def _drop_empty(struct: Struct) -> None:
    """Drop structs without columns, which Parquet cannot store."""
    for name, column in list(struct.columns.items()):
        if isinstance(column.kind, Struct):
            _drop_empty(column.kind)
            if not column.kind.columns:
                del struct.columns[name]


# In Iceberg's words.


def of_iceberg(fields: Iterable[Mapping[str, Any]]) -> Struct:
    """Read the columns of a schema's `fields` in Iceberg's JSON."""
    return Struct({one["name"]: Column(one.get("doc", one["name"]), _kind_of_iceberg(one["type"])) for one in fields})


def _kind_of_iceberg(kind: Any) -> Kind:
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        return of_iceberg(kind["fields"])
    return (
        ListOf(_kind_of_iceberg(kind["element"])) if kind["type"] == "list" else MapOf(_kind_of_iceberg(kind["value"]))
    )


def to_iceberg(struct: Struct, numbers: Iterator[int] | None = None) -> list[dict[str, Any]]:
    """Write columns as the `fields` of a schema in Iceberg's JSON, numbered from 1 on."""
    numbers = count(1) if numbers is None else numbers
    return [
        {"id": next(numbers), "name": name, "required": False, "type": _to_iceberg(column.kind, numbers)}
        | ({} if column.original == name else {"doc": column.original})
        for name, column in struct.columns.items()
    ]


def _to_iceberg(kind: Kind, numbers: Iterator[int]) -> Any:
    if isinstance(kind, Struct):
        return {"type": "struct", "fields": to_iceberg(kind, numbers)}
    if isinstance(kind, ListOf):
        element = {"element-id": next(numbers), "element": _to_iceberg(kind.item, numbers), "element-required": False}
        return {"type": "list", **element}
    if isinstance(kind, MapOf):
        key = {"key-id": next(numbers), "key": "string"}
        value = {"value-id": next(numbers), "value": _to_iceberg(kind.value, numbers), "value-required": False}
        return {"type": "map", **key, **value}
    return kind


# From a file's fields to columns.


class FieldPlan(NamedTuple):
    """One field of a file: the column that takes its values and how, and the part that goes to `_rest` and how.

    Values are not null; `convert` is None if they stay as they are. `rest` gives a member's JSON text, or None; `weigh`
    the bytes of a value (`bytes_of`).
    """

    avro_name: str
    original: str
    column: str | None
    convert: Callable[[Any], Any] | None
    rest: Callable[[Any], str | None] | None
    weigh: Callable[[Any], int]


def plan_of(schema_text: str, projected: str, table: Struct) -> tuple[FieldPlan, ...]:
    """Plan how rows of an object, by its schema, become rows of the table, by a projection (JSON text) of that schema.

    Raises:
        ValueError: it is not a row schema of this product, or no projection of it.
    """
    exact, fields, _ = exact_of(schema_text, projected)
    return _plan(exact, fields, table, is_top=True)


def wanted_by(schema_text: str, projected: str) -> Struct:
    """Return the columns that would take every value of a projection that a column can take.

    Raises:
        ValueError: as `plan_of`.
    """
    found = kind_of(exact_of(schema_text, projected)[0])
    return found if isinstance(found, Struct) else Struct()


@lru_cache(maxsize=1024)
def exact_of(schema_text: str, projected: str) -> tuple[RecordType, list[Any], list[Any]]:
    """Return the exact type of a reference, its fields in Avro, and all that its object has.

    Raises:
        ValueError: as `plan_of`.
    """
    every = _parsed(schema_text)
    schema = projection.project(every, json.loads(projected))
    return type_of(schema), schema["fields"][1:], every["fields"][1:]


@lru_cache(maxsize=16)
def _parsed(schema_text: str) -> Any:
    return json.loads(schema_text)


def _plan(record: RecordType, fields: list[Any], struct: Struct, *, is_top: bool = False) -> tuple[FieldPlan, ...]:
    named = [(one.get(NAME_PROPERTY, one["name"]), one) for one in fields] if record.by_name else []
    plans = (_plan_field(original, record.by_name[original], one, struct, is_top=is_top) for original, one in named)
    return tuple(plan for plan in plans if plan is not None)


def _plan_field(original: str, child: Type, field: Any, struct: Struct, *, is_top: bool) -> FieldPlan | None:
    if child is Scalar.NULL:
        return None
    known, avro = struct.find(original, is_top=is_top), field["type"][1]
    weigh = _weigher(child, avro)
    if known is not None:
        name, kind = known
        if isinstance(child, RecordType) and isinstance(kind, Struct):
            fields = _plan(child, avro["fields"] if child.by_name else [], kind)
            rest = _partial(fields) if any(one.rest for one in fields) else None
            return FieldPlan(field["name"], original, name, _record(fields), rest, weigh)
        if takes(kind, child):
            return FieldPlan(field["name"], original, name, _converter(child, avro, kind), None, weigh)
    return FieldPlan(field["name"], original, None, None, _writer(child, avro), weigh)


def takes(kind: Kind, type_: Type) -> bool:
    """Return whether a column of this kind takes all values of the type."""
    if isinstance(type_, Scalar):
        return (
            type_ is Scalar.NULL
            or kind == _SCALARS.get(type_)
            or (type_ is Scalar.LONG53 and kind in ("long", "double"))
        )
    if isinstance(type_, RecordType):
        return isinstance(kind, Struct) and all(
            child is Scalar.NULL or ((found := kind.find(original)) is not None and takes(found[1], child))
            for original, child in type_.by_name.items()
        )
    if isinstance(type_, ArrayType):
        return isinstance(kind, ListOf) and takes(kind.item, type_.item)
    return isinstance(kind, MapOf) and takes(kind.value, type_.value)


def _converter(type_: Type, avro: Any, kind: Kind) -> Callable[[Any], Any] | None:
    if isinstance(type_, RecordType):
        assert isinstance(kind, Struct)
        return _record(_plan(type_, avro["fields"] if type_.by_name else [], kind))
    if isinstance(type_, ArrayType):
        assert isinstance(kind, ListOf)
        of_item = _converter(type_.item, _inner(avro, "items"), kind.item)
        if of_item is None:
            return None
        return lambda values: [None if value is None else of_item(value) for value in values]
    if isinstance(type_, Scalar):
        return None
    assert isinstance(kind, MapOf)
    of_value = _converter(type_.value, _inner(avro, "values"), kind.value) or (lambda value: value)
    return lambda values: [(key, None if value is None else of_value(value)) for key, value in values.items()]


def _inner(avro: Any, name: str) -> Any:
    union = avro[name]
    return union[1] if isinstance(union, list) else union


def _record(fields: tuple[FieldPlan, ...]) -> Callable[[Any], Any]:
    taken = [(one.avro_name, one.column, one.convert) for one in fields if one.column is not None]

    def convert(row: dict[str, Any]) -> dict[str, Any]:
        return {
            column: value if of_value is None else of_value(value)
            for avro_name, column, of_value in taken
            if (value := row[avro_name]) is not None
        }

    return convert


def _partial(fields: tuple[FieldPlan, ...]) -> Callable[[Any], str | None]:
    return lambda row: rest_of(row, fields)


def rest_of(row: Mapping[str, Any], fields: Iterable[FieldPlan]) -> str | None:
    """Write what no column takes of a record as one JSON object; None if there is nothing."""
    members = [
        f"{_quoted(one.original)}:{text}"
        for one in fields
        if one.rest is not None and (value := row[one.avro_name]) is not None and (text := one.rest(value)) is not None
    ]
    return f"{{{','.join(members)}}}" if members else None


_quoted = json.JSONEncoder(ensure_ascii=False).encode


def _writer(type_: Type, avro: Any) -> Callable[[Any], str]:
    """Return what writes values of a type as JSON text; nulls in objects are left out."""
    if type_ is Scalar.JSON:
        return str
    if isinstance(type_, Scalar):
        text_of = _TEXTS.get(type_)
        return _quoted if text_of is None else lambda value: _quoted(text_of(value))
    if isinstance(type_, RecordType):
        members = [(at, f"{_quoted(name)}:", _writer(child, avro)) for at, name, child, avro in _members(type_, avro)]
        return lambda row: _object(
            f"{name}{write(value)}" for at, name, write in members if (value := row[at]) is not None
        )
    inner, name = (type_.item, "items") if isinstance(type_, ArrayType) else (type_.value, "values")
    of_inner = _writer(inner, _inner(avro, name))
    if isinstance(type_, ArrayType):
        return lambda values: f"[{','.join('null' if value is None else of_inner(value) for value in values)}]"
    return lambda values: _object(
        f"{_quoted(key)}:{'null' if value is None else of_inner(value)}" for key, value in values.items()
    )


def _text_of_bytes(value: bytes) -> str:
    return b64encode(value).decode()


def _text_of_instant(moment: datetime) -> str:
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TEXTS: dict[Scalar, Callable[[Any], str]] = {
    Scalar.BYTES: _text_of_bytes,
    Scalar.TIMESTAMP: lambda micros: _text_of_instant(_EPOCH + timedelta(microseconds=micros)),
    Scalar.DATE: lambda days: date.fromordinal(_EPOCH.toordinal() + days).isoformat(),
}
"""Texts of the values in a file that are none in JSON."""
_TEXTS_OF_COLUMNS: dict[str, Callable[[Any], str]] = {
    "binary": _text_of_bytes,
    "timestamptz": _text_of_instant,
    "date": date.isoformat,
}


def _object(members: Iterable[str]) -> str:
    return f"{{{','.join(members)}}}"


def _members(record: RecordType, avro: Any) -> Iterator[tuple[str, str, Type, Any]]:
    """Yield the fields of a record that have values: name in Avro, original name, type, type in Avro."""
    for one in avro["fields"] if record.by_name else []:
        original = one.get(NAME_PROPERTY, one["name"])
        if (child := record.by_name[original]) is not Scalar.NULL:
            yield one["name"], original, child, one["type"][1]


# Size.


def bytes_of(value: object) -> int:
    """Return the size of a JSON value: bytes of names and texts in UTF-8, 8 for a number, 1 for a boolean.

    Nulls, with their names, count nothing. So equal values (DESIGN 3.2) are of one size, however they are stored.
    """
    if isinstance(value, dict):
        return sum(len(name.encode()) + bytes_of(item) for name, item in value.items() if item is not None)
    if isinstance(value, list):
        return sum(map(bytes_of, value))
    if isinstance(value, str):
        return len(value.encode())
    return 0 if value is None else 1 if isinstance(value, bool) else 8


def row_bytes(row: Mapping[str, Any], fields: Iterable[FieldPlan]) -> int:
    """Return the size of an entry, as `bytes_of` has it."""
    return sum(
        len(one.original.encode()) + one.weigh(value) for one in fields if (value := row[one.avro_name]) is not None
    )


def _weigher(type_: Type, avro: Any) -> Callable[[Any], int]:
    """Return what gives the bytes of values of a type."""
    if type_ is Scalar.JSON:
        return lambda text: bytes_of(_parse(text))
    if isinstance(type_, Scalar):
        text_of = _TEXTS.get(type_)
        return bytes_of if text_of is None else lambda value: len(text_of(value))
    if isinstance(type_, RecordType):
        members = [(at, len(name.encode()), _weigher(child, avro)) for at, name, child, avro in _members(type_, avro)]
        return lambda row: sum(size + weigh(value) for at, size, weigh in members if (value := row[at]) is not None)
    inner, name = (type_.item, "items") if isinstance(type_, ArrayType) else (type_.value, "values")
    weigh = _weigher(inner, _inner(avro, name))
    if isinstance(type_, ArrayType):
        return lambda values: sum(weigh(value) for value in values if value is not None)
    return lambda values: sum(len(key.encode()) + weigh(value) for key, value in values.items() if value is not None)


# Every number is as large as 0, and a large one need not be read.
_parse = json.JSONDecoder(parse_float=lambda _: 0, parse_int=lambda _: 0).decode


# And back.


def restore(row: Mapping[str, Any], table: Struct, parse: Callable[[str], Any]) -> dict[str, Any]:
    """Return the entry of a row of the table (as Arrow's `to_pylist` writes it); nulls are left out.

    `parse` reads JSON text.
    """
    entry = {
        column.original: _restored(value, column.kind)
        for name, column in table.columns.items()
        if name not in RESERVED and (value := row.get(name)) is not None
    }
    rest = row.get(REST)
    return entry if rest is None else _merged(entry, parse(rest))


def _restored(value: Any, kind: Kind) -> Any:
    if value is None:
        return None
    if isinstance(kind, str):
        text_of = _TEXTS_OF_COLUMNS.get(kind)
        return value if text_of is None else text_of(value)
    if isinstance(kind, Struct):
        return {
            column.original: _restored(item, column.kind)
            for name, column in kind.columns.items()
            if (item := value.get(name)) is not None
        }
    if isinstance(kind, ListOf):
        return [_restored(item, kind.item) for item in value]
    pairs = value.items() if isinstance(value, Mapping) else value
    return {key: _restored(item, kind.value) for key, item in pairs}


def _merged(one: Any, other: Any) -> Any:
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return other
    return one | {name: _merged(one[name], item) if name in one else item for name, item in other.items()}
