"""Iceberg tables of what a topic said: created, appended to by compare-and-swap (ADR 9). One is the table of entries.

Every snapshot that materialize makes says, in its summary, up to which offsets of its topic the table holds everything.
Iceberg refuses an append if anybody has added rows since the snapshot at which these offsets were read: so a driver
that comes back late can never add to the work of its successor.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from log_partitioner_pipeline.columns import USER, Struct, to_iceberg
from log_partitioner_pipeline.errors import OvertakenError, TableError
from log_partitioner_pipeline.kafka import ask_topic_id
from log_partitioner_pipeline.parquet import Target
from log_partitioner_pipeline.session import CATALOG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from log_partitioner.config.settings import KafkaSettings
    from log_partitioner_pipeline.topic_log import Offsets

FORMAT = "4"
PROPERTY_FORMAT = "log-partitioner.format"
PROPERTY_TOPIC = "log-partitioner.topic"
PROPERTY_TOPIC_ID = "log-partitioner.topic-id"
PROPERTY_OFFSETS = "log-partitioner.offsets"
SUMMARY_OFFSETS = "log-partitioner.offsets"
SUMMARY_CARRIED = "log-partitioner.offsets-carried"  # by a rewrite, from before it
SUMMARY_ROWS = "log-partitioner.rows"
_PROPERTIES = {
    "format-version": "2",
    PROPERTY_FORMAT: FORMAT,
    "write.parquet.compression-codec": "zstd",
    "commit.retry.num-retries": "20",
    "commit.retry.max-wait-ms": "2000",  # Iceberg's own, a minute, lets a driver sleep long after others are done
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
_ATTEMPTS = 10
_PAUSE_S = 0.1
_REFUSED = "ValidationException"
_NOTHING: Mapping[str, str] = MappingProxyType({})
_BUCKETS = re.compile(r"bucket\[(\d+)\]")

_Done = TypeVar("_Done")


class Position(NamedTuple):
    """The state of the table: the offsets up to which it holds everything, as of which snapshot (None: it is empty).

    `table_id` tells it from a table that was made anew under its name; `schema_id` names its columns at the time of the
    question. Both are None if there was no table. `sequence_number` orders the positions of one table: every commit of
    rows has a greater one.
    """

    offsets: Offsets
    snapshot_id: int | None
    table_id: str | None = None
    schema_id: int | None = None
    sequence_number: int = 0


class Form(NamedTuple):
    """The layout of a table: partitioned by hours or days of a time, in its files sorted by columns.

    Each partition has `user_buckets` buckets of users if that is not 0, and a part for each value of `more` columns.
    """

    columns: Struct
    time: str
    unit: Literal["hours", "days"]
    order: tuple[str, ...]
    user_buckets: int = 0
    more: tuple[str, ...] = ()


class Table:
    """One table, through one Spark session; `name` is namespace and name."""

    def __init__(self, spark: SparkSession, name: str, *, topic: str, form: Form) -> None:
        self.name = f"{CATALOG}.{name}"
        self.topic = topic
        self.spark = spark
        self._form = form
        self._table_id: str | None = None

    @property
    def is_there(self) -> bool:
        """Whether somebody has created it."""
        return bool(self.spark.catalog.tableExists(self.name))

    @property
    def location(self) -> str:
        """The place of its files."""
        return str(self._java().location())

    def ensure(self) -> None:
        """Create the table if it is not there.

        Raises:
            TableError: there is one, of another format or of another topic.
        """
        if not self.is_there:
            self.create()
        java = self._java()
        properties, self._table_id = java.properties(), str(java.uuid())
        if properties.get(PROPERTY_FORMAT) != FORMAT:
            found = properties.get(PROPERTY_FORMAT, "none")
            raise TableError(
                f"table {self.name} is of format {found}, this code writes {FORMAT}: materialize --rebuild makes one "
                "of entries anew"
            )
        if properties.get(PROPERTY_TOPIC) != self.topic:
            raise TableError(
                f"table {self.name} holds what topic {properties.get(PROPERTY_TOPIC)} said, not {self.topic}"
            )

    def create(self, properties: Mapping[str, str] = _NOTHING, *, location: str | None = None) -> None:
        """Create the table, with these properties beside its own, if it is not there; the catalogue has a location."""
        form = self._form
        by_user = [f"bucket({form.user_buckets}, {USER})"] if form.user_buckets else []
        places = ", ".join([f"{form.unit}({form.time})", *by_user, *form.more])
        columns = self._jvm().org.apache.iceberg.spark.SparkSchemaUtil.convert(self._java_schema(form.columns))
        every = {**_PROPERTIES, **properties, PROPERTY_TOPIC: self.topic}
        told = ", ".join(f"'{name}' = '{value}'" for name, value in every.items())
        place = f"LOCATION '{location}' " if location else ""
        self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self.name.rpartition('.')[0]}")
        self.spark.sql(
            f"CREATE TABLE IF NOT EXISTS {self.name} ({columns.toDDL()}) USING iceberg PARTITIONED BY ({places}) "
            f"{place}TBLPROPERTIES ({told})"
        )
        self.spark.sql(f"ALTER TABLE {self.name} WRITE LOCALLY ORDERED BY {', '.join(form.order)}")

    def require_same_topic(self, kafka: KafkaSettings) -> None:
        """Compare the topic's id with the one that the table remembers; the first call makes the table remember it.

        A topic that was made anew under its name has another id, and offsets of the old one say nothing about it. As
        long as it is shorter, they are beyond its end, which shows; once it has grown past them, its messages below
        them would be skipped unnoticed. Compares nothing if brokers know no ids. Blocks for up to a minute.

        Raises:
            TableError: it is another topic.
            CouldNotTellError: no broker answers, or there is no such topic.
        """
        topic_id, name = ask_topic_id(kafka, self.topic), f"{PROPERTY_TOPIC_ID}.{self.topic}"
        if topic_id is None:
            return
        known = self.properties().get(name)
        if known is None:
            self.set_properties({name: topic_id})
        elif known != topic_id:
            raise TableError(
                f"table {self.name} was made from another topic named {self.topic}: that had the id {known}, this one "
                f"has {topic_id}; if it has the same messages at the same offsets, set the table's property '{name}' "
                "to that"
            )

    def rename(self, name: str) -> None:
        """Give the table another name (namespace and name), unless one of that name is there; its files stay."""
        self.spark.sql(f"ALTER TABLE {self.name} RENAME TO {name}")

    def fields(self) -> list[dict[str, Any]]:
        """Return the columns as they are now, in Iceberg's JSON."""
        return fields_of(self.spark, self._java())

    def properties(self) -> dict[str, str]:
        """Return the properties of the table."""
        return dict(self._java().properties())

    def set_properties(self, wanted: Mapping[str, str]) -> None:
        """Set properties of the table, all at once."""
        if wanted:
            commit(lambda: set_properties(self._java().updateProperties(), wanted))

    def position(self) -> Position:
        """Read the offsets up to which the table holds everything: the newest that its history states.

        Offsets that a rewrite carried count only if the append that stated them first has expired; those of the table's
        property only if no snapshot states any, because others have rewritten the table and expired what was before.
        """
        return position_of(self._java())

    def files_with(self, expression: dict[str, Any]) -> list[tuple[str, int]]:
        """Return path and bytes of data files that may have rows like that, by their statistics; reads metadata only.

        The expression is in Iceberg's JSON.
        """
        java, jvm = self._java(), self._jvm().org.apache.iceberg
        wanted = jvm.expressions.ExpressionParser.fromJson(json.dumps(expression), java.schema())
        tasks = java.newScan().filter(wanted).planFiles()
        try:
            found = tasks.iterator()
            files = []
            while found.hasNext():
                file = found.next().file()
                files.append((file.location(), file.fileSizeInBytes()))
            return files
        finally:
            tasks.close()

    def target(self, names: Container[str] | None = None) -> Target:
        """Describe the table to the writers of its files: all of its columns, or the columns of these names."""
        java, jvm, form = self._java(), self._jvm().org.apache.iceberg, self._form
        spec = json.loads(jvm.PartitionSpecParser.toJson(java.spec()))
        transforms = [one["transform"] for one in spec["fields"]]
        buckets = [int(found[1]) for one in transforms if (found := _BUCKETS.fullmatch(one))]
        return Target(
            fields=[one for one in fields_of(self.spark, java) if names is None or one["name"] in names],
            location=java.location(),
            spec_id=spec["spec-id"],
            time=form.time,
            unit="days" if "day" in transforms else "hours",
            order=form.order,
            user_buckets=buckets[0] if buckets else 0,
        )

    def append(
        self, files: Iterable[str], *, base: Offsets, offsets: Offsets, rows: int, also: Mapping[str, str] = _NOTHING
    ) -> None:
        """Append data files (Iceberg's JSON) and move the table's offsets from `base` to `offsets`, both in one commit.

        Its summary has `also`, too. Compactions may come between, and other appends that tell no offsets.

        Raises:
            OvertakenError: the table's offsets are no longer `base`, or it is not the one that was made sure of.
            TableError: somebody else appends again and again.
        """
        files = list(files)
        for _ in range(_ATTEMPTS):
            java = self._java()
            position = position_of(java)
            if position.table_id != self._table_id:
                raise OvertakenError(
                    f"{self.name} was made anew since this driver started: its files are of another table"
                )
            if position.offsets != base:
                raise OvertakenError(
                    f"{self.name} holds what {self.topic} said up to {position.offsets}, "
                    f"this driver started from {base}: another driver has gone on"
                )
            transaction, told = java.newTransaction(), format_offsets(offsets)
            update = self._update(transaction, files, since=position.snapshot_id)
            try:
                set_properties(update, {**also, SUMMARY_OFFSETS: told, SUMMARY_ROWS: str(rows)})
                transaction.updateProperties().set(PROPERTY_OFFSETS, told).commit()
                transaction.commitTransaction()
            except Py4JJavaError as error:
                if _REFUSED not in str(error.java_exception):
                    raise
            else:
                return
        raise TableError(f"{self.name} was appended to by others during each of {_ATTEMPTS} attempts to append to it")

    def _update(self, transaction: Any, files: list[str], *, since: int | None) -> Any:
        """Make an update by these files that is refused if others have added some since that snapshot."""
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

    def _java_schema(self, columns: Struct) -> Any:
        text = json.dumps({"type": "struct", "fields": to_iceberg(columns)})
        return self._jvm().org.apache.iceberg.SchemaParser.fromJson(text)

    def _java(self) -> Any:
        return load_table(self.spark, self.name)

    def _jvm(self) -> Any:
        return self.spark._jvm  # noqa: SLF001 - py4j is the way in


def set_properties(update: Any, wanted: Mapping[str, str]) -> None:
    """Set properties, or what a snapshot's summary says, by an update of Iceberg's; commits it."""
    for name, value in wanted.items():
        update.set(name, value)
    update.commit()


def load_table(spark: SparkSession, table: str) -> Any:
    """Load Iceberg's own table, as it is now; `table` is its name in SQL, such as lake.logs.entries."""
    jvm, session = spark._jvm, spark._jsparkSession  # noqa: SLF001 - py4j is the way in
    assert jvm is not None, "the session runs"
    return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session, table)


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
    sequence_number = 0 if head is None else head.sequenceNumber()
    as_of = Position({}, snapshot_id, str(table.uuid()), table.schema().schemaId(), sequence_number)
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


def format_offsets(offsets: Offsets) -> str:
    """Write offsets for a summary; `parse_offsets` is its pair."""
    return json.dumps({str(partition): offset for partition, offset in sorted(offsets.items())})


def parse_offsets(text: str) -> Offsets:
    """Read offsets from a summary."""
    return {int(partition): offset for partition, offset in json.loads(text).items()}
