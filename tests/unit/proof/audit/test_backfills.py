"""Backfills in the audit: a hole that one has filled is clean, by its record and not otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from log_partitioner.formats.dead_letter import headers_of
from log_partitioner.formats.findings import Kind
from log_partitioner.formats.flush_record import (
    BackfilledTopicPartition,
    BackfillRecord,
    BackfillTotals,
)
from log_partitioner.formats.reference import decode_references, encode_message
from tests.unit.proof.audit.world import APP_0, GROUP, World, clean_world

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH = "backfill-1"


def repaired_world() -> World:
    """Give a world in which a file and a dead letter of batches come from a backfill instead."""
    world = clean_world().build()
    world.change_message(1, batch_id=BATCH, worker="backfill", generation=0, first_number=0)
    dead = world.dead[0][1]
    world.dead_letters[0] = dead.record._replace(headers=tuple(headers_of(dead, batch_id=BATCH, group_id=GROUP)))
    (source,) = decode_references(encode_message(world.messages[1]))[0].sources
    world.backfill_records = [
        BackfillRecord(
            batch_id=BATCH,
            group_id=GROUP,
            worker="backfill",
            generation=0,
            started_at_ms=0,
            committed_at_ms=1,
            outbox="",
            published=2,
            messages=2,
            topic_partitions=(
                BackfilledTopicPartition(
                    topic=source.topic,
                    partition=source.partition,
                    first_offset=source.first_offset,
                    next_offset=source.next_offset,
                    entries_in_files=source.entries,
                    dead_letters=1,
                ),
            ),
            totals=BackfillTotals(
                references=1, entries_in_files=source.entries, dead_letters=1, dead_letter_records=1, bytes=0
            ),
        )
    ]
    return world


def change(world: World, **changes: Any) -> None:
    """Put other values into the newest record."""
    world.backfill_records[-1] = msgspec.structs.replace(world.backfill_records[-1], **changes)


def change_line(world: World, **changes: Any) -> None:
    """Put other values into its only line."""
    (line,) = world.backfill_records[-1].topic_partitions
    change(world, topic_partitions=(msgspec.structs.replace(line, **changes),))


def test_hole_filled_by_a_backfill_is_clean() -> None:
    """Entries that flush records announce and backfills hold: nothing is found."""
    report = repaired_world().audit()
    assert report.findings.examples == {}
    assert report.exit_code == 0
    assert report.counts["backfills"] == 1


def test_backfill_that_is_not_finished_is_a_note() -> None:
    """Its record says exactly what it has published so far."""
    world = repaired_world()
    change(world, messages=5)
    report = world.audit()
    assert report.exit_code == 0
    assert any("2 of 5" in note for note in report.findings.notes)


def no_record(world: World) -> None:
    world.backfill_records = []


def record_goes_back(world: World) -> None:
    world.backfill_records.append(world.backfill_records[0])


def wrong_total(world: World) -> None:
    change(world, totals=msgspec.structs.replace(world.backfill_records[0].totals, references=2))


def wrong_position(world: World) -> None:
    change(world, published=1)


def wrong_line(world: World) -> None:
    change_line(world, dead_letters=0)


def beyond_committed(world: World) -> None:
    change_line(world, next_offset=10_000)


def other_worker(world: World) -> None:
    world.change_message(1, worker="w")


def lost_again(world: World) -> None:
    del world.messages[1]


def published_twice(world: World) -> None:
    world.messages.append(msgspec.structs.replace(world.messages[1], first_number=9))


def beside_the_original(world: World) -> None:
    world.messages.append(clean_world().build().messages[1])


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (no_record, {Kind.REFERENCE_WRONG, Kind.REFERENCE_MISSING}),
        (record_goes_back, {Kind.BACKFILL_WRONG}),
        (wrong_total, {Kind.REFERENCE_MISSING}),
        (wrong_position, {Kind.BACKFILL_WRONG}),
        (wrong_line, {Kind.BACKFILL_WRONG}),
        (beyond_committed, {Kind.BACKFILL_WRONG, Kind.REFERENCE_WRONG}),
        (other_worker, {Kind.REFERENCE_WRONG}),
        (lost_again, {Kind.MISSING, Kind.REFERENCE_MISSING}),
        (
            published_twice,
            {Kind.BACKFILL_WRONG, Kind.DUPLICATED, Kind.FLUSH_WRONG, Kind.REFERENCE_WRONG},
        ),
        (beside_the_original, {Kind.DUPLICATED, Kind.FLUSH_WRONG}),
    ],
)
def test_fault_of_a_backfill_is_found(fault: Callable[[World], None], expected: set[Kind]) -> None:
    """Nothing that a backfill says is taken on trust."""
    world = repaired_world()
    fault(world)
    report = world.audit()
    assert {kind for kind, count in report.findings.counts.items() if count} == expected


def test_dead_letters_of_a_backfill_are_added_to_those_of_the_flush() -> None:
    """A flush record that says one more than both have is wrong."""
    world = repaired_world()
    world.change_flushed(1, APP_0, dead_letters=3)
    (published,) = (one for one in world.audit().findings.examples[Kind.FLUSH_WRONG] if "[2, 5)" in one)
    assert "3 entries dead, its dead letters say 2" in published


def test_run_of_another_group_is_left_out() -> None:
    """With its references and dead letters: it says nothing of this history, whatever it says."""
    world = repaired_world()
    world.messages.append(msgspec.structs.replace(world.messages[1], batch_id="backfill-2", group_id="another"))
    world.backfill_records.append(
        msgspec.structs.replace(world.backfill_records[0], batch_id="backfill-2", group_id="another", messages=9)
    )
    report = world.audit(kafka={"group_id": GROUP})
    assert report.findings.examples == {}
    assert report.findings.notes == [f"1 messages are of group another, not of the history of {GROUP}: left out"]
