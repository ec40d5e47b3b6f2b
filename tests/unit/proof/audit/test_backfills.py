"""Backfills in the audit: a hole that one has filled is clean, by its record and not otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from log_partitioner.formats.dead_letter import headers_of
from log_partitioner.formats.findings import Kind
from log_partitioner.formats.reference import decode_references, encode_message
from tests.unit.proof.audit.world import (
    APP_0,
    BACKFILL,
    GROUP,
    OF_A_BACKFILL,
    World,
    clean_world,
    kinds,
    ran,
)


def repaired_world() -> World:
    """Give a world in which a file and a dead letter of batches come from a backfill instead."""
    world = clean_world().build()
    world.change_message(1, **OF_A_BACKFILL, first_number=0)
    dead = world.dead[0][1]
    world.dead_letters[0] = dead.record._replace(headers=tuple(headers_of(dead, batch_id=BACKFILL, group_id=GROUP)))
    (source,) = decode_references(encode_message(world.messages[1]))[0].sources
    span = {"first_offset": source.first_offset, "next_offset": source.next_offset, "entries": source.entries}
    world.backfill_records = [ran(APP_0, **span, dead_letters=1, published=2, messages=2)]
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


def wrong_total(world: World) -> None:
    change(world, totals=msgspec.structs.replace(world.backfill_records[0].totals, references=2))


FAULTS: dict[str, tuple[Callable[[World], object], set[Kind]]] = {
    "no_record": (lambda w: w.backfill_records.clear(), {Kind.REFERENCE_WRONG, Kind.REFERENCE_MISSING}),
    "record_goes_back": (lambda w: w.backfill_records.append(w.backfill_records[0]), {Kind.BACKFILL_WRONG}),
    "wrong_total": (wrong_total, {Kind.REFERENCE_MISSING}),
    "wrong_position": (lambda w: change(w, published=1), {Kind.BACKFILL_WRONG}),
    "wrong_line": (lambda w: change_line(w, dead_letters=0), {Kind.BACKFILL_WRONG}),
    "beyond_committed": (lambda w: change_line(w, next_offset=10_000), {Kind.BACKFILL_WRONG, Kind.REFERENCE_WRONG}),
    "other_worker": (lambda w: w.change_message(1, worker="w"), {Kind.REFERENCE_WRONG}),
    "lost_again": (lambda w: w.messages.pop(1), {Kind.MISSING, Kind.REFERENCE_MISSING}),
    "published_twice": (
        lambda w: w.add_message(1, first_number=9),
        {Kind.BACKFILL_WRONG, Kind.DUPLICATED, Kind.FLUSH_WRONG, Kind.REFERENCE_WRONG},
    ),
    "beside_the_original": (
        lambda w: w.messages.append(clean_world().build().messages[1]), {Kind.DUPLICATED, Kind.FLUSH_WRONG},
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_of_a_backfill_is_found(fault: str) -> None:
    """Nothing that a backfill says is taken on trust."""
    plant, expected = FAULTS[fault]
    world = repaired_world()
    plant(world)
    assert kinds(world.audit()) == expected


def test_dead_letters_of_a_backfill_are_added_to_those_of_the_flush() -> None:
    """A flush record that says one more than both have is wrong."""
    world = repaired_world()
    world.change_flushed(1, APP_0, dead_letters=3)
    (published,) = (one for one in world.audit().findings.examples[Kind.FLUSH_WRONG] if "[2, 5)" in one)
    assert "3 entries dead, its dead letters say 2" in published


def test_run_of_another_group_is_left_out() -> None:
    """With its references and dead letters: it says nothing of this history, whatever it says."""
    world = repaired_world()
    world.add_message(1, batch_id="backfill-2", group_id="another")
    world.backfill_records.append(
        msgspec.structs.replace(world.backfill_records[0], batch_id="backfill-2", group_id="another", messages=9)
    )
    report = world.audit(kafka={"group_id": GROUP})
    assert report.findings.examples == {}
    assert report.findings.notes == [f"1 messages are of group another, not of the history of {GROUP}: left out"]
