"""What is kept of the shapes of entries; that their types are those of inference is in tests/property."""

import tracemalloc
from typing import Any

import msgspec
import pytest

from log_partitioner.avro import entry_types
from log_partitioner.avro.entry_types import EntryTypes
from log_partitioner.config.settings import SchemaBounds

WIDE = SchemaBounds(16, 500, 100)


def test_type_of_one_shape_is_one_object_whatever_its_values_are() -> None:
    """Comparing costs nothing then: the rows of a batch are counted by it."""
    types = EntryTypes(WIDE)
    assert types.of({"a": 1, "b": {"c": "x"}, "d": None}) is types.of({"a": 2**53, "b": {"c": "y"}, "d": None})
    assert types.of({"a": 1, "d": [True]}) is types.of({"a": 7, "d": [False, None]})


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
    types = EntryTypes(WIDE)
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
    monkeypatch.setattr(entry_types, "SHAPES_BYTES_MAX", types._weight // 4)
    types = EntryTypes(WIDE)
    for n in range(600):
        types.of(make(n))
        assert types._weight <= entry_types.SHAPES_BYTES_MAX
    assert types.of(make(0)) == EntryTypes(WIDE).of(make(0))
