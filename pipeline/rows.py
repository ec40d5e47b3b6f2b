"""Bytes of a file -> rows of the table, as Arrow record batches. Runs on the executors.

Rows of many small files are gathered column by column: a batch costs by the columns of the table once, a row by the
fields that it has.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple, cast

import fastavro
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from pipeline.columns import REFERENCE, REST, FieldPlan, FilePlan, parse_column_name, plan_of
from pipeline.errors import ObjectError
from pipeline.table_rows import write_object
from service.core.avro_binary import decode_long, decode_string, encode_long
from service.core.avro_schema import META
from service.core.container import MAGIC, SYNC_BYTES, Codec, decompress
from service.core.reference import Reference

Row = dict[str, Any]

_STEPS_PER_BATCH = 16
_TIMESTAMP_MS_MAX = (2**63 - 1) // 1000


class Block(NamedTuple):
    """The rows of one Avro block, and how many bytes they are encoded."""

    rows: list[Row]
    size: int


class RowGatherer:
    """Gathers rows until there are enough for a record batch, by their number or by their bytes.

    Bytes are those of the file, and of the text that goes to `_rest`. A batch has more than `bytes_per_batch` only
    where a single block or row has.
    """

    def __init__(self, schema: pa.Schema, *, rows_per_batch: int, bytes_per_batch: int) -> None:
        self._schema = schema
        self._columns_of_table = from_arrow_schema(schema)
        self._plans: dict[str, FilePlan] = {}
        self._rows_per_batch = rows_per_batch
        self._bytes_per_batch = bytes_per_batch
        self._columns: dict[str, list[Any]] = {}
        self._rows = self._bytes = 0

    def add_file(self, content: bytes, reference: Reference) -> Iterator[pa.RecordBatch]:
        """Take the rows of the file that a reference points to; yields a batch whenever one is full.

        Raises:
            ObjectError: it is not the Avro file that the reference describes.
        """
        blocks, schema_text = _read_referenced_blocks(content, reference)
        reference_id = reference.reference_id
        if fingerprint_of(schema_text) != reference.schema.fingerprint:
            raise ObjectError(
                f"{_name_of(reference)} was not written with the schema that reference {reference_id} names"
            )
        plan = self._plans.get(schema_text)
        if plan is None:
            plan = self._plans[schema_text] = plan_of(schema_text).fit(self._columns_of_table)
        for rows, size in self._steps(blocks):
            is_too_many = self._rows + len(rows) > self._rows_per_batch
            if self._rows and (is_too_many or self._bytes + size > self._bytes_per_batch):
                yield self.take()
            self._add(rows, plan, reference_id)
            self._bytes += size
            if self._rows >= self._rows_per_batch or self._bytes >= self._bytes_per_batch:
                yield self.take()

    def _steps(self, blocks: list[Block]) -> Iterator[Block]:
        """Cut blocks into steps much smaller than a batch: what their rows take in `_rest` is known only afterwards."""
        size_max = max(1, self._bytes_per_batch // _STEPS_PER_BATCH)
        for rows, size in blocks:
            count = min(self._rows_per_batch, max(1, len(rows) * size_max // max(1, size)))
            for begin in range(0, len(rows), count):
                some = rows[begin : begin + count]
                yield Block(some, size * len(some) // len(rows))

    def _add(self, rows: list[Row], plan: FilePlan, reference_id: str) -> None:
        self._gather(META, [_meta(row[META]) for row in rows])
        self._gather(REFERENCE, [reference_id] * len(rows))
        for avro_name, column, convert in plan.fields:
            values = [row[avro_name] for row in rows]
            if convert is not None:
                values = [None if value is None else convert(value) for value in values]
            self._gather(column, values)
        if plan.rest:
            texts = [_rest_of(row, plan.rest) for row in rows]
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
        """Make a batch of what was gathered."""
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


def _rest_of(row: Row, fields: tuple[FieldPlan, ...]) -> str | None:
    """Write the fields for which the table has no column as one object."""
    members = []
    for avro_name, column, convert in fields:
        value = row[avro_name]
        if value is not None:
            members.append((*parse_column_name(column), value if convert is None else convert(value)))
    return write_object(members) if members else None


def _meta(meta: Row) -> Row:
    """Bring the record's timestamp from milliseconds to the table's microseconds; null where they hold none such."""
    timestamp_ms = meta["timestamp"]
    meta["timestamp"] = timestamp_ms * 1000 if timestamp_ms <= _TIMESTAMP_MS_MAX else None
    return meta


def read_referenced_rows(content: bytes, reference: Reference) -> tuple[list[Row], str]:
    """Read the rows of what a reference points to, as `read_rows` does; as many as it says.

    Raises:
        ObjectError: it is no Avro file, or broken, or has another number of rows.
    """
    blocks, schema_text = _read_referenced_blocks(content, reference)
    return _rows_of(blocks), schema_text


def _read_referenced_blocks(content: bytes, reference: Reference) -> tuple[list[Block], str]:
    where = _name_of(reference)
    blocks, schema_text = _read_blocks(content, where)
    found = sum(len(block.rows) for block in blocks)
    if found != reference.entries:
        said = f"reference {reference.reference_id} says {reference.entries}"
        raise ObjectError(f"{where} holds {found} entries, {said}")
    return blocks, schema_text


def _rows_of(blocks: list[Block]) -> list[Row]:
    return list(chain.from_iterable(block.rows for block in blocks))


def _name_of(reference: Reference) -> str:
    return f"s3://{reference.location.bucket}/{reference.location.object}"


def read_rows(content: bytes, where: str) -> tuple[list[Row], str]:
    """Read an Avro file: rows by Avro names, times as integers, and the text of the schema they were written with.

    Raises:
        ObjectError: it is no Avro file, or broken.
    """
    blocks, schema_text = _read_blocks(content, where)
    return _rows_of(blocks), schema_text


def _read_blocks(content: bytes, where: str) -> tuple[list[Block], str]:
    try:
        schema_text, codec, at = read_header(content)
        blocks: list[Block] = []
        while at < len(content) - SYNC_BYTES:
            count, at = decode_long(content, at)
            length, at = decode_long(content, at)
            data = decompress(content[at : at + length], codec)
            blocks.append(Block(_read_block(count, data, schema_text), len(data)))
            at = _skip_sync(content, at + length)
    except Exception as error:  # fastavro raises whatever the bytes lead it to
        raise ObjectError(f"{where} is not an Avro file that can be read: {error!r}") from error
    return blocks, schema_text


def read_header(content: bytes) -> tuple[str, Codec, int]:
    """Read the header of a container file: schema text, codec, and where the first block begins.

    Raises:
        ValueError: it is none.
    """
    if not content.startswith(MAGIC):
        raise ValueError("it does not begin with Avro's four bytes")
    metadata, at = {}, len(MAGIC)
    while count := content[at]:
        count, at = decode_long(content, at)
        for _ in range(count):
            name, at = decode_string(content, at)
            metadata[name], at = decode_string(content, at)
    return metadata["avro.schema"], cast("Codec", metadata["avro.codec"]), at + 1 + SYNC_BYTES


def _skip_sync(content: bytes, at: int) -> int:
    end = at + SYNC_BYTES
    if content[at:end] != content[-SYNC_BYTES:]:
        raise ValueError("a block does not end where it says")
    return end


def _read_block(count: int, data: bytes, schema_text: str) -> list[Row]:
    """Decode the rows of a block in one call: with a count before and a zero behind it, a block is an Avro array."""
    array = io.BytesIO(b"".join((encode_long(count), data, b"\0")))
    return cast("list[Row]", fastavro.schemaless_reader(array, _array_schema(schema_text), None))


@lru_cache(maxsize=4096)
def fingerprint_of(schema_text: str) -> str:
    """Give the fingerprint of a schema: the SHA-256 of its text (DESIGN 3.5)."""
    return hashlib.sha256(schema_text.encode()).hexdigest()


@lru_cache(maxsize=4096)
def _array_schema(schema_text: str) -> Any:
    """Parse a schema, without logical types: a datetime costs more than the row around it, and has a smaller range."""
    return fastavro.parse_schema({"type": "array", "items": _plain(json.loads(schema_text))})


def _plain(avro: Any) -> Any:
    if isinstance(avro, dict):
        return {key: _plain(value) for key, value in avro.items() if key != "logicalType"}
    return [_plain(item) for item in avro] if isinstance(avro, list) else avro
