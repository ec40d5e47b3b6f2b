"""What identifies an entry on both sides of the worker: as it was consumed, and as it stands in an object.

Owns plain values that the second opinion fills (`service.oracle.identify`) and verification mode compares.
"""

from __future__ import annotations

from typing import NamedTuple

from service.formats.model import PartitionKey, TopicPartition


class ConsumedEntry(NamedTuple):
    """An entry of a consumed record: where it belongs; `key` is None where it must be dead."""

    key: PartitionKey | None
    event_time_us: int = 0
    id: str | None = None


DEAD_ENTRY = ConsumedEntry(None)


class ConsumedRecord(NamedTuple):
    """The entries of a consumed record. `is_whole`: it could not be split and counts as one (dead) entry."""

    entries: list[ConsumedEntry]
    is_whole: bool = False


class StoredRow(NamedTuple):
    """What `_meta` of a row says, and the PartitionKey of the reference under which it was found."""

    tp: TopicPartition
    offset: int
    number: int
    user: str
    event_time_us: int
    id: str | None
    key: PartitionKey
