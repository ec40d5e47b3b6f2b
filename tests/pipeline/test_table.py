"""The table between drivers: compare-and-swap, half-made tables, offsets that outlive expiry. Needs no servers."""

import datetime as dt
import json
import os
import re
import time
from collections.abc import Callable, Iterable
from itertools import chain, repeat
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from log_partitioner.config.s3_settings import S3Settings
from log_partitioner.formats.reference import Reference
from log_partitioner_pipeline import columns
from log_partitioner_pipeline.activity import HOUR_KEY, HOURS, HOURS_TABLE, StateTable, counted_at
from log_partitioner_pipeline.changes import change_by_others
from log_partitioner_pipeline.columns import Column, Struct
from log_partitioner_pipeline.config import JobSettings
from log_partitioner_pipeline.entries import EntryTable
from log_partitioner_pipeline.errors import OvertakenError
from log_partitioner_pipeline.jobs.user_activity import UserActivity
from log_partitioner_pipeline.objects import Objects
from log_partitioner_pipeline.parquet import FileWriter
from log_partitioner_pipeline.rows import arrow_schema
from log_partitioner_pipeline.session import catalog_options
from log_partitioner_pipeline.table import SUMMARY_CARRIED, Position, format_offsets, load_table
from log_partitioner_pipeline.upkeep import Upkeep
from tests.pipeline.conftest import pipeline_variables, settings_of
from tests.pipeline.others import by_others
from tests.pipeline.packs import KEY, Entry, write_object
from tests.pipeline.readback import text_of

Make = Callable[[], EntryTable]
(REFERENCE,) = write_object([Entry(KEY, {"n": 1})]).references
LATER_MS = 4_000_000_000_000
STRUCT = Struct({"s": Column("s", Struct({"m": Column("m", "long")}))})


@pytest.fixture
def settings(tmp_path: Path) -> JobSettings:
    """Settings of a catalogue of its own."""
    variables = pipeline_variables(tmp_path) | {
        "LOGP_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "LOGP_KAFKA__SOURCE_TOPICS": '["none"]',
        "LOGP_S3__BUCKET": "none",
        "PIPELINE_CATALOG__WAREHOUSE": str(tmp_path / "warehouse"),
        "PIPELINE_ACTIVITY__INTERVAL_S": "0.01",
    }
    return settings_of(variables)


@pytest.fixture
def session(spark: SparkSession, settings: JobSettings) -> SparkSession:
    """A session with that catalogue."""
    session = spark.newSession()
    for key, value in catalog_options(settings).items():
        session.conf.set(key, value)
    return session


@pytest.fixture
def table_of(session: SparkSession, settings: JobSettings) -> Callable[[], EntryTable]:
    """Make the table as a driver has it."""

    def make() -> EntryTable:
        table = EntryTable(session, settings)
        table.ensure()
        return table

    return make


def files(table: EntryTable, *names: str, time_s: int = 0, users: Iterable[str] = repeat("u")) -> list[str]:
    """Write a row of each of these references, all in one hour; return the files."""
    target = table.target_of([])
    of_time = {"event_time": time_s * 1_000_000, "hour": time_s // 3600 * 3_600_000_000}
    rows = [{"user": user, **of_time, "_reference": name} for name, user in zip(names, users, strict=False)]
    writer = FileWriter(Objects(S3Settings(bucket="none")), target)
    batches = pa.Table.from_pylist(rows, arrow_schema(target.fields)).to_batches()
    written = [*chain.from_iterable(map(writer.add, batches)), *writer.write()]
    return [row["file"] for batch in written for row in batch.to_pylist()]


def reference(name: str, time_s: int) -> Reference:
    """Make a reference to one entry of this time."""
    time_us = time_s * 1_000_000
    return replace(REFERENCE, reference_id=name, event_time_min_us=time_us, event_time_max_us=time_us)


def names_in(session: SparkSession, table: EntryTable) -> list[str]:
    """Read the names back."""
    return sorted(row[0] for row in session.table(table.name).select(columns.REFERENCE).collect())


def test_a_late_driver_adds_nothing(session: SparkSession, table_of: Make) -> None:
    """Its files are written; its successor commits; whether it has looked at the offsets before or after that."""
    late, successor = table_of(), table_of()
    written = files(late, "a")
    build = late._update

    def overtaken(*told: Any, **known: Any) -> Any:
        update = build(*told, **known)
        successor.append(files(successor, "a"), base={}, offsets={0: 1}, rows=1)
        return update

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(late, "_update", overtaken)
        for _ in range(2):
            with pytest.raises(OvertakenError):
                late.append(written, base={}, offsets={0: 1}, rows=1)
    assert names_in(session, late) == ["a"]


def test_a_driver_adds_nothing_to_another_table_of_the_name(session: SparkSession, table_of: Make) -> None:
    """Its files have the columns of the table that it has seen, whatever offsets the other one has."""
    late = table_of()
    written = files(late, "a")
    session.sql(f"DROP TABLE {late.name}")
    table_of()
    with pytest.raises(OvertakenError, match="was made anew"):
        late.append(written, base={}, offsets={0: 1}, rows=1)
    assert names_in(session, late) == []


def test_expiry_sets_no_offsets_back(session: SparkSession, table_of: Make) -> None:
    """A rewrite that began before an append carries the offsets from before it: the append's snapshot stays."""
    table = table_of()
    upkeep = Upkeep(session, table.name)
    positions = [table.position()]
    for offset in (1, 2, 3):
        written = files(table, f"{offset}a", f"{offset}b")
        table.append(written, base=positions[-1].offsets, offsets={0: offset}, rows=2)
        positions.append(table.position())
    rewrite_all(session, upkeep, positions[2])
    upkeep.expire(before_ms=LATER_MS)
    assert table.position().offsets == {0: 3}
    rewrite_all(session, upkeep, table.position())
    upkeep.expire(before_ms=LATER_MS)
    assert table.position().offsets == {0: 3}
    assert names_in(session, table) == ["1a", "1b", "2a", "2b", "3a", "3b"]


def test_maintenance_of_others_sets_no_offsets_back(session: SparkSession, table_of: Make) -> None:
    """A rewrite that tells no offsets, and expiry of everything before it: managed tables do so by themselves."""
    table = table_of()
    for offset in (1, 2):
        table.append(files(table, str(offset)), base=table.position().offsets, offsets={0: offset}, rows=1)
    first = table.position()
    name = table.name.removeprefix("lake.")
    session.sql(f"CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))")
    later = f"timestamp_millis({LATER_MS}L)"
    session.sql(f"CALL lake.system.expire_snapshots(table => '{name}', older_than => {later}, retain_last => 1)")
    assert table.position().offsets == first.offsets == {0: 2}
    with pytest.raises(OvertakenError):
        table.append(files(table, "again"), base={}, offsets={0: 2}, rows=1)
    table.append(files(table, "3"), base={0: 2}, offsets={0: 3}, rows=1)
    assert names_in(session, table) == ["1", "2", "3"]


def test_a_table_that_was_rolled_back_is_filled_again(session: SparkSession, table_of: Make) -> None:
    """Its history tells the offsets of then, whatever was remembered beside it."""
    table = table_of()
    table.append(files(table, "1"), base={}, offsets={0: 1}, rows=1)
    first = table.position()
    table.append(files(table, "2"), base={0: 1}, offsets={0: 2}, rows=1)
    session.sql(f"CALL lake.system.rollback_to_snapshot('{table.name.removeprefix('lake.')}', {first.snapshot_id})")
    assert table.position().offsets == {0: 1}


def test_erased_rows_are_in_no_snapshot_and_no_statistics(
    session: SparkSession, table_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that share a file, a file, and the table; beside an append between look and deletion. Offsets stay."""
    table = table_of()
    upkeep = Upkeep(session, table.name)
    for offset, names in enumerate((["ann", "bob"], ["ann", "ann"], ["bob"]), 1):
        table.append(files(table, *names, users=names), base=table.position().offsets, offsets={0: offset}, rows=2)
    since, delete = table.position(), upkeep._delete

    def append_and_delete(*arguments: Any) -> None:
        if table.position().offsets == {0: 3}:
            table.append(files(table, "late", users=["ann"]), base={0: 3}, offsets={0: 4}, rows=1)
        delete(*arguments)

    monkeypatch.setattr(upkeep, "_delete", append_and_delete)
    assert upkeep.erase(F.col("user") == "ann").offsets == {0: 4}
    assert change_by_others(load_table(session, table.name), since) is None
    upkeep.purge()
    assert (names_in(session, table), table.position().offsets) == (["bob", "bob"], {0: 4})
    assert everything_of(table).count(b"ann") == 0
    assert [one.offsets for one in upkeep.file_hours()] == [{0: 4}]

    upkeep.erase(F.col("user") == "bob")
    upkeep.purge()
    assert (names_in(session, table), everything_of(table).count(b"bob")) == ([], 0)
    table.append(files(table, "5"), base={0: 4}, offsets={0: 5}, rows=1)
    assert names_in(session, table) == ["5"]


def everything_of(table: EntryTable) -> bytes:
    """Read all files below the table's location."""
    root = Path(table.target().location.removeprefix("file:"))
    return b"\n".join(text_of(path.name, path.read_bytes()) for path in root.rglob("*") if path.is_file())


def rewrite_all(session: SparkSession, upkeep: Upkeep, position: Position) -> None:
    """Commit what a rewrite commits: nothing new, and the offsets that it carries from when it began."""
    table = load_table(session, upkeep._table)
    table.newAppend().set(SUMMARY_CARRIED, format_offsets(position.offsets)).commit()


def test_others_may_change_the_table_at_the_same_moment(session: SparkSession, table_of: Make) -> None:
    """A rewrite, and rows of a writer that tells no offsets, cost a driver only another attempt."""
    table = table_of()
    build, changes = table._update, iter(["append", "rewrite", "append"])

    def changed(*told: Any, **known: Any) -> Any:
        update = build(*told, **known)
        match next(changes, None):
            case "append":
                row = "('u', timestamp_seconds(0), 'other')"
                session.sql(f"INSERT INTO {table.name} (user, event_time, _reference) VALUES {row}")
            case "rewrite":
                Upkeep(session, table.name).rewrite([0], position=table.position())
        return update

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "_update", changed)
        for offset in (1, 2):
            table.append(files(table, f"{offset}"), base=table.position().offsets, offsets={0: offset}, rows=1)
    assert names_in(session, table) == ["1", "2", "other", "other"]
    assert table.position().offsets == {0: 2}
    assert next(changes, None) is None


def test_upkeep_of_an_old_table(session: SparkSession, table_of: Make) -> None:
    """A branch keeps a snapshot older than expired ones; hours of years; an append behind the hours' choice."""
    table = table_of()
    upkeep = Upkeep(session, table.name)
    for offset in (1, 2, 3):
        written = files(table, str(offset), time_s=offset * 3600 - 1)
        table.append(written, base=table.position().offsets, offsets={0: offset}, rows=1)
        if offset == 1:
            session.sql(f"ALTER TABLE {table.name} CREATE BRANCH dead")
    position = table.position()
    upkeep.expire(before_ms=LATER_MS)
    assert session.sql(f"SELECT * FROM {table.name}.snapshots").count() == 2
    assert {one.hour: one.offsets for one in upkeep.file_hours()} == {0: {0: 1}, 1: {0: 3}, 2: {0: 3}}
    assert upkeep.rewrite(range(0, 12_000, 2), position=position) == (0, 0)
    assert upkeep.rewrite([0, 1, 2], position=Position({0: 2}, position.snapshot_id)) is None


def test_files_that_nobody_committed_go_once_they_are_old(session: SparkSession, table_of: Make) -> None:
    """A driver that was killed before its commit leaves them; one whose commit is under way has young ones."""
    table = table_of()
    table.append(files(table, "1"), base={}, offsets={0: 1}, rows=1)
    (orphan,) = [Path(json.loads(one)["file-path"].removeprefix("file:")) for one in files(table, "2")]
    upkeep = Upkeep(session, table.name)
    now_ms = time.time_ns() // 1_000_000
    assert upkeep.remove_orphans(before_ms=now_ms - 3_600_000) == 0
    day_ms = 86_400_000
    assert upkeep.count_orphans(before_ms=now_ms - 2 * day_ms) == 0
    os.utime(orphan, ns=(0, 1_000_000 * (now_ms - 3 * day_ms)))
    assert upkeep.count_orphans(before_ms=now_ms - 2 * day_ms) == 1
    assert orphan.exists()
    assert upkeep.remove_orphans(before_ms=now_ms + 60_000) == 1
    assert not orphan.exists()
    assert names_in(session, table) == ["1"]


def test_activity_goes_on_when_what_it_has_read_is_expired(
    session: SparkSession, settings: JobSettings, table_of: Make
) -> None:
    """It keeps nothing of one count for the next: Spark would plan it again at each write, and not find its files."""
    table = table_of()
    for offset in (1, 2, 3):
        table.append(files(table, str(offset)), base=table.position().offsets, offsets={0: offset}, rows=1)
        UserActivity(session, settings).run(continuous=False)
        Upkeep(session, table.name).purge()
    assert session._jsparkSession.sharedState().cacheManager().isEmpty()


DATES = [dt.date(2026, 3, 4), dt.date(2026, 3, 5)]


def state_table(session: SparkSession, settings: JobSettings) -> StateTable:
    """Make a table of states."""
    states = StateTable(session, settings, HOURS_TABLE, HOURS)
    states.ensure_of({"counted": "so"})
    return states


def states_of(session: SparkSession, sequence_number: int, *dates: dt.date, users: tuple[str, ...] = ("ann",)) -> Any:
    """Give states of these dates, with as many entries as their position is late."""
    rows = [(user, date, 5, sequence_number, 10) for user in users for date in dates]
    frame = session.createDataFrame(rows, "user string, date date, hour int, entries bigint, bytes bigint")
    return counted_at(frame, Position({0: sequence_number}, None, sequence_number=sequence_number))


def test_states_of_other_dates_are_not_read(session: SparkSession, settings: JobSettings) -> None:
    """Tables of states grow for years; an interval reads the files of its dates."""
    states = state_table(session, settings)
    for one in DATES:
        states.merge(states_of(session, 1, one), dates=[(one, one)])
    Upkeep(session, states.name).expire(before_ms=LATER_MS)
    assert session.sql(f"SELECT * FROM {states.name}.snapshots").count() == 1
    assert states.written_at_ms() > 0
    found = states.states([(DATES[1], DATES[1])])
    assert [row.date for row in found.collect()] == [DATES[1]]
    assert re.search(r"IcebergScan\(.*filters=[^)]*date (=|>=)", found._jdf.queryExecution().toString())


def test_states_of_an_earlier_position_are_discarded(session: SparkSession, settings: JobSettings) -> None:
    """It does not matter which of two drivers writes first; dates that only the earlier one has are added."""
    states = state_table(session, settings)
    span = [(DATES[0], DATES[1])]
    states.merge(states_of(session, 2, DATES[0]), dates=span)
    states.merge(states_of(session, 1, *DATES), dates=span)
    states.merge(states_of(session, 3, DATES[1]), dates=span)
    found = {row.date: (row.entries, row.offsets) for row in states.states(span).collect()}
    assert found == {DATES[0]: (2, {"0": 2}), DATES[1]: (3, {"0": 3})}


def test_drivers_that_write_states_at_the_same_moment(session: SparkSession, settings: JobSettings) -> None:
    """The later position wins, also in a table that is empty: nothing is lost, and nothing there twice."""
    states = state_table(session, settings)
    span = [(DATES[0], DATES[1])]
    for begin in (0, 2):
        drivers = [Thread(target=states_at, args=(session, settings, begin + number, span)) for number in (2, 1)]
        for driver in drivers:
            driver.start()
        for driver in drivers:
            driver.join()
        rows = states.states(span).select(*HOUR_KEY, "entries").collect()
        assert sorted(row.user for row in rows) == sorted(
            [f"of-{number + 1}" for number in range(begin + 2)] + ["both"]
        )
        assert [row.entries for row in rows if row.user == "both"] == [begin + 2]


def states_at(
    session: SparkSession, settings: JobSettings, sequence_number: int, span: list[tuple[dt.date, dt.date]]
) -> None:
    """Write a state that others write, too, and one of this position's own."""
    own = session.newSession()
    for key, value in catalog_options(settings).items():
        own.conf.set(key, value)
    frame = states_of(own, sequence_number, DATES[0], users=("both", f"of-{sequence_number}"))
    StateTable(own, settings, HOURS_TABLE, HOURS).merge(frame, dates=span)


def with_struct(table_of: Make) -> EntryTable:
    """Make the table, if it is not there, with a struct in it."""
    table = table_of()
    table.widen([STRUCT])
    return table


def looked_at(table: EntryTable) -> Position:
    """Append twice, and give the position then, as its jobs read it."""
    for offset, name in ((1, "a"), (2, "b")):
        table.append(files(table, name), base=table.position().offsets, offsets={0: offset}, rows=1)
    return table.position()


def test_its_own_jobs_change_nothing(session: SparkSession, table_of: Make) -> None:
    """An append, a rewrite, a column more, a branch, expiry of what was before."""
    table = with_struct(table_of)
    since = looked_at(table)
    upkeep = Upkeep(session, table.name)
    table.append(files(table, "c"), base=since.offsets, offsets={0: 3}, rows=1)
    assert upkeep.rewrite([one.hour for one in upkeep.file_hours()], position=table.position()) == (3, 1)
    table.widen([Struct({"n": Column("n", "long")}), STRUCT])
    session.sql(f"ALTER TABLE {table.name} CREATE BRANCH other")
    upkeep.expire(before_ms=0)
    assert change_by_others(load_table(session, table.name), since) is None


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (
            "UPDATE {table} SET _rest = '{{}}' WHERE _reference = 'a'",
            r"snapshot \d+ \(overwrite\) is by none of its jobs",
        ),
        ("DELETE FROM {table} WHERE _reference = 'a'", r"snapshot \d+ \((delete|overwrite)\) is by none of its jobs"),
        ("INSERT INTO {table} SELECT * FROM {table}", r"snapshot \d+ \(append\) is by none of its jobs"),
        (
            "CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))",
            r"snapshot \d+ \(replace\) is by none of its jobs",
        ),
        ("CALL lake.system.rollback_to_snapshot('{name}', {before})", r"it does not come from snapshot \d+ any more"),
        ("ALTER TABLE {table} DROP COLUMN s.m", r"columns s\.m are gone"),
        ("ALTER TABLE {table} RENAME COLUMN _rest TO rest", r"columns _rest are gone"),
        ("DROP TABLE {table}", r"it was made anew"),
    ],
)
def test_what_others_do_is_told(statement: str, told: str, session: SparkSession, table_of: Make) -> None:
    """Rows updated, deleted, added, rewritten, rolled back; columns dropped or renamed; another table of that name.

    An append of its own on top of it hides nothing.
    """
    table = with_struct(table_of)
    since = looked_at(table)
    before = load_table(session, table.name).currentSnapshot().parentId()
    by_others(
        session,
        table.name,
        statement.format(table=table.name, name=table.name.removeprefix("lake."), before=before),
    )
    if not statement.startswith(("ALTER", "CALL lake.system.rollback")):
        table = with_struct(table_of)
        table.append(files(table, "c"), base=table.position().offsets, offsets={0: 9}, rows=1)
    change = change_by_others(load_table(session, table.name), since)
    assert re.fullmatch(told, change or "")


def test_a_snapshot_shows_columns_that_were_dropped_since(session: SparkSession, table_of: Make) -> None:
    """For this reason jobs read the columns from the table as it is, not as of a snapshot."""
    table = table_of()
    snapshot_id = looked_at(table).snapshot_id
    session.sql(f"ALTER TABLE {table.name} DROP COLUMN _rest")
    as_of = session.read.option("versionAsOf", str(snapshot_id)).table(table.name)
    assert ("_rest" in as_of.columns, "_rest" in session.table(table.name).columns) == (True, False)
