"""I1 to I5 and W3, from what lies outside the workers: source logs, committed messages, objects.

Independent of the worker's own reading code: rows are read with fastavro by the header's schema, entries counted and
compared with the standard library. Of the product it uses what readers use: messages, and exact schemas by projection.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from fastavro.validation import validate

from service.accounting import Sums, judge_joins, judge_published, judge_range, judge_totals, judge_uncommitted, tp_of
from service.boundary import Message
from service.formats.adoption import decode_flushes
from service.formats.dead_letter import parse_headers
from service.formats.flush_record import FlushedTopicPartition, FlushRecord, decode_flush_record, merge_parts
from service.formats.model import PartitionKey, TopicPartition
from service.formats.projection import NAME_PROPERTY, null_counts, project
from service.formats.reference import Reference, decode_references
from tests.fakes.broker import Committed, FakeBroker
from tests.fakes.reading import loaded, parsed, read_container, restored, without_nulls
from tests.fakes.store import Bucket
from tests.fakes.worker import DEAD_LETTERS, FLUSHES, REFERENCES

FOREIGN = "somebody else's"  # what PutFault.TAKEN leaves; a key that follows from its content is taken for ours


class EntryId(NamedTuple):
    """What identifies an entry for ever."""

    tp: TopicPartition
    offset: int
    number: int


class InvariantError(AssertionError):
    """An invariant is broken; the text begins with its number."""


def flush_records(broker: FakeBroker) -> list[FlushRecord]:
    """Give all flush records, whole."""
    found = [decode_flushes(one.value or b"") for one in broker.messages(FLUSHES)]
    return _whole(one for one in found if isinstance(one, FlushRecord))


def references(broker: FakeBroker) -> list[Reference]:
    """Give all references, in the order of messages and lines."""
    return [one for message in broker.messages(REFERENCES) for one in decode_references(message.value or b"")]


def _whole(parts: Iterable[FlushRecord]) -> list[FlushRecord]:
    whole, problems = merge_parts(parts)
    if problems:
        raise InvariantError(f"I4: {problems}")
    return whole


def check_commit(committed: Committed) -> None:
    """Check one transaction when it is committed: I3 and I4 against the offsets it moves, W3 in its totals."""
    flushes = _whole(decode_flush_record(one.value or b"") for one in committed.messages if one.topic == FLUSHES)
    if not committed.messages:
        _check_start(committed)
        return
    if len(flushes) != 1:
        raise InvariantError(f"I4: {len(flushes)} flush records in one transaction")
    flush = flushes[0]
    moved = {}
    for part in flush.topic_partitions:
        tp = TopicPartition(part.topic, part.partition)
        if committed.before.get(tp) != part.first_offset:  # also where nothing came: it is the newest that is known
            raise InvariantError(
                f"I3: {flush.batch_id}: {tp} from {part.first_offset}, committed was {committed.before.get(tp)}"
            )
        if part.next_offset > part.first_offset:
            moved[tp] = part.next_offset
    if moved != committed.offsets:
        raise InvariantError(f"I4: {flush.batch_id}: flush record {moved}, offsets {dict(committed.offsets)}")
    messages = [one for one in committed.messages if one.topic == REFERENCES]
    found = [reference for one in messages for reference in decode_references(one.value or b"")]
    letters = [one for one in committed.messages if one.topic == DEAD_LETTERS]
    _check_totals(flush, found, letters)
    _check_lines(flush, found)


def _check_start(committed: Committed) -> None:
    """I4: start positions are committed where nothing is."""
    if set_back := {tp: one for tp in committed.offsets if (one := committed.before[tp]) is not None}:
        raise InvariantError(f"I4: start positions {dict(committed.offsets)} over what is committed: {set_back}")


def _check_lines(flush: FlushRecord, found: list[Reference]) -> None:
    """I4: references are numbered as they stand, and state the ranges of their batch."""
    if [one.reference_id for one in found] != [f"{flush.batch_id}-{number}" for number in range(len(found))]:
        raise InvariantError(f"I4: {flush.batch_id}: its references are {[one.reference_id for one in found][:5]}")
    spans = {tp_of(one): (one.first_offset, one.next_offset) for one in flush.topic_partitions}
    for reference in found:
        for one in reference.sources:
            for wrong in judge_range(one, spans.get(tp_of(one)), record="flush record"):
                raise InvariantError(f"I4: {reference.reference_id}: {wrong}")


def _check_totals(flush: FlushRecord, found: list[Reference], letters: list[Message]) -> None:
    """W3: the flush record adds up, and says what its transaction has published."""
    sums = Sums(references=len(found), dead_letter_records=len(letters))
    for reference in found:
        sums.in_files.update({tp_of(one): one.entries for one in reference.sources})
    for one in letters:
        letter = parse_headers(one.headers)
        sums.dead_letters[TopicPartition(letter.topic, letter.partition)] += len(letter.indexes or (0,))
    lines = flush.topic_partitions
    for wrong in [*judge_totals(flush.totals, lines), *judge_published(flush.totals, lines, sums)]:
        raise InvariantError(f"W3: {flush.batch_id}: {wrong.text}")


def check_all(broker: FakeBroker, bucket: Bucket) -> None:
    """Check I1 to I5 over everything that was ever committed."""
    check_offsets(broker)
    check_entries(broker, bucket)


def check_entries(broker: FakeBroker, bucket: Bucket) -> None:
    """I1 no loss, I2 no duplicate, I5 objects as their references say."""
    found: Counter[EntryId] = Counter()
    announced = references(broker)
    _check_ranges(announced)
    for reference in announced:
        found.update(_entries_of(reference, broker, bucket))
    for message in broker.messages(DEAD_LETTERS):
        letter = parse_headers(message.headers)
        tp = TopicPartition(letter.topic, letter.partition)
        if letter.end_offset is None:
            found.update(EntryId(tp, letter.offset, index) for index in letter.indexes or (0,))
        else:
            found.update(_entries_skipped(broker, tp, range(letter.offset, letter.end_offset)))
    expected: set[EntryId] = set()
    for tp, log in broker.logs.items():
        committed = broker.committed_offset(tp) or 0
        for record in log.records:
            if broker.starts.get(tp, 0) <= record.offset < committed:
                expected.update(EntryId(tp, record.offset, index) for index in range(len(_entries_in(record.value))))
    if lost := expected - found.keys():
        raise InvariantError(f"I1: {len(lost)} entries below the committed offsets are nowhere: {sorted(lost)[:5]}")
    if doubled := sorted(one for one, count in found.items() if count > 1):
        raise InvariantError(f"I2: {len(doubled)} entries are there more than once: {doubled[:5]}")
    if strange := found.keys() - expected:
        raise InvariantError(f"I4: {len(strange)} entries are not below a committed offset: {sorted(strange)[:5]}")


def _entries_skipped(broker: FakeBroker, tp: TopicPartition, offsets: range) -> list[EntryId]:
    """Give the entries of offsets for which one dead letter stands: only what cannot be read is skipped here."""
    log = broker.logs[tp]
    if readable := [offset for offset in offsets if log.broken_at(offset, offset + 1) is None]:
        raise InvariantError(f"I1: {tp}: {readable[:5]} can be read, and are skipped")
    records = [record for record in log.records if record.offset in offsets]
    return [EntryId(tp, one.offset, index) for one in records for index in range(len(_entries_in(one.value)))]


def _check_ranges(announced: list[Reference]) -> None:
    """I5: the references of one object tile it: the header, then the blocks of one after those of the other."""
    ends: dict[str, int] = {}
    sizes = {}
    for reference in announced:
        name = reference.location.object
        sizes[name] = reference.location.size
        (first, length), *blocks = reference.location.ranges
        if first or len(blocks) > 1:
            raise InvariantError(f"I5: {reference.reference_id} has the ranges {reference.location.ranges}")
        start, end = (blocks[0][0], sum(blocks[0])) if blocks else (ends.get(name), length)
        if ends.get(name, start) != start:
            raise InvariantError(f"I5: {reference.reference_id} begins at {start} of {name}, not at {ends[name]}")
        ends[name] = end
    if ends != sizes:
        raise InvariantError(f"I5: bytes of objects are in no reference: {set(ends.items()) ^ set(sizes.items())}")


def _entries_of(reference: Reference, broker: FakeBroker, bucket: Bucket) -> list[EntryId]:
    where = f"{reference.reference_id} in {reference.location.object}"
    body = _object_of(reference, bucket)
    part = b"".join(body[start : start + length] for start, length in reference.location.ranges)
    text, rows = read_container(part)
    if len(rows) != reference.entries:
        raise InvariantError(f"I5: {where}: {len(rows)} rows, {reference.entries} announced")
    stored = bucket.objects.get(reference.schema.object, b"").decode()
    if stored not in (text, FOREIGN) or reference.schema.text not in (text, None):
        raise InvariantError(f"I5: {where}: the schema {reference.schema.object} is not the header's")
    if _sha256(text.encode()) != reference.schema.fingerprint:
        raise InvariantError(f"I5: {where}: {reference.schema.fingerprint} is not the fingerprint of its schema")
    _check_schema(reference, text, rows, where)
    found = []
    for row in rows:
        meta = row["_meta"]
        found.append(EntryId(TopicPartition(meta["topic"], meta["partition"]), meta["offset"], meta["index"]))
        _check_row(reference, row, text, broker, found[-1], where)
    by_tp: dict[TopicPartition, list[tuple[int, int]]] = {}
    for one in found:
        by_tp.setdefault(one.tp, []).append((one.offset, one.number))
    if any(places != sorted(places) for places in by_tp.values()):
        raise InvariantError(f"I5: {where}: rows do not stand in the order of their offsets")
    stated = {(one.topic, one.partition): (one.min_offset, one.max_offset, one.entries) for one in reference.sources}
    if stated != {tp: (places[0][0], places[-1][0], len(places)) for tp, places in by_tp.items()}:
        raise InvariantError(f"I5: {where}: its sources are not {stated}")
    return found


def _object_of(reference: Reference, bucket: Bucket) -> bytes:
    place = reference.location
    body = bucket.objects.get(place.object)
    if body is None:
        raise InvariantError(f"I5: {place.object} is referenced but not there")
    if (len(body), _sha256(body)) != (place.size, place.checksum.value):
        raise InvariantError(f"I5: {place.object} is not what the reference says")
    return body


@lru_cache(maxsize=1000)
def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _check_schema(reference: Reference, text: str, rows: list[dict[str, Any]], where: str) -> None:
    """The exact schema holds every row, has no field that none has, and its counts of nulls are right."""
    merged = loaded(text)
    names, schema = _exact(text, msgspec.json.encode(reference.projection))
    counted = {}
    for field in merged["fields"][1:]:
        nulls = [row[field["name"]] for row in rows].count(None)
        if field["name"] in names:
            counted[field.get(NAME_PROPERTY, field["name"])] = (nulls, len(rows) - nulls)
        elif nulls < len(rows):
            raise InvariantError(f"I5: {where}: {field['name']} has values but is not in the exact schema")
    if null_counts(reference, merged) not in (None, counted):
        raise InvariantError(f"I5: {where}: counts of nulls are {null_counts(reference, merged)}, not {counted}")
    for row in rows:
        if not validate({name: row[name] for name in names}, schema, raise_errors=False):
            raise InvariantError(f"I5: {where}: a row does not fit the exact schema: {row}")


@lru_cache(maxsize=5000)
def _exact(text: str, projection: bytes) -> tuple[list[str], Any]:
    """Return the names of the exact schema's fields, and it, parsed for fastavro."""
    exact = project(loaded(text), json.loads(projection))
    return [field["name"] for field in exact["fields"]], parsed(json.dumps(exact))


def _check_row(
    reference: Reference, row: dict[str, Any], text: str, broker: FakeBroker, entry_id: EntryId, where: str
) -> None:
    """The row is the entry that it says it is, and stands where it belongs."""
    meta, key = row["_meta"], reference.partition_key
    (record,) = broker.logs[entry_id.tp].read(entry_id.offset, 1)
    entries = _entries_in(record.value) if record.offset == entry_id.offset else []
    source = entries[entry_id.number] if entry_id.number < len(entries) else None
    if not isinstance(source, dict) or restored(row, text) != source:
        raise InvariantError(f"I5: {where}: {row} is not {source} of {entry_id}")
    moment = datetime.fromisoformat(source["time"])
    belongs = PartitionKey(source["user"], moment.strftime("%Y-%m-%d"), moment.hour)
    if key != belongs or meta["user"] != belongs.user:
        raise InvariantError(f"I5: {where}: an entry of {source['user']} at {moment} is not of {key}")
    if not reference.event_time_min_us <= int(moment.timestamp() * 1_000_000) <= reference.event_time_max_us:
        raise InvariantError(f"I5: {where}: {moment} is not between the reference's event times")


def check_offsets(broker: FakeBroker) -> None:
    """I3 ranges of flush records join without gap or overlap; I4 they end at the committed offset, never set back."""
    if broker.set_back:
        raise InvariantError(f"I4: committed offsets were set back: {broker.set_back[:3]}")
    ranges: dict[TopicPartition, list[FlushedTopicPartition]] = {}
    for flush in flush_records(broker):
        for part in flush.topic_partitions:
            if part.next_offset > part.first_offset:
                ranges.setdefault(tp_of(part), []).append(part)
    for tp, found in ranges.items():
        found.sort(key=lambda one: one.first_offset)
        committed = broker.committed_offset(tp)
        for wrong, _ in judge_joins(tp, found, start=None, committed=committed or 0):
            raise InvariantError(f"I3: {tp}: {wrong.text}")
        for wrong, _ in judge_uncommitted(tp, found, committed=committed):
            raise InvariantError(f"I4: {tp}: {wrong.text}")


@lru_cache(maxsize=5000)  # of the records of a world, each is asked for by all of its rows
def _entries_in(value: bytes | None) -> list[Any]:
    """Split a record into entries with the standard library, without nulls; what cannot be split is one."""
    if value is None:
        return []
    try:
        decoded = without_nulls(json.loads(value))
    except ValueError:
        return [None]
    return decoded if isinstance(decoded, list) else [decoded]
