"""The table between drivers: compare-and-swap, half-made tables, offsets that outlive expiry. Needs no servers."""

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from log_partitioner.formats.reference import Reference
from log_partitioner_pipeline.activity.stages import HOUR_KEY, HOURS
from log_partitioner_pipeline.activity.tables import StateTable
from log_partitioner_pipeline.branches import Branch, load_table
from log_partitioner_pipeline.changes import change_by_others
from log_partitioner_pipeline.columns import FIXED_FIELDS, META_TYPE
from log_partitioner_pipeline.config import JobSettings
from log_partitioner_pipeline.errors import OvertakenError
from log_partitioner_pipeline.session import catalog_options
from log_partitioner_pipeline.table import SUMMARY_CARRIED, Position, Table, format_offsets
from log_partitioner_pipeline.upkeep import Upkeep
from tests.pipeline.conftest import pipeline_variables, settings_of
from tests.pipeline.others import by_others
from tests.pipeline.packs import KEY, Entry, write_object

TOPIC = "references"
SCHEMA = f"_meta {META_TYPE.simpleString()}, _reference string, _rest string"
(REFERENCE,) = write_object([Entry(KEY, {"n": 1})]).references
LATER_MS = 4_000_000_000_000
WAIT_S = 60.0
STRUCT = T.StructField("s", T.StructType([T.StructField("m__long", T.LongType())]))


@pytest.fixture
def settings(tmp_path: Path) -> JobSettings:
    """Settings of a catalogue of its own."""
    variables = pipeline_variables(tmp_path) | {
        "LOGP_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "LOGP_KAFKA__SOURCE_TOPICS": '["none"]',
        "LOGP_S3__BUCKET": "none",
        "PIPELINE_CATALOG__WAREHOUSE": str(tmp_path / "warehouse"),
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
def table_of(session: SparkSession, settings: JobSettings) -> Callable[[str], Table]:
    """Make the table as a driver of this name has it."""

    def make(driver: str) -> Table:
        table = Table(session, settings.pipeline.table, topic=TOPIC, branch=driver)
        table.ensure()
        return table

    return make


def rows(session: SparkSession, *names: str) -> DataFrame:
    """Rows of references with these names."""
    return session.createDataFrame([(None, name, None) for name in names], SCHEMA)


def reference(name: str, time_s: int) -> Reference:
    """Make a reference to one entry of this time."""
    time_us = time_s * 1_000_000
    return replace(REFERENCE, reference_id=name, event_time_min_us=time_us, event_time_max_us=time_us)


def names_in(session: SparkSession, table: Table) -> list[str]:
    """Read the names back."""
    return sorted(row[0] for row in session.table(table.name).select(FIXED_FIELDS[1].name).collect())


class Stopped:
    """Rows whose writing stops in its task until it may go on."""

    def __init__(self, root: Path) -> None:
        self.stands, self.may_go_on = root / "stands", root / "may-go-on"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Stand, then give the rows."""
        self.stands.touch()
        wait_for(self.may_go_on)
        yield from batches


def wait_for(file: Path) -> None:
    """Wait until there is such a file."""
    deadline = time.monotonic() + WAIT_S
    while not file.exists():
        assert time.monotonic() < deadline, f"{file.name} does not come"
        time.sleep(0.02)


def test_a_late_driver_whose_branch_is_gone_adds_nothing(
    session: SparkSession, table_of: Callable[[str], Table], tmp_path: Path
) -> None:
    """Stopped while it writes; its successor commits; compaction takes its branch for one of a dead driver's."""
    late, successor = table_of("late"), table_of("successor")
    base = late.position()
    stopped = Stopped(tmp_path)
    slow = rows(session, "a").coalesce(1).mapInArrow(stopped, SCHEMA)
    failed: list[BaseException] = []

    def append() -> None:
        try:
            late.append(slow, base=base, offsets={0: 1}, entries=1)
        except OvertakenError as error:
            failed.append(error)

    thread = threading.Thread(target=append)
    thread.start()
    wait_for(stopped.stands)
    successor.append(rows(session, "a"), base=base, offsets={0: 1}, entries=1)
    successor.drop_branch()
    assert Upkeep(session, late.name).drop_branches(before_ms=LATER_MS) == ["late"]
    stopped.may_go_on.touch()
    thread.join(WAIT_S)
    assert (names_in(session, late), len(failed)) == (["a"], 1)


def test_a_table_that_was_only_created_is_used(session: SparkSession, table_of: Callable[[str], Table]) -> None:
    """Killed between the table's creation and its first, empty snapshot."""

    def die() -> DataFrame:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparkSession, "createDataFrame", lambda *_: die())
        with pytest.raises(KeyboardInterrupt):
            table_of("killed")
    table = table_of("next")
    table.append(rows(session, "a"), base=table.position(), offsets={0: 1}, entries=1)
    assert names_in(session, table) == ["a"]


def test_expiry_sets_no_offsets_back(session: SparkSession, table_of: Callable[[str], Table]) -> None:
    """A rewrite that began before an append carries the offsets from before it: the append's snapshot stays."""
    table = table_of("one")
    upkeep = Upkeep(session, table.name)
    positions = [table.position()]
    for offset in (1, 2, 3):
        appended = rows(session, f"{offset}a", f"{offset}b")
        positions.append(table.append(appended, base=positions[-1], offsets={0: offset}, entries=2))
    table.drop_branch()
    rewrite_all(session, upkeep, positions[2])
    upkeep.expire(before_ms=LATER_MS)
    assert table.position().offsets == {0: 3}
    rewrite_all(session, upkeep, table.position())
    upkeep.expire(before_ms=LATER_MS)
    assert table.position().offsets == {0: 3}
    assert names_in(session, table) == ["1a", "1b", "2a", "2b", "3a", "3b"]


def rewrite_all(session: SparkSession, upkeep: Upkeep, position: Position) -> None:
    """Commit what a rewrite commits: nothing new, and the offsets that it carries from when it began."""
    name = f"snapshot-property.{SUMMARY_CARRIED}"
    rows(session).writeTo(upkeep._table).option(name, format_offsets(position.offsets)).append()


def test_others_may_change_the_table_at_the_same_moment(
    session: SparkSession, table_of: Callable[[str], Table]
) -> None:
    """Branches that come and go meanwhile cost a driver nothing but another attempt."""
    table = table_of("one")
    over = threading.Event()
    troubles: list[BaseException] = []

    def come_and_go(name: str) -> None:
        try:
            while not over.is_set():
                branch = Branch(session, table.name, name)
                branch.begin_at(table.position().snapshot_id or 0)
                branch.drop()
                over.wait(0.3)
        except (AssertionError, Py4JJavaError) as error:
            troubles.append(error)

    others = [threading.Thread(target=come_and_go, args=(f"other-{n}",)) for n in range(2)]
    for other in others:
        other.start()
    position = table.position()
    for offset in range(1, 6):
        position = table.append(rows(session, f"{offset}"), base=position, offsets={0: offset}, entries=1)
    over.set()
    for other in others:
        other.join(WAIT_S)
    assert (names_in(session, table), troubles) == (["1", "2", "3", "4", "5"], [])


def test_what_others_append_at_once_is_not_ours(session: SparkSession, table_of: Callable[[str], Table]) -> None:
    """A successor commits right behind us: our next append must not take its offsets for our own, and set them back."""
    one, other = table_of("one"), table_of("other")
    moved = one._branch.move_table

    def overtaken(*, base: int) -> object:
        commit_id = moved(base=base)
        other.append(rows(session, "b"), base=other.position(), offsets={0: 20}, entries=1)
        return commit_id

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one._branch, "move_table", overtaken)
        position = one.append(rows(session, "a"), base=one.position(), offsets={0: 10}, entries=1)
    with pytest.raises(OvertakenError):
        one.append(rows(session, "c"), base=position, offsets={0: 15}, entries=1)
    assert (one.position().offsets, names_in(session, one)) == ({0: 20}, ["a", "b"])


def test_upkeep_of_an_old_table(session: SparkSession, table_of: Callable[[str], Table]) -> None:
    """A branch keeps a snapshot older than expired ones; hours of years; an append behind the hours' choice."""
    table = table_of("one")
    upkeep = Upkeep(session, table.name)
    position = table.position()
    for offset in (1, 2, 3):
        appended = session.sql(
            f"SELECT named_struct('user', 'u', 'event_time', timestamp_seconds({offset * 3600 - 1})) AS _meta, "
            f"'{offset}' AS _reference"
        )
        position = table.append(appended, base=position, offsets={0: offset}, entries=1)
        if offset == 1:
            Branch(session, table.name, "dead").begin_at(position.snapshot_id or 0)
    table.drop_branch()
    upkeep.expire(before_ms=LATER_MS)
    assert session.sql(f"SELECT * FROM {table.name}.snapshots").count() == 2
    assert {one.hour: one.offsets for one in upkeep.file_hours()} == {0: {0: 1}, 1: {0: 3}, 2: {0: 3}}
    assert upkeep.rewrite(range(0, 12_000, 2), position=position) == (0, 0)
    assert table.holds([reference("1", 3599), reference("3", 10_799), reference("4", 2_000_000_000)]) == {"1", "3"}
    assert upkeep.rewrite([0, 1, 2], position=Position({0: 2}, position.snapshot_id)) is None


def test_states_of_other_dates_are_not_read(session: SparkSession) -> None:
    """Tables of states grow for years; an interval reads the files of its dates."""
    states = StateTable(session, "logs.hours", columns=HOURS, key=HOUR_KEY, run="one")
    states.ensure(user_buckets=2, identity="root")
    for date in ("2026-03-04", "2026-03-05"):
        row = ("ann", date, 5, 1, 10, [])
        states.merge(session.createDataFrame([row], HOURS), base=states.head(), dates=[date])
    Upkeep(session, states.name).expire(before_ms=LATER_MS)
    assert session.sql(f"SELECT * FROM {states.name}.snapshots").count() == 1
    assert states.written_at_ms() > 0
    found = states.read(states.head(), dates=["2026-03-05"])
    assert [row.date for row in found.collect()] == ["2026-03-05"]
    assert re.search(r"IcebergScan\(.*filters=[^)]*date (=|IN)", found._jdf.queryExecution().toString())


def with_struct(table_of: Callable[[str], Table]) -> Table:
    """Make the table, where it is not there, with a struct in it."""
    table = table_of("one")
    table.widen(T.StructType([STRUCT]), weights={})
    return table


def timed(session: SparkSession, name: str) -> DataFrame:
    """Give a row of the reference with this name, in the first hour that there is."""
    meta = "named_struct('user', 'u', 'event_time', timestamp_seconds(0)) AS _meta"
    return session.sql(f"SELECT {meta}, '{name}' AS _reference")


def looked_at(session: SparkSession, table: Table) -> Position:
    """Append twice, and give the position then, as its jobs read it."""
    for offset, name in ((1, "a"), (2, "b")):
        table.append(timed(session, name), base=table.position(), offsets={0: offset}, entries=1)
    return table.position()


def test_its_own_jobs_change_nothing(session: SparkSession, table_of: Callable[[str], Table]) -> None:
    """An append, a rewrite, a column more, a branch, expiry of what was before."""
    table = with_struct(table_of)
    since = looked_at(session, table)
    upkeep = Upkeep(session, table.name)
    table.append(timed(session, "c"), base=since, offsets={0: 3}, entries=1)
    assert upkeep.rewrite([one.hour for one in upkeep.file_hours()], position=table.position()) == (3, 1)
    table.widen(T.StructType([T.StructField("n__long", T.LongType()), STRUCT]), weights={})
    Branch(session, table.name, "other").begin_at(since.snapshot_id or 0)
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
        ("ALTER TABLE {table} DROP COLUMN s.m__long", r"columns s\.m__long are gone"),
        ("ALTER TABLE {table} RENAME COLUMN _rest TO rest", r"columns _rest are gone"),
        ("DROP TABLE {table}", r"it was made anew"),
    ],
)
def test_what_others_do_is_told(
    statement: str, told: str, session: SparkSession, table_of: Callable[[str], Table]
) -> None:
    """Rows updated, deleted, added, rewritten, rolled back; columns dropped or renamed; another table of that name.

    An append of its own on top of it hides nothing.
    """
    table = with_struct(table_of)
    since = looked_at(session, table)
    before = load_table(session, table.name).currentSnapshot().parentId()
    by_others(
        session,
        table.name,
        statement.format(table=table.name, name=table.name.removeprefix("lake."), before=before),
    )
    if not statement.startswith(("ALTER", "CALL lake.system.rollback")):
        table = with_struct(table_of)
        table.append(timed(session, "c"), base=table.position(), offsets={0: 9}, entries=1)
    change = change_by_others(load_table(session, table.name), since)
    assert re.fullmatch(told, change or "")


def test_a_snapshot_shows_columns_that_were_dropped_since(
    session: SparkSession, table_of: Callable[[str], Table]
) -> None:
    """Which is why what is about to be relied on is read from the table as it is, not as of a snapshot."""
    table = table_of("one")
    snapshot_id = looked_at(session, table).snapshot_id
    session.sql(f"ALTER TABLE {table.name} DROP COLUMN _rest")
    as_of = session.read.option("versionAsOf", str(snapshot_id)).table(table.name)
    assert ("_rest" in as_of.columns, "_rest" in session.table(table.name).columns) == (True, False)
