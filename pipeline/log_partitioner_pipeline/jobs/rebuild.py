"""The table of entries made anew, beside the old one, from all references that are known; then both change names.

    logs.entries, the old table     ->  logs.entries_old_20260304_050607, as it was
    logs.entries_rebuilt, the new   ->  logs.entries

materialize fills the new table like any other; its offsets begin at 0, so that what the topic has lost comes from the
table of references. The next run goes on with a new table whose driver was killed: properties of it say of which table
it takes the place, and how that is called then. Two drivers at once cost time only: one of them is refused at its next
commit, or finds the names changed.
"""

from __future__ import annotations

import sys
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from log_partitioner_pipeline.entries import REBUILT, EntryTable
from log_partitioner_pipeline.errors import OvertakenError, TableError
from log_partitioner_pipeline.jobs import sentences
from log_partitioner_pipeline.jobs.materialize import Materialize
from log_partitioner_pipeline.kafka import partition_ends
from log_partitioner_pipeline.retired import RetiredObjects
from log_partitioner_pipeline.session import open_session
from log_partitioner_pipeline.table import PROPERTY_TOPIC, PROPERTY_TOPIC_ID
from log_partitioner_pipeline.whose import PROPERTY_GROUP

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from log_partitioner_pipeline.config import JobSettings

PROPERTY_REBUILDS = "log-partitioner.rebuilds"
PROPERTY_OLD_NAME = "log-partitioner.old-name"
_KEPT = PROPERTY_GROUP, PROPERTY_TOPIC_ID


def run(settings: JobSettings) -> None:
    """Rebuild the table; blocks until the new one has its name.

    Raises:
        PipelineError: see `log_partitioner_pipeline.errors`; the old table has its name still, or the next run goes on.
    """
    old_name = Rebuild(open_session(settings, name="materialize"), settings).run()
    sys.stdout.write(sentences.rebuilt(settings, old_name) + "\n")


class Rebuild:
    """One run."""

    def __init__(self, spark: SparkSession, settings: JobSettings) -> None:
        name = settings.pipeline.table.name
        table = settings.pipeline.table.model_copy(update={"name": f"{name}{REBUILT}"})
        pipeline = settings.pipeline.model_copy(update={"table": table})
        self._spark = spark
        self._settings = settings.model_copy(update={"pipeline": pipeline})
        self._name = name
        self._old = EntryTable(spark, settings)
        self._new = EntryTable(spark, self._settings)

    def run(self) -> str:
        """Rebuild the table; returns the name that the old one has now.

        Raises:
            PipelineError: see `run` of this module.
        """
        self._require_no_retired()
        if not self._new.is_there:
            self._create()
        properties = self._new.properties()
        rebuilds, old_name = properties.get(PROPERTY_REBUILDS), properties.get(PROPERTY_OLD_NAME)
        if old_name is None or not self._is_old(rebuilds):
            raise TableError(
                f"{self._new.name} was not begun to take the place of {self._old.name}: drop {self._new.name}"
            )
        self._begin()
        Materialize(self._spark, self._settings).run(continuous=False)
        self._swap(old_name)
        return old_name

    def _require_no_retired(self) -> None:
        retired = RetiredObjects(self._spark, self._settings).pin().rows
        objects = 0 if retired is None else retired.count()
        if objects:
            raise TableError(
                f"{objects} raw objects are retired, and only {self._old.name} has their entries: it is not made anew"
            )

    def _create(self) -> None:
        """Create the new table, which knows of the old one, its group and its topic."""
        if not self._old.is_there:
            raise TableError(f"there is no table {self._old.name} to make anew: materialize makes one")
        known = self._old.properties()
        topic = known.get(PROPERTY_TOPIC, self._new.topic)
        if topic != self._new.topic:
            raise TableError(f"table {self._old.name} holds what topic {topic} said, not {self._new.topic}")
        kept = {name: value for name, value in known.items() if name.startswith(_KEPT)}
        own = {
            PROPERTY_REBUILDS: str(self._old.position().table_id),
            PROPERTY_OLD_NAME: f"{self._name}_old_{datetime.now(UTC):%Y%m%d_%H%M%S}",
        }
        # A place of its own: the one that its name has in the catalogue is that of the next rebuild, too.
        location = f"{self._old.location.rpartition('/')[0]}/{self._name.rpartition('.')[2]}_{uuid.uuid4().hex[:12]}"
        self._new.create(kept | own, location=location)

    def _begin(self) -> None:
        """Let the new table begin at the beginning of its topic, whatever the topic has lost."""
        self._new.ensure()
        if not self._new.position().offsets:
            ends = partition_ends(self._settings.worker.kafka, self._new.topic)
            self._new.append([], base={}, offsets=dict.fromkeys(ends, 0), rows=0)

    def _swap(self, old_name: str) -> None:
        """Rename both; if a run is killed in between, nobody makes a table of the free name (`EntryTable.ensure`)."""
        try:
            if self._old.is_there:
                self._old.rename(old_name)
            self._new.rename(self._name)
        except (PySparkException, Py4JJavaError) as error:
            if self._new.is_there:
                raise
            raise OvertakenError(f"another driver has made {self._old.name} anew") from error

    def _is_old(self, table_id: str | None) -> bool:
        """Return whether the table of the name is this one; True if it has been renamed already."""
        return not self._old.is_there or self._old.position().table_id == table_id
