"""Objects under the prefix against everything that names an object.

Owns which objects nobody names. A backfill writes its objects long before it announces them; from its manifest on its
outbox names them, and nothing else does until the backfill has published them.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from log_partitioner.formats.findings import Kind
from log_partitioner_pipeline.backfill.outbox import BATCH_PREFIX, outboxes_prefix

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from log_partitioner.config.s3_settings import S3Settings
    from log_partitioner_pipeline.audit.ground import Announced

_OWN = ("user=", "pack/", "_schemas/", "_dead-letters/")  # see `log_partitioner.formats.object_key`
_OF_BACKFILL = rf"/({BATCH_PREFIX}[^/]+)-[0-9a-f]{{8}}-[0-9]+(\.avro|\.record\.json)?$"
_MANIFEST = r"/_backfill/([^/]+)/manifest\.json$"


class ListedObjects(NamedTuple):
    """Objects that are old enough to be judged; among them `orphans`, of whatever kind, which nothing names.

    `awaited` are objects of unfinished backfills, and schemas that may be; `outboxes` belong to runs of backfills;
    `foreign` ones are of a kind that no deployment with this prefix writes. `no_schemas` are schemas that are named and
    not there.
    """

    old: DataFrame
    orphans: DataFrame
    awaited: DataFrame
    outboxes: DataFrame
    foreign: DataFrame
    no_schemas: DataFrame


def sort_out(listed: DataFrame, announced: Announced, s3: S3Settings, *, before_ms: int) -> ListedObjects:
    """Sort the frame `listed` by who names each object; blocks while the objects are looked up."""
    references = announced.references.where(F.col("location.bucket") == s3.bucket)
    schemas = references.select(F.col("schema_object").alias("object")).distinct()
    letters = announced.dead.where(F.col("object").isNotNull()).select("object")
    named = references.select("location.object").union(schemas).union(letters)
    if announced.elsewhere is not None:
        named = named.union(announced.elsewhere)
    named = named.distinct()
    old = listed.where(F.col("modified_ms") < before_ms)
    is_outbox = F.col("object").startswith(outboxes_prefix(s3.prefix))
    is_own = reduce(or_, (F.col("object").startswith(f"{s3.prefix}/{form}") for form in _OWN))
    unnamed = old.where(is_own).join(named, on="object", how="left_anti").withColumn("batch_id", _found(_OF_BACKFILL))
    going_on = (
        listed.where(is_outbox & F.col("object").rlike(_MANIFEST))
        .select(F.concat(F.lit(BATCH_PREFIX), _found(_MANIFEST)).alias("batch_id"))
        .join(announced.runs.where("published >= messages"), on="batch_id", how="left_anti")
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
        no_schemas=schemas.where(F.col("object").startswith(f"{s3.prefix}/")).join(
            listed, on="object", how="left_anti"
        ),
    )


def orphan_findings(orphans: DataFrame) -> DataFrame:
    """Return the findings of objects that nothing names."""
    text = F.format_string("%d bytes, which nothing committed names", "size")
    return orphans.select(F.lit(Kind.OBJECT_UNREFERENCED).alias("kind"), "object", text.alias("text"))


def schema_findings(no_schemas: DataFrame) -> DataFrame:
    """Return the findings of schemas that are not there."""
    text = F.lit("the schema of references, and not there").alias("text")
    return no_schemas.select(F.lit(Kind.OBJECT_MISSING).alias("kind"), "object", text)


def _found(pattern: str) -> Column:
    return F.regexp_extract("object", pattern, 1)
