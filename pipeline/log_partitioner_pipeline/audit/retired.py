"""References and their rows, from objects or, if these are retired, from the table (ADR 10).

Owns the audit's rules for retirement: an object that is recorded as retired is not missing, and its entries are judged
by the table. Compaction may go on beside an audit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from log_partitioner_pipeline.audit import sides
from log_partitioner_pipeline.changes import columns_lost
from log_partitioner_pipeline.entries import EntryTable
from log_partitioner_pipeline.retired import RetiredObjects
from log_partitioner_pipeline.session import CATALOG
from log_partitioner_pipeline.table import load_table
from log_partitioner_pipeline.topics import sources_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from log_partitioner_pipeline.audit.scope import Span
    from log_partitioner_pipeline.config import JobSettings
    from log_partitioner_pipeline.table import Position

_ATTEMPTS = 3
_SHOWN = 5
_TP = ["topic", "partition"]
_RANGES = ("first_offset", "next_offset", "min_offset", "max_offset")


class Read(NamedTuple):
    """The references that were read, and their rows (`frames.ROWS`).

    `references` say by `in_window` whether they are of the window, by `retired` whether their objects are.
    """

    references: DataFrame
    rows: DataFrame
    doubts: list[str]


class ReferenceReader:
    """Reads the rows of references. `keep` makes a frame, and keeps it until the run ends."""

    def __init__(self, spark: SparkSession, settings: JobSettings, keep: Callable[[DataFrame], DataFrame]) -> None:
        self._spark = spark
        self._settings = settings
        self._keep = keep
        self._retired = RetiredObjects(spark, settings)

    def choose(self, references: DataFrame, reach: DataFrame) -> DataFrame:
        """Choose references with offsets that are read; `in_window` says which are the window's."""
        return self._keep(_near(references, reach))

    def read(self, chosen: DataFrame, position: Position | None, spans: list[Span], reach: DataFrame) -> Read:
        """Read the rows of the chosen references; blocks until that is done, again if objects were retired meanwhile.

        `position` is the table's if it is audited, too.
        """
        for _ in range(_ATTEMPTS):
            pinned = self._retired.pin()
            marked = self._keep(pinned.mark(chosen))
            made, doubts = self._rows(marked, position, spans, reach)
            rows = self._keep(made)
            if pinned.has_same_objects(self._retired.pin()):
                return Read(marked, rows, doubts)
        return Read(marked, rows, ["objects were being retired while the audit was reading: audit again"])

    def _rows(
        self, marked: DataFrame, position: Position | None, spans: list[Span], reach: DataFrame
    ) -> tuple[DataFrame, list[str]]:
        there, retired = marked.where(~F.col("retired")), marked.where("retired")
        rows = sides.read_files(self._spark, self._settings, there, position)
        if retired.isEmpty():
            return rows, []
        doubts: list[str] = []
        if position is None:
            position = find_position(self._spark, self._settings)
            doubts = doubt_columns(self._spark, self._settings, position)
        of_table = None
        if position is not None:
            of_table = sides.rows_of_table(self._spark, self._settings, position, spans, reach)
        return rows.unionByName(sides.read_retired(self._settings, retired, of_table, position)), doubts

    def notes(self, counts: dict[str, int], listed: DataFrame | None) -> list[str]:
        """Return notes on retired objects of the window, and on retired objects that still exist."""
        recorded = self._retired.pin().rows
        if recorded is None:
            return []
        notes = []
        if counts["objects_retired"]:
            rows, table = counts["rows_retired"], self._settings.pipeline.table.name
            notes.append(f"{counts['objects_retired']} objects are retired: table {table} has their {rows} entries")
        if listed is None:
            if count := recorded.where(F.col("deleted_at").isNull()).count():
                notes.append(f"{count} objects are recorded as retired, and not yet as deleted")
        else:
            ours = recorded.where(F.col("bucket") == self._settings.worker.s3.bucket).select("object").distinct()
            if count := listed.join(ours, on="object", how="left_semi").count():
                notes.append(f"{count} objects are recorded as retired, and still there")
        return notes


def find_position(spark: SparkSession, settings: JobSettings) -> Position | None:
    """Read the position of the table; None if there is no table."""
    topic = settings.worker.kafka.references_topic
    table = EntryTable(spark, settings.pipeline.table, topic=topic)
    return table.position() if spark.catalog.tableExists(table.name) else None


def doubt_columns(spark: SparkSession, settings: JobSettings, position: Position | None) -> list[str]:
    """Return which columns of the table went after the snapshot that is read, which still shows their values.

    Readers of the table no longer have these columns; from the table's next commit on, the audit does not, either.
    """
    if position is None:
        return []
    name = f"{CATALOG}.{settings.pipeline.table.name}"
    table = load_table(spark, name)
    snapshot = table.snapshot(position.snapshot_id)
    lost = [] if snapshot is None else columns_lost(table, snapshot.schemaId())
    shown = ", ".join(lost[:_SHOWN])
    return [f"{len(lost)} columns of {name} are gone since its newest commit: {shown}"] if lost else []


def _near(references: DataFrame, reach: DataFrame) -> DataFrame:
    """Choose references by their source ranges: those with offsets that are read, and of these the window's."""
    ranges = sources_of(references).select("reference_id", *_TP, *_RANGES)
    begin, end = F.least("first_offset", "min_offset"), F.greatest("next_offset", F.col("max_offset") + 1)
    reaching = (
        ranges.join(F.broadcast(reach), on=_TP, how="inner")
        .where((begin < F.col("next")) & (end > F.col("first")))
        .withColumn(
            "in_window", (F.col("min_offset") < F.col("window_next")) & (F.col("max_offset") >= F.col("window_first"))
        )
        .groupBy("reference_id")
        .agg(F.bool_or("in_window").alias("in_window"))
    )
    return references.join(reaching, on="reference_id", how="inner")
