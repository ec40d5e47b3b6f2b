"""Objects of one flush's references against the source: their bytes, rows and schemas (DESIGN 3.2-3.5).

Owns the checks of one object, of the references into it and of each row; rows are read block by block.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from log_partitioner.formats.findings import Kind
from log_partitioner.formats.model import RootLink, TopicPartition
from log_partitioner.formats.reference import Reference, checksum_of
from log_partitioner.proof.audit.schemas import FlushSchemas
from log_partitioner.proof.audit.source import count_seen
from log_partitioner.proof.audit.store import Address
from log_partitioner.proof.oracle.container import UNREADABLE, Container, Span, spans_of
from log_partitioner.proof.oracle.equal import differences, digest
from log_partitioner.proof.oracle.published_schema import META, RestoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from log_partitioner.proof.audit.context import Context
    from log_partitioner.proof.audit.source import FlushSource
    from log_partitioner.proof.audit.store import FetchedObject
    from log_partitioner.proof.oracle.expected_schema import Type
    from log_partitioner.proof.oracle.object_schema import HeaderSchema

ENCODED_USER_BYTES_MAX = 100  # a longer one is cut, and its key says only whose it may be
EXAMPLE_CHARS_MAX = 400
DIFFERENCES_MAX = 5
_KEY = re.compile(r"/(?:pack|user=(?P<user>[^/]+))/(?:date=(?P<date>[^/]+)/hour=(?P<hour>[^/]+)/)?[^/]+$")


class Tally:
    """The sum of the rows of one reference."""

    def __init__(self) -> None:
        self.entries = 0
        self.times: tuple[int, int] | None = None
        self.sources: Counter[TopicPartition] = Counter()
        self.first: dict[TopicPartition, tuple[int, int]] = {}
        self.last: dict[TopicPartition, tuple[int, int]] = {}
        self.types: dict[int, Type] = {}
        self.misplaced = 0
        self.all_in_source = True

    def add(self, meta: dict[str, Any], tp: TopicPartition) -> None:
        """Count a row."""
        self.entries += 1
        time_us = meta["event_time"]
        low, high = self.times or (time_us, time_us)
        self.times = (min(low, time_us), max(high, time_us))
        self.sources[tp] += 1

    def problems_of(self, reference: Reference) -> Iterator[str]:
        """Yield statements of a reference that its entries contradict."""
        sources = [(*tp, self.first[tp][0], self.last[tp][0], n) for tp, n in sorted(self.sources.items())]
        said_sources = [
            (one.topic, one.partition, one.min_offset, one.max_offset, one.entries) for one in reference.sources
        ]
        facts = {
            "entries": (reference.entries, self.entries),
            "event times": ((reference.event_time_min_us, reference.event_time_max_us), self.times),
            "sources": (sorted(said_sources), sources),
        }
        for name, (said, found) in facts.items():
            if said != found:
                yield f"{name}: says {said}, rows say {found}"[:EXAMPLE_CHARS_MAX]


class FlushObjects:
    """The objects of one flush; those of backfills and of batches without a record, too."""

    def __init__(self, context: Context, source: FlushSource) -> None:
        self.count = self.rows = self.bytes = 0
        self._context = context
        self._source = source
        self._findings = context.findings
        self._schemas = FlushSchemas(context)
        self._unnamed: list[str] = []

    def check(self, references: list[Reference]) -> dict[int, Tally]:
        """Check all objects of a flush; return the tally of the rows of each reference, by its `id`."""
        groups: dict[Address, list[Reference]] = {}
        for reference in references:
            place = reference.location
            groups.setdefault(Address(place.bucket, place.object, place.version_id), []).append(reference)
        self.count = len(groups)
        if versions := len(groups) - len({address[:2] for address in groups}):
            text = f"{versions} objects are referenced in several versions"
            self._findings.add(Kind.REFERENCE_WRONG, text, count=versions)
        tallies: dict[int, Tally] = {}
        for some, stored in zip(groups.values(), self._context.open_objects(list(groups)), strict=True):
            tallies |= self._check_object(some, stored)
        return tallies

    def _check_object(self, references: list[Reference], stored: FetchedObject | None) -> dict[int, Tally]:
        """Check one object and all references to it."""
        key = references[0].location.object
        bucket, own = references[0].location.bucket, self._context.settings.s3.bucket
        if bucket != own:
            self._wrong(f"{key}: it is said to be in bucket {bucket}, the settings say {own}")
        if stored is None:
            self._findings.add(Kind.OBJECT_MISSING, f"{key}: there is no such object")
            self._schemas.leave_out(references)
            return {}
        self.bytes += len(stored.data)
        is_altered = self._check_bytes(references, stored)
        try:
            container = Container(stored.data)
            header = self._schemas.header(container.schema)
        except UNREADABLE as error:
            self._unreadable(references, Kind.OBJECT_UNREADABLE, error, key, is_altered=is_altered)
            return {}
        spans: list[Span] = []
        tallies = {}
        for reference in references:
            where = f"{key} (reference {reference.reference_id})"
            self._check_key(reference, where)
            try:
                blocks = spans_of(reference, container)
                tallies[id(reference)] = self._check_reference(reference, container, blocks, header, where)
                spans += blocks
            except UNREADABLE as error:
                is_whole = reference.location.ranges == ((0, len(stored.data)),)
                kind = Kind.OBJECT_UNREADABLE if is_whole else Kind.REFERENCE_WRONG
                self._unreadable([reference], kind, error, where, is_altered=is_altered)
        spans.sort()
        if any(begin < end for (_, end), (begin, _) in pairwise(spans)):
            self._wrong(f"{key}: the same bytes are referenced twice")
        if len(tallies) == len(references):
            self._check_unnamed(references, spans, container)
        return tallies

    def finish(self, *, has_all: bool, is_cut: bool, is_made_good: bool) -> None:
        """Judge the facts that concern a batch as a whole.

        It `has_all` references, or is known to be announced in part, or lacks what backfills hold now.
        """
        for text in self._unnamed:
            if is_made_good:
                self._findings.note(f"{text}; backfills have made good what its batch lacks")
            elif not is_cut:
                self._findings.add(Kind.OBJECT_UNREFERENCED, text)
        if has_all:
            self._schemas.check_fields()

    def _check_unnamed(self, references: list[Reference], spans: list[Span], container: Container) -> None:
        reached = container.header_bytes
        for begin, end in [*spans, (container.size, container.size)]:
            if begin > reached:
                self._unnamed.append(
                    f"{references[0].location.object}: no reference names its bytes [{reached}, {begin})"
                )
                self._schemas.leave_out(references)
            reached = max(reached, end)

    def _unreadable(
        self, references: list[Reference], kind: Kind, error: Exception, where: str, *, is_altered: bool
    ) -> None:
        """Add a finding about an unreadable object, unless the object was altered, which is a finding already."""
        if not is_altered:
            self._findings.add(kind, f"{where}: not a valid Avro file: {type(error).__name__} {error}"[:300])
        self._schemas.leave_out(references)

    def _check_bytes(self, references: list[Reference], stored: FetchedObject) -> bool:
        """Check size, checksum and etag, once if all references say the same; return whether the object is another."""
        is_altered = False
        for size, checksum, etag in {
            (one.location.size, one.location.checksum, one.location.etag) for one in references
        }:
            facts = {
                "size": (len(stored.data), size),
                checksum.algorithm: (checksum_of(checksum.algorithm, stored.data), checksum.value),
                "etag": (stored.etag or etag, etag or stored.etag),
            }
            wrong = [
                f"{name} is {found}, reference says {said}" for name, (found, said) in facts.items() if found != said
            ]
            if wrong:
                self._findings.add(Kind.OBJECT_ALTERED, f"{references[0].location.object}: {'; '.join(wrong)}")
                is_altered = True
        return is_altered

    def _check_reference(
        self, reference: Reference, container: Container, spans: list[Span], header: HeaderSchema, where: str
    ) -> Tally:
        exact = self._schemas.exact(reference, header, where, is_pack=is_pack(reference))
        tally = Tally()
        for begin, end in spans:
            for row in container.rows(begin, end, header.published.avro):
                try:
                    values = header.published.restore(row)
                except RestoreError as error:
                    values = {"": str(error)}
                self._context.require_time()
                self._check_row(row[META], values, reference, tally, where)
        self.rows += tally.entries
        if tally.entries and tally.misplaced == tally.entries:
            return tally  # blocks of another PartitionKey: nothing else that the reference says can be true of them
        for problem in tally.problems_of(reference):
            self._wrong(f"{where}: {problem}")
        if exact is not None and tally.types and tally.all_in_source:  # else entries are unexpected or gone: reported
            self._schemas.check_entries(exact, tally.types, where)
        return tally

    def _check_key(self, reference: Reference, where: str) -> None:
        """Check an object's key against user, date and hour."""
        user, date, hour = reference.partition_key
        named, encoded = _KEY.search(reference.location.object), encoded_user(user)
        if named is None:
            return
        is_other = named["date"] is not None and (named["date"], named["hour"]) != (date, f"{hour:02}")
        if named["user"] is not None and len(encoded) <= ENCODED_USER_BYTES_MAX:
            is_other = is_other or named["user"] != encoded
        if is_other:
            self._wrong(f"{where}: the key does not name {user!r} {date} {hour:02}")

    def _check_row(self, meta: dict[str, Any], values: object, reference: Reference, tally: Tally, where: str) -> None:
        """Check a row, and note that its entry was seen in a file."""
        tp, offset, index = TopicPartition(meta["topic"], meta["partition"]), meta["offset"], meta["index"]
        tally.add(meta, tp)
        if tally.last.get(tp, (-1, -1)) >= (offset, index):
            self._wrong(f"{where}: {tp} {(offset, index)} stands after {tally.last[tp]}")
        tally.first.setdefault(tp, (offset, index))
        tally.last[tp] = offset, index
        if self._context.is_gone(tp, offset):
            tally.all_in_source = False
            return
        column = self._source.columns[tp]
        record = column.find(offset)
        if record is None or not 0 <= index < len(record.rows):
            text = "not in the source below the committed offset, or not of what its flush covers"
            self._add(Kind.UNEXPECTED, where, meta, text)
            return
        row = record.rows[index]
        count_seen(column.files, row)
        shape = column.shapes[row]
        if shape.key is None or shape.type is None:
            self._add(Kind.UNEXPECTED, where, meta, f"should be dead: {' or '.join(sorted(shape.reasons))}")
            return
        key = reference.partition_key
        if shape.key == key:
            tally.types[id(shape.type)] = shape.type
        else:
            tally.misplaced += 1
        if shape.key != key or meta["user"] != shape.key.user:
            text = f"belongs to {tuple(shape.key)}, is under {tuple(key)}, user {meta['user']!r}"
            self._add(Kind.MISPLACED, where, meta, text)
        root = None if meta["root"] is None else RootLink(*(meta["root"][name] for name in RootLink._fields))
        if not column.has_meta(row, (meta["event_time"], meta["id"], meta["timestamp"], root)):
            found = {name: meta[name] for name in ("event_time", "id", "timestamp")}
            self._differs(Kind.META, where, meta, {**found, "root": root})
        if not column.has_digest(row, digest(values)):
            self._differs(Kind.ALTERED, where, meta, values)

    def _add(self, kind: Kind, where: str, meta: dict[str, Any], text: str) -> None:
        place = f"{meta['topic']}-{meta['partition']} offset {meta['offset']} index {meta['index']}"
        self._findings.add(kind, f"{where}: {place}: {text}")

    def _differs(self, kind: Kind, where: str, meta: dict[str, Any], found: object) -> None:
        """Add a finding; an example reads the source again, to name the difference."""
        text = ""
        if self._findings.wants_example(kind):
            tp = TopicPartition(meta["topic"], meta["partition"])
            expected = self._context.explain(tp, meta["offset"], meta["index"])
            some = islice(differences(expected[kind], found), DIFFERENCES_MAX) if expected else ("the source is gone",)
            text = "; ".join(some)
        self._add(kind, where, meta, text)

    def _wrong(self, text: str) -> None:
        self._findings.add(Kind.REFERENCE_WRONG, text)


def is_pack(reference: Reference) -> bool:
    """Return whether an object is one that many PartitionKeys share."""
    named = _KEY.search(reference.location.object)
    return named is not None and named["user"] is None


def encoded_user(user: str) -> str:
    """Return a user as its object's key has it: `A-Za-z0-9_-` as they are, other bytes of its UTF-8 as %XX."""
    return quote(user, safe="").replace(".", "%2E").replace("~", "%7E")
