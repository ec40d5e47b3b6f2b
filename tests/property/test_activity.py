"""Counting entries of users: each once, whatever is repeated, republished, late or in another order (ADR 7)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from log_partitioner_pipeline.activity.counted import CountedEntries, CountedRange
from log_partitioner_pipeline.activity.entries import ENTRIES
from log_partitioner_pipeline.activity.stages import HOUR_KEY, HOURS, fold_hours

Place = tuple[str, int, int, int]
Row = dict[str, Any]

INPUT = T.StructType([*HOURS, *[field for field in ENTRIES if field.name not in HOUR_KEY]])
places = st.tuples(st.integers(0, 30), st.integers(0, 4))
additions = st.lists(st.lists(places, max_size=12), max_size=12)


@given(additions)
def test_counted_entries_are_a_set(batches: list[list[tuple[int, int]]]) -> None:
    """Each addition says what is new, as a set would, and the ranges are that set, no more and no less."""
    counted, model = CountedEntries(), set[tuple[int, int]]()
    for batch in batches:
        assert counted.add(batch) == set(batch) - model
        model |= set(batch)
        counted = CountedEntries(counted.ranges())
    assert sorted(places_of(counted.ranges())) == sorted(model)


@given(additions, st.randoms(use_true_random=False))
def test_ranges_do_not_depend_on_the_order(batches: list[list[tuple[int, int]]], random: Any) -> None:
    """The same entries are the same ranges, never more of them than entries, and no two that could be one."""
    everything = [place for batch in batches for place in batch]
    counted, other = CountedEntries(), CountedEntries()
    for batch in batches:
        counted.add(batch)
    for place in random.sample(everything, len(everything)):
        other.add([place])
    ranges = counted.ranges()
    assert ranges == other.ranges()
    assert len(ranges) <= len(set(everything))
    assert all(one.first_offset < one.next_offset and one.first_index < one.next_index for one in ranges)


def test_records_that_follow_each_other_are_one_range() -> None:
    """However many there are: a busy user costs no more than a quiet one."""
    counted = CountedEntries()
    counted.add((offset, index) for offset in range(1000) for index in range(3))
    assert counted.ranges() == [CountedRange(0, 1000, 0, 3)]
    counted.add([(2000, 0)])
    counted.add((offset, index) for offset in range(1000, 2000) for index in range(3))
    counted.add([(2000, 2), (2000, 1)])
    assert counted.ranges() == [CountedRange(0, 2001, 0, 3)]


# An entry by the place where it first was, which its size and its hour follow from. References are any lists of them:
# overlapping, inside each other, repeated, as after a replay, a backfill, a republisher that began again.
source_places = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 1), st.integers(0, 12), st.integers(0, 2))
references = st.lists(source_places, min_size=1, max_size=10)
runs = st.lists(st.lists(references, max_size=5), min_size=1, max_size=5)


@given(runs)
def test_counts_are_those_of_the_distinct_entries(delivered: list[list[list[Place]]]) -> None:
    """Any references in any batches: what is in the states is what counting the distinct entries gives."""
    states: dict[tuple[str, str, int], Row] = {}
    for batch in delivered:
        states |= fold(states, batch)
    expected: dict[tuple[str, str, int], list[int]] = {}
    for place in {place for batch in delivered for reference in batch for place in reference}:
        counts = expected.setdefault(key_of(place), [0, 0])
        counts[0] += 1
        counts[1] += size_of(place)
    assert {key: [state["entries"], state["bytes"]] for key, state in states.items()} == expected


@given(runs)
def test_what_was_counted_changes_nothing(delivered: list[list[list[Place]]]) -> None:
    """Everything again, at once and one by one: no state changes, so none is written."""
    everything = [reference for batch in delivered for reference in batch]
    states = fold({}, everything)
    assert fold(states, everything) == {}
    assert [fold(states, [reference]) for reference in reversed(everything)] == [{} for _ in everything]


def fold(states: dict[tuple[str, str, int], Row], batch: Iterable[Iterable[Place]]) -> dict[tuple[str, str, int], Row]:
    """Count references into states as the job does: sorted rows, in several Arrow batches."""
    rows = [dict.fromkeys(INPUT.names) | state for state in states.values()]
    for reference in batch:
        by_origin: dict[tuple[Any, ...], list[Place]] = {}
        for place in reference:
            by_origin.setdefault((*key_of(place), *place[:2]), []).append(place)
        for (user, date, hour, topic, partition), some in by_origin.items():
            row = {"user": user, "date": date, "hour": hour, "topic": topic, "partition": partition}
            row |= {"offsets": [p[2] for p in some], "indexes": [p[3] for p in some], "sizes": [*map(size_of, some)]}
            rows.append(dict.fromkeys(INPUT.names) | row)
    rows.sort(key=lambda row: (row["user"], row["date"], row["hour"], row["entries"] is None))
    schema = to_arrow_schema(INPUT)
    batches = [pa.RecordBatch.from_pylist(rows[at : at + 3], schema=schema) for at in range(0, len(rows), 3)]
    folded = [row for batch in fold_hours(batches, ranges_max=1000) for row in batch.to_pylist()]
    return {(row["user"], row["date"], row["hour"]): row for row in folded}


def key_of(place: Place) -> tuple[str, str, int]:
    """Give the hour of an entry: one record may hold entries of several."""
    _, partition, offset, index = place
    return f"user-{index % 2}", "2026-03-04", (partition + offset // 8) % 2


def size_of(place: Place) -> int:
    """Give each entry another size."""
    topic, partition, offset, index = place
    return 1 + 1000 * (topic == "b") + 100 * partition + 7 * offset + index


def places_of(ranges: Iterable[CountedRange]) -> list[tuple[int, int]]:
    """Write ranges out."""
    return [
        (offset, index)
        for one in ranges
        for offset in range(one.first_offset, one.next_offset)
        for index in range(one.first_index, one.next_index)
    ]


@pytest.mark.slow
def test_states_with_many_ranges_make_small_batches() -> None:
    """Users whose entries alternate with those of others: ranges are the weight of a state, not its row."""
    offsets = list(range(0, 60_000, 2))
    rows = [
        {"user": f"user-{n}", "date": "2026-03-04", "hour": 5, "topic": "logs", "partition": 0,
         "offsets": offsets, "indexes": [0] * len(offsets), "sizes": [1] * len(offsets)}
        for n in range(10)
    ]  # fmt: skip
    batches = list(fold_hours([pa.RecordBatch.from_pylist(rows, schema=to_arrow_schema(INPUT))], ranges_max=10**6))
    assert [batch.num_rows for batch in batches] == [4, 4, 2]
    assert sum(sum(batch.column("entries").to_pylist()) for batch in batches) == 10 * len(offsets)
