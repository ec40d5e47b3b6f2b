"""The table kept in shape: small files to large ones, old snapshots to nothing; rows erased.

Every rewrite repeats in its summary the offsets up to which the table held everything when it began, so that expiry may
take the snapshot that stated them first (DESIGN 8). A rewrite never claims too much, because materialize may go on
beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import date
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from log_partitioner_pipeline.columns import EVENT_TIME
from log_partitioner_pipeline.errors import TableError
from log_partitioner_pipeline.session import CATALOG
from log_partitioner_pipeline.table import (
    SUMMARY_CARRIED,
    SUMMARY_OFFSETS,
    ancestors,
    commit,
    format_offsets,
    load_table,
    parse_offsets,
    position_of,
    told_by,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from log_partitioner_pipeline.table import Position
    from log_partitioner_pipeline.topic_log import Offsets

FILES_MIN = 4  # in one partition, worth rewriting
_ATTEMPTS = 10
_OVERTAKEN = "ValidationException", "CommitFailedException"
_SAID = f"spark.sql.iceberg.snapshot-property.{SUMMARY_CARRIED}"
_HOUR = f"partition.{EVENT_TIME}_hour"


class FileHour(NamedTuple):
    """An hour of the table (hours since 1970, UTC): the most files in one of its partitions; all files and their bytes.

    Everything in the hour came from references below `offsets`.
    """

    hour: int
    files_per_partition: int
    offsets: Offsets
    files: int = 0
    bytes: int = 0


class Rewritten(NamedTuple):
    """Files that were rewritten, and those that took their place."""

    files_before: int
    files_after: int


class Upkeep:
    """Keeps one table in shape. `table` is its name in SQL, such as lake.logs.entries."""

    def __init__(self, spark: SparkSession, table: str) -> None:
        self._spark = spark
        self._table = table
        self._name = table.removeprefix(f"{CATALOG}.")

    def is_there(self) -> bool:
        """Return whether the table is there."""
        return bool(self._spark.catalog.tableExists(self._table))

    def file_hours(self) -> list[FileHour]:
        """List the hours that have files, with the offsets of their references; reads metadata only."""
        told = self._offsets_told()
        files = self._spark.sql(
            f"SELECT snapshot_id, data_file.{_HOUR} AS hour, data_file.partition AS place, "
            "data_file.file_size_in_bytes AS bytes "
            f"FROM {self._table}.entries WHERE status < 2"
        )
        places = files.groupBy("hour", "place").agg(
            F.count("*").alias("files"), F.sum("bytes").alias("bytes"), F.collect_set("snapshot_id").alias("ids")
        )
        hours = places.groupBy("hour").agg(
            *[F.max("files").alias("most"), F.sum("files").alias("files"), F.sum("bytes").alias("bytes")],
            F.flatten(F.collect_list("ids")).alias("ids"),
        )
        return [
            FileHour(row["hour"], row["most"], told.latest(row["ids"]), row["files"], row["bytes"])
            for row in hours.collect()
        ]

    def _offsets_told(self) -> _Told:
        snapshots = self._spark.sql(
            f"SELECT snapshot_id, coalesce(summary['{SUMMARY_OFFSETS}'], summary['{SUMMARY_CARRIED}']) AS offsets "
            f"FROM {self._table}.snapshots"
        )
        by_snapshot = {row["snapshot_id"]: parse_offsets(row["offsets"] or "{}") for row in snapshots.collect()}
        return _Told(by_snapshot, of_expired=self._told_first())

    def _told_first(self) -> Offsets:
        """Return the offsets that the oldest remaining append states: expired ones came before it, and state no more.

        Only the table's own history counts, because a branch may keep a snapshot older than expired ones.
        """
        table = self._java()
        told = [text for one in ancestors(table) if (text := one.summary().get(SUMMARY_OFFSETS)) is not None]
        return parse_offsets(told[-1]) if told else position_of(table).offsets

    def rewrite(self, hours: Iterable[int], *, position: Position) -> Rewritten | None:
        """Rewrite the files of these hours, if a partition has more than one; one commit.

        Safe beside appends: Iceberg commits it on top of rows appended meanwhile. Returns None, and does nothing, if
        the table has gone beyond `position` already, because no audit has seen the rows appended to these hours.
        """
        table = self._java()
        if position_of(table).offsets != position.offsets:
            return None
        term = {"type": "transform", "transform": "hour", "term": EVENT_TIME}
        return self._rewrite(table, {"type": "in", "term": term, "values": sorted(hours)})

    def rewrite_days(self, time: str, *, before: date) -> Rewritten:
        """Rewrite the files of the days of this column before that day, if a day has more than one; one commit."""
        until = {"type": "lt", "term": time, "value": f"{before.isoformat()}T00:00:00+00:00"}
        return self._rewrite(self._java(), until)

    def count_days(self, time: str, *, before: date) -> int:
        """Count the days that `rewrite_days` would rewrite."""
        days = f"SELECT * FROM {self._table}.partitions WHERE partition.{time}_day < DATE '{before}' AND file_count > 1"
        return self._spark.sql(days).count()

    def _rewrite(self, table: Any, rows: dict[str, Any]) -> Rewritten:
        """Rewrite the files of these rows (Iceberg's expression in JSON: one call of Java, however long it is)."""
        jvm = self._jvm().org.apache.iceberg
        done = (
            jvm.spark.actions.SparkActions.get(self._spark._jsparkSession)  # noqa: SLF001
            .rewriteDataFiles(table)
            .filter(jvm.expressions.ExpressionParser.fromJson(json.dumps(rows), table.schema()))
            .option("min-input-files", "2")
            .snapshotProperty(SUMMARY_CARRIED, format_offsets(position_of(table).offsets))
            .execute()
        )
        return Rewritten(done.rewrittenDataFilesCount(), done.addedDataFilesCount())

    def expire(self, *, before_ms: int) -> None:
        """Expire snapshots that are older than this, and the schemas and files that only they had.

        The newest snapshot that states the table's offsets stays, because a rewrite that began before it carries older
        ones. If no snapshot states any, the newest of all stays.
        """
        told_at_ms = self._told_at_ms()
        if told_at_ms is None:
            return
        self._expire(min(before_ms, told_at_ms))

    def _expire(self, older_than_ms: int) -> None:
        commit(
            lambda: self._spark.sql(
                f"CALL {CATALOG}.system.expire_snapshots(table => '{self._name}', "
                f"older_than => timestamp_millis({older_than_ms}L), retain_last => 1, "
                "clean_expired_metadata => true)"
            )
        )

    def count_expired(self, *, before_ms: int) -> int:
        """Count the snapshots that `expire` would take; a rewrite before it may add one to them."""
        table = self._java()
        older_than_ms = min(before_ms, self._told_at_ms() or 0)
        heads = {one.snapshotId() for one in table.refs().values()}
        return sum(one.timestampMillis() < older_than_ms and one.snapshotId() not in heads for one in table.snapshots())

    def remove_orphans(self, *, before_ms: int) -> int:
        """Delete files that no snapshot has and that are older than this; returns how many.

        A driver or a task that ended before its commit leaves them. A commit under way has younger ones.
        """
        action = self._jvm().org.apache.iceberg.spark.actions.SparkActions.get(self._spark._jsparkSession)  # noqa: SLF001
        done = action.deleteOrphanFiles(self._java()).usePrefixListing(True).olderThan(before_ms).execute()  # noqa: FBT003
        return sum(1 for _ in done.orphanFileLocations())

    def count(self, rows: Column) -> int:
        """Count rows of the newest snapshot."""
        return self._spark.table(self._table).where(rows).count()

    def erase(self, rows: Column) -> Position:
        """Delete rows until there are none; files that had some are written again without them. `purge` does the rest.

        Returns the position at which there were none.

        Raises:
            TableError: others add such rows, or rewrite their files, again and again.
        """
        for _ in range(_ATTEMPTS):
            position = position_of(self._java())
            if position.snapshot_id is None or not self._is_in(position, rows):
                return position
            self._delete(rows, position.offsets)
        raise TableError(f"{self._table} was changed by others during each of {_ATTEMPTS} attempts to erase rows of it")

    def _is_in(self, position: Position, rows: Column) -> bool:
        as_of = self._spark.read.option("versionAsOf", str(position.snapshot_id)).table(self._table)
        return not as_of.where(rows).isEmpty()

    def _delete(self, rows: Column, offsets: Offsets) -> None:
        """Delete rows once, if nobody else changes their files meanwhile.

        By MERGE, because Spark leaves a DELETE of whole files to Iceberg, which would not say the offsets.
        """
        self._spark.conf.set(_SAID, format_offsets(offsets))
        try:
            self._spark.range(1).mergeInto(self._table, rows).whenMatched().delete().merge()
        except (PySparkException, Py4JJavaError) as error:
            if not any(one in str(error) for one in _OVERTAKEN):
                raise
        finally:
            self._spark.conf.unset(_SAID)

    def purge(self) -> None:
        """Leave nothing of deleted rows: expire every older snapshot, and take statistics of deleted files out.

        The table's property keeps the offsets. A job that reads an older snapshot fails.
        """
        table, jvm = self._java(), self._jvm()
        if table.currentSnapshot() is None:
            return
        stale = jvm.java.util.ArrayList()
        for manifest in table.currentSnapshot().allManifests(table.io()):
            if manifest.hasDeletedFiles():
                stale.add(manifest)
        if stale:
            told, guava = format_offsets(position_of(table).offsets), jvm.com.google.common.base
            rewrite = table.rewriteManifests().clusterBy(guava.Functions.constant("")).set(SUMMARY_CARRIED, told)
            rewrite.rewriteIf(getattr(guava.Predicates, "in")(stale)).commit()
        self._expire(table.currentSnapshot().timestampMillis())

    def count_orphans(self, *, before_ms: int) -> int:
        """Count the files that `remove_orphans` would delete; they are at least a day old."""
        orphans = self._spark.sql(
            f"CALL {CATALOG}.system.remove_orphan_files(table => '{self._name}', "
            f"older_than => timestamp_millis({before_ms}L), dry_run => true, prefix_listing => true)"
        )
        return orphans.count()

    def _told_at_ms(self) -> int | None:
        """Return the time of the newest snapshot that states the offsets up to which the table holds everything.

        None if there is no snapshot at all.
        """
        table = self._java()
        offsets = position_of(table).offsets
        return next((int(one.timestampMillis()) for one in ancestors(table) if told_by(one) == offsets), None)

    def _java(self) -> Any:
        return load_table(self._spark, self._table)

    def _jvm(self) -> Any:
        return self._spark._jvm  # noqa: SLF001 - py4j is the way in


class _Told:
    """The offsets up to which each snapshot holds everything; for expired ones, an upper bound."""

    def __init__(self, by_snapshot: dict[int, Offsets], *, of_expired: Offsets) -> None:
        self._by_snapshot = by_snapshot
        self._of_expired = of_expired

    def latest(self, snapshot_ids: Iterable[int]) -> Offsets:
        """Return offsets that are above all references whose rows these snapshots have added."""
        latest: Offsets = {}
        for snapshot_id in snapshot_ids:
            for partition, offset in self._by_snapshot.get(snapshot_id, self._of_expired).items():
                latest[partition] = max(latest.get(partition, 0), offset)
        return latest
