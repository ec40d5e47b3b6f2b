"""References as rows of frames, one for each line of a message, and back on the executors.

Owns the columns. A message without references of a known version is one row without a `reference_id`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from log_partitioner.formats.model import PartitionKey
from log_partitioner.formats.reference import (
    Checksum,
    Location,
    Reference,
    SchemaLocation,
    SourceRange,
    decode_message,
    decode_references,
)
from log_partitioner_pipeline.columns import Kind, ListOf, longs, strings, struct_of, to_iceberg
from log_partitioner_pipeline.pieces import projection_text
from log_partitioner_pipeline.rows import arrow_schema, fingerprint_of

Row = dict[str, Any]

_LOCATION = struct_of(
    **strings("bucket", "object", "etag", "version_id"),
    size="long",
    checksum=struct_of(**strings("algorithm", "value")),
    ranges=ListOf(ListOf("long")),
)
_SOURCE = struct_of(
    topic="string",
    partition="int",
    **longs("first_offset", "next_offset", "min_offset", "max_offset", "entries"),
)
# `header_bytes` are the object's, `start` and `length` the bytes of the reference's blocks; `projection` is JSON text.
# `is_keyed`: the key of the message is its batch id; `is_text_true`: the text of the schema in it, where there is one,
# has the schema's fingerprint.
LINE: dict[str, Kind] = {
    "line": "int",
    **strings("reference_id", "batch_id", "group_id", "worker"),
    "generation": "long",
    "location": _LOCATION,
    **strings("user", "date"),
    "hour": "int",
    **longs("entries", "event_time_min_us", "event_time_max_us"),
    **strings("schema_fingerprint", "schema_object", "projection"),
    "sources": ListOf(_SOURCE),
    **longs("header_bytes", "start", "length"),
    "is_keyed": "boolean",
    "is_text_true": "boolean",
}
_PLACE: dict[str, Kind] = {"message_partition": "int", "message_offset": "long", "message_timestamp_ms": "long"}
REFERENCE = from_arrow_schema(arrow_schema(to_iceberg(struct_of(**_PLACE, **LINE))))
_ROWS_PER_BATCH = 4096
_ARROW = to_arrow_schema(REFERENCE)


def expand(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Messages (partition, offset, timestamp_ms, key, value) -> `REFERENCE`, in the order of their lines."""
    gathered: list[Row] = []
    for batch in batches:
        for message in batch.to_pylist():
            at = {f"message_{name}": message[name] for name in ("partition", "offset", "timestamp_ms")}
            gathered += (at | line for line in lines_of(message["key"], message["value"]))
            if len(gathered) >= _ROWS_PER_BATCH:
                yield pa.RecordBatch.from_pylist(gathered, _ARROW)
                gathered = []
    if gathered:
        yield pa.RecordBatch.from_pylist(gathered, _ARROW)


def lines_of(key: bytes | None, value: bytes | None) -> list[Row]:
    """Return the rows of a message, `REFERENCE` without the message's place; one that is empty if it has none."""
    try:
        decoded, references = decode_message(value or b""), decode_references(value or b"")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return [{}]
    schema = decoded.schema
    of_all = {
        "is_keyed": key == decoded.batch_id.encode(),
        "is_text_true": schema.text is None or fingerprint_of(schema.text) == schema.fingerprint,
        "header_bytes": decoded.object.header_bytes,
    }
    lines = [
        of_all | _row_of(one, number) | {"start": line.start, "length": line.length}
        for number, (line, one) in enumerate(zip(decoded.references, references, strict=True))
    ]
    return lines or [of_all]  # one without lines announces nothing


def _row_of(one: Reference, line: int) -> Row:
    location = msgspec.structs.asdict(one.location) | {"checksum": msgspec.structs.asdict(one.location.checksum)}
    return {
        "line": line,
        "reference_id": one.reference_id,
        "batch_id": one.batch_id,
        "group_id": one.group_id,
        "worker": one.worker,
        "generation": one.generation,
        "location": location,
        **one.partition_key._asdict(),
        "entries": one.entries,
        "event_time_min_us": one.event_time_min_us,
        "event_time_max_us": one.event_time_max_us,
        "schema_fingerprint": one.schema.fingerprint,
        "schema_object": one.schema.object,
        "projection": projection_text(one),
        "sources": [msgspec.structs.asdict(source) for source in one.sources],
    }


def reference_of(row: Row) -> Reference:
    """Return the reference of a row, without the text of its schema; it has an id."""
    location = row["location"]
    checksum = Checksum(**location["checksum"])
    return Reference(
        **{name: row[name] for name in ("reference_id", "batch_id", "group_id", "worker", "generation", "entries")},
        location=Location(**(location | {"checksum": checksum, "ranges": tuple(map(tuple, location["ranges"]))})),
        partition_key=PartitionKey(row["user"], row["date"], row["hour"]),
        event_time_min_us=row["event_time_min_us"],
        event_time_max_us=row["event_time_max_us"],
        schema=SchemaLocation(row["schema_fingerprint"], row["schema_object"]),
        projection=msgspec.json.decode(row["projection"]),
        sources=tuple(SourceRange(**source) for source in row["sources"]),
    )


class References(NamedTuple):
    """References as columns, each id once, and messages without references."""

    every: DataFrame
    unreadable: DataFrame


def reference_lines(messages: DataFrame) -> DataFrame:
    """Return every line of every message."""
    return messages.select("partition", "offset", "timestamp_ms", "key", "value").mapInArrow(expand, REFERENCE)


def references(messages: DataFrame, *, keep: Callable[[DataFrame], DataFrame]) -> References:
    """Return the first line of each reference id; `keep` keeps the frame from which both results come."""
    by_id = Window.partitionBy("reference_id").orderBy("message_partition", "message_offset", "line")
    is_reference = F.col("reference_id").isNotNull()
    ranked = keep(reference_lines(messages).withColumn("nth", F.when(is_reference, F.row_number().over(by_id))))
    return References(
        every=ranked.where(F.col("nth") == 1).drop("nth"), unreadable=ranked.where(F.col("nth").isNull()).drop("nth")
    )
