"""The fields of an entry, as a person may write them for the user's path."""

import gzip

import pytest

from service import zstd
from service.partitioning.locate import split_path
from tools.demo.fields import find_entry, name_fields

ENTRY = b'{"ts":1,"id":{"orig.h":"a","ports":[1]},"a b":null,"empty":{}}'


@pytest.mark.parametrize(
    ("value", "index"),
    [
        (ENTRY, 0),
        (b"[7," + ENTRY + b"]", 1),
        (b'{"x":1}\n\n' + ENTRY + b"\n", 1),
        (gzip.compress(ENTRY, mtime=0), 0),
        (zstd.compress(ENTRY), 0),
    ],
)
def test_find_entry_reads_every_form_of_a_record(value: bytes, index: int) -> None:
    """An object, an array, lines, compressed or not."""
    entry = find_entry(value, index)

    assert entry is not None
    assert list(entry) == ["ts", "id", "a b", "empty"]


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"{",
        b"[]",
        b"[7]",
        b"\x1f\x8b\x00",
        gzip.compress(ENTRY, mtime=0)[:-20] + bytes(20),
        b"\x28\xb5\x2f\xfdx",
        b"\xff",
        b"[" * 99_999,
    ],
)
def test_find_entry_is_none_where_nothing_can_be_read(value: bytes | None) -> None:
    """What is broken has no fields, and raises nothing."""
    assert find_entry(value) is None


def test_name_fields_gives_paths_that_lead_to_the_values() -> None:
    """Nested keys are joined by dots, a dot inside a key is escaped; the product reads the paths the same way."""
    entry = find_entry(ENTRY)
    assert entry is not None

    assert name_fields(entry) == ["ts", r"id.orig\.h", "id.ports", "a b", "empty"]
    assert split_path(r"id.orig\.h") == ("id", "orig.h")


def test_name_fields_leaves_out_what_no_path_can_name() -> None:
    """An empty key has no path; below a great depth everything is one value."""
    deep: dict[str, object] = {"": 1}
    for _ in range(2000):
        deep = {"a": deep}

    assert name_fields({"": 1, "b": 2}) == ["b"]
    assert name_fields(deep) == [".".join("a" * 16)]
