"""Objects against the source: bytes, rows and schemas of what the references name (DESIGN 3.2-3.5).

Owns the checks of one object and of the references into it; fetching is the caller's. Rows are read block by block.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from service.accounting import Kind
from service.audit.findings import Findings
from service.audit.rows import AlteredRow, RowAudit, RowTally
from service.audit.schemas import SchemaAudit
from service.audit.statements import check_nulls, check_statements, nulls_bytes
from service.formats.reference import checksum_of
from service.oracle.container import UNREADABLE, Container, Span, spans_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from service.audit.announced import Announced
    from service.audit.fetch import FetchedObject
    from service.audit.source_table import SourceTable
    from service.config.settings import Settings
    from service.formats.model import TopicPartition
    from service.formats.reference import Reference
    from service.oracle.json_text import Parse
    from service.oracle.object_schema import ExactSchema, HeaderSchema

ENCODED_USER_BYTES_MAX = 100  # a longer one is cut, and its key says only whose it may be
_KEY = re.compile(r"/(?:pack|user=(?P<user>[^/]+))/(?:date=(?P<date>[^/]+)/hour=(?P<hour>[^/]+)/)?[^/]+$")
_NULL_BYTES = len("null")


class SourceSpan(NamedTuple):
    """The first and last entry of one TopicPartition in one reference."""

    tp: TopicPartition
    first: tuple[int, int]
    last: tuple[int, int]


class ObjectAudit:
    """Checks objects and the references into them, `announced` by the worker or by backfills."""

    def __init__(
        self, table: SourceTable, announced: Announced, findings: Findings, *, settings: Settings, parse: Parse
    ) -> None:
        self.rows = 0
        self._announced = announced
        self._findings = findings
        self._rows = RowAudit(table, findings)
        self._schemas = SchemaAudit(table, findings, limits=settings.record_schema, parse=parse)
        self._bucket = settings.s3.bucket
        self._message_bytes_max = settings.kafka.message_bytes_max
        self._unnamed: list[tuple[str, str]] = []

    @property
    def altered(self) -> list[AlteredRow]:
        """The first rows whose values are not those of the source."""
        return self._rows.altered

    def check(
        self, references: list[Reference], stored: FetchedObject | None
    ) -> list[tuple[Reference, list[SourceSpan]]]:
        """Check one object and all references to it; give the order of entries by reference."""
        key = references[0].location.object
        if (bucket := references[0].location.bucket) != self._bucket:
            text = f"{key}: it is said to be in bucket {bucket}, the settings say {self._bucket}"
            self._findings.add(Kind.REFERENCE_WRONG, text)
        if stored is None:
            self._findings.add(Kind.OBJECT_MISSING, f"{key}: there is no such object")
            self._schemas.leave_out(references)
            return []
        is_altered = self._check_bytes(references, stored)
        try:
            container = Container(stored.data)
            header = self._schemas.header(container.schema)
        except UNREADABLE as error:
            self._unreadable(references, None if is_altered else Kind.OBJECT_UNREADABLE, error, key)
            return []
        spans: list[Span] = []
        positions = []
        for reference in references:
            where = f"{key} (reference {reference.reference_id})"
            self._check_key(reference, where)
            try:
                own = spans_of(reference, container)
                tally = self._check_reference(reference, container, own, header, where)
            except UNREADABLE as error:
                is_whole = reference.location.ranges == ((0, len(stored.data)),)
                kind = Kind.OBJECT_UNREADABLE if is_whole else Kind.REFERENCE_WRONG
                self._unreadable([reference], None if is_altered else kind, error, where)
                continue
            spans += own
            positions.append(
                (reference, [SourceSpan(tp, tally.first[tp], tally.last[tp]) for tp in sorted(tally.first)])
            )
        self._check_spans(references, sorted(spans), container, is_whole=len(positions) == len(references))
        return positions

    def finish(self, *, cut_off: Collection[str], incomplete: Collection[str], made_good: Collection[str]) -> None:
        """Judge what can be told of an object only when all of them are read.

        `cut_off` are batches whose references are announced in part; `incomplete` lack some for whatever reason;
        those in `made_good` lack what backfills hold now.
        """
        for batch_id, text in self._unnamed:
            if batch_id in made_good:
                self._findings.note(f"{text}; backfills have made good what its batch lacks")
            elif batch_id not in cut_off:
                self._findings.add(Kind.OBJECT_UNREFERENCED, text)
        self._schemas.check_fields({*cut_off, *incomplete})

    def _unreadable(self, references: list[Reference], kind: Kind | None, error: Exception, where: str) -> None:
        """Add findings of what cannot be read; none of an object that was altered, which has its own."""
        if kind is not None:
            self._findings.add(kind, f"{where}: not a valid Avro file: {type(error).__name__} {error}"[:300])
        self._schemas.leave_out(references)

    def _check_bytes(self, references: list[Reference], stored: FetchedObject) -> bool:
        """Check size, checksum and etag, once where all references say the same; tell whether the object is another."""
        is_altered = False
        said = {(one.location.size, one.location.checksum, one.location.etag): one for one in reversed(references)}
        for (size, checksum, etag), reference in said.items():
            where = f"{reference.location.object} (reference {reference.reference_id})"
            value = checksum_of(checksum.algorithm, stored.data)
            facts = {
                "size": (len(stored.data), size),
                checksum.algorithm: (value, checksum.value),
                "etag": (stored.etag or etag, etag or stored.etag),
            }
            differences = [
                f"{name} is {found}, reference says {one}" for name, (found, one) in facts.items() if found != one
            ]
            if differences:
                self._findings.add(Kind.OBJECT_ALTERED, f"{where}: {'; '.join(differences)}")
                is_altered = True
        return is_altered

    def _check_key(self, reference: Reference, where: str) -> None:
        """Check what an object's key says of user, date and hour."""
        named = _KEY.search(reference.location.object)
        if named is None:
            return
        user, date, hour = reference.partition_key
        is_other = named["date"] is not None and (named["date"], named["hour"]) != (date, f"{hour:02}")
        encoded = encoded_user(user)
        if named["user"] is not None and len(encoded) <= ENCODED_USER_BYTES_MAX:
            is_other = is_other or named["user"] != encoded
        if is_other:
            self._findings.add(Kind.REFERENCE_WRONG, f"{where}: the key does not name {user!r} {date} {hour:02}")

    def _check_reference(
        self, reference: Reference, container: Container, spans: list[Span], header: HeaderSchema, where: str
    ) -> RowTally:
        exact = self._exact_schema(reference, header, where)
        tally = RowTally(of_backfill=reference.batch_id in self._announced.backfills)
        for begin, end in spans:
            for row in container.rows(begin, end, header.published.avro):
                self._rows.check(row, header.published, reference.partition_key, tally, where)
        self.rows += tally.entries
        if tally.entries and tally.misplaced == tally.entries:
            return tally  # blocks of another PartitionKey: nothing else that the reference says can be true of them
        check_statements(reference, tally, self._findings, where)
        if exact is not None:
            check_nulls(reference, header, exact, tally, self._findings, where)
            self._check_left_out(reference, header, tally, where)
            self._schemas.check_entries(exact, tally, where)
        return tally

    def _exact_schema(self, reference: Reference, header: HeaderSchema, where: str) -> ExactSchema | None:
        exact = self._schemas.exact(reference, header, where)
        if exact is None:
            self._schemas.leave_out([reference])
        elif is_pack(reference):
            self._schemas.see_fields(reference, header, exact)
        else:
            self._schemas.check_own(reference, header, exact, where)
        return exact

    def _check_left_out(self, reference: Reference, header: HeaderSchema, tally: RowTally, where: str) -> None:
        """Check that nulls are left out only where a message of this line alone had no room for them.

        Outline: a writer may estimate; so the message may have been half as large as messages may be.
        """
        alone_bytes = self._announced.bytes_without_nulls.get(reference.reference_id)
        if alone_bytes is not None:
            whole_bytes = alone_bytes - _NULL_BYTES + nulls_bytes(reference, header, tally)
            if whole_bytes <= self._message_bytes_max // 2:
                self._findings.add(
                    Kind.REFERENCE_WRONG, f"{where}: nulls are left out of a message of {whole_bytes} bytes"
                )

    def _check_spans(
        self, references: list[Reference], spans: list[Span], container: Container, *, is_whole: bool
    ) -> None:
        """Outline: bytes behind the header belong to one reference each; sort spans, compare neighbours."""
        key = references[0].location.object
        if any(begin < end for (_, end), (begin, _) in pairwise(spans)):
            self._findings.add(Kind.REFERENCE_WRONG, f"{key}: the same bytes are referenced twice")
        reached = container.header_bytes
        for begin, end in [*spans, (container.size, container.size)]:
            if begin > reached and is_whole:
                text = f"{key}: no reference names its bytes [{reached}, {begin})"
                self._unnamed.append((references[0].batch_id, text))
                self._schemas.leave_out(references)
            reached = max(reached, end)


def is_pack(reference: Reference) -> bool:
    """Return whether an object is one that many PartitionKeys share."""
    named = _KEY.search(reference.location.object)
    return named is not None and named["user"] is None


def encoded_user(user: str) -> str:
    """Return a user as its object's key has it: `A-Za-z0-9_-` as they are, other bytes of its UTF-8 as %XX."""
    return quote(user, safe="").replace(".", "%2E").replace("~", "%7E")
