"""A file under a schema that grows, by literal cases; its laws are in tests/property."""

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest

from service.core.lattice import ArrayType, Limits, MapType, RecordType, Scalar
from service.core.model import PartitionKey, SourceRecord, TopicPartition
from service.core.partition_file import DECODED_BYTES_MAX, DECODED_ROWS_MAX, FileBounds, PartitionFile, SchemaFullError
from service.core.row_meta import encode_id, encode_meta, encode_origin, encode_rest, encode_user
from service.core.schema_infer import TooDeepError, TooManyFieldsError

T = Scalar
TP = TopicPartition("app", 0)
BOUNDS = FileBounds(Limits(3, 3, 5), fields_max=6, schema_bytes_max=10**6, block_bytes=500, object_bytes_max=2_000)


class File:
    """A PartitionFile and the local disk under it."""

    def __init__(self, bounds: FileBounds = BOUNDS) -> None:
        key = PartitionKey("ann", "2024-05-01", 12)
        self.file = PartitionFile(key, number=0, bounds=bounds, codec="null", sync=bytes(16))
        self.disk = b""
        self.offset = 0

    def append(self, *entries: dict[str, Any], wire_bytes: int = 20) -> None:
        """Append entries at the next offsets."""
        for entry in entries:
            origin = encode_origin(SourceRecord(TP, self.offset, None, None, None, ()))
            meta = encode_meta(
                user=encode_user("ann"), event_time_us=self.offset, unique_id=encode_id(None), origin=origin,
                index=0, rest=encode_rest(None, None),
            )  # fmt: skip
            self.file.append(
                meta, entry, tp=TP, offset=self.offset, event_time_us=self.offset, root=None, wire_bytes=wire_bytes
            )
            self.offset += 1

    def spill(self) -> bytes:
        """Move rows to disk."""
        block = self.file.take_block()
        self.disk += block
        return block

    def rows(self) -> list[dict[str, Any]]:
        """Seal and read back, without _meta."""
        data = b"".join(self.file.seal(lambda start, length: self.disk[start : start + length], metadata={}))
        return [{k: v for k, v in row.items() if k != "_meta"} for row in fastavro.reader(io.BytesIO(data))]


def test_types_that_flap_become_json_in_every_row() -> None:
    """A field that is a string in a few entries and an integer in the rest loses nothing (TESTING 2.3)."""
    file = File()
    file.append({"mix": 1})
    file.spill()
    file.append({"mix": "x"}, {"mix": 2.5})
    file.spill()
    file.append({"mix": None}, {})
    assert file.file.entry_type == RecordType({"mix": T.JSON})
    assert file.rows() == [{"mix": "1"}, {"mix": '"x"'}, {"mix": "2.5"}, {"mix": None}, {"mix": None}]
    assert file.file.non_nulls == {"mix": 3}


def test_empty_and_null_become_typed_at_the_first_typed_value() -> None:
    """null, {} and [] have a stated type until then."""
    file = File()
    file.append({"a": None, "b": {}, "c": []})
    file.spill()
    assert file.file.entry_type == RecordType({"a": T.NULL, "b": RecordType({}), "c": ArrayType(T.NULL)})
    file.append({"a": 1, "b": {"x": True}, "c": ["y"]})
    assert file.rows() == [{"a": None, "b": {"x": None}, "c": []}, {"a": 1, "b": {"x": True}, "c": ["y"]}]


def test_object_with_too_many_keys_over_time_becomes_a_map() -> None:
    """Every entry brings a key of its own: columns at first, a map beyond the bound (TESTING 2.3)."""
    file = File()
    for n in range(5):
        file.append({"labels": {f"k{n}": n}})
        file.spill()
    assert file.file.entry_type == RecordType({"labels": MapType(T.LONG53)})
    assert file.rows() == [{"labels": {f"k{n}": n}} for n in range(5)]


def test_schema_that_is_full_refuses_a_new_field_and_still_takes_old_ones() -> None:
    """The caller seals and goes on in a new file; this one is as it was."""
    file = File()
    file.append({f"k{n}": n for n in range(6)})
    for spilled in (False, True):
        if spilled:
            file.spill()
        with pytest.raises(SchemaFullError):
            file.append({"another": 1})
        file.append({"k0": 1})
    assert file.file.rows == 3
    assert file.file.entry_type.fields == 6
    assert len(file.rows()) == 3


def test_first_entry_that_is_too_large_alone_has_its_largest_subtree_made_json() -> None:
    """There is no file in which it would fit otherwise."""
    file = File()
    file.append({"a": 1, "b": {"x": 1, "y": 2, "z": 3}, "c": {"x": 1}, "d": 1})
    assert json.loads(file.rows()[0]["b"]) == {"x": 1, "y": 2, "z": 3}


@pytest.mark.parametrize(
    ("entry", "error"),
    [({"x": [[[[[]]]]]}, TooDeepError), ({f"k{n}": n for n in range(7)}, TooManyFieldsError)],
)
@pytest.mark.parametrize("spilled", [False, True])
def test_entry_that_fits_no_file_is_refused_and_leaves_nothing(
    entry: dict[str, Any],
    error: type[Exception],
    spilled: bool,  # noqa: FBT001 - a case
) -> None:
    """The row is not half there, whichever way it came in."""
    file = File()
    file.append({"x": None})
    if spilled:
        file.spill()
    memory, row_bytes = file.file.memory_bytes, file.file.row_bytes
    with pytest.raises(error):
        file.append(entry)
    assert (file.file.rows, file.file.memory_bytes, file.file.row_bytes) == (1, memory, row_bytes)
    assert file.file.entry_type == RecordType({"x": T.NULL})
    assert file.rows() == [{"x": None}]


def test_first_rows_stay_decoded_until_there_are_many_or_they_are_large() -> None:
    """Most files see a handful of rows; those cost no encoder. Memory is counted four times their size."""
    few, large = File(), File()
    few.append(*[{"a": 1}] * (DECODED_ROWS_MAX - 1))
    decoded = few.file.memory_bytes
    few.append({"a": 1})
    assert few.file.memory_bytes < decoded / 4
    large.append({"a": "x"}, wire_bytes=DECODED_BYTES_MAX)
    assert large.file.memory_bytes < 100


def test_block_and_object_are_full_at_their_bounds() -> None:
    """W9: a block goes to disk when it is large enough, an object ends when it is."""
    file = File()
    blocks = 0
    while not file.file.is_full:
        file.append({"a": "x" * 50})
        if file.file.block_is_full:
            blocks += 1
            assert len(file.spill()) >= BOUNDS.block_bytes
            assert file.file.memory_bytes == 0
    assert blocks >= 3
    assert file.file.row_bytes >= BOUNDS.object_bytes_max
    assert len(file.disk) == file.file.spilled_bytes


def test_block_of_no_rows_is_no_block() -> None:
    """Spilling twice writes once."""
    file = File()
    assert file.spill() == b""
    file.append({"a": 1})
    assert file.spill()
    assert file.spill() == b""
    assert file.rows() == [{"a": 1}]


def test_blocks_under_the_final_schema_are_copied_as_they_are() -> None:
    """Sealing re-encodes only what was written under an earlier schema."""
    file = File()
    file.append({"a": 1})
    file.spill()
    file.append({"a": 1, "b": 2})
    second = file.spill()
    data = b"".join(file.file.seal(lambda start, length: file.disk[start : start + length], metadata={}))
    assert data.endswith(second)
    assert len(list(fastavro.reader(io.BytesIO(data)))) == 2


@pytest.mark.timeout(60)
def test_key_in_every_record_of_its_own_never_grows_a_schema_without_bound() -> None:
    """Schema explosion: the file is sealed at its bound, again and again (TESTING 2.3)."""
    bounds = BOUNDS._replace(fields_max=50, object_bytes_max=10**9)
    files = [File(bounds)]
    for n in range(200):
        try:
            files[-1].append({f"key{n}": n})
        except SchemaFullError:
            files.append(File(bounds))
            files[-1].append({f"key{n}": n})
        if files[-1].file.block_is_full:
            files[-1].spill()
    assert [file.file.entry_type.fields for file in files] == [50, 50, 50, 50]
    assert sum(len(file.rows()) for file in files) == 200


GOLDEN = Path(__file__).parents[2] / "golden" / "format-1" / "rows.avro"
GOLDEN_ENTRIES: list[dict[str, Any]] = [
    {"user": "ann", "n": 1, "@timestamp": 1714564800, "nothing": None, "tags": [], "labels": {}},
    {"user": "ann", "n": 2.5, "mix": 1, "deep": {"a": {"b": [1]}}, "big": 2**60, "ok": True},
    {"user": "ann", "mix": "x", "tags": ["a", None], "labels": {"k1": 1, "k2": 2}, "huge": 2**64, "_meta": "own"},
    {"user": "ann", "labels": {"k3": 3, "k4": 4}, "User": "other case"},
]


def test_file_of_format_1_is_the_golden_one() -> None:
    """Schema, marks, names, `_meta` and rows, byte by byte; uncompressed, so that no library's version shows."""
    file = File(BOUNDS._replace(fields_max=100))
    file.append(*GOLDEN_ENTRIES)
    assert b"".join(file.file.seal(lambda *_: b"", metadata={"batch": "b1"})) == GOLDEN.read_bytes()
