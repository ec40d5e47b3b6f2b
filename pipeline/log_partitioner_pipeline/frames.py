"""Rows as dictionaries on executors, types of rows, and the columns that name an entry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Row = dict[str, Any]

ENTRY_KEY = ["topic", "partition", "offset", "index"]
ENTRY: dict[str, T.DataType] = dict(
    zip(ENTRY_KEY, (T.StringType(), T.IntegerType(), T.LongType(), T.IntegerType()), strict=True)
)
_ROWS_PER_BATCH = 8192


def struct(**fields: T.DataType) -> T.StructType:
    """Return a row type of these nullable fields."""
    return T.StructType([T.StructField(name, kind) for name, kind in fields.items()])


def map_rows(frame: DataFrame, read: Callable[[Iterator[Row]], Iterator[Row]], schema: T.StructType) -> DataFrame:
    """Let executors read the rows of each task as other rows, in which a field may lack: it is null.

    Nothing happens before an action.
    """
    arrow = to_arrow_schema(schema)

    def read_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = read(row for batch in batches for row in batch.to_pylist())
        while some := list(islice(rows, _ROWS_PER_BATCH)):
            yield pa.RecordBatch.from_pylist(some, arrow)

    return frame.mapInArrow(read_batches, schema)
