"""Bytes of objects -> rows of the table, as Arrow record batches. Runs on the executors.

Rows of many small references are gathered column by column: a batch costs the columns of the table once, a row only the
fields of its reference.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import fastavro
import pyarrow as pa

from log_partitioner.avro import schema as row_schema
from log_partitioner.proof.oracle import container as avro_file
from log_partitioner.proof.oracle.published_schema import without_logical_types
from log_partitioner_pipeline.columns import (
    EVENT_TIME,
    HOUR,
    META,
    REFERENCE,
    REST,
    USER,
    FieldPlan,
    of_iceberg,
    plan_of,
    rest_of,
    row_bytes,
)
from log_partitioner_pipeline.errors import ObjectError
from log_partitioner_pipeline.objects import Content

if TYPE_CHECKING:
    from log_partitioner_pipeline.pieces import ReadGroup, ReferencePart, Span

Row = dict[str, Any]

_STEPS_PER_BATCH = 16
_TIMESTAMP_MS_MAX = (2**63 - 1) // 1000
_HOUR_US = 3_600_000_000
_SCALARS = {
    "string": pa.string(),
    "long": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "binary": pa.binary(),
    "date": pa.date32(),
}


class Block(NamedTuple):
    """The rows of one Avro block, and the number of its encoded bytes."""

    rows: list[Row]
    size: int


class Container:
    """An Avro container file, or spans of one: its header is read once, its blocks by byte ranges."""

    def __init__(self, content: Content, where: str) -> None:
        """Read the header.

        Raises:
            ObjectError: there is none.
        """
        self._content = content
        self._where = where
        try:
            _, head = content.spans[0]
            self._header = avro_file.Container(head)
            self.schema_text, self._begin = self._header.schema, self._header.header_bytes
            self._schema = _schema_of(self.schema_text)
        except Exception as error:  # whatever the bytes lead to
            raise self._unreadable(error) from error

    def blocks(self, ranges: Iterable[Span]) -> list[Block]:
        """Decode the blocks of ranges that begin with the header.

        Raises:
            ObjectError: they do not, are not here, or hold no blocks.
        """
        try:
            return [
                Block(list(avro_file.rows_in(data, count, self._schema)), len(data))
                for count, data in self.encoded_blocks(ranges)
            ]
        except Exception as error:  # fastavro raises whatever the bytes lead it to
            raise self._unreadable(error) from error

    def encoded_blocks(self, ranges: Iterable[Span]) -> Iterator[tuple[int, bytes]]:
        """Yield the number of rows and the encoded rows of the blocks of ranges that begin with the header.

        Raises:
            ObjectError: as `blocks`.
        """
        try:
            for start, length in self._behind_header(ranges):
                yield from self._header.blocks(self._content.of(start, length), 0, length)
        except Exception as error:  # whatever the bytes lead to
            raise self._unreadable(error) from error

    def blocks_of(self, part: ReferencePart) -> list[Block]:
        """Decode the blocks to which a reference points.

        Raises:
            ObjectError: as `blocks`, or it has another number of rows than the reference says.
        """
        blocks = self.blocks(part.ranges)
        part.require(sum(len(block.rows) for block in blocks), self._where)
        return blocks

    def _behind_header(self, ranges: Iterable[Span]) -> Iterator[Span]:
        (start, length), *others = ranges
        if start != 0 or length < self._begin:
            raise ValueError("byte ranges do not begin with the header")
        if length > self._begin:
            yield self._begin, length - self._begin
        yield from others

    def _unreadable(self, error: Exception) -> ObjectError:
        if isinstance(error, ObjectError):
            return error
        return ObjectError(f"{self._where} is not an Avro file that can be read: {error!r}")


def open_piece(piece: ReadGroup, content: Content) -> Container:
    """Open the fetched bytes of a piece.

    Raises:
        ObjectError: it is no Avro file, or not of the schema that its references name.
    """
    container = Container(content, piece.where)
    if fingerprint_of(container.schema_text) != piece.fingerprint:
        reference_id = piece.parts[0].reference_id
        raise ObjectError(f"{piece.where} was not written with the schema that reference {reference_id} names")
    return container


class Gatherer(Protocol):
    """Gathers rows of pieces to record batches."""

    def add_piece(self, piece: ReadGroup, content: Content) -> Iterator[pa.RecordBatch]:
        """Take the rows that the references of a piece point to; yields a batch whenever one is full."""

    def take(self) -> pa.RecordBatch:
        """Make a batch of the gathered rows."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to take."""


class RowGatherer:
    """Gathers rows until there are enough for a record batch, by their number or by their bytes.

    Bytes are those of the file, and of the text that goes to `_rest`. A batch has more than `bytes_per_batch` only if a
    single block or row has.
    """

    def __init__(self, fields: list[dict[str, Any]], *, rows_per_batch: int, bytes_per_batch: int) -> None:
        """`fields` are columns of the table in Iceberg's JSON."""
        self._schema = arrow_schema(fields)
        self._table = of_iceberg(fields)
        self._plans: dict[tuple[str, str], tuple[FieldPlan, ...]] = {}
        self._rows_per_batch = rows_per_batch
        self._bytes_per_batch = bytes_per_batch
        self._columns: dict[str, list[Any]] = {}
        self._rows = self._bytes = 0

    def add_piece(self, piece: ReadGroup, content: Content) -> Iterator[pa.RecordBatch]:
        """Take the rows that the references of a piece point to; yields a batch whenever one is full.

        Raises:
            ObjectError: it is not the Avro file that a reference describes.
        """
        container = open_piece(piece, content)
        for part in piece.parts:
            plan = self._plan(container.schema_text, piece.projections[part.projection])
            yield from self._add_part(container.blocks_of(part), plan, part.reference_id)

    def _plan(self, schema_text: str, projection: str) -> tuple[FieldPlan, ...]:
        plan = self._plans.get((schema_text, projection))
        if plan is None:
            plan = self._plans[schema_text, projection] = plan_of(schema_text, projection, self._table)
        return plan

    def _add_part(
        self, blocks: list[Block], plan: tuple[FieldPlan, ...], reference_id: str
    ) -> Iterator[pa.RecordBatch]:
        for rows, size in self._steps(blocks):
            is_too_many = self._rows + len(rows) > self._rows_per_batch
            if self._rows and (is_too_many or self._bytes + size > self._bytes_per_batch):
                yield self.take()
            self._add(rows, plan, reference_id)
            self._bytes += size
            if self._rows >= self._rows_per_batch or self._bytes >= self._bytes_per_batch:
                yield self.take()

    def _steps(self, blocks: list[Block]) -> Iterator[Block]:
        """Cut blocks into steps much smaller than a batch, because their bytes in `_rest` are known only afterwards."""
        size_max = max(1, self._bytes_per_batch // _STEPS_PER_BATCH)
        for rows, size in blocks:
            count = min(self._rows_per_batch, max(1, len(rows) * size_max // max(1, size)))
            for begin in range(0, len(rows), count):
                some = rows[begin : begin + count]
                yield Block(some, size * len(some) // len(rows))

    def _add(self, rows: list[Row], plan: tuple[FieldPlan, ...], reference_id: str) -> None:
        metas = [row[row_schema.META] for row in rows]
        times = [meta["event_time"] for meta in metas]
        self._gather(USER, [meta["user"] for meta in metas])
        self._gather(EVENT_TIME, times)
        self._gather(HOUR, [time - time % _HOUR_US for time in times])
        self._gather(REFERENCE, [reference_id] * len(rows))
        self._gather(META, [_meta(row, plan) for row in rows])
        for one in plan:
            if one.column is not None:
                values, convert = [row[one.avro_name] for row in rows], one.convert
                if convert is not None:
                    values = [None if value is None else convert(value) for value in values]
                self._gather(one.column, values)
        if any(one.rest for one in plan):
            texts = [rest_of(row, plan) for row in rows]
            self._gather(REST, texts)
            self._bytes += sum(len(text) for text in texts if text is not None)
        self._rows += len(rows)

    def _gather(self, column: str, values: list[Any]) -> None:
        gathered = self._columns.get(column)
        if gathered is None:
            gathered = self._columns[column] = []
        gathered.extend([None] * (self._rows - len(gathered)))
        gathered.extend(values)

    def take(self) -> pa.RecordBatch:
        """Make a batch of the gathered rows."""
        arrays = []
        for field in self._schema:
            gathered = self._columns.get(field.name)
            if gathered is None:
                arrays.append(pa.nulls(self._rows, field.type))
            else:
                gathered.extend([None] * (self._rows - len(gathered)))
                arrays.append(pa.array(gathered, field.type))
        self._columns, self._rows, self._bytes = {}, 0, 0
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to take."""
        return self._rows == 0


def _meta(row: Row, plan: tuple[FieldPlan, ...]) -> Row:
    """Bring the record's timestamp from milliseconds to the table's microseconds; null if they hold none such."""
    meta: Row = row[row_schema.META]
    timestamp_ms = meta["timestamp"]
    timestamp_us = timestamp_ms * 1000 if abs(timestamp_ms) <= _TIMESTAMP_MS_MAX else None
    return meta | {"timestamp": timestamp_us, "bytes": row_bytes(row, plan)}


def arrow_schema(fields: Iterable[Mapping[str, Any]]) -> pa.Schema:
    """Return Arrow's schema of columns in Iceberg's JSON, with their ids, by which readers of Parquet find them."""
    return pa.schema([_arrow_field(one) for one in fields])


def _arrow_field(one: Mapping[str, Any]) -> pa.Field:
    return pa.field(one["name"], _arrow(one["type"]), metadata={"PARQUET:field_id": str(one["id"])})


def _arrow(kind: Any) -> pa.DataType:
    if isinstance(kind, str):
        return _SCALARS[kind]
    if kind["type"] == "struct":
        return pa.struct([_arrow_field(one) for one in kind["fields"]])
    if kind["type"] == "list":
        return pa.list_(_arrow_part(kind, "element"))
    return pa.map_(_arrow_part(kind, "key").with_nullable(nullable=False), _arrow_part(kind, "value"))


def _arrow_part(kind: Mapping[str, Any], name: str) -> pa.Field:
    return _arrow_field({"name": name, "id": kind[f"{name}-id"], "type": kind[name]})


@lru_cache(maxsize=4096)
def fingerprint_of(schema_text: str) -> str:
    """Return the fingerprint of a schema: the SHA-256 of its text (DESIGN 3.5)."""
    return hashlib.sha256(schema_text.encode()).hexdigest()


@lru_cache(maxsize=4096)
def _schema_of(schema_text: str) -> Any:
    """Parse a schema, without logical types: a datetime costs more than the row around it, and has a smaller range."""
    return fastavro.parse_schema(without_logical_types(json.loads(schema_text)))
