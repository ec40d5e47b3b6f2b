"""Compare-and-swap of an Iceberg table: a driver's commit on a branch of its own becomes the table's, or nothing.

The branch begins at the snapshot that the driver has read. After one commit on it the table is moved forward to it,
which Iceberg refuses unless the table's head is an ancestor. That alone is not enough: an append to a branch that
somebody has dropped meanwhile begins at the table's newest snapshot, so the commit's own parent is compared, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from log_partitioner_pipeline.session import CATALOG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAIN = "main"
_ATTEMPTS = 10
_PAUSE_S = 0.1
_Done = TypeVar("_Done")


class Branch:
    """A driver's own branch of a table; `table` is its name in SQL, such as lake.logs.entries."""

    def __init__(self, spark: SparkSession, table: str, name: str) -> None:
        self.name = f"{table}.branch_{name}"
        self._spark = spark
        self._table = table
        self._branch = name

    def begin_at(self, snapshot_id: int) -> None:
        """Put the branch at this snapshot of the table."""
        self._sql(f"ALTER TABLE {self._table} CREATE OR REPLACE BRANCH `{self._branch}` AS OF VERSION {snapshot_id}")

    def is_there(self) -> bool:
        """Return whether nobody has dropped it."""
        return load_table(self._spark, self._table).refs().get(self._branch) is not None

    def move_table(self, *, base: int) -> int | None:
        """Make the one commit on the branch the table's head, and return its id; None unless both began at `base`."""
        table = load_table(self._spark, self._table)
        head = table.refs().get(self._branch)
        if head is None or table.snapshot(head.snapshotId()).parentId() != base:
            return None
        commit_id: int = head.snapshotId()
        name = self._table.removeprefix(f"{CATALOG}.")
        for attempt in range(_ATTEMPTS):
            try:
                self._spark.sql(f"CALL {CATALOG}.system.fast_forward('{name}', '{MAIN}', '{self._branch}')")
            except (PySparkException, Py4JJavaError):
                now = load_table(self._spark, self._table).currentSnapshot().snapshotId()
                if now == commit_id:
                    return commit_id  # the answer was lost, not the commit
                if now != base:
                    return None
                if attempt == _ATTEMPTS - 1:
                    raise
                time.sleep(_PAUSE_S)  # something else of the table was changed at the same moment
            else:
                return commit_id
        raise AssertionError("the last attempt returns or raises")

    def drop(self) -> None:
        """Forget the branch."""
        self._sql(f"ALTER TABLE {self._table} DROP BRANCH IF EXISTS `{self._branch}`")

    def _sql(self, statement: str) -> None:
        commit(lambda: self._spark.sql(statement))


def commit(change: Callable[[], _Done]) -> _Done:
    """Change a table's metadata; again if another change of it came first, which Iceberg itself does not retry."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return change()
        except (PySparkException, Py4JJavaError) as error:
            if "CommitFailedException" not in str(error):
                raise
            time.sleep(_PAUSE_S)
    return change()


def load_table(spark: SparkSession, table: str) -> Any:
    """Load Iceberg's own table, as it is now."""
    jvm, session = spark._jvm, spark._jsparkSession  # noqa: SLF001 - py4j is the way in
    assert jvm is not None, "the session runs"
    return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session, table)
