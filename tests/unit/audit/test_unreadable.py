"""What nobody can read: a dead letter stands for it, and the audit looks whether that is so."""

from __future__ import annotations

from service.accounting import ExitCode, Kind
from service.formats.dead_letter import DeadLetter, Reason
from service.formats.model import FATAL, HEADERS_UNREADABLE, SourceRecord
from tests.unit.audit.world import APP_0, World, clean_world, record


def broken_world() -> World:
    """Give a world in which offsets 2 and 3 cannot be read; not built yet."""
    world = clean_world()
    world.source[2] = SourceRecord(APP_0, 2, None, None, None, (), unreadable="broken", end_offset=4)
    world.dead[0] = ("b2", DeadLetter(world.source[2], Reason.UNREADABLE, "broken", None))
    return world


def test_offsets_that_nobody_can_read_are_accounted_for_by_their_dead_letter() -> None:
    """It counts as one entry, before, between and behind records that can be read."""
    report = broken_world().build().audit()
    assert report.findings.examples == {}
    assert report.exit_code is ExitCode.CLEAN
    assert report.dead_letters == {"unreadable": 1, "no_user": 1}


def test_offsets_that_can_be_read_are_missed_whatever_a_dead_letter_says() -> None:
    """The worker could not read them, or did not want to: their entries are nowhere."""
    world = broken_world()
    world.source.insert(3, record(APP_0, 3, {"user": "ann", "time": "2024-05-01T10:44:00Z", "n": 7}))
    report = world.build().audit()
    assert report.findings.counts[Kind.MISSING] == 1
    assert report.findings.counts[Kind.DEAD_LETTER_UNEXPECTED] == 1
    assert report.exit_code is ExitCode.FINDINGS


def test_offsets_that_nobody_can_read_and_no_dead_letter_stands_for_are_found() -> None:
    """A worker that passed them over has covered more than it has read."""
    world = broken_world()
    del world.dead[0]
    assert world.build().audit().findings.counts[Kind.FLUSH_WRONG] > 0


def test_record_whose_headers_cannot_be_read_is_rightly_dead() -> None:
    """As a whole, with its value and key; alive it would be found."""
    world = clean_world()
    world.source[2] = record(APP_0, 2, {"user": "ann", "time": "2024-05-01T10:44:00Z"}, unreadable=HEADERS_UNREADABLE)
    world.dead[0] = ("b2", DeadLetter(world.source[2], Reason.UNREADABLE_HEADERS, HEADERS_UNREADABLE, None))
    assert world.build().audit().findings.examples == {}
    world.dead[0] = ("b2", DeadLetter(world.source[2], Reason.MALFORMED, "no", None))
    assert world.build().audit().findings.counts[Kind.DEAD_LETTER_WRONG] == 1


def test_record_that_ended_the_worker_is_dead_as_a_whole() -> None:
    """Whatever it holds, nobody decodes it; that it was put away stands in the report by its reason."""
    world = clean_world()
    values = [{"user": "ann", "time": "2024-05-01T10:44:00Z"}] * 3
    world.source[2] = record(APP_0, 2, values)
    world.dead[0] = ("b2", DeadLetter(world.source[2], Reason.FATAL, FATAL, None))
    report = world.build().audit()
    assert report.findings.examples == {}
    assert report.dead_letters == {"fatal": 1, "no_user": 1}
