"""The sentences of a finished job, for standard output: its result, and the place of it. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from log_partitioner_pipeline.activity import DAYS_TABLE, HOURS_TABLE
from log_partitioner_pipeline.announced import REFERENCES
from log_partitioner_pipeline.backfill.ranges import format_offsets
from log_partitioner_pipeline.erasures import ERASURES_TABLE
from log_partitioner_pipeline.report.words import plural, size
from log_partitioner_pipeline.upkeep import FILES_MIN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from log_partitioner_pipeline.acknowledged import LostObject, Messages
    from log_partitioner_pipeline.backfill.publish import Published
    from log_partitioner_pipeline.config import JobSettings
    from log_partitioner_pipeline.holders import Holder
    from log_partitioner_pipeline.retire import JudgedObjects, Retired
    from log_partitioner_pipeline.upkeep import FileHour


def counted(settings: JobSettings, *, hours: int) -> str:
    """Say how many counts of users' hours are new."""
    table = settings.pipeline.table
    return (
        f"{plural(hours, 'new count', 'new counts')} by user and hour in {table.beside(HOURS_TABLE)}, by user and day "
        f"in {table.beside(DAYS_TABLE)}, {_catalogue(settings)}."
    )


def rebuilt(settings: JobSettings, old_name: str) -> str:
    """Say where the new table is, and how the old one goes."""
    return (
        f"{settings.pipeline.table.name}, {_catalogue(settings)}, is made anew; the old table is {old_name}, until "
        f"DROP TABLE {old_name} PURGE takes it with its files."
    )


def compacted(settings: JobSettings, *, hours: list[int], files_before: int, files_after: int, retired: Retired) -> str:
    """Say how much compact has rewritten and retired."""
    table = f"{settings.pipeline.table.name}, {_catalogue(settings)}"
    done = f"{plural(len(hours), 'hour', 'hours')} of {table}: {files_before:,} files became {files_after:,}."
    if not hours:
        done = f"Nothing to rewrite in {table}: no hour has a clean audit and {FILES_MIN} files in one partition."
    if not retired.objects:
        return done
    return f"{done} {plural(retired.objects, 'raw object', 'raw objects')} retired, {size(retired.bytes)}."


def would_compact(
    settings: JobSettings,
    *,
    hours: list[FileHour],
    left: Mapping[str, int],
    days: int,
    snapshots: int,
    orphans: int,
    objects: JudgedObjects | None,
) -> str:
    """Say what compact would do, line by line, and why it would leave the rest."""
    reasons = {
        "few_files": f"fewer than {FILES_MIN} files in each partition",
        "not_passed": "no clean audit",
        "grown": "rows newer than its audit",
    }
    why = _by_reason({reasons[reason]: number for reason, number in left.items()})
    table = f"{settings.pipeline.table.name}, {_catalogue(settings)}"
    expired, deleted = plural(snapshots, "snapshot", "snapshots"), plural(orphans, "file", "files")
    of_files = f"expire {expired}, and delete {deleted} that no snapshot has"
    of_objects = "Would keep all raw objects: PIPELINE_COMPACT__RETENTION_S is not set."
    if objects is not None:
        stay = objects.refused
        of_objects = (
            f"Would retire {plural(objects.may_go, 'raw object', 'raw objects')} if the table has all of their values, "
            f"and keep {sum(stay.values()):,}{_by_reason(stay)}."
        )
    return "\n".join(
        [
            f"Would rewrite {plural(len(hours), 'hour', 'hours')} of {table}, and leave {sum(left.values()):,}{why}.",
            *(f"  {_hour(one)}" for one in hours),
            f"Would rewrite {plural(days, 'day', 'days')} of announcements, {of_files}.",
            of_objects,
            "Nothing was changed; without --dry-run it is done.",
        ]
    )


def _hour(one: FileHour) -> str:
    begin = datetime.fromtimestamp(3600 * one.hour, UTC)
    return (
        f"{begin:%Y-%m-%d %H:%M} UTC: {one.files:,} files, {size(one.bytes)}, up to {one.files_per_partition:,} in a "
        "partition"
    )


def _by_reason(counts: Mapping[str, int]) -> str:
    told = ", ".join(f"{number:,} {reason}" for reason, number in sorted(counts.items()))
    return told and f" ({told})"


def would_publish(*, entries_in_files: int, partition_keys: int, dead_letters: dict[str, int]) -> str:
    """Say how much a backfill would publish."""
    return (
        f"Would publish {plural(entries_in_files, 'entry', 'entries')} of "
        f"{plural(partition_keys, 'user and hour', 'users and hours')}, and "
        f"{plural(sum(dead_letters.values()), 'entry', 'entries')} as dead letters{_by_reason(dead_letters)}. "
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


def holding(settings: JobSettings, found: dict[str, int], holders: list[Holder]) -> str:
    """Say in lines what there is of a user: rows by table, objects and their ends, topics."""
    kafka, table = settings.worker.kafka, settings.pipeline.table.beside(REFERENCES.name)
    rows = ", ".join(f"{count:,} in {name}" for name, count in found.items())
    objects = "".join(f"  {_held(one)}\n" for one in holders)
    return (
        f"Rows of the user: {rows}.\n"
        f"{plural(len(holders), 'object holds', 'objects hold')} the user, as {table} says:\n{objects}"
        f"Topics {', '.join([*kafka.source_topics, kafka.dead_letters_topic])} hold the user's records, "
        f"{kafka.references_topic} the name, until Kafka's retention takes them.\n"
    )


def _held(one: Holder) -> str:
    whose = "others too" if one.is_shared else "this user alone"
    return f"s3://{one.bucket}/{one.object}  {size(one.size)}  {whose}  {one.end}"


def erased(settings: JobSettings, *, is_dry: bool) -> str:
    """Say that a user is erased, or would be."""
    if is_dry:
        return "Nothing was changed; without --dry-run these rows go, with every older snapshot of their tables."
    name = settings.pipeline.table.beside(ERASURES_TABLE)
    return (
        f"These rows are gone, with every older snapshot of their tables; recorded in {name}, {_catalogue(settings)}."
    )


def acknowledged(table: str, objects: list[LostObject], messages: list[Messages]) -> str:
    """Say in lines what jobs pass over from now on, and how to get entries of objects back."""
    lines = [
        f"s3://{one.bucket}/{one.object}  {plural(one.references, 'reference', 'references')}, "
        f"{plural(one.entries, 'entry', 'entries')}: backfill --offsets '{format_offsets(one.source)}' publishes those "
        "that the source still has"
        for one in objects
    ]
    lines += [f"{one.tp}  offsets {one.first} to {one.next - 1}" for one in messages]
    told = "".join(f"  {line}\n" for line in lines)
    return f"Recorded in {table}; from their next start on jobs pass over\n{told}"


def _catalogue(settings: JobSettings) -> str:
    catalog = settings.pipeline.catalog
    return "catalogue glue" if catalog.type == "glue" else f"catalogue {catalog.type} {catalog.uri}"
