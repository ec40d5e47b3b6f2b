"""The tables of the states: created, read as of a snapshot, merged into by compare-and-swap; offsets beside them.

A merge takes place on a branch of its driver's own, which begins at the snapshot that the states were read from
(branches.py). So no state is ever replaced by a state made from an older one.
"""

from __future__ import annotations

import json
from datetime import date
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql import types as T

from log_partitioner_pipeline.branches import Branch, commit, load_table
from log_partitioner_pipeline.errors import OvertakenError, TableError
from log_partitioner_pipeline.session import CATALOG

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

    from log_partitioner_pipeline.topic_log import Offsets

FORMAT = "1"
PROPERTY_FORMAT = "log-partitioner.activity-format"
PROPERTY_IDENTITY = "log-partitioner.activity-identity"
PROPERTY_OFFSETS = "log-partitioner.references-offsets"
_BRANCHES = "activity_"


class StateTable:
    """States by key. A `date` that is a string in a frame is a date in the table."""

    def __init__(self, spark: SparkSession, name: str, *, columns: T.StructType, key: list[str], run: str) -> None:
        self.name = f"{CATALOG}.{name}"
        self._spark = spark
        self._columns = columns
        self._key = key
        self._run = run
        self._branch = Branch(spark, self.name, f"{_BRANCHES}{run}")

    def ensure(self, *, user_buckets: int, identity: str) -> None:
        """Create the table if it is not there; drops the branches of killed drivers.

        Raises:
            TableError: there is one, of another format, or one whose states identify entries by another rule.
        """
        self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self.name.rpartition('.')[0]}")
        if not self._spark.catalog.tableExists(self.name):
            fields = ", ".join(f"`{field.name}` {_type_of(field)}" for field in self._columns)
            places = ", ".join([name for name in self._key if name != "user"] + [f"bucket({user_buckets}, user)"])
            self._spark.sql(
                f"CREATE TABLE IF NOT EXISTS {self.name} ({fields}) USING iceberg PARTITIONED BY ({places}) "
                f"TBLPROPERTIES ('format-version' = '2', '{PROPERTY_FORMAT}' = '{FORMAT}', "
                f"'{PROPERTY_IDENTITY}' = '{identity}', 'write.parquet.compression-codec' = 'zstd', "
                "'write.metadata.delete-after-commit.enabled' = 'true', 'write.metadata.previous-versions-max' = '20')"
            )
        if self._java().currentSnapshot() is None:
            # A branch needs a snapshot to begin at.
            self._spark.createDataFrame([], self._spark.table(self.name).schema).writeTo(self.name).append()
        found = self._properties()
        for name, wanted in ((PROPERTY_FORMAT, FORMAT), (PROPERTY_IDENTITY, identity)):
            if found.get(name) != wanted:
                raise TableError(f"table {self.name} has {name} = {found.get(name, 'none')}, this job has {wanted}")
        for row in self._spark.sql(f"SELECT name FROM {self.name}.refs WHERE type = 'BRANCH'").collect():
            if row.name.startswith(_BRANCHES):
                Branch(self._spark, self.name, row.name).drop()

    # States.

    def head(self) -> int:
        """Return the newest snapshot."""
        snapshot_id: int = self._java().currentSnapshot().snapshotId()
        return snapshot_id

    def written_at_ms(self) -> int:
        """Return when states were last written, by the writer's clock; 0 if they never were."""
        snapshot = self._java().currentSnapshot()
        return 0 if snapshot.parentId() is None else int(snapshot.timestampMillis())

    def read(self, snapshot_id: int, *, dates: Iterable[str]) -> DataFrame:
        """Return the states of these dates as of a snapshot; files of other dates are not read."""
        wanted = F.col("date").isin([date.fromisoformat(one) for one in sorted(dates)])
        states = self._spark.sql(f"SELECT * FROM {self.name} VERSION AS OF {snapshot_id}").where(wanted)
        return states.withColumn("date", F.col("date").cast(T.StringType())).select(*self._columns.names)

    def merge(self, states: DataFrame, *, base: int, dates: Iterable[str]) -> None:
        """Put states in the place of those with the same key, in one commit; all of them are of these dates.

        Raises:
            OvertakenError: the table is no longer at the snapshot `base`, from which these states were made.
        """
        view = f"{_BRANCHES}{self._run}_states"
        states.withColumn("date", F.to_date("date")).createOrReplaceTempView(view)
        of_dates = ", ".join(f"DATE '{one}'" for one in sorted(dates))
        same_key = " AND ".join(f"old.`{name}` = new.`{name}`" for name in self._key)
        self._branch.begin_at(base)
        try:
            self._spark.sql(
                f"MERGE INTO {self._branch.name} AS old USING {view} AS new "
                f"ON {same_key} AND old.`date` IN ({of_dates}) "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )
        except (PySparkException, Py4JJavaError) as error:
            if not self._branch.is_there():
                raise OvertakenError(f"{self.name} was taken over by another driver, which has just started") from error
            raise
        if self._branch.move_table(base=base) is None:
            raise OvertakenError(f"{self.name} was changed by another driver while states were made")

    def drop_branch(self) -> None:
        """Forget the driver's branch."""
        self._branch.drop()

    # Offsets.

    def offsets(self, topic: str) -> Offsets:
        """Return the offsets of a references topic up to which the states have counted everything."""
        found = json.loads(self._properties().get(PROPERTY_OFFSETS, "{}")).get(topic, {})
        return {int(partition): offset for partition, offset in found.items()}

    def write_offsets(self, topic: str, offsets: Offsets) -> None:
        """Write the offsets that the states have reached; call it after the states are written.

        A driver that comes back late may set them back, which costs reading again and nothing else.
        """
        found = json.dumps({topic: {str(partition): offset for partition, offset in sorted(offsets.items())}})
        statement = f"ALTER TABLE {self.name} SET TBLPROPERTIES ('{PROPERTY_OFFSETS}' = '{found}')"
        commit(lambda: self._spark.sql(statement))

    def _properties(self) -> dict[str, str]:
        return dict(self._java().properties())

    def _java(self) -> Any:
        return load_table(self._spark, self.name)


def _type_of(field: T.StructField) -> str:
    return "date" if field.name == "date" else field.dataType.simpleString()
