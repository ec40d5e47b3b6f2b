"""The Iceberg table of all entries: created, widened, appended to by compare-and-swap (ADR 9).

Every snapshot that materialize makes says, in its summary, up to which offsets of the references topic the table holds
everything. An append is refused where anybody has added rows since the snapshot at which these offsets were read: so a
driver that comes back late can never add to the work of its successor.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from log_partitioner.avro.schema import META
from log_partitioner_pipeline.branches import commit, load_table
from log_partitioner_pipeline.columns import FIXED_FIELDS, REFERENCE, admit, project
from log_partitioner_pipeline.errors import OvertakenError, TableError
from log_partitioner_pipeline.parquet import Target
from log_partitioner_pipeline.references import time_spans
from log_partitioner_pipeline.session import CATALOG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from log_partitioner.formats.reference import Reference
    from log_partitioner_pipeline.config import TableSettings

FORMAT = "3"
PROPERTY_FORMAT = "log-partitioner.format"
PROPERTY_TOPIC = "log-partitioner.references-topic"
SUMMARY_OFFSETS = "log-partitioner.references-offsets"
SUMMARY_CARRIED = "log-partitioner.references-offsets-carried"  # by a rewrite, from before it
SUMMARY_ENTRIES = "log-partitioner.entries"
_ATTEMPTS = 10
_REFUSED = "ValidationException"
_RETRY_WAIT_MAX_MS = 2000  # Iceberg's own, a minute, lets a driver sleep long after others are done

Offsets = dict[int, int]
"""Next offset by partition of the references topic."""


class Position(NamedTuple):
    """The state of the table: the offsets up to which it holds everything, as of which snapshot (None: it is empty).

    `table_id` tells it from a table that was made anew under its name; `schema_id` names its columns at the time of the
    question. Both are None if there was no table.
    """

    offsets: Offsets
    snapshot_id: int | None
    table_id: str | None = None
    schema_id: int | None = None


class Table:
    """The table, through one Spark session."""

    def __init__(self, spark: SparkSession, settings: TableSettings, *, topic: str) -> None:
        self.name = f"{CATALOG}.{settings.name}"
        self._spark = spark
        self._settings = settings
        self._topic = topic

    # Its form.

    def ensure(self) -> None:
        """Create the table if it is not there.

        Raises:
            TableError: there is one, of another format or of another references topic.
        """
        namespace = self.name.rpartition(".")[0]
        self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
        if not self._spark.catalog.tableExists(self.name):
            fields = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in FIXED_FIELDS)
            self._spark.sql(
                f"CREATE TABLE IF NOT EXISTS {self.name} ({fields}) USING iceberg "
                f"PARTITIONED BY (hours({META}.event_time), bucket({self._settings.user_buckets}, {META}.user)) "
                f"TBLPROPERTIES ('format-version' = '2', '{PROPERTY_FORMAT}' = '{FORMAT}', "
                f"'{PROPERTY_TOPIC}' = '{self._topic}', 'write.spark.accept-any-schema' = 'true', "
                "'write.parquet.compression-codec' = 'zstd', 'commit.retry.num-retries' = '20', "
                f"'commit.retry.max-wait-ms' = '{_RETRY_WAIT_MAX_MS}', "
                "'write.metadata.delete-after-commit.enabled' = 'true', 'write.metadata.previous-versions-max' = '20')"
            )
        properties = dict(self._java().properties())
        if properties.get(PROPERTY_FORMAT) != FORMAT:
            found = properties.get(PROPERTY_FORMAT, "none")
            raise TableError(f"table {self.name} is of format {found}, this code writes {FORMAT}")
        if properties.get(PROPERTY_TOPIC) != self._topic:
            raise TableError(
                f"table {self.name} holds the references of topic {properties.get(PROPERTY_TOPIC)}, not {self._topic}"
            )

    def schema(self) -> T.StructType:
        """Return the columns as they are now."""
        return self._spark.table(self.name).schema

    def widen(self, wanted: T.StructType, *, weights: Mapping[str, int]) -> T.StructType:
        """Add the missing columns and nested fields in one commit; return those of `wanted` that the table has then.

        Adding yields the same columns in any order and with any number of drivers, because a column's name states its
        type. If there is no room for a column, it is not added. `weights` is the number of entries by column.
        """
        present = self.schema()
        admitted = admit(present, wanted, weights=weights, columns_max=self._settings.columns_max)
        if admitted is not present:
            commit(lambda: self._add_columns(admitted))
        asked = T.StructType([*FIXED_FIELDS, *wanted])
        return project(self.schema(), asked)

    def _add_columns(self, admitted: T.StructType) -> None:
        update = self._java().updateSchema().caseSensitive(True)  # noqa: FBT003 - Java knows no names
        update.unionByNameWith(self._java_schema(admitted)).commit()

    def _java_schema(self, columns: T.StructType) -> Any:
        parsed = self._spark._jsparkSession.parseDataType(columns.json())  # noqa: SLF001 - py4j is the way in
        return self._jvm().org.apache.iceberg.spark.SparkSchemaUtil.convert(parsed)

    # What it holds.

    def position(self) -> Position:
        """Read the offsets up to which the table holds everything: the newest that its history states.

        Offsets that a rewrite carried count only if the append that stated them first has expired.
        """
        return position_of(self._java())

    def holds(self, references: list[Reference]) -> set[str]:
        """Return the ids of those references of which the table has rows; reads only the hours of these references."""
        if not references:
            return set()
        spans = time_spans(references)
        are_theirs = [F.col(f"{META}.event_time").between(_moment(first), _moment(last)) for first, last in spans]
        ids = self._spark.createDataFrame([(reference.reference_id,) for reference in references], [REFERENCE])
        found = (
            self._spark.table(self.name)
            .where(reduce(or_, are_theirs))
            .select(REFERENCE)
            .join(F.broadcast(ids), on=REFERENCE, how="left_semi")
            .distinct()
        )
        return {row[0] for row in found.collect()}

    # Commits.

    def target(self) -> Target:
        """Describe the table to those who write its files."""
        java, jvm = self._java(), self._jvm().org.apache.iceberg
        spec = json.loads(jvm.PartitionSpecParser.toJson(java.spec()))
        _, bucket = (field["transform"] for field in spec["fields"])  # `ensure` has made it
        buckets = int(bucket.removeprefix("bucket[").removesuffix("]"))
        return Target(jvm.SchemaParser.toJson(java.schema()), java.location(), spec["spec-id"], buckets)

    def append(self, files: Iterable[str], *, base: Offsets, offsets: Offsets, entries: int) -> None:
        """Append data files (Iceberg's JSON) and move the table's offsets from `base` to `offsets`, both in one commit.

        Compactions may come between, and other appends that tell no offsets.

        Raises:
            OvertakenError: the table's offsets are no longer `base`.
            TableError: somebody else appends again and again.
        """
        files = list(files)
        for _ in range(_ATTEMPTS):
            java = self._java()
            position = position_of(java)
            if position.offsets != base:
                raise OvertakenError(
                    f"{self.name} holds the references up to {position.offsets}, this driver started from {base}: "
                    "another driver has gone on"
                )
            update = self._update(java, files, since=position.snapshot_id)
            update.set(SUMMARY_OFFSETS, format_offsets(offsets)).set(SUMMARY_ENTRIES, str(entries))
            try:
                update.commit()
            except Py4JJavaError as error:
                if _REFUSED not in str(error.java_exception):
                    raise
            else:
                return
        raise TableError(f"{self.name} was appended to by others during each of {_ATTEMPTS} attempts to append to it")

    def _update(self, java: Any, files: list[str], *, since: int | None) -> Any:
        """Make a commit of these files that is refused where others have added some since that snapshot."""
        if not files:
            return java.newAppend()  # of offsets alone; as a RowDelta it would count as an overwrite
        jvm = self._jvm().org.apache.iceberg
        mapper = jvm.util.JsonUtil.mapper()
        update = java.newRowDelta().validateNoConflictingDataFiles()
        if since is not None:
            update.validateFromSnapshot(since)
        for file in files:
            update.addRows(jvm.ContentFileParser.fromJson(mapper.readTree(file), java.spec()))
        return update

    def _java(self) -> Any:
        return load_table(self._spark, self.name)

    def _jvm(self) -> Any:
        return self._spark._jvm  # noqa: SLF001 - py4j is the way in


def position_of(table: Any) -> Position:
    """Read the position of Iceberg's own table; see `Table.position`."""
    head = table.currentSnapshot()
    snapshot_id = None if head is None else head.snapshotId()
    as_of = Position({}, snapshot_id, str(table.uuid()), table.schema().schemaId())
    carried = None
    for snapshot in ancestors(table):
        text = snapshot.summary().get(SUMMARY_OFFSETS)
        if text is not None:
            return as_of._replace(offsets=parse_offsets(text))
        carried = carried or snapshot.summary().get(SUMMARY_CARRIED)
    return as_of._replace(offsets=parse_offsets(carried or "{}"))


def ancestors(table: Any) -> Iterator[Any]:
    """Yield the snapshots that the table's newest one came from, itself first, as far as they are not expired."""
    snapshot = table.currentSnapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parentId()
        snapshot = None if parent is None else table.snapshot(parent)


def told_by(snapshot: Any) -> Offsets:
    """Return the offsets that a snapshot states or carries."""
    summary = snapshot.summary()
    return parse_offsets(summary.get(SUMMARY_OFFSETS) or summary.get(SUMMARY_CARRIED) or "{}")


def _moment(time_us: int) -> Column:
    return F.timestamp_micros(F.lit(time_us))


def format_offsets(offsets: Offsets) -> str:
    """Write offsets for a summary; `parse_offsets` is its pair."""
    return json.dumps({str(partition): offset for partition, offset in sorted(offsets.items())})


def parse_offsets(text: str) -> Offsets:
    """Read offsets from a summary."""
    return {int(partition): offset for partition, offset in json.loads(text).items()}
