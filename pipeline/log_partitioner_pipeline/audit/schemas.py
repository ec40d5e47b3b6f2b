"""Schemas of objects against the references that name them: their text, and that each of their fields is some line's.

A schema is read once for all batches that have objects of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from log_partitioner.formats.findings import Kind
from log_partitioner.formats.projection import ITEMS, NAME_PROPERTY, VALUES, number_of
from log_partitioner_pipeline.audit.executors import batched
from log_partitioner_pipeline.objects import Objects, Stored
from log_partitioner_pipeline.rows import fingerprint_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from log_partitioner.config.settings import Settings
    from log_partitioner_pipeline.audit.ground import Announced
    from log_partitioner_pipeline.config import JobSettings

Avro = Any
_SCHEMA = ("bucket", "schema_object", "schema_fingerprint")
_FOUND = T.StructType(
    [T.StructField(name, T.StringType()) for name in ("kind", "object", "batch_id", "worker", "text")]
)
_SCHEMA_BYTES = 64 * 1024


def wrong_schemas(settings: JobSettings, announced: Announced, selected: DataFrame) -> DataFrame:
    """Find schemas whose object has other bytes, and fields of a batch's objects that none of its references has.

    Only schemas and batches of the `selected` references are judged. A schema that is not there is no finding of this
    function; the fields of a batch are judged only if all of the batch is known to be there.
    """
    sharing = ["batch_id", *_SCHEMA[1:]]
    references = announced.references.join(selected.select(*sharing).distinct(), on=sharing, how="left_semi")
    whole = _whole_batches(announced).withColumn("is_whole", F.lit(True))  # noqa: FBT003 - a value of SQL
    by_schema = (
        references.join(whole, on="batch_id", how="left")
        .groupBy(F.col("location.bucket").alias("bucket"), *_SCHEMA[1:], "batch_id", "worker", "is_whole")
        .agg(
            F.when(F.col("is_whole"), F.collect_set("projection")).alias("projections"),
            F.min("location.object").alias("object"),
        )
        .groupBy(*_SCHEMA)
        .agg(F.collect_list(F.struct("batch_id", "worker", "object", "projections")).alias("batches"))
    )
    judge = partial(_judge, settings=settings.worker, schema=to_arrow_schema(_FOUND))
    return by_schema.mapInArrow(judge, _FOUND)


def _whole_batches(announced: Announced) -> DataFrame:
    """Choose the batches that have as many references as their flush record or finished run record says."""
    said = [announced.flushes, announced.runs.where("published >= messages")]
    flushed, backfilled = (one.select("batch_id", F.col("totals.references").alias("said")) for one in said)
    counted = flushed.unionByName(backfilled).join(announced.by_batch, on="batch_id", how="inner")
    return counted.where("said = references").select("batch_id").distinct()


def _judge(batches: Iterable[pa.RecordBatch], *, settings: Settings, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    objects = Objects(settings.s3)
    rows = (row for batch in batches for row in batch.to_pylist())
    fetched = objects.ahead(
        lambda row: (row, objects.try_fetch((row["bucket"], row["schema_object"], None))),
        rows,
        size_of=lambda _: _SCHEMA_BYTES,
    )
    yield from batched((found for row, stored in fetched for found in _problems(row, stored)), schema)


def _problems(row: dict[str, Any], stored: object) -> Iterator[dict[str, Any]]:
    if not isinstance(stored, Stored):
        return  # listing the prefix tells of it, or reading the objects themselves
    text = stored.data.decode(errors="replace")
    if fingerprint_of(text) != row["schema_fingerprint"]:
        said = f"its fingerprint is not {row['schema_fingerprint']}"
        yield {"kind": Kind.OBJECT_ALTERED, "object": row["schema_object"], "text": said}
        return
    for batch in row["batches"]:
        projections = [json.loads(one) for one in batch["projections"] or ["null"]]
        try:
            lacking = sorted(absent_fields(json.loads(text), projections))
        except (ValueError, TypeError, KeyError, IndexError):
            continue  # one of them is no projection, which its reference is told
        if lacking:
            said = f"fields of packs that none of its references has: {', '.join(map(repr, lacking))}"
            about = {name: batch[name] for name in ("object", "batch_id", "worker")}
            yield about | {"kind": Kind.REFERENCE_WRONG, "text": said}


def absent_fields(schema: Avro, projections: list[Any]) -> Iterator[str]:
    """Yield the path of each field of an object's schema that none of these projections has."""
    record = {**schema, "fields": schema["fields"][1:]}  # without _meta
    yield from _absent(record, projections, "")


def _absent(avro: Avro, projections: list[Any], path: str) -> Iterator[str]:
    """Outline: None has everything, a leaf has nothing inside."""
    if not isinstance(avro, dict) or any(one is None for one in projections):
        return
    if avro["type"] == "record":
        kept: list[list[Any]] = [[] for _ in avro["fields"]]
        for item in (item for one in projections if isinstance(one, list) for item in one):
            kept[number_of(item)].append(None if isinstance(item, int) else item[1])
        for field, own in zip(avro["fields"], kept, strict=True):
            name = field.get(NAME_PROPERTY, field["name"])
            at = f"{path}.{name}" if path else name
            if own:
                yield from _absent(field["type"][1], own, at)
            else:
                yield at
    elif (part := {"array": ITEMS, "map": VALUES}.get(avro["type"])) is not None:
        inside = [one[part] for one in projections if isinstance(one, dict)]
        yield from _absent(avro[part][1], inside, f"{path}[]")
