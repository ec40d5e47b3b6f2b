"""Decides from a source record where each of its entries must be: in the file of a PartitionKey, or in a dead letter.

Owns nothing but the order of the steps; the rules stand in `decode`, `locate` and `expected_schema`.
"""

from __future__ import annotations

from functools import lru_cache, partial
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from log_partitioner.formats.dead_letter import Reason, reason_of
from log_partitioner.formats.model import Headers, PartitionKey, RootLink, SourceRecord, WayPlace
from log_partitioner.proof.oracle.chain import place_of
from log_partitioner.proof.oracle.decode import DecodedEntry, DecodedRecord, Decoder, JsonObject
from log_partitioner.proof.oracle.equal import DIGEST_BYTES, canonical, digest
from log_partitioner.proof.oracle.expected_schema import Type, is_over, type_of_entry
from log_partitioner.proof.oracle.format import NO_REASONS, Reasons
from log_partitioner.proof.oracle.locate import Path, Surroundings, TimeRule, UserRule, id_of, parse_path, root_of
from log_partitioner.proof.oracle.times import date_and_hour

if TYPE_CHECKING:
    from collections.abc import Callable

    from log_partitioner.config.settings import Settings
    from log_partitioner.formats.schema import FindSchema

NO_TIMESTAMP = -1
TYPES_MAX = 1024
TOPICS_MAX = 1024
TIMESTAMP_MAX_MS = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z; a row has none that is later


class Deliverable(NamedTuple):
    """An entry as it must stand in a file; `digest` is of its values."""

    key: PartitionKey
    event_time_us: int
    id: str | None
    timestamp_ms: int
    root: RootLink | None
    digest: bytes
    type: Type


class JudgedEntry(NamedTuple):
    """`deliverable` is None if the entry must be dead; `reasons` are those that a dead letter may give."""

    deliverable: Deliverable | None
    reasons: Reasons


class JudgedRecord(NamedTuple):
    """The entries of a record. `is_whole`: it counts as one entry that cannot be named by an index."""

    entries: list[JudgedEntry]
    is_whole: bool


class _Rules(NamedTuple):
    """The rules of a source topic."""

    decode: Callable[[bytes | None, Headers], DecodedRecord]
    user: UserRule
    time: TimeRule
    id_paths: tuple[Path, ...]


class Judge:
    """Applies the settings of a worker to source records; `find_schema` is needed for records that name a schema."""

    def __init__(self, settings: Settings, find_schema: FindSchema | None = None) -> None:
        self._settings, self._find_schema = settings, find_schema
        self._rules_of = lru_cache(TOPICS_MAX)(self._make_rules)
        self.parse = Decoder(settings.input).parse
        """Parses JSON text, also that of JSON-marked columns."""
        self._zone = settings.partition.zone
        self._limits = settings.schema_bounds
        self._is_over = lru_cache(TYPES_MAX)(partial(is_over, limits=settings.schema_bounds))

    def judge(self, record: SourceRecord) -> JudgedRecord:
        """Return where each entry of a record must be; a record that could not be read is dead as a whole."""
        if record.unreadable is not None:
            return JudgedRecord([JudgedEntry(None, frozenset({reason_of(record)}))], is_whole=True)
        rules = self._rules_of(record.tp.topic)
        decoded = rules.decode(record.value, record.headers)
        around = Surroundings(record, None, self.parse)
        root = root_of(around) if record.headers else None
        entries = [self._judge_entry(entry, around, rules, root) for entry in decoded.entries]
        return JudgedRecord(entries, decoded.is_whole)

    def place_of(self, record: SourceRecord) -> WayPlace | None:
        """Return the place of a record along its way; None if it has none, or was not read."""
        if record.unreadable is not None or not record.headers:
            return None
        return place_of(Surroundings(record, None, self.parse))

    def values(self, record: SourceRecord) -> list[object]:
        """Return a record's entries in the form of `equal`, None for dead ones: to explain a difference."""
        return [None if entry.value is None else canonical(entry.value) for entry in self.decode(record).entries]

    def decode(self, record: SourceRecord) -> DecodedRecord:
        """Return the entries of a record that could be read, as they stand in it."""
        return self._rules_of(record.tp.topic).decode(record.value, record.headers)

    def id_of(self, entry: JsonObject, around: Surroundings) -> str | None:
        """Return the unique id of an entry as text, None if it has none."""
        return id_of(self._rules_of(around.record.tp.topic).id_paths, entry, around)

    def _make_rules(self, topic: str) -> _Rules:
        settings = self._settings.of_topic(topic)
        decoder = Decoder(settings.input, self._find_schema)
        paths = tuple(map(parse_path, settings.id.paths))
        return _Rules(decoder.decode, UserRule(settings.user), TimeRule(settings.time), paths)

    def _judge_entry(
        self, decoded: DecodedEntry, around: Surroundings, rules: _Rules, root: RootLink | None
    ) -> JudgedEntry:
        entry, reasons, around = decoded.value, decoded.reasons, around.within(decoded.envelope)
        timestamp_ms = around.record.timestamp_ms
        if entry is None:
            return JudgedEntry(None, reasons)
        user = rules.user.user_of(entry, around)
        time_us = rules.time.time_of(entry, around, timestamp_ms)
        place = None if time_us is None else date_and_hour(time_us, self._zone)
        reasons |= {Reason.NO_USER} if user is None else NO_REASONS
        reasons |= {Reason.NO_EVENT_TIME} if place is None else NO_REASONS
        if user is None or place is None or time_us is None or reasons:
            return JudgedEntry(None, reasons)
        kind = type_of_entry(entry, depth_max=self._limits.depth_max)
        deliverable = Deliverable(
            key=PartitionKey(user, *place),
            event_time_us=time_us,
            id=id_of(rules.id_paths, entry, around),
            timestamp_ms=NO_TIMESTAMP if timestamp_ms is None or timestamp_ms > TIMESTAMP_MAX_MS else timestamp_ms,
            root=root,
            digest=digest(canonical(entry)),
            type=kind,
        )
        # An entry over the limits of a schema may be cut down or be dead.
        return JudgedEntry(deliverable, frozenset({Reason.TOO_MANY_FIELDS}) if self._is_over(kind) else NO_REASONS)


def value_digest(value: bytes | None) -> bytes:
    """Stand for a record's value; an absent one differs from an empty one."""
    return _digest(b"-" if value is None else b"+" + value)


def record_digest(*, value: bytes, key: bytes | None, headers: Headers) -> bytes:
    """Stand for all bytes of a record: the digest of its value, its key and its headers."""
    parts = [value, value_digest(key)]
    for name, content in headers:
        parts += [value_digest(name.encode("utf-8", "surrogatepass")), value_digest(content)]
    return _digest(b"".join(parts))


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=DIGEST_BYTES).digest()
