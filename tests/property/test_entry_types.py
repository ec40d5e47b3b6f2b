"""The cache of types against inference: it never gives another type, whatever it has seen before (DESIGN 3.3)."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_partitioner.avro import entry_types as module
from log_partitioner.avro.entry_types import EntryTypes
from log_partitioner.avro.infer import TooDeepError, TooManyFieldsError, fit_entry
from log_partitioner.avro.schema_types import RecordType
from log_partitioner.config.settings import SchemaBounds
from tests.inferred import infer_entry
from tests.strategies import LIMITS, SCHEMA_BOUNDS, entries, entries_near, entry_types, times_as_many, values

Entry = dict[str, Any]
TIGHT = LIMITS._replace(fields_max=8, bytes_max=900)
WIDE = SchemaBounds(5, 4, 8, fields_max=1000, bytes_max=10**6)
BOUNDS = pytest.mark.parametrize("bounds", [TIGHT, WIDE], ids=["tight", "wide"])
Outcome = RecordType | type[Exception]

# Entries of few shapes with any values, so that what is known of a shape is used.
alike = st.lists(st.fixed_dictionaries({"a": values(leaves=5), "b": values(leaves=3)}), max_size=12)
near = entry_types().flatmap(lambda kind: st.lists(entries_near(kind), max_size=12))
some_entries = st.lists(entries(), max_size=8) | near | alike


def known(types: EntryTypes, entry: Entry) -> Outcome:
    """Ask the cache."""
    try:
        return types.of(entry)
    except (TooDeepError, TooManyFieldsError) as refused:
        return type(refused)


def inferred(entry: Entry, bounds: SchemaBounds) -> Outcome:
    """Infer from the entry alone."""
    try:
        found = infer_entry(entry, bounds)
        return fit_entry(found, fields_max=bounds.fields_max, bytes_max=bounds.bytes_max)
    except (TooDeepError, TooManyFieldsError) as refused:
        return type(refused)


@BOUNDS
@times_as_many(4)
@given(some_entries)
def test_type_of_any_entry_is_the_inferred_one(bounds: SchemaBounds, some: list[Entry]) -> None:
    """This holds the second time, too, and for refused entries: too deep, or with refused keys or integers."""
    types = EntryTypes(bounds)
    for entry in (*some, *some):
        assert known(types, entry) == inferred(entry, bounds)


@BOUNDS
@given(some=some_entries, bytes_max=st.integers(0, 5_000))
def test_type_is_the_inferred_one_when_all_is_forgotten_on_the_way(
    bounds: SchemaBounds, some: list[Entry], bytes_max: int
) -> None:
    """The cache is emptied in the middle of an entry, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "KNOWN_BYTES_MAX", bytes_max)
        patch.setattr(module, "ITEMS_MAX", bytes_max % 4)
        types = EntryTypes(bounds)
        for entry in (*some, *some):
            assert known(types, entry) == inferred(entry, bounds)
            assert types._weight <= bytes_max or len(types._shapes) <= 1 + len(str(entry))


@BOUNDS
@given(some=some_entries)
def test_equal_types_are_one_object(bounds: SchemaBounds, some: list[Entry]) -> None:
    """The order of keys does not matter; a comparison costs nothing."""
    types = EntryTypes(bounds)
    for entry in some:
        first = known(types, entry)
        assert known(types, {**entry}) is first
        assert known(types, dict(reversed(entry.items()))) is first


@pytest.mark.parametrize(
    "make",
    [
        lambda n: {f"k{n}": n},
        lambda n: {f"k{n}" + "x" * 500: n},
        lambda n: {f"k{n}" + "\U0001f600" * 50: n},
        lambda n: {f"k{n}-{m}": n for m in range(20)},
        lambda n: {"a": {f"k{n}": n}, "b": 1},
        lambda n: {"a": [{f"k{n}": n}], "b": 1},
        lambda n: {f"k{m}": "x" if n >> m & 1 else n for m in range(14)},
        lambda n: {"a": {f"k{m}": "x" if n >> m & 1 else n for m in range(14)}, "b": 1},
    ],
    ids=["key", "long", "wide", "many", "nested", "listed", "kinds", "nested kinds"],
)
def test_entries_of_ever_new_shapes_take_no_more_memory_than_they_are_weighed(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hostile or dynamic keys: what is kept is not larger than said, and at the bound everything is forgotten."""
    types = EntryTypes(SCHEMA_BOUNDS)
    texts = [msgspec.json.encode(make(n)) for n in range(600)]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for text in texts:
            types.of(msgspec.json.decode(text))
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0 < kept <= types._weight
    monkeypatch.setattr(module, "KNOWN_BYTES_MAX", types._weight // 4)
    types = EntryTypes(SCHEMA_BOUNDS)
    for n in range(600):
        types.of(make(n))
        assert types._weight <= module.KNOWN_BYTES_MAX
    assert types.of(make(0)) == EntryTypes(SCHEMA_BOUNDS).of(make(0))
