"""Objects under the prefix against everything that names an object, of whichever group.

Owns which objects nobody names. A backfill writes its objects long before it announces them; from its manifest on its
outbox names them, and nothing else does until the backfill has published them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from log_partitioner.formats.dead_letter import parse_headers
from log_partitioner.formats.findings import Kind
from log_partitioner.formats.object_key import check_key
from log_partitioner_pipeline.audit.in_table import in_form
from log_partitioner_pipeline.backfill.outbox import BATCH_PREFIX, outboxes_prefix
from log_partitioner_pipeline.frames import struct
from log_partitioner_pipeline.kafka import read_messages, record_of
from log_partitioner_pipeline.objects import Objects
from log_partitioner_pipeline.reference_rows import reference_lines

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from log_partitioner.config.s3_settings import S3Settings
    from log_partitioner.config.settings import Settings
    from log_partitioner.formats.model import OffsetRanges

_OWN = ("user=", "pack/", "_schemas/", "_dead-letters/")  # see `log_partitioner.formats.object_key`
_OF_BACKFILL = rf"/({BATCH_PREFIX}[^/]+)-[0-9a-f]{{8}}-[0-9]+(\.avro|\.record\.json)?$"
_MANIFEST = r"/_backfill/([^/]+)/manifest\.json$"
_NAME = struct(object=T.StringType())
_LISTED = struct(object=T.StringType(), size=T.LongType(), modified_ms=T.LongType())
_ROWS_PER_BATCH = 8192


class ListedObjects(NamedTuple):
    """Objects that are old enough to be judged; among them `orphans`, of whatever kind, which nothing names.

    `awaited` are objects of unfinished backfills, and schemas that may be; `outboxes` belong to runs of backfills;
    `foreign` ones are of a kind that no deployment with this prefix writes.
    """

    old: DataFrame
    orphans: DataFrame
    awaited: DataFrame
    outboxes: DataFrame
    foreign: DataFrame


def list_objects(spark: SparkSession, settings: Settings) -> DataFrame:
    """List the objects under the prefix: `object`, `size`, `modified_ms`."""
    return spark.range(0, 1, 1, 1).mapInArrow(partial(_list, settings=settings), _LISTED)


def named_objects(
    spark: SparkSession, settings: Settings, *, references: OffsetRanges, letters: OffsetRanges
) -> DataFrame:
    """Return the keys that messages of these ranges name, each once: `object`."""
    lines = reference_lines(read_messages(spark, settings.kafka, references))
    lines = lines.where(F.col("location.bucket") == settings.s3.bucket)
    data, schemas = lines.select("location.object"), lines.select(F.col("schema_object").alias("object"))
    dead = read_messages(spark, settings.kafka, letters).mapInArrow(_named_by_letters, _NAME)
    return data.union(schemas).union(dead).distinct()


def sort_out(
    listed: DataFrame, named: DataFrame, s3: S3Settings, *, finished: Iterable[str], before_ms: int
) -> ListedObjects:
    """Sort the frame `listed` by who names each object; `finished` are backfills that have published everything.

    Blocks while the objects are looked up.
    """
    old = listed.where(F.col("modified_ms") < before_ms)
    is_outbox = F.col("object").startswith(outboxes_prefix(s3.prefix))
    is_own = reduce(or_, (F.col("object").startswith(f"{s3.prefix}/{form}") for form in _OWN))
    unnamed = old.where(is_own).join(named, on="object", how="left_anti").withColumn("batch_id", _found(_OF_BACKFILL))
    going_on = (
        listed.where(is_outbox & F.col("object").rlike(_MANIFEST))
        .select(F.concat(F.lit(BATCH_PREFIX), _found(_MANIFEST)).alias("batch_id"))
        .where(~F.col("batch_id").isin(*finished))
    )
    # keys of schemas do not say whose they are
    may_be_awaited = F.col("object").startswith(f"{s3.prefix}/_schemas/") & F.lit(not going_on.isEmpty())
    judged = unnamed.join(going_on.withColumn("goes_on", F.lit(True)), on="batch_id", how="left")  # noqa: FBT003
    judged = judged.withColumn("is_awaited", F.col("goes_on").isNotNull() | may_be_awaited).drop("batch_id", "goes_on")
    return ListedObjects(
        old=old,
        orphans=judged.where(~F.col("is_awaited")),
        awaited=judged.where("is_awaited"),
        outboxes=old.where(is_outbox),
        foreign=old.where(~is_own & ~is_outbox),
    )


def findings_of(orphans: DataFrame) -> DataFrame:
    """Return the findings of objects that nothing names: `in_table.FINDING`."""
    text = F.format_string("%d bytes, which nothing committed names", "size")
    found = orphans.select(F.lit(Kind.OBJECT_UNREFERENCED.value).alias("kind"), text.alias("text"), "object")
    return in_form(found.withColumn("count", F.lit(1).cast("bigint")))


def _list(batches: Iterable[pa.RecordBatch], *, settings: Settings) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        listed = Objects(settings.s3).list(settings.s3.bucket, f"{settings.s3.prefix}/")
        ours = (one for one in listed if one.key != check_key(settings.s3.prefix))  # no flush has created that one
        rows = [{"object": one.key, "size": one.size, "modified_ms": one.modified_ms} for one in ours]
        for at in range(0, len(rows), _ROWS_PER_BATCH):
            yield pa.RecordBatch.from_pylist(rows[at : at + _ROWS_PER_BATCH], to_arrow_schema(_LISTED))


def _named_by_letters(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        keys = []
        for message in batch.to_pylist():
            try:
                keys.append(parse_headers(record_of(message).headers).object_key)
            except ValueError:
                continue
        rows = [{"object": key} for key in keys if key is not None]
        yield pa.RecordBatch.from_pylist(rows, to_arrow_schema(_NAME))


def _found(pattern: str) -> Column:
    return F.regexp_extract("object", pattern, 1)
