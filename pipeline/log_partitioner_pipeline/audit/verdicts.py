"""The verdict of each date and hour, kept in a small table beside that of the entries (DESIGN 8).

Compaction reads the newest verdict of an hour here. Only hours that were audited whole are written, and those with
findings: so the newest line of an hour speaks of all its references below `references_offsets`. Findings may be of what
no reference tells, such as a missing entry, or one whose reference is gone: a clean line takes the place of theirs only
if its window holds the windows that they were of.

A verdict is of one group (`group_id`); one from before there was this column is of none: it passes no hour, and its
findings stay open. An audit with the table says which one, too: `table_id`, which differs from that of a table made
anew, and the snapshot and schema that it read; `table_offsets` is up to which references the table had taken then. All
four are null if the table was not audited, and in lines from before there were these columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from log_partitioner_pipeline.audit.result import Verdict
from log_partitioner_pipeline.session import CATALOG

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import Column, DataFrame, Row, SparkSession

    from log_partitioner.config.settings import KafkaSettings
    from log_partitioner_pipeline.audit.result import Window
    from log_partitioner_pipeline.table import Position

_TABLE_COLUMNS = {
    "table_offsets": "map<int, bigint>",
    "table_id": "string",
    "table_snapshot": "bigint",
    "table_schema": "int",
}
_LATER_COLUMNS = {"group_id": "string", **_TABLE_COLUMNS}  # that older versions did not write
_COLUMNS = (
    "date string, hour int, verdict string, is_whole boolean, expected bigint, found bigint, "
    "findings map<string, bigint>, references_topic string, group_id string, references_offsets map<int, bigint>, "
    "audited_at timestamp, window_from timestamp, window_until timestamp, run_id string, "
    + ", ".join(f"{name} {kind}" for name, kind in _TABLE_COLUMNS.items())
)
_VERDICT = ("verdict", "is_whole", "references_offsets", "table_offsets")


class Passed(NamedTuple):
    """A date and hour (of the partition zone) whose newest verdict is clean, and of the whole hour.

    `offsets` are those of the references topic that the verdict covers. `table_offsets` are those up to which the
    newest audit of this table has found it equal to the source; none if that audit was not clean.
    """

    date: str
    hour: int
    offsets: dict[int, int]
    table_offsets: dict[int, int]


def write_verdicts(
    spark: SparkSession,
    hours: DataFrame,
    *,
    name: str,
    kafka: KafkaSettings,
    references_offsets: dict[int, int],
    position: Position | None,
    started_at_ms: int,
    window: Window,
    run_id: str,
    groups: Iterable[str],
) -> None:
    """Append the verdicts of one run in one commit; makes the table if it is not there.

    `position` is None if the table was not audited. An hour gets no clean verdict while it has findings of a larger
    window. Findings of all `groups` of the history count, and those from before there were groups: an adoption settles
    none.
    """
    table = f"{CATALOG}.{name}"
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {table.rpartition('.')[0]}")
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {table} ({_COLUMNS}) USING iceberg PARTITIONED BY (truncate(7, date)) "
        "TBLPROPERTIES ('format-version' = '2', 'write.metadata.delete-after-commit.enabled' = 'true', "
        "'write.metadata.previous-versions-max' = '20')"
    )
    present = spark.table(table).columns
    lacking = ", ".join(f"{name} {kind}" for name, kind in _LATER_COLUMNS.items() if name not in present)
    if lacking:  # made by an older version
        spark.sql(f"ALTER TABLE {table} ADD COLUMNS ({lacking})")
    found = F.col("in_files") + F.col("in_dead_letters")
    is_ours = F.col("group_id").isNull() | F.col("group_id").isin(*groups)
    earlier = spark.table(table).where((F.col("references_topic") == kafka.references_topic) & is_ours)
    open_ones = _open_findings(earlier, window)
    if position is not None:
        of_table = earlier.where(F.col("table_id") == F.lit(position.table_id))
        open_ones = open_ones.unionByName(_open_findings(of_table, window)).distinct()
    is_clean = F.col("verdict") == Verdict.CLEAN
    clean = hours.where(is_clean & F.col("is_whole")).join(open_ones, on=["date", "hour"], how="left_anti")
    (
        hours.where(F.col("is_whole") | (F.col("verdict") == Verdict.FINDINGS))
        .where(~is_clean)
        .unionByName(clean)
        .select(
            "date",
            "hour",
            "verdict",
            "is_whole",
            "expected",
            found.alias("found"),
            "findings",
            F.lit(kafka.references_topic).alias("references_topic"),
            F.lit(kafka.group_id).alias("group_id"),
            _map(references_offsets).alias("references_offsets"),
            F.timestamp_millis(F.lit(started_at_ms)).alias("audited_at"),
            F.timestamp_millis(F.lit(window.from_ms).cast("bigint")).alias("window_from"),
            F.timestamp_millis(F.lit(window.until_ms).cast("bigint")).alias("window_until"),
            F.lit(run_id).alias("run_id"),
            *_of_table(position),
        )
        .coalesce(1)
        .sortWithinPartitions("date", "hour")
        .writeTo(table)
        .append()
    )


def _open_findings(verdicts: DataFrame, window: Window) -> DataFrame:
    """Find hours with findings since they were last clean, of windows that this one does not hold."""
    is_clean = (F.col("verdict") == Verdict.CLEAN) & F.col("is_whole")
    clean_at = F.max(F.when(is_clean, F.col("audited_at"))).over(Over.partitionBy("date", "hour"))
    since = verdicts.withColumn("clean_at", clean_at).where(
        (F.col("verdict") == Verdict.FINDINGS)
        & (F.col("clean_at").isNull() | (F.col("audited_at") > F.col("clean_at")))
    )
    outside = F.lit(False)  # noqa: FBT003 - a value of SQL
    if window.from_ms is not None:
        begins = F.col("window_from")
        outside = outside | begins.isNull() | (begins < F.timestamp_millis(F.lit(window.from_ms)))
    if window.until_ms is not None:
        ends = F.col("window_until")
        outside = outside | ends.isNull() | (ends > F.timestamp_millis(F.lit(window.until_ms)))
    return since.where(outside).select("date", "hour").distinct()


def _of_table(position: Position | None) -> list[Column]:
    values: dict[str, Column] = {}
    if position is not None:
        values = {
            "table_offsets": _map(position.offsets),
            "table_id": F.lit(position.table_id),
            "table_snapshot": F.lit(position.snapshot_id),
            "table_schema": F.lit(position.schema_id),
        }
    return [values.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in _TABLE_COLUMNS.items()]


def read_passed(
    spark: SparkSession, *, name: str, references_topic: str, group_id: str | None, table_id: str | None = None
) -> list[Passed]:
    """Read which hours of a group have passed, in files and in the table with this id; none without verdicts."""
    table = f"{CATALOG}.{name}"
    if not spark.catalog.tableExists(table):
        return []
    verdicts = spark.table(table)
    absent = {name: F.lit(None).cast(kind) for name, kind in _LATER_COLUMNS.items() if name not in verdicts.columns}
    is_same = (F.col("references_topic") == references_topic) & (F.col("group_id") == F.lit(group_id))
    verdicts = verdicts.withColumns(absent).where(is_same)
    of_it = F.when(F.col("table_id") == F.lit(table_id), F.col("audited_at"))
    verdict = F.struct(*_VERDICT)
    newest = verdicts.groupBy("date", "hour").agg(
        F.max_by(verdict, "audited_at").alias("newest"), F.max_by(verdict, of_it).alias("with_table")
    )
    clean = newest.where((F.col("newest.verdict") == Verdict.CLEAN) & F.col("newest.is_whole"))
    return [
        Passed(row["date"], row["hour"], dict(row["newest"]["references_offsets"]), _in_table(row["with_table"]))
        for row in clean.collect()
    ]


def _in_table(verdict: Row | None) -> dict[int, int]:
    """Return the offsets that both the verdict and the table had reached."""
    if verdict is None or verdict["verdict"] != Verdict.CLEAN or not verdict["is_whole"]:
        return {}
    taken = verdict["table_offsets"]
    return {n: min(offset, taken.get(n, 0)) for n, offset in verdict["references_offsets"].items()}


def _map(offsets: Mapping[int, int]) -> Column:
    parts = [part for pair in sorted(offsets.items()) for part in map(F.lit, pair)]
    return F.create_map(*parts).cast("map<int, bigint>")
