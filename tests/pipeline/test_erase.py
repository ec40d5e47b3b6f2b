"""A user is taken out of tables and snapshots, wherever a run is stopped; objects that hold the user are told."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from log_partitioner.proof.accounting import ExitCode
from log_partitioner_pipeline.audit.auditor import Auditor, Options
from log_partitioner_pipeline.audit.result import Window
from log_partitioner_pipeline.entries import EntryTable
from log_partitioner_pipeline.erasures import Erasures, digest_of
from log_partitioner_pipeline.errors import PipelineError
from log_partitioner_pipeline.jobs.erase import Erase
from log_partitioner_pipeline.jobs.materialize import Materialize
from log_partitioner_pipeline.jobs.user_activity import UserActivity
from log_partitioner_pipeline.retired import RetiredObjects
from log_partitioner_pipeline.upkeep import Upkeep
from tests.pipeline.by_hand import ByHand
from tests.pipeline.conftest import Lake
from tests.pipeline.readback import text_of
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper

DRIVER = str(Path(__file__).parent / "erase_driver.py")
USER = "quirin-7f3"
USERS = ("aaron", USER, "zoe")
NOW_MS = time.time_ns() // 3_600_000_000_000 * 3_600_000
SOON = {"PIPELINE_ACTIVITY__INTERVAL_S": "0.01"}
STOPS = [
    (Erasures, "record", 1),
    (Erase, "_delete_from", 1),
    (Erase, "_delete_from", 4),
    (Erase, "_purge", 1),
    (Upkeep, "_expire", 1),
    (Upkeep, "purge", 4),
    (Erasures, "mark_erased", 1),
]
"""A run is stopped before this call of a method."""


class StoppedError(Exception):
    """The run is dead."""


def records(count: int, *users: str) -> list[ToProduce]:
    """Make entries of users in turn, of the two hours before this one."""
    entries = [
        {"user": users[n % len(users)], "time": NOW_MS - 1800_000 * (1 + n % 4), "id": f"id-{n}", "n": n}
        for n in range(count)
    ]
    return [
        ToProduce(value=json.dumps(one).encode(), partition=n % 3, timestamp_ms=NOW_MS) for n, one in enumerate(entries)
    ]


def bring_up(lake: Lake) -> None:
    """Materialise, and count users."""
    Materialize(lake.spark, lake.settings).run(continuous=False)
    UserActivity(lake.spark, lake.settings).run(continuous=False)


def everything_in_warehouse(lake: Lake) -> bytes:
    """Read all files of all tables."""
    s3, bucket = lake.deployment.s3, lake.deployment.bucket
    return b"\n".join(text_of(key, s3.read(bucket, key)) for key in s3.keys(bucket, "_tables"))


def rows_of(lake: Lake, *names: str) -> list[list[Any]]:
    """Read the rows of tables that are not the user's, in an order of their own."""
    frames = [lake.spark.table(f"lake.logs.{name}").where(f"user <> '{USER}'") for name in names]
    return [sorted(map(repr, frame.collect())) for frame in frames]


def stopped(lake: Lake, owner: type, method: str, call: int) -> None:
    """Erase, and stop there, as a run that is killed."""
    original, calls = getattr(owner, method), 0

    def stopping(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            raise StoppedError
        return original(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, method, stopping)
        job = Erase(lake.spark, lake.settings, USER)
        with pytest.raises(StoppedError):
            job.run(job.look()[0])


def require_clean_without(lake: Lake, key: str) -> None:
    """Let an object of the user be gone, as by the bucket's lifecycle: an audit with the table is clean and says it."""
    lake.deployment.s3.client.delete_object(Bucket=lake.deployment.bucket, Key=key)
    everything = Options(Window(from_ms=None, until_ms=None, padding_s=0), table=True, verdicts=False)
    result = Auditor(lambda: lake.spark, lake.settings, everything).run()
    assert (result.exit_code, result.findings, result.could_not_tell) == (ExitCode.CLEAN, [], [])
    assert [note for note in result.notes if "are of erased users, whose objects are gone" in note]


@pytest.mark.timeout(900)
def test_user_is_in_no_table_and_no_snapshot(
    kafka: KafkaHelper, s3: S3Helper, names: Names, lake_of: Callable[..., Lake]
) -> None:
    """Outline: objects of one user and packs, in all tables -> a driver is killed -> stopped at each step -> completed.

    From then on others' rows and the offsets are what they were, and only entries that come later come in again.
    """
    deployment = ByHand(kafka=kafka, s3=s3, names=names, layout="file")
    lake = lake_of(deployment, **SOON)
    deployment.deliver(records(24, *USERS))
    bring_up(lake)
    deployment.layout = "pack"
    deployment.deliver(records(24, *USERS))
    deployment.deliver(records(4, "aaron", "zoe"))
    bring_up(lake)
    lake.spark.sql(f"INSERT INTO lake.logs.user_days VALUES ('{USER}', date '2020-01-01', 1, 1, 1, map('0', 1))")
    own = sorted(key for key in s3.keys(deployment.bucket) if f"user={USER}/" in key)
    RetiredObjects(lake.spark, lake.settings).ensure()
    lake.spark.sql(
        "INSERT INTO lake.logs.retired (bucket, object, deleted_at) "
        f"VALUES ('{deployment.bucket}', '{own[0]}', current_timestamp())"
    )
    table = EntryTable(lake.spark, lake.settings)
    position, tables = table.position(), ("entries", "user_hours", "user_days", "references")
    others = rows_of(lake, *tables)

    found, holders = Erase(lake.spark, lake.settings, USER).look()
    assert found["logs.entries"] == 16
    assert found["logs.user_days"] == len({row.date for row in lake.spark.table("lake.logs.user_hours").collect()}) + 1
    assert found["logs.retired"] == 1
    assert [one.object for one in holders if not one.is_shared] == own[1:]
    (pack,) = [one for one in holders if one.is_shared]
    assert (pack.size, pack.end) == (
        len(s3.read(deployment.bucket, pack.object)),
        "the store does not tell its lifecycle",
    )
    assert table.position() == position
    assert USER.encode() in everything_in_warehouse(lake)

    driver = lake.start("erasing", USER, program=(DRIVER,))
    driver.wait_for_line("stopped at TABLE", timeout_s=240)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait(grace_s=10)
    assert lake.spark.table("lake.logs.entries").where(f"user = '{USER}'").isEmpty()
    (row,) = lake.spark.table("lake.logs.erasures").collect()
    assert (row.user_sha256, row.rows, row.erased_at) == (digest_of(USER), found, None)
    for stop in STOPS:
        stopped(lake, *stop)
    job = Erase(lake.spark, lake.settings, USER)
    job.run(job.look()[0])

    assert USER.encode() not in everything_in_warehouse(lake)
    (done,) = lake.spark.table("lake.logs.erasures").collect()
    assert (done.rows, done.run_id, done.references_offsets) == (found, row.run_id, position.offsets)
    assert done.erased_at >= done.recorded_at == row.recorded_at
    erased = Erasures(lake.spark, lake.settings).read()
    (partition, offset) = next((one, at) for one, at in position.offsets.items() if at)
    assert erased.has(USER, partition=partition, offset=offset - 1)
    assert not erased.has(USER, partition=partition, offset=offset)
    assert (rows_of(lake, *tables), table.position().offsets) == (others, position.offsets)

    deployment.deliver(records(2, USER))
    bring_up(lake)
    assert lake.spark.table("lake.logs.entries").where(f"user = '{USER}'").count() == 2
    assert rows_of(lake, "entries", "user_hours") == others[:2]
    require_clean_without(lake, own[1])


@pytest.mark.timeout(600)
def test_job_tells_what_holds_the_user_and_logs_no_name(
    kafka: KafkaHelper, s3: S3Helper, names: Names, lake_of: Callable[..., Lake]
) -> None:
    """As a process of its own, dry and not; without a table it is an error."""
    deployment = ByHand(kafka=kafka, s3=s3, names=names, layout="file")
    lake = lake_of(deployment)
    with pytest.raises(PipelineError, match=r"there is no table lake\.logs\.entries"):
        Erase(lake.spark, lake.settings, USER).look()
    deployment.deliver(records(6, *USERS))
    Materialize(lake.spark, lake.settings).run(continuous=False)
    for options, is_left in (["--dry-run"], True), ([], False):
        job = lake.start("erase", "erase", USER, *options)
        job.wait(grace_s=240)
        told = (lake.root / "erase.log").read_text().splitlines()
        assert job.exit_code == 0, told
        assert lake.spark.table("lake.logs.entries").where(f"user = '{USER}'").isEmpty() is not is_left
        assert sum(f"/user={USER}/" in line and "this user alone" in line for line in told) == 1
        assert not any(USER in line for line in told if line.startswith("{"))
        (lake.root / "erase.log").unlink()
