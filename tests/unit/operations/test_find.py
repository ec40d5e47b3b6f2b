"""`find`: the places of entries that a worker has flushed, over fakes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest

from log_partitioner.formats.model import TopicPartition
from log_partitioner.operations.find import Finder, SourcePlace
from log_partitioner.proof.audit.window import FlushWindow
from log_partitioner.reader import ReferencesTopic
from tests.fakes import check
from tests.fakes.check import BrokerTopics, BucketStore
from tests.fakes.records import NOW, P0, P1, entry, value_of
from tests.fakes.rig import Rig
from tests.fakes.worker import DEAD_LETTERS, settings_of
from tests.unit.test_offsets import broken, skipped

HOUR_MS = 3_600_000
NOW_MS = round(1000 * NOW.timestamp())


class Topics(BrokerTopics):
    """Topics of a broker whose messages are all of one time."""

    def __init__(self, rig: Rig) -> None:
        super().__init__(rig.broker)
        self._at_ms = rig.clock.wall_ms()

    def offsets_at(self, tps: Iterable[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int | None]:
        """Return the first offset, or none; below zero are places (`boundary.FIRST_OFFSET`)."""
        assert timestamp_ms >= 0
        return dict.fromkeys(tps, 0 if timestamp_ms <= self._at_ms else None)


class World(NamedTuple):
    """A rig whose worker has flushed, and who searches it."""

    rig: Rig
    finder: Finder

    def at(self, *place: int) -> list[tuple[Any, ...]]:
        """Find a record of P0, or an entry of it; gives user and index of rows, reason and indexes of letters."""
        return [
            (row["user"], row["index"]) if row["found"] == "row" else (row["reason"], row["indexes"])
            for row in self.finder.at(SourcePlace(P0, *place))
        ]


def world() -> World:
    """Let a worker flush a record of ann, one of three entries, of which one is dead, and one that is dead itself."""
    rig = Rig()
    rig.worker()
    several = [entry("bob", id="b", hours_ago=2), entry(None), entry("ann", id="a", n=1)]
    for value in (value_of(entry("ann", id="a")), value_of(*several), b"{"):
        rig.broker.logs[P0].append(value, timestamp_ms=rig.clock.wall_ms())
    rig.broker.logs[P1].append(value_of(entry("ann", id="a", hours_ago=5)), timestamp_ms=rig.clock.wall_ms())
    rig.drain()
    return World(rig, Finder(ReferencesTopic(Topics(rig), settings_of()), BucketStore(rig.bucket.objects)))


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ((0,), [("ann", 0)]),
        ((1,), [("no_user", (1,)), ("ann", 2), ("bob", 0)]),
        ((1, 0), [("bob", 0)]),
        ((1, 1), [("no_user", (1,))]),
        ((1, 3), []),
        ((2,), [("malformed", None)]),
        ((2, 0), [("malformed", None)]),
    ],
)
def test_entries_of_a_record_are_found_as_rows_and_dead_letters(
    place: tuple[int, ...], expected: list[tuple[Any, ...]]
) -> None:
    """All of them, or the one that is asked for."""
    assert sorted(world().at(*place)) == sorted(expected)


def test_row_is_told_with_its_reference_its_bytes_and_its_batch() -> None:
    """A reader of the reference's bytes meets it at that place."""
    rig, finder = world()
    (found,) = finder.at(SourcePlace(P0, 1, 2))
    (reference,) = (one for one in check.references(rig.broker) if one.reference_id == found["reference_id"])

    assert (found["ranges"], found["location"]) == (reference.location.ranges, reference.location)
    assert (found["batch_id"], found["worker"], found["committed"]) == (reference.batch_id, reference.worker, [0, 3])
    assert (found["user"], found["date"], found["hour"]) == reference.partition_key
    assert (found["row"], found["rows"], found["id"]) == (1, 2, "a")


def test_entry_is_found_though_its_record_is_gone_from_the_source(capsys: pytest.CaptureFixture[str]) -> None:
    """Its flush record is looked for from the beginning then."""
    searched = world()
    searched.rig.broker.logs[P0].first_offset = 3

    assert searched.at(1, 2) == [("ann", 2)]
    assert searched.at(1, 1) == [("no_user", (1,))]
    assert f"the source has no committed record at {P0} 1, or no more" in capsys.readouterr().err


def test_entry_is_found_though_the_clock_of_its_producer_is_ahead(capsys: pytest.CaptureFixture[str]) -> None:
    """No flush record is from its time on; one of before has it."""
    searched = world()
    later_ms = searched.rig.clock.wall_ms() + 99 * HOUR_MS
    searched.rig.broker.logs[P0].append(value_of(entry("eve")), timestamp_ms=later_ms)
    searched.rig.drain()

    assert searched.at(3) == [("eve", 0)]
    assert capsys.readouterr().err == ""


def test_offset_that_was_skipped_is_in_the_dead_letter_of_all_that_were() -> None:
    """The letter stands at the first of them, and ends before the last one's next."""
    rig = broken(range(3, 6))
    skipped(rig, 3, 6)
    searched = World(rig, Finder(ReferencesTopic(Topics(rig), settings_of()), BucketStore({})))

    assert [searched.at(offset) for offset in (3, 5, 6)] == [[("skipped", None)], [("skipped", None)], []]


def test_dead_letter_that_was_written_hours_after_the_flush_is_found() -> None:
    """A backfill has made it, of an entry that the flush has lost."""

    class LateLetters(Topics):
        def offsets_at(self, tps: Iterable[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int | None]:
            letters, others = ({tp for tp in tps if (tp.topic == DEAD_LETTERS) is late} for late in (True, False))
            return super().offsets_at(letters, max(0, timestamp_ms - HOUR_MS)) | super().offsets_at(
                others, timestamp_ms
            )

    rig, _ = world()
    rig.bucket.objects.clear()
    searched = World(rig, Finder(ReferencesTopic(LateLetters(rig), settings_of()), BucketStore({})))

    assert searched.at(1, 1) == [("no_user", (1,))]
    assert searched.at(1) == [("no_user", (1,))]


def test_offset_that_no_flush_has_is_not_found_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """With the offset at which the group goes on."""
    searched = world()
    searched.rig.broker.logs[P0].append(value_of(entry("ann")), timestamp_ms=searched.rig.clock.wall_ms())

    assert searched.at(3) == []
    assert capsys.readouterr().err == f"no flush record has {P0} 3; the group goes on at 3\n"


def test_object_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """It may have held the entry; the search goes on."""
    searched = world()
    searched.rig.bucket.objects.clear()

    assert searched.at(0) == []
    assert "may have held it: there is no object s3://" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("user", "hours", "expected"),
    [
        ("ann", (-1, 1), [(P0, 0, 0), (P0, 1, 2)]),
        ("ann", (-9, None), [(P0, 0, 0), (P0, 1, 2), (P1, 0, 0)]),
        ("ann", (-9, -1), [(P1, 0, 0)]),
        ("ann", (-(NOW_MS // HOUR_MS), 1), [(P0, 0, 0), (P0, 1, 2), (P1, 0, 0)]),
        ("bob", (-9, 1), []),
    ],
)
def test_unique_id_is_found_among_the_rows_of_its_user_and_time(
    user: str, hours: tuple[int, int | None], expected: list[tuple[Any, ...]]
) -> None:
    """More than one entry may have it."""
    times = FlushWindow(*(None if one is None else NOW_MS + HOUR_MS * one for one in hours))

    rows = world().finder.with_id("a", user, times)

    assert sorted(((one["topic"], one["partition"]), one["offset"], one["index"]) for one in rows) == expected


def test_reference_is_found_by_its_id() -> None:
    """Another id finds none."""
    rig, finder = world()
    for reference in check.references(rig.broker):
        assert finder.references.with_id(reference.reference_id) == reference
    assert finder.references.with_id("20260304T050607Z-none-1-0") is None
