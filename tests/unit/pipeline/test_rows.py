"""Rows of objects -> Arrow record batches: bounded by rows and by bytes, nothing lost, the same for every layout."""

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from log_partitioner import native
from log_partitioner.avro.container import Codec
from log_partitioner.avro.schema import META
from log_partitioner.formats.model import PartitionKey, RootLink
from log_partitioner.formats.reference import Reference
from log_partitioner.proof.oracle.json_text import parse_rounding
from log_partitioner_pipeline.columns import FIXED, REST, Struct, admit, to_iceberg, wanted_by
from log_partitioner_pipeline.compiled import CompiledGatherer
from log_partitioner_pipeline.errors import ObjectError
from log_partitioner_pipeline.objects import Content
from log_partitioner_pipeline.pieces import pieces_of, projection_text
from log_partitioner_pipeline.rows import RowGatherer
from tests.pipeline.packs import KEY, TIME_US, Entry, Written, write_object
from tests.pipeline.readback import read_rows

BYTES_MAX = 1 << 20
KINDS: list[Any] = [RowGatherer, *([CompiledGatherer] if native.IS_INSTALLED else [])]
VALUES: list[dict[str, Any]] = [
    *[{"x": {}}, {"x": {"a": 1}}, {"x": {"a": None}}, {"x": []}, {"x": [None]}, {"x": [{}]}, {"x": [{"b": "c"}]}],
    *[{"x": None}, {"n": 1, "s": "t"}, {"n": 2**60}, {"n": 1.5}, {"x": {"a": 1, "b": [{"c": []}]}}, {}],
]


def file_of(values: Iterable[dict[str, Any]], *, timestamp_ms: int = TIME_US // 1000) -> Written:
    """Write one PartitionKey's file, all rows in one block; offsets are the entries' numbers."""
    entries = [Entry(KEY, one, offset, timestamp_ms=timestamp_ms) for offset, one in enumerate(values)]
    return write_object(entries, rows_per_block=len(entries))


def columns_of(written: Iterable[Written]) -> list[Struct]:
    """Give the columns that they want, one struct a reference."""
    return [wanted_by(one.schema.text, projection_text(each)) for one in written for each in one.references]


def gathered(*written: Written, columns_max: int = 1000, references: list[Reference] | None = None) -> list[Any]:
    """Gather objects for a table with room for so many columns; the compiled reader gives the same, errors too."""
    table = admit(FIXED, columns_of(written), columns_max=columns_max)
    found: list[list[pa.RecordBatch] | ObjectError] = []
    for kind in KINDS:
        gatherer = kind(to_iceberg(table), rows_per_batch=8192, bytes_per_batch=BYTES_MAX)
        batches: list[pa.RecordBatch] = []
        try:
            for one in written:
                for piece in pieces_of(references or one.references):
                    content = Content(tuple((at, one.content[at : at + length]) for at, length in piece.spans))
                    batches += gatherer.add_piece(piece, content)
            found.append(batches if gatherer.is_empty else [*batches, gatherer.take()])
        except ObjectError as error:
            found.append(error)
    assert len({repr(told(one)) for one in found}) == 1
    if isinstance(found[0], ObjectError):
        raise found[0]
    return found[0]


def told(found: list[pa.RecordBatch] | ObjectError) -> Any:
    """Give what was found in a form that compares: times as numbers, the rest as values."""
    if isinstance(found, ObjectError):
        return str(found)
    rows = pa.Table.from_batches(found)
    texts = [None if text is None else parse_rounding(text) for text in rows[REST].to_pylist()]
    meta = rows[META].combine_chunks()
    times = [
        meta.field("timestamp").cast(pa.int64()),
        rows["event_time"].cast(pa.int64()),
        rows["hour"].cast(pa.int64()),
    ]
    places = [meta.field(name) for name in ("id", "topic", "partition", "offset", "index", "root")]
    others = rows.drop_columns([REST, META, "event_time", "hour"])
    return texts, [one.to_pylist() for one in (*times, *places, others)]


def offsets_in(batches: list[pa.RecordBatch]) -> list[int]:
    """Give the offsets of all rows, in their order."""
    return [row[META]["offset"] for batch in batches for row in batch.to_pylist()]


def test_large_rows_make_small_batches() -> None:
    """Rows of 300 KB: 8,192 of them would be 2.4 GB, more than the offsets of one Arrow string column reach."""
    batches = gathered(file_of({"text": "x" * 300_000} for _ in range(20)))
    assert offsets_in(batches) == list(range(20))
    assert max(batch.nbytes for batch in batches) <= BYTES_MAX
    assert max(batch.num_rows for batch in batches) > 1


def test_small_files_with_large_rows() -> None:
    """The bound is that of the batch: what many files give counts together."""
    batches = gathered(*[file_of([{"text": "x" * 300_000}])] * 20)
    assert sum(batch.num_rows for batch in batches) == 20
    assert max(batch.nbytes for batch in batches) <= BYTES_MAX


@pytest.mark.slow
def test_rest_counts_by_its_text() -> None:
    """Without columns in the table, names stand in each row again: many times the bytes of the file."""
    entry = {f"field_with_a_rather_long_name_{number}": True for number in range(500)}
    batches = gathered(file_of(entry for _ in range(1000)), columns_max=0)
    assert offsets_in(batches) == list(range(1000))
    assert max(batch.nbytes for batch in batches) <= 3 * BYTES_MAX
    assert json.loads(batches[-1].to_pylist()[-1][REST]) == entry


def test_small_rows_fill_batches() -> None:
    """If rows are small, their number is the bound."""
    batches = gathered(file_of({"n": number} for number in range(10_000)))
    assert offsets_in(batches) == list(range(10_000))
    assert (len(batches), max(batch.num_rows for batch in batches) <= 8192) == (2, True)


def test_record_timestamps_that_no_column_holds() -> None:
    """A client that writes nanoseconds instead of milliseconds stops no job: its record has no timestamp."""
    for timestamp_ms, expected in ((1_772_600_400_000_000_000, None), (2**63 - 1, None), (-1, -1000)):
        batches = gathered(file_of([{"n": 1}], timestamp_ms=timestamp_ms))
        assert batches[0].column(META).field("timestamp").cast(pa.int64()).to_pylist() == [expected]


def users(values: list[dict[str, Any]]) -> list[Entry]:
    """Give each value to a user of its own."""
    return [Entry(PartitionKey(f"u{at:02}", *KEY[1:]), one, at) for at, one in enumerate(values)]


def compatible() -> list[dict[str, Any]]:
    """Give values whose types may share a pack."""
    return [one for one in VALUES if not isinstance(one.get("n"), float) and not isinstance(one.get("x"), list)]


@pytest.mark.parametrize("values", [compatible(), [one for one in VALUES if isinstance(one.get("x"), list)]])
@pytest.mark.parametrize("codec", ["null", "zstandard", "deflate"])
def test_the_table_is_the_same_for_every_layout(values: list[dict[str, Any]], codec: Codec) -> None:
    """Entries of many users in one pack or in a file each: the same columns, the same values in them.

    If a value is `{}` in all entries of one user, it is an object without fields, though other users have fields in it.
    """
    entries = users(values)
    pack = write_object(entries, codec=codec)
    files = [write_object([one], first_number=at, codec=codec) for at, one in enumerate(entries)]
    assert admit(FIXED, columns_of([pack]), columns_max=99) == admit(FIXED, columns_of(files), columns_max=99)

    def rows(*written: Written) -> list[dict[str, Any]]:
        found = [row for batch in gathered(*written) for row in batch.to_pylist()]
        return sorted(found, key=lambda row: row[META]["offset"])

    assert rows(pack) == rows(*files)


def test_an_empty_object_goes_to_the_column_of_objects() -> None:
    """It does if another user of the pack has fields in it; else it stands in the rest."""
    pack = write_object(users([{"x": {}}, {"x": {"a": 1}}]))
    empty, full = (row for batch in gathered(pack) for row in batch.to_pylist())
    assert (empty["x"], empty[REST]) == ({"a": None}, None)
    assert (full["x"], full[REST]) == ({"a": 1}, None)
    assert (empty["_reference"], full["_reference"]) == ("b-0", "b-1")
    (alone,) = (row for batch in gathered(write_object(users([{"x": {}}]))) for row in batch.to_pylist())
    assert ("x" in alone, alone[REST]) == (False, '{"x":{}}')


def test_some_references_of_a_pack() -> None:
    """Two of three, header and one span fetched: their rows alone."""
    pack = write_object(users([{"n": 0}, {"n": 1}, {"n": 2}]))
    assert offsets_in(gathered(pack, references=pack.references[1:])) == [1, 2]
    assert offsets_in(gathered(pack, references=pack.references[1:2])) == [1]


def test_blocks_of_many_rows_in_a_pack() -> None:
    """A PartitionKey may have several blocks, and a pack PartitionKeys with one and with many."""
    entries = [Entry(PartitionKey(f"u{at // 70}", *KEY[1:]), {"n": at}, at) for at in range(100)]
    pack = write_object(entries, rows_per_block=3, codec="zstandard")
    assert offsets_in(gathered(pack)) == list(range(100))
    assert [row["n"] for row in read_rows(pack.content, "pack")[0]] == list(range(100))


def test_what_is_not_as_the_reference_says() -> None:
    """Other bytes, another number of rows, another schema: each is refused, and the object named."""
    pack = write_object(users([{"n": 0}, {"n": 1}, {"n": 2}]))
    first, second, _ = pack.references
    start, length = second.location.ranges[1]
    wrong = {
        "holds 1 entries, reference b-1 says 2": replace(second, entries=2),
        "was not written with the schema that reference b-1 names": replace(
            second, schema=replace(second.schema, fingerprint="0")
        ),
        "a byte range does not hold whole blocks": moved(second, (start - 1, length)),
        "do not begin with the header": replace(
            second, location=replace(second.location, ranges=((0, 10), (start, length)))
        ),
    }
    for text, reference in wrong.items():
        with pytest.raises(ObjectError, match=text) as caught:
            gathered(pack, references=[first, reference] if "schema" not in text else [reference])
        assert str(caught.value).startswith("s3://data/p/pack/b-0.avro")


def moved(reference: Reference, blocks: tuple[int, int]) -> Reference:
    """Let a reference point to other bytes."""
    ranges = (reference.location.ranges[0], blocks)
    return replace(reference, location=replace(reference.location, ranges=ranges))


def test_where_an_entry_was_republished_from() -> None:
    """With the output index of the link, if it has one."""
    roots = [None, RootLink("root", 1, 2), RootLink("root", 1, 2, 3)]
    batches = gathered(write_object(Entry(KEY, {"n": 1}, at, root=root) for at, root in enumerate(roots)))
    found = [row[META]["root"] for batch in batches for row in batch.to_pylist()]
    assert found == [None if root is None else root._asdict() for root in roots]
