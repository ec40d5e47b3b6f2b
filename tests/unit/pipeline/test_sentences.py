"""The last words of jobs: their outcome, with units, and its place."""

from collections import Counter

import pytest

from log_partitioner_pipeline.backfill.publish import Published
from log_partitioner_pipeline.config import JobSettings, load_all
from log_partitioner_pipeline.holders import Holder
from log_partitioner_pipeline.jobs import sentences
from log_partitioner_pipeline.jobs.compact import Foreseen, Left
from log_partitioner_pipeline.retire import JudgedObjects, Retired
from log_partitioner_pipeline.upkeep import FileHour


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> JobSettings:
    """Settings with nothing but what is needed."""
    for name, value in {
        "LOGP_KAFKA__BOOTSTRAP_SERVERS": "broker:9092",
        "LOGP_KAFKA__SOURCE_TOPICS": "logs",
        "LOGP_S3__BUCKET": "my-logs",
    }.items():
        monkeypatch.setenv(name, value)
    return load_all()


def test_user_activity_says_where_its_tables_are(settings: JobSettings) -> None:
    """Both tables and the catalogue that knows them."""
    assert sentences.counted(settings, hours=20_000) == (
        "20,000 new counts by user and hour in logs.user_hours, by user and day in logs.user_days, "
        "catalogue sqlite .local/catalog.db."
    )


def test_compact_says_what_became_of_files_and_objects(settings: JobSettings) -> None:
    """If there was nothing to do, it says why."""
    done = sentences.compacted(settings, hours=[1, 2], files_before=12, files_after=2, retired=Retired(3, 2**21))
    assert done == (
        "2 hours of logs.entries, catalogue sqlite .local/catalog.db: 12 files became 2. "
        "3 raw objects retired, 2.0 MiB."
    )
    nothing = sentences.compacted(settings, hours=[], files_before=0, files_after=0, retired=Retired())
    assert "no hour has a clean audit and 4 files in one partition" in nothing


def test_compact_says_what_it_would_do_and_why_it_would_leave_the_rest(settings: JobSettings) -> None:
    """It lists the hours that it would rewrite, and counts the others by reason."""
    hours = [FileHour(500_000, 6, {0: 7}, files=12, bytes=3 * 2**20)]
    left = Counter({Left.FEW_FILES: 3, Left.NOT_PASSED: 1, Left.GROWN: 1})
    found = Foreseen(
        hours, left, days=2, snapshots=14, orphans=1, objects=JudgedObjects(12, {"young": 20, "not_passed": 1})
    )
    assert sentences.would_compact(settings, **found._asdict()) == (
        "Would rewrite 1 hour of logs.entries, catalogue sqlite .local/catalog.db, and leave 5 (3 fewer than 4 files "
        "in each partition, 1 no clean audit, 1 rows newer than its audit).\n"
        "  2027-01-15 08:00 UTC: 12 files, 3.0 MiB, up to 6 in a partition\n"
        "Would rewrite 2 days of announcements, expire 14 snapshots, and delete 1 file that no snapshot has.\n"
        "Would retire 12 raw objects if the table has all of their values, and keep 21 (1 not_passed, 20 young).\n"
        "Nothing was changed; without --dry-run it is done."
    )
    kept = sentences.would_compact(settings, **found._replace(objects=None)._asdict())
    assert "keep all raw objects: PIPELINE_COMPACT__RETENTION_S is not set" in kept


def test_rebuild_says_how_the_old_table_goes(settings: JobSettings) -> None:
    """It is kept until an operator drops it."""
    assert sentences.rebuilt(settings, "logs.entries_old_20260304_050607") == (
        "logs.entries, catalogue sqlite .local/catalog.db, is made anew; the old table is "
        "logs.entries_old_20260304_050607, until DROP TABLE logs.entries_old_20260304_050607 PURGE takes it with its "
        "files."
    )


def test_backfill_says_what_it_would_publish_and_what_it_has(settings: JobSettings) -> None:
    """With the reasons of dead letters, the topics, and where objects are."""
    assert sentences.would_publish(entries_in_files=1200, partition_keys=7, dead_letters={"no_user": 2}) == (
        "Would publish 1,200 entries of 7 users and hours, and 2 entries as dead letters (2 no_user). Nothing was "
        "written; without --dry-run it is published."
    )
    assert sentences.published(settings, "r1", Published(9, 1)) == (
        "Run r1 has published 9 messages in 1 transaction to references and dead-letters; objects are in "
        "s3://my-logs/logs."
    )


def test_erase_says_which_objects_hold_the_user(settings: JobSettings) -> None:
    """It lists rows by table, objects with the end of each, topics, and the table that records the erasure."""
    objects = [
        Holder("my-logs", "logs/user=ann/1.avro", 2048, is_shared=False, end="nothing deletes it"),
        Holder("my-logs", "logs/pack/1.avro", 2**21, is_shared=True, end="nobody knows"),
    ]
    assert sentences.holding(settings, {"logs.entries": 1200, "logs.references": 2}, objects).splitlines() == [
        "Rows of the user: 1,200 in logs.entries, 2 in logs.references.",
        "2 objects hold the user, as logs.references says:",
        "  s3://my-logs/logs/user=ann/1.avro  2.0 KiB  this user alone  nothing deletes it",
        "  s3://my-logs/logs/pack/1.avro  2.0 MiB  others too  nobody knows",
        "Topics logs, dead-letters hold the user's records, references the name, until Kafka's retention takes them.",
    ]
    assert sentences.erased(settings, is_dry=True).startswith("Nothing was changed; ")
    assert sentences.erased(settings, is_dry=False).endswith(
        "recorded in logs.erasures, catalogue sqlite .local/catalog.db."
    )
