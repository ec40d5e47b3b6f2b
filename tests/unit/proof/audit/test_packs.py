"""Packs in the audit: many PartitionKeys in one object under a merged schema, and what can be wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from log_partitioner.avro.schema_types import RecordType, Scalar
from log_partitioner.formats.findings import Kind
from log_partitioner.formats.model import TopicPartition
from log_partitioner.formats.reference import Line
from tests.unit.proof.audit.world import (
    APP_0,
    APP_1,
    HOUR_10,
    OF_A_BACKFILL,
    File,
    Row,
    World,
    clean_world,
    column,
    kinds,
    merge_types,
    packed_world,
    ran,
    record,
)

# The lines of the first message: ann's hour 10, bob's hour 10, ann's hour 11.
ANN_10, BOB_10, ANN_11 = 0, 1, 2


def test_packs_without_fault_are_clean() -> None:
    """Each reference is a line of its message, under a schema with fields of all."""
    report = packed_world().build().audit()
    assert report.findings.examples == {}
    assert report.exit_code == 0
    assert report.counts["references"] == 5
    assert report.counts["objects"] == 2
    assert report.counts["rows_read"] == 6


BESIDE = (
    ({"a": 1}, [column("a", "long", "long53")], {"a": 1}),
    ({"a": "x", "b": None}, [column("a_2", "string", original="a"), column("b", "string", "null")], {"a_2": "x"}),
)


def test_fields_of_one_name_beside_each_other_in_a_pack_are_clean() -> None:
    """Each reference has one of them."""
    world = typed_world(*BESIDE)
    assert world.build().audit().findings.examples == {}


def test_projection_onto_the_wrong_one_of_two_fields_or_onto_both_is_found() -> None:
    """The counts of its values say so, and an exact schema has a name once."""
    for projection in ([0, 2, 3], [0, 1, 2, 3]):
        world = typed_world(*BESIDE)
        world.build()
        message = world.messages[0]
        world.messages[0] = msgspec.structs.replace(message, schemas=(projection, *message.schemas[1:]))
        assert kinds(world.audit()) == {Kind.REFERENCE_WRONG}, projection


def test_lines_of_a_pack_in_two_messages_are_clean() -> None:
    """A message has what the topic's message size allows; the rest follows."""
    world = packed_world().build()
    world.split_message(0, 2)
    assert world.audit().findings.examples == {}


def test_packs_that_share_a_schema_share_its_fields() -> None:
    """A batch's packs may have one schema: a field of it occurs in one of them, not in each."""
    world = clean_world()
    for file in world.files[:3]:
        file.pack = f"date=2024-05-01/hour={file.hour}/0"
    merged = merge_types([file.entry_type for file in world.files[:3]])
    world.merge = lambda _types: merged
    assert world.build().audit().findings.examples == {}
    world.merge = lambda _types: add_ghost(merged)
    assert kinds(world.build().audit()) == {Kind.REFERENCE_WRONG}


def typed_world(*entries: tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]) -> World:
    """Pack one entry of each of many users: the entry, the columns and the row."""
    source, files = [], []
    for offset, (entry, columns, values) in enumerate(entries):
        user = f"u{offset}"
        own = {"user": user, "time": "2024-05-01T10:00:00Z"}
        source.append(record(APP_0, offset, own | entry))
        common = [column("user", "string"), column("time", "string")]
        files.append(File("b1", user, 10, [*common, *columns], [Row(APP_0, offset, 0, HOUR_10, own | values)], "0"))
    end = {APP_0: len(source)}
    return World(source, files, [], {"b1": {APP_0: (0, len(source))}}, dict(end), end)


def test_types_that_a_merge_may_change_are_clean() -> None:
    """Null, `{}` and `[]` get a type, integers of 53 bits become such of 64, inside of others, too."""
    empty = {"type": "map", "values": ["null", "string"]}
    null_item = {"type": "array", "items": ["null", {"type": "string", "lp.type": "null"}]}
    small = {"type": "array", "items": ["null", {"type": "long", "lp.type": "long53"}]}
    inner = {"type": "record", "name": "r_o", "fields": [column("x", "string")]}
    world = typed_world(
        ({"n": 1}, [column("n", "long", "long53")], {"n": 1}),
        ({"n": 1 << 60}, [column("n", "long")], {"n": 1 << 60}),
        ({"n": None, "o": {}}, [column("n", "string", "null"), column("o", empty, "empty-object")], {"o": {}}),
        ({"o": {"x": "y"}}, [column("o", inner)], {"o": {"x": "y"}}),
        ({"l": [1]}, [column("l", small)], {"l": [1]}),
        ({"l": []}, [column("l", null_item)], {"l": []}),
        ({"l": [1 << 60]}, [column("l", {"type": "array", "items": ["null", "long"]})], {"l": [1 << 60]}),
    )
    assert world.build().audit().findings.examples == {}


def test_field_outside_of_its_exact_schema_is_altered() -> None:
    """Values are read under the pack's schema, so that nothing hides in fields of others."""
    world = packed_world()
    world.files[BOB_10].rows[0].values["n"] = 5.0
    assert kinds(world.build().audit()) == {Kind.ALTERED}


# Planted faults of shared messages and packs: each is named, and nothing else.


def last_line_is_missing_in_a_message_of_its_own(world: World) -> None:
    world.split_message(0, 2)
    del world.messages[1]


def blocks_of_another(world: World) -> None:
    ann, bob = (world.messages[0].references[line] for line in (ANN_10, BOB_10))
    world.change_line(0, ANN_10, start=bob.start, length=bob.length)
    world.change_line(0, BOB_10, start=ann.start, length=ann.length)


def key_of_another_hour(world: World) -> None:
    key = "logs/pack/date=2024-05-01/hour=10/b1-0.avro"
    world.objects[key] = world.objects[world.messages[0].object.key]
    world.change_object(0, key=key)


def projection_has_a_field_too_many(world: World) -> None:
    projection = projection_of(world)
    further = next(one for one, _ in enumerate(world.files[ANN_11].columns) if one not in projection)
    change_schema(world, sorted([*projection, further]))


def projection_lacks_a_field(world: World) -> None:
    change_schema(world, [one for one in projection_of(world) if one in projection_of(world, ANN_10)])


def projection_of(world: World, line: int = BOB_10) -> list[Any]:
    message = world.messages[0]
    projection = message.schemas[message.references[line].schema]
    assert projection is not None
    return projection


def change_schema(world: World, projection: Any) -> None:
    schemas = list(world.messages[0].schemas)
    schemas[world.messages[0].references[BOB_10].schema] = projection
    world.change_message(0, schemas=tuple(schemas))


def lines_of(world: World) -> tuple[Line, ...]:
    return world.messages[0].references


LINE_IS_GONE = {Kind.MISSING, Kind.OBJECT_UNREFERENCED, Kind.REFERENCE_MISSING}
FAULTS: dict[str, tuple[Callable[[World], object], set[Kind]]] = {
    "line_counts_too_many": (lambda w: w.change_line(0, BOB_10, entries=2), {Kind.REFERENCE_WRONG}),
    "line_says_other_offsets": (lambda w: w.change_line(0, BOB_10, sources=(0, 0, 1, 1)), {Kind.REFERENCE_WRONG}),
    "line_says_other_time": (lambda w: w.change_line(0, BOB_10, event_time_span_us=1), {Kind.REFERENCE_WRONG}),
    "line_says_other_hour": (lambda w: w.change_line(0, BOB_10, hour=ANN_11), {Kind.MISPLACED}),
    "line_is_missing": (lambda w: w.drop_line(0, ANN_11), LINE_IS_GONE),
    "last_line_is_missing_in_a_message_of_its_own": (last_line_is_missing_in_a_message_of_its_own, LINE_IS_GONE),
    "ranges_overlap": (
        lambda w: w.change_line(0, ANN_10, length=lines_of(w)[ANN_10].length + lines_of(w)[BOB_10].length),
        {Kind.DUPLICATED, Kind.MISPLACED, Kind.REFERENCE_WRONG},
    ),
    "range_ends_in_a_block": (
        lambda w: w.change_line(0, ANN_10, length=lines_of(w)[ANN_10].length - 1),
        {Kind.MISSING, Kind.REFERENCE_WRONG},
    ),
    "range_is_outside": (
        lambda w: w.change_line(0, ANN_11, length=lines_of(w)[ANN_11].length + 1),
        {Kind.MISSING, Kind.REFERENCE_WRONG},
    ),
    "header_is_cut": (
        lambda w: w.change_object(0, header_bytes=w.messages[0].object.header_bytes - 1),
        {Kind.MISSING, Kind.REFERENCE_WRONG},
    ),
    "blocks_of_another": (blocks_of_another, {Kind.MISPLACED}),
    "key_of_another_hour": (key_of_another_hour, {Kind.REFERENCE_WRONG}),
    "schema_of_another_object": (
        lambda w: w.change_message(0, schema=w.messages[1].schema), {Kind.REFERENCE_WRONG},
    ),
    "pack_is_gone": (lambda w: w.objects.pop(w.messages[0].object.key), {Kind.MISSING, Kind.OBJECT_MISSING}),
    "projection_has_a_field_too_many": (projection_has_a_field_too_many, {Kind.REFERENCE_WRONG}),
    "projection_lacks_a_field": (projection_lacks_a_field, {Kind.REFERENCE_WRONG}),
    "projection_is_out_of_order": (lambda w: change_schema(w, projection_of(w)[::-1]), {Kind.REFERENCE_WRONG}),
    "projection_points_nowhere": (lambda w: change_schema(w, [*projection_of(w), 99]), {Kind.REFERENCE_WRONG}),
    "projection_is_none": (lambda w: change_schema(w, [[0, 5]]), {Kind.REFERENCE_WRONG}),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_of_a_pack_is_named_and_nothing_else(fault: str) -> None:
    """The kinds found are those of the fault."""
    plant, expected = FAULTS[fault]
    world = packed_world().build()
    plant(world)
    assert kinds(world.audit()) == expected


def add_ghost(merged: RecordType) -> RecordType:
    return RecordType(merged.by_name | {"ghost": Scalar.STRING})


def add_nested_ghost(merged: RecordType) -> RecordType:
    nested = merged.by_name["a-b"]
    assert isinstance(nested, RecordType)
    return RecordType(merged.by_name | {"a-b": add_ghost(nested)})


def same(merged: RecordType) -> RecordType:
    return merged


def turn(merged: RecordType, kind: Scalar, into: Scalar) -> RecordType:
    changed = {name: into for name, child in merged.by_name.items() if child is kind}
    return RecordType(merged.by_name | changed)


def widen_integers(merged: RecordType) -> RecordType:
    return turn(merged, Scalar.LONG53, Scalar.LONG64)


def turn_integers_into_doubles(merged: RecordType) -> RecordType:
    return turn(merged, Scalar.LONG64, Scalar.DOUBLE)


@pytest.mark.parametrize(
    ("merge", "alter", "files", "text"),
    [
        (add_ghost, same, slice(3), "ghost: field of a pack occurs in no reference"),
        (add_nested_ghost, same, slice(3), "a-b.ghost: field of a pack occurs in no reference"),
        (widen_integers, turn_integers_into_doubles, slice(2, 3), "double is not what long53 becomes"),
        (widen_integers, turn_integers_into_doubles, slice(3, 4), "double is not what long53 becomes"),
    ],
)
def test_merged_schema_that_is_not_of_its_references_is_named(
    merge: Callable[[RecordType], RecordType], alter: Callable[[RecordType], RecordType], files: slice, text: str
) -> None:
    """A field too many, or a type that the merge may not change, though every value reads back equal."""
    world = clean_world()
    for file in world.files[files]:
        file.pack = "0"
    world.merge = lambda types: merge(merge_types(types))
    world.alter = alter
    report = world.build().audit()
    assert kinds(report) == {Kind.REFERENCE_WRONG}
    assert all(text in example for example in report.findings.examples[Kind.REFERENCE_WRONG])


def test_names_that_differ_by_case_alone_are_clean_in_a_pack() -> None:
    """No name has several fields there, and one has another Avro name than in an object of its own."""
    world = typed_world(
        ({"a_b": "x"}, [column("a_b", "string")], {"a_b_2": "x"}),
        ({"A_b": "y"}, [column("A_b", "string")], {"A_b": "y"}),
    )
    world.build()
    assert world.audit().findings.examples == {}


def test_avro_names_in_a_nested_object_are_the_pack_s_own() -> None:
    """`a_b` is `a_b_2` only beside `A_b`; types that disagree have a field each, in the innermost object."""

    def nested(own: dict[str, Any]) -> list[dict[str, Any]]:
        return [column("o", {"type": "record", "name": "r_o", "fields": [own]})]

    world = typed_world(
        ({"o": {"a_b": "x"}}, nested(column("a_b", "string")), {"o": {"a_b_2": "x"}}),
        ({"o": {"A_b": "y"}}, nested(column("A_b", "string")), {"o": {"A_b": "y"}}),
        ({"o": {"a_b": 1}}, nested(column("a_b", "long", "long53")), {"o": {"a_b_3": 1}}),
    )
    assert world.build().audit().findings.examples == {}


def test_lines_of_one_partition_key_out_of_order_are_named() -> None:
    """Within a batch they follow each other by offset and line in their topic."""
    world = packed_world()
    first = world.files[ANN_10]
    user, time, n, tags = first.columns
    second = replace(first, columns=[user, time, n], rows=[first.rows[1]], pack="1")
    first.columns, first.rows = [user, time, column("n", "long", "long53"), tags], [first.rows[0]]
    first.rows[0].values["n"] = 1
    world.files.append(second)
    assert world.build().audit().findings.examples == {}
    last = world.messages.pop()
    world.messages.insert(0, last)
    assert kinds(world.audit()) == {Kind.REFERENCE_WRONG}


def test_object_of_one_partition_key_has_its_exact_schema() -> None:
    """Only in a pack may the header be wider than the reference."""
    world = clean_world()
    world.files[3].columns[2] = column("n", "long")
    world.build()
    world.change_message(3, schemas=([0, 1, [2, "long53"]],))
    report = world.audit()
    assert kinds(report) == {Kind.REFERENCE_WRONG}
    assert "not the exact one" in report.findings.examples[Kind.REFERENCE_WRONG][0]


def test_bytes_of_lines_that_the_topic_has_lost_are_not_judged() -> None:
    """A topic without its beginning may have lost the first messages of a batch, and not the last."""
    world = packed_world().build()
    world.split_message(0, 2)
    world.lows[TopicPartition("references", 0)] = 1
    report = world.audit()
    assert kinds(report) == {Kind.MISSING, Kind.REFERENCE_MISSING}
    assert report.findings.doubts


@pytest.mark.parametrize(("messages", "further"), [(2, set()), (1, {Kind.OBJECT_UNREFERENCED})])
def test_lines_that_a_backfill_goes_on_to_publish_are_no_fault_of_its_pack(messages: int, further: set[Kind]) -> None:
    """The rest of the pack is named by messages that are not published yet; a finished backfill has no such."""
    world = packed_world().build()
    world.change_message(0, **OF_A_BACKFILL)
    world.split_message(0, 2)
    del world.messages[1]
    world.backfill_records = [ran(APP_0, 2, entries=3, published=1, messages=messages, references=2)]
    assert kinds(world.audit()) == {Kind.FLUSH_WRONG, Kind.MISSING} | further


def test_lost_line_that_a_backfill_has_made_good_is_a_note() -> None:
    """Blocks that no reference names any more stay in the object."""
    world = packed_world().build()
    world.drop_line(0, ANN_11)
    repaired = clean_world().build()
    world.objects |= repaired.objects
    world.messages.append(repaired.messages[ANN_11])
    world.change_message(2, **OF_A_BACKFILL, first_number=0)
    world.backfill_records = [ran(APP_1, 1, entries=1)]
    report = world.audit()
    assert report.findings.examples == {}
    assert "made good" in report.findings.notes[0]


def rooted_world() -> World:
    """Give a world in which a record has a source topic chain."""
    world = packed_world()
    chain = (("source-topic-chain", b'[["root",3,70,5]]'),)
    world.source[0] = world.source[0]._replace(headers=chain)
    for row in world.files[ANN_10].rows:
        row.root = ("root", 3, 70, 5)
    return world


def test_root_with_its_output_index_is_compared() -> None:
    """It stands in `_meta`, and another one is found."""
    world = rooted_world()
    assert world.build().audit().findings.examples == {}
    world.files[ANN_10].rows[0].root = ("root", 3, 70, None)
    assert kinds(world.build().audit()) == {Kind.META}
