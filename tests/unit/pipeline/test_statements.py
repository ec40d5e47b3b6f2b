"""What a reference says against its rows: each difference is said, and what cannot be told from rows is not."""

from log_partitioner.proof.oracle.json_text import parse_rounding
from log_partitioner.proof.oracle.published_schema import PublishedSchema
from log_partitioner_pipeline.audit.statements import wrong_fields
from tests.pipeline.packs import KEY, Entry, write_object


def said(own: set[str], present: set[str]) -> list[str]:
    """Give what is wrong with an exact schema of these fields, where rows have values in those that are present."""
    written = write_object([Entry(KEY, {"n": 1, "m": "a", "x": None}, 0)])
    header = PublishedSchema(written.schema.text, parse_rounding)
    types = tuple(one for one in header.type.fields if one[0] in own)  # type: ignore[union-attr]
    header.type = header.type._replace(fields=types)  # type: ignore[union-attr]
    return list(wrong_fields(header, present))


def test_fields_of_a_reference_that_is_true() -> None:
    """A field that is null in all rows looks as one that no row has."""
    assert said({"n"}, {"n"}) == []
    assert said({"n", "x"}, {"n"}) == []


def test_fields_that_rows_do_not_bear_out() -> None:
    """One that no row has a value for, one that the schema lacks."""
    assert said({"m", "n"}, {"n"}) == ["its schema gives a type to what has no value in its rows: 'm'"]
    assert said(set(), {"n"}) == ["its rows have fields that its schema has not: 'n'"]
