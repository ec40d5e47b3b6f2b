"""Tables that jobs write row by row, beside the table of entries; a job makes one when it first writes to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

_PROPERTIES = (
    "'format-version' = '2', 'write.metadata.delete-after-commit.enabled' = 'true', "
    "'write.metadata.previous-versions-max' = '20'"
)


def ensure(spark: SparkSession, name: str, columns: str, *, places: str | None = None) -> None:
    """Create a table of these columns (SQL) if it is not there, partitioned by `places`."""
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name.rpartition('.')[0]}")
    partitioned = "" if places is None else f"PARTITIONED BY ({places}) "
    spark.sql(f"CREATE TABLE IF NOT EXISTS {name} ({columns}) USING iceberg {partitioned}TBLPROPERTIES ({_PROPERTIES})")


def append(spark: SparkSession, name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Append rows to a table that is there, in one commit; times are microseconds since 1970, absent columns null."""
    if rows:
        frame = spark.createDataFrame(pa.Table.from_pylist(rows, to_arrow_schema(spark.table(name).schema)))
        frame.coalesce(1).writeTo(name).append()
