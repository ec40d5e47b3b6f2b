"""What runs on the executors: records, objects, dead letters and rows of the table -> rows of `frames`.

The judging itself is the small audit's (`service.audit`): its own code, none of the worker's.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

import msgspec
import pyarrow as pa

from pipeline.audit.result import Kind
from pipeline.errors import ObjectError
from pipeline.objects import Objects, Stored
from pipeline.rows import fingerprint_of, read_rows
from pipeline.table_rows import restore
from service.audit.equal import canonical, digest
from service.audit.judge import Judge, record_digest, value_digest
from service.audit.published_schema import META, PublishedSchema, RestoreError
from service.core.dead_letter import HEADER_REASON, RECORD_SUFFIX, decode_stored_record, parse_headers
from service.core.model import SourceRecord, TopicPartition
from service.core.reference import Reference, decode_reference

if TYPE_CHECKING:
    from service.audit.json_text import Parse
    from service.config import Settings

Row = dict[str, Any]
Batches = Iterable[pa.RecordBatch]

_ROWS_PER_BATCH = 8192
_TEXT_CHARS_MAX = 400
_PLACE_IN_KEY = re.compile(r"/user=([^/]+)/date=([^/]+)/hour=(\d+)/[^/]+$")


def judge_records(batches: Batches, *, settings: Settings, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Source records -> what must become of their entries."""
    judge = Judge(settings)
    yield from batched((row for batch in batches for row in _judged(batch, judge)), schema)


def _judged(batch: pa.RecordBatch, judge: Judge) -> Iterator[Row]:
    for message in batch.to_pylist():
        record = record_of(message)
        place = {"topic": record.tp.topic, "partition": record.tp.partition, "offset": record.offset}
        judged = judge.judge(record)
        common = place | {"timestamp_ms": record.timestamp_ms, "entries": len(judged.entries)}
        if not judged.entries:
            yield common | {"index": -1}
            continue
        whole = judged.is_whole
        may_be_dead = any(entry.reasons for entry in judged.entries)
        bytes_of_it = _digest_of(record) if may_be_dead else None
        for index, (living, reasons) in enumerate(judged.entries):
            row = common | {"index": index, "living": living is not None, "whole": whole, "reasons": ""}
            if reasons:
                row |= {"reasons": f",{','.join(sorted(reasons))},", "record_digest": bytes_of_it}
            if living is not None:
                user, date, hour = living.key
                root = living.root
                row |= {
                    "user": user,
                    "date": date,
                    "hour": hour,
                    "event_time_us": living.event_time_us,
                    "id": living.id,
                    "root": None if root is None else _root(root.topic, root.partition, root.offset),
                    "digest": living.digest,
                }
            yield row


def read_files(batches: Batches, *, settings: Settings, threads: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """References, those of one object together -> the rows that they point to.

    A reference is its message's `value`, whether it is `taken`, and what the driver has read of it.
    """
    reader = _FileReader(settings, threads)
    yield from batched((row for batch in batches for row in reader.read(batch.to_pylist())), schema)


class _FileReader:
    def __init__(self, settings: Settings, threads: int) -> None:
        self._objects = Objects(settings.s3, threads=threads)
        self._parse: Parse = Judge(settings).parse
        self._schemas: dict[str, PublishedSchema] = {}

    def read(self, messages: list[Row]) -> Iterator[Row]:
        decoded: list[Reference] = []
        taken: set[str] = set()
        for message in messages:
            try:
                reference = decode_reference(message["value"])
            except msgspec.DecodeError as error:
                about = {name: message[name] for name in ("reference_id", "user", "date", "hour", "taken")}
                yield about | {"kind": Kind.REFERENCE_WRONG, "text": f"not a reference: {error}", "lost": True}
                continue
            decoded.append(reference)
            if message["taken"]:
                taken.add(reference.reference_id)
        grouped = [(address, list(group)) for address, group in groupby(decoded, key=_address)]
        fetched = self._objects.fetch_ahead(address for address, _ in grouped)
        for (_, references), stored in zip(grouped, fetched, strict=True):
            for reference in references:
                is_taken = {"taken": reference.reference_id in taken}
                yield from self._read_reference(reference, stored, is_taken)

    def _read_reference(
        self, reference: Reference, stored: Stored | ObjectError | None, is_taken: Row
    ) -> Iterator[Row]:
        about = {"reference_id": reference.reference_id, **_place(reference), **is_taken}
        where = f"s3://{reference.location.bucket}/{reference.location.object}"
        if stored is None:
            yield about | {"kind": Kind.OBJECT_MISSING, "text": f"{where} is referenced and not there", "lost": True}
            return
        if isinstance(stored, ObjectError):
            yield about | {"text": str(stored), "lost": True, "unread": True}
            return
        altered = _differences(reference, stored)
        if altered:
            yield about | {"kind": Kind.OBJECT_ALTERED, "text": f"{where}: {altered}"}
        data = b"".join(stored.data[start : start + length] for start, length in reference.location.ranges)
        try:
            rows, text = read_rows(data, where)
            schema = self._schema(text)
            non_nulls: Counter[str] = Counter()
            found = [_file_row(row, schema, about, non_nulls) for row in rows]
        except (ObjectError, ValueError, KeyError, TypeError, AttributeError) as error:
            kind = {} if altered else {"kind": Kind.OBJECT_UNREADABLE, "text": _short(f"{where}: {error}")}
            yield about | {"lost": True} | kind
            return
        statements = [
            *_wrong_statements(reference, found, text, schema),
            *_wrong_counts(reference, rows, schema, non_nulls),
        ]
        for statement in statements:
            yield about | {"kind": Kind.REFERENCE_WRONG, "text": _short(statement)}
        yield from found

    def _schema(self, text: str) -> PublishedSchema:
        schema = self._schemas.get(text)
        if schema is None:
            schema = self._schemas[text] = PublishedSchema(text, self._parse)
        return schema


def _address(reference: Reference) -> tuple[str, str, str | None]:
    location = reference.location
    return location.bucket, location.object, location.version_id


def _place(reference: Reference) -> Row:
    partition = reference.partition
    return {"user": partition.user, "date": partition.date, "hour": partition.hour}


def _differences(reference: Reference, stored: Stored) -> str:
    """Say where an object is not the one that was referenced."""
    location = reference.location
    wrong = []
    if len(stored.data) != location.size:
        wrong.append(f"{len(stored.data)} bytes, the reference says {location.size}")
    found = _checksum(location.checksum.algorithm, stored.data)
    if found != location.checksum.value:
        wrong.append(f"{location.checksum.algorithm} is {found}, the reference says {location.checksum.value}")
    if location.etag is not None and stored.etag is not None and location.etag != stored.etag:
        wrong.append(f"etag is {stored.etag}, the reference says {location.etag}")
    return "; ".join(wrong)


def _checksum(algorithm: str, data: bytes) -> str:
    if algorithm == "sha256":
        return hashlib.sha256(data).hexdigest()
    return f"{zlib.crc32(data):08x}" if algorithm == "crc32" else f"of an unknown algorithm {algorithm}"


def _file_row(row: Row, schema: PublishedSchema, about: Row, non_nulls: Counter[str]) -> Row:
    """Give the row of a row; `non_nulls` counts which fields it has."""
    meta = row[META]
    try:
        values = schema.restore(row)
    except RestoreError as error:
        values = {"": str(error)}
    if isinstance(values, dict):
        non_nulls.update(values.keys())
    root = meta["root"]
    return about | {
        "topic": meta["topic"],
        "partition": meta["partition"],
        "offset": meta["offset"],
        "index": meta["index"],
        "meta_user": meta["user"],
        "event_time_us": meta["event_time"],
        "timestamp_ms": meta["timestamp"],
        "id": meta["id"],
        "root": None if root is None else _root(root["topic"], root["partition"], root["offset"]),
        "digest": digest(values),
    }


def _wrong_statements(reference: Reference, rows: list[Row], text: str, schema: PublishedSchema) -> Iterator[str]:
    """Say which statements of a reference its rows do not bear out."""
    name = f"reference {reference.reference_id}"
    yield from (f"{name}: schema of {reference.location.object}: {problem}" for problem in schema.problems)
    location = reference.location
    if any(start < 0 or length < 1 or start + length > location.size for start, length in location.ranges):
        yield f"{name}: byte ranges {location.ranges} are not all within the {location.size} bytes of its object"
    if not _is_under_its_key(reference):
        yield f"{name}: the key of its object names another user, date or hour"
    if location.ranges == ((0, location.size),) and fingerprint_of(text) != reference.schema.fingerprint:
        yield f"{name}: schema {reference.schema.fingerprint} is not the one that the object was written with"
    times = [row["event_time_us"] for row in rows]
    offsets: dict[tuple[str, int], list[int]] = {}
    for row in rows:
        offsets.setdefault((row["topic"], row["partition"]), []).append(row["offset"])
    said = {(one.topic, one.partition): (one.min_offset, one.max_offset, one.entries) for one in reference.sources}
    found = {tp: (min(some), max(some), len(some)) for tp, some in offsets.items()}
    facts: list[tuple[str, object, object]] = [
        ("entries", reference.entries, len(rows)),
        ("sources", said, found),
        (
            "event times",
            (reference.event_time_min_us, reference.event_time_max_us),
            (min(times), max(times)) if times else None,
        ),
    ]
    yield from (
        f"{name}: {what}: says {stated}, rows say {counted}" for what, stated, counted in facts if stated != counted
    )
    disordered = Counter(tp for tp, some in offsets.items() if some != sorted(some))
    yield from (f"{name}: rows of {topic}-{partition} are not in offset order" for topic, partition in disordered)


def _wrong_counts(
    reference: Reference, rows: list[Row], schema: PublishedSchema, non_nulls: Counter[str]
) -> Iterator[str]:
    """Say which counts of fields and ranges of roots are others.

    A large reference has no counts; in a part of an object there is the schema of all of it, so they are not compared.
    """
    name, location = f"reference {reference.reference_id}", reference.location
    if reference.field_counts and location.ranges == ((0, location.size),):
        said = {field: (one.nulls, one.non_nulls) for field, one in reference.field_counts.items()}
        counted = {field: (len(rows) - non_nulls[field], non_nulls[field]) for field in schema.names}
        wrong = sorted(field for field in said.keys() | counted.keys() if said.get(field) != counted.get(field))
        if wrong:
            yield f"{name}: says other nulls and values than its rows have in {', '.join(map(repr, wrong))}"
    offsets: dict[tuple[str, int], list[int]] = {}
    for row in rows:
        if (root := row[META]["root"]) is not None:
            offsets.setdefault((root["topic"], root["partition"]), []).append(root["offset"])
    roots = {(one.topic, one.partition): (one.min_offset, one.max_offset, one.entries) for one in reference.roots}
    found = {root: (min(some), max(some), len(some)) for root, some in offsets.items()}
    if roots != found:
        yield f"{name}: roots: says {roots}, rows say {found}"


def _is_under_its_key(reference: Reference) -> bool:
    """Whether who looks for files by path finds this one; a user too long for a path stands there as a hash."""
    found = _PLACE_IN_KEY.search(reference.location.object)
    if found is None:
        return True
    user, date, hour = found.groups()
    own = reference.partition
    said = own.user.encode()
    if "~" in user:
        is_user = hashlib.sha256(said).hexdigest().startswith(user.rpartition("~")[2])
    else:
        is_user = unquote_to_bytes(user) == said
    return is_user and (date, int(hour)) == (own.date, own.hour)


def read_dead_letters(
    batches: Batches, *, settings: Settings, threads: int, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Dead letters -> the entries that they name."""
    objects = Objects(settings.s3, threads=threads)
    fetch = lambda key: objects.fetch((settings.s3.bucket, key, None))  # noqa: E731
    rows = (row for batch in batches for message in batch.to_pylist() for row in _named(message, fetch))
    yield from batched(rows, schema)


def _named(message: Row, fetch: Callable[[str], Stored | None]) -> Iterator[Row]:
    """Outline: the record's own headers come first, ours from the last reason on."""
    headers = _headers_of(message)
    names = [name for name, _ in headers]
    begin = len(names) - 1 - names[::-1].index(HEADER_REASON) if HEADER_REASON in names else 0
    at = f"dead letter {message['partition']}/{message['offset']}"
    try:
        says = parse_headers(headers[begin:])
    except (KeyError, ValueError) as error:
        yield {"kind": Kind.DEAD_LETTER_WRONG, "text": f"{at}: its headers cannot be read: {error!r}"}
        return
    row = {
        "topic": says.topic,
        "partition": says.partition,
        "offset": says.offset,
        "reason": says.reason,
        "batch_id": says.batch_id,
        "object": says.object_key,
        "all_of_it": says.indexes is None,
    }
    value, key, own = value_digest(message["value"]), message["key"], headers[:begin]
    problem: Row = {}
    if says.object_key is not None:
        try:
            stored = fetch(says.object_key)
            if stored is None:
                text = f"{at}: there is no object {says.object_key}"
                problem = {"kind": Kind.OBJECT_MISSING, "text": text}
            elif says.object_key.endswith(RECORD_SUFFIX):
                whole = decode_stored_record(stored.data)
                value, key, own = value_digest(whole.value), whole.key, tuple(whole.headers)
            else:
                value = value_digest(stored.data)
        except ObjectError as error:
            problem = {"text": f"{at}: {error}", "unread": True}
        except msgspec.DecodeError as error:
            problem = {"kind": Kind.DEAD_LETTER_WRONG, "text": f"{at}: {says.object_key} is no record: {error}"}
    if problem:
        yield row | problem
    bytes_of_it = None if problem else record_digest(value=value, key=key, headers=own)
    for index in (0,) if says.indexes is None else says.indexes:
        yield row | {"index": index, "record_digest": bytes_of_it}


def read_table(batches: Batches, *, settings: Settings, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows of the table, in `_meta` the columns of `frames.TABLE` -> their entries."""
    parse = Judge(settings).parse
    yield from batched((_table_row(row, parse) for batch in batches for row in batch.to_pylist()), schema)


def _table_row(row: Row, parse: Parse) -> Row:
    meta: Row = row[META]
    return meta | {"digest": digest(canonical(restore(row, parse)))}


def list_objects(batches: Batches, *, settings: Settings, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """One row, whatever it is -> the keys under the prefix."""
    objects = Objects(settings.s3, threads=1)
    for _ in batches:
        listed = objects.list(settings.s3.bucket, f"{settings.s3.prefix}/")
        rows = ({"object": one.key, "size": one.size, "modified_ms": one.modified_ms} for one in listed)
        yield from batched(rows, schema)


def record_of(message: Row) -> SourceRecord:
    """Make a message as Spark reads it a record."""
    return SourceRecord(
        tp=TopicPartition(message["topic"], message["partition"]),
        offset=message["offset"],
        timestamp_ms=message["timestamp_ms"],
        key=message["key"],
        value=message["value"],
        headers=_headers_of(message),
    )


def _headers_of(message: Row) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((header["key"], header["value"]) for header in message["headers"] or ())


def _digest_of(record: SourceRecord) -> bytes:
    return record_digest(value=value_digest(record.value), key=record.key, headers=record.headers)


def _root(topic: str, partition: int, offset: int) -> str:
    return f"{topic}-{partition}-{offset}"


def _short(text: str) -> str:
    return text if len(text) <= _TEXT_CHARS_MAX else text[: _TEXT_CHARS_MAX - 3] + "..."


def batched(rows: Iterable[Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Gather rows into record batches; what a row does not have is null."""
    gathered: list[Row] = []
    for row in rows:
        gathered.append(row)
        if len(gathered) == _ROWS_PER_BATCH:
            yield pa.RecordBatch.from_pylist(gathered, schema)
            gathered = []
    if gathered:
        yield pa.RecordBatch.from_pylist(gathered, schema)
