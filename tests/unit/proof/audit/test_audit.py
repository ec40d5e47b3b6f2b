"""The whole audit over a small world: clean when nothing is wrong, and every planted fault is found."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from log_partitioner.config.settings import SchemaBounds
from log_partitioner.formats.dead_letter import HEADER_REASON, DeadLetter, Reason
from log_partitioner.formats.findings import Kind
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.formats.reference import Checksum
from log_partitioner.formats.replay import REPLAY_TYPE, ReplayMark, encode_replay_mark
from log_partitioner.proof.accounting import ExitCode
from log_partitioner.proof.audit.audit import Audit, Options
from log_partitioner.proof.audit.report import Report
from log_partitioner.proof.audit.window import FlushWindow
from tests.fakes.check import BucketStore
from tests.unit.proof.audit.world import (
    APP_0,
    APP_1,
    GROUP,
    HOUR_10,
    TIMESTAMP_MS,
    File,
    MemoryTopics,
    Row,
    World,
    clean_world,
    column,
    kinds,
    record,
    settings,
)

if TYPE_CHECKING:
    from log_partitioner.config.source_topics import SourceNames

APPLE = TopicPartition("apple", 0)
BY_PATTERN = {"source_topics": ("^app.*",)}


def test_audit_of_a_clean_world_finds_nothing() -> None:
    report = clean_world().build().audit()
    assert report.findings.examples == {}
    assert report.exit_code is ExitCode.CLEAN
    assert report.counts["source_records"] == 6
    assert report.counts["source_entries"] == 8
    assert report.counts["entries_in_files"] == 6
    assert report.counts["entries_in_dead_letters"] == 2
    assert report.counts["objects"] == 5
    assert report.dead_letters == {"malformed": 1, "no_user": 1}


def test_report_as_text_and_json_says_the_same() -> None:
    report = clean_world().build().audit()
    document = json.loads(report.to_json())
    assert document["verdict"] == "clean"
    assert document["findings"] == {}
    assert "clean (0)" in report.to_text()


def test_report_for_a_person_answers_missing_and_duplicated_first_and_even_if_nothing_was_found() -> None:
    world = clean_world()
    text = world.build().audit().to_text()
    assert re.search(r"\nfindings\n  missing +0\n  duplicated +0\n\n", text)
    delete_entry(world)
    assert re.search(r"\nfindings\n  missing +1\n  duplicated +0\n  \w", world.build().audit().to_text())


# Faults in what was written: references and flush records agree with the files.


def alter_type(world: World) -> None:
    world.files[4].columns[2] = column("mix", "boolean")
    world.files[4].rows[0].values["mix"] = True


def delete_entry(world: World) -> None:
    del world.files[0].rows[0]
    del world.files[0].columns[3]


def swap_values(world: World) -> None:
    one, other = world.files[0].rows
    one.values, other.values = other.values, one.values


def missing_field(world: World) -> None:
    del world.files[1].columns[2]
    del world.files[1].rows[0].values["ok"]


def wrong_mark(world: World) -> None:
    world.change_column(3, "n", lambda one: one | {"lp.type": "json"} | {"type": ["null", "string"]})
    world.files[3].rows[0].values["n"] = "3"


def reject_bob(world: World) -> None:
    world.dead.append(("b1", DeadLetter(world.source[1], Reason.NO_USER, "", (0,))))


def reject_good_entry(world: World) -> None:
    del world.files[1]
    reject_bob(world)


WRITTEN: dict[str, tuple[Callable[[World], object], set[Kind]]] = {
    "delete_entry": (delete_entry, {Kind.MISSING}),
    "delete_file": (lambda w: w.files.pop(1), {Kind.MISSING}),
    "duplicate_across_files": (lambda w: w.files.append(replace(w.files[1], pack="1")), {Kind.DUPLICATED}),
    "invent_entry": (lambda w: w.add_row(0, w.files[0].rows[1], index=7), {Kind.UNEXPECTED}),
    "write_dead_entry": (lambda w: w.add_row(3, w.files[3].rows[0], index=1), {Kind.UNEXPECTED}),
    "alter_number": (lambda w: w.files[0].rows[0].values.update(n=2.0), {Kind.ALTERED}),
    "alter_type": (alter_type, {Kind.ALTERED, Kind.REFERENCE_WRONG}),
    "swap_values": (swap_values, {Kind.ALTERED}),
    "misplace_user": (lambda w: w.change_file(1, user="Bob"), {Kind.MISPLACED}),
    "misplace_meta_user": (lambda w: w.change_row(1, user="ann"), {Kind.MISPLACED}),
    "misplace_hour": (lambda w: w.change_file(1, hour=9), {Kind.MISPLACED}),
    "wrong_event_time": (lambda w: w.change_row(0, event_time_us=HOUR_10 + 1), {Kind.META}),
    "wrong_id": (lambda w: w.change_row(0, id="7"), {Kind.META}),
    "reverse_rows": (lambda w: w.files[0].rows.reverse(), {Kind.REFERENCE_WRONG}),
    "extra_field": (lambda w: w.files[1].columns.append(column("ghost", "string")), {Kind.REFERENCE_WRONG}),
    "extra_null_field": (
        lambda w: w.files[1].columns.append(column("ghost", "string", "null")), {Kind.REFERENCE_WRONG},
    ),
    "missing_field": (missing_field, {Kind.REFERENCE_WRONG, Kind.ALTERED}),
    "missing_null_field": (lambda w: w.drop_column(2, "nothing"), {Kind.REFERENCE_WRONG}),
    "wrong_mark": (wrong_mark, {Kind.REFERENCE_WRONG}),
    "missing_mark": (
        lambda w: w.change_column(3, "n", lambda one: {key: one[key] for key in ("name", "type", "default")}),
        {Kind.REFERENCE_WRONG},
    ),
    "wrong_original_name": (
        lambda w: w.change_column(2, "a_x2Db", lambda one: one | {"lp.name": "a_b"}),
        {Kind.REFERENCE_WRONG, Kind.ALTERED},
    ),
    "reject_good_entry": (reject_good_entry, {Kind.DEAD_LETTER_UNEXPECTED}),
    "reject_written_entry": (reject_bob, {Kind.DEAD_LETTER_UNEXPECTED}),
    "reject_under_other_reason": (
        lambda w: w.change_dead(1, reason=Reason.NOT_AN_OBJECT), {Kind.DEAD_LETTER_WRONG},
    ),
    "reject_all_of_a_splittable_record": (
        lambda w: w.change_dead(1, indexes=None), {Kind.DEAD_LETTER_WRONG, Kind.DEAD_LETTER_UNEXPECTED},
    ),
    "reject_other_index": (
        lambda w: w.change_dead(1, indexes=(5,)), {Kind.DEAD_LETTER_UNEXPECTED, Kind.DEAD_LETTER_MISSING},
    ),
    "forget_dead_letter": (lambda w: w.dead.pop(0), {Kind.DEAD_LETTER_MISSING}),
    "reject_twice": (
        lambda w: w.dead.append(w.dead[0]), {Kind.DEAD_LETTER_WRONG, Kind.DEAD_LETTER_DUPLICATED},
    ),
    "leave_gap": (lambda w: w.flushes["b2"].update({APP_0: (4, 5)}), {Kind.FLUSH_GAP}),
    "overlap": (lambda w: w.flushes["b2"].update({APP_0: (1, 5)}), {Kind.FLUSH_OVERLAP}),
}  # fmt: skip


@pytest.mark.parametrize("fault", WRITTEN)
def test_audit_finds_a_fault_that_the_worker_announces_consistently(fault: str) -> None:
    plant, expected = WRITTEN[fault]
    world = clean_world()
    plant(world)
    report = world.build().audit()
    assert report.exit_code is ExitCode.FINDINGS
    assert expected <= kinds(report)
    # Nothing else, but that flush records no longer count what the source holds, and checks that follow a
    # missing or surplus row.
    assert kinds(report) - expected <= {Kind.FLUSH_WRONG, Kind.REFERENCE_WRONG}
    for kind in expected:
        assert report.findings.examples[kind]


# Faults in what was announced: files are right, or were changed afterwards.


def cut_object(world: World) -> None:
    key = world.files[0].key
    world.objects[key] = world.objects[key][:-20]


def damage_object(world: World) -> None:
    cut_object(world)
    world.objects[world.files[0].key] += bytes(20)


def lose_part_of_flush_record(world: World) -> None:
    world.split_flush(0)
    del world.flush_records[1]


def repeat_part_of_flush_record(world: World) -> None:
    world.split_flush(0)
    world.flush_records.append(world.flush_records[1])


def change_schema_object(world: World) -> None:
    world.objects[world.messages[0].schema.object] += b"\n"


def change_schema_text(world: World) -> None:
    schema = world.messages[0].schema
    world.change_message(0, schema=msgspec.structs.replace(schema, text=f"{schema.text} "))


def break_dead_letter_headers(world: World) -> None:
    world.change_letter(0, headers=tuple(one for one in world.dead_letters[0].headers if one[0] != "lp-indexes"))


ANNOUNCED: dict[str, tuple[Callable[[World], object], set[Kind]]] = {
    "damage_object": (damage_object, {Kind.OBJECT_ALTERED, Kind.MISSING}),
    "cut_object": (cut_object, {Kind.OBJECT_ALTERED, Kind.MISSING}),
    "lose_object": (lambda w: w.objects.pop(w.files[0].key), {Kind.OBJECT_MISSING, Kind.MISSING}),
    "wrong_checksum": (
        lambda w: w.change_object(0, checksum=Checksum("crc32", "00000000")), {Kind.OBJECT_ALTERED},
    ),
    "wrong_size": (lambda w: w.change_object(0, size=w.messages[0].object.size + 1), {Kind.OBJECT_ALTERED}),
    "reference_twice": (lambda w: w.add_message(0, first_number=9), {Kind.DUPLICATED, Kind.REFERENCE_WRONG}),
    "lose_reference": (lambda w: w.messages.pop(1), {Kind.MISSING, Kind.REFERENCE_MISSING}),
    "wrong_entries": (lambda w: w.change_line(0, entries=3), {Kind.REFERENCE_WRONG}),
    "wrong_partition": (lambda w: w.change_line(1, user="ann"), {Kind.REFERENCE_WRONG, Kind.MISPLACED}),
    "wrong_time_range": (lambda w: w.change_line(0, event_time_span_us=0), {Kind.REFERENCE_WRONG}),
    "other_message_key": (lambda w: w.keys.update({0: b"ann/2024-05-01/10"}), {Kind.REFERENCE_WRONG}),
    "message_without_lines": (lambda w: w.add_message(0, references=()), {Kind.REFERENCE_WRONG}),
    "wrong_source_range": (
        lambda w: w.change_line(0, sources=(0, 0, 0, 1)), {Kind.REFERENCE_WRONG, Kind.FLUSH_WRONG},
    ),
    "other_batch_range": (
        lambda w: w.change_message(0, sources=(msgspec.structs.replace(w.messages[0].sources[0], next_offset=9),)),
        {Kind.REFERENCE_WRONG},
    ),
    "other_batch": (
        lambda w: w.change_message(0, batch_id="b9"), {Kind.REFERENCE_WRONG, Kind.REFERENCE_MISSING},
    ),
    "lose_flush_record": (lambda w: w.flush_records.pop(0), {Kind.FLUSH_GAP, Kind.REFERENCE_WRONG}),
    "repeat_flush_record": (lambda w: w.flush_records.append(w.flush_records[0]), {Kind.FLUSH_OVERLAP}),
    "start_late": (
        lambda w: w.change_flushed(0, APP_0, first_offset=1),
        {Kind.FLUSH_WRONG, Kind.REFERENCE_WRONG, Kind.FLUSH_GAP},
    ),
    "lose_part_of_flush_record": (
        lose_part_of_flush_record, {Kind.FLUSH_WRONG, Kind.REFERENCE_WRONG, Kind.FLUSH_GAP},
    ),
    "repeat_part_of_flush_record": (repeat_part_of_flush_record, {Kind.FLUSH_WRONG, Kind.FLUSH_OVERLAP}),
    "flush_counts_too_many": (lambda w: w.change_flushed(0, APP_0, entries=4), {Kind.FLUSH_WRONG}),
    "flush_hides_a_record": (lambda w: w.change_flushed(0, APP_0, min_offset=1, records=1), {Kind.FLUSH_WRONG}),
    "offsets_not_committed": (
        lambda w: w.committed.update({APP_0: 2}),
        {Kind.FLUSH_WRONG, Kind.UNEXPECTED, Kind.DEAD_LETTER_UNEXPECTED},
    ),
    "offsets_committed_too_far": (lambda w: w.committed.update({APP_1: 5}), {Kind.FLUSH_GAP}),
    "lose_schema_object": (lambda w: w.objects.pop(w.messages[0].schema.object), {Kind.OBJECT_MISSING}),
    "change_schema_object": (change_schema_object, {Kind.OBJECT_ALTERED}),
    "change_schema_text": (change_schema_text, {Kind.REFERENCE_WRONG}),
    "swap_schema": (lambda w: w.change_message(0, schema=w.messages[1].schema), {Kind.REFERENCE_WRONG}),
    "change_dead_letter_value": (lambda w: w.change_letter(0, value=b"not json"), {Kind.DEAD_LETTER_WRONG}),
    "change_dead_letter_key": (lambda w: w.change_letter(0, key=None), {Kind.DEAD_LETTER_WRONG}),
    "drop_dead_letter_header": (
        lambda w: w.change_letter(0, headers=w.dead_letters[0].headers[1:]), {Kind.DEAD_LETTER_WRONG},
    ),
    "break_dead_letter_headers": (
        break_dead_letter_headers, {Kind.DEAD_LETTER_WRONG, Kind.DEAD_LETTER_MISSING},
    ),
    "break_reference": (
        lambda w: w.change_message(0, format_version=99),
        {Kind.REFERENCE_WRONG, Kind.MISSING, Kind.REFERENCE_MISSING},
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", ANNOUNCED)
def test_audit_finds_a_fault_in_what_was_announced(fault: str) -> None:
    plant, expected = ANNOUNCED[fault]
    world = clean_world().build()
    plant(world)
    report = world.audit(caught_up=False)
    assert report.exit_code is ExitCode.FINDINGS
    assert kinds(report) == expected


def test_altered_example_names_the_field_and_both_values() -> None:
    world = clean_world()
    world.files[0].rows[0].values["n"] = 2.0
    assert "n: source 1, file 2" in world.build().audit().findings.examples[Kind.ALTERED][0]


def test_flush_record_in_parts_is_clean() -> None:
    """The parts together are the flush record."""
    world = clean_world().build()
    world.split_flush(0)
    assert world.audit().findings.examples == {}


def test_flush_records_in_another_order_are_clean() -> None:
    """A topic's flush records lie in several of its partitions, which are read one after the other."""
    world = clean_world().build()
    world.flush_records.reverse()
    assert world.audit().findings.examples == {}


def test_source_topic_made_anew_is_a_note() -> None:
    """Its ids in flush records tell it; the offsets look the same."""
    world = clean_world().build()
    world.flush_records[1] = msgspec.structs.replace(world.flush_records[1], topic_ids={"app": "other"})
    assert "made anew" in world.audit().findings.notes[0]


def test_empty_flush_line_and_record_without_entries_are_clean() -> None:
    world = clean_world()
    world.source.append(record(APP_1, 2, []))
    world.source.append(record(APP_1, 3, None))
    world.flushes["b3"] = {APP_1: (2, 4), APP_0: (5, 5)}
    world.committed[APP_1] = world.ends[APP_1] = 4
    assert world.build().audit().findings.examples == {}


def test_stored_dead_letter_is_compared_with_its_object() -> None:
    world = clean_world().build()
    letter = world.dead_letters[0]
    headers = (*letter.headers, ("lp-object", b"logs/dead/1"))
    world.dead_letters[0] = letter._replace(value=None, headers=headers)
    assert kinds(world.audit()) == {Kind.OBJECT_MISSING}
    world.objects["logs/dead/1"] = b"not JSON"
    assert kinds(world.audit()) == set()
    world.objects["logs/dead/1"] = b"not json"
    assert kinds(world.audit()) == {Kind.DEAD_LETTER_WRONG}


def test_dead_letters_of_one_record_and_reason_may_share_its_indexes() -> None:
    """One of too many indexes is several; the same indexes twice are a finding, and so are entries that none names."""
    world = world_of_dead_entries()
    assert world.build().audit().findings.examples == {}
    world.dead.append(world.dead[-1])
    assert Kind.DEAD_LETTER_WRONG in kinds(world.build().audit())
    world = world_of_dead_entries()
    del world.dead[-1]
    assert Kind.DEAD_LETTER_MISSING in kinds(world.build().audit())


def test_dead_letter_that_says_of_another_number_of_entries_is_found() -> None:
    """Whether a replay takes the record whole is decided by that number."""
    for of_entries, expected in ((2, set()), (1, {Kind.DEAD_LETTER_WRONG})):
        world = clean_world()
        world.change_dead(1, of_entries=of_entries)
        assert kinds(world.build().audit()) == expected


def test_replay_mark_is_no_dead_letter_and_what_it_names_may_be_good_by_now() -> None:
    """A replay follows mended settings, by which nothing is wrong with the old record; without it that is a finding."""
    world = clean_world()
    reject_good_entry(world)
    reason = world.build().audit().findings.examples
    assert set(reason) == {Kind.DEAD_LETTER_UNEXPECTED}
    world.dead_letters.append(replay_mark(offsets=(2,)))
    assert world.audit().findings.examples == {}
    world.dead_letters[-1] = replay_mark(offsets=(1,))
    assert world.audit().findings.examples == reason


def test_replay_mark_that_cannot_be_read_is_found() -> None:
    """The audit does not know which records were replayed."""
    world = clean_world().build()
    world.dead_letters.append(replay_mark(offsets=(1,))._replace(value=b"{}"))
    assert kinds(world.audit()) == {Kind.DEAD_LETTER_WRONG}


def replay_mark(*, offsets: tuple[int, ...]) -> SourceRecord:
    """Make the mark of these dead letters."""
    mark = ReplayMark(group_id=GROUP, replayed_at_ms=TIMESTAMP_MS, offsets=offsets)
    headers = (("ce_type", REPLAY_TYPE.encode()),)
    return SourceRecord(TopicPartition("dead-letters", 0), 0, None, None, encode_replay_mark(mark), headers)


def world_of_dead_entries() -> World:
    """One record of four bad entries, in two dead letters of one reason."""
    bad = record(APP_0, 0, [1, 2, 3, 4])
    letters = [DeadLetter(bad, Reason.NOT_AN_OBJECT, "", indexes) for indexes in ((0, 1), (2, 3))]
    return World([bad], [], [("b1", letter) for letter in letters], {"b1": {APP_0: (0, 1)}}, {APP_0: 1}, {APP_0: 1})


@pytest.mark.parametrize("timestamp_ms", [0, 253_402_300_799_999, 253_402_300_800_000, 2**62])
def test_row_has_no_timestamp_that_is_later_than_the_year_9999(timestamp_ms: int) -> None:
    """No reader makes a date of it; one that leaves out another timestamp is wrong."""
    entry = {"user": "ann", "time": "2024-05-01T10:00:00Z"}
    columns = [column("user", "string"), column("time", "string")]
    kept = timestamp_ms if timestamp_ms < 253_402_300_800_000 else -1
    for written, expected in ((kept, set()), (5, {Kind.META})):
        row = Row(APP_0, 0, 0, HOUR_10, entry, timestamp_ms=written)
        world = World(
            [record(APP_0, 0, entry, timestamp_ms=timestamp_ms)], [File("b1", "ann", 10, columns, [row])],
            [], {"b1": {APP_0: (0, 1)}}, {APP_0: 1}, {APP_0: 1},
        )  # fmt: skip
        assert kinds(world.build().audit()) == expected


def test_subtrees_of_an_entry_over_the_limits_may_be_json() -> None:
    """By its own fields, though with the others it has fewer: `a` is JSON for another reason, `b` for this one."""
    entries: list[dict[str, Any]] = [
        {"user": "ann", "time": "2024-05-01T10:00:00Z", "a": a, "b": {"x": 1}}
        for a in ({"x": 1, "y": 2, "z": 3}, "text")
    ]
    as_json = [column(name, "string", "json") for name in ("a", "b")]
    columns = [column("user", "string"), column("time", "string"), *as_json]
    rows = [
        Row(APP_0, number, 0, HOUR_10, entry | {name: json.dumps(entry[name]) for name in ("a", "b")})
        for number, entry in enumerate(entries)
    ]
    source = [record(APP_0, number, entry) for number, entry in enumerate(entries)]
    world = World(source, [File("b1", "ann", 10, columns, rows)], [], {"b1": {APP_0: (0, 2)}}, {APP_0: 2}, {APP_0: 2})
    world.build()
    assert kinds(world.audit(bounds=SchemaBounds(fields_max=7))) == set()
    assert kinds(world.audit(bounds=SchemaBounds(fields_max=8))) == {Kind.REFERENCE_WRONG}


def test_dead_letter_of_a_replayed_dead_letter_keeps_the_older_headers() -> None:
    """The record's own headers may be ours, from an earlier life; the last of a name count."""
    world = clean_world()
    older = world.source[2]._replace(headers=((HEADER_REASON, b"no_user"), ("lp-object", b"old")))
    world.source[2] = older
    world.dead[0] = ("b2", DeadLetter(older, Reason.MALFORMED, "", None))
    assert world.build().audit().findings.examples == {}


def test_source_behind_the_end_could_not_tell_only_where_that_is_demanded() -> None:
    world = clean_world()
    world.source.append(record(APP_1, 2, {"user": "ann"}))
    world.ends[APP_1] = 3
    world.build()
    assert world.audit(caught_up=False).exit_code is ExitCode.CLEAN
    assert world.audit(caught_up=True).exit_code is ExitCode.COULD_NOT_TELL


def test_control_record_at_the_end_is_caught_up() -> None:
    world = clean_world()
    world.ends[APP_1] = 3
    assert world.build().audit(caught_up=True).exit_code is ExitCode.CLEAN


def test_source_that_lost_its_beginning_could_not_tell() -> None:
    world = clean_world().build()
    world.lows[APP_0] = 4
    world.source = [one for one in world.source if one.tp == APP_1 or one.offset >= world.lows[APP_0]]
    report = world.audit()
    assert report.findings.examples == {}
    assert report.exit_code is ExitCode.COULD_NOT_TELL


def test_batch_committed_while_reading_is_left_out() -> None:
    world = clean_world().build()
    later = dict(world.committed)
    first: dict[TopicPartition, int | None] = {APP_0: 2, APP_1: 1}
    world.committed = first
    report = audit_while_committing(world, later)
    assert report.findings.examples == {}
    assert "1 batches were committed while the audit was reading; left out" in report.findings.notes


def of_two_topics() -> World:
    """Give a world in which app-1 is a topic of its own, in flushes of its own; not built yet."""
    world = clean_world()
    world.source = [one._replace(tp=APPLE) if one.tp == APP_1 else one for one in world.source]
    for row in (row for file in world.files for row in file.rows if row.tp == APP_1):
        row.tp = APPLE
    world.change_file(2, batch="b3")
    world.change_file(4, batch="b4")
    world.flushes = {"b1": {APP_0: (0, 2)}, "b2": {APP_0: (2, 5)}, "b3": {APPLE: (0, 1)}, "b4": {APPLE: (1, 2)}}
    world.ends = {APP_0: 5, APPLE: 2}
    world.committed = {**world.ends}
    return world


def test_topic_that_matches_is_audited_and_one_that_is_deleted_could_not_be_told_of() -> None:
    """Flush records that cover the deleted topic are no finding; all of the other topic is compared."""
    world = of_two_topics().build()
    report = world.audit(kafka=BY_PATTERN)
    assert (report.exit_code, report.findings.notes) == (ExitCode.CLEAN, ["source topics (^app.*): app, apple"])
    assert report.counts["source_records"] == len(world.source)

    world.deleted, world.committed = {"apple"}, {APP_0: 5}
    report = world.audit(kafka=BY_PATTERN)
    assert report.findings.examples == {}
    assert report.findings.doubts == ["apple-0: flush records begin at 0, its topic is not there any more"]
    assert report.findings.notes == ["source topics (^app.*): app"]
    report = world.audit(kafka=BY_PATTERN, window=FlushWindow(1))
    assert report.findings.examples == {}
    assert report.exit_code is ExitCode.COULD_NOT_TELL


def test_topic_that_comes_to_match_while_the_audit_reads_is_left_out() -> None:
    """With its flushes, as those that were committed meanwhile; at the first look it was not there."""
    world = of_two_topics().build()
    topics = ComingTopics(world, [{APP_0: 5}, {APP_0: 5, APPLE: 2}])
    report = Audit(settings(kafka=BY_PATTERN), Options(), topics, BucketStore(world.objects).get).run()
    assert report.findings.examples == {}
    assert "2 batches were committed while the audit was reading; left out" in report.findings.notes
    assert report.exit_code is ExitCode.CLEAN


class CommittingTopics(MemoryTopics):
    """Topics whose committed offsets move on from one look to the next."""

    def __init__(self, world: World, answers: list[dict[TopicPartition, int | None]]) -> None:
        super().__init__(world)
        self._answers = answers

    def committed(self, tps: list[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Give the next answer."""
        return {tp: offset for tp, offset in self._answers.pop(0).items() if tp in tps}


class ComingTopics(CommittingTopics):
    """Topics of which those with the next answer are there."""

    def source_topic_partitions(self, sources: SourceNames) -> list[TopicPartition]:
        """List the TopicPartitions that the next answer has."""
        return [tp for tp in super().source_topic_partitions(sources) if tp in self._answers[0]]


OF_LATER_BATCH = {"references": 2, "flushes": 1, "dead-letters": 2}


class PublishingTopics(CommittingTopics):
    """Topics in which the messages of the last batch appear, all at once, after so many looks at the output topics."""

    def __init__(self, world: World, answers: list[dict[TopicPartition, int | None]], *, looks: int) -> None:
        super().__init__(world, answers)
        self._looks_left = looks

    def settled(self, tps: Iterable[TopicPartition]) -> tuple[dict[TopicPartition, tuple[int, int]], list[str]]:
        """Give the ends as they are at this look."""
        ends, doubts = super().settled(tps)
        self._looks_left -= bool(ends)
        if self._looks_left >= 0:
            ends = {tp: (first, end - OF_LATER_BATCH.get(tp.topic, 0)) for tp, (first, end) in ends.items()}
        return ends, doubts


@pytest.mark.parametrize("looks", range(5))
def test_batch_committed_between_two_looks_at_the_output_is_left_out(looks: int) -> None:
    """If any of its messages is seen, so is its flush record, which tells the audit to leave the batch out."""
    world = clean_world().build()
    later = dict(world.committed)
    world.committed = {APP_0: 2, APP_1: 1}
    topics = PublishingTopics(world, [world.committed, later], looks=looks)
    report = Audit(settings(), Options(), topics, BucketStore(world.objects).get).run()
    assert report.findings.examples == {}
    assert report.exit_code is ExitCode.CLEAN


@pytest.mark.parametrize("values", [{"n": 5}, {"n": 5.0}])
def test_values_that_are_equal_by_value_are_not_altered(values: dict[str, Any]) -> None:
    world = clean_world()
    world.source[0] = record(APP_0, 0, [
        {"user": "ann", "time": "2024-05-01T10:00:00Z", "tags": ["x"], "nope": None} | values,
        {"user": "ann", "time": "2024-05-01T10:30:00Z", "n": 2.5},
    ])  # fmt: skip
    world.files[0].rows[0].values["n"] = 5.0
    world.files[0].columns.append(column("nope", "string", "null"))
    assert world.build().audit().findings.examples == {}


def audit_while_committing(world: World, committed_later: dict[TopicPartition, int | None]) -> Report:
    """Run the audit while a worker commits more between its two looks at the committed offsets."""
    topics = CommittingTopics(world, [world.committed, committed_later])
    return Audit(settings(), Options(), topics, BucketStore(world.objects).get).run()


def test_transaction_that_stays_open_is_a_doubt() -> None:
    """It hides all later records, so the audit cannot tell whether any is missing."""
    world = clean_world()
    world.open_transactions = ["flushes-0: a transaction has been open for more than 80 s"]
    report = world.build().audit()
    assert report.exit_code is ExitCode.COULD_NOT_TELL
    assert set(report.findings.doubts) == set(world.open_transactions)
