"""Which rows go into which object, with literal types, sizes and layouts."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from log_partitioner import native
from log_partitioner.avro.entry_types import EntryTypes
from log_partitioner.avro.names import beside
from log_partitioner.avro.schema_types import RecordType, Scalar
from log_partitioner.batch.pack_plan import (
    FEW_PARTS,
    GROUPS_MAX,
    HOUR_PARTS_MIN,
    LINE_HEAD_BYTES,
    LINE_SOURCE_BYTES,
    MADE_BYTES_MAX,
    META_BYTES,
    Part,
    Plan,
    plan_objects,
)
from log_partitioner.batch.reference_lines import SOURCE_BYTES
from log_partitioner.batch.rows import Rows
from log_partitioner.config.settings import SchemaBounds
from log_partitioner.formats.model import PartitionKey, SourceRecord, TopicPartition
from tests.strategies import SCHEMA_BOUNDS, empty_rows, keyed_rows, seal_rules

T = Scalar
BOUNDS = SchemaBounds(3, 3, 5, fields_max=6, bytes_max=1000)
WIDE = SCHEMA_BOUNDS
RULES = seal_rules(layout="pack", packed_bytes_max=10**6, object_bytes_max=10**7, pack_bytes_max=10**7)


def rows_of(
    some: Iterable[tuple[str, dict[str, Any]]], bounds: SchemaBounds = WIDE, *, size: int = 10, is_fast: bool = False
) -> Rows:
    """Make rows of (user, entry) of one hour, whose texts have all the same size."""
    return keyed_rows(((user, 10, entry) for user, entry in some), bounds=bounds, size=size, is_fast=is_fast)


def type_of(rows: Rows, part: Part) -> RecordType:
    """Give the exact type of a part."""
    return rows.types.type_of(part.entry_type)


def plan(rows: Rows, bounds: SchemaBounds = WIDE, **rules: Any) -> Plan:
    """Plan objects by the usual rules, or some others, and check what holds for every plan."""
    made = plan_objects(rows, RULES._replace(bounds=bounds, **rules))
    at = 0
    for part in made.parts:
        assert part.begin == at, "parts stand one behind the other"
        assert {rows.key_of[made.order[n]] for n in range(part.begin, part.end)} == {part.key}
        assert type_of(rows, part).fields <= bounds.fields_max
        assert type_of(rows, part).size <= bounds.bytes_max
        assert part.group is not None or part.hour is None
        at = part.end
    assert at == len(rows)
    return made


def users(count: int) -> list[tuple[str, dict[str, Any]]]:
    """Make rows of so many users."""
    return [(f"user-{n}", {"a": n}) for n in range(count)]


def groups(made: Plan) -> list[int | None]:
    """Give the group of each part."""
    return [part.group for part in made.parts]


def test_rows_of_more_topic_partitions_than_a_line_names_are_cut() -> None:
    """Each part has some TopicPartitions, in the order of arrival; if all of them fit, nothing is cut."""
    types, rows = EntryTypes(WIDE), empty_rows()
    for offset in range(4_000):
        record = SourceRecord(TopicPartition("t" * 249, offset % 400), offset, None, None, None, ())
        rows.add(record, 0, PartitionKey("ann", "2024-05-01", 10), types.of({"a": 1}), b"x", offset)
    assert len(plan(rows).parts) == 1
    made = plan(rows, line_bytes_max=60_000)
    assert len(made.parts) > 1
    assert groups(made) == [None] * len(made.parts)
    sources_max = (45_000 - LINE_HEAD_BYTES) // (249 + SOURCE_BYTES + LINE_SOURCE_BYTES)
    assert 1 < sources_max < 400
    for part in made.parts:
        assert len({rows.tp_of[row] for row in made.order[part.begin : part.end]}) <= sources_max


@pytest.mark.parametrize(("line_bytes_max", "shared"), [(600_000, True), (60_000, False)])
def test_schema_whose_projection_would_fill_a_line_is_not_shared(line_bytes_max: int, *, shared: bool) -> None:
    """It is an object's own, which needs none."""
    wide = {f"field_{number}": number for number in range(700)}
    made = plan(rows_of([("ann", wide), ("bob", {"field_1": 1})]), line_bytes_max=line_bytes_max)
    assert groups(made) == [0 if shared else None, 0]


def test_parts_have_the_joined_types_of_their_rows() -> None:
    """A type may add no field between others that do; the rows keep their own types."""
    rows = rows_of([("ann", {"a": 1, "b": 1}), ("ann", {"a": 1}), ("ann", {"c": 1}), ("bob", {"a": 1, "b": 1})])
    made = plan(rows)
    assert [[*type_of(rows, part).by_name] for part in made.parts] == [["a", "b", "c"], ["a", "b"]]
    assert [[*rows.types.type_of(number).by_name] for number in rows.type_of] == [["a", "b"], ["a"], ["c"], ["a", "b"]]


@pytest.mark.parametrize(
    ("entries", "rules", "ends"),
    [
        ([{f"k{n}": 1} for n in range(6)] + [{"k0": 2}, {"more": 1}, {"k0": 3}], {}, [7, 9]),
        ([{"labels": {f"k{n}": n}} for n in range(50)], {}, [50]),
        ([{f"k{n}" + "x" * 100: 1} for n in range(3)], {}, [1, 2, 3]),
        ([{"a": 1}] * 10, {"object_bytes_max": 3 * (10 + META_BYTES)}, [3, 6, 9, 10]),
        ([{"a": 1}] * 3, {"object_bytes_max": 1}, [1, 2, 3]),
    ],
    ids=["fields", "a map has none", "long names make a large schema of few", "bytes", "one row is too large"],
)
def test_partition_key_over_a_bound_of_one_object_is_cut_in_order_of_arrival(
    entries: list[dict[str, Any]], rules: dict[str, int], ends: list[int]
) -> None:
    """The part that is full takes rows it holds already; each part is an object of its own."""
    made = plan(rows_of([("ann", entry) for entry in entries], BOUNDS), BOUNDS, **rules)
    assert [part.end for part in made.parts] == ends
    assert groups(made) == ([0] if len(ends) == 1 else [None] * len(ends))


def test_large_partition_key_keeps_an_object_of_its_own() -> None:
    """At the bound it is packed, beyond it not."""
    rows = rows_of([*users(20), *[("user-3", {"a": 1})] * 9], size=100)
    assert groups(plan(rows, packed_bytes_max=10 * 228)) == [0] * 20
    made = plan(rows, packed_bytes_max=10 * 228 - 1)
    assert [rows.keys[part.key].user for part in made.parts if part.group is None] == ["user-3"]


def test_partition_key_whose_header_would_be_much_of_its_object_is_packed() -> None:
    """Its size alone does not count: its text must be some times as long as its schema."""
    wide = {f"field_{number}": number for number in range(100)}
    rows = rows_of([("ann", wide), *[("bob", {"field_1": 1})] * 20], size=1_000)
    schema_bytes = rows.types.size(0)
    for times, packed in ((0, [None, None]), (1, [0, None]), (-(-20 * 1_128 // rows.types.size(1)), [0, 0])):
        assert groups(plan(rows, packed_bytes_max=1, schema_texts_min=times)) == packed
    assert schema_bytes > 1_128


@pytest.mark.parametrize(
    ("layout", "count", "packed"),
    [
        ("auto", FEW_PARTS, False),
        ("auto", FEW_PARTS + 1, True),
        ("auto", 500, True),
        ("pack", 1, True),
        ("pack", 2, True),
        ("file", 500, False),
    ],
)
def test_layout_decides_whether_partition_keys_are_packed(
    layout: str,
    count: int,
    packed: bool,  # noqa: FBT001 - a case
) -> None:
    """`auto` leaves a few as files."""
    made = plan(rows_of(users(count)), layout=layout)
    assert groups(made) == [0 if packed else None] * count
    assert len(made.merged) == packed


def test_hour_of_many_partition_keys_has_a_pack_of_its_own() -> None:
    """Hours with fewer share one; a large PartitionKey counts for neither."""
    types, rows, tp = EntryTypes(WIDE), empty_rows(), TopicPartition("app", 0)
    for hour, count in ((3, HOUR_PARTS_MIN), (4, HOUR_PARTS_MIN - 1), (5, HOUR_PARTS_MIN - 1)):
        for n in range(count + (hour == 5)):
            key = PartitionKey(f"user-{n}", "2024-05-01", hour)
            large = hour == 5 and n == 50
            record = SourceRecord(tp, len(rows), None, None, None, ())
            rows.add(record, 0, key, types.of({"a": 1}), b"x" * (2_000 if large else 10), 0)
    made = plan(rows, packed_bytes_max=1_000)
    counts = Counter((part.group, part.hour) for part in made.parts)
    assert counts == {(0, ("2024-05-01", 3)): 100, (0, None): 198, (None, None): 1}


def test_types_that_share_names_share_a_pack_whatever_their_types() -> None:
    """Each value has a field that takes it; a type with less than half of its names there begins another pack."""
    entries = [{"a": 1}, {"a": "x"}, {"a": 2**60}, {"a": None, "b": 1}, {"a": 1.5}, {"c": "x", "d": 1, "e": 1},
               {"A": 1}, {"a": {}}, {"a": {"k": 1}}, {"e": "x", "a": 1}, {"a": {"k": "x"}},
               {"c": 1, "x": 1, "y": 1}]  # fmt: skip
    rows = rows_of([(f"user-{n}", entry) for n, entry in enumerate(entries)])
    made = plan(rows)
    assert groups(made) == [0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 3]
    assert rows.types.type_of(made.merged[0]) == RecordType(
        {"a": T.LONG64, beside("a", 1): T.STRING, beside("a", 2): T.DOUBLE, "b": T.LONG53, "e": T.STRING,
         beside("a", 3): RecordType({"k": T.LONG53, beside("k", 1): T.STRING})}
    )  # fmt: skip


def test_pack_schema_keeps_the_limits_of_one_file() -> None:
    """Beyond them PartitionKeys go on in another pack, and the full one ends there."""
    made = plan(rows_of([(f"user-{n:02}", {f"k{n}": n, "k": n}) for n in range(20)], BOUNDS), BOUNDS)
    assert groups(made) == [n // 5 for n in range(20)]
    assert made.replaces == {1: 0, 2: 1, 3: 2}


def incompatible(number: int) -> dict[str, Any]:
    """Make an entry whose type no other number has; each field has one of two."""
    return {f"f{bit}": 1 if number >> bit & 1 else "x" for bit in range(16)}


@pytest.mark.parametrize(
    "kind",
    [
        lambda n: {f"k{n}": 1, "n": n % 3 or "x"},
        lambda n: {f"{n:b}".replace("0", "A").replace("1", "a"): n},
        lambda n: {f"k{n}": 1, f"{n % 20}": 1},
    ],
)
def test_packs_are_as_many_as_the_fields_of_all_types_fill(kind: Callable[[int], dict[str, Any]]) -> None:
    """However little types share and however their names collide; few are open at a time."""
    bounds = WIDE._replace(fields_max=10)
    made = plan(rows_of([(f"user-{n:04}", kind(n)) for n in range(1_500)], bounds), bounds)
    some = groups(made)
    assert None not in some
    assert len(made.merged) <= GROUPS_MAX + 2 * 1_500 * 2 // 10
    last = {group: at for at, group in enumerate(some)}
    for new, old in made.replaces.items():
        assert last[old] < some.index(new), "a group that was replaced takes nothing more"
    assert len(made.merged) - len(made.replaces) <= GROUPS_MAX


HOSTILE = {
    "a key of its own": lambda n: {f"k{n}": n},
    "a type that no other has": incompatible,
    "names that collide": lambda n: {"A": 1, "a": 1, f"k{n}": 1} if n % 2 else {"a": 1, f"K{n}": "x"},
    "nested keys of its own": lambda n: {"o": {f"k{n}": n}, "l": [{f"k{n}": n}]},
    "a nested type that no other has": lambda n: {"o": {"p": incompatible(n)}},
}


@pytest.mark.parametrize("is_fast", [False, *([True] if native.IS_INSTALLED else [])])
@pytest.mark.parametrize("one_user", [False, True])
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_batch_costs_some_milliseconds_a_type(kind: str, *, one_user: bool, is_fast: bool) -> None:
    """Each row of another type: not what all types before it have (processor time, several times what is usual)."""
    some = [("ann" if one_user else f"user-{n}", HOSTILE[kind](n)) for n in range(1_500)]
    rows = rows_of(some, is_fast=is_fast)
    begin, before = time.process_time(), rows.types.memory_bytes
    plan(rows)
    assert time.process_time() - begin < 6
    assert rows.types.memory_bytes - before < MADE_BYTES_MAX + before
