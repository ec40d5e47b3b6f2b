"""The workloads are what their names promise."""

import json
from collections import Counter
from dataclasses import replace

import pytest

from bench.workloads import WORKLOADS, Workload, generate


def _entries(workload: Workload) -> list[dict[str, object]]:
    return [json.loads(value) for value in generate(workload)]


def test_equal_workloads_make_equal_records_and_other_seeds_others() -> None:
    """A round can be repeated with the records of another."""
    workload = replace(WORKLOADS["A"], records=500)

    assert list(generate(workload)) == list(generate(workload))
    assert list(generate(workload)) != list(generate(replace(workload, seed=2)))


@pytest.mark.parametrize("name", "ABCD")
def test_records_have_eight_shapes_and_the_size_of_those_that_others_were_measured_with(name: str) -> None:
    """What is measured here can be compared with what was measured elsewhere."""
    values = list(generate(replace(WORKLOADS[name], records=20_000)))
    shapes = Counter(tuple(json.loads(value)) for value in values)

    assert len(values) == 20_000
    assert len(shapes) == 8
    assert max(map(len, shapes)) == 14
    assert 363 <= sum(map(len, values)) / len(values) <= 383


def test_event_times_advance_and_fill_the_hours() -> None:
    """An hour is behind us once the next has begun."""
    times = [str(entry["time"]) for entry in _entries(replace(WORKLOADS["A"], records=5_000))]

    assert sorted(times) == times
    assert len({time[:13] for time in times}) == 24


def test_users_in_turn_make_exactly_as_many_partition_keys_as_wanted() -> None:
    """The memory of a PartitionKey is measured by their number."""
    entries = _entries(Workload(name="even", records=4_000, users=1_000, spread="even"))

    assert len({(entry["user"], str(entry["time"])[:13]) for entry in entries}) == 2_000


def test_records_of_m_are_arrays_of_what_a_has() -> None:
    """What is known of entries holds for them, too; only their number in a record is another."""
    workload = replace(WORKLOADS["M"], records=400)
    several = [json.loads(value) for value in generate(workload)]

    assert [len(one) for one in several] == [5] * 400
    assert workload.entries == 2_000
    assert [entry for one in several for entry in one] == _entries(replace(WORKLOADS["A"], records=2_000))


def test_entries_of_n_are_nested_large_and_disagree() -> None:
    """Hundreds of optional fields, some of which have several types, and floats that need 17 digits."""
    entries = _entries(replace(WORKLOADS["N"], records=5_000))
    types: dict[str, set[type]] = {}
    for entry in entries:
        attributes = entry["attributes"]
        assert isinstance(attributes, dict)
        for name, value in attributes.items():
            types.setdefault(name, set()).add(type(value))
    sizes = sorted(map(len, generate(replace(WORKLOADS["N"], records=5_000))))

    assert len(types) > 200
    assert any({int, str, dict} <= kinds for kinds in types.values())
    assert 700 < sizes[0] < 1_200 < sizes[2_500] < sizes[-1] < 3_500
    assert any(len(repr(entry["http"]["response"]["seconds"])) >= 19 for entry in entries)  # type: ignore[index]


def test_few_users_have_most_of_a_zipf_workload() -> None:
    """Real users are not alike."""
    users = Counter(entry["user"] for entry in _entries(replace(WORKLOADS["A"], records=20_000)))

    assert users.most_common(1)[0][1] > 20 * users.most_common()[-1][1]
