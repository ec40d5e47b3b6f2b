"""The compiled reader: rows of objects to Arrow in a tenth of the time, if the wheel of `native/` is installed.

Owns its plans and its buffers. `columns` has the rules of plans, and `rows.RowGatherer` is the oracle.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from log_partitioner import native
from log_partitioner.avro.schema_types import ArrayType, RecordType, Scalar, Type
from log_partitioner.formats.projection import NAME_PROPERTY
from log_partitioner_pipeline.columns import (
    FIXED,
    Kind,
    ListOf,
    MapOf,
    Struct,
    exact_of,
    of_iceberg,
    takes,
)
from log_partitioner_pipeline.errors import ObjectError
from log_partitioner_pipeline.rows import Gatherer, RowGatherer, arrow_schema, open_piece

if TYPE_CHECKING:
    from log_partitioner_pipeline.objects import Content
    from log_partitioner_pipeline.pieces import ReadGroup

Told = Any
"""Nested tuples, as `native/src/columns.rs` takes them."""

_SCALARS = {
    Scalar.BOOL: "boolean",
    Scalar.LONG53: "long",
    Scalar.LONG64: "long",
    Scalar.DOUBLE: "double",
    Scalar.STRING: "string",
    Scalar.JSON: "json",
    Scalar.NULL: "null",
    Scalar.BYTES: "bytes",
    Scalar.DECIMAL: "string",
    Scalar.TIMESTAMP: "timestamp",
    Scalar.DATE: "date",
}


def make_gatherer(fields: list[dict[str, Any]], *, rows_per_batch: int, bytes_per_batch: int) -> Gatherer:
    """Make what gathers rows for columns of the table in Iceberg's JSON: compiled, or in Python."""
    kind = CompiledGatherer if native.IS_INSTALLED else RowGatherer
    return kind(fields, rows_per_batch=rows_per_batch, bytes_per_batch=bytes_per_batch)


class CompiledGatherer:
    """As `RowGatherer`."""

    def __init__(self, fields: list[dict[str, Any]], *, rows_per_batch: int, bytes_per_batch: int) -> None:
        assert native.module is not None, "it is installed"
        self._schema = arrow_schema(fields)
        self._table = of_iceberg(fields)
        places = tuple(map(self._schema.get_field_index, FIXED.columns))
        columns = [_column(one.kind) for one in self._table.columns.values()]
        self._columns = native.module.Columns(columns, places)
        self._schemas: dict[str, int] = {}
        self._plans: dict[tuple[str, str], int] = {}
        self._rows_per_batch = rows_per_batch
        self._bytes_per_batch = bytes_per_batch

    def add_piece(self, piece: ReadGroup, content: Content) -> Iterator[pa.RecordBatch]:
        """Take the rows that the references of a piece point to; yields a batch whenever one is full.

        Raises:
            ObjectError: it is not the Avro file that a reference describes.
        """
        container = open_piece(piece, content)
        for part in piece.parts:
            plan = self._plan(container.schema_text, piece.projections[part.projection])
            found = 0
            for rows, block in container.encoded_blocks(part.ranges):
                try:
                    self._columns.add(block, rows, plan, part.reference_id)
                except ValueError as error:
                    raise ObjectError(f"{piece.where} is not an Avro file that can be read: {error}") from error
                found += rows
                if self._columns.rows >= self._rows_per_batch or self._columns.size >= self._bytes_per_batch:
                    yield self.take()
            part.require(found, piece.where)

    def take(self) -> pa.RecordBatch:
        """Make a batch of the gathered rows."""
        arrays = [_array(field.type, one) for field, one in zip(self._schema, self._columns.take(), strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to take."""
        return bool(self._columns.rows == 0)

    def _plan(self, schema_text: str, projection: str) -> int:
        plan = self._plans.get((schema_text, projection))
        if plan is None:
            exact, fields, every = exact_of(schema_text, projection)
            schema = self._schemas.get(schema_text)
            if schema is None:
                schema = self._schemas[schema_text] = self._columns.schema([_shape(one["type"]) for one in every])
            told = _record(exact, fields, every, self._table, is_top=True)
            plan = self._plans[schema_text, projection] = self._columns.plan(told, schema)
        return plan


def _column(kind: Kind) -> Told:
    if isinstance(kind, str):
        return (kind, ())
    if isinstance(kind, Struct):
        return ("struct", [_column(one.kind) for one in kind.columns.values()])
    if isinstance(kind, ListOf):
        return ("list", [_column(kind.item)])
    return ("map", [("struct", [("string", ()), _column(kind.value)])])


def _record(exact: RecordType, fields: list[Any], every: list[Any], struct: Struct, *, is_top: bool = False) -> Told:
    """Plan a record: `fields` are those of its exact schema, `every` those that the object has."""
    places = {name: at for at, name in enumerate(struct.columns)}
    taken = {places[name] for name in FIXED.columns} if is_top else set()
    planned: list[Told] = []
    for at, original, known, one in _members(exact, fields, every):
        child, column, size = exact.by_name[original], struct.find(original, is_top=is_top), len(original.encode())
        if column is None or not _goes_to(column[1], child):
            planned.append((at, size, None, (original, _json(child, known, one))))
            continue
        name, kind = column
        plan = _plan(child, known, one, kind)
        planned.append((at, size, (places[name], plan), (original, None) if _has_rest(plan) else None))
        taken.add(places[name])
    return planned, [at for at in places.values() if at not in taken]


def _members(exact: RecordType, fields: list[Any], every: list[Any]) -> Iterator[tuple[int, str, Any, Any]]:
    """Yield the fields of a record that have values: place, original name, exact type and the object's, in Avro."""
    places = {one["name"]: at for at, one in enumerate(every)}
    for one in fields if exact.by_name else ():
        original, at = one.get(NAME_PROPERTY, one["name"]), places[one["name"]]
        if exact.by_name[original] is not Scalar.NULL:
            yield at, original, one["type"], every[at]["type"]


def _goes_to(kind: Kind, child: Type) -> bool:
    """Return whether a column takes the values of a type, or part of them, which only a struct does."""
    return (isinstance(kind, Struct) and isinstance(child, RecordType)) or takes(kind, child)


def _has_rest(plan: Told) -> bool:
    return plan[0] == "record" and any(rest is not None for *_, rest in plan[1][0])


def _plan(child: Type, exact: Any, every: Any, kind: Kind) -> Told:
    if isinstance(child, Scalar):
        if child is Scalar.LONG53 and kind == "double":
            return ("widened", ())
        return (_SCALARS[child], ())
    exact, whole = exact[1], every[1]
    if isinstance(child, RecordType):
        assert isinstance(kind, Struct)
        if not child.by_name:
            return ("empty", ())
        return ("record", _record(child, exact["fields"], whole["fields"], kind))
    if isinstance(child, ArrayType):
        assert isinstance(kind, ListOf)
        return ("array", _plan(child.item, exact["items"], whole["items"], kind.item))
    assert isinstance(kind, MapOf)
    return ("map", _plan(child.value, exact["values"], whole["values"], kind.value))


def _json(child: Type, exact: Any, every: Any) -> Told:
    if isinstance(child, Scalar):
        return (_SCALARS[child], ())
    exact, whole = exact[1], every[1]
    if isinstance(child, RecordType):
        if not child.by_name:
            return ("empty", ())
        members = _members(child, exact["fields"], whole["fields"])
        return ("record", [(at, name, _json(child.by_name[name], known, one)) for at, name, known, one in members])
    if isinstance(child, ArrayType):
        return ("array", _json(child.item, exact["items"], whole["items"]))
    return ("map", _json(child.value, exact["values"], whole["values"]))


def _shape(union: Any) -> Told:
    """Return the shape of a value that is read and not used; every type is a union of null and one."""
    avro = union[1]
    kind = avro["type"] if isinstance(avro, dict) else avro
    if kind == "record":
        return (kind, [_shape(one["type"]) for one in avro["fields"]])
    if kind in ("array", "map"):
        return (kind, _shape(avro["items" if kind == "array" else "values"]))
    return (kind, ())


def _array(kind: pa.DataType, buffers: Told) -> pa.Array:
    rows, nulls, valid, offsets, data, kids = buffers
    of_nulls = pa.py_buffer(valid) if nulls else None
    if pa.types.is_struct(kind):
        children = [_array(field.type, kid) for field, kid in zip(kind, kids, strict=True)]
        return pa.Array.from_buffers(kind, rows, [of_nulls], nulls, children=children)
    if pa.types.is_list(kind):
        children = [_array(kind.value_type, kids[0])]
        return pa.Array.from_buffers(kind, rows, [of_nulls, pa.py_buffer(offsets)], nulls, children=children)
    if pa.types.is_map(kind):
        entries = pa.struct([kind.key_field, kind.item_field])
        children = [_array(entries, kids[0])]
        return pa.Array.from_buffers(kind, rows, [of_nulls, pa.py_buffer(offsets)], nulls, children=children)
    of_text = [pa.py_buffer(offsets)] if pa.types.is_string(kind) or pa.types.is_binary(kind) else []
    return pa.Array.from_buffers(kind, rows, [of_nulls, *of_text, pa.py_buffer(data)], nulls)
