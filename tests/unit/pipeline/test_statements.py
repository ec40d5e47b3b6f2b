"""What a reference says against its rows: each difference is said, and what cannot be told from rows is not."""

from collections import Counter
from typing import Any

from msgspec.structs import replace

from log_partitioner.formats.model import PartitionKey, RootLink
from log_partitioner.formats.reference import Reference, RootRange
from log_partitioner.proof.oracle.json_text import parse_rounding
from log_partitioner.proof.oracle.published_schema import PublishedSchema
from log_partitioner_pipeline.audit.statements import wrong_fields, wrong_roots
from log_partitioner_pipeline.rows import read_rows
from tests.pipeline.packs import KEY, Entry, Written, write_object

BOB = PartitionKey("bob", *KEY[1:])
ROOTS = [RootLink("root", 0, 5), RootLink("root", 0, 7), RootLink("root", 1, 3, 2)]


def pack() -> Written:
    """Write two rows of ann, who has `n` and only null in `x`, and one of bob, who has `m` and a value in `x`."""
    values: list[tuple[PartitionKey, dict[str, Any]]] = [
        (KEY, {"n": 1, "x": None}),
        (KEY, {"n": None}),
        (BOB, {"m": "a", "x": 1}),
    ]
    return write_object(Entry(key, one, offset) for offset, (key, one) in enumerate(values))


def said(reference: Reference, own: set[str], non_nulls: dict[str, int]) -> list[str]:
    """Give what is wrong with a reference whose exact schema has these fields, and its two rows these values."""
    text = pack().schema.text
    header = PublishedSchema(text, parse_rounding)
    types = tuple(one for one in header.type.fields if one[0] in own)  # type: ignore[union-attr]
    header.type = header.type._replace(fields=types)  # type: ignore[union-attr]
    return list(wrong_fields(reference, text, header, 2, Counter(non_nulls)))


def test_fields_of_a_reference_that_is_true() -> None:
    """The object has three fields, and this reference one of them with a value in one row."""
    ann, _ = pack().references
    assert said(replace(ann, projection=[1], nulls=((1, 1),)), {"n"}, {"n": 1}) == []
    assert said(replace(ann, projection=[1], nulls=None), {"n"}, {"n": 1}) == []


def test_fields_that_rows_do_not_bear_out() -> None:
    """One that no row has a value for, one that the schema lacks, another number of nulls."""
    ann, _ = pack().references
    too_many = said(replace(ann, projection=[0, 1], nulls=((0, 2), (1, 1))), {"m", "n"}, {"n": 1})
    assert too_many == ["its schema gives a type to what has no value in its rows: 'm'"]
    too_few = said(replace(ann, projection=[], nulls=()), set(), {"n": 1})
    assert too_few == ["its rows have fields that its schema has not: 'n'"]
    nulls = said(replace(ann, projection=[1], nulls=()), {"n"}, {"n": 1})
    assert nulls == ["says other nulls and values than its rows have in 'n'"]
    (beyond,) = said(replace(ann, projection=[1], nulls=((0, 1), (1, 1))), {"n"}, {"n": 1})
    assert beyond.startswith("nulls: counts of fields")


def test_roots_that_were_cut() -> None:
    """What is left of them is compared; a reference that says nothing of a cut has all of them."""
    written = write_object(Entry(KEY, {"n": 1}, offset, root=root) for offset, root in enumerate(ROOTS))
    rows, _ = read_rows(written.content, "file")
    (one,) = written.references
    assert list(wrong_roots(one, rows)) == []
    some = replace(one, roots=one.roots[:1])
    assert list(wrong_roots(some, rows)) != []
    assert list(wrong_roots(replace(some, roots_cut=True), rows)) == []
    other = replace(one, roots=(RootRange("root", 0, 5, 8, 2),), roots_cut=True)
    assert list(wrong_roots(other, rows)) != []
