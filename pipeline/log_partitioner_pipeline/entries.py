"""The table of all entries: its form, and the columns that it gets as entries come (ADR 8)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from log_partitioner_pipeline.columns import EVENT_TIME, FIXED, RESERVED, USER, Struct, admit, of_iceberg
from log_partitioner_pipeline.errors import TableError
from log_partitioner_pipeline.table import Form, Table, commit, fields_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from log_partitioner_pipeline.config import JobSettings
    from log_partitioner_pipeline.parquet import Target


REBUILT = "_rebuilt"  # behind the name of a table, of the one that is to take its place


class EntryTable(Table):
    """The table of entries; its topic is that of references."""

    def __init__(self, spark: SparkSession, settings: JobSettings) -> None:
        table = settings.pipeline.table
        form = Form(FIXED, EVENT_TIME, "hours", (USER, EVENT_TIME), user_buckets=table.user_buckets)
        super().__init__(spark, table.name, topic=settings.worker.kafka.references_topic, form=form)
        self._columns_max = table.columns_max
        self._rebuilt = f"{self.name}{REBUILT}"

    def ensure(self) -> None:
        """Create the table if it is not there; see `Table.ensure`.

        Raises:
            TableError: there is one that this code cannot write to, or it is about to get its name (`jobs/rebuild.py`).
        """
        if not self.is_there and self.spark.catalog.tableExists(self._rebuilt):
            raise TableError(f"{self._rebuilt} is about to become {self.name}: materialize --rebuild goes on with it")
        super().ensure()

    def widen(self, wanted: Iterable[Struct]) -> None:
        """Add the wanted columns that fit, in one commit; the first have precedence."""
        wanted = list(wanted)
        commit(lambda: self._add_columns(wanted))

    def _add_columns(self, wanted: list[Struct]) -> None:
        java = self._java()
        present = of_iceberg(fields_of(self.spark, java))
        admitted = admit(present, wanted, columns_max=self._columns_max)
        if admitted is not present:
            java.updateSchema().unionByNameWith(self._java_schema(admitted)).commit()

    def target_of(self, wanted: Iterable[Struct]) -> Target:
        """Describe the table to the writers of its files, with the columns that take some of the wanted values."""
        return self.target(RESERVED.union(*(one.columns for one in wanted)))
