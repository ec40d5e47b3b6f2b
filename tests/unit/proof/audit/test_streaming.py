"""Flush by flush: memory holds one of them, what is read together changes nothing, and strays are counted at home."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from log_partitioner.formats.dead_letter import headers_of
from log_partitioner.formats.findings import Kind
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.proof.accounting import ExitCode
from log_partitioner.proof.audit import judge
from log_partitioner.proof.audit.audit import Audit, Options
from tests.fakes.check import BucketStore
from tests.unit.proof.audit.test_audit import ANNOUNCED
from tests.unit.proof.audit.test_backfills import repaired_world
from tests.unit.proof.audit.world import (
    APP_0,
    APP_1,
    GROUP,
    MemoryTopics,
    World,
    clean_world,
    packed_world,
    settings,
)


class WatchedTopics(MemoryTopics):
    """Topics that take note of what is read of the source."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.reads: list[dict[TopicPartition, tuple[int, int]]] = []

    def read(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> Iterator[SourceRecord]:
        """Yield messages."""
        source = {tp: span for tp, span in ranges.items() if tp.topic == "app" and span[0] < span[1]}
        self.reads += [source] if source else []
        return super().read(ranges)


def reads_of(world: World) -> list[dict[TopicPartition, tuple[int, int]]]:
    """Audit a world that is clean; return what was read of the source, one read after the other."""
    topics = WatchedTopics(world.build())
    assert Audit(settings(), Options(), topics, BucketStore(world.objects).get).run().exit_code is ExitCode.CLEAN
    return topics.reads


def test_large_flushes_are_read_one_by_one_and_small_ones_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each offset is read once; the audit holds one flush at a time, or a bounded number of entries."""
    assert reads_of(clean_world()) == [{APP_0: (0, 5), APP_1: (0, 2)}]
    monkeypatch.setattr(judge, "READ_ENTRIES", 1)
    assert reads_of(clean_world()) == [{APP_0: (0, 2), APP_1: (0, 1)}, {APP_0: (2, 5), APP_1: (1, 2)}]


@pytest.mark.parametrize("make", [clean_world, packed_world])
@pytest.mark.parametrize("fault", ["none", "lose_reference", "other_batch", "lose_flush_record", "start_late"])
def test_flushes_read_together_are_judged_as_if_each_were_alone(
    make: Callable[[], World], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts and findings are the same."""
    reports = []
    for entries in (1, 1000):
        monkeypatch.setattr(judge, "READ_ENTRIES", entries)
        world = make().build()
        if fault != "none":
            ANNOUNCED[fault][0](world)
        report = world.audit()
        reports.append((report.counts, report.findings.counts, report.findings.notes, report.exit_code))
    assert reports[0] == reports[1]


def test_entry_in_the_data_of_another_flush_is_counted_where_it_belongs() -> None:
    """Its own flush lost the line; the other one says which offsets it has: nothing is missing, its range is wrong."""
    world = clean_world().build()
    moved = world.messages[1]
    world.change_message(1, batch_id="b2", first_number=9)
    report = world.audit()
    assert set(report.findings.examples) == {Kind.REFERENCE_MISSING, Kind.REFERENCE_WRONG}
    assert report.counts["entries_in_files"] == 6
    world.messages.append(moved)
    assert world.audit().findings.counts[Kind.DUPLICATED] == 1


def test_row_that_its_reference_hides_is_not_of_its_flush() -> None:
    """A reference that says nothing of the offset: the row is in the wrong place, whatever the entry is."""
    world = clean_world()
    world.add_row(0, world.files[3].rows[0], values=world.files[0].rows[1].values)
    world.build()
    world.change_line(0, sources=(0, 0, 0, 3))
    found = world.audit().findings.examples[Kind.UNEXPECTED]
    assert "app-0 offset 4 index 0: not in the source below the committed offset, or not of what" in found[0]


def test_dead_letter_in_another_batch_is_one_too_many() -> None:
    """The entry is dead twice, and the other batch says nothing of it."""
    world = clean_world().build()
    letter = world.dead[0][1]
    again = headers_of(letter, batch_id="b1", group_id=GROUP)
    world.dead_letters.append(letter.record._replace(headers=tuple(again)))
    assert set(world.audit().findings.examples) == {Kind.DEAD_LETTER_DUPLICATED, Kind.FLUSH_WRONG}


def test_references_without_a_record_that_repeat_themselves_are_found_where_nothing_is_covered() -> None:
    """No flush record covers these offsets: the group did not begin at the beginning."""
    world = clean_world().build()
    del world.flush_records[0]
    world.add_message(0, first_number=9)
    found = world.audit(kafka={"start_at": "2026-01-01T00:00:00Z"}).findings
    assert (found.counts[Kind.DUPLICATED], found.counts[Kind.MISSING]) == (2, 0)


def test_messages_beyond_the_committed_offsets_are_not_kept() -> None:
    """A group whose offsets are gone has nothing that others could count: each batch is judged and forgotten."""
    world = clean_world().build()
    committed: dict[TopicPartition, Any] = {APP_0: None, APP_1: None}
    world.committed = committed
    found = world.audit(caught_up=False).findings
    assert {Kind.FLUSH_WRONG, Kind.UNEXPECTED, Kind.DEAD_LETTER_UNEXPECTED} == set(found.examples)


def test_backfill_is_judged_before_the_flushes_that_count_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has made good what a flush lacks, however flushes are read."""
    monkeypatch.setattr(judge, "READ_ENTRIES", 1)
    assert repaired_world().audit().findings.examples == {}
