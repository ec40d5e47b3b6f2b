"""What identifies entries, by the second opinion: of a consumed record, and of the rows of an object.

Less than `judge` finds out: neither values nor types are looked at, so that it can be asked of every record while a
worker runs (verification mode).
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import fastavro

from service.errors import UnreadableObjectError
from service.formats.identity import DEAD_ENTRY, ConsumedEntry, ConsumedRecord, StoredRow
from service.formats.model import PartitionKey, TopicPartition
from service.oracle.container import UNREADABLE, Container, spans_of
from service.oracle.decode import DecodedEntry, Decoder
from service.oracle.locate import IdRule, Surroundings, TimeRule, UserRule
from service.oracle.published_schema import META, without_logical_types
from service.oracle.times import date_and_hour

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from service.config.settings import Settings
    from service.formats.model import SourceRecord
    from service.formats.reference import Reference

_SCHEMAS_MAX = 256
_CANNOT_BE_READ = ConsumedRecord([DEAD_ENTRY], is_whole=True)


class Identifier:
    """Applies the settings of a worker to records, and reads rows of objects; any thread."""

    def __init__(self, settings: Settings) -> None:
        self._decoder = Decoder(settings.input)
        self._user = UserRule(settings.user)
        self._time = TimeRule(settings.time)
        self._id = IdRule(settings.id.paths)
        self._has_ids = bool(settings.id.paths)
        self._zone = ZoneInfo(settings.partition.zone)
        self._schemas = lru_cache(_SCHEMAS_MAX)(_schemas_of)

    def entries_of(self, record: SourceRecord) -> ConsumedRecord:
        """Return what identifies each entry of a record; never raises on input."""
        if record.unreadable is not None:
            return _CANNOT_BE_READ
        decoded = self._decoder.decode(record.value)
        around = Surroundings(record, decoded.envelope, self._decoder.parse)
        return ConsumedRecord(
            [self._entry_of(entry, around, record.timestamp_ms) for entry in decoded.entries], decoded.is_whole
        )

    def _entry_of(self, decoded: DecodedEntry, around: Surroundings, timestamp_ms: int | None) -> ConsumedEntry:
        entry = decoded.value
        if entry is None or decoded.reasons:
            return DEAD_ENTRY
        user, time_us = self._user.user_of(entry, around), self._time.time_of(entry, around, timestamp_ms)
        place = None if time_us is None else date_and_hour(time_us, self._zone)
        if user is None or place is None or time_us is None:
            return DEAD_ENTRY
        entry_id = self._id.id_of(entry, around) if self._has_ids else None
        return ConsumedEntry(PartitionKey(user, *place), time_us, entry_id)

    def rows_of(self, data: bytes, references: Iterable[Reference]) -> Iterator[StoredRow]:
        """Yield the rows of these references from the bytes of their object.

        Raises:
            UnreadableObjectError: it is no Avro file, or not one of such rows.
        """
        try:
            container = Container(data)
            schema, part = self._schemas(container.schema)
            for reference in references:
                for begin, end in spans_of(reference, container):
                    for row in container.rows(begin, end, schema, part):
                        yield _stored(row[META], reference.partition_key)
        except UNREADABLE as error:
            raise UnreadableObjectError(f"{type(error).__name__}") from error


def _stored(meta: dict[str, Any], key: PartitionKey) -> StoredRow:
    tp = TopicPartition(meta["topic"], meta["partition"])
    return StoredRow(tp, meta["offset"], meta["index"], meta["user"], meta["event_time"], meta["id"], key)


def _schemas_of(text: str) -> tuple[Any, Any]:
    """Return the schema of an object's rows, and its part that identifies them, which costs less to read."""
    avro = without_logical_types(json.loads(text))
    meta = [field for field in avro["fields"] if field["name"] == META]
    return fastavro.parse_schema(avro), fastavro.parse_schema({**avro, "fields": meta})
