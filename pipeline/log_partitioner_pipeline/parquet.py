"""Rows -> data files of a table: a Parquet file per partition, sorted, with statistics.

The executors write rows of references; the driver commits what they return (`table.Table.append`). Spark's own writer
costs several times as much, because it takes each row through the JVM and a shuffle. A task that is done again leaves
files that no snapshot names.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, timedelta
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

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

from log_partitioner.proof.audit.store import S3_URL, Address
from log_partitioner_pipeline.columns import USER
from log_partitioner_pipeline.compiled import make_gatherer
from log_partitioner_pipeline.objects import Objects
from log_partitioner_pipeline.pieces import decode_share, encode_share, share_out

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from log_partitioner.config.s3_settings import S3Settings
    from log_partitioner.formats.reference import Reference

_BATCH_ROWS, _BATCH_BYTES = 8192, 16 * 1024 * 1024
_BYTES_AT_ONCE = 128 * 1024 * 1024  # of rows in memory before a task writes files of them
_UNIT_US = {"hours": 3_600_000_000, "days": 86_400_000_000}
_FILE = pa.schema([("file", pa.string())])

Numbers = np.ndarray[Any, np.dtype[np.int64]]


class Target(NamedTuple):
    """A table as those who write its files must know it: columns in Iceberg's JSON, its place, partitions, order.

    Partitions are hours or days of `time`, and buckets of users in them if `user_buckets` is not 0.
    """

    fields: list[dict[str, Any]]
    location: str
    spec_id: int
    time: str
    unit: Literal["hours", "days"]
    order: tuple[str, ...]
    user_buckets: int = 0


def write_rows(batches: Iterable[pa.RecordBatch], target: Target, *, s3: S3Settings) -> list[str]:
    """Write rows here; returns the files, each as Iceberg's JSON.

    Raises:
        ObjectError: a file cannot be written.
    """
    writer = FileWriter(Objects(s3), target)
    written = [*chain.from_iterable(map(writer.add, batches)), *writer.write()]
    return [file for batch in written for file in batch.column(0).to_pylist()]


def write_files(
    spark: SparkSession,
    references: list[Reference],
    target: Target,
    *,
    s3: S3Settings,
) -> list[str]:
    """Write the rows of these references; blocks until all files are there.

    Returns the files, each as Iceberg's JSON. Raises an error of Spark if a task fails again and again; its text has
    the ObjectError if an object is to blame.
    """
    shares = share_out(references, tasks=spark.sparkContext.defaultParallelism)
    if not shares:
        return []
    encoded = [encode_share(share) for share in shares]
    write = partial(_write_shares, encoded=encoded, target=target, s3=s3)
    numbers = spark.range(0, len(shares), 1, len(shares))
    return [row["file"] for row in numbers.mapInArrow(write, "file string").collect()]


def _write_shares(
    numbers: Iterable[pa.RecordBatch],
    *,
    encoded: list[bytes],
    target: Target,
    s3: S3Settings,
) -> Iterator[pa.RecordBatch]:
    """Write the shares with these numbers; runs on an executor.

    Raises:
        ObjectError: an object is absent, altered or unreadable, or a file cannot be written.
    """
    objects = Objects(s3)
    writer = FileWriter(objects, target)
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            gatherer = make_gatherer(target.fields, rows_per_batch=_BATCH_ROWS, bytes_per_batch=_BATCH_BYTES)
            for piece, content in objects.read_ahead(decode_share(encoded[number])):
                for rows in gatherer.add_piece(piece, content):
                    yield from writer.add(rows)
            if not gatherer.is_empty:
                yield from writer.add(gatherer.take())
    yield from writer.write()


def read_columns(files: Iterable[tuple[str, int]], columns: list[str], *, s3: S3Settings) -> Iterator[pa.Table]:
    """Read columns of data files, told by path and bytes, here, each file whole; blocks until each is there.

    Raises:
        ObjectError: a file is not there, or cannot be read.
    """
    objects = Objects(s3)
    for content in objects.ahead(lambda file: objects.read_file(file[0]), files, size_of=lambda file: file[1]):
        yield pq.read_table(pa.BufferReader(content), columns=columns)


class FileWriter:
    """Gathers rows, and writes them to one file per partition of the table."""

    def __init__(self, objects: Objects, target: Target) -> None:
        schema = Schema.model_validate({"type": "struct", "fields": target.fields})
        self._objects = objects
        self._target = target
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
        """Sort rows by partition and the table's order, and cut them where the partition changes."""
        target = self._target
        times_us = rows[target.time].cast(pa.int64()).to_numpy()
        keys = {"~time": times_us // _UNIT_US[target.unit]}  # rounds down, before 1970 too
        if target.user_buckets:
            keys["~bucket"] = _buckets(rows[USER].combine_chunks(), target.user_buckets)
        order = pc.sort_indices(
            pa.table(keys | {name: rows[name] for name in target.order}),
            sort_keys=[(name, "ascending") for name in (*keys, *target.order)],
        )
        rows = rows.take(order)
        places = np.stack([values[order.to_numpy()] for values in keys.values()])
        ends = np.flatnonzero((places[:, 1:] != places[:, :-1]).any(axis=0)) + 1
        for begin, end in pairwise([0, *ends.tolist(), rows.num_rows]):
            yield places[:, begin].tolist(), rows.slice(begin, end - begin)

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
                "partition": [_day(partition[0]), *partition[1:]] if self._target.unit == "days" else partition,
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


def _day(number: int) -> str:
    """Return a day since 1970 as Iceberg's JSON has the partition of one; hours are numbers there."""
    return (date(1970, 1, 1) + timedelta(days=number)).isoformat()


def _buckets(users: pa.Array, buckets: int) -> Numbers:
    """Return the bucket of each user, as Iceberg's transform has it."""
    encoded = users.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    found = np.array([(mmh3.hash(text.encode()) & 0x7FFFFFFF) % buckets for text in texts], dtype=np.int64)
    of_each: Numbers = found[encoded.indices.to_numpy()]
    return of_each


def _put(objects: Objects, path: str, body: bytes) -> None:
    if path.startswith(S3_URL):
        bucket, key, _ = Address.named(path)
        objects.create(bucket, key, body, {})
    else:
        file = Path(path.removeprefix("file:"))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(body)


def _map(values: Mapping[int, Any]) -> dict[str, list[Any]]:
    return {"keys": list(values), "values": list(values.values())}


def _hexadecimal(values: Mapping[int, bytes]) -> dict[int, str]:
    return {number: value.hex().upper() for number, value in values.items()}
