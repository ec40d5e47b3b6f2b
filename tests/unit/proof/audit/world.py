"""A small world without faults: a source, what a worker made of it, and the audit over both, in memory.

    app-0   0 two entries of ann · 1 bob · 2 not JSON · (3 a control record) · 4 ann and one without user
    app-1   0 ann, all kinds of fields · 1 ann, "mix" is a string now
    b1 covers app-0 [0, 2) and app-1 [0, 1); b2 covers app-0 [2, 5) and app-1 [1, 2)

Files with the same `pack` share an object; its message has a line for each of them. A test breaks something: in `files`
before they are built (messages then agree with the files), or in the messages and objects afterwards.
"""

from __future__ import annotations

import hashlib
import io
import json
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import fastavro
import msgspec

from log_partitioner.avro.pack_schema import merge, projection
from log_partitioner.avro.schema import schema_of
from log_partitioner.avro.schema_types import RecordType
from log_partitioner.config.s3_settings import S3Settings
from log_partitioner.config.settings import KafkaSettings, SchemaBounds, Settings
from log_partitioner.formats.dead_letter import DeadLetter, Reason, headers_of
from log_partitioner.formats.findings import Kind
from log_partitioner.formats.flush_record import (
    Adoption,
    BackfilledTopicPartition,
    BackfillRecord,
    BackfillTotals,
    FlushedTopicPartition,
    FlushRecord,
    FlushTotals,
    encode_adoption,
    encode_backfill_record,
    encode_flush_record,
)
from log_partitioner.formats.model import SKIPPED, SourceRecord, TopicPartition
from log_partitioner.formats.reference import (
    Checksum,
    CoveredRange,
    Line,
    ObjectPlace,
    ReferenceMessage,
    SchemaLocation,
    encode_message,
)
from log_partitioner.proof.audit.audit import Audit, Options
from log_partitioner.proof.audit.whose import Groups, of_group
from log_partitioner.proof.audit.window import FlushWindow
from log_partitioner_pipeline.row_type import type_of
from tests.fakes.check import BucketStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from log_partitioner.config.source_topics import SourceNames
    from log_partitioner.proof.audit.report import Report

APP_0, APP_1 = TopicPartition("app", 0), TopicPartition("app", 1)
GROUP = "log-partitioner"
EVERYTHING = FlushWindow()
TIMESTAMP_MS = 1_714_560_000_000  # 2024-05-01T10:40:00Z
HOUR_10 = 1_714_557_600_000_000
HOUR_11 = HOUR_10 + 3_600_000_000
MINUTE = 60_000_000
SYNC = b"0123456789abcdef"

_ROOT = {"type": "record", "name": "Root", "fields": [
    {"name": "topic", "type": "string"},
    {"name": "partition", "type": "int"},
    {"name": "offset", "type": "long"},
    {"name": "index", "type": ["null", "int"]},
]}  # fmt: skip
META = {"name": "_meta", "type": {"type": "record", "name": "Meta", "fields": [
    {"name": "user", "type": "string"},
    {"name": "event_time", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "id", "type": ["null", "string"]},
    {"name": "topic", "type": "string"},
    {"name": "partition", "type": "int"},
    {"name": "offset", "type": "long"},
    {"name": "index", "type": "int"},
    {"name": "timestamp", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "root", "type": ["null", _ROOT]},
]}}  # fmt: skip


def column(name: str, kind: Any, mark: str | None = None, original: str | None = None) -> dict[str, Any]:
    """Make a field of a row schema as the worker publishes it."""
    made = {"name": name, "type": ["null", kind], "default": None}
    made |= {} if mark is None else {"lp.type": mark}
    return made | ({} if original is None else {"lp.name": original})


def row_schema(*columns: dict[str, Any]) -> dict[str, Any]:
    """Make a row schema."""
    return {"type": "record", "name": "Row", "fields": [deepcopy(META), *columns]}


@dataclass
class Row:
    """A row; `values` are by Avro name, `user` goes into `_meta`."""

    tp: TopicPartition
    offset: int
    index: int
    event_time_us: int
    values: dict[str, Any]
    user: str | None = None
    id: str | None = None
    root: tuple[str, int, int, int | None] | None = None
    timestamp_ms: int = TIMESTAMP_MS


@dataclass
class File:
    """The data of one PartitionKey: an object of its own, or its part of a pack."""

    batch: str
    user: str
    hour: int
    columns: list[dict[str, Any]]
    rows: list[Row]
    pack: str | None = None

    @property
    def key(self) -> str:
        """The object's key."""
        if self.pack is not None:
            folder, slash, number = self.pack.rpartition("/")
            return f"logs/pack/{folder}{slash}{self.batch}-{number}.avro"
        return f"logs/user={self.user}/date=2024-05-01/hour={self.hour:02}/{self.batch}-0.avro"

    @property
    def entry_type(self) -> RecordType:
        """Its exact type."""
        return type_of(row_schema(*self.columns))


def rows_of(file: File) -> list[dict[str, Any]]:
    """Give the rows of a file as Avro has them."""
    return [
        {
            "_meta": {
                "user": row.user or file.user, "event_time": row.event_time_us, "id": row.id,
                "topic": row.tp.topic, "partition": row.tp.partition, "offset": row.offset,
                "index": row.index, "timestamp": row.timestamp_ms,
                "root": row.root and dict(zip(("topic", "partition", "offset", "index"), row.root, strict=True)),
            }
        } | row.values
        for row in file.rows
    ]  # fmt: skip


def merge_types(types: list[RecordType]) -> RecordType:
    """Merge the types of the files of a pack, as the worker does."""
    return reduce(merge, types)


def write_blocks(schema: dict[str, Any], files: list[File]) -> tuple[str, bytes, list[bytes]]:
    """Write files under one schema; give its text, the header, and the blocks of each file."""
    blocks = []
    for file in files:
        stream = io.BytesIO()
        fastavro.writer(stream, fastavro.parse_schema(schema), rows_of(file), codec="zstandard", sync_marker=SYNC)
        written = stream.getvalue()
        reader = fastavro.block_reader(io.BytesIO(written))
        header_bytes = next(reader).offset
        blocks.append(written[header_bytes:])
    return reader.metadata["avro.schema"], written[:header_bytes], blocks


def settings(**sections: Any) -> Settings:
    """Make settings; nothing is read from the environment."""
    kafka = {"bootstrap_servers": "nowhere:1", "source_topics": ("app",)} | sections.pop("kafka", {})
    return Settings(
        kafka=KafkaSettings(**kafka),
        s3=S3Settings(bucket="bucket"),
        **sections,
    )


def record(tp: TopicPartition, offset: int, value: object, **more: Any) -> SourceRecord:
    """Make a source record; `value` is bytes, None, or what becomes JSON."""
    data = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
    plain: dict[str, Any] = {
        "timestamp_ms": TIMESTAMP_MS,
        "key": b"k",
        "headers": (("trace", b"1"), ("none", None)),
    }
    return SourceRecord(tp=tp, offset=offset, value=data, **(plain | more))


@dataclass
class World:
    """Source, files and dead letters, from which messages and objects are built."""

    source: list[SourceRecord]
    files: list[File]
    dead: list[tuple[str, DeadLetter]]
    flushes: dict[str, dict[TopicPartition, tuple[int, int]]]
    committed: dict[TopicPartition, int | None]
    ends: dict[TopicPartition, int]
    merge: Callable[[list[RecordType]], RecordType] = field(default_factory=lambda: merge_types)
    alter: Callable[[RecordType], RecordType] = field(default_factory=lambda: lambda merged: merged)  # of a header
    messages: list[ReferenceMessage] = field(default_factory=list)
    keys: dict[int, bytes] = field(default_factory=dict)
    flush_records: list[FlushRecord] = field(default_factory=list)
    adoptions: list[Adoption] = field(default_factory=list)
    backfill_records: list[BackfillRecord] = field(default_factory=list)
    dead_letters: list[SourceRecord] = field(default_factory=list)
    objects: dict[str, bytes] = field(default_factory=dict)
    lows: dict[TopicPartition, int] = field(default_factory=dict)
    open_transactions: list[str] = field(default_factory=list)
    deleted: set[str] = field(default_factory=set)
    ended_at_ms: dict[str, int] = field(default_factory=dict)
    """When each flush ended, and its messages were written."""

    def build(self) -> World:
        """Write objects, references, flush records and dead letters."""
        groups: dict[str, list[File]] = {}
        for file in self.files:
            groups.setdefault(file.key, []).append(file)
        self.messages = [self._write(files) for files in groups.values()]
        numbers: dict[str, int] = {}
        for number, message in enumerate(self.messages):
            self.change_message(number, first_number=numbers.get(message.batch_id, 0))
            numbers[message.batch_id] = self.messages[number].first_number + len(message.references)
        self.dead_letters = [
            letter.record._replace(headers=tuple(headers_of(letter, batch_id=batch, group_id=GROUP)))
            for batch, letter in self.dead
        ]
        self.flush_records = [self._flush(batch, ranges) for batch, ranges in self.flushes.items()]
        return self

    def audit(
        self,
        *,
        caught_up: bool = True,
        bounds: SchemaBounds = Settings.schema_bounds,
        window: FlushWindow = EVERYTHING,
        **sections: Any,
    ) -> Report:
        """Run the audit over it."""
        options = Options(require_caught_up=caught_up, threads=2, window=window)
        topics, groups = MemoryTopics(self), Groups()
        asked = settings(**sections).model_copy(update={"schema_bounds": bounds})
        groups.read_on(topics, asked.kafka.flushes_topic)
        lineage = groups.lineage(asked.kafka)
        asked = of_group(asked, lineage.group_id)
        return Audit(asked, options, topics, BucketStore(self.objects).get, lineage).run()

    def change_file(self, number: int, **changes: Any) -> None:
        """Put other values into a file."""
        self.files[number] = replace(self.files[number], **changes)

    def change_row(self, number: int, **changes: Any) -> None:
        """Put other values into the first row of a file."""
        rows = self.files[number].rows
        rows[0] = replace(rows[0], **changes)

    def add_row(self, number: int, row: Row, **changes: Any) -> None:
        """Append a row to a file: another one with other values."""
        self.files[number].rows.append(replace(row, **changes))

    def change_dead(self, number: int, **changes: Any) -> None:
        """Put other values into what is written as a dead letter."""
        batch, letter = self.dead[number]
        self.dead[number] = (batch, letter._replace(**changes))

    def change_letter(self, number: int, **changes: Any) -> None:
        """Put other values into a dead letter as it is published."""
        self.dead_letters[number] = self.dead_letters[number]._replace(**changes)

    def add_message(self, number: int, **changes: Any) -> None:
        """Publish a message of references once more, with other values."""
        self.messages.append(msgspec.structs.replace(self.messages[number], **changes))

    def change_message(self, number: int, **changes: Any) -> None:
        """Put other values into a message of references."""
        self.messages[number] = msgspec.structs.replace(self.messages[number], **changes)

    def change_object(self, number: int, **changes: Any) -> None:
        """Put other values into what a message says of its object."""
        self.change_message(number, object=msgspec.structs.replace(self.messages[number].object, **changes))

    def change_line(self, number: int, line: int = 0, **changes: Any) -> None:
        """Put other values into a line of a message."""
        lines = list(self.messages[number].references)
        lines[line] = msgspec.structs.replace(lines[line], **changes)
        self.change_message(number, references=tuple(lines))

    def drop_line(self, number: int, line: int) -> None:
        """Take a line out of a message; the numbers of those before it stay."""
        lines = self.messages[number].references
        self.change_message(number, references=lines[:line] + lines[line + 1 :])

    def split_message(self, number: int, at: int) -> None:
        """Announce the lines from this one on in a message of their own."""
        message = self.messages[number]
        lines = message.references
        further = {"first_number": message.first_number + at, "references": lines[at:]}
        self.messages.insert(number + 1, msgspec.structs.replace(message, **further))
        self.change_message(number, references=lines[:at])

    def split_flush(self, number: int) -> None:
        """Give a flush record of two TopicPartitions in two parts."""
        whole = self.flush_records[number]
        self.flush_records[number : number + 1] = [
            msgspec.structs.replace(whole, part=part, parts=2, topic_partitions=(line,))
            for part, line in enumerate(whole.topic_partitions, 1)
        ]

    def change_flushed(self, number: int, tp: TopicPartition, **changes: Any) -> None:
        """Put other values into a line of a flush record."""
        flush = self.flush_records[number]
        lines = tuple(
            msgspec.structs.replace(line, **changes) if (line.topic, line.partition) == tp else line
            for line in flush.topic_partitions
        )
        self.flush_records[number] = msgspec.structs.replace(flush, topic_partitions=lines)

    def change_column(self, number: int, name: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Put another column into a file's schema."""
        file = self.files[number]
        file.columns = [change(dict(one)) if one["name"] == name else one for one in file.columns]

    def drop_column(self, number: int, name: str) -> None:
        """Take a column out of a file's schema."""
        file = self.files[number]
        file.columns = [one for one in file.columns if one["name"] != name]

    def _write(self, files: list[File]) -> ReferenceMessage:
        """Write an object and its schema, and the message that announces it."""
        types = [file.entry_type for file in files]
        merged, schema = types[0], row_schema(*files[0].columns)
        if files[0].pack is not None:
            merged = self.merge(types)
            schema = schema_of(self.alter(merged))
        text, header, blocks = write_blocks(schema, files)
        data = header + b"".join(blocks)
        fingerprint = hashlib.sha256(text.encode()).hexdigest()
        self.objects[files[0].key] = data
        self.objects[f"logs/schemas/{fingerprint}.avsc"] = text.encode()
        batch = files[0].batch
        tps = sorted({row.tp for file in files for row in file.rows})
        projections = [None if files[0].pack is None else projection(own, merged) for own in types]
        starts = [len(header) + sum(map(len, blocks[:number])) for number in range(len(files))]
        return ReferenceMessage(
            batch_id=batch,
            group_id=GROUP,
            worker="w",
            generation=1,
            first_number=0,
            object=ObjectPlace(
                bucket="bucket", key=files[0].key, etag=None, version_id=None, size=len(data),
                checksum=Checksum("sha256", hashlib.sha256(data).hexdigest()), header_bytes=len(header),
            ),
            schema=SchemaLocation(fingerprint, f"logs/schemas/{fingerprint}.avsc", text),
            sources=tuple(CoveredRange(*tp, *self.flushes[batch][tp]) for tp in tps),
            event_time_us=HOUR_10,
            hours=tuple(("2024-05-01", file.hour) for file in files),
            schemas=tuple(projections),
            references=tuple(
                Line(
                    user=file.user,
                    hour=number,
                    entries=len(file.rows),
                    event_time_us=min(row.event_time_us for row in file.rows) - HOUR_10,
                    event_time_span_us=max(row.event_time_us for row in file.rows)
                    - min(row.event_time_us for row in file.rows),
                    schema=number,
                    start=starts[number],
                    length=len(blocks[number]),
                    sources=self._sources(file, tps),
                )
                for number, file in enumerate(files)
            ),
        )  # fmt: skip

    def _sources(self, file: File, tps: list[TopicPartition]) -> tuple[int, ...]:
        numbers: list[int] = []
        for tp in sorted({row.tp for row in file.rows}):
            offsets = [row.offset for row in file.rows if row.tp == tp]
            first = self.flushes[file.batch][tp][0]
            numbers += (tps.index(tp), min(offsets) - first, max(offsets) - min(offsets), len(offsets))
        return tuple(numbers)

    def _flush(self, batch: str, ranges: dict[TopicPartition, tuple[int, int]]) -> FlushRecord:
        lines = []
        for tp, (first, end) in ranges.items():
            here = [one for one in self.source if one.tp == tp and first <= one.offset < end]
            rows = sum(1 for file in self.files if file.batch == batch for row in file.rows if row.tp == tp)
            dead = sum(letter.entries for name, letter in self.dead if name == batch and letter.record.tp == tp)
            lines.append(
                FlushedTopicPartition(
                    topic=tp.topic, partition=tp.partition, first_offset=first, next_offset=end,
                    min_offset=min((one.offset for one in here), default=None),
                    max_offset=max((one.offset for one in here), default=None),
                    timestamp_max_ms=max((one.timestamp_ms or 0 for one in here), default=None), idle_since_ms=None,
                    records=len(here), entries=rows + dead, dead_letters=dead,
                )
            )  # fmt: skip
        totals = FlushTotals(
            records=sum(line.records for line in lines),
            entries=sum(line.entries for line in lines),
            entries_in_files=sum(line.entries - line.dead_letters for line in lines),
            dead_letters=sum(line.dead_letters for line in lines),
            dead_letter_records=sum(1 for name, _ in self.dead if name == batch),
            references=sum(1 for file in self.files if file.batch == batch),
            bytes=0,
        )
        return FlushRecord(
            batch_id=batch, group_id=GROUP, topic_ids={"app": "id"},
            worker="w", boot="x", seq=1, generation=1, reason="interval", started_at_ms=0,
            ended_at_ms=self.ended_at_ms.get(batch, 1), step_seconds={}, topic_partitions=tuple(lines), totals=totals,
        )  # fmt: skip


class MemoryTopics:
    """The topics of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        output = {
            "references": [encode_message(one) for one in world.messages],
            "flushes": [*map(encode_adoption, world.adoptions), *map(encode_flush_record, world.flush_records)],
            "backfills": [encode_backfill_record(one) for one in world.backfill_records],
        }
        keys = {number: one.batch_id.encode() for number, one in enumerate(world.messages)} | world.keys
        self._messages: dict[TopicPartition, list[SourceRecord]]
        self._messages = {TopicPartition("app", 0): [], TopicPartition("app", 1): []} | {
            TopicPartition(topic, 0): [
                record(
                    TopicPartition(topic, 0),
                    number,
                    value,
                    key=keys.get(number) if topic == "references" else b"k",
                    timestamp_ms=world.ended_at_ms.get(_batch_of(value), TIMESTAMP_MS),
                )
                for number, value in enumerate(values)
            ]
            for topic, values in output.items()
        }
        for one in world.source:
            self._messages.setdefault(one.tp, []).append(one)
        tp = TopicPartition("dead-letters", 0)
        self._messages[tp] = [
            one._replace(tp=tp, offset=number, unreadable=None, timestamp_ms=_written_ms(world, one))
            for number, one in enumerate(world.dead_letters)
        ]
        for tp in [tp for tp in self._messages if tp.topic in world.deleted]:
            del self._messages[tp]

    def topic_partitions(self, topic: str, *, may_be_absent: bool = False) -> list[TopicPartition]:
        """List the TopicPartitions of a topic; a missing topic has none."""
        del may_be_absent
        return [tp for tp in self._messages if tp.topic == topic]

    def source_topic_partitions(self, sources: SourceNames) -> list[TopicPartition]:
        """List the TopicPartitions of the source topics that there are."""
        topics = sources.among({tp.topic for tp in self._messages})
        return [tp for topic in topics for tp in self.topic_partitions(topic)]

    def ends(self, tp: TopicPartition) -> tuple[int, int]:
        """Give low and high watermark."""
        return self._world.lows.get(tp, 0), self._world.ends.get(tp, len(self._messages[tp]))

    def settled(self, tps: Iterable[TopicPartition]) -> tuple[dict[TopicPartition, tuple[int, int]], list[str]]:
        """Give the same: no transaction is open, if the world does not say so."""
        return {tp: self.ends(tp) for tp in tps}, self._world.open_transactions

    def committed(self, tps: list[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Give the group's offsets."""
        return {tp: self._world.committed.get(tp) for tp in tps}

    def offsets_at(self, tps: Iterable[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int | None]:
        """Find the first messages of this time or later."""
        return {
            tp: next((one.offset for one in self._messages[tp] if (one.timestamp_ms or 0) >= timestamp_ms), None)
            for tp in tps
        }

    def read(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> Iterator[SourceRecord]:
        """Yield messages."""
        for tp, (first, end) in ranges.items():
            for one in self._messages[tp] if first < end else ():
                if first <= one.offset < end and one.unreadable != SKIPPED:
                    yield one


def _written_ms(world: World, letter: SourceRecord) -> int:
    batches = [text or b"" for name, text in letter.headers if name == "lp-batch-id"]
    return world.ended_at_ms.get(batches[-1].decode() if batches else "", TIMESTAMP_MS)


def _batch_of(value: bytes) -> str:
    told: str = json.loads(value).get("batch_id", "")
    return told


def clean_world() -> World:
    """Give a world in which everything is right; not built yet."""
    source = [
        record(APP_0, 0, [
            {"user": "ann", "time": "2024-05-01T10:00:00Z", "n": 1, "tags": ["x"]},
            {"user": "ann", "time": "2024-05-01T10:30:00Z", "n": 2.5},
        ]),
        record(APP_0, 1, {"user": "bob", "time": "2024-05-01T10:01:00Z", "ok": True}),
        record(APP_0, 2, b"not JSON"),
        record(APP_0, 4, [{"user": "ann", "time": "2024-05-01T10:45:00Z", "n": 3}, {"nobody": 1}]),
        record(APP_1, 0, b'{"user":"ann","time":"2024-05-01T11:00:00Z","a-b":{"x":1,"x":5.0},"empty":{},'
                         b'"nothing":null,"big":1152921504606846976,"mix":1,"none":[]}'),
        record(APP_1, 1, {"user": "ann", "time": "2024-05-01T11:01:00Z", "mix": "s"}),
    ]  # fmt: skip
    common = [column("user", "string"), column("time", "string")]
    nested = {"type": "record", "name": "a_x2Db", "fields": [column("x", "double")]}
    files = [
        File("b1", "ann", 10, [
            *common, column("n", "double"), column("tags", {"type": "array", "items": ["null", "string"]}),
        ], [
            Row(APP_0, 0, 0, HOUR_10, {
                "user": "ann", "time": "2024-05-01T10:00:00Z", "n": 1.0, "tags": ["x"],
            }),
            Row(APP_0, 0, 1, HOUR_10 + 30 * MINUTE, {
                "user": "ann", "time": "2024-05-01T10:30:00Z", "n": 2.5,
            }),
        ]),
        File("b1", "bob", 10, [*common, column("ok", "boolean")], [
            Row(APP_0, 1, 0, HOUR_10 + MINUTE, {"user": "bob", "time": "2024-05-01T10:01:00Z", "ok": True}),
        ]),
        File("b1", "ann", 11, [
            *common, column("a_x2Db", nested, original="a-b"), column("empty", _empty(), "empty-object"),
            column("nothing", "string", "null"), column("big", "long"), column("mix", "long", "long53"),
            column("none", {"type": "array", "items": ["null", {"type": "string", "lp.type": "null"}]}),
        ], [
            Row(APP_1, 0, 0, HOUR_11, {
                "user": "ann", "time": "2024-05-01T11:00:00Z", "a_x2Db": {"x": 5.0}, "empty": {},
                "big": 1 << 60, "mix": 1, "none": [],
            }),
        ]),
        File("b2", "ann", 10, [*common, column("n", "long", "long53")], [
            Row(APP_0, 4, 0, HOUR_10 + 45 * MINUTE, {"user": "ann", "time": "2024-05-01T10:45:00Z", "n": 3}),
        ]),
        File("b2", "ann", 11, [*common, column("mix", "string")], [
            Row(APP_1, 1, 0, HOUR_11 + MINUTE, {"user": "ann", "time": "2024-05-01T11:01:00Z", "mix": "s"}),
        ]),
    ]  # fmt: skip
    dead = [
        ("b2", DeadLetter(source[2], Reason.MALFORMED, "not JSON", None)),
        ("b2", DeadLetter(source[3], Reason.NO_USER, "no user", (1,))),
    ]
    flushes = {"b1": {APP_0: (0, 2), APP_1: (0, 1)}, "b2": {APP_0: (2, 5), APP_1: (1, 2)}}
    ends = {APP_0: 5, APP_1: 2}
    return World(source, files, dead, flushes, dict(ends), ends)


def packed_world() -> World:
    """Give the same with a pack for each batch; not built yet."""
    world = clean_world()
    for file in world.files:
        file.pack = "0"
    return world


def _empty() -> dict[str, Any]:
    return {"type": "map", "values": ["null", "string"]}


BACKFILL = "backfill-1"
OF_A_BACKFILL: dict[str, Any] = {"batch_id": BACKFILL, "worker": "backfill", "generation": 0}


def ran(
    tp: TopicPartition, next_offset: int, *, entries: int, first_offset: int = 0, dead_letters: int = 0,
    published: int = 1, messages: int = 1, references: int = 1,
) -> BackfillRecord:  # fmt: skip
    """Make the record of a backfill of one TopicPartition."""
    line = BackfilledTopicPartition(
        topic=tp.topic, partition=tp.partition, first_offset=first_offset, next_offset=next_offset,
        entries_in_files=entries, dead_letters=dead_letters,
    )  # fmt: skip
    totals = BackfillTotals(
        references=references, entries_in_files=entries, dead_letters=dead_letters,
        dead_letter_records=dead_letters, bytes=0,
    )  # fmt: skip
    return BackfillRecord(
        **OF_A_BACKFILL, group_id=GROUP, started_at_ms=0, committed_at_ms=1, outbox="",
        published=published, messages=messages, topic_partitions=(line,), totals=totals,
    )  # fmt: skip


def kinds(report: Report) -> set[Kind]:
    """Give the kinds that are found."""
    return {kind for kind, count in report.findings.counts.items() if count}
