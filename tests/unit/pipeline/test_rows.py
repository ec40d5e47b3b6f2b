"""Rows of files -> Arrow record batches: bounded by rows and by bytes, nothing lost at a bound."""

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.columns import FIXED_FIELDS, REST, plan_of
from pipeline.rows import RowGatherer, fingerprint_of, read_rows
from service.core.avro_schema import META
from service.core.container import SYNC_BYTES
from service.core.lattice import Limits
from service.core.model import PartitionKey, SourceRecord, TopicPartition
from service.core.partition_file import FileBounds, PartitionFile
from service.core.reference import Checksum, Location, Partition, Reference, SchemaLocation
from service.core.row_meta import encode_id, encode_meta, encode_origin, encode_rest, encode_user

KEY = PartitionKey("ann", "2026-03-04", 5)
TIME_US = 1_772_600_400_000_000
TP = TopicPartition("logs", 0)
BOUNDS = FileBounds(Limits(4, 5, 64), 5000, 2**20, 64 * 1024, 2**30)
BYTES_MAX = 1 << 20


def file_of(entries: Iterable[dict[str, Any]], *, timestamp_ms: int = TIME_US // 1000) -> tuple[bytes, Reference]:
    """Write a file as a worker does, all rows in one block; offsets are the entries' numbers."""
    file = PartitionFile(KEY, number=0, bounds=BOUNDS, codec="null", sync=bytes(SYNC_BYTES))
    for offset, entry in enumerate(entries):
        meta = encode_meta(
            user=encode_user(KEY.user),
            event_time_us=TIME_US,
            unique_id=encode_id(None),
            origin=encode_origin(SourceRecord(TP, offset, timestamp_ms, None, b"", ())),
            index=0,
            rest=encode_rest(timestamp_ms, None),
        )
        file.append(meta, entry, tp=TP, offset=offset, event_time_us=TIME_US, root=None, wire_bytes=100)
    content = b"".join(file.seal(lambda _start, _length: b"", metadata={}))
    return content, reference_to(content, file.rows)


def reference_to(content: bytes, entries: int) -> Reference:
    """Announce a file."""
    _, text = read_rows(content, "file")
    return Reference(
        reference_id="r",
        batch_id="b",
        worker="w",
        generation=1,
        location=Location("data", "o", None, None, len(content), Checksum("sha256", ""), ((0, len(content)),)),
        partition=Partition(*KEY),
        entries=entries,
        event_time_min_us=TIME_US,
        event_time_max_us=TIME_US,
        schema=SchemaLocation(fingerprint_of(text), "s", text),
        field_counts={},
        sources=(),
    )


def gathered(content: bytes, reference: Reference, *, columns: int | None = None) -> list[pa.RecordBatch]:
    """Gather one file for a table with so many of its columns."""
    wanted = list(plan_of(reference.schema.text or "").columns)[:columns]
    schema = to_arrow_schema(T.StructType([*FIXED_FIELDS, *wanted]))
    gatherer = RowGatherer(schema, rows_per_batch=8192, bytes_per_batch=BYTES_MAX)
    batches = list(gatherer.add_file(content, reference))
    return batches if gatherer.is_empty else [*batches, gatherer.take()]


def offsets_in(batches: list[pa.RecordBatch]) -> list[int]:
    """Give the offsets of all rows, in their order."""
    return [row[META]["offset"] for batch in batches for row in batch.to_pylist()]


def test_large_rows_make_small_batches() -> None:
    """Rows of 300 KB: 8,192 of them would be 2.4 GB, more than the offsets of one Arrow string column reach."""
    batches = gathered(*file_of({"text": "x" * 300_000} for _ in range(20)))
    assert offsets_in(batches) == list(range(20))
    assert max(batch.nbytes for batch in batches) <= BYTES_MAX
    assert max(batch.num_rows for batch in batches) > 1


def test_small_files_with_large_rows() -> None:
    """The bound is that of the batch: what many files give counts together."""
    content, reference = file_of([{"text": "x" * 300_000}])
    gatherer = RowGatherer(
        to_arrow_schema(T.StructType([*FIXED_FIELDS, *plan_of(reference.schema.text or "").columns])),
        rows_per_batch=8192,
        bytes_per_batch=BYTES_MAX,
    )
    batches = [batch for _ in range(20) for batch in gatherer.add_file(content, reference)]
    assert sum(batch.num_rows for batch in batches) >= 17
    assert max(batch.nbytes for batch in batches) <= BYTES_MAX


def test_rest_counts_by_its_text() -> None:
    """Without columns in the table, names stand in each row again: many times the bytes of the file."""
    entry = {f"field_with_a_rather_long_name_{number}": True for number in range(500)}
    batches = gathered(*file_of(entry for _ in range(1000)), columns=0)
    assert offsets_in(batches) == list(range(1000))
    assert max(batch.nbytes for batch in batches) <= 3 * BYTES_MAX
    assert json.loads(batches[-1].to_pylist()[-1][REST]) == entry


def test_small_rows_fill_batches() -> None:
    """Where rows are small their number is the bound."""
    batches = gathered(*file_of({"n": number} for number in range(10_000)))
    assert offsets_in(batches) == list(range(10_000))
    assert (len(batches), max(batch.num_rows for batch in batches) <= 8192) == (2, True)


def test_record_timestamps_that_no_column_holds() -> None:
    """A client that writes nanoseconds where Kafka wants milliseconds stops nobody: its record has no timestamp."""
    for timestamp_ms, expected in ((1_772_600_400_000_000_000, None), (2**63 - 1, None), (-1, -1000)):
        batches = gathered(*file_of([{"n": 1}], timestamp_ms=timestamp_ms))
        assert batches[0].column(META).field("timestamp").cast(pa.int64()).to_pylist() == [expected]
