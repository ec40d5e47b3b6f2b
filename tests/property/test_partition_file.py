"""Rows under a schema that grows: whatever comes in comes out again, under one exact schema (DESIGN 3.2, 3.3)."""

from __future__ import annotations

import io
import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.container import Codec
from service.core.lattice import Limits, RecordType, Scalar, join_records
from service.core.model import PartitionKey, RootLink, SourceRecord, TopicPartition
from service.core.partition_file import FileBounds, PartitionFile, SchemaFullError
from service.core.row_encoder import WALKED_ENTRIES
from service.core.row_meta import encode_id, encode_meta, encode_origin, encode_rest, encode_user
from service.core.schema_infer import TooDeepError, TooManyFieldsError, fit_entry, infer_entry
from tests.property.avro_reading import canonical, depth_of, entry_fields, to_entry
from tests.strategies import LIMITS, entries, entries_near, entry_types

KEY = PartitionKey("ann", "2024-05-01", 10)
HOUR_US = 1_714_557_600_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SYNC = bytes(range(16))
TPS = (TopicPartition("app", 0), TopicPartition("app", 1))
Entry = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """What was put into a file, beside the bytes it made."""

    entry: Entry
    tp: TopicPartition
    offset: int
    index: int
    time_us: int
    root: RootLink | None


@dataclass
class Writer:
    """Drives PartitionFiles as the recorder does, with the local disk in memory."""

    bounds: FileBounds
    codec: Codec
    sealed: list[tuple[PartitionFile, list[Row], bytes]] = field(default_factory=list)
    refused: list[tuple[Entry, Exception]] = field(default_factory=list)
    offset: int = 0

    def __post_init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.file = PartitionFile(KEY, number=len(self.sealed), bounds=self.bounds, codec=self.codec, sync=SYNC)
        self.disk = bytearray()
        self.rows: list[Row] = []

    def spill(self) -> None:
        """Move rows out of memory."""
        self.disk += self.file.take_block()

    def append(self, entry: Entry, *, stay: bool) -> None:
        """Append one entry at the next offset, or (`stay`) as one more entry of the last record."""
        self.offset += 0 if stay else 1 + self.offset % 3
        row = Row(
            entry=entry,
            tp=TPS[self.offset % 2],
            offset=self.offset,
            index=len(self.rows),
            time_us=HOUR_US + (self.offset * 7_919_000_003) % 3_600_000_000,
            root=RootLink("raw", 1, 1000 - self.offset) if self.offset % 2 else None,
        )
        try:
            self._append(row)
        except SchemaFullError:
            self.seal()
            self._append(row)

    def _append(self, row: Row) -> None:
        before = self.state()
        record = SourceRecord(row.tp, row.offset, None, None, None, ())
        meta = encode_meta(
            user=encode_user("ann"), event_time_us=row.time_us, unique_id=encode_id(None),
            origin=encode_origin(record), index=row.index, rest=encode_rest(None, row.root),
        )  # fmt: skip
        try:
            self.file.append(
                meta, row.entry, tp=row.tp, offset=row.offset, event_time_us=row.time_us, root=row.root, wire_bytes=50
            )
        except (TooDeepError, TooManyFieldsError) as error:
            assert self.state() == before
            self.refused.append((row.entry, error))
        except SchemaFullError:
            assert self.state() == before
            assert self.rows
            raise
        else:
            self.rows.append(row)

    def state(self) -> tuple[object, ...]:
        """Tell all of a file that a refused entry must not change."""
        file = self.file
        return file.rows, file.row_bytes, file.memory_bytes, file.entry_type, {**file.origins}, {**file.roots}

    def seal(self) -> None:
        """Seal the file and begin the next."""
        parts = self.file.seal(lambda start, length: bytes(self.disk[start : start + length]), metadata={"batch": "b1"})
        self.sealed.append((self.file, self.rows, b"".join(parts)))
        self._begin()


tight = FileBounds(LIMITS, fields_max=8, schema_bytes_max=900, block_bytes=64, object_bytes_max=10**6)
wide = FileBounds(Limits(4, 100, 6), fields_max=1000, schema_bytes_max=10**6, block_bytes=64, object_bytes_max=10**6)
SPILL = None
actions = st.lists(st.tuples(entries(leaves=6), st.booleans()) | st.just(SPILL), max_size=25) | entry_types().flatmap(
    lambda kind: st.lists(st.tuples(entries_near(kind), st.booleans()) | st.just(SPILL), max_size=40)
)


def written(bounds: FileBounds, codec: Codec, todo: list[Any]) -> Writer:
    """Perform the actions and seal."""
    writer = Writer(bounds, codec)
    for action in todo:
        if action is SPILL:
            writer.spill()
        else:
            writer.append(action[0], stay=action[1])
    writer.seal()
    return writer


def check(writer: Writer) -> None:
    """Read every file with fastavro and hold it against what went in."""
    for file, rows, data in writer.sealed:
        reader = fastavro.reader(io.BytesIO(data))
        schema = json.loads(reader.metadata["avro.schema"])
        assert reader.metadata["batch"] == "b1"
        assert reader.metadata["avro.codec"] == writer.codec
        found = list(reader)
        assert [_meta_of(row) for row in rows] == [one["_meta"] for one in found]
        fields = entry_fields(schema)
        assert [canonical(row.entry) for row in rows] == [canonical(to_entry(fields, one)) for one in found]
        _check_counts(file, rows)
        _check_schema(file.entry_type, rows, writer.bounds)
    for entry, error in writer.refused:
        if isinstance(error, TooDeepError):
            assert depth_of(entry) > writer.bounds.limits.json_depth_max
        else:
            kind = infer_entry(entry, writer.bounds.limits)
            least = RecordType({name: Scalar.JSON if c.fields else c for name, c in kind.by_name.items()})
            assert least.fields > writer.bounds.fields_max or least.size > writer.bounds.schema_bytes_max


def _meta_of(row: Row) -> dict[str, Any]:
    return {
        "user": "ann", "event_time": EPOCH + timedelta(microseconds=row.time_us), "id": None, "topic": row.tp.topic,
        "partition": row.tp.partition, "offset": row.offset, "index": row.index,
        "timestamp": EPOCH - timedelta(milliseconds=1), "root": None if row.root is None else row.root._asdict(),
    }  # fmt: skip


def _check_counts(file: PartitionFile, rows: list[Row]) -> None:
    assert file.rows == len(rows)
    non_nulls = Counter(name for row in rows for name, value in row.entry.items() if value is not None)
    assert +file.non_nulls == non_nulls
    for spans, found in (
        (file.origins, [(row.tp, row.offset) for row in rows]),
        (file.roots, [((row.root.topic, row.root.partition), row.root.offset) for row in rows if row.root]),
    ):
        assert {key: (span.min_offset, span.max_offset, span.entries) for key, span in spans.items()} == {
            key: (min(offsets), max(offsets), len(offsets))
            for key in dict(found)
            for offsets in [[offset for other, offset in found if other == key]]
        }
    if rows:
        assert file.event_time_min_us == min(row.time_us for row in rows)
        assert file.event_time_max_us == max(row.time_us for row in rows)


def _check_schema(found: RecordType, rows: list[Row], bounds: FileBounds) -> None:
    """Hold the schema against the join of all entries; where one alone was too large, between that and its fit."""
    keys_max = bounds.limits.object_keys_max
    inferred = [infer_entry(row.entry, bounds.limits) for row in rows]
    fitted = [fit_entry(kind, fields_max=bounds.fields_max, bytes_max=bounds.schema_bytes_max) for kind in inferred]
    lower, upper = (
        reduce(lambda a, b: join_records(a, b, object_keys_max=keys_max), kinds, RecordType({}))
        for kinds in (inferred, fitted)
    )
    assert join_records(found, lower, object_keys_max=keys_max) == found
    assert join_records(upper, found, object_keys_max=keys_max) == upper
    if inferred == fitted:
        assert found == lower
    assert found.fields <= bounds.fields_max
    assert found.size <= bounds.schema_bytes_max


@given(actions)
def test_rows_under_wide_bounds_come_out_of_one_file_as_they_went_in(todo: list[Any]) -> None:
    """Any entries with any spills between them: one file, rows in order, values equal, schema and counts exact."""
    writer = written(wide, "null", todo)
    assert len(writer.sealed) == 1
    check(writer)


@given(actions)
def test_rows_under_tight_bounds_go_on_in_new_files_and_lose_nothing(todo: list[Any]) -> None:
    """Where fields or bytes of the schema run out the file is sealed; no row is lost, doubled or out of order."""
    writer = written(tight, "zstandard", todo)
    check(writer)
    taken = [row.entry for _, rows, _ in writer.sealed for row in rows]
    refused = [entry for entry, _ in writer.refused]
    given_entries = [action[0] for action in todo if action is not SPILL]
    assert len(taken) + len(refused) == len(given_entries)
    left = iter(given_entries)
    assert all(any(entry is other for other in left) for entry in taken)


@pytest.mark.parametrize("codec", ["zstandard", "deflate", "null"])
@given(todo=st.lists(st.tuples(entries(leaves=4), st.booleans()) | st.just(SPILL), min_size=3, max_size=12))
def test_files_of_every_codec_are_read_by_another_reader(codec: Codec, todo: list[Any]) -> None:
    """The container file is valid Avro in each codec."""
    check(written(wide, codec, todo))


@given(entry_types().flatmap(lambda kind: st.lists(entries_near(kind), min_size=1, max_size=4)), st.randoms())
def test_many_rows_of_one_type_pass_the_compiled_encoder_and_come_out_equal(some: list[Entry], random: Any) -> None:
    """Long enough for encoders to be compiled in mid-file, with spills at every fortieth row."""
    todo: list[Any] = []
    for number in range(3 * WALKED_ENTRIES):
        todo.append((random.choice(some), False))
        if number % 40 == 0:
            todo.append(SPILL)
    check(written(tight, "null", todo))
