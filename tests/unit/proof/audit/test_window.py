"""A window has the flushes that ended in it, each as a whole; windows that follow on each other leave nothing out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec
import pytest

from log_partitioner.config.settings import UserSettings
from log_partitioner.formats.findings import Kind
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.formats.replay import REPLAY_TYPE, ReplayMark, encode_replay_mark
from log_partitioner.proof.audit.report import Report
from log_partitioner.proof.audit.window import PADDING_MS, FlushWindow
from tests.unit.proof.audit.world import (
    APP_0,
    APP_1,
    GROUP,
    OF_A_BACKFILL,
    TIMESTAMP_MS,
    MemoryTopics,
    World,
    clean_world,
    kinds,
    ran,
    record,
)

HOUR_MS = 3_600_000
FIRST, SECOND, LATER = (TIMESTAMP_MS + hours * HOUR_MS for hours in (1, 2, 50))
OF_FIRST, OF_SECOND = FlushWindow(None, FIRST + 1), FlushWindow(FIRST + 1, None)
REFERENCES, FLUSHES = TopicPartition("references", 0), TopicPartition("flushes", 0)


def two_hours(*, second_ms: int = SECOND) -> World:
    """Give a world whose second flush ended an hour after the first one."""
    world = clean_world()
    world.ended_at_ms = {"b1": FIRST, "b2": second_ms, "backfill-1": LATER}
    return world


def test_each_flush_is_audited_by_the_window_in_which_it_ended() -> None:
    """Together they are an audit of everything."""
    world = two_hours().build()
    reports = [world.audit(window=window) for window in (OF_FIRST, OF_SECOND)]
    assert [kinds(report) for report in reports] == [set(), set()]
    assert [report.exit_code for report in reports] == [0, 0]
    whole = world.audit().counts
    for name in (
        "source_records",
        "source_entries",
        "entries_in_files",
        "entries_in_dead_letters",
        "references",
        "flush_records",
    ):
        assert sum(report.counts[name] for report in reports) == whole[name] > 0, name
    assert reports[1].findings.notes == ["1 flush ended in the window"]


@pytest.mark.parametrize("number", range(4))
def test_row_that_is_missing_is_found_by_one_window(number: int) -> None:
    """The window of its flush finds it, as an audit of everything does."""
    world = two_hours()
    batch = world.files[number].batch
    del world.files[number].rows[0]
    if not world.files[number].rows:
        del world.files[number]
    world.build()
    found, clean = (OF_FIRST, OF_SECOND) if batch == "b1" else (OF_SECOND, OF_FIRST)
    assert Kind.MISSING in kinds(world.audit())
    assert kinds(world.audit(window=found)) == kinds(world.audit())
    assert kinds(world.audit(window=clean)) == set()


@pytest.mark.parametrize("second_ms", [FIRST + 1000, SECOND, LATER])
def test_gap_in_front_of_a_window_is_its_finding(second_ms: int) -> None:
    """However long nothing was flushed before it; entries of the gap are told by the same audit."""
    world = two_hours(second_ms=second_ms).build()
    world.change_flushed(1, APP_0, first_offset=3)
    assert Kind.FLUSH_GAP in kinds(world.audit())
    assert kinds(world.audit(window=OF_SECOND)) == kinds(world.audit())


def test_batch_without_a_flush_record_is_a_finding_of_its_window() -> None:
    """No flush record accounts for its references."""
    world = two_hours().build()
    world.add_message(0, batch_id="stray")
    world.ended_at_ms["stray"] = SECOND
    assert Kind.REFERENCE_WRONG in kinds(world.audit(window=OF_SECOND))
    assert kinds(world.audit(window=OF_FIRST)) == set()


def test_backfill_of_any_time_makes_good_what_its_window_lacks() -> None:
    """It was published two days later, and its own window has it, too."""
    world = two_hours().build()
    world.change_message(1, **OF_A_BACKFILL, first_number=0)
    world.messages.append(world.messages.pop(1))
    times = {"started_at_ms": LATER - 1, "committed_at_ms": LATER}
    world.backfill_records = [msgspec.structs.replace(ran(APP_0, 2, entries=1), **times)]
    for window in (OF_FIRST, FlushWindow(FIRST + 1, SECOND + 1), FlushWindow(LATER - HOUR_MS, None)):
        assert world.audit(window=window).findings.examples == {}, window
    world.backfill_records.clear()
    assert Kind.REFERENCE_MISSING in kinds(world.audit(window=OF_FIRST))


def test_dead_letter_that_was_replayed_after_its_window_is_not_judged_by_the_mended_settings() -> None:
    """The mark stands behind the messages of the window."""
    world, of_second = two_hours().build(), FlushWindow(FIRST + 1, SECOND + 1)
    mended = UserSettings(missing_name="nobody")
    assert kinds(world.audit(window=of_second, user=mended)) == {Kind.DEAD_LETTER_UNEXPECTED}

    mark = encode_replay_mark(ReplayMark(group_id=GROUP, replayed_at_ms=LATER, offsets=(1,)))
    world.dead_letters.append(record(APP_0, 0, mark, headers=(("ce_type", REPLAY_TYPE.encode()),)))
    world.ended_at_ms[""] = LATER
    for window in (of_second, FlushWindow()):
        assert kinds(world.audit(window=window, user=mended)) == set()


def test_window_without_a_flush() -> None:
    """It is clean if nothing waits to be flushed."""
    world = two_hours().build()
    nothing = FlushWindow(SECOND + 1, None)
    assert world.audit(window=nothing, caught_up=False).exit_code == 0
    world.ends[APP_1] += 1
    report = world.audit(window=nothing, caught_up=False)
    assert (report.exit_code, report.findings.doubts) == (
        2,
        ["0 flushes ended in the window, and records of the source are not committed yet"],
    )


def test_beginning_that_topics_have_lost_is_missed_only_by_its_window() -> None:
    """Retention takes from references what an older window needs."""
    world = two_hours().build()
    firsts = sum(message.batch_id == "b1" for message in world.messages)
    world.lows = {REFERENCES: firsts - 1, FLUSHES: 0}
    assert world.audit(window=FlushWindow(SECOND, None)).exit_code == 0
    report = world.audit(window=OF_FIRST)
    assert "topic references no longer has its beginning" in report.findings.doubts


def test_window_reads_its_own_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """It also reads those within the padding around it, and no others."""
    world = two_hours(second_ms=FIRST + PADDING_MS * 4).build()
    read: list[SourceRecord] = []
    plain: Callable[..., Iterator[SourceRecord]] = MemoryTopics.read

    def reading(topics: MemoryTopics, ranges: Mapping[TopicPartition, tuple[int, int]]) -> Iterator[SourceRecord]:
        for message in plain(topics, ranges):
            read.append(message)
            yield message

    monkeypatch.setattr(MemoryTopics, "read", reading)
    report: Report = world.audit(window=FlushWindow(world.ended_at_ms["b2"], None))
    assert report.exit_code == 0
    announced = {message.timestamp_ms for message in read if message.tp == REFERENCES}
    assert announced == {world.ended_at_ms["b2"]}
    assert {message.offset for message in read if message.tp == APP_0} == {2, 4}
