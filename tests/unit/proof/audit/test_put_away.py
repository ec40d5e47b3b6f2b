"""Offsets that were put away undecoded: dead letters name them, one record stands for them, ranges go around them."""

from __future__ import annotations

from log_partitioner.formats.dead_letter import DeadLetter, Reason
from log_partitioner.formats.findings import Kind
from log_partitioner.formats.model import (
    FATAL,
    HEADERS_UNREADABLE,
    SKIPPED,
    OffsetRanges,
    SourceRecord,
    TopicPartition,
)
from log_partitioner.proof.accounting import ExitCode
from log_partitioner.proof.audit.put_away import Claim, PutAway, find_put_away
from tests.unit.proof.audit.world import APP_0, World, clean_world, record

TP, OTHER = TopicPartition("app", 0), TopicPartition("app", 1)


def spans_of(put_away: PutAway, ranges: OffsetRanges) -> list[tuple[int, int, int]]:
    """Give what is left of ranges, in order."""
    pieces = [piece.ranges for piece in put_away.around(ranges)]
    return sorted((tp.partition, *span) for piece in pieces for tp, span in piece.items() if span[0] < span[1])


def test_ranges_are_cut_around_what_was_skipped() -> None:
    """Once or several times, at the begin and at the end; each piece has one range of a TopicPartition."""
    put_away = PutAway({(TP, 20): 30, (TP, 40): 41, (OTHER, 0): 5}, {})
    everything = {TP: (0, 50), OTHER: (0, 10)}
    assert spans_of(put_away, everything) == [(0, 0, 20), (0, 30, 40), (0, 41, 50), (1, 5, 10)]
    assert spans_of(put_away, {TP: (21, 50)}) == [(0, 30, 40), (0, 41, 50)], "it begins within"
    assert spans_of(put_away, {TP: (5, 25)}) == [(0, 5, 20)], "it ends within"
    overlapping = PutAway({(TP, 10): 20, (TP, 15): 30}, {})
    assert spans_of(overlapping, {TP: (0, 40)}) == [(0, 0, 10), (0, 30, 40)]


def test_stand_in_is_where_its_offsets_begin_within_the_ranges() -> None:
    put_away = PutAway({(TP, 20): 30, (TP, 40): 41, (OTHER, 0): 5}, {})
    pieces = put_away.around({TP: (20, 41), OTHER: (3, 10)})
    assert [(one.offset, one.unreadable) for one, _ in pieces if one is not None] == [(20, SKIPPED), (40, SKIPPED)]
    offsets = [one for stand_in, ranges in pieces for one in [stand_in and stand_in.offset, *ranges.get(TP, ())]]
    in_order = [offset for offset in offsets if offset is not None]
    assert in_order == sorted(in_order)


def test_dead_letters_say_what_is_put_away() -> None:
    """Only two reasons do so; a skip without an end covers no offset."""
    claims = [
        *(Claim(TP, 20, 30, Reason.SKIPPED), Claim(TP, 50, None, Reason.SKIPPED)),
        *(Claim(TP, 7, None, Reason.FATAL), Claim(TP, 8, 9, Reason.MALFORMED)),
    ]
    assert find_put_away(claims) == PutAway({(TP, 20): 30}, {(TP, 7): FATAL})


def test_record_is_seen_as_the_worker_has_seen_it() -> None:
    record = SourceRecord(TP, 20, None, b"k", b"v", ())
    assert PutAway({}, {(TP, 20): FATAL}).seen(record).unreadable == FATAL
    assert PutAway({(TP, 20): 30}, {}).seen(record).unreadable == SKIPPED
    assert PutAway({(TP, 21): 30}, {(OTHER, 20): FATAL}).seen(record) is record


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
    """The worker that passed them over has covered more than it has read."""
    world = skipped_world()
    del world.dead[0]
    assert world.build().audit().findings.counts[Kind.FLUSH_WRONG] > 0


def test_record_whose_headers_cannot_be_read_is_rightly_dead() -> None:
    """It is dead as a whole, with its value and key; with another reason it is a finding."""
    world = clean_world()
    world.source[2] = record(APP_0, 2, {"user": "ann", "time": "2024-05-01T10:44:00Z"}, unreadable=HEADERS_UNREADABLE)
    world.dead[0] = ("b2", DeadLetter(world.source[2], Reason.UNREADABLE_HEADERS, HEADERS_UNREADABLE, None))
    assert world.build().audit().findings.examples == {}
    world.dead[0] = ("b2", DeadLetter(world.source[2], Reason.MALFORMED, "no", None))
    assert world.build().audit().findings.counts[Kind.DEAD_LETTER_WRONG] == 1


def test_record_that_ended_the_worker_is_dead_as_a_whole() -> None:
    """The audit does not decode it, whatever it holds; the report counts it by its reason."""
    world = clean_world()
    values = [{"user": "ann", "time": "2024-05-01T10:44:00Z"}] * 3
    world.source[2] = record(APP_0, 2, values)
    world.dead[0] = ("b2", DeadLetter(world.source[2], Reason.FATAL, FATAL, None))
    report = world.build().audit()
    assert report.findings.examples == {}
    assert report.dead_letters == {"fatal": 1, "no_user": 1}
