"""Rows of references -> data files of the table: a Parquet file per partition, sorted, with statistics.

Runs on the executors; the driver commits what they return (`table.Table.append`). Spark's own writer costs several
times as much, because it takes each row through the JVM and a shuffle. A task that is done again leaves files that
nobody names.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import Schema
from pyspark.sql.pandas.types import to_arrow_schema

from log_partitioner.avro.schema import META
from log_partitioner_pipeline.objects import Objects
from log_partitioner_pipeline.pieces import decode_share, encode_share, share_out
from log_partitioner_pipeline.rows import RowGatherer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql import types as T

    from log_partitioner.config.s3_settings import S3Settings
    from log_partitioner.formats.reference import Reference
    from log_partitioner_pipeline.config import MaterializeSettings

_BYTES_AT_ONCE = 128 * 1024 * 1024  # of rows in memory before a task writes files of them
_HOUR_US = 3_600_000_000
_FILE = pa.schema([("file", pa.string())])
_ID = "PARQUET:field_id"

Numbers = np.ndarray[Any, np.dtype[np.int64]]


class Target(NamedTuple):
    """The table as tasks must know it: its schema as Iceberg's JSON, its place, its partitions."""

    schema_text: str
    location: str
    spec_id: int
    user_buckets: int


def write_files(
    spark: SparkSession,
    references: list[Reference],
    columns: T.StructType,
    target: Target,
    *,
    s3: S3Settings,
    settings: MaterializeSettings,
) -> list[str]:
    """Write the rows of these references, with these columns of the table; blocks until all files are there.

    Returns the files, each as Iceberg's JSON. Raises an error of Spark if a task fails again and again; an ObjectError
    stands in its text where an object is to blame.
    """
    shares = share_out(references, tasks=spark.sparkContext.defaultParallelism)
    if not shares:
        return []
    encoded = [encode_share(share) for share in shares]
    write = partial(
        _write_shares, encoded=encoded, columns=to_arrow_schema(columns), target=target, s3=s3, settings=settings
    )
    numbers = spark.range(0, len(shares), 1, len(shares))
    return [row["file"] for row in numbers.mapInArrow(write, "file string").collect()]


def _write_shares(
    numbers: Iterable[pa.RecordBatch],
    *,
    encoded: list[bytes],
    columns: pa.Schema,
    target: Target,
    s3: S3Settings,
    settings: MaterializeSettings,
) -> Iterator[pa.RecordBatch]:
    """Write the shares with these numbers; runs on an executor.

    Raises:
        ObjectError: an object is absent, altered or unreadable, or a file cannot be written.
    """
    objects = Objects(s3, threads=settings.download_threads)
    writer = FileWriter(objects, columns, target)
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            gatherer = RowGatherer(
                columns, rows_per_batch=settings.rows_per_batch, bytes_per_batch=settings.bytes_per_batch
            )
            for piece, content in objects.read_ahead(decode_share(encoded[number])):
                for rows in gatherer.add_piece(piece, content):
                    yield from writer.add(rows)
            if not gatherer.is_empty:
                yield from writer.add(gatherer.take())
    yield from writer.write()


class FileWriter:
    """Gathers rows, and writes them to one file per partition of the table."""

    def __init__(self, objects: Objects, columns: pa.Schema, target: Target) -> None:
        schema = Schema.model_validate_json(target.schema_text)
        self._objects = objects
        self._target = target
        self._columns = _with_ids(columns, json.loads(target.schema_text)["fields"])
        self._statistics = compute_statistics_plan(schema, {}), parquet_path_to_id_mapping(schema)
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take rows; writes what there is if that is much."""
        self._batches.append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= _BYTES_AT_ONCE:
            yield from self.write()

    def write(self) -> Iterator[pa.RecordBatch]:
        """Write what there is; yields the files."""
        if self._batches:
            rows = pa.Table.from_batches(self._batches)
            self._batches, self._bytes = [], 0
            files = self._objects.ahead(self._write, self._partitions(rows), size_of=lambda one: one[1].nbytes)
            yield pa.RecordBatch.from_pylist([{"file": one} for one in files], _FILE)

    def _partitions(self, rows: pa.Table) -> Iterator[tuple[list[int], pa.Table]]:
        """Sort rows by partition, user and time, and cut them where the partition changes."""
        meta = rows[META].combine_chunks()
        users, times = meta.field("user"), meta.field("event_time")
        hours = times.cast(pa.int64()).to_numpy() // _HOUR_US  # rounds down, before 1970 too
        keys = pa.table({"hour": hours, "bucket": self._buckets(users), "user": users, "time": times})
        order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
        rows = rows.take(order).cast(self._columns)
        hours, buckets = (keys[name].take(order).to_numpy() for name in ("hour", "bucket"))
        ends = np.flatnonzero((hours[1:] != hours[:-1]) | (buckets[1:] != buckets[:-1])) + 1
        for begin, end in pairwise([0, *ends.tolist(), len(hours)]):
            yield [int(hours[begin]), int(buckets[begin])], rows.slice(begin, end - begin)

    def _buckets(self, users: pa.Array) -> Numbers:
        """Return the bucket of each user, as Iceberg's transform has it."""
        encoded = users.dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        buckets = [(mmh3.hash(text.encode()) & 0x7FFFFFFF) % self._target.user_buckets for text in texts]
        found: Numbers = np.array(buckets, dtype=np.int64)[encoded.indices.to_numpy()]
        return found

    def _write(self, partition_and_rows: tuple[list[int], pa.Table]) -> str:
        partition, rows = partition_and_rows
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="zstd")
        body = sink.getvalue()
        path = f"{self._target.location}/data/{uuid.uuid4().hex}.parquet"
        found = data_file_statistics_from_parquet_metadata(pq.read_metadata(pa.BufferReader(body)), *self._statistics)
        told = found.to_serialized_dict()
        _put(self._objects, path, body.to_pybytes())
        return json.dumps(
            {
                "spec-id": self._target.spec_id,
                "content": "data",
                "file-path": path,
                "file-format": "parquet",
                "partition": partition,
                "file-size-in-bytes": body.size,
                "record-count": told["record_count"],
                "column-sizes": _map(told["column_sizes"]),
                "value-counts": _map(told["value_counts"]),
                "null-value-counts": _map(told["null_value_counts"]),
                "lower-bounds": _map(_hexadecimal(told["lower_bounds"])),
                "upper-bounds": _map(_hexadecimal(told["upper_bounds"])),
                "split-offsets": told["split_offsets"],
            }
        )


def _put(objects: Objects, path: str, body: bytes) -> None:
    if path.startswith("s3://"):
        bucket, _, key = path.removeprefix("s3://").partition("/")
        objects.create(bucket, key, body, {})
    else:
        file = Path(path.removeprefix("file:"))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(body)


def _map(values: Mapping[int, Any]) -> dict[str, list[Any]]:
    return {"keys": list(values), "values": list(values.values())}


def _hexadecimal(values: Mapping[int, bytes]) -> dict[int, str]:
    return {number: value.hex().upper() for number, value in values.items()}


def _with_ids(columns: pa.Schema, fields: list[dict[str, Any]]) -> pa.Schema:
    """Give columns the field ids of the table, by which its readers find them."""
    by_name = {field["name"]: field for field in fields}
    return pa.schema([_numbered(one, by_name[one.name]) for one in columns])


def _numbered(field: pa.Field, iceberg: Mapping[str, Any]) -> pa.Field:
    return pa.field(field.name, _inner(field.type, iceberg["type"]), field.nullable, {_ID: str(iceberg["id"])})


def _inner(kind: pa.DataType, iceberg: Any) -> pa.DataType:
    if pa.types.is_struct(kind):
        by_name = {field["name"]: field for field in iceberg["fields"]}
        return pa.struct([_numbered(one, by_name[one.name]) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(_numbered(kind.value_field, _part(iceberg, "element")))
    if pa.types.is_map(kind):
        key, value = (_part(iceberg, name) for name in ("key", "value"))
        return pa.map_(_numbered(kind.key_field, key), _numbered(kind.item_field, value))
    return kind


def _part(iceberg: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return {"id": iceberg[f"{name}-id"], "type": iceberg[name]}
