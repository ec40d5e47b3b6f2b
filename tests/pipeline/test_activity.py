"""Counts of users: equal to those of the source, whatever is repeated, republished, late, or killed between writes."""

import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest

from log_partitioner.formats.reference import Reference
from log_partitioner_pipeline.activity import PROPERTY_COUNTED, touched_hours
from log_partitioner_pipeline.entries import EntryTable
from log_partitioner_pipeline.errors import TableError
from log_partitioner_pipeline.jobs.materialize import Materialize
from log_partitioner_pipeline.jobs.user_activity import Update, UserActivity
from log_partitioner_pipeline.topic_log import Slice
from log_partitioner_pipeline.upkeep import Upkeep
from tests.integration.harness import Deployment
from tests.integration.one_worker import run_through
from tests.pipeline.conftest import Lake
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper

Counts = dict[tuple[Any, ...], tuple[int, int]]

DRIVER = str(Path(__file__).parent / "activity_driver.py")
RECORDS = 300
ENTRIES_PER_RECORD = 3
INTERVAL_S = 5.0
STOPPED_S = 120.0
# A few references in each commit of the table, and no waiting between writes of states.
SHORT = {"PIPELINE_ACTIVITY__INTERVAL_S": "0.01", "PIPELINE_MATERIALIZE__REFERENCES_MAX": "30"}


class Delivered(NamedTuple):
    """A worker's output, in several transactions, and the counts of its source."""

    deployment: Deployment
    copies: str
    hours: Counts
    days: Counts


@pytest.fixture(scope="module")
def delivered(kafka: KafkaHelper, s3: S3Helper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Delivered]:
    """Give one worker's work: lists of entries of several users each. Tests leave it as it is."""
    names = Names("activity")
    entries = [entry_of(at) for at in range(RECORDS * ENTRIES_PER_RECORD)]
    lists = [entries[at : at + ENTRIES_PER_RECORD] for at in range(0, len(entries), ENTRIES_PER_RECORD)]
    records = [ToProduce(value=json.dumps(some).encode(), partition=at % 6) for at, some in enumerate(lists)]
    settings = {"LOGP_LAYOUT": "file"}  # many messages: what is counted at once ends between them
    root = tmp_path_factory.mktemp("activity")
    with Deployment(kafka=kafka, s3=s3, names=names, root=root, settings=settings) as deployment:
        run_through(deployment, records, LOGP_FLUSH__ENTRIES_MAX="200")
        copies = copy_references(deployment, names.topic("copies"))
        yield Delivered(deployment, copies, *counts_of(entries))


def entry_of(at: int) -> dict[str, Any]:
    """Give an entry of one of several users and hours, with values of types that conflict."""
    return {
        "user": f"üser-{at % 7}",
        "time": f"2026-03-{4 + at % 2:02}T{5 + at % 3:02}:{at % 60:02}:07Z",
        "n": at if at % 4 else float(at),
        "x": [None, "täxt", {"a": {}, "b": None}, [1, "1", None, True], 0.5][at % 5],
    }


def counts_of(entries: list[dict[str, Any]], zone: str = "UTC") -> tuple[Counts, Counts]:
    """Count the source: entries and bytes by (user, date, hour) and by (user, date)."""
    hours: Counts = {}
    days: Counts = {}
    for entry in entries:
        moment = datetime.fromisoformat(entry["time"]).astimezone(ZoneInfo(zone))
        date, hour = str(moment.date()), moment.hour
        for counts, key in ((hours, (entry["user"], date, hour)), (days, (entry["user"], date))):
            n, total = counts.get(key, (0, 0))
            counts[key] = n + 1, total + size_of(entry)
    return hours, days


def size_of(value: Any) -> int:
    """Give the bytes of names and texts, 8 for a number, 1 for a boolean."""
    match value:
        case dict():
            return sum(size_of(key) + size_of(item) for key, item in value.items() if item is not None)
        case list():
            return sum(map(size_of, value))
        case str():
            return len(value.encode())
        case None | bool():
            return int(value is not None)
        case _:
            return 8


def copy_references(deployment: Deployment, topic: str) -> str:
    """Write every reference twice into another topic, in another order: late ones, early ones, repeated ones."""
    deployment.kafka.create_topic(topic, partitions=2)
    messages = deployment.kafka.read_committed(deployment.references_topic) * 2
    random.Random(8).shuffle(messages)
    copies = [ToProduce(value=message.value(), partition=at % 2) for at, message in enumerate(messages)]
    deployment.kafka.produce(topic, copies)
    return topic


def hours_in(lake: Lake, namespace: str = "logs") -> Counts:
    """Read the states of hours; one that is there twice fails."""
    rows = lake.spark.table(f"lake.{namespace}.user_hours").collect()
    found = {(row.user, str(row.date), row.hour): (row.entries, row.bytes) for row in rows}
    assert len(found) == len(rows)
    return found


def days_in(lake: Lake, namespace: str = "logs") -> Counts:
    """Read the states of days; one that is there twice fails."""
    rows = lake.spark.table(f"lake.{namespace}.user_days").collect()
    found = {(row.user, str(row.date)): (row.entries, row.bytes) for row in rows}
    assert len(found) == len(rows)
    return found


def snapshots_of(lake: Lake, table: str) -> list[Any]:
    """Give the times at which the table was written."""
    rows = lake.spark.sql(f"SELECT committed_at FROM lake.logs.{table}.snapshots ORDER BY committed_at").collect()
    return [row.committed_at for row in rows]


class DiedError(Exception):
    """The driver is dead."""


def materialize(lake: Lake, *, commits: int | None = None) -> None:
    """Bring the table up to date, or by so many commits only."""

    class Stopping(Materialize):
        left = commits

        def _commit(self, of_it: Slice[Reference]) -> None:
            if self.left == 0:
                raise DiedError
            super()._commit(of_it)
            self.left = None if self.left is None else self.left - 1

    if commits is None:
        Materialize(lake.spark, lake.settings).run(continuous=False)
    else:
        with pytest.raises(DiedError):
            Stopping(lake.spark, lake.settings).run(continuous=False)


def count(lake: Lake, job: type[UserActivity] = UserActivity) -> None:
    """Run the job until it is up to date."""
    job(lake.spark, lake.settings).run(continuous=False)


def test_counts_are_those_of_the_source(delivered: Delivered, lake_of: Callable[..., Lake]) -> None:
    """Counted as the table grows, and once again as if nothing was: nothing changes."""
    lake = lake_of(delivered.deployment, **SHORT)
    for _ in range(3):
        materialize(lake, commits=1)
        count(lake)
    materialize(lake)
    count(lake)
    assert (hours_in(lake), days_in(lake)) == (delivered.hours, delivered.days)
    written = snapshots_of(lake, "user_hours"), snapshots_of(lake, "user_days")
    assert [len(times) for times in written] == [4, 4]

    lake.spark.sql(f"ALTER TABLE lake.logs.user_hours UNSET TBLPROPERTIES ('{PROPERTY_COUNTED}')")
    count(lake)
    assert (hours_in(lake), days_in(lake)) == (delivered.hours, delivered.days)
    row = lake.spark.table("lake.logs.user_days").orderBy("sequence_number").collect()[-1]
    table = EntryTable(lake.spark, lake.settings)
    position = table.position()
    assert (row.sequence_number, row.offsets) == (
        position.sequence_number,
        {str(partition): offset for partition, offset in position.offsets.items()},
    )

    upkeep = Upkeep(lake.spark, table.name)
    assert upkeep.rewrite([one.hour for one in upkeep.file_hours()], position=position) is not None
    assert touched_hours(lake.spark, table.name, since=position.sequence_number) == []
    assert touched_hours(lake.spark, table.name, since=position.sequence_number - 1) != []
    count(lake)
    assert (snapshots_of(lake, "user_hours"), snapshots_of(lake, "user_days")) == written

    lake.spark.sql(f"DROP TABLE {lake.table}")
    materialize(lake)
    with pytest.raises(TableError, match="can count anew once both user_hours and user_days are dropped"):
        count(lake)


def test_order_of_references_does_not_matter(delivered: Delivered, lake_of: Callable[..., Lake]) -> None:
    """Shuffled and doubled, counted in between, as if a backfill delivers entries between older offsets."""
    lake = lake_of(delivered.deployment, **SHORT, LOGP_KAFKA__REFERENCES_TOPIC=delivered.copies)
    materialize(lake, commits=2)
    count(lake)
    materialize(lake)
    count(lake)
    assert (hours_in(lake), days_in(lake)) == (delivered.hours, delivered.days)


@pytest.mark.parametrize("zone", ["Asia/Kolkata", pytest.param("America/St_Johns", marks=pytest.mark.sweep)])
def test_hours_are_those_of_the_zone(zone: str, delivered: Delivered, lake_of: Callable[..., Lake]) -> None:
    """They may begin in the middle of the hours by which the table is partitioned."""
    lake = lake_of(delivered.deployment, **SHORT, LOGP_PARTITION__ZONE=zone)
    materialize(lake, commits=2)
    count(lake)
    materialize(lake)
    count(lake)
    entries = [entry_of(at) for at in range(RECORDS * ENTRIES_PER_RECORD)]
    assert (hours_in(lake), days_in(lake)) == counts_of(entries, zone)


def test_republished_records_count_once(
    kafka: KafkaHelper, s3: S3Helper, names: Names, tmp_path: Path, lake_of: Callable[..., Lake]
) -> None:
    """A republisher writes every record into a second topic, dies, and begins again: its copies change nothing.

    Neither does it matter whether the original or a copy was counted first, nor that both topics are read.
    """
    lists = [[entry_of(2 * at), entry_of(2 * at + 1)] for at in range(60)]
    hours, days = counts_of([entry for some in lists for entry in some])
    records = [ToProduce(value=json.dumps(some).encode(), partition=at % 6) for at, some in enumerate(lists)]
    settings = {"LOGP_LAYOUT": "file"}
    with Deployment(kafka=kafka, s3=s3, names=names, root=tmp_path, settings=settings) as deployment:
        second = kafka.create_topic(names.topic("second"), partitions=2)
        places = run_through(deployment, records)
        lake = lake_of(deployment, **SHORT)
        materialize(lake)
        count(lake)
        assert (hours_in(lake), days_in(lake)) == (hours, days)

        copies = [
            ToProduce(
                value=record.value,
                partition=at % 2,
                headers={"source-topic-chain": json.dumps([[deployment.source, *place]]).encode()},
            )
            for at, (record, place) in enumerate(zip(records, places, strict=True))
        ]
        take_all(deployment, second, [*copies[:40], *copies])
        announced = sum(reference.entries for reference in deployment.references())
        assert announced == 2 * (60 + 40 + 60)
        materialize(lake)
        count(lake)
        assert (hours_in(lake), days_in(lake)) == (hours, days)

        newest_first = [
            ToProduce(value=message.value(), partition=0)
            for message in reversed(kafka.read_committed(deployment.references_topic))
        ]
        kafka.produce(kafka.create_topic(names.topic("reversed")), newest_first)
        reversed_settings = {"LOGP_KAFKA__REFERENCES_TOPIC": names.topic("reversed"), **other_tables("copies_first")}
        copies_first = lake_of(deployment, **SHORT, **reversed_settings)
        materialize(copies_first, commits=1)
        count(copies_first)
        materialize(copies_first)
        count(copies_first)
        assert (hours_in(copies_first, "copies_first"), days_in(copies_first, "copies_first")) == (hours, days)

        by_record = lake_of(deployment, **SHORT, PIPELINE_ACTIVITY__IDENTITY="record", **other_tables("by_record"))
        materialize(by_record)
        count(by_record)
        assert entries_in(days_in(by_record, "by_record")) == announced


def other_tables(namespace: str) -> dict[str, str]:
    """Keep tables elsewhere than other jobs of the test."""
    return {"PIPELINE_TABLE__NAME": f"{namespace}.entries"}


def take_all(deployment: Deployment, topic: str, records: list[ToProduce]) -> None:
    """Let another worker of the group take these records from another source topic, and stop it."""
    deployment.kafka.produce(topic, records)
    worker = deployment.start("w2", LOGP_KAFKA__SOURCE_TOPICS=json.dumps([topic]))
    deployment.wait_metric("w2", "records_total", len(records))
    assert deployment.stop_all() == {"w1": 0, "w2": 0}, worker.last_lines()


def dies_before(name: str, order: tuple[str, ...] | None = None) -> type[UserActivity]:
    """Give a driver that is dead when it comes to this write, and whose writes have this order."""

    class Dying(UserActivity):
        def _write(self, update: Update) -> None:
            for step in order or IN_ORDER:
                if step == name:
                    raise DiedError
                getattr(self, step)(update)

    return Dying


IN_ORDER = ("_write_days", "_write_hours", "_write_position")


def one_of(steps: tuple[str, ...], shown: str) -> list[Any]:
    """Give these steps, all but one as a sweep."""
    return [step if step == shown else pytest.param(step, marks=pytest.mark.sweep) for step in steps]


@pytest.mark.parametrize("step", one_of(IN_ORDER, "_write_hours"))
def test_driver_that_dies_before_a_write_loses_nothing(
    step: str, delivered: Delivered, lake_of: Callable[..., Lake]
) -> None:
    """In its first interval and again in the next start's; the third completes the counts. Each has its own session."""
    for _ in range(2):
        lake = lake_of(delivered.deployment, **SHORT)
        materialize(lake, commits=2)
        with pytest.raises(DiedError):
            count(lake, dies_before(step))
    written = days_in(lake) != {}, hours_in(lake) != {}
    assert written == tuple(IN_ORDER.index(step) > number for number in range(2))
    lake = lake_of(delivered.deployment, **SHORT)
    materialize(lake)
    count(lake)
    assert (hours_in(lake), days_in(lake)) == (delivered.hours, delivered.days)


REVERSED = ("_write_position", "_write_hours", "_write_days")


@pytest.mark.parametrize(
    ("order", "step", "lost"),
    [
        (REVERSED, "_write_hours", {"hours", "days"}),
        pytest.param(REVERSED, "_write_days", {"days"}, marks=pytest.mark.sweep),
        pytest.param(
            ("_write_hours", "_write_days", "_write_position"), "_write_days", {"days"}, marks=pytest.mark.sweep
        ),
    ],
)
def test_any_other_order_would_lose(
    order: tuple[str, ...], step: str, lost: set[str], delivered: Delivered, lake_of: Callable[..., Lake]
) -> None:
    """Position first, or hours before days: the same death leaves counts short; no later start makes up for it."""
    lake = lake_of(delivered.deployment, **SHORT)
    materialize(lake)
    with pytest.raises(DiedError):
        count(lake, dies_before(step, order))
    count(lake)
    pairs = {"hours": (hours_in(lake), delivered.hours), "days": (days_in(lake), delivered.days)}
    short = {name for name, (found, source) in pairs.items() if entries_in(found) < entries_in(source)}
    assert short == lost
    assert all(found == source for name, (found, source) in pairs.items() if name not in lost)


def entries_in(counts: Counts) -> int:
    """Sum up."""
    return sum(entries for entries, _ in counts.values())


@pytest.mark.sweep
@pytest.mark.parametrize("step", ["_write_hours", "_write_position"])
def test_driver_killed_between_writes(step: str, delivered: Delivered, lake_of: Callable[..., Lake]) -> None:
    """SIGKILL, the JVM too; the next driver completes the counts."""
    lake = lake_of(delivered.deployment, **SHORT)
    materialize(lake, commits=2)
    driver = lake.start("killed", step, program=(DRIVER,))
    driver.wait_for_line(f"stopped before {step}", timeout_s=STOPPED_S)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait(grace_s=10)
    assert days_in(lake) != {}
    assert (hours_in(lake) == {}) == (step == "_write_hours")
    materialize(lake)
    count(lake)
    assert (hours_in(lake), days_in(lake)) == (delivered.hours, delivered.days)


@pytest.mark.parametrize("step", one_of(IN_ORDER, "_write_hours"))
def test_two_drivers_at_once(step: str, delivered: Delivered, lake_of: Callable[..., Lake]) -> None:
    """A driver that another one, of a later position, has overtaken before a write puts no older state over a newer."""
    lake = lake_of(delivered.deployment, **SHORT)
    materialize(lake, commits=2)

    class Overtaken(UserActivity):
        is_ahead = True

        def _write(self, update: Update) -> None:
            for name in IN_ORDER:
                if name == step and self.is_ahead:
                    self.is_ahead = False
                    materialize(lake)
                    count(lake)
                getattr(self, name)(update)

    count(lake, Overtaken)
    assert (hours_in(lake), days_in(lake)) == (delivered.hours, delivered.days)
    count(lake)
    assert (hours_in(lake), days_in(lake)) == (delivered.hours, delivered.days)


def test_states_are_written_once_per_interval(delivered: Delivered, lake_of: Callable[..., Lake]) -> None:
    """Many commits, few writes: each table once per interval, even if the driver died and came back.

    Outline: half of the entries is there; the driver dies, and comes back; the other half comes.
    """
    lake = lake_of(delivered.deployment, **SHORT | {"PIPELINE_ACTIVITY__INTERVAL_S": str(INTERVAL_S)})
    materialize(lake, commits=3)
    with pytest.raises(DiedError):
        count(lake, dies_before("_write_hours"))
    count(lake)
    materialize(lake)
    count(lake)
    assert (hours_in(lake), days_in(lake)) == (delivered.hours, delivered.days)
    commits = len(snapshots_of(lake, "entries"))
    assert commits > 5
    for table in ("user_hours", "user_days"):
        written = snapshots_of(lake, table)
        assert len(written) in (2, 3), f"{commits} commits"
        assert min((later - earlier).total_seconds() for earlier, later in pairwise(written)) >= INTERVAL_S - 0.001
