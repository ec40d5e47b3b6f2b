"""The table of retired objects: recorded in it before they are deleted, so that nobody takes them for lost (ADR 10).

Compaction writes it. The audit and backfill read it: the entries of a retired object are those that the table has under
the ids of its references, all of which are retired with it.

A frame of a table sees the newest state when it runs, so two of them, or one that runs twice, may see two states. A
reader pins one state, and uses it for all its questions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from log_partitioner_pipeline import written
from log_partitioner_pipeline.session import CATALOG
from log_partitioner_pipeline.table import load_table

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import DataFrame, SparkSession

    from log_partitioner.proof.audit.store import Address
    from log_partitioner_pipeline.config import JobSettings

RETIRED_TABLE = "retired"
_PLACES = "array<struct<partition: int, offset: bigint, date: string, hour: int>>"
_COLUMNS = (
    "bucket string, object string, version_id string, size bigint, etag string, checksum string, "
    f"announced_at timestamp, is_whole boolean, places {_PLACES}, references_topic string, retired_at timestamp, "
    "run_id string, deleted_at timestamp"
)


class RetiredObjects:
    """Retired objects of one references topic, through one Spark session. `deleted_at` is null before the deletion."""

    def __init__(self, spark: SparkSession, settings: JobSettings) -> None:
        self.name = f"{CATALOG}.{settings.pipeline.table.beside(RETIRED_TABLE)}"
        self._spark = spark
        self._topic = settings.worker.kafka.references_topic

    def ensure(self) -> None:
        """Create the table if it is not there."""
        written.ensure(self._spark, self.name, _COLUMNS, places="days(retired_at)")

    def record(self, objects: DataFrame, *, run_id: str, at_ms: int) -> None:
        """Record objects (the columns up to `places`) in one commit."""
        (
            objects.withColumns(
                {
                    "references_topic": F.lit(self._topic),
                    "retired_at": F.timestamp_millis(F.lit(at_ms)),
                    "run_id": F.lit(run_id),
                    "deleted_at": F.lit(None).cast("timestamp"),
                }
            )
            .coalesce(1)
            .writeTo(self.name)
            .append()
        )

    def mark_deleted(self, addresses: Collection[Address], *, at_ms: int) -> None:
        """Record that these objects are deleted, in one commit."""
        self._change(addresses, f"UPDATE SET deleted_at = timestamp_millis({at_ms}L)")

    def withdraw(self, addresses: Collection[Address]) -> None:
        """Delete the rows of these objects, which are not deleted from S3: their bytes count again; in one commit."""
        self._change(addresses, "DELETE")

    def _change(self, addresses: Collection[Address], what: str) -> None:
        if not addresses:
            return
        view = "changed_objects"
        changed = self._spark.createDataFrame(list(addresses), "bucket string, object string, version_id string")
        changed.dropDuplicates(["bucket", "object"]).createOrReplaceTempView(view)
        self._spark.sql(
            f"MERGE INTO {self.name} AS old USING {view} AS new "
            "ON old.deleted_at IS NULL AND old.bucket = new.bucket AND old.object = new.object "
            f"WHEN MATCHED THEN {what}"
        )

    def pin(self) -> RetiredSnapshot:
        """Return the objects recorded now; blocks to count them."""
        if not self._spark.catalog.tableExists(self.name):
            return RetiredSnapshot(None, (0, 0))
        head = load_table(self._spark, self.name).currentSnapshot()
        if head is None:
            return RetiredSnapshot(self._spark.table(self.name).where("false"), (0, 0))
        every = self._spark.read.option("versionAsOf", str(head.snapshotId())).table(self.name)
        theirs = every.where(F.col("references_topic") == self._topic)
        hashes = F.xxhash64("bucket", "object").cast("decimal(38, 0)")
        sums = theirs.agg(F.count("*"), F.coalesce(F.sum(hashes), F.lit(0))).first()
        assert sums is not None, "an aggregate has one row"
        return RetiredSnapshot(theirs, (sums[0], int(sums[1])))


class RetiredSnapshot:
    """Retired objects as they were recorded at one moment. `rows` is None if none ever were."""

    def __init__(self, rows: DataFrame | None, sums: tuple[int, int]) -> None:
        self.rows = rows
        self._sums = sums

    def has_same_objects(self, other: RetiredSnapshot) -> bool:
        """Return whether both name the same objects, deleted or not, by their number and the sum of their hashes.

        Objects are recorded before they are deleted: between two equal snapshots nobody has deleted others.
        """
        return self._sums == other._sums

    def mark(self, references: DataFrame) -> DataFrame:
        """Return the references (`reference_rows.REFERENCE`) with a column `retired`: whether their object is."""
        if self.rows is None:
            return references.withColumn("retired", F.lit(False))  # noqa: FBT003 - a value of SQL
        names = {name: f"retired_{name}" for name in ("bucket", "object")}
        known = self.rows.select(*[F.col(name).alias(other) for name, other in names.items()]).distinct()
        is_it = [F.col(f"location.{name}") == F.col(other) for name, other in names.items()]
        marked = references.join(known, on=is_it, how="left")
        return marked.withColumn("retired", F.col("retired_object").isNotNull()).drop(*names.values())
