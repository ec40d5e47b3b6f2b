"""Makes every message of a flush fit into its topic: the size of a message, and the ways to shrink a dead letter.

    too many indexes     the letter is split: several of one record and reason, each with some of the indexes
    too large a value    it is an object, which the letter names
    too large otherwise  so is the whole record; the letter has nothing of it but its place

A broker compares a record batch, compressed, with `max.message.bytes`. A message takes most room alone in a batch and
not compressed (KAFKA_FACTS T12): the client library batches less than that together, and sends a batch uncompressed if
compression would make it larger.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from log_partitioner.boundary import Message
from log_partitioner.formats.dead_letter import RECORD_SUFFIX, DeadLetter, StoredRecord, encode_stored_record
from log_partitioner.formats.model import Headers, SourceRecord
from log_partitioner.formats.object_key import dead_letter_key, stored_record_key

BATCH_BYTES = 100  # the head of a record batch, 61, and the numbers of its only record
HEADER_BYTES = 10  # two lengths
OUR_HEADERS_BYTES = 4096  # of a dead letter, but for the indexes; an object's key has 1,024 at most


class Apart(Enum):
    """The part of a record that is stored as an object of its own, because its dead letter has no room for it."""

    VALUE = "value"
    RECORD = "record"


def message_bytes(message: Message) -> int:
    """Return the most bytes that a message takes in its topic."""
    return BATCH_BYTES + len(message.key or b"") + len(message.value or b"") + _headers_bytes(message.headers)


def _headers_bytes(headers: Headers | Iterable[tuple[str, bytes | None]]) -> int:
    return sum(HEADER_BYTES + len(name.encode("utf-8", "surrogatepass")) + len(value or b"") for name, value in headers)


def split_letter(letter: DeadLetter, *, message_bytes_max: int) -> list[DeadLetter]:
    """Return a dead letter, as several if its indexes alone are more than a message takes."""
    indexes = letter.indexes
    if indexes is None:
        return [letter]
    most = max(1, (message_bytes_max - BATCH_BYTES - OUR_HEADERS_BYTES) // _index_bytes(indexes))
    if len(indexes) <= most:
        return [letter]
    return [letter._replace(indexes=indexes[at : at + most]) for at in range(0, len(indexes), most)]


def _index_bytes(indexes: tuple[int, ...]) -> int:
    """Return the most bytes of one of ascending indexes, with its comma."""
    return len(str(indexes[-1])) + 1


def stored_apart(letter: DeadLetter, *, message_bytes_max: int) -> Apart | None:
    """Return the part of its record for which a dead letter has no room; None if the record fits as it is."""
    record, indexes = letter.record, letter.indexes
    room = message_bytes_max - BATCH_BYTES - OUR_HEADERS_BYTES
    if indexes is not None:
        room -= len(indexes) * _index_bytes(indexes)
    room -= len(record.key or b"") + _headers_bytes(record.headers)
    if room < 0:
        return Apart.RECORD
    return None if len(record.value or b"") <= room else Apart.VALUE


def stored_object(record: SourceRecord, apart: Apart, *, prefix: str, batch_id: str, number: int) -> tuple[str, bytes]:
    """Return key and body of the object that holds a record, or its value."""
    if apart is Apart.VALUE:
        return dead_letter_key(prefix, batch_id=batch_id, number=number), record.value or b""
    body = encode_stored_record(StoredRecord(record.key, record.value, list(record.headers)))
    return stored_record_key(prefix, batch_id=batch_id, number=number), body


def holds_record(object_key: str) -> bool:
    """Return whether a stored object holds a whole record, not its value only."""
    return object_key.endswith(RECORD_SUFFIX)
