"""A user out of the tables and their snapshots, by record (docs/PIPELINE.md).

    objects of the user told -> recorded -> rows deleted -> snapshots expired -> recorded as done

Every step can be repeated: a run that is killed between any two of them is completed by the next one. References tell
which objects hold the user, so their rows go after those of entries and states. Objects and topics stay as they are.
"""

from __future__ import annotations

import sys
import uuid
from typing import TYPE_CHECKING

import structlog
from pyspark.sql import functions as F

from log_partitioner.formats.object_key import key_safe
from log_partitioner_pipeline.activity import DAYS_TABLE, HOURS_TABLE
from log_partitioner_pipeline.announced import REFERENCES
from log_partitioner_pipeline.columns import USER
from log_partitioner_pipeline.entries import EntryTable
from log_partitioner_pipeline.erasures import Erasures
from log_partitioner_pipeline.errors import TableError
from log_partitioner_pipeline.holders import Holder, find_holders
from log_partitioner_pipeline.jobs import sentences
from log_partitioner_pipeline.progress import StepProgress
from log_partitioner_pipeline.retired import RETIRED_TABLE
from log_partitioner_pipeline.session import CATALOG, open_session
from log_partitioner_pipeline.upkeep import Upkeep

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from log_partitioner_pipeline.config import JobSettings
    from log_partitioner_pipeline.table import Position


def run(settings: JobSettings, user: str, *, dry_run: bool) -> None:
    """Erase a user, or say what would go; blocks until it is done.

    Raises:
        PipelineError: see `log_partitioner_pipeline.errors`; the next run completes it.
    """
    job = Erase(open_session(settings, name="erase"), settings, user)
    found, holders = job.look()
    sys.stdout.write(sentences.holding(settings, found, holders))
    sys.stdout.flush()  # what is told here nobody can ask for once it is erased
    if not dry_run:
        job.run(found)
    sys.stdout.write(sentences.erased(settings, is_dry=dry_run) + "\n")


class Erase:
    """One run, for one user."""

    def __init__(self, spark: SparkSession, settings: JobSettings, user: str) -> None:
        self._spark = spark
        self._settings = settings
        self._user = user
        self._entries = EntryTable(spark, settings)
        self._erasures = Erasures(spark, settings)
        self._log = structlog.get_logger("erase")
        beside, is_theirs = settings.pipeline.table.beside, F.col(USER) == user
        self._rows: dict[str, Column] = {
            settings.pipeline.table.name: is_theirs,
            beside(HOURS_TABLE): is_theirs,
            beside(DAYS_TABLE): is_theirs,
            beside(REFERENCES.name): is_theirs | self._names_user("location.object"),
            beside(RETIRED_TABLE): self._names_user("object"),
        }

    def _names_user(self, key: str) -> Column:
        return F.col(key).contains(f"/user={key_safe(self._user)}/")

    def look(self) -> tuple[dict[str, int], list[Holder]]:
        """Return the user's rows by table, and the objects that hold the user.

        Raises:
            TableError: there is no table of entries, or another one.
            ObjectError: S3 does not answer.
        """
        if not self._entries.is_there:
            raise TableError(f"there is no table {self._entries.name}")
        self._entries.ensure()
        with StepProgress(self._spark, "erase") as progress:
            progress.step("rows")
            found = {name: self._upkeep(name).count(rows) for name, rows in self._rows.items() if self._is_there(name)}
            progress.step("objects")
            holders = find_holders(self._spark, self._settings, self._user)
        for one in holders:
            self._log.info("object_holds_user", **one._asdict())  # the user in its key is veiled
        return found, holders

    def run(self, found: dict[str, int]) -> None:
        """Erase the user, if `look` has found so many rows.

        Raises:
            PipelineError: see `log_partitioner_pipeline.errors`.
        """
        run_id = uuid.uuid4().hex[:12]
        self._erasures.record(self._user, found, self._entries.position(), run_id=run_id)
        with StepProgress(self._spark, "erase") as progress:
            progress.step("deletion")
            reached = self._delete(list(found))
            progress.step("snapshots")
            self._purge(list(found))
            self._erasures.mark_erased(self._user, reached)
        self._log.info("user_erased", run=run_id, rows=found, offsets=reached.offsets)

    def _delete(self, names: list[str]) -> Position:
        """Delete the rows; returns the position of the table of entries, the first, up to which the user has none."""
        reached, *_ = [self._delete_from(name) for name in names]
        return reached

    def _delete_from(self, name: str) -> Position:
        return self._upkeep(name).erase(self._rows[name])

    def _purge(self, names: list[str]) -> None:
        for name in names:
            self._upkeep(name).purge()

    def _is_there(self, name: str) -> bool:
        return self._upkeep(name).is_there()

    def _upkeep(self, name: str) -> Upkeep:
        return Upkeep(self._spark, f"{CATALOG}.{name}")
