"""A table of another form is made anew from all references that are known, and takes the place of the old one."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from log_partitioner_pipeline.errors import PipelineError, TableError
from log_partitioner_pipeline.jobs.materialize import Materialize
from log_partitioner_pipeline.jobs.rebuild import Rebuild
from log_partitioner_pipeline.jobs.user_activity import UserActivity
from log_partitioner_pipeline.retired import RetiredObjects
from tests.pipeline.by_hand import ByHand
from tests.pipeline.conftest import Lake, settings_of
from tests.pipeline.packs import TIME_US
from tests.pipeline.stopping_driver import BETWEEN_RENAMES
from tests.pipeline.test_announced import forget
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper
from tools.local.processes import ServerProcess

DRIVER = str(Path(__file__).parent / "stopping_driver.py")
BEFORE_COMMIT = "between data files and table commit"
SMALL = {"PIPELINE_MATERIALIZE__REFERENCES_MAX": "4", "PIPELINE_ACTIVITY__INTERVAL_S": "0.001"}
FRESH = {"PIPELINE_TABLE__NAME": "logs.fresh"}
OVERTAKEN = 2
BATCH = 36
OBJECTS = 18  # of a batch


@pytest.fixture
def deployment(kafka: KafkaHelper, s3: S3Helper, names: Names) -> ByHand:
    """A deployment of two flushes, with an object for each user and hour."""
    deployment = ByHand(kafka=kafka, s3=s3, names=names, layout="file")
    for first in (0, BATCH):
        deployment.deliver(records(first))
    return deployment


@pytest.fixture
def lake(deployment: ByHand, lake_of: Callable[..., Lake]) -> Lake:
    """A lake with a table of an older form."""
    lake = lake_of(deployment, **SMALL)
    Materialize(lake.spark, lake.settings).run(continuous=False)
    lake.spark.sql(f"ALTER TABLE {lake.table} SET TBLPROPERTIES ('log-partitioner.format' = '3')")
    lake.spark.sql(f"ALTER TABLE {lake.table} RENAME COLUMN x TO x__string")
    return lake


def test_table_of_another_form_is_refused_and_made_anew(deployment: ByHand, lake: Lake) -> None:
    """It equals a fresh one, though the topic has lost what the first references said; the old one stays as it was."""
    require_equal_to_fresh(lake, is_old_form=True)
    old = lake.spark.table(lake.table).count()
    forget(deployment.kafka, deployment.references_topic)
    deployment.deliver(records(2 * BATCH))
    with pytest.raises(TableError, match="is of format 3, this code writes 4: materialize --rebuild"):
        Materialize(lake.spark, lake.settings).run(continuous=False)
    old_name = Rebuild(lake.spark, lake.settings).run()
    require_equal_to_fresh(lake)
    kept = lake.spark.table(f"lake.{old_name}")
    assert (kept.count(), "x__string" in kept.columns) == (old, True)
    assert sorted(row.tableName for row in lake.spark.sql("SHOW TABLES IN lake.logs LIKE 'entries*'").collect()) == [
        "entries",
        old_name.removeprefix("logs."),
    ]


def test_rebuilt_table_is_no_longer_the_one_that_was_counted(lake: Lake) -> None:
    """User-activity says so, also if it has run all the time; a table may be made anew again, elsewhere."""
    Rebuild(lake.spark, lake.settings).run()
    activity = UserActivity(lake.spark, lake.settings)
    activity.run(continuous=False)
    first = location(lake)
    Rebuild(lake.spark, lake.settings).run()
    assert location(lake) != first
    require_equal_to_fresh(lake)
    with pytest.raises(TableError, match="it can count anew once both user_hours and user_days are dropped"):
        activity._catch_up()


@pytest.mark.parametrize("point", [BEFORE_COMMIT, BETWEEN_RENAMES])
def test_killed_rebuild_is_continued(point: str, lake: Lake) -> None:
    """The next run goes on with it; materialize does not create the table while its name is free for a moment."""
    driver = start_stopping(lake, point)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait(grace_s=10)
    refused = "is about to become" if point == BETWEEN_RENAMES else "is of format 3"
    with pytest.raises(TableError, match=refused):
        Materialize(lake.spark, lake.settings).run(continuous=False)
    Rebuild(lake.spark, lake.settings).run()
    require_equal_to_fresh(lake)


@pytest.mark.parametrize("point", [BEFORE_COMMIT, BETWEEN_RENAMES])
def test_driver_that_is_overtaken_changes_nothing(point: str, lake: Lake) -> None:
    """The other one has done everything, names included."""
    driver = start_stopping(lake, point)
    Rebuild(lake.spark, lake.settings).run()
    os.killpg(driver.pid, signal.SIGCONT)
    driver.wait(grace_s=60)
    assert driver.exit_code == OVERTAKEN, driver.last_lines()
    require_equal_to_fresh(lake)


def test_entries_that_only_the_old_table_has_are_not_given_up(deployment: ByHand, lake: Lake) -> None:
    """If objects are retired, or neither topic nor table knows references any more, the old table keeps its place."""
    retired = RetiredObjects(lake.spark, lake.settings)
    retired.ensure()
    lake.spark.sql(
        f"INSERT INTO {retired.name} (bucket, object, references_topic) "
        f"SELECT DISTINCT location.bucket, location.object, '{deployment.references_topic}' FROM lake.logs.references"
    )
    with pytest.raises(TableError, match=f"{2 * OBJECTS} raw objects are retired, and only"):
        Rebuild(lake.spark, lake.settings).run()
    lake.spark.sql(f"DELETE FROM {retired.name}")
    forget(deployment.kafka, deployment.references_topic)
    lake.spark.sql("DROP TABLE lake.logs.references")
    with pytest.raises(PipelineError, match="were deleted before they were read"):
        Rebuild(lake.spark, lake.settings).run()
    assert "x__string" in lake.spark.table(lake.table).columns


def require_equal_to_fresh(lake: Lake, *, is_old_form: bool = False) -> None:
    """Compare the table with one that is kept up beside it."""
    Materialize(lake.spark, settings_of(lake.variables | FRESH)).run(continuous=False)
    fresh = lake.spark.table("lake.logs.fresh")
    found = lake.spark.table(lake.table)
    if is_old_form:
        found = found.withColumnRenamed("x__string", "x")
    assert sorted(found.columns) == sorted(fresh.columns)
    assert found.count() > 0
    for one, other in ((found, fresh), (fresh, found)):
        assert rows(one).exceptAll(rows(other)).count() == 0


def rows(table: DataFrame) -> DataFrame:
    """Return the rows with their columns in one order."""
    return table.select(*sorted(table.columns))


def location(lake: Lake) -> str:
    """Return the place of the table's files."""
    (row,) = lake.spark.sql(f"DESCRIBE EXTENDED {lake.table}").where("col_name = 'Location'").collect()
    return str(row.data_type)


def records(first: int) -> list[ToProduce]:
    """Make records of users of their own, in two hours, with a field of two types."""
    entries: list[dict[str, Any]] = [
        {
            "user": f"u{n % 9}",
            "time": TIME_US // 1000 + 3_600_000 * (n % 2),
            "x": n if n % 3 else "text",
            f"y{first}": n,
        }
        for n in range(first, first + 30)
    ]
    return [
        ToProduce(value=json.dumps(one).encode(), partition=number % 3, timestamp_ms=TIME_US // 1000)
        for number, one in enumerate(entries)
    ]


def start_stopping(lake: Lake, point: str) -> ServerProcess:
    """Start a rebuild and wait until it stands at this point, of its second slice if it is one of a commit."""
    call = {BEFORE_COMMIT: "3", BETWEEN_RENAMES: "1"}[point]  # the first commit tells where the topic begins
    driver = lake.start("rebuild", point, call, "--rebuild", program=(DRIVER,))
    driver.wait_for_line(f"stopped at {point}", timeout_s=180)
    return driver
