"""Findings of the sides in one form (`frames.FINDING`): of entries, of references and objects, of dead letters.

Owns which findings one fault makes: an entry that is missing because its object is missing says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from log_partitioner.formats.findings import Kind
from log_partitioner_pipeline.audit.frames import ENTRY_KEY, FINDING
from log_partitioner_pipeline.topics import sources_of

_TP = ["topic", "partition"]
_LOCATED = ["topic", "partition", "user", "date", "hour"]


class EntryFindings(NamedTuple):
    """Findings of entries, and the entries that cannot be judged, because S3 refused their objects."""

    findings: DataFrame
    unread: DataFrame


def entry_findings(compared: DataFrame, rows: DataFrame, references: DataFrame) -> EntryFindings:
    """Return the findings of entries; a missing one names its lost reference, if there is one."""
    found = compared.select(*ENTRY_KEY, "timestamp_ms", "user", "date", "hour", "id", F.inline("findings"))
    lost = rows.where("lost").select(
        F.col("reference_id").alias("lost_id"),
        F.coalesce("unread", F.lit(False)).alias("unread"),  # noqa: FBT003
        F.when(F.col("retired"), F.lit("its reference's object is retired, and the table does not have it"))
        .when(F.col("kind") == Kind.REFERENCE_WRONG, F.lit("its reference cannot be read"))
        .otherwise(F.lit("its reference's object cannot be read"))
        .alias("cause"),
    )
    sources = (
        sources_of(references)
        .join(lost, on=F.col("reference_id") == F.col("lost_id"), how="inner")
        .select(*_LOCATED, "min_offset", "max_offset", "lost_id", "unread", "cause")
    )
    missing = (
        found.where(F.col("kind") == Kind.MISSING)
        .join(sources, on=_LOCATED, how="left")
        .where(F.col("lost_id").isNull() | F.col("offset").between(F.col("min_offset"), F.col("max_offset")))
    )
    plain = found.where(F.col("kind") == Kind.MISSING).join(missing.select(*ENTRY_KEY), on=ENTRY_KEY, how="left_anti")
    explained = missing.dropDuplicates(ENTRY_KEY).select(
        *[name for name in found.columns if name not in ("reference_id", "text")],
        F.col("lost_id").alias("reference_id"),
        F.coalesce("cause", "text").alias("text"),
        F.coalesce("unread", F.lit(False)).alias("unread"),  # noqa: FBT003 - a value of SQL
    )
    others = found.where(F.col("kind") != Kind.MISSING)
    told = explained.where(~F.col("unread")).drop("unread")
    return EntryFindings(
        findings=others.unionByName(plain).unionByName(told), unread=explained.where("unread").drop("unread")
    )


def row_findings(rows: DataFrame, references: DataFrame) -> DataFrame:
    """Return the findings of these references and their objects.

    A fault of an object is one finding, however many references the object has. For each further hour of these
    references the finding appears once more, with count 0, so that each of these hours shows it.
    """
    said = rows.where(F.col("kind").isNotNull() & F.col("reference_id").isNotNull()).select(
        "kind", "reference_id", "user", "date", "hour", "text"
    )
    about = references.select("reference_id", F.col("location.object").alias("object"), "batch_id", "worker")
    told = said.join(about, on="reference_id", how="inner")
    is_of_object = F.col("kind").startswith("object")
    what = ["kind", "object", "text"]
    in_hour, anywhere = (Window.partitionBy(*some).orderBy("reference_id") for some in ([*what, "date", "hour"], what))
    of_objects = (
        told.where(is_of_object)
        .withColumns({"nth": F.row_number().over(in_hour), "count": F.row_number().over(anywhere)})
        .where(F.col("nth") == 1)
        .withColumn("count", F.when(F.col("count") == 1, 1).otherwise(0))
        .drop("nth")
    )
    return told.where(~is_of_object).withColumn("count", F.lit(1)).unionByName(of_objects)


def letter_findings(dead: DataFrame, reach: DataFrame, *, is_full: bool) -> DataFrame:
    """Return findings about dead letters alone; those that name no offset only in an audit of everything."""
    spans = F.broadcast(reach.select(*_TP, "window_first", "window_next"))
    said = dead.where(F.col("kind").isNotNull()).select("kind", *_TP, "offset", "batch_id", "object", "text")
    is_in = (F.col("offset") >= F.col("window_first")) & (F.col("offset") < F.col("window_next"))
    placed = said.join(spans, on=_TP, how="left").where(is_in | (F.col("topic").isNull() & F.lit(is_full)))
    return placed.drop("window_first", "window_next")


def repeated_references(repeated: DataFrame, in_window: DataFrame) -> DataFrame:
    """Return lines of the references topic that bring a reference id again."""
    return repeated.join(in_window, on="reference_id", how="left_semi").select(
        F.lit(Kind.REFERENCE_DUPLICATED).alias("kind"),
        "reference_id",
        "user",
        "date",
        "hour",
        F.col("location.object").alias("object"),
        "batch_id",
        "worker",
        F.format_string("announced again by message %d/%d", "message_partition", "message_offset").alias("text"),
    )


def union(findings: Iterable[DataFrame]) -> DataFrame:
    """Bring findings of any columns into one form."""
    frames = list(map(_in_form, findings))
    while len(frames) > 1:  # in pairs: Spark analyses each union as a whole, and one by one it would do so n times
        pairs = [frames[at : at + 2] for at in range(0, len(frames), 2)]
        frames = [reduce(DataFrame.union, pair) for pair in pairs]
    return frames[0]


def _in_form(findings: DataFrame) -> DataFrame:
    present = set(findings.columns)

    def column(name: str, kind: str) -> str:
        value = f"`{name}`" if name in present else "1" if name == "count" else "null"
        return f"cast({value} as {kind}) as `{name}`"

    return findings.selectExpr(*[column(field.name, field.dataType.simpleString()) for field in FINDING])
