"""Work on the executors: records, objects, dead letters and rows of the table -> rows of `frames`.

The oracle (`log_partitioner.proof.oracle`) judges; none of the worker's code does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from log_partitioner.formats.dead_letter import RECORD_SUFFIX, decode_stored_record, own_headers, parse_headers
from log_partitioner.formats.findings import Kind
from log_partitioner.formats.model import SourceRecord
from log_partitioner.formats.object_key import check_key
from log_partitioner.proof.oracle.equal import canonical, digest
from log_partitioner.proof.oracle.judge import Judge, record_digest, value_digest
from log_partitioner.proof.oracle.published_schema import META
from log_partitioner_pipeline.audit.object_reader import ObjectReader, root_text
from log_partitioner_pipeline.columns import Struct, restore
from log_partitioner_pipeline.errors import ObjectError
from log_partitioner_pipeline.kafka import record_of
from log_partitioner_pipeline.objects import Objects, Stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql import types as T

    from log_partitioner.config.settings import Settings
    from log_partitioner.proof.audit.put_away import PutAway
    from log_partitioner.proof.oracle.json_text import Parse

Row = dict[str, Any]
Batches = Iterable[pa.RecordBatch]

_ROWS_PER_BATCH = 8192


def judge_records(
    batches: Batches, *, settings: Settings, put_away: PutAway, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Turn source records into the places where their entries must be."""
    judge = Judge(settings)
    yield from batched((row for batch in batches for row in _judged(batch, judge, put_away)), schema)


def _judged(batch: pa.RecordBatch, judge: Judge, put_away: PutAway) -> Iterator[Row]:
    for message in batch.to_pylist():
        record = put_away.seen(record_of(message))
        place = {"topic": record.tp.topic, "partition": record.tp.partition, "offset": record.offset}
        judged = judge.judge(record)
        common = place | {"timestamp_ms": record.timestamp_ms, "entries": len(judged.entries)}
        if not judged.entries:
            yield common | {"index": -1}
            continue
        whole = judged.is_whole
        may_be_dead = any(entry.reasons for entry in judged.entries)
        bytes_of_it = _digest_of(record) if may_be_dead else None
        for index, (deliverable, reasons) in enumerate(judged.entries):
            row = common | {"index": index, "deliverable": deliverable is not None, "whole": whole, "reasons": ""}
            if reasons:
                row |= {"reasons": f",{','.join(sorted(reasons))},", "record_digest": bytes_of_it}
            if deliverable is not None:
                user, date, hour = deliverable.key
                root = deliverable.root
                row |= {
                    "user": user,
                    "date": date,
                    "hour": hour,
                    "event_time_us": deliverable.event_time_us,
                    "id": deliverable.id,
                    "root": None if root is None else root_text(*root),
                    "digest": deliverable.digest,
                }
            yield row


def read_files(batches: Batches, *, settings: Settings, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """References (`reference_rows.REFERENCE` and `taken`), those of one object together -> the rows they point to."""
    reader = ObjectReader(settings)
    yield from batched(reader.read(row for batch in batches for row in batch.to_pylist()), schema)


def read_dead_letters(batches: Batches, *, settings: Settings, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Dead letters -> the entries that they name."""
    objects = Objects(settings.s3)
    fetch = lambda key: objects.fetch((settings.s3.bucket, key, None))  # noqa: E731
    rows = (row for batch in batches for message in batch.to_pylist() for row in _named(message, fetch))
    yield from batched(rows, schema)


def _named(message: Row, fetch: Callable[[str], Stored | None]) -> Iterator[Row]:
    headers = _headers_of(message)
    at = f"dead letter {message['partition']}/{message['offset']}"
    try:
        says = parse_headers(headers)
    except ValueError as error:
        yield {"kind": Kind.DEAD_LETTER_WRONG, "text": f"{at}: its headers cannot be read: {error!r}"}
        return
    indexes = says.indexes
    row = {
        "topic": says.topic,
        "partition": says.partition,
        "offset": says.offset,
        "end_offset": says.end_offset,
        "reason": says.reason,
        "batch_id": says.batch_id,
        "group_id": says.group_id,
        "object": says.object_key,
        "all_of_it": indexes is None,
        "first_index": indexes[0] if indexes else -1,
    }
    value, key, own = value_digest(message["value"]), message["key"], own_headers(headers)
    problem: Row = {}
    if says.object_key is not None:
        try:
            stored = fetch(says.object_key)
            if stored is None:
                text = f"{at}: there is no object {says.object_key}"
                problem = {"kind": Kind.OBJECT_MISSING, "text": text}
            elif says.object_key.endswith(RECORD_SUFFIX):
                whole = decode_stored_record(stored.data)
                value, key, own = value_digest(whole.value), whole.key, tuple(whole.headers)
            else:
                value = value_digest(stored.data)
        except ObjectError as error:
            problem = {"text": f"{at}: {error}", "unread": True}
        except msgspec.DecodeError as error:
            problem = {"kind": Kind.DEAD_LETTER_WRONG, "text": f"{at}: {says.object_key} is no record: {error}"}
    if problem:
        yield row | problem
    bytes_of_it = None if problem else record_digest(value=value, key=key, headers=own)
    for index in (0,) if indexes is None else indexes:
        yield row | {"index": index, "record_digest": bytes_of_it}


def read_table(batches: Batches, *, settings: Settings, columns: Struct, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows of the table, in `_meta` the columns of `frames.TABLE` -> their entries."""
    parse = Judge(settings).parse
    yield from batched((_table_row(row, columns, parse) for batch in batches for row in batch.to_pylist()), schema)


def _table_row(row: Row, columns: Struct, parse: Parse) -> Row:
    meta: Row = row[META]
    return meta | {"digest": digest(canonical(restore(row, columns, parse)))}


def list_objects(batches: Batches, *, settings: Settings, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """One row, whatever it is -> the keys under the prefix."""
    objects = Objects(settings.s3)
    for _ in batches:
        listed = objects.list(settings.s3.bucket, f"{settings.s3.prefix}/")
        ours = (one for one in listed if one.key != check_key(settings.s3.prefix))  # no flush has created that one
        rows = ({"object": one.key, "size": one.size, "modified_ms": one.modified_ms} for one in ours)
        yield from batched(rows, schema)


def _headers_of(message: Row) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((header["key"], header["value"]) for header in message["headers"] or ())


def _digest_of(record: SourceRecord) -> bytes:
    return record_digest(value=value_digest(record.value), key=record.key, headers=record.headers)


def map_rows(frame: DataFrame, read: Callable[[Iterator[Row]], Iterator[Row]], schema: T.StructType) -> DataFrame:
    """Let executors read the rows of each task of a frame as other rows; nothing happens before an action."""
    arrow = to_arrow_schema(schema)
    return frame.mapInArrow(
        lambda batches: batched(read(row for batch in batches for row in batch.to_pylist()), arrow), schema
    )


def batched(rows: Iterable[Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Gather rows into record batches; a field that a row lacks is null."""
    gathered: list[Row] = []
    for row in rows:
        gathered.append(row)
        if len(gathered) == _ROWS_PER_BATCH:
            yield pa.RecordBatch.from_pylist(gathered, schema)
            gathered = []
    if gathered:
        yield pa.RecordBatch.from_pylist(gathered, schema)
