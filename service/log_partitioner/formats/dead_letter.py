"""The dead letter: a source record, untouched, and the reason why some of its entries are in no file (DESIGN 3.7).

Owns the reason codes and the headers; `headers_of` and `parse_headers` are a pair. One dead letter per record and
reason, or several with some of its indexes each (`log_partitioner.batch.messages`).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, NamedTuple

import msgspec

from log_partitioner.formats.model import FATAL, SKIPPED, UNKNOWN_SCHEMA, Headers, SourceRecord, TopicPartition

ALL = "all"

HEADER_REASON = "lp-reason"
MESSAGE_CHARS_MAX = 256

RECORD_SUFFIX = ".record.json"

# Bytes of memory for a letter beside keys, values and texts, measured (tests/unit/formats/test_dead_letter.py).
_LETTER_BYTES, _HEADER_BYTES, _INDEX_BYTES, _CHAR_BYTES = 640, 200, 50, 4


class Reason(StrEnum):
    """Why an entry, or a whole record, went to the dead letters."""

    RECORD_TOO_LARGE = "record_too_large"
    TOO_MANY_ENTRIES = "too_many_entries"
    DECOMPRESSION = "decompression"
    MALFORMED = "malformed"
    UNKNOWN_SCHEMA = "unknown_schema"
    NOT_AN_OBJECT = "not_an_object"
    ENTRIES_NOT_A_LIST = "entries_not_a_list"
    INVALID_UNICODE = "invalid_unicode"
    TOO_DEEP = "too_deep"
    TOO_MANY_FIELDS = "too_many_fields"
    NO_USER = "no_user"
    NO_EVENT_TIME = "no_event_time"
    UNREADABLE_HEADERS = "unreadable_headers"
    SKIPPED = "skipped"
    FATAL = "fatal"


_REASONS = {FATAL: Reason.FATAL, SKIPPED: Reason.SKIPPED, UNKNOWN_SCHEMA: Reason.UNKNOWN_SCHEMA}


def reason_of(record: SourceRecord) -> Reason:
    """Return why no entry is taken from a record that is `unreadable`."""
    return _REASONS.get(record.unreadable or "", Reason.UNREADABLE_HEADERS)


class DeadLetter(NamedTuple):
    """One source record and the entries of it that are dead for one reason.

    `indexes` is None if the record could not be split: the record then counts as one entry. `of_entries` is how many
    entries the record has, dead or not; None if that is not known. With an `end_offset` the letter stands for all
    offsets from the record's up to that one, which a person has skipped.
    """

    record: SourceRecord
    reason: Reason
    message: str
    indexes: tuple[int, ...] | None
    end_offset: int | None = None
    of_entries: int | None = None

    @property
    def entries(self) -> int:
        """The number of entries that this dead letter accounts for in the conservation law."""
        return 1 if self.indexes is None else len(self.indexes)

    @property
    def memory_bytes(self) -> int:
        """The most bytes that this dead letter takes in memory, with its record."""
        record = self.record
        headers = sum(_HEADER_BYTES + _CHAR_BYTES * len(name) + len(value or b"") for name, value in record.headers)
        texts = len(record.key or b"") + len(record.value or b"") + _CHAR_BYTES * len(self.message)
        return _LETTER_BYTES + headers + texts + _INDEX_BYTES * len(self.indexes or ())


def _header_of(field: str) -> str:
    return "lp-" + field.replace("_", "-")


class DeadLetterHeaders(msgspec.Struct, frozen=True, omit_defaults=True, rename=_header_of):
    """The headers of a dead letter, in their order; `object_key` is set if the record is an object of its own.

    `end_offset` is set if the dead letter stands for all offsets from `offset` up to `end_offset`, which a person
    skipped.
    """

    reason: str
    message: str
    topic: str
    partition: int
    offset: int
    index_list: Annotated[str, msgspec.Meta(pattern=r"\A(all|[0-9]{1,9}(,[0-9]{1,9})*)\Z")] = msgspec.field(
        name="lp-indexes"
    )
    batch_id: str
    group_id: str
    of_entries: Annotated[int, msgspec.Meta(ge=1)] | None = None
    timestamp_ms: int | None = None
    end_offset: int | None = None
    object_key: str | None = msgspec.field(name="lp-object", default=None)

    @property
    def indexes(self) -> tuple[int, ...] | None:
        """The indexes of the entries; None: the record could not be split."""
        return None if self.index_list == ALL else tuple(map(int, self.index_list.split(",")))

    @property
    def entries(self) -> int:
        """The number of entries that it accounts for."""
        return 1 + self.index_list.count(",")

    @property
    def tp(self) -> TopicPartition:
        """The TopicPartition of the source record."""
        return TopicPartition(self.topic, self.partition)

    @property
    def next_offset(self) -> int:
        """The offset behind those for which it stands."""
        return self.end_offset or self.offset + 1


class StoredRecord(msgspec.Struct, frozen=True):
    """A record whose key or headers are too large for any message; bytes are base64 in its JSON."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


_OURS = frozenset(DeadLetterHeaders.__struct_encode_fields__)
encode_stored_record = msgspec.json.Encoder().encode
decode_stored_record = msgspec.json.Decoder(StoredRecord).decode


def stored_record(object_key: str, data: bytes, *, key: bytes | None, headers: Headers) -> StoredRecord:
    """Return the record of which an object has the value, or all; a dead letter has its `key` and `headers` else.

    Raises:
        msgspec.DecodeError: it should have all, and has no record.
    """
    if object_key.endswith(RECORD_SUFFIX):
        return decode_stored_record(data)
    return StoredRecord(key, data, list(headers))


def headers_of(
    letter: DeadLetter, *, batch_id: str, group_id: str, object_key: str | None = None
) -> list[tuple[str, bytes | None]]:
    """Make the headers of a dead letter: the record's own, untouched, then ours."""
    record = letter.record
    ours = DeadLetterHeaders(
        reason=letter.reason.value,
        message=letter.message[:MESSAGE_CHARS_MAX],
        topic=record.tp.topic,
        partition=record.tp.partition,
        offset=record.offset,
        index_list=ALL if letter.indexes is None else ",".join(map(str, letter.indexes)),
        batch_id=batch_id,
        group_id=group_id,
        of_entries=letter.of_entries,
        timestamp_ms=record.timestamp_ms,
        end_offset=letter.end_offset,
        object_key=object_key,
    )
    texts = msgspec.to_builtins(ours).items()
    return [*record.headers, *((name, str(text).encode("utf-8", "replace")) for name, text in texts)]


def parse_headers(headers: Headers | Iterable[tuple[str, bytes | None]]) -> DeadLetterHeaders:
    """Return the headers of a dead letter. Ours start at the last `lp-reason`; a replayed one has older ones before it.

    Raises:
        ValueError: a header of ours is missing, or has no valid value.
    """
    found: dict[str, bytes] = {}
    for name, value in headers:
        if name == HEADER_REASON:
            found.clear()
        if value is not None and name in _OURS:
            found[name] = value
    texts = {name: value.decode() for name, value in found.items()}
    return msgspec.convert(texts, DeadLetterHeaders, strict=False)


def own_headers(headers: Headers) -> Headers:
    """Return the record's own headers from the headers of its dead letter: they stand before ours."""
    begins = [number for number, (name, _) in enumerate(headers) if name == HEADER_REASON]
    return headers[: begins[-1]] if begins else ()
