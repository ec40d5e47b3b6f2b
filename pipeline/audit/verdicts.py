"""The verdict of each date and hour, kept in a small table beside that of the entries (DESIGN 8).

Compaction reads the newest verdict of an hour here. Only hours that were audited whole are written, and those with
findings: so the newest line of an hour speaks of all its references below `references_offsets`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pipeline.session import CATALOG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.audit.result import Window

_COLUMNS = (
    "date string, hour int, verdict string, is_whole boolean, expected bigint, found bigint, "
    "findings map<string, bigint>, references_topic string, references_offsets map<int, bigint>, "
    "audited_at timestamp, window_from timestamp, window_until timestamp, run_id string"
)


def write_verdicts(
    spark: SparkSession,
    hours: DataFrame,
    *,
    name: str,
    references_topic: str,
    references_offsets: dict[int, int],
    started_at_ms: int,
    window: Window,
    run_id: str,
) -> None:
    """Append the verdicts of one run in one commit; makes the table where it is not there."""
    table = f"{CATALOG}.{name}"
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {table.rpartition('.')[0]}")
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {table} ({_COLUMNS}) USING iceberg PARTITIONED BY (truncate(7, date)) "
        "TBLPROPERTIES ('format-version' = '2', 'write.metadata.delete-after-commit.enabled' = 'true', "
        "'write.metadata.previous-versions-max' = '20')"
    )
    offsets = [part for pair in sorted(references_offsets.items()) for part in map(F.lit, pair)]
    found = F.col("in_files") + F.col("in_dead_letters")
    (
        hours.where(F.col("is_whole") | (F.col("verdict") == "findings"))
        .select(
            "date",
            "hour",
            "verdict",
            "is_whole",
            "expected",
            found.alias("found"),
            "findings",
            F.lit(references_topic).alias("references_topic"),
            F.create_map(*offsets).cast("map<int, bigint>").alias("references_offsets"),
            F.timestamp_millis(F.lit(started_at_ms)).alias("audited_at"),
            F.timestamp_millis(F.lit(window.from_ms).cast("bigint")).alias("window_from"),
            F.timestamp_millis(F.lit(window.until_ms).cast("bigint")).alias("window_until"),
            F.lit(run_id).alias("run_id"),
        )
        .coalesce(1)
        .sortWithinPartitions("date", "hour")
        .writeTo(table)
        .append()
    )
