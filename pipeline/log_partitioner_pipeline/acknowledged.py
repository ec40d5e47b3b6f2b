"""The table of what is lost for good, and acknowledged: raw objects, and messages of the topics that workers write to.

A person has written each row (`acknowledge`), with a reason. Jobs pass over it if they cannot read what it names: the
entries of such an object are in no table, a backfill makes them anew from the source, and audits note them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F

from log_partitioner.formats.model import TopicPartition
from log_partitioner_pipeline import written
from log_partitioner_pipeline.session import CATALOG
from log_partitioner_pipeline.topic_log import lost_ranges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from log_partitioner.adapters.kafka.topics import Ends
    from log_partitioner.formats.reference import Location
    from log_partitioner_pipeline.config import JobSettings
    from log_partitioner_pipeline.topic_log import Offsets

ACKNOWLEDGED_TABLE = "acknowledged"
_COLUMNS = (
    "bucket string, object string, topic string, partition int, first_offset bigint, next_offset bigint, "
    "reason string, recorded_at timestamp"
)
_OBJECT = "bucket", "object"


class Messages(NamedTuple):
    """The offsets [first, next) of a TopicPartition."""

    tp: TopicPartition
    first: int
    next: int


class LostObject(NamedTuple):
    """An object with the number of its references, of their entries, and the offsets of the source that hold these."""

    bucket: str
    object: str
    references: int
    entries: int
    source: dict[TopicPartition, range]


class Acknowledged(NamedTuple):
    """Lost objects, by bucket and key, and messages that are lost or none of their kind."""

    objects: frozenset[tuple[str, str]] = frozenset()
    messages: Sequence[Messages] = ()

    def has_object(self, location: Location) -> bool:
        """Return whether a reference's object is one of these."""
        return (location.bucket, location.object) in self.objects

    def has_message(self, tp: TopicPartition, offset: int) -> bool:
        """Return whether a message is one of these; to be asked of one that cannot be read."""
        return any(one.tp == tp and one.first <= offset < one.next for one in self.messages)

    def beyond_lost(self, topic: str, offsets: Offsets, ends: dict[int, Ends]) -> Offsets:
        """Return offsets moved behind messages that are deleted and were not read, if that is acknowledged."""
        lost = lost_ranges(offsets, ends).items()
        return offsets | {n: end for n, (first, end) in lost if self._has_all(TopicPartition(topic, n), first, end)}

    def _has_all(self, tp: TopicPartition, first: int, end: int) -> bool:
        for one in sorted(self.messages):
            if one.tp == tp and one.first <= first < one.next:
                first = one.next
        return first >= end

    def without(self, references: DataFrame) -> DataFrame:
        """Leave out references (columns of `reference_rows.REFERENCE`) to these objects."""
        if not self.objects:
            return references
        theirs = references.sparkSession.createDataFrame(sorted(self.objects), "lost_bucket string, lost_object string")
        is_it = [F.col(f"location.{name}") == F.col(f"lost_{name}") for name in _OBJECT]
        return references.join(F.broadcast(theirs), on=is_it, how="left_anti")


class Acknowledgements:
    """The table, through one Spark session."""

    def __init__(self, spark: SparkSession, settings: JobSettings) -> None:
        self.name = f"{CATALOG}.{settings.pipeline.table.beside(ACKNOWLEDGED_TABLE)}"
        self._spark = spark

    def read(self) -> Acknowledged:
        """Return everything that is acknowledged by now."""
        if not self._spark.catalog.tableExists(self.name):
            return Acknowledged()
        rows = self._spark.table(self.name).collect()
        return Acknowledged(
            frozenset((row["bucket"], row["object"]) for row in rows if row["object"] is not None),
            [
                Messages(TopicPartition(row["topic"], row["partition"]), row["first_offset"], row["next_offset"])
                for row in rows
                if row["topic"] is not None
            ],
        )

    def record(self, lost: Acknowledged, *, reason: str, at_ms: int) -> None:
        """Record losses in one commit; makes the table if it is not there."""
        written.ensure(self._spark, self.name, _COLUMNS)
        rows: list[dict[str, Any]] = [dict(zip(_OBJECT, one, strict=True)) for one in sorted(lost.objects)]
        rows += [one.tp._asdict() | {"first_offset": one.first, "next_offset": one.next} for one in lost.messages]
        written.append(self._spark, self.name, [row | {"reason": reason, "recorded_at": 1000 * at_ms} for row in rows])
