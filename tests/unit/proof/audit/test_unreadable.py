"""What is put away undecoded: a dead letter stands for it."""

from __future__ import annotations

from log_partitioner.formats.dead_letter import DeadLetter, Reason
from log_partitioner.formats.findings import Kind
from log_partitioner.formats.model import FATAL, HEADERS_UNREADABLE, SKIPPED, SourceRecord
from log_partitioner.proof.accounting import ExitCode
from tests.unit.proof.audit.world import APP_0, World, clean_world, record


def skipped_world() -> World:
    """Give a world in which a person has skipped the offsets 2 and 3; not built yet."""
    world = clean_world()
    world.source[2] = SourceRecord(APP_0, 2, None, None, None, (), unreadable=SKIPPED)
    world.dead[0] = ("b2", DeadLetter(world.source[2], Reason.SKIPPED, SKIPPED, None, end_offset=4))
    return world


def test_offsets_that_a_person_has_skipped_are_accounted_for_by_their_dead_letter() -> None:
    """It counts as one entry, before, between and behind records that are read; a note names them."""
    report = skipped_world().build().audit()
    assert report.findings.examples == {}
    assert report.exit_code is ExitCode.CLEAN
    assert report.dead_letters == {"skipped": 1, "no_user": 1}
    assert f"{APP_0}: a person has skipped the offsets 2 to 3: they are in no file" in report.findings.notes


def test_offsets_that_were_passed_over_without_a_dead_letter_are_found() -> None:
    """A worker that passed them over has covered more than it has read."""
    world = skipped_world()
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
