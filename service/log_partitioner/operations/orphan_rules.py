"""Decides which objects are orphans, from what is known of references and backfills. Pure."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from hashlib import blake2b
from typing import NamedTuple

from log_partitioner.adapters.object_store import ListedObject
from log_partitioner.formats.model import TopicPartition
from log_partitioner.formats.object_key import find_rows_key
from log_partitioner.formats.reference import begun_ms

SKEW_MS = 3_600_000  # by which clocks of workers, brokers and store may differ, and an hour is no loss
_DIGEST_BYTES = 8


class Stays(StrEnum):
    """Why an object is no orphan, as far as anybody knows."""

    NAMED = "named by a reference"
    YOUNG = "too young: a flush may be under way"
    FORGOTTEN = "older than an hour behind the begin of the topic of references"
    AWAITED = "of a backfill that may still name them"
    UNKNOWN = "of a writer that the topic of references never names: another deployment's, or one that died before"
    NO_ROWS = "no objects of rows"


class NamedKeys:
    """The keys that references name, as digests of 8 bytes; two keys of one digest only let an orphan stay."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = array("Q", sorted(array("Q", map(_digest, keys))))

    def __contains__(self, key: str) -> bool:
        digest = _digest(key)
        at = bisect_left(self._digests, digest)
        return at < len(self._digests) and self._digests[at] == digest

    def __len__(self) -> int:
        return len(self._digests)


def _digest(key: str) -> int:
    return int.from_bytes(blake2b(key.encode(), digest_size=_DIGEST_BYTES).digest())


class NamingEvidence(NamedTuple):
    """All that is known when objects are listed, read before.

    `writers` are those of all references, `finished` the batch ids of backfills that have published everything. The
    topic of references has what was announced from `reach_ms` on, nothing if that is None. Objects of `before_ms` and
    older are old enough.
    """

    named: NamedKeys
    writers: Collection[str]
    finished: Collection[str]
    reach_ms: int | None
    before_ms: int


def why_it_stays(prefix: str, listed: ListedObject, evidence: NamingEvidence) -> Stays | None:
    """Return why an object stays; None if it is an orphan.

    The time in its key counts as well as the store's, which is that of a copy if the bucket was copied.
    """
    found = find_rows_key(prefix, listed.key)
    if found is None:
        return Stays.NO_ROWS
    if listed.key in evidence.named:
        return Stays.NAMED
    if listed.modified_ms > evidence.before_ms:
        return Stays.YOUNG
    if found["backfill"] is not None and found["backfill"] not in evidence.finished:
        return Stays.AWAITED
    if writer_of(found) not in evidence.writers:  # flush and run records may be of topics that deployments share
        return Stays.UNKNOWN
    begun = begun_ms(found["batch_id"]) if found["batch_id"] is not None else None
    announced_ms = listed.modified_ms if begun is None else min(begun, listed.modified_ms)
    if evidence.reach_ms is None or announced_ms <= evidence.reach_ms + SKEW_MS:
        return Stays.FORGOTTEN
    return None


def writer_of(found: re.Match[str]) -> str:
    """Return who has written an object of rows, by its key: the boot of a worker, or the batch id of a backfill."""
    return found["boot"] or found["backfill"]


def reach_of(begins: Mapping[TopicPartition, tuple[int, int | None]]) -> int | None:
    """Return from when on a topic has all messages, by first offset and first timestamp of each partition.

    None if that is not known. A partition from which nothing was removed says when it was made, at the latest, by its
    first message, since the topic may have been made anew; without messages it says nothing.
    """
    timestamps = [at_ms for first, at_ms in begins.values() if first > 0 or at_ms is not None]
    if not timestamps or None in timestamps:
        return None
    return max(at_ms for at_ms in timestamps if at_ms is not None)
