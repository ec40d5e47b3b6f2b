"""The objects that hold a user, as the tables know them, and until when the bucket's lifecycle keeps each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F

from log_partitioner_pipeline.announced import ANNOUNCED_AT, REFERENCES
from log_partitioner_pipeline.columns import USER
from log_partitioner_pipeline.objects import Objects
from log_partitioner_pipeline.retired import RETIRED_TABLE
from log_partitioner_pipeline.session import CATALOG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from log_partitioner_pipeline.config import JobSettings

Rule = Mapping[str, Any]
"""A rule of `GetBucketLifecycleConfiguration`."""

_OBJECT = ["bucket", "object"]


class Holder(NamedTuple):
    """An object with entries of the user, and its end in words; `is_shared`: with entries of other users, too."""

    bucket: str
    object: str
    size: int
    is_shared: bool
    end: str


def find_holders(spark: SparkSession, settings: JobSettings, user: str) -> list[Holder]:
    """Return the objects with entries of a user that references tell and that are not retired.

    Reads the table of references twice, and asks each bucket for its rules.
    """
    references, retired = (
        f"{CATALOG}.{name}" for name in map(settings.pipeline.table.beside, (REFERENCES.name, RETIRED_TABLE))
    )
    if not spark.catalog.tableExists(references):
        return []
    lines = spark.table(references).where("location IS NOT NULL")
    lines = lines.select(USER, ANNOUNCED_AT, "location.bucket", "location.object", "location.size")
    theirs = lines.where(F.col(USER) == user).select(*_OBJECT).distinct()
    if spark.catalog.tableExists(retired):
        gone = spark.table(retired).where("deleted_at IS NOT NULL")
        theirs = theirs.join(gone, on=_OBJECT, how="left_anti")
    every = lines.join(theirs, on=_OBJECT, how="left_semi").groupBy(*_OBJECT)
    about = every.agg(
        F.max("size").alias("size"),
        F.bool_or(F.col(USER) != user).alias("is_shared"),
        F.min(ANNOUNCED_AT).alias("created_at"),  # nearest to when it was made
    )
    found, objects = about.orderBy(*_OBJECT).collect(), Objects(settings.worker.s3)
    rules = {bucket: objects.lifecycle(bucket) for bucket in {row["bucket"] for row in found}}
    return [
        Holder(bucket, key, size, is_shared, end_of(rules[bucket], key, created_at=created_at))
        for bucket, key, size, is_shared, created_at in found
    ]


def end_of(rules: Iterable[Rule] | None, key: str, *, created_at: datetime) -> str:
    """Say on which day (UTC) the first of these rules deletes an object; `rules` is None if they are unknown.

    S3 counts whole days, and ends at the midnight after. A rule that also asks for tags or a size is taken as one that
    does not apply: the object may go earlier, and not later.
    """
    if rules is None:
        return "the store does not tell its lifecycle"
    days = []
    for rule in rules:
        condition, expiration = rule.get("Filter", {}), rule.get("Expiration", {})
        prefix = condition.get("Prefix", rule.get("Prefix", ""))
        if rule["Status"] != "Enabled" or condition.keys() - {"Prefix"} or not key.startswith(prefix):
            continue
        if "Date" in expiration:
            days.append(expiration["Date"].date())
        elif "Days" in expiration:
            days.append(created_at.astimezone(UTC).date() + timedelta(days=expiration["Days"] + 1))
    return f"the bucket's lifecycle deletes it on {min(days)}" if days else "nothing deletes it"
