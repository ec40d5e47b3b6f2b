"""Compares raw objects with the table for the last time: has it every row of an object, once, with the same values?

An object is read again, by its version; size, checksum and etag are compared on the way. Digests of rows - position,
`_meta` and values - are summed up by reference on both sides. So rows that were deleted or doubled, values that were
updated, and columns that were dropped or renamed are seen, whoever did it and whenever. Rows of erased users are in
objects and no more in the table: their references count as the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from log_partitioner.adapters.schema_registry import schema_finder
from log_partitioner.errors import CouldNotTellError
from log_partitioner.proof.audit.store import Address, S3Reader
from log_partitioner.proof.oracle.container import UNREADABLE, Container, spans_of
from log_partitioner.proof.oracle.equal import digest
from log_partitioner.proof.oracle.judge import Judge
from log_partitioner.proof.oracle.published_schema import META, HeaderSchema
from log_partitioner_pipeline.audit.digests import Digests, digest_of
from log_partitioner_pipeline.audit.in_table import sums_of, with_sums
from log_partitioner_pipeline.columns import EVENT_TIME, REFERENCE
from log_partitioner_pipeline.erasures import Erasures
from log_partitioner_pipeline.frames import struct
from log_partitioner_pipeline.reference_rows import REFERENCE as REFERENCE_COLUMNS
from log_partitioner_pipeline.reference_rows import reference_of
from log_partitioner_pipeline.session import CATALOG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from log_partitioner.config.settings import Settings
    from log_partitioner.formats.reference import Reference
    from log_partitioner.proof.audit.store import FetchedObject
    from log_partitioner_pipeline.config import JobSettings

OBJECT = ("bucket", "object")
_OTHER_ROWS = "table {table} has other rows than it"
_SUMMED = struct(
    reference_id=T.StringType(),
    **dict.fromkeys(Digests._fields, T.LongType()),
    is_gone=T.BooleanType(),
    text=T.StringType(),
)


class Outcome(StrEnum):
    """The outcome of a comparison of one object."""

    SAME = "same"  # the table has each of its rows once, and no other under the ids of its references
    GONE = "gone"  # it is not there
    OTHER = "other"  # the table has other rows, or the object cannot be read, or is not what was referenced


def compare_with_table(spark: SparkSession, settings: JobSettings, references: DataFrame) -> DataFrame:
    """Return `bucket`, `object`, `outcome` and, of other ones, a `text` for each object of these references.

    `references` are all into these objects: `reference_rows.REFERENCE` with `bucket` and `object`. The table is read as
    it is when the frame is computed: a caller asks `changes.change_by_others` for changes since then. Costs a request
    and the bytes of each object, and the table's rows of the time between the first entry and the last.
    """
    once, erased = references.dropDuplicates([*OBJECT, "reference_id"]), Erasures(spark, settings).read()
    in_objects = (
        once.select(*REFERENCE_COLUMNS.names)
        .repartition("location.bucket", "location.object")
        .sortWithinPartitions("location.bucket", "location.object", "location.version_id", "start")
        .mapInArrow(partial(_sum_objects, settings=settings.worker), _SUMMED)
    )
    compared = with_sums(in_objects, sums_of(_rows_of_table(spark, settings, once), settings))
    by_reference = compared.select("reference_id", "is_gone", "text", "is_other")
    differs = (F.coalesce("is_other", F.lit(True)) & ~F.col("is_erased")) | F.col("text").isNotNull()  # noqa: FBT003
    outcome = F.when(F.bool_or("is_gone"), Outcome.GONE).when(F.bool_or(differs), Outcome.OTHER).otherwise(Outcome.SAME)
    other_rows = F.lit(_OTHER_ROWS.format(table=settings.pipeline.table.name))
    return (
        once.select(*OBJECT, "reference_id", erased.column().alias("is_erased"))
        .join(by_reference, on="reference_id", how="left")
        .groupBy(*OBJECT)
        .agg(outcome.alias("outcome"), F.coalesce(F.max("text"), other_rows).alias("text"))
    )


def _rows_of_table(spark: SparkSession, settings: JobSettings, references: DataFrame) -> DataFrame:
    """Return the table's rows of these references, with the columns that it has now.

    A snapshot would be read with the columns of its own time (ADR 10): one that was dropped since would still be there.
    """
    times = references.agg(F.min("event_time_min_us").alias("first"), F.max("event_time_max_us").alias("last")).first()
    assert times is not None, "an aggregate has one row"
    first, last = (F.timestamp_micros(F.lit(times[name])) for name in ("first", "last"))
    ids = references.select(F.col("reference_id").alias(REFERENCE)).distinct()
    rows = spark.table(f"{CATALOG}.{settings.pipeline.table.name}")
    return rows.where(F.col(EVENT_TIME).between(first, last)).join(ids, on=REFERENCE, how="left_semi")


def _sum_objects(batches: Iterable[pa.RecordBatch], *, settings: Settings) -> Iterator[pa.RecordBatch]:
    """Read objects, the references of one together, and sum up the digests of their rows."""
    s3, judge = S3Reader(settings.s3, threads=1), Judge(settings, schema_finder(settings))
    references = (reference_of(row) for batch in batches for row in batch.to_pylist())
    for address, some in groupby(references, key=lambda one: Address.of(one.location)):
        theirs = list(some)
        try:
            stored = s3.get(address)
            rows = [{"is_gone": True}] * len(theirs) if stored is None else list(_sums(stored, theirs, judge))
        except (CouldNotTellError, *UNREADABLE) as error:
            rows = [{"text": f"it cannot be read: {error}"}] * len(theirs)
        named = [row | {"reference_id": one.reference_id} for row, one in zip(rows, theirs, strict=True)]
        yield pa.RecordBatch.from_pylist(named, to_arrow_schema(_SUMMED))


def _sums(stored: FetchedObject, references: list[Reference], judge: Judge) -> Iterator[dict[str, Any]]:
    container = Container(stored.data)
    header = HeaderSchema(container.schema, parse=judge.parse)
    for reference in references:
        at = reference.location
        if stored.differences(at.size, at.checksum, at.etag):
            yield {"text": "its bytes are not those that were referenced"}
            continue
        sums = Digests()
        for begin, end in spans_of(reference, container):
            for row in container.rows(begin, end, header.published.avro):
                sums = sums.with_row(digest_of(row[META], digest(header.published.restore(row))))
        yield sums._asdict()
