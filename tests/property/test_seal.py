"""Rows into objects and back: whatever comes in comes out again, once, under its exact schema (DESIGN 3.2, 3.3, 6)."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_partitioner import native
from log_partitioner.avro.container import Codec
from log_partitioner.avro.entry_types import EntryTypes
from log_partitioner.avro.infer import TooDeepError, TooManyFieldsError
from log_partitioner.avro.schema import schema_of
from log_partitioner.avro.schema_types import RecordType, join_records
from log_partitioner.batch import pack_plan, row_writer
from log_partitioner.batch import rows as rows_module
from log_partitioner.batch import seal as seal_module
from log_partitioner.batch.messages import Sender, UploadedObject, key_of, reference_messages
from log_partitioner.batch.pack_plan import META_BYTES
from log_partitioner.batch.rows import Rows
from log_partitioner.batch.seal import SealedObject, SealRules
from log_partitioner.boundary import StoredObject
from log_partitioner.config.settings import SchemaBounds
from log_partitioner.formats.model import PartitionKey, RootLink, SourceRecord, TopicPartition
from log_partitioner.formats.projection import project
from log_partitioner.formats.reference import Reference, decode_references
from log_partitioner.formats.values import encode_json
from log_partitioner_pipeline.row_type import type_of
from tests.fakes.spool import FakeBatchSpool, FakeSpool
from tests.fakes.worker import settings_of
from tests.property.avro_reading import canonical, entry_fields, to_entry
from tests.strategies import (
    LIMITS,
    empty_rows,
    entries,
    entries_near,
    entry_types,
    seal_rules,
    sealed_objects,
    times_as_many,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR_US = 1_714_557_600_000_000
TPS = (TopicPartition("app", 0), TopicPartition("app", 1), TopicPartition("other", 0))
USERS = "ann", "bob", "é/..", '"\\\0\b\t\n\f\r\x1f\x7f\U0001f600'
KEYS = [PartitionKey(user, "2024-05-01", hour) for user in USERS for hour in (10, 11)]
SENDER = Sender("w", "boot", settings_of().kafka, "bucket")
Entry = dict[str, Any]
Place = tuple[str, int, int, int]


@dataclass(frozen=True)
class Row:
    """A row that was put into a batch."""

    entry: Entry
    entry_type: RecordType
    key: PartitionKey
    tp: TopicPartition
    offset: int
    index: int
    time_us: int
    text_bytes: int
    unique_id: str | None
    root: RootLink | None

    @property
    def place(self) -> Place:
        """The entry's lasting identity."""
        return self.tp.topic, self.tp.partition, self.offset, self.index


@dataclass
class Batch:
    """Fills rows as the recorder does; the disk is in memory."""

    bounds: SchemaBounds
    rows: Rows
    spool: FakeBatchSpool = field(default_factory=lambda: FakeSpool().open("b1"))
    written: list[Row] = field(default_factory=list)
    has_roots: bool = True

    def __post_init__(self) -> None:
        self._types = EntryTypes(self.bounds)
        self._number = 0

    def spill(self) -> None:
        """Bring texts to disk."""
        self.rows.spill(self.spool.append)

    def add(self, key: PartitionKey, entry: Entry) -> None:
        """Add a row at the next offset of some TopicPartition, or as one more of its last record."""
        number = self._number
        self._number += 1
        tp = TPS[number * 7 % len(TPS)]
        has_root = self.has_roots and number % 5 == 1
        root = RootLink("raw", number % 2, 1000 - number, number if number % 3 else None) if has_root else None
        try:
            entry_type = self._types.of(entry)
        except (TooDeepError, TooManyFieldsError):
            return
        text = encode_json(entry)
        row = Row(
            entry=entry, entry_type=entry_type, key=key, tp=tp, offset=number // 2, index=number % 2,
            time_us=HOUR_US + (number * 7_919_000_003) % 3_600_000_000, text_bytes=len(text),
            unique_id=f"id-{number}" if number % 4 == 2 else None, root=root,
        )  # fmt: skip
        record = SourceRecord(tp, row.offset, None if number % 3 else 1000 + number, None, None, ())
        made = self.rows.add(record, row.index, key, entry_type, text, row.time_us)
        self.rows.note(made, unique_id=row.unique_id, root=root)
        self.written.append(row)


bounds_of = {
    "tight": LIMITS._replace(fields_max=8, bytes_max=900),
    "wide": SchemaBounds(4, 100, 6, fields_max=1000, bytes_max=10**6),
}
SPILL = None
keys = st.sampled_from(KEYS)
anything = st.lists(st.tuples(keys, entries(leaves=6)) | st.just(SPILL), max_size=25)
near = entry_types().flatmap(lambda kind: st.lists(st.tuples(keys, entries_near(kind)) | st.just(SPILL), max_size=40))
actions = anything | near
rules_of = st.fixed_dictionaries(
    {
        "layout": st.sampled_from(["auto", "pack", "file"]),
        "packed_bytes_max": st.sampled_from([META_BYTES + 20, 800, 10**6]),
        "object_bytes_max": st.sampled_from([1, 700, 10**6]),
        "pack_bytes_max": st.sampled_from([1, 1_500, 4_000, 10**6]),
        "block_bytes": st.sampled_from([1, 200, 10**6]),
        "group_bytes_max": st.sampled_from([1, 700, 10**6]),
    }
)


def filled(bounds: SchemaBounds, todo: Iterable[Any], *, is_fast: bool = False, has_roots: bool = True) -> Batch:
    """Perform the actions."""
    batch = Batch(bounds, empty_rows(is_fast=is_fast, bounds=bounds), has_roots=has_roots)
    for action in todo:
        if action is SPILL:
            batch.spill()
        else:
            batch.add(*action)
    return batch


def sealed(batch: Batch, rules: SealRules, *, spans: Any = None) -> list[SealedObject]:
    """Seal with small numbers of what makes a pack, of bytes in a piece, and of what is written at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pack_plan, "FEW_PARTS", 2)
        patch.setattr(pack_plan, "HOUR_PARTS_MIN", 3)
        patch.setattr(pack_plan, "GROUPS_MAX", 1 + len(batch.written) % 3)
        patch.setattr(pack_plan, "MADE_BYTES_MAX", len(batch.written) % 4 * 300)
        patch.setattr(rows_module, "PIECE_BYTES", 50)
        patch.setattr(row_writer, "CHUNK_BYTES", 300)
        patch.setattr(seal_module, "ROWS_AT_ONCE", 6)
        patch.setattr(seal_module, "PARTS_AT_ONCE", 4)
        return sealed_objects(batch.rows, batch.spool, rules, spans=spans)


def announced(objects: list[SealedObject]) -> list[list[Reference]]:
    """Give the references of each object, as a reader gets them."""
    found = []
    number = 0
    for one in objects:
        stored = StoredObject(key_of(one, "logs", batch_id="b1", attempt=0), None, None)
        uploaded = UploadedObject(one, stored, "schema", inline=False)
        messages = reference_messages(
            [uploaded], SENDER, batch_id="b1", generation=1, at_ms=0, first_number=number
        )  # fmt: skip
        found.append([line for message in messages for line in decode_references(message.value or b"")])
        number += len(found[-1])
        assert len(found[-1]) == one.references
    return found


def check(batch: Batch, objects: list[SealedObject], rules: SealRules) -> None:
    """Read every object and every reference with fastavro, and hold them against what went in."""
    by_place = {row.place: row for row in batch.written}
    of_key: dict[PartitionKey, list[Row]] = defaultdict(list)
    references = announced(objects)
    for one, lines in zip(objects, references, strict=True):
        data = batch.spool.load(one.file)
        header = json.loads(_read(data)[0])
        _check_object(one, lines, data, header, rules)
        for reference in lines:
            rows = _check_reference(reference, data, header, by_place)
            _check_types(rows, one, reference, header, rules)
            of_key[reference.partition_key] += rows
    numbered = [line.reference_id for lines in references for line in lines]
    assert numbered == [f"b1-{number}" for number in range(len(numbered))]
    assert sorted(one.number for one in objects) == list(range(len(objects)))
    expected: dict[PartitionKey, list[Row]] = defaultdict(list)
    for row in batch.written:
        expected[row.key].append(row)
    assert of_key == expected, "every row once, those of one PartitionKey in order of arrival over its references"


def _read(data: bytes) -> tuple[str, list[Any]]:
    reader = fastavro.reader(io.BytesIO(data))
    assert reader.metadata["lp-batch-id"] == "b1"
    return reader.metadata["avro.schema"], list(reader)


def _check_object(one: SealedObject, lines: list[Reference], data: bytes, header: Any, rules: SealRules) -> None:
    assert len(_read(data)[1]) == one.entries == sum(line.entries for line in lines)
    assert type_of(header) == one.entry_type
    assert (one.file.size, one.header_bytes < one.file.size) == (len(data), True)
    at = one.header_bytes
    for line in lines:
        first, *rest = line.location.ranges
        start, length = rest[0] if rest else (one.header_bytes, first[1] - one.header_bytes)
        assert (first[0], start, length > 0) == (0, at, True), "blocks stand without gap or overlap"
        at = start + length
    assert at == len(data)
    if one.key is not None:
        assert [line.partition_key for line in lines] == [one.key]
        assert lines[0].location.ranges == ((0, len(data)),)
        assert lines[0].projection is None
    else:
        assert len(data) <= rules.pack_bytes_max or len(lines) == 1
        assert one.hour is None or {line.partition_key[1:] for line in lines} == {one.hour}
        assert len({line.partition_key for line in lines}) == len(lines)


def _check_reference(reference: Reference, data: bytes, header: Any, by_place: dict[Place, Row]) -> list[Row]:
    part = b"".join(data[start : start + length] for start, length in reference.location.ranges)
    text, found = _read(part)
    assert json.loads(text) == header
    metas = [one["_meta"] for one in found]
    rows = [by_place[meta["topic"], meta["partition"], meta["offset"], meta["index"]] for meta in metas]
    assert {row.key for row in rows} == {reference.partition_key}
    assert metas == [_meta_of(row, meta["timestamp"]) for row, meta in zip(rows, metas, strict=True)]
    fields = entry_fields(header)
    assert [canonical(to_entry(fields, one)) for one in found] == [canonical(row.entry) for row in rows]
    for tp in TPS:
        places = [row.place for row in rows if row.tp == tp]
        assert places == sorted(places), "rows of one TopicPartition stand in offset order"
    _check_statistics(reference, rows)
    return rows


def _meta_of(row: Row, timestamp: datetime) -> dict[str, Any]:
    assert timestamp == EPOCH - timedelta(milliseconds=1) or timestamp >= EPOCH + timedelta(seconds=1)
    return {
        "user": row.key.user, "event_time": EPOCH + timedelta(microseconds=row.time_us), "id": row.unique_id,
        "topic": row.tp.topic, "partition": row.tp.partition, "offset": row.offset, "index": row.index,
        "timestamp": timestamp, "root": None if row.root is None else row.root._asdict(),
    }  # fmt: skip


def _check_statistics(reference: Reference, rows: list[Row]) -> None:
    assert reference.entries == len(rows)
    assert reference.event_time_min_us == min(row.time_us for row in rows)
    assert reference.event_time_max_us == max(row.time_us for row in rows)
    offsets = defaultdict(list)
    for row in rows:
        offsets[row.tp].append(row.offset)
    spans = {(s.topic, s.partition): (s.min_offset, s.max_offset, s.entries) for s in reference.sources}
    assert spans == {tp: (min(some), max(some), len(some)) for tp, some in offsets.items()}
    assert all((s.first_offset, s.next_offset) == (0, 2**62) for s in reference.sources)


def _check_types(rows: list[Row], one: SealedObject, reference: Reference, header: Any, rules: SealRules) -> None:
    """Hold the exact schema of a reference against its entries, and the limits of one schema and one object."""
    bounds = rules.bounds
    joined = reduce(
        lambda a, b: join_records(a, b, object_keys_max=bounds.object_keys_max),
        (row.entry_type for row in rows),
        RecordType({}),
    )
    exact = project(header, reference.projection)
    assert type_of(exact) == joined
    if one.key is not None:  # else names are the object's
        assert exact == schema_of(joined)
    for kind in (joined, one.entry_type):
        assert kind.fields <= bounds.fields_max
        assert kind.size <= bounds.bytes_max
    size = sum(row.text_bytes + META_BYTES for row in rows)
    assert len(rows) == 1 or size <= rules.object_bytes_max
    assert one.key is not None or size <= rules.packed_bytes_max


@pytest.mark.parametrize("bounds", bounds_of)
@times_as_many(2)
@given(todo=actions, drawn=rules_of)
def test_rows_come_out_of_their_objects_as_they_went_in(
    bounds: str,
    todo: list[Any],
    drawn: dict[str, Any],
) -> None:
    """Any entries of any PartitionKeys, any layout and limits, spilled anywhere: all, once, exact and in order."""
    batch = filled(bounds_of[bounds], todo)
    rules = seal_rules(bounds=batch.bounds, **drawn)
    check(batch, sealed(batch, rules), rules)


@pytest.mark.parametrize("codec", ["zstandard", "deflate", "null"])
@given(todo=st.lists(st.tuples(keys, entries(leaves=4)) | st.just(SPILL), min_size=3, max_size=12))
def test_objects_of_every_codec_are_read_by_another_reader(codec: Codec, todo: list[Any]) -> None:
    """Whole, and by the ranges of each reference."""
    batch = filled(bounds_of["wide"], todo)
    rules = seal_rules(bounds=batch.bounds, layout="pack", codec=codec, block_bytes=100)
    check(batch, sealed(batch, rules), rules)


@given(entry_types().flatmap(lambda kind: st.lists(entries_near(kind), min_size=1, max_size=4)), st.randoms(), rules_of)
def test_many_rows_of_few_types_pass_the_compiled_encoders_and_come_out_equal(
    some: list[Entry], random: Any, drawn: dict[str, Any]
) -> None:
    """Types are few; rows are spilled at every fortieth."""
    todo: list[Any] = []
    for number in range(200):
        todo.append((random.choice(KEYS), random.choice(some)))
        if number % 40 == 0:
            todo.append(SPILL)
    batch = filled(bounds_of["tight"], todo)
    rules = seal_rules(bounds=batch.bounds, **drawn)
    check(batch, sealed(batch, rules), rules)


@given(actions, rules_of)
def test_sealing_a_batch_twice_gives_the_same_objects(todo: list[Any], drawn: dict[str, Any]) -> None:
    """Nothing is drawn at random, and sealing changes no row: byte by byte the same."""
    batch = filled(bounds_of["tight"], todo)
    rules = seal_rules(bounds=batch.bounds, **drawn)
    first = sealed(batch, rules)
    bodies = [batch.spool.load(one.file) for one in first]
    batch.spool.objects.clear()
    again = sealed(batch, rules)
    assert again == first
    assert [batch.spool.load(one.file) for one in again] == bodies


@given(actions, rules_of)
def test_where_rows_lie_makes_no_difference(todo: list[Any], drawn: dict[str, Any]) -> None:
    """Spilled at any place or not at all: the same objects."""
    spilled = filled(bounds_of["wide"], todo)
    in_memory = filled(bounds_of["wide"], [action for action in todo if action is not SPILL])
    rules = seal_rules(bounds=spilled.bounds, **drawn)
    assert sealed(spilled, rules) == sealed(in_memory, rules)


@pytest.mark.skipif(not native.IS_INSTALLED, reason="make native")
@pytest.mark.parametrize("bounds", bounds_of)
@times_as_many(2)
@given(todo=actions, drawn=rules_of, has_roots=st.booleans())
def test_compiled_code_makes_the_same_objects(
    bounds: str,
    todo: list[Any],
    drawn: dict[str, Any],
    has_roots: bool,  # noqa: FBT001 - drawn
) -> None:
    """Byte by byte, with the same lines in the same messages."""
    python, fast = (filled(bounds_of[bounds], todo, is_fast=one, has_roots=has_roots) for one in (False, True))
    rules = seal_rules(bounds=python.bounds, **drawn)
    spans = {tp: (-10 * number, 10**9) for number, tp in enumerate(TPS)}
    objects = sealed(fast, rules, spans=spans)
    assert objects == sealed(python, rules, spans=spans)
    assert all(fast.spool.load(one.file) == python.spool.load(one.file) for one in objects)
