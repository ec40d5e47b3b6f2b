"""Everything that a worker has delivered, as a copy that faults are planted into.

A fault is a function that changes a `Delivered` and gives what the audit must say of it: `Expected`. Each takes
references that no other has touched, so that all of them can be in one copy: `FAULTS` if each reference has an object
of its own, `PACK_FAULTS` if the references of a flush share one.
"""

import dataclasses
import hashlib
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import fastavro
from confluent_kafka import Message
from msgspec.structs import replace

from log_partitioner.avro.container import SYNC_BYTES, block, compressor, header
from log_partitioner.formats.findings import Kind
from log_partitioner.formats.flush_record import FlushedTopicPartition, FlushRecord, encode_flush_record, merge_parts
from log_partitioner.formats.reference import (
    Checksum,
    Reference,
    ReferenceMessage,
    SourceRange,
    encode_message,
)
from log_partitioner.proof.oracle.container import Container
from log_partitioner_pipeline.audit.result import Example, Result
from tests.pipeline.packs import messages_of
from tests.pipeline.readback import read_rows
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper

Row = dict[str, Any]
_SYNC = b"\x5a" * SYNC_BYTES
_HOUR_US = 3_600_000_000


class Delivery(Protocol):
    """The output of a deployment."""

    kafka: KafkaHelper
    s3: S3Helper
    bucket: str

    def references(self) -> list[Reference]:
        """All references."""

    def flush_records(self) -> list[FlushRecord]:
        """All flush records, or their parts."""

    def dead_letters(self) -> list[Message]:
        """All dead letters."""


class Expected(NamedTuple):
    """One finding: its kind, what it names, and the offsets that it reaches over, as (partition, first, last).

    Without offsets it is found in full audits only.
    """

    kind: Kind
    what: tuple[object, ...]
    reach: tuple[tuple[int, int, int], ...] = ()
    count: int = 1


def named_by(kind: Kind, example: Example) -> tuple[object, ...]:
    """Give what an example names, as `Expected.what` does."""
    if kind.startswith("object"):
        return (example.object,)
    if kind is Kind.REFERENCE_MISSING:
        return (example.batch_id,)
    if kind.startswith("reference"):
        return (example.reference_id or example.batch_id,)
    if kind.startswith("flush"):
        return (example.partition, example.offset)
    return (example.partition, example.offset, example.index)


def found(result: Result) -> Counter[tuple[Kind, tuple[object, ...]]]:
    """Count the audit's findings by kind and by the thing that they name."""
    named: Counter[tuple[Kind, tuple[object, ...]]] = Counter()
    for finding in result.findings:
        assert sum(one.count for one in finding.examples) == finding.count
        for example in finding.examples:
            named[finding.kind, named_by(finding.kind, example)] += example.count
    return named


def wanted(expected: list[Expected]) -> Counter[tuple[Kind, tuple[object, ...]]]:
    """Count the findings that the audit must have."""
    named: Counter[tuple[Kind, tuple[object, ...]]] = Counter()
    for one in expected:
        named[one.kind, one.what] += one.count
    return named


def differences(result: Result, expected: list[Expected]) -> tuple[dict[object, int], dict[object, int]]:
    """Name what the audit names too much, and too little."""
    named, told = found(result), wanted(expected)
    return dict(named - told), dict(told - named)


class Place(NamedTuple):
    """An entry, and the offsets that it reaches over."""

    what: tuple[int, int, int]
    reach: tuple[tuple[int, int, int], ...]


class Delivered:
    """References, flush records, dead letters, objects; `publish` writes them to topics and a bucket of their own."""

    def __init__(self, deployment: Delivery) -> None:
        self._deployment = deployment
        self.references = {one.reference_id: one for one in deployment.references()}
        self.again: list[Reference] = []
        self.without_checksum: set[str] = set()
        self.flushes = merge_parts(deployment.flush_records())[0]
        self.letters = [
            ToProduce(value=one.value(), key=one.key(), headers=dict(one.headers() or []))  # type: ignore[arg-type]
            for one in deployment.dead_letters()
        ]
        s3, bucket = deployment.s3, deployment.bucket
        self.objects = {key: s3.read(bucket, key) for key in s3.keys(bucket)}
        self._header_bytes = {
            key: Container(data).header_bytes for key, data in self.objects.items() if key.endswith(".avro")
        }
        self._free = sorted(self.references.values(), key=lambda one: one.location.object)

    def publish(self, names: Names) -> dict[str, str]:
        """Write everything; gives the settings of who audits it."""
        s3, kafka = self._deployment.s3, self._deployment.kafka
        bucket = s3.create_bucket(names.bucket())
        for key, data in self.objects.items():
            s3.client.put_object(Bucket=bucket, Key=key, Body=data)
        said = (self.references.values(), self.again)
        messages = [message for some in said for message in messages_of(some, self._header_bytes)]
        written = {
            "REFERENCES_TOPIC": [
                ToProduce(
                    key=one.batch_id.encode(),
                    value=self._encoded(replace(one, object=replace(one.object, bucket=bucket))),
                )
                for one in messages
            ],
            "FLUSHES_TOPIC": [ToProduce(value=encode_flush_record(one)) for one in self.flushes],
            "DEAD_LETTERS_TOPIC": self.letters,
        }
        variables = {"LOGP_S3__BUCKET": bucket, "PIPELINE_AUDIT__UNREFERENCED_AGE_S": "0"}
        for setting, records in written.items():
            topic = kafka.create_topic(names.topic(setting.partition("_")[0].lower()), partitions=1)
            kafka.produce(topic, records)
            variables[f"LOGP_KAFKA__{setting}"] = topic
        return variables

    def _encoded(self, message: ReferenceMessage) -> bytes:
        value = encode_message(message)
        if f"{message.batch_id}-{message.first_number}" not in self.without_checksum:
            return value
        fields = json.loads(value)
        del fields["object"]["checksum"]
        return json.dumps(fields).encode()

    def of_group(self, group: str) -> None:
        """Let another group have published everything."""
        self.flushes = [replace(one, group_id=group) for one in self.flushes]
        self.references = {name: replace(one, group_id=group) for name, one in self.references.items()}
        for letter in self.letters:
            letter.headers["lp-group-id"] = group.encode()

    def batch(self, number: int) -> str:
        """The batch id of the n-th flush."""
        return self.flushes[number].batch_id

    def take(self, **wanted: object) -> Reference:
        """Give a reference that no fault has had yet.

        By choice it is of a batch (`batch_id`), holds an entry (`place`), is not of a user (`other_user`), or lacks
        fields of its object (`is_projected`).
        """

        def fits(one: Reference) -> bool:
            if "batch_id" in wanted and one.batch_id != wanted["batch_id"]:
                return False
            if one.partition_key.user == wanted.get("other_user"):
                return False
            if "is_projected" in wanted and one.projection is None:
                return False
            return "place" not in wanted or wanted["place"] in places(self.rows_of(one))

        found = next(one for one in self._free if fits(one))
        self._free.remove(found)
        return found

    def rows_of(self, reference: Reference) -> list[Row]:
        """Read a reference's rows: its byte ranges together are a file."""
        data = self.objects[reference.location.object]
        content = b"".join(data[start : start + length] for start, length in reference.location.ranges)
        return read_rows(content, reference.location.object)[0]

    def line_of(self, place: tuple[int, int, int]) -> Expected:
        """Expect of the flush record that covers an entry that it counts others."""
        partition, offset, _ = place
        lines = [line for flush in self.flushes for line in flush.topic_partitions if line.partition == partition]
        return _of_line(next(line for line in lines if line.first_offset <= offset < line.next_offset))

    def beside(self, reference: Reference) -> list[Reference]:
        """Give the references into the same object, in the order of its bytes; no other fault takes them."""
        theirs = [one for one in self.references.values() if one.location.object == reference.location.object]
        self._free = [one for one in self._free if one not in theirs]
        return sorted(theirs, key=lambda one: one.location.ranges[-1][0])

    def move(self, key: str, to: str) -> None:
        """Let an object have another key."""
        self.objects[to] = self.objects.pop(key)
        self._header_bytes[to] = self._header_bytes[key]

    def put(self, reference: Reference, **changed: Any) -> None:
        """Let a reference say something else."""
        self.references[reference.reference_id] = replace(self.references[reference.reference_id], **changed)

    def rewrite(self, reference: Reference, rows: list[Row]) -> None:
        """Let an object have these rows, and its reference be true to it."""
        key = reference.location.object
        text = read_rows(self.objects[key], key)[1]
        schema = fastavro.parse_schema(json.loads(text))
        data = io.BytesIO()
        for row in rows:
            fastavro.schemaless_writer(data, schema, row)
        head = header(text, codec="null", sync=_SYNC, metadata={})
        content = head + block(len(rows), data.getvalue(), compress=compressor("null"), sync=_SYNC)
        self._header_bytes[key] = len(head)
        times = [row["_meta"]["event_time"] for row in rows]
        self.objects[key] = content
        self.state(
            reference,
            entries=len(rows),
            event_time_min_us=min(times),
            event_time_max_us=max(times),
            sources=tuple(sources(reference, rows)),
        )

    def state(self, reference: Reference, **changed: Any) -> None:
        """Let a reference be true to the bytes of its object, and say this besides."""
        content = self.objects[reference.location.object]
        location = replace(
            reference.location,
            size=len(content),
            checksum=Checksum("sha256", hashlib.sha256(content).hexdigest()),
            etag=None,
            ranges=((0, len(content)),),
        )
        self.put(reference, location=location, **changed)


def sources(reference: Reference, rows: list[Row]) -> Iterable[SourceRange]:
    """Count the rows of each TopicPartition."""
    for one in reference.sources:
        offsets = [row["_meta"]["offset"] for row in rows if row["_meta"]["partition"] == one.partition]
        if offsets:
            yield replace(one, min_offset=min(offsets), max_offset=max(offsets), entries=len(offsets))


def places(rows: Iterable[Row]) -> list[tuple[int, int, int]]:
    """Give (partition, offset, index) of rows."""
    return [(row["_meta"]["partition"], row["_meta"]["offset"], row["_meta"]["index"]) for row in rows]


def entries(kind: Kind, rows: Iterable[Row]) -> list[Expected]:
    """Expect this of each of these entries."""
    return [Expected(kind, place, ((place[0], place[1], place[1]),)) for place in places(rows)]


def reach_of(reference: Reference) -> tuple[tuple[int, int, int], ...]:
    """The offsets of a reference's entries."""
    return tuple((one.partition, one.min_offset, one.max_offset) for one in reference.sources)


def covered_by(flush: FlushRecord) -> tuple[tuple[int, int, int], ...]:
    """The offsets that a flush record covers."""
    return tuple(
        (one.partition, one.first_offset, one.next_offset - 1)
        for one in flush.topic_partitions
        if one.first_offset < one.next_offset
    )


# References.


def drop_a_reference(world: Delivered) -> list[Expected]:
    one = world.take(batch_id=world.batch(0))
    del world.references[one.reference_id]
    return [
        *entries(Kind.MISSING, world.rows_of(one)),
        Expected(Kind.REFERENCE_MISSING, (one.batch_id,), covered_by(world.flushes[0])),
        Expected(Kind.OBJECT_UNREFERENCED, (one.location.object,)),
    ]


def announce_data_twice(world: Delivered) -> list[Expected]:
    one = world.take(batch_id=world.batch(1))
    another = f"{one.batch_id}-9999"
    world.again.append(replace(one, reference_id=another))
    return [
        *entries(Kind.DUPLICATED, world.rows_of(one)),
        Expected(Kind.REFERENCE_WRONG, (one.batch_id,), covered_by(world.flushes[1])),
        Expected(Kind.REFERENCE_WRONG, (one.reference_id,), reach_of(one)),  # its bytes are referenced twice
        Expected(Kind.REFERENCE_WRONG, (another,), reach_of(one), len(one.sources)),  # rows stand after later ones
    ]


def repeat_a_reference(world: Delivered) -> list[Expected]:
    one = world.take()
    world.again.append(one)
    return [
        *entries(Kind.DUPLICATED, world.rows_of(one)),
        Expected(Kind.REFERENCE_DUPLICATED, (one.reference_id,), reach_of(one)),
        Expected(Kind.REFERENCE_WRONG, (one.reference_id,), reach_of(one), 1 + len(one.sources)),
    ]


def state_another_hour(world: Delivered) -> list[Expected]:
    one = world.take()
    world.put(one, partition_key=one.partition_key._replace(hour=(one.partition_key.hour + 1) % 24))
    return [
        *entries(Kind.MISPLACED, world.rows_of(one)),
        Expected(Kind.REFERENCE_WRONG, (one.reference_id,), reach_of(one)),
    ]


def state_another_user(world: Delivered) -> list[Expected]:
    one = world.take()
    world.put(one, partition_key=one.partition_key._replace(user="somebody else"))
    return [
        *entries(Kind.MISPLACED, world.rows_of(one)),
        Expected(Kind.REFERENCE_WRONG, (one.reference_id,), reach_of(one)),
    ]


def state_more_entries(world: Delivered) -> list[Expected]:
    one = world.take()
    world.put(one, entries=one.entries + 1)
    return [Expected(Kind.REFERENCE_WRONG, (one.reference_id,), reach_of(one))]


def state_too_long_a_range(world: Delivered) -> list[Expected]:
    one = world.take()
    rows = world.rows_of(one)
    world.put(one, location=replace(one.location, ranges=((0, one.location.size + 1),)))
    return [*entries(Kind.MISSING, rows), Expected(Kind.REFERENCE_WRONG, (one.reference_id,), reach_of(one))]


def put_it_under_another_key(world: Delivered) -> list[Expected]:
    one = world.take()
    key = one.location.object.replace("/user=", "/user=another-")
    world.move(one.location.object, key)
    world.put(one, location=replace(one.location, object=key))
    return [Expected(Kind.REFERENCE_WRONG, (one.reference_id,), reach_of(one))]


def state_another_schema(world: Delivered) -> list[Expected]:
    one = world.take()
    world.put(one, schema=replace(one.schema, fingerprint="0" * 64))
    with_text = [Expected(Kind.REFERENCE_WRONG, (one.batch_id,), reach_of(one))] if one.schema.text else []
    return [
        *with_text,
        Expected(Kind.REFERENCE_WRONG, (one.reference_id,), reach_of(one)),
        Expected(Kind.OBJECT_ALTERED, (one.schema.object,), reach_of(one)),
    ]


def state_another_checksum(world: Delivered) -> list[Expected]:
    one = world.take()
    world.put(one, location=replace(one.location, checksum=Checksum("sha256", "0" * 64)))
    return [Expected(Kind.OBJECT_ALTERED, (one.location.object,), reach_of(one))]


def omit_the_checksum(world: Delivered) -> list[Expected]:
    """Announce a reference in a message that no reader can decode; the others tell its batch and its entries."""
    one = world.take(batch_id=world.batch(0))
    world.without_checksum.add(one.reference_id)
    return [
        *entries(Kind.MISSING, world.rows_of(one)),
        Expected(Kind.REFERENCE_WRONG, (None,)),
        Expected(Kind.REFERENCE_MISSING, (one.batch_id,), covered_by(world.flushes[0])),
        Expected(Kind.OBJECT_UNREFERENCED, (one.location.object,)),
    ]


# Objects.


def delete_an_object(world: Delivered) -> list[Expected]:
    one = world.take()
    rows = world.rows_of(one)
    del world.objects[one.location.object]
    return [
        *entries(Kind.MISSING, rows),
        Expected(Kind.OBJECT_MISSING, (one.location.object,), reach_of(one)),
    ]


def cut_an_object(world: Delivered) -> list[Expected]:
    one = world.take()
    rows = world.rows_of(one)
    world.objects[one.location.object] = world.objects[one.location.object][:-40]
    return [
        *entries(Kind.MISSING, rows),
        Expected(Kind.OBJECT_ALTERED, (one.location.object,), reach_of(one)),
    ]


def put_something_else(world: Delivered) -> list[Expected]:
    one = world.take()
    rows = world.rows_of(one)
    world.objects[one.location.object] = b"no Avro at all".ljust(one.location.size, b"!")
    world.state(one)
    return [
        *entries(Kind.MISSING, rows),
        Expected(Kind.OBJECT_UNREADABLE, (one.location.object,), reach_of(one)),
    ]


def leave_an_object(world: Delivered) -> list[Expected]:
    key = min(key for key in world.objects if "/user=" in key).rpartition("/")[0] + "/stray.avro"  # not the table's
    world.objects[key] = b"of a batch that was discarded"
    return [Expected(Kind.OBJECT_UNREFERENCED, (key,))]


# Rows in objects, under references that are true to them.


def delete_the_row(world: Delivered, place: tuple[int, int, int]) -> list[Expected]:
    one = world.take(place=place)
    rows = world.rows_of(one)
    gone = rows.pop(places(rows).index(place))
    world.rewrite(one, rows)
    return entries(Kind.MISSING, [gone])


def delete_a_row(world: Delivered) -> list[Expected]:
    one = world.take()
    *rest, gone = world.rows_of(one)
    world.rewrite(one, rest)
    return entries(Kind.MISSING, [gone])


def repeat_a_row(world: Delivered) -> list[Expected]:
    one = world.take()
    rows = world.rows_of(one)
    world.rewrite(one, [rows[0], *rows])
    is_after = Expected(Kind.REFERENCE_WRONG, (one.reference_id,), reach_of(one))
    return [*entries(Kind.DUPLICATED, rows[:1]), is_after]


def move_a_row(world: Delivered) -> list[Expected]:
    one = world.take()
    other = world.take(batch_id=one.batch_id, other_user=one.partition_key.user)
    moved, *rest = world.rows_of(one)
    world.rewrite(one, rest)
    rows = sorted([moved, *world.rows_of(other)], key=lambda row: (row["_meta"]["partition"], row["_meta"]["offset"]))
    world.rewrite(other, rows)
    return entries(Kind.MISPLACED, [moved])


def alter_a_value(world: Delivered) -> list[Expected]:
    one = world.take()
    rows = world.rows_of(one)
    rows[1]["x"]["y"] = [*rows[1]["x"]["y"], 0]
    world.rewrite(one, rows)
    return entries(Kind.ALTERED, rows[1:2])


def drop_a_value(world: Delivered) -> list[Expected]:
    one = world.take()
    rows = world.rows_of(one)
    rows[-1]["x"] = None
    world.rewrite(one, rows)
    return entries(Kind.ALTERED, rows[-1:])


def alter_an_event_time(world: Delivered) -> list[Expected]:
    one = world.take()
    rows = world.rows_of(one)
    time_us = rows[0]["_meta"]["event_time"]
    rows[0]["_meta"]["event_time"] = time_us + (1 if (time_us + 1) // _HOUR_US == time_us // _HOUR_US else -1)
    world.rewrite(one, rows)
    return entries(Kind.META, rows[:1])


def alter_an_id(world: Delivered) -> list[Expected]:
    one = world.take()
    rows = world.rows_of(one)
    rows[0]["_meta"]["id"] = "another"
    world.rewrite(one, rows)
    return entries(Kind.META, rows[:1])


def invent_a_row(world: Delivered) -> list[Expected]:
    one = world.take()
    rows = world.rows_of(one)
    invented = rows[-1] | {"_meta": rows[-1]["_meta"] | {"index": 9}}
    world.rewrite(one, [*rows, invented])
    return entries(Kind.UNEXPECTED, [invented])


# Dead letters.


def drop_a_dead_letter(world: Delivered) -> list[Expected]:
    named = _named(world.letters.pop(0))
    return [*_of_letters(Kind.DEAD_LETTER_MISSING, named), world.line_of(named[0].what)]


def repeat_a_dead_letter(world: Delivered) -> list[Expected]:
    letter = world.letters[1]
    world.letters.append(letter)
    named = _named(letter)
    wrong = Expected(Kind.DEAD_LETTER_WRONG, (*named[0].what[:2], None), named[0].reach)
    return [*_of_letters(Kind.DEAD_LETTER_DUPLICATED, named), wrong, world.line_of(named[0].what)]


def alter_a_dead_letter(world: Delivered) -> list[Expected]:
    letter = world.letters[2]
    world.letters[2] = dataclasses.replace(letter, value=b"{}")
    place = _named(letter)[0]
    return [Expected(Kind.DEAD_LETTER_WRONG, (*place.what[:2], None), place.reach)]


def _of_letters(kind: Kind, named: list[Place]) -> list[Expected]:
    return [Expected(kind, place.what, place.reach) for place in named]


def _named(letter: ToProduce) -> list[Place]:
    says = {name: value.decode() for name, value in letter.headers.items()}
    partition, offset = int(says["lp-partition"]), int(says["lp-offset"])
    indexes = (int(text) for text in says["lp-indexes"].split(","))
    return [Place((partition, offset, index), ((partition, offset, offset),)) for index in indexes]


# Flush records.


def drop_a_flush_record(world: Delivered) -> list[Expected]:
    flush = world.flushes.pop(2)
    unrecorded = Expected(Kind.REFERENCE_WRONG, (flush.batch_id,), covered_by(flush))
    return [*_covered(Kind.FLUSH_GAP, flush), unrecorded]


def repeat_a_flush_record(world: Delivered) -> list[Expected]:
    flush = world.flushes[-1]
    world.flushes.append(flush)
    return [*_covered(Kind.FLUSH_OVERLAP, flush), Expected(Kind.FLUSH_OVERLAP, (None, None), covered_by(flush))]


def count_a_dead_entry_as_filed(world: Delivered) -> list[Expected]:
    flush = world.flushes[1]
    number, line = next((n, one) for n, one in enumerate(flush.topic_partitions) if one.dead_letters)
    lines = list(flush.topic_partitions)
    lines[number] = replace(line, dead_letters=line.dead_letters - 1)
    totals = replace(
        flush.totals,
        entries_in_files=flush.totals.entries_in_files + 1,
        dead_letters=flush.totals.dead_letters - 1,
        dead_letter_records=flush.totals.dead_letter_records - 1,
    )
    world.flushes[1] = replace(flush, topic_partitions=tuple(lines), totals=totals)
    return [_of_line(line)]


def count_letters_otherwise(world: Delivered) -> list[Expected]:
    flush = world.flushes[-1]
    totals = replace(flush.totals, dead_letter_records=flush.totals.dead_letter_records + 1)
    world.flushes[-1] = replace(flush, totals=totals)
    return [Expected(Kind.FLUSH_WRONG, (None, None), covered_by(flush), count=2)]  # the record is repeated


def let_flush_records_be_as_they_were(world: Delivered) -> list[Expected]:
    """Change nothing: rows that others took or put are counted by flush records with as many references as ever.

    Each record says it, the repeated one, too.
    """
    expected: list[Expected] = []
    for flush in world.flushes:
        theirs = [one for one in (*world.references.values(), *world.again) if one.batch_id == flush.batch_id]
        if len({one.reference_id for one in theirs}) != flush.totals.references:
            continue
        held = Counter[int]()
        for source in [source for one in {one.reference_id: one for one in theirs}.values() for source in one.sources]:
            held[source.partition] += source.entries
        lines = flush.topic_partitions
        expected += [_of_line(line) for line in lines if held[line.partition] != line.entries - line.dead_letters]
    return expected


def _of_line(line: FlushedTopicPartition) -> Expected:
    span = (line.partition, line.first_offset, line.next_offset - 1)
    return Expected(Kind.FLUSH_WRONG, span[:2], (span,))


def _covered(kind: Kind, flush: FlushRecord) -> list[Expected]:
    return [Expected(kind, span[:2], (span,)) for span in covered_by(flush)]


Fault = Callable[[Delivered], list[Expected]]
FAULTS: list[Fault] = [
    drop_a_reference,
    announce_data_twice,
    repeat_a_reference,
    state_another_hour,
    state_another_user,
    state_more_entries,
    state_another_schema,
    state_another_checksum,
    omit_the_checksum,
    delete_an_object,
    cut_an_object,
    put_something_else,
    leave_an_object,
    delete_a_row,
    repeat_a_row,
    move_a_row,
    alter_a_value,
    drop_a_value,
    alter_an_event_time,
    alter_an_id,
    invent_a_row,
    state_too_long_a_range,
    put_it_under_another_key,
    drop_a_dead_letter,
    repeat_a_dead_letter,
    alter_a_dead_letter,
    count_a_dead_entry_as_filed,
    count_letters_otherwise,
    drop_a_flush_record,
    repeat_a_flush_record,
    let_flush_records_be_as_they_were,  # the last one: it looks at what the others have done
]

# References of one object.


def drop_a_line(world: Delivered) -> list[Expected]:
    one = world.take(batch_id=world.batch(0))
    world.beside(one)
    del world.references[one.reference_id]
    return [
        *entries(Kind.MISSING, world.rows_of(one)),
        Expected(Kind.REFERENCE_MISSING, (one.batch_id,)),
        Expected(Kind.OBJECT_UNREFERENCED, (one.location.object,)),
    ]


def state_more_entries_in_a_line(world: Delivered) -> list[Expected]:
    one = world.take(batch_id=world.batch(1))
    world.put(one, entries=one.entries + 1)
    return [Expected(Kind.REFERENCE_WRONG, (one.reference_id,))]


def state_a_field_too_many(world: Delivered) -> list[Expected]:
    """The schema of the whole pack, of which another has one field more."""
    one = world.take(batch_id=world.batch(1), is_projected=True)
    world.put(one, projection=None)
    return [Expected(Kind.REFERENCE_WRONG, (one.reference_id,))]


def state_a_field_too_few(world: Delivered) -> list[Expected]:
    one = world.take(batch_id=world.batch(1), is_projected=True)
    world.put(one, projection=one.projection[1:])
    return [Expected(Kind.REFERENCE_WRONG, (one.reference_id,))]


def reach_into_the_next(world: Delivered) -> list[Expected]:
    """Ranges that overlap: the rows of another user are under this one, too."""
    one, other, *_ = world.beside(world.take(batch_id=world.batch(2)))
    *head, (start, length) = one.location.ranges
    longer = (*head, (start, length + other.location.ranges[-1][1]))
    world.put(one, location=replace(one.location, ranges=longer))
    rows = world.rows_of(other)
    return [
        *entries(Kind.DUPLICATED, rows),
        *entries(Kind.MISPLACED, rows),
        # The same bytes twice, its entries and their times, and what it says of each of three TopicPartitions.
        Expected(Kind.REFERENCE_WRONG, (one.reference_id,), count=7),
    ]


def point_to_the_block_of_another(world: Delivered) -> list[Expected]:
    """No reference has its own rows then."""
    first, *_, other, one = world.beside(world.take(batch_id=world.batch(3)))
    world.put(one, location=replace(one.location, ranges=other.location.ranges))
    theirs = world.rows_of(other)
    return [
        *entries(Kind.MISSING, world.rows_of(one)),
        *entries(Kind.DUPLICATED, theirs),
        *entries(Kind.MISPLACED, theirs),
        Expected(Kind.REFERENCE_WRONG, (first.reference_id,)),  # two have the same bytes: said of the object's first
        Expected(Kind.OBJECT_UNREFERENCED, (one.location.object,)),
    ]


PACK_FAULTS: list[Fault] = [
    drop_a_line,
    state_more_entries_in_a_line,
    state_a_field_too_many,
    state_a_field_too_few,
    reach_into_the_next,
    point_to_the_block_of_another,
]
