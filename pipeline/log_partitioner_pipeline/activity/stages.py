"""The two stages: entries -> states of hours -> states of days. DataFrame to DataFrame, without session or table.

The state of an hour holds the set of entries that it has counted; everything else in it follows from that set, so that
order, batches and repetition do not matter. The state of a day holds the newest counts of each of its hours: such a
set only grows, hence of two states of an hour the one with more entries is the newer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from log_partitioner_pipeline.activity.counted import CountedEntries, CountedRange
from log_partitioner_pipeline.activity.entries import ENTRIES
from log_partitioner_pipeline.errors import TableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Row = dict[str, Any]
Key = tuple[str, str, int]

_RANGE = T.StructType([T.StructField(name, T.LongType()) for name in CountedRange._fields])
_COUNTED = T.StructType(
    [
        T.StructField("topic", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("ranges", T.ArrayType(_RANGE)),
    ]
)
HOURS = T.StructType(
    [
        T.StructField("user", T.StringType()),
        T.StructField("date", T.StringType()),
        T.StructField("hour", T.IntegerType()),
        T.StructField("entries", T.LongType()),
        T.StructField("bytes", T.LongType()),
        T.StructField("counted", T.ArrayType(_COUNTED)),
    ]
)
_HOUR_OF_DAY = T.StructType(
    [
        T.StructField("hour", T.IntegerType()),
        T.StructField("entries", T.LongType()),
        T.StructField("bytes", T.LongType()),
    ]
)
DAYS = T.StructType(
    [
        T.StructField("user", T.StringType()),
        T.StructField("date", T.StringType()),
        T.StructField("entries", T.LongType()),
        T.StructField("bytes", T.LongType()),
        T.StructField("hours", T.ArrayType(_HOUR_OF_DAY)),
    ]
)
HOUR_KEY = ["user", "date", "hour"]
DAY_KEY = ["user", "date"]
_ROWS_PER_BATCH = 1000
_RANGES_PER_BATCH = 100_000


class HourState:
    """The state of one user's hour."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.entries = 0
        self.bytes = 0
        self.changed = False
        self._counted: dict[tuple[str, int], CountedEntries] = {}

    def restore(self, row: Row) -> None:
        """Restore a state from the table, a row of `HOURS`."""
        assert self.entries == 0, f"{self.key} stands in the table twice"
        self.entries, self.bytes = row["entries"], row["bytes"]
        for one in row["counted"]:
            ranges = (CountedRange(**fields) for fields in one["ranges"])
            self._counted[one["topic"], one["partition"]] = CountedEntries(ranges)

    def count(self, row: Row) -> None:
        """Count a row of `ENTRIES`; entries that were counted before change nothing."""
        sizes: dict[tuple[int, int], int] = {}
        for offset, index, size in zip(row["offsets"], row["indexes"], row["sizes"], strict=True):
            sizes.setdefault((offset, index), size)
        added = self._counted.setdefault((row["topic"], row["partition"]), CountedEntries()).add(sizes)
        self.entries += len(added)
        self.bytes += sum(sizes[place] for place in added)
        self.changed |= bool(added)

    def row(self, *, ranges_max: int) -> Row:
        """Return the row of `HOURS`.

        Raises:
            TableError: it has more ranges than one state may have.
        """
        counted, ranges = [], 0
        for (topic, partition), entries in sorted(self._counted.items()):
            of_partition = [one._asdict() for one in entries.ranges()]
            counted.append({"topic": topic, "partition": partition, "ranges": of_partition})
            ranges += len(of_partition)
        if ranges > ranges_max:
            raise TableError(
                f"user {self.key[0]!r}, {self.key[1]} hour {self.key[2]}: {ranges} ranges of counted offsets, "
                f"PIPELINE_ACTIVITY__RANGES_MAX is {ranges_max}"
            )
        user, date, hour = self.key
        return {
            "user": user, "date": date, "hour": hour,
            "entries": self.entries, "bytes": self.bytes, "counted": counted,
        }  # fmt: skip


def update_hours(states: DataFrame, entries: DataFrame, *, ranges_max: int) -> DataFrame:
    """Count entries (`ENTRIES`) into the states of their hours (`HOURS`); returns the states that changed."""
    of_entries = [F.col(field.name) for field in ENTRIES if field.name not in HOUR_KEY]
    of_states = [F.col(field.name) for field in HOURS if field.name not in HOUR_KEY]
    rows = states.unionByName(entries, allowMissingColumns=True).select(*HOUR_KEY, *of_states, *of_entries)
    by_key = rows.repartition(*HOUR_KEY).sortWithinPartitions(*HOUR_KEY, F.col("entries").asc_nulls_last())
    return by_key.mapInArrow(partial(fold_hours, ranges_max=ranges_max), HOURS)


def fold_hours(batches: Iterable[pa.RecordBatch], *, ranges_max: int) -> Iterator[pa.RecordBatch]:
    """Fold rows sorted by key, a state before the entries to be counted into it; returns the states that changed.

    Raises:
        TableError: a state has more ranges than one may have.
    """
    schema = to_arrow_schema(HOURS)
    folded: list[Row] = []
    ranges = 0
    for state in _states(row for batch in batches for row in batch.to_pylist()):
        if state.changed:
            folded.append(state.row(ranges_max=ranges_max))
            ranges += sum(len(one["ranges"]) for one in folded[-1]["counted"])
        if len(folded) >= _ROWS_PER_BATCH or ranges >= _RANGES_PER_BATCH:
            yield pa.RecordBatch.from_pylist(folded, schema=schema)
            folded, ranges = [], 0
    if folded:
        yield pa.RecordBatch.from_pylist(folded, schema=schema)


def _states(rows: Iterable[Row]) -> Iterator[HourState]:
    state: HourState | None = None
    for row in rows:
        key = (row["user"], row["date"], row["hour"])
        if state is None or state.key != key:
            if state is not None:
                yield state
            state = HourState(key)
        if row["entries"] is None:
            state.count(row)
        else:
            state.restore(row)
    if state is not None:
        yield state


def update_days(states: DataFrame, hours: DataFrame) -> DataFrame:
    """Put new states of hours (`HOURS`) into the states of their days (`DAYS`); returns the states that changed."""
    present = states.select(*DAY_KEY, F.explode("hours").alias("of_hour")).select(*DAY_KEY, "of_hour.*")
    present = present.join(hours.select(*DAY_KEY).distinct(), on=DAY_KEY, how="left_semi")
    latest = (
        present.unionByName(hours.select(*HOUR_KEY, "entries", "bytes"))
        .groupBy(*HOUR_KEY)
        .agg(F.max(F.struct("entries", "bytes")).alias("latest"))
        .select(*HOUR_KEY, "latest.*")
    )
    days = latest.groupBy(*DAY_KEY).agg(
        F.sum("entries").alias("entries"),
        F.sum("bytes").alias("bytes"),
        F.array_sort(F.collect_list(F.struct("hour", "entries", "bytes"))).alias("hours"),
    )
    before = states.select(*DAY_KEY, F.col("hours").alias("hours_before"))
    changed = days.join(before, on=DAY_KEY, how="left").where(~F.col("hours").eqNullSafe(F.col("hours_before")))
    return changed.select(*[field.name for field in DAYS])
