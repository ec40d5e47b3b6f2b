"""The table of erasures: which users were taken out of the tables, by digest, when, and up to where.

A row stands before anything is deleted, and its `erased_at` is null until everything is. The audit and compaction read
it: an entry of an erased user that a reference announced before the row's offsets is not missing from the table.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from log_partitioner_pipeline import written
from log_partitioner_pipeline.session import CATALOG
from log_partitioner_pipeline.table import load_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, SparkSession

    from log_partitioner_pipeline.config import JobSettings
    from log_partitioner_pipeline.table import Position
    from log_partitioner_pipeline.topic_log import Offsets

ERASURES_TABLE = "erasures"
_COLUMNS = (
    "user_sha256 string, rows map<string, bigint>, table_id string, references_offsets map<int, bigint>, "
    "recorded_at timestamp, erased_at timestamp, run_id string"
)


def digest_of(user: str) -> str:
    """Return the SHA-256 of a user, in hexadecimal; `sha2(user, 256)` in SQL."""
    return hashlib.sha256(user.encode()).hexdigest()


class Erased(NamedTuple):
    """The erased users of a table: by digest, the offsets of the references topic below which none of them has rows."""

    offsets: Mapping[str, Offsets]

    def has(self, user: str, *, partition: int, offset: int) -> bool:
        """Return whether the rows of a reference were erased: its user, and the place of its message."""
        return offset < self.offsets.get(digest_of(user), {}).get(partition, 0)

    def column(self) -> Column:
        """Return the same for frames of `reference_rows.REFERENCE`; never null."""
        told = F.from_json(F.lit(json.dumps(self.offsets)), "map<string, map<string, bigint>>")
        offsets = F.try_element_at(told, F.sha2("user", 256))
        below = F.try_element_at(offsets, F.col("message_partition").cast("string"))
        return F.coalesce(F.col("message_offset") < below, F.lit(False))  # noqa: FBT003 - a value of SQL


class Erasures:
    """Erasures from one table of entries, through one Spark session."""

    def __init__(self, spark: SparkSession, settings: JobSettings) -> None:
        self.name = f"{CATALOG}.{settings.pipeline.table.beside(ERASURES_TABLE)}"
        self._entries = f"{CATALOG}.{settings.pipeline.table.name}"
        self._spark = spark

    def read(self) -> Erased:
        """Return the users erased from the table that is there now, and those whose erasure has begun.

        A table that was made anew has its entries from the topic again: what was erased before does not count for it.
        """
        tables = self._spark.catalog
        if not (tables.tableExists(self.name) and tables.tableExists(self._entries)):
            return Erased({})
        table_id = str(load_table(self._spark, self._entries).uuid())
        rows = self._spark.table(self.name).where(F.col("table_id") == table_id)
        offsets: dict[str, Offsets] = {}
        for row in rows.select("user_sha256", F.explode("references_offsets").alias("partition", "offset")).collect():
            of_user = offsets.setdefault(row["user_sha256"], {})
            of_user[row["partition"]] = max(of_user.get(row["partition"], 0), row["offset"])
        return Erased(offsets)

    def record(self, user: str, rows: Mapping[str, int], position: Position, *, run_id: str) -> None:
        """Record that a user is being erased, with the rows found by table; an erasure that was stopped goes on."""
        written.ensure(self._spark, self.name, _COLUMNS)
        self._write(user, position, rows=rows, run_id=run_id, recorded_at=datetime.now(UTC))

    def mark_erased(self, user: str, position: Position) -> None:
        """Record that the user has no rows up to this position of the table of entries."""
        self._write(user, position, erased_at=datetime.now(UTC))

    def _write(self, user: str, position: Position, **values: object) -> None:
        """Change the user's erasure that is under way, or begin one; one commit."""
        row = {"user_sha256": digest_of(user), "table_id": position.table_id, "references_offsets": position.offsets}
        new = self._spark.createDataFrame([row | values], _COLUMNS).alias("new")
        own = "user_sha256", "table_id"
        is_under_way = [f"{ERASURES_TABLE}.{name} = new.{name}" for name in own] + [
            f"{ERASURES_TABLE}.erased_at IS NULL"
        ]
        change = {name: F.col(f"new.{name}") for name in ("references_offsets", "erased_at")}
        merge = new.mergeInto(self.name, F.expr(" AND ".join(is_under_way)))
        merge.whenMatched().update(change).whenNotMatched().insertAll().merge()
