"""Frames: types of rows, the columns that name an entry, rows as dictionaries on executors; frames that are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import StorageLevel
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


class Kept(ExitStack):
    """Keeps frames; at the end of the block they are forgotten."""

    def keep(self, frame: DataFrame) -> DataFrame:
        """Persist a frame on disk until the run ends, because it is used more than once and costly to make."""
        kept = frame.persist(StorageLevel.DISK_ONLY)
        self.callback(kept.unpersist)
        return kept

    def keep_apart(self, frame: DataFrame) -> DataFrame:
        """Compute a frame now, and persist the result without its plan.

        Spark writes plans out whenever they change, and those of kept frames wherever they are used: if one is made
        from the other, and used several times, that is gigabytes.
        """
        kept = frame.localCheckpoint(eager=True, storageLevel=StorageLevel.DISK_ONLY)
        self.callback(kept._jdf.queryExecution().logical().rdd().unpersist, False)  # noqa: SLF001, FBT003 - no other way
        return kept
