"""Objects of one flush's references against the source: their bytes, rows and schemas (DESIGN 3.2-3.5).

Owns the checks of one object, of the references into it and of each row; rows are read block by block.
"""

from __future__ import annotations

import re
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from log_partitioner.formats.findings import Kind
from log_partitioner.formats.model import RootLink, TopicPartition
from log_partitioner.formats.reference import Reference
from log_partitioner.proof.accounting import tp_of
from log_partitioner.proof.audit.context import where_of
from log_partitioner.proof.audit.schemas import FlushSchemas
from log_partitioner.proof.audit.source import GivenUp, count_seen
from log_partitioner.proof.audit.store import Address
from log_partitioner.proof.oracle.container import UNREADABLE, Container, Span, spans_of
from log_partitioner.proof.oracle.equal import differences, digest
from log_partitioner.proof.oracle.published_schema import META, RestoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from log_partitioner.formats.model import PartitionKey
    from log_partitioner.proof.audit.announced import Told
    from log_partitioner.proof.audit.context import Context
    from log_partitioner.proof.audit.source import FlushSource
    from log_partitioner.proof.audit.store import FetchedObject
    from log_partitioner.proof.oracle.expected_schema import Type
    from log_partitioner.proof.oracle.published_schema import HeaderSchema

ENCODED_USER_BYTES_MAX = 100  # a longer one is cut, and its key says only whose it may be
DIFFERENCES_MAX = 5
_KEY = re.compile(r"/(?:pack|user=(?P<user>[^/]+))/(?:date=(?P<date>[^/]+)/hour=(?P<hour>[^/]+)/)?[^/]+$")


class Tally:
    """The sum of the rows of one reference."""

    def __init__(self) -> None:
        self.entries = 0
        self.times: tuple[int, int] | None = None
        self.sources: dict[TopicPartition, tuple[int, int, int]] = {}  # first offset, last offset, entries
        self.types: dict[int, Type] = {}
        self.misplaced = 0
        self.all_in_source = True

    def add(self, meta: dict[str, Any], tp: TopicPartition) -> None:
        """Count a row."""
        self.entries += 1
        time_us = meta["event_time"]
        low, high = self.times or (time_us, time_us)
        self.times = (min(low, time_us), max(high, time_us))
        first, _, entries = self.sources.get(tp, (meta["offset"], 0, 0))
        self.sources[tp] = first, meta["offset"], entries + 1

    def problems_of(self, reference: Reference) -> Iterator[str]:
        """Yield statements of a reference that its entries contradict."""
        sources = [(*tp, *seen) for tp, seen in sorted(self.sources.items())]
        said_sources = sorted((*tp_of(one), one.min_offset, one.max_offset, one.entries) for one in reference.sources)
        facts = {
            "entries": (reference.entries, self.entries),
            "event times": ((reference.event_time_min_us, reference.event_time_max_us), self.times),
            "sources": (said_sources, sources),
        }
        for name, (said, found) in facts.items():
            if said != found:
                yield f"{name}: says {said}, rows say {found}"


class FlushObjects:
    """The objects of one flush; those of backfills and of batches without a record, too."""

    def __init__(self, context: Context, source: FlushSource) -> None:
        self._context = context
        self._source = source
        self._findings = context.findings
        self._schemas = FlushSchemas(context)
        self._unnamed: list[tuple[str, str]] = []
        self._given_up: dict[str, GivenUp] = {}
        self._last: dict[tuple[PartitionKey, TopicPartition], tuple[int, int]] = {}

    def check(self, told: Told) -> None:
        """Check all objects of a flush."""
        groups: dict[Address, list[Reference]] = {}
        references = told.references
        self._given_up = {
            reference.reference_id: reason
            for reference, place in zip(references, told.places, strict=True)
            if (reason := self._context.given_up(reference, *place)) is not None
        }
        for reference in references:
            groups.setdefault(Address.of(reference.location), []).append(reference)
        self._context.counts.update(references=len(references), objects=len(groups))
        if versions := len(groups) - len({address[:2] for address in groups}):
            text = f"{versions} objects are referenced in several versions"
            self._findings.add(Kind.REFERENCE_WRONG, text, count=versions)
        stored = self._context.open_objects(list(groups))
        for (address, some), one in zip(groups.items(), stored, strict=True):
            self._check_object(address, some, one)

    def _check_object(self, address: Address, references: list[Reference], stored: FetchedObject | None) -> None:
        """Check one object and all references to it."""
        key, own = address.key, self._context.ground.settings.s3.bucket
        if all(self._given_up.get(one.reference_id) is GivenUp.ACKNOWLEDGED for one in references):
            self._schemas.leave_out(references)
            for reference in references:
                self._give_up(reference)
            return
        if address.bucket != own:
            text = f"{key}: it is said to be in bucket {address.bucket}, the settings say {own}"
            self._findings.add(Kind.REFERENCE_WRONG, text, key, reference=references[0])
        if stored is None:
            self._schemas.leave_out(references)
            kept = self._context.retired
            if all(one.reference_id in kept or one.reference_id in self._given_up for one in references):
                self._check_retired(references)
            else:
                text = f"{key}: there is no such object"
                self._findings.add(Kind.OBJECT_MISSING, text, key, reference=references[0])
            return
        self._context.counts["object_bytes"] += len(stored.data)
        is_altered = self._check_bytes(references, stored)
        spans: list[Span] = []
        are_read = True
        try:
            container = Container(stored.data)
            header = self._schemas.header(container.schema)
        except UNREADABLE as error:
            self._unreadable(Kind.OBJECT_UNREADABLE, references, key, error, is_altered=is_altered)
            return
        for reference in references:
            self._check_key(reference)
            try:
                blocks = spans_of(reference, container)
                self._check_reference(reference, container, blocks, header)
                spans += blocks
            except UNREADABLE as error:
                is_whole = reference.location.ranges == ((0, len(stored.data)),)
                kind = Kind.OBJECT_UNREADABLE if is_whole else Kind.REFERENCE_WRONG
                self._unreadable(kind, [reference], where_of(reference), error, is_altered=is_altered)
                are_read = False
        spans.sort()
        if any(begin < end for (_, end), (begin, _) in pairwise(spans)):
            text = f"{key}: the same bytes are referenced twice"
            self._findings.add(Kind.REFERENCE_WRONG, text, key, reference=references[0])
        reached = container.header_bytes
        for begin, end in [*spans, (container.size, container.size)] if are_read else ():
            if begin > reached:
                self._unnamed.append((f"{key}: no reference names its bytes [{reached}, {begin})", key))
                self._schemas.leave_out(references)
            reached = max(reached, end)

    def _check_retired(self, references: list[Reference]) -> None:
        """Check the rows that the table has of an object that is retired, in place of its own."""
        counts = self._context.counts
        counts["objects_retired"] += 1
        for reference in references:
            if reference.reference_id in self._given_up:
                self._give_up(reference)
                continue
            tally = Tally()
            for meta, digested in self._context.retired[reference.reference_id]:
                self._check_row(meta, digested, reference, tally)
            counts.update(rows_read=tally.entries, rows_retired=tally.entries)
            for problem in tally.problems_of(reference):
                self._context.refute(reference, f"its object is retired, and of what the table has of it: {problem}")

    def _give_up(self, reference: Reference) -> None:
        """Note that its entries count as seen if nothing has them any more."""
        reason = self._given_up[reference.reference_id]
        for one in reference.sources:
            column = self._source.columns[tp_of(one)]
            for row in column.rows(one.min_offset, one.max_offset + 1):
                if column.shapes[row].key == reference.partition_key:
                    column.given_up.setdefault(row, reason)

    def finish(self, *, has_all: bool, is_cut: bool, is_made_good: bool) -> None:
        """Judge the facts that concern a batch as a whole.

        It `has_all` references, or is known to be announced in part, or lacks what backfills hold now.
        """
        for text, key in self._unnamed:
            if is_made_good:
                self._findings.note(f"{text}; backfills have made good what its batch lacks")
            elif not is_cut:
                self._findings.add(Kind.OBJECT_UNREFERENCED, text, key)
        if has_all:
            self._schemas.check_fields()

    def _unreadable(
        self, kind: Kind, references: list[Reference], where: str, error: Exception, *, is_altered: bool
    ) -> None:
        """Add a finding about an unreadable object, unless the object was altered, which is a finding already."""
        if not is_altered:
            text = f"{where}: not a valid Avro file: {type(error).__name__} {error}"[:300]
            self._findings.add(kind, text, references[0].location.object, reference=references[0])
        self._schemas.leave_out(references)

    def _check_bytes(self, references: list[Reference], stored: FetchedObject) -> bool:
        """Check size, checksum and etag, once if all references say the same; return whether the object is another."""
        key, is_altered = references[0].location.object, False
        for size, checksum, etag in {
            (one.location.size, one.location.checksum, one.location.etag) for one in references
        }:
            if wrong := stored.differences(size, checksum, etag):
                text = f"{key}: {'; '.join(wrong)}"
                self._findings.add(Kind.OBJECT_ALTERED, text, key, reference=references[0])
                is_altered = True
        return is_altered

    def _check_reference(
        self, reference: Reference, container: Container, spans: list[Span], header: HeaderSchema
    ) -> None:
        exact = self._schemas.exact(reference, header, is_pack=is_pack(reference))
        tally = Tally()
        for begin, end in spans:
            for row in container.rows(begin, end, header.published.avro):
                try:
                    values = header.published.restore(row)
                except RestoreError as error:
                    values = {"": str(error)}
                self._context.require_time()
                self._check_row(row[META], digest(values), reference, tally, values)
        self._context.counts["rows_read"] += tally.entries
        if tally.entries and tally.misplaced == tally.entries:
            return  # blocks of another PartitionKey: nothing else that the reference says can be true of them
        for problem in tally.problems_of(reference):
            self._context.refute(reference, problem)
        if exact is not None and tally.types and tally.all_in_source:  # else entries are unexpected or gone: reported
            self._schemas.check_entries(exact, tally.types, reference)

    def _check_key(self, reference: Reference) -> None:
        """Check an object's key against user, date and hour."""
        user, date, hour = reference.partition_key
        named, encoded = _KEY.search(reference.location.object), encoded_user(user)
        if named is None:
            return
        is_other = named["date"] is not None and (named["date"], named["hour"]) != (date, f"{hour:02}")
        if named["user"] is not None and len(encoded) <= ENCODED_USER_BYTES_MAX:
            is_other = is_other or named["user"] != encoded
        if is_other:
            self._context.refute(reference, f"the key does not name {user!r} {date} {hour:02}")

    def _check_row(
        self, meta: dict[str, Any], digested: bytes, reference: Reference, tally: Tally, values: object = None
    ) -> None:
        """Check a row, and note that its entry was seen in a file; `digested` is the digest of its values."""
        tp, offset, index = place = TopicPartition(meta["topic"], meta["partition"]), meta["offset"], meta["index"]
        tally.add(meta, tp)
        self._context.on_row(reference, meta, digested)
        key = reference.partition_key
        before = self._last.get((key, tp), (-1, -1))  # in this reference, or in one before it
        if before >= (offset, index):
            self._context.refute(reference, f"{tp} {(offset, index)} stands after {before}")
        self._last[key, tp] = offset, index
        if self._context.is_gone(tp, offset):
            tally.all_in_source = False
            return
        column = self._source.columns[tp]
        record = column.find(offset)
        if record is None or not 0 <= index < len(record.rows):
            text = "not in the source below the committed offset, or not of what its flush covers"
            self._add(Kind.UNEXPECTED, reference, place, text)
            return
        row = record.rows[index]
        count_seen(column.files, row)
        shape = column.shapes[row]
        if shape.key is None or shape.type is None:
            self._add(Kind.UNEXPECTED, reference, place, f"should be dead: {' or '.join(sorted(shape.reasons))}")
            return
        if shape.key == key:
            tally.types[id(shape.type)] = shape.type
        else:
            tally.misplaced += 1
        if shape.key != key or meta["user"] != shape.key.user:
            text = f"belongs to {tuple(shape.key)}, is under {tuple(key)}, user {meta['user']!r}"
            self._add(Kind.MISPLACED, reference, place, text, shape.key)
        root = None if meta["root"] is None else RootLink(*(meta["root"][name] for name in RootLink._fields))
        if not column.has_meta(row, (meta["event_time"], meta["id"], meta["timestamp"], root)):
            found = {name: meta[name] for name in ("event_time", "id", "timestamp")}
            self._differs(Kind.META, reference, place, {**found, "root": root})
        if not column.has_digest(row, digested):
            self._differs(Kind.ALTERED, reference, place, values)

    def _add(
        self,
        kind: Kind,
        reference: Reference,
        place: tuple[TopicPartition, int, int],
        text: str,
        key: PartitionKey | None = None,
    ) -> None:
        tp, offset, index = place
        text = f"{where_of(reference)}: {tp} offset {offset} index {index}: {text}"
        self._findings.add(kind, text, place, reference=reference, key=key)

    def _differs(self, kind: Kind, reference: Reference, place: tuple[TopicPartition, int, int], found: object) -> None:
        """Add a finding; an example reads the source again, to name the difference."""
        text = ""
        if self._findings.wants_example(kind):
            expected = self._context.explain(*place)
            some = islice(differences(expected[kind], found), DIFFERENCES_MAX) if expected else ("the source is gone",)
            text = "; ".join(some)
        self._add(kind, reference, place, text)


def is_pack(reference: Reference) -> bool:
    """Return whether an object is one that many PartitionKeys share."""
    named = _KEY.search(reference.location.object)
    return named is not None and named["user"] is None


def encoded_user(user: str) -> str:
    """Return a user as its object's key has it: `A-Za-z0-9_-` as they are, other bytes of its UTF-8 as %XX."""
    return quote(user, safe="").replace(".", "%2E").replace("~", "%7E")
