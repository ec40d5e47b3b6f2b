"""The reader's kit: references from their topic, and the entries that they announce (docs/READING.md).

    ReferencesTopic ── of, after ──► Reference ── read, by range GETs ──► Entry ──► Arrow, pandas

Owns the way from a reference to its entries by original names. It writes nothing, and commits no offset. The second
opinion's reader of containers and schemas is under it, so `cat` and `find` show what the audit has judged.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import import_module
from itertools import groupby
from typing import Any, NamedTuple, Protocol, Self

import msgspec

from log_partitioner.adapters.kafka.topics import KafkaTopics
from log_partitioner.config.checks import load
from log_partitioner.config.section import moment_of
from log_partitioner.config.settings import Settings
from log_partitioner.errors import CouldNotTellError, DamagedError, NotFoundError
from log_partitioner.formats.model import SourceRecord
from log_partitioner.formats.reference import Reference, begun_ms, decode_references
from log_partitioner.proof.audit.audit import Topics
from log_partitioner.proof.audit.store import Address, FetchedObject, S3Reader
from log_partitioner.proof.audit.whose import Groups, has_reference
from log_partitioner.proof.audit.window import FlushWindow
from log_partitioner.proof.oracle.container import UNREADABLE, Container
from log_partitioner.proof.oracle.equal import NUMBER_KEY
from log_partitioner.proof.oracle.json_text import Parse, parse_rounding
from log_partitioner.proof.oracle.published_schema import META, PublishedSchema

__all__ = ["Delivery", "Entry", "ReferencesTopic", "load", "read", "store_of", "to_arrow", "to_json", "to_pandas"]

SCHEMAS_MAX = 256
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONG_NUMBER = re.compile(re.escape(f"{{{json.dumps(NUMBER_KEY)}: ") + r'"([^"]+)"\}')
_LIKE_META = re.compile(r"_+meta\.")

Meta = dict[str, Any]
IsNear = Callable[[SourceRecord], bool]
MayHold = Callable[[Reference], bool]


class Store(Protocol):
    """A store of objects; see `store_of`."""

    def get(self, address: Address, ranges: Iterable[tuple[int, int]] | None = None) -> FetchedObject | None:
        """Read an object, or these [start, length) of its bytes, put together; None if there is none."""


class Entry(NamedTuple):
    """An entry, and the reference that announced it, with its number there; whole objects are read without one."""

    reference: Reference | None
    number: int
    row: dict[str, Any]
    schema: PublishedSchema

    @property
    def meta(self) -> Meta:
        """Its `_meta` (docs/FORMATS.md): `event_time` in µs, `timestamp` in ms since the epoch."""
        meta: Meta = self.row[META]
        return meta

    @property
    def values(self) -> dict[str, Any]:
        """Its fields under their original names, without nulls; bytes, decimals, instants and dates are texts.

        Raises:
            DamagedError: the row contradicts its schema.
        """
        try:
            values: Any = self.schema.restore(self.row)
        except UNREADABLE as error:
            raise DamagedError(f"a row of user's data contradicts its schema: {type(error).__name__}") from error
        return dict(values)


class Delivery(NamedTuple):
    """A message of the references topic: its place there, and its references; a reader goes on at `offset + 1`."""

    partition: int
    offset: int
    references: list[Reference]


def store_of(settings: Settings) -> S3Reader:
    """Return the store of these settings."""
    return S3Reader(settings.s3, threads=1)


def read(references: Reference | Iterable[Reference], store: Store, parse: Parse = parse_rounding) -> Iterator[Entry]:
    """Yield the entries of references.

    Blocks while the store answers. Only the header and the blocks of these references are fetched, neighbours by one
    GET, so give references of one object together. Those of an object come in the order of its bytes, each id once.
    `parse` reads the text of fields marked as JSON.

    Raises:
        NotFoundError: there is no such object.
        DamagedError: it is not the object that was referenced, or the bytes are not the entries that are announced.
        CouldNotTellError: the store does not let us read.
    """
    given = [references] if isinstance(references, Reference) else references
    for address, some in groupby(given, key=lambda one: Address.of(one.location)):
        yield from _read_object(address, {one.reference_id: one for one in some}, store, parse)


def _read_object(address: Address, some: dict[str, Reference], store: Store, parse: Parse) -> Iterator[Entry]:
    ordered = sorted(some.values(), key=lambda one: one.location.ranges[-1])
    ranges = _joined(pair for one in ordered for pair in one.location.ranges)
    data = fetch(store, address, ranges, ordered[0].location.etag)
    with _reading(address):
        container = Container(data)
        schema, end = _schema_of(container.schema, parse), container.header_bytes
        for one in ordered:
            start, length = one.location.ranges[-1]
            begin, end = end, end + length - (0 if start else container.header_bytes)
            number = -1
            for number, row in enumerate(container.rows(begin, end, schema.avro)):
                yield Entry(one, number, row, schema)
            if number + 1 != one.entries:
                raise ValueError(f"{number + 1} rows of reference {one.reference_id}, it says {one.entries}")


def entries_of(data: bytes, address: Address, parse: Parse = parse_rounding) -> Iterator[Entry]:
    """Yield the entries of an Avro file: a whole object, or the ranges of one reference.

    Raises:
        DamagedError: it is not a whole Avro file.
    """
    with _reading(address):
        container = Container(data)
        schema = _schema_of(container.schema, parse)
        for number, row in enumerate(container.rows(container.header_bytes, container.size, schema.avro)):
            yield Entry(None, number, row, schema)


def fetch(
    store: Store, address: Address, ranges: Iterable[tuple[int, int]] | None = None, etag: str | None = None
) -> bytes:
    """Read an object, or these ranges of it, if it has this etag; a store may say none. Raises as `read`."""
    found = store.get(address, ranges)
    if found is None:
        raise NotFoundError(f"there is no object s3://{address.bucket}/{address.key}")
    if etag and found.etag not in (None, etag):
        raise DamagedError(f"{address.key} is not the object that was referenced: its etag is {found.etag}")
    return found.data


@contextmanager
def _reading(address: Address) -> Iterator[None]:
    try:
        yield
    except UNREADABLE as error:
        raise DamagedError(f"object {address.key} is not a valid Avro file: {error}") from error


@lru_cache(SCHEMAS_MAX)
def _schema_of(text: str, parse: Parse) -> PublishedSchema:
    return PublishedSchema(text, parse)


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join [start, length) that touch or overlap."""
    joined: list[tuple[int, int]] = []
    for start, length in sorted(ranges):
        if joined and start <= sum(joined[-1]):
            first, before = joined[-1]
            joined[-1] = first, max(before, start + length - first)
        else:
            joined.append((start, length))
    return joined


class ReferencesTopic:
    """Finds references in their topic; counts what it reads, and holds one message at a time. For one thread.

    All methods block while brokers answer, and raise CouldNotTellError if they do not. `note` is told which open
    transaction hides messages.
    """

    def __init__(self, topics: Topics, settings: Settings, note: Callable[[str], None] = lambda _: None) -> None:
        self.topics = topics
        self.settings = settings
        self.count: Counter[str] = Counter()
        self._note = note

    @classmethod
    @contextmanager
    def connect(cls, settings: Settings, note: Callable[[str], None] = lambda _: None) -> Iterator[Self]:
        """Connect, as read_committed and without a group of its own, until the block ends."""
        with KafkaTopics.of(settings.kafka) as topics:
            yield cls(topics, settings, note)

    def of(self, user: str | None = None, *, begin: object = None, end: object = None) -> Iterator[Reference]:
        """Yield the references of a user, or of all, with event times in [begin, end).

        Times are datetimes or ISO 8601, UTC if they name no zone. A reference is of one hour, and may be partly in it.

        Raises:
            CouldNotTellError: a message is of no known form, or several unrelated groups have written to the topic.
        """
        chosen = self.near(user, times_of(begin, end))
        messages = filter(chosen.is_near, self.messages(self.settings.kafka.references_topic, chosen.published))
        for delivery in self._deliveries(messages):
            yield from filter(chosen.may_hold, delivery.references)

    def after(self, positions: Mapping[int, int]) -> Iterator[Delivery]:
        """Yield the messages from these offsets of the topic's partitions on, up to the present end, then stop.

        A partition without an offset is read from its beginning. Raises as `of`, and also if retention
        has taken an offset away.
        """
        ranges = {}
        for tp, (first, end) in self._ends(self.settings.kafka.references_topic).items():
            position = positions.get(tp.partition, first)
            if position < first:
                raise CouldNotTellError(f"{tp}: messages from {position} on are gone; the first there is {first}")
            ranges[tp] = position, end
        yield from self._deliveries(self.topics.read(ranges))

    def with_id(self, reference_id: str) -> Reference | None:
        """Find a reference by its id; the messages of its batch are looked for from the time in the id on."""
        batch_id = reference_id.rpartition("-")[0]
        window, key = FlushWindow(begun_ms(batch_id)).padded(), batch_id.encode()
        is_it: MayHold = lambda one: one.reference_id == reference_id  # noqa: E731
        found = self.by_message(Near(window, lambda message: message.key == key, is_it))
        return next((one for some in found for one in some), None)

    def near(self, user: str | None, event_times: FlushWindow) -> Near:
        """Return the search for references of a user, or of all, with such event times: they were published later."""
        ahead_ms = max(round(1000 * one.time.future_max_s) for _, one in self.settings.each_reading())
        published = FlushWindow(max(0, (event_times.from_ms or 0) - ahead_ms)).padded()
        encoded = msgspec.json.encode(user)
        is_plain = encoded == f'"{user}"'.encode("ascii", "replace")  # every encoder writes it so

        def may_hold(one: Reference) -> bool:
            first_ms, last_ms = one.event_time_min_us // 1000, one.event_time_max_us // 1000
            return user in (None, one.partition_key.user) and event_times.meets(first_ms, last_ms)

        return Near(published, lambda message: not is_plain or encoded in (message.value or b""), may_hold)

    def by_message(self, near: Near) -> Iterator[list[Reference]]:
        """Yield the references that may hold an entry, of any group, by message; a message is of one object.

        A message that this version cannot read is counted, and passed by.
        """
        for message in self.messages(self.settings.kafka.references_topic, near.published):
            try:
                some = decode_references(message.value or b"") if near.is_near(message) else []
            except msgspec.DecodeError:
                self.count["messages that this version cannot read"] += 1
                continue
            if some := list(filter(near.may_hold, some)):
                yield some

    def messages(self, topic: str, window: FlushWindow) -> Iterator[SourceRecord]:
        """Yield the committed messages of a topic with timestamps in a window."""
        for message in self.topics.read(window.narrow(self.topics, self._ends(topic))):
            self.count.update({f"messages of {topic}": 1, "bytes": message.size})
            yield message

    def _ends(self, topic: str) -> Any:
        ends, hidden = self.topics.settled(self.topics.topic_partitions(topic))
        for text in hidden:
            self._note(text)
        return ends

    def _deliveries(self, messages: Iterable[SourceRecord]) -> Iterator[Delivery]:
        groups = Groups()
        groups.read_on(self.topics, self.settings.kafka.flushes_topic)
        lineage = groups.lineage(self.settings.kafka)
        for message in messages:
            try:
                found = decode_references(message.value or b"")
            except msgspec.DecodeError as error:
                place = f"{message.tp} offset {message.offset}"
                raise CouldNotTellError(f"{place} is no message of references that is known here: {error}") from error
            ours = [one for one in found if has_reference(lineage, one)]
            yield Delivery(message.tp.partition, message.offset, ours)


class Near(NamedTuple):
    """A search: when its messages were published, which of them are near, which references may hold it."""

    published: FlushWindow
    is_near: IsNear
    may_hold: MayHold


def times_of(begin: object, end: object) -> FlushWindow:
    """Return the time between two moments; None: since the beginning, until now."""
    return FlushWindow.between(*(None if one is None else moment_of(one) for one in (begin, end)))


def to_arrow(entries: Iterable[Entry]) -> Any:
    """Make a table of pyarrow: columns that begin with `_meta.`, then one for each field.

    A field whose values have no common type of Arrow is a column of JSON text. A field that is called like the first
    columns has one more `_` before its name. Holds all entries in memory.

    Raises:
        ImportError: pyarrow is not installed.
    """
    arrow = _optional("pyarrow")
    rows = [(entry.meta, entry.values) for entry in entries]
    columns = {
        f"_meta.{name}": arrow.array([meta[name] for meta, _ in rows], kind)
        for name, kind in {
            "user": arrow.string(), "event_time": arrow.timestamp("us", "UTC"), "id": arrow.string(),
            "topic": arrow.string(), "partition": arrow.int32(), "offset": arrow.int64(), "index": arrow.int32(),
        }.items()
    }  # fmt: skip
    for name in dict.fromkeys(name for _, values in rows for name in values):
        column = [values.get(name) for _, values in rows]
        try:
            made = arrow.array(column)
        except (arrow.ArrowException, OverflowError, UnicodeError, TypeError):
            made = arrow.array([None if value is None else _json(value) for value in column], arrow.string())
        columns[f"_{name}" if _LIKE_META.match(name) else name] = made
    return arrow.table(columns)


def to_pandas(entries: Iterable[Entry]) -> Any:
    """Make a frame of pandas of the columns of `to_arrow`. Holds all entries in memory.

    Raises:
        ImportError: pandas or pyarrow are not installed.
    """
    _optional("pandas")
    return to_arrow(entries).to_pandas()


def _optional(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(f"tables of entries need {name}: pip install {name}") from error


def to_json(entry: Entry) -> str:
    """Write an entry as JSON; numbers that a double does not hold keep their digits."""
    return _json({META: readable_meta(entry.meta), "entry": entry.values})


def _json(value: object) -> str:
    return _LONG_NUMBER.sub(r"\1", json.dumps(value))


def readable_meta(meta: Meta) -> Meta:
    """Return the `_meta` of a row with times as texts."""
    timestamp_ms = meta["timestamp"]
    timestamp = None if timestamp_ms < 0 else _moment(1000 * timestamp_ms)
    return {**meta, "event_time": _moment(meta["event_time"]), "timestamp": timestamp}


def _moment(at_us: int) -> str:
    return (_EPOCH + timedelta(microseconds=at_us)).isoformat().replace("+00:00", "Z")
