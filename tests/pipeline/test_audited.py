"""Which hours have passed: those whose batches are all clean by their newest audits, whatever windows these had."""

import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from log_partitioner.formats.findings import Kind
from log_partitioner.formats.flush_record import Lineage
from log_partitioner_pipeline.announced import FLUSHES, REFERENCES, AnnouncedTable
from log_partitioner_pipeline.audit.audited import read_passed, write_audited
from log_partitioner_pipeline.audit.judged import BatchHour, HourCounts
from log_partitioner_pipeline.table import Position
from tests.pipeline.conftest import pipeline_variables, settings_of

DATE = "2026-03-04"
WORKER = {
    "LOGP_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
    "LOGP_KAFKA__SOURCE_TOPICS": '["logs"]',
    "LOGP_KAFKA__GROUP_ID": "g",
    "LOGP_S3__BUCKET": "none",
}
FINDINGS = {Kind.MISSING: 1}
TABLE = Position({0: 9}, 1, "this", 1)


class Tables:
    """Tables of a namespace of their own; announcements and audits are written by hand."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        namespace = f"v{uuid.uuid4().hex[:8]}"
        name = {"PIPELINE_TABLE__NAME": f"{namespace}.entries"}
        self._settings = settings_of(WORKER | pipeline_variables(root) | name)
        self._spark = spark
        self._references = AnnouncedTable(spark, self._settings, REFERENCES)
        self._references.ensure()
        self._flushes = AnnouncedTable(spark, self._settings, FLUSHES)
        self._flushes.ensure()
        self._runs = 0

    def announce(self, batch: str, *hours: int, group: str = "g", number: int = 0) -> None:
        """Announce the n-th reference of a batch into each of these hours."""
        source = (
            "named_struct('topic', 'logs', 'partition', 0, 'first_offset', 0L, 'next_offset', 5L, "
            "'min_offset', 0L, 'max_offset', 0L, 'entries', 1L)"
        )
        for hour in hours:
            self._spark.sql(
                f"INSERT INTO {self._references.name} (reference_id, batch_id, group_id, date, hour, "
                f"announced_at, sources) SELECT '{batch}-{hour}-{number}', '{batch}', '{group}', '{DATE}', {hour}, "
                f"timestamp '{DATE}', array({source})"
            )

    def flush(self, batch: str, first: int, end: int) -> None:
        """Record a flush of these offsets."""
        line = (
            f"named_struct('topic', 'logs', 'partition', 0, 'first_offset', {first}L, 'next_offset', {end}L, "
            "'min_offset', null, 'max_offset', null, 'timestamp_max_ms', null, 'idle_since_ms', null, "
            "'records', 1L, 'entries', 1L, 'dead_letters', 0L)"
        )
        self._spark.sql(
            f"INSERT INTO {self._flushes.name} (batch_id, group_id, announced_at, topic_partitions) "
            f"SELECT '{batch}', 'g', timestamp '{DATE}', array({line})"
        )

    def audit(
        self,
        *clean: tuple[str, int],
        findings: dict[BatchHour, dict[Kind, int]] | None = None,
        doubts: int = 0,
        references: int = 1,
        position: Position | None = None,
        taken: tuple[str, ...] = ("b1", "b2", "late"),
    ) -> set[int]:
        """Write an audit of batches in hours; returns which hours have passed then."""
        self._runs += 1
        result: Any = SimpleNamespace(
            could_not_tell=["a doubt"] * doubts,
            started_at_ms=1000 * self._runs,
            seconds=0.1,
            run_id=f"run-{self._runs}",
        )
        hours = {BatchHour(batch, DATE, hour): HourCounts(2, 2, references=references) for batch, hour in clean}
        write_audited(self._spark, self._settings, hours, findings or {}, result=result, position=position, taken=taken)
        return self.passed()

    def passed(self, *groups: str, table_id: str | None = None) -> set[int]:
        """Tell which hours have passed for a group, and in this table."""
        settings = self._settings
        (group,) = groups or ("g",)
        found = read_passed(self._spark, settings, Lineage(group, []), table_id=table_id)
        assert {date for date, _ in found.hours} <= {DATE}
        return {hour for _, hour in found.hours}


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Tables:
    """Empty ones."""
    return Tables(spark, tmp_path)


def test_hour_passes_when_each_of_its_batches_is_clean(tables: Tables) -> None:
    """In windows of their own; then a late entry comes, and only its batch is left to be audited."""
    tables.announce("b1", 5, 6)
    tables.announce("b2", 5)
    assert tables.passed() == set()
    assert tables.audit(("b1", 5), ("b1", 6)) == {6}
    assert tables.audit(("b2", 5)) == {5, 6}
    tables.announce("late", 5)
    assert tables.passed() == {6}
    assert tables.audit(("late", 5), doubts=1) == {6}, "nobody could tell"
    assert tables.audit(("late", 5)) == {5, 6}
    assert tables.audit(("late", 5), ("b1", 6), doubts=1) == {5, 6}, "what was told before stays told"


def test_batch_that_goes_on_is_audited_again(tables: Tables) -> None:
    """A backfill publishes into an hour what no audit has seen, under the id of its run."""
    tables.announce("b1", 5)
    assert tables.audit(("b1", 5)) == {5}
    tables.announce("b1", 5, number=1)
    assert tables.passed() == set()
    assert tables.audit(("b1", 5), references=2) == {5}


def test_hour_of_offsets_that_were_flushed_twice_does_not_pass(tables: Tables) -> None:
    """The group was set back: each flush joins the one before it, and each is clean by itself."""
    for batch, span in {"b1": (0, 10), "b2": (10, 20), "late": (5, 10)}.items():
        tables.flush(batch, *span)
    tables.announce("b1", 5)
    tables.announce("b2", 6)
    tables.announce("late", 5)
    assert tables.audit(("b1", 5), ("b2", 6), ("late", 5)) == {6}


def test_findings_stay_open_until_their_own_batch_is_clean(tables: Tables) -> None:
    """They count even if no reference of their batch into the hour is announced any more."""
    tables.announce("b1", 5, 6)
    tables.announce("b2", 5, 6)
    lost, gap = BatchHour("b1", DATE, 5), BatchHour("no flush of logs-0 from 7", DATE, 6)
    both = ("b2", 5), ("b2", 6)
    assert tables.audit(*both, ("b1", 6), findings={lost: FINDINGS, BatchHour("gone", DATE, 6): FINDINGS}) == set()
    assert tables.audit(*both) == set()
    assert tables.audit(("b1", 5)) == {5}
    assert tables.audit(("gone", 6)) == {5, 6}
    assert tables.audit(findings={gap: FINDINGS}) == {5}
    assert tables.audit(("no flush of logs-0 from 7", 6)) == {5, 6}, "a backfill has made it good"


def test_findings_of_a_batch_as_a_whole_are_of_each_of_its_hours(tables: Tables) -> None:
    """A flush record that says what is not so."""
    tables.announce("b1", 5, 6)
    tables.announce("b2", 7)
    of_flush = {BatchHour("b1"): {Kind.FLUSH_WRONG: 1}}
    assert tables.audit(("b1", 5), ("b1", 6), ("b2", 7), findings=of_flush) == {7}


def test_table_passes_by_audits_of_that_table(tables: Tables) -> None:
    """One of the files alone says nothing about it, and one of another table neither."""
    tables.announce("b1", 5)
    assert tables.audit(("b1", 5)) == {5}
    assert tables.passed(table_id="this") == set()
    tables.audit(("b1", 5), position=TABLE, taken=())
    assert tables.passed(table_id="this") == set(), "it had not taken all references"
    tables.audit(("b1", 5), position=TABLE)
    assert (tables.passed(table_id="this"), tables.passed(table_id="other")) == ({5}, set())
    of_table = {BatchHour("b1", DATE, 5): {Kind.TABLE_MISSING: 1}}
    assert tables.audit(("b1", 5), findings=of_table, position=TABLE) == {5}, "files are as they should be"
    assert tables.passed(table_id="this") == set()
    assert tables.audit(("b1", 5)) == {5}
    assert tables.passed(table_id="this") == set()


def test_batches_of_another_history_do_not_count(tables: Tables) -> None:
    """Two groups on the same topics: each waits for its own audits."""
    tables.announce("b1", 5)
    tables.announce("other", 5, group="stranger")
    assert tables.audit(("b1", 5)) == {5}
    assert tables.passed("stranger") == set()
