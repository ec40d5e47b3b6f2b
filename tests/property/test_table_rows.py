"""Entries -> files -> record batches -> entries: equal, whatever meets in one table and however little room it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import example, given
from hypothesis import strategies as st

from log_partitioner import native
from log_partitioner.avro.schema import META
from log_partitioner.formats.values import Bytes, Date, Decimal, DeclaredMap, Timestamp, encode_json
from log_partitioner.proof.oracle.equal import canonical
from log_partitioner.proof.oracle.json_text import parse_rounding
from log_partitioner_pipeline.columns import FIXED, REST, admit, bytes_of, leaves, of_iceberg, restore, to_iceberg
from log_partitioner_pipeline.compiled import CompiledGatherer
from log_partitioner_pipeline.objects import Content
from log_partitioner_pipeline.pieces import pieces_of
from log_partitioner_pipeline.rows import Gatherer, RowGatherer
from tests import strategies
from tests.unit.pipeline.test_rows import columns_of, file_of

if TYPE_CHECKING:
    import pyarrow as pa

    from tests.pipeline.packs import Written

Entry = dict[str, Any]


def gathered(gatherer: Gatherer, written: list[Written]) -> list[pa.RecordBatch]:
    """Gather the rows of files."""
    batches: list[pa.RecordBatch] = []
    for one in written:
        for piece in pieces_of(one.references):
            content = Content(tuple((at, one.content[at : at + length]) for at, length in piece.spans))
            batches += gatherer.add_piece(piece, content)
    return batches if gatherer.is_empty else [*batches, gatherer.take()]


def told(row: dict[str, Any]) -> dict[str, Any]:
    """Give a row with its rest as values: texts of numbers may differ."""
    return row | {REST: None if row[REST] is None else canonical(parse_rounding(row[REST]))}


DECLARED: Entry = {
    "x": {"a": Bytes("/w=="), "b": Decimal("1.250"), "c": Timestamp("0001-01-01T00:00:00.000000Z")},
    "y": DeclaredMap(k=[Date("9999-12-31"), None, Date("2024-02-29"), Date("0005-01-01")]),
}


@example(files=[[DECLARED]], columns_max=1000, bytes_per_batch=1 << 20, one_by_one=False)
@example(files=[[{"x": 1, "y": 1}], [DECLARED]], columns_max=1000, bytes_per_batch=1 << 20, one_by_one=True)
@example(
    files=[
        [{"x": 1}, {"x": [{"a": 1, "b": None}, None, {"c": {"d": None}, "e": [None]}, True, False]}, {"x": "ä\n\0€😀"}]
    ],
    columns_max=0,
    bytes_per_batch=1 << 20,
    one_by_one=False,
)
@given(
    files=st.lists(st.lists(strategies.entries(), min_size=1, max_size=4), min_size=1, max_size=3),
    columns_max=st.sampled_from([0, 17, 21, 1000]),
    bytes_per_batch=st.sampled_from([1, 100, 1 << 20]),
    one_by_one=st.booleans(),
)
def test_entries_come_back(files: list[list[Entry]], columns_max: int, bytes_per_batch: int, one_by_one: bool) -> None:  # noqa: FBT001
    """The columns depend on the order of entries and on the room for columns; the entries that come back do not."""
    written = [file_of(entries) for entries in files]
    table = FIXED
    for some in [[one] for one in written] if one_by_one else [written]:
        table = admit(table, columns_of(some), columns_max=columns_max)
    fields = to_iceberg(table)
    assert of_iceberg(fields) == table
    assert max(columns_max, leaves(FIXED)) >= leaves(table)
    batches = gathered(RowGatherer(fields, rows_per_batch=3, bytes_per_batch=bytes_per_batch), written)
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert max(batch.num_rows for batch in batches) <= 3
    if native.IS_INSTALLED:
        compiled = gathered(CompiledGatherer(fields, rows_per_batch=3, bytes_per_batch=bytes_per_batch), written)
        assert [told(row) for batch in compiled for row in batch.to_pylist()] == list(map(told, rows))
        for batch in compiled:
            batch.validate(full=True)
    assert [row[META]["offset"] for row in rows] == [number for entries in files for number in range(len(entries))]
    assert [row[META]["bytes"] for row in rows] == [bytes_of(one) for some in files for one in some]
    found = [canonical(restore(row, table, parse_rounding)) for row in rows]
    assert found == [canonical(parse_rounding(encode_json(one).decode())) for some in files for one in some]
