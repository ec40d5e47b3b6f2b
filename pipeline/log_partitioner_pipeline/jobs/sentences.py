"""The sentences of a finished job, for standard output: its result, and the place of it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from log_partitioner_pipeline.activity import DAYS_TABLE, HOURS_TABLE
from log_partitioner_pipeline.report.words import plural, size

if TYPE_CHECKING:
    from log_partitioner_pipeline.backfill.publish import Published
    from log_partitioner_pipeline.config import JobSettings
    from log_partitioner_pipeline.retire import Retired


def counted(settings: JobSettings, *, hours: int) -> str:
    """Say how many counts of users' hours are new."""
    table = settings.pipeline.table
    return (
        f"{plural(hours, 'new count', 'new counts')} by user and hour in {table.beside(HOURS_TABLE)}, by user and day "
        f"in {table.beside(DAYS_TABLE)}, {_catalogue(settings)}."
    )


def compacted(settings: JobSettings, *, hours: list[int], files_before: int, files_after: int, retired: Retired) -> str:
    """Say how much compact has rewritten and retired."""
    table = f"{settings.pipeline.table.name}, {_catalogue(settings)}"
    done = f"{plural(len(hours), 'hour', 'hours')} of {table}: {files_before:,} files became {files_after:,}."
    if not hours:
        least = settings.pipeline.compact.files_min
        done = f"Nothing to rewrite in {table}: no hour has a clean audit and {least} files in one partition."
    if not retired.objects:
        return done
    return f"{done} {plural(retired.objects, 'raw object', 'raw objects')} retired, {size(retired.bytes)}."


def would_publish(*, entries_in_files: int, partition_keys: int, dead_letters: dict[str, int]) -> str:
    """Say how much a backfill would publish."""
    dead = ", ".join(f"{entries:,} {reason}" for reason, entries in sorted(dead_letters.items()))
    return (
        f"Would publish {plural(entries_in_files, 'entry', 'entries')} of "
        f"{plural(partition_keys, 'user and hour', 'users and hours')}, and "
        f"{plural(sum(dead_letters.values()), 'entry', 'entries')} as dead letters{dead and f' ({dead})'}. "
        "Nothing was written; without --dry-run it is published."
    )


def published(settings: JobSettings, run_id: str, done: Published) -> str:
    """Say how much a backfill has published."""
    kafka, s3 = settings.worker.kafka, settings.worker.s3
    return (
        f"Run {run_id} has published {plural(done.messages, 'message', 'messages')} in "
        f"{plural(done.transactions, 'transaction', 'transactions')} to {kafka.references_topic} and "
        f"{kafka.dead_letters_topic}; objects are in s3://{s3.bucket}/{s3.prefix}."
    )


def _catalogue(settings: JobSettings) -> str:
    catalog = settings.pipeline.catalog
    return f"catalogue {catalog.type} {catalog.uri}"
