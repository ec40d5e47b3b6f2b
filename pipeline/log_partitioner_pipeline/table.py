"""The Iceberg table of all entries: created, widened, appended to by compare-and-swap (ADR 9).

Every snapshot that materialize makes says, in its summary, up to which offsets of the references topic the table holds
everything. An append is refused where anybody has added rows since the snapshot at which these offsets were read: so a
driver that comes back late can never add to the work of its successor.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column
from pyspark.sql import functions as F

from log_partitioner_pipeline.branches import commit, load_table
from log_partitioner_pipeline.columns import (
    EVENT_TIME,
    FIXED,
    REFERENCE,
    RESERVED,
    USER,
    Struct,
    admit,
    of_iceberg,
    to_iceberg,
)
from log_partitioner_pipeline.errors import OvertakenError, TableError
from log_partitioner_pipeline.parquet import Target
from log_partitioner_pipeline.references import time_spans
from log_partitioner_pipeline.session import CATALOG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from log_partitioner.formats.reference import Reference
    from log_partitioner_pipeline.config import TableSettings

FORMAT = "4"
PROPERTY_FORMAT = "log-partitioner.format"
PROPERTY_TOPIC = "log-partitioner.references-topic"
PROPERTY_OFFSETS = "log-partitioner.references-offsets"
SUMMARY_OFFSETS = "log-partitioner.references-offsets"
SUMMARY_CARRIED = "log-partitioner.references-offsets-carried"  # by a rewrite, from before it
SUMMARY_ENTRIES = "log-partitioner.entries"
_ATTEMPTS = 10
_REFUSED = "ValidationException"
_RETRY_WAIT_MAX_MS = 2000  # Iceberg's own, a minute, lets a driver sleep long after others are done
_BUCKETS = re.compile(r"bucket\[(\d+)\]")

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
            buckets = self._settings.user_buckets
            by_user = f", bucket({buckets}, {USER})" if buckets else ""
            columns = self._jvm().org.apache.iceberg.spark.SparkSchemaUtil.convert(self._java_schema(FIXED)).toDDL()
            self._spark.sql(
                f"CREATE TABLE IF NOT EXISTS {self.name} ({columns}) USING iceberg "
                f"PARTITIONED BY (hours({EVENT_TIME}){by_user}) "
                f"TBLPROPERTIES ('format-version' = '2', '{PROPERTY_FORMAT}' = '{FORMAT}', "
                f"'{PROPERTY_TOPIC}' = '{self._topic}', "
                "'write.parquet.compression-codec' = 'zstd', 'commit.retry.num-retries' = '20', "
                f"'commit.retry.max-wait-ms' = '{_RETRY_WAIT_MAX_MS}', "
                "'write.metadata.delete-after-commit.enabled' = 'true', 'write.metadata.previous-versions-max' = '20')"
            )
            self._spark.sql(f"ALTER TABLE {self.name} WRITE LOCALLY ORDERED BY {USER}, {EVENT_TIME}")
        properties = dict(self._java().properties())
        if properties.get(PROPERTY_FORMAT) != FORMAT:
            found = properties.get(PROPERTY_FORMAT, "none")
            raise TableError(f"table {self.name} is of format {found}, this code writes {FORMAT}")
        if properties.get(PROPERTY_TOPIC) != self._topic:
            raise TableError(
                f"table {self.name} holds the references of topic {properties.get(PROPERTY_TOPIC)}, not {self._topic}"
            )

    def fields(self) -> list[dict[str, Any]]:
        """Return the columns as they are now, in Iceberg's JSON."""
        return fields_of(self._spark, self._java())

    def widen(self, wanted: Iterable[Struct]) -> None:
        """Add columns for what is wanted and fits, in one commit; the first have precedence."""
        wanted = list(wanted)
        commit(lambda: self._add_columns(wanted))

    def _add_columns(self, wanted: list[Struct]) -> None:
        java = self._java()
        present = of_iceberg(fields_of(self._spark, java))
        admitted = admit(present, wanted, columns_max=self._settings.columns_max)
        if admitted is not present:
            java.updateSchema().unionByNameWith(self._java_schema(admitted)).commit()

    def _java_schema(self, columns: Struct) -> Any:
        text = json.dumps({"type": "struct", "fields": to_iceberg(columns)})
        return self._jvm().org.apache.iceberg.SchemaParser.fromJson(text)

    # What it holds.

    def position(self) -> Position:
        """Read the offsets up to which the table holds everything: the newest that its history states.

        Offsets that a rewrite carried count only if the append that stated them first has expired; those of the table's
        property only if no snapshot states any, because others have rewritten the table and expired what was before.
        """
        return position_of(self._java())

    def holds(self, references: list[Reference]) -> set[str]:
        """Return the ids of those references of which the table has rows; reads only the hours of these references."""
        if not references:
            return set()
        spans = time_spans(references)
        are_theirs = [F.col(EVENT_TIME).between(_moment(first), _moment(last)) for first, last in spans]
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

    def target(self, wanted: Iterable[Struct]) -> Target:
        """Describe the table to those who write its files, with the columns that take something of what is wanted."""
        java, jvm = self._java(), self._jvm().org.apache.iceberg
        names = RESERVED.union(*(one.columns for one in wanted))
        spec = json.loads(jvm.PartitionSpecParser.toJson(java.spec()))
        buckets = [int(found[1]) for one in spec["fields"] if (found := _BUCKETS.fullmatch(one["transform"]))]
        fields = [one for one in fields_of(self._spark, java) if one["name"] in names]
        return Target(fields, java.location(), spec["spec-id"], buckets[0] if buckets else 0)

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
            transaction, told = java.newTransaction(), format_offsets(offsets)
            update = self._update(transaction, files, since=position.snapshot_id)
            try:
                update.set(SUMMARY_OFFSETS, told).set(SUMMARY_ENTRIES, str(entries)).commit()
                transaction.updateProperties().set(PROPERTY_OFFSETS, told).commit()
                transaction.commitTransaction()
            except Py4JJavaError as error:
                if _REFUSED not in str(error.java_exception):
                    raise
            else:
                return
        raise TableError(f"{self.name} was appended to by others during each of {_ATTEMPTS} attempts to append to it")

    def _update(self, transaction: Any, files: list[str], *, since: int | None) -> Any:
        """Make an update by these files that is refused where others have added some since that snapshot."""
        if not files:
            return transaction.newAppend()  # of offsets alone; as a RowDelta it would count as an overwrite
        jvm = self._jvm().org.apache.iceberg
        mapper, spec = jvm.util.JsonUtil.mapper(), transaction.table().spec()
        update = transaction.newRowDelta().validateNoConflictingDataFiles()
        if since is not None:
            update.validateFromSnapshot(since)
        for file in files:
            update.addRows(jvm.ContentFileParser.fromJson(mapper.readTree(file), spec))
        return update

    def _java(self) -> Any:
        return load_table(self._spark, self.name)

    def _jvm(self) -> Any:
        return self._spark._jvm  # noqa: SLF001 - py4j is the way in


def fields_of(spark: SparkSession, table: Any) -> list[dict[str, Any]]:
    """Return the columns of Iceberg's own table, in its JSON."""
    jvm = spark._jvm  # noqa: SLF001 - py4j is the way in
    assert jvm is not None, "the session runs"
    fields: list[dict[str, Any]] = json.loads(jvm.org.apache.iceberg.SchemaParser.toJson(table.schema()))["fields"]
    return fields


def position_of(table: Any) -> Position:
    """Read the position of Iceberg's own table; see `Table.position`."""
    head = table.currentSnapshot()
    snapshot_id = None if head is None else head.snapshotId()
    as_of = Position({}, snapshot_id, str(table.uuid()), table.schema().schemaId())
    told = None
    for snapshot in ancestors(table):
        text = snapshot.summary().get(SUMMARY_OFFSETS)
        if text is not None:
            return as_of._replace(offsets=parse_offsets(text))
        told = told or snapshot.summary().get(SUMMARY_CARRIED)
        if snapshot.parentId() is not None and table.snapshot(snapshot.parentId()) is None:
            told = table.properties().get(PROPERTY_OFFSETS)  # what is expired may have told newer ones
    return as_of._replace(offsets=parse_offsets(told or "{}"))


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
