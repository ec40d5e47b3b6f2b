"""The invariants of TESTING 3.0, from what lies outside the workers: source logs, committed messages, objects.

Independent of the worker's own reading code: rows are read with fastavro, entries counted with the standard library.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import fastavro

from service.core.dead_letter import parse_headers
from service.core.model import TopicPartition
from service.core.reference import FlushRecord, Reference, decode_flush_record, decode_reference
from tests.fakes.broker import Committed, FakeBroker
from tests.fakes.store import Bucket
from tests.fakes.worker import DEAD_LETTERS, FLUSHES, REFERENCES


class EntryId(NamedTuple):
    """What identifies an entry for ever."""

    tp: TopicPartition
    offset: int
    number: int


class InvariantError(AssertionError):
    """An invariant is broken; the text begins with its number."""


def check_commit(committed: Committed) -> None:
    """Check one transaction when it is committed: I3 and I4 against the offsets it moves, W3 in its totals."""
    flushes = [decode_flush_record(one.value or b"") for one in committed.messages if one.topic == FLUSHES]
    if len(flushes) != 1:
        raise InvariantError(f"I4: {len(flushes)} flush records in one transaction")
    flush = flushes[0]
    moved = {}
    for part in flush.topic_partitions:
        tp = TopicPartition(part.topic, part.partition)
        if part.next_offset > part.first_offset:
            moved[tp] = part.next_offset
            if committed.before.get(tp) != part.first_offset:
                raise InvariantError(
                    f"I3: {flush.batch_id}: {tp} from {part.first_offset}, committed was {committed.before.get(tp)}"
                )
    if moved != committed.offsets:
        raise InvariantError(f"I4: {flush.batch_id}: flush record {moved}, offsets {dict(committed.offsets)}")
    references = [decode_reference(one.value or b"") for one in committed.messages if one.topic == REFERENCES]
    letters = [one for one in committed.messages if one.topic == DEAD_LETTERS]
    _check_totals(flush, references, len(letters))


def _check_totals(flush: FlushRecord, references: list[Reference], letters: int) -> None:
    totals = flush.totals
    in_files = sum(reference.entries for reference in references)
    facts = {
        "entries in references": (in_files, totals.entries_in_files),
        "references": (len(references), totals.references),
        "dead letters": (letters, totals.dead_letter_records),
        "conservation": (totals.entries, totals.entries_in_files + totals.dead_letters + totals.discarded_replays),
    }
    for what, (found, stated) in facts.items():
        if found != stated:
            raise InvariantError(f"W3: {flush.batch_id}: {what}: {found} is not {stated}")


def check_all(broker: FakeBroker, bucket: Bucket) -> None:
    """Check I1 to I5 over everything that was ever committed."""
    check_offsets(broker)
    check_entries(broker, bucket)


def check_entries(broker: FakeBroker, bucket: Bucket) -> None:
    """I1 no loss, I2 no duplicate, I5 objects as their references say."""
    found: Counter[EntryId] = Counter()
    for message in broker.messages(REFERENCES):
        found.update(_entries_of(decode_reference(message.value or b""), bucket))
    for message in broker.messages(DEAD_LETTERS):
        letter = parse_headers(message.headers)
        tp = TopicPartition(letter.topic, letter.partition)
        found.update(EntryId(tp, letter.offset, index) for index in letter.indexes or (0,))
    expected: set[EntryId] = set()
    for tp, log in broker.logs.items():
        committed = broker.committed_offset(tp) or 0
        for record in log.records:
            if broker.starts.get(tp, 0) <= record.offset < committed:
                expected.update(EntryId(tp, record.offset, index) for index in range(_entries_in(record.value)))
    if lost := expected - found.keys():
        raise InvariantError(f"I1: {len(lost)} entries below the committed offsets are nowhere: {sorted(lost)[:5]}")
    if doubled := sorted(one for one, count in found.items() if count > 1):
        raise InvariantError(f"I2: {len(doubled)} entries are there more than once: {doubled[:5]}")
    if strange := found.keys() - expected:
        raise InvariantError(f"I4: {len(strange)} entries are not below a committed offset: {sorted(strange)[:5]}")


def _entries_of(reference: Reference, bucket: Bucket) -> list[EntryId]:
    body = bucket.objects.get(reference.location.object)
    if body is None:
        raise InvariantError(f"I5: {reference.location.object} is referenced but not there")
    if (len(body), hashlib.sha256(body).hexdigest()) != (reference.location.size, reference.location.checksum.value):
        raise InvariantError(f"I5: {reference.location.object} is not what the reference says")
    rows = read_rows(body)
    if len(rows) != reference.entries:
        raise InvariantError(f"I5: {reference.location.object}: {len(rows)} rows, {reference.entries} announced")
    if reference.schema.object not in bucket.objects:
        raise InvariantError(f"I5: the schema {reference.schema.object} is not there")
    for row in rows:
        if (row["_meta"]["user"], row["user"]) != (reference.partition.user, reference.partition.user):
            raise InvariantError(f"I5: {reference.location.object} has a row of {row['user']}")
    metas = [row["_meta"] for row in rows]
    return [EntryId(TopicPartition(one["topic"], one["partition"]), one["offset"], one["index"]) for one in metas]


def check_offsets(broker: FakeBroker) -> None:
    """I3 ranges of flush records join without gap or overlap; I4 they end at the committed offset, never set back."""
    if broker.set_back:
        raise InvariantError(f"I4: committed offsets were set back: {broker.set_back[:3]}")
    ranges: dict[TopicPartition, list[tuple[int, int]]] = {}
    for message in broker.messages(FLUSHES):
        for part in decode_flush_record(message.value or b"").topic_partitions:
            if part.next_offset > part.first_offset:
                tp = TopicPartition(part.topic, part.partition)
                ranges.setdefault(tp, []).append((part.first_offset, part.next_offset))
    for tp, found in ranges.items():
        found.sort()
        for (_, end), (start, _) in pairwise(found):
            if start != end:
                raise InvariantError(f"I3: {tp}: {'a gap' if start > end else 'an overlap'} between {end} and {start}")
        if found[-1][1] != broker.committed_offset(tp):
            raise InvariantError(f"I4: {tp}: flushed to {found[-1][1]}, committed is {broker.committed_offset(tp)}")


def _entries_in(value: bytes | None) -> int:
    """Count the entries of a record with the standard library; what cannot be split is one."""
    if value is None:
        return 0
    try:
        decoded = json.loads(value)
    except ValueError:
        return 1
    return len(decoded) if isinstance(decoded, list) else 1


def read_rows(body: bytes) -> list[dict[str, Any]]:
    """Read an Avro container file of codec null, its schema parsed once."""
    stream = io.BytesIO(body)
    header: Any = fastavro.schemaless_reader(stream, fastavro.parse_schema(_HEADER), None)
    schema = _parse(header["meta"]["avro.schema"].decode())
    rows = []
    while stream.tell() < len(body):
        count: Any = fastavro.schemaless_reader(stream, "long", None)
        length: Any = fastavro.schemaless_reader(stream, "long", None)
        ends = stream.tell() + length
        rows += [fastavro.schemaless_reader(stream, schema, None) for _ in range(count)]
        assert stream.tell() == ends, "a block ends where its length says"
        assert stream.read(16) == header["sync"], "a block is followed by the sync marker"
    return rows  # type: ignore[return-value]


_HEADER = {
    "type": "record",
    "name": "header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": 16}},
    ],
}


@lru_cache(maxsize=1000)
def _parse(text: str) -> Any:
    return fastavro.parse_schema(json.loads(text), _force=True)
