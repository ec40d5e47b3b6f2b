"""Objects against the source: bytes, rows and schemas of what the references name (DESIGN 3.2-3.5).

Owns the checks of one reference; fetching is the caller's. Rows are read by fastavro, one block at a time.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
import zlib
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import fastavro
import msgspec

from service.audit.decompress import ZstdError
from service.audit.expected_schema import (
    Type,
    characters_of,
    fields_of,
    is_covered_by,
    join,
    limit_keys,
    schema_differences,
    without_subtrees,
)
from service.audit.findings import Findings, Kind
from service.audit.published_schema import PublishedSchema
from service.audit.rows import AlteredRow, RowAudit, RowTally
from service.core.model import PartitionKey, TopicPartition
from service.core.reference import FieldCounts, encode_reference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from service.audit.fetch import StoredObject
    from service.audit.json_text import Parse
    from service.audit.source_table import SourceTable
    from service.config import SchemaSettings
    from service.core.reference import Reference

# What a damaged file makes fastavro and the codecs raise.
UNREADABLE = (
    ValueError, TypeError, KeyError, IndexError, EOFError, OverflowError, MemoryError, AssertionError,
    struct.error, zlib.error, ZstdError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType,
)  # fmt: skip


class Position(NamedTuple):
    """The first and last entry of one TopicPartition in one reference."""

    tp: TopicPartition
    first: tuple[int, int]
    last: tuple[int, int]


class ObjectAudit:
    """Checks references and their objects.

    `schemas` are the published ones by fingerprint, `backfills` the batch ids of backfills.
    """

    def __init__(
        self, table: SourceTable, schemas: dict[str, PublishedSchema], findings: Findings,
        *, limits: SchemaSettings, message_bytes_max: int, parse: Parse, backfills: frozenset[str] = frozenset(),
    ) -> None:  # fmt: skip
        self.rows = 0
        self._backfills = backfills
        self._rows = RowAudit(table, findings)
        self._table = table
        self._schemas = schemas
        self._findings = findings
        self._limits = limits
        self._message_bytes_max = message_bytes_max
        self._parse = parse
        self._headers: dict[str, PublishedSchema] = {}
        self._expected: dict[frozenset[int], Type] = {}
        self._over: dict[int, bool] = {}

    @property
    def altered(self) -> list[AlteredRow]:
        """The first rows whose values are not those of the source."""
        return self._rows.altered

    def check(self, references: list[Reference], stored: StoredObject) -> list[tuple[Reference, list[Position]]]:
        """Check one object and all references to it; give the order of entries by reference."""
        header_bytes = 0
        positions = []
        for reference in references:
            where = f"{reference.location.object} (reference {reference.reference_id})"
            self._check_bytes(reference, stored, where)
            data = b"".join(stored.data[start : start + length] for start, length in reference.location.ranges)
            tally = RowTally(of_backfill=reference.batch_id in self._backfills)
            try:
                header_bytes = self._check_rows(reference, data, tally, where)
            except UNREADABLE as error:
                text = f"{where}: not a valid Avro file: {type(error).__name__} {error}"
                self._findings.add(Kind.OBJECT, text[:300])
                continue
            self._check_tally(reference, tally, where)
            self._check_schema(reference, tally, where)
            positions.append((reference, [Position(tp, tally.first[tp], tally.last[tp]) for tp in sorted(tally.first)]))
        self._check_shared(references, header_bytes)
        return positions

    def _check_bytes(self, reference: Reference, stored: StoredObject, where: str) -> None:
        location = reference.location
        if len(stored.data) != location.size:
            self._findings.add(Kind.OBJECT, f"{where}: {len(stored.data)} bytes, reference says {location.size}")
        value = _checksum(location.checksum.algorithm, stored.data)
        if value != location.checksum.value:
            name = location.checksum.algorithm
            self._findings.add(Kind.OBJECT, f"{where}: {name} is {value}, reference says {location.checksum.value}")
        if location.etag is not None and stored.etag is not None and location.etag != stored.etag:
            self._findings.add(Kind.OBJECT, f"{where}: etag is {stored.etag}, reference says {location.etag}")
        if any(start < 0 or length < 1 or start + length > len(stored.data) for start, length in location.ranges):
            self._findings.add(Kind.OBJECT, f"{where}: a byte range is outside the object")
        partition = reference.partition
        if "/date=" in location.object and f"/date={partition.date}/hour={partition.hour:02}/" not in location.object:
            self._findings.add(Kind.MISPLACED, f"{where}: the key does not name {partition.date} {partition.hour:02}")

    def _check_shared(self, references: list[Reference], header_bytes: int) -> None:
        """Outline: bytes behind the header belong to one reference each; sort ranges, compare neighbours."""
        spans = sorted(
            (max(start, header_bytes), start + length)
            for reference in references
            for start, length in reference.location.ranges
            if start + length > header_bytes
        )
        if any(begin < end for (_, end), (begin, _) in pairwise(spans)):
            self._findings.add(Kind.OBJECT, f"{references[0].location.object}: the same bytes are referenced twice")

    def _check_rows(self, reference: Reference, data: bytes, tally: RowTally, where: str) -> int:
        blocks = fastavro.block_reader(io.BytesIO(data))
        text = blocks.metadata["avro.schema"]
        header = self._headers.get(text)
        if header is None:
            header = self._headers[text] = PublishedSchema(text, self._parse)
        own = self._schemas.get(reference.schema.fingerprint)
        if own is not None and header is not own:
            self._check_header(reference, own, header, len(data), where)
        header_bytes = 0
        key = PartitionKey(reference.partition.user, reference.partition.date, reference.partition.hour)
        for block in blocks:
            header_bytes = header_bytes or block.offset
            for row in _rows(block, header.avro):
                self._rows.check(row, header, key, tally, where)
        self.rows += tally.entries
        return header_bytes

    def _check_header(
        self, reference: Reference, own: PublishedSchema, header: PublishedSchema, size: int, where: str
    ) -> None:
        is_whole = size == reference.location.size
        if is_whole and own.type != header.type:
            self._findings.add(Kind.SCHEMA, f"{where}: the file's schema is not the reference's")
        elif not is_covered_by(own.type, header.type):
            self._findings.add(Kind.SCHEMA, f"{where}: the pack's schema changes a type of the reference's")

    def _check_tally(self, reference: Reference, tally: RowTally, where: str) -> None:
        sources = {TopicPartition(one.topic, one.partition): one for one in reference.sources}
        said = {tp: (one.min_offset, one.max_offset, one.entries) for tp, one in sources.items()}
        counted = {tp: (tally.first[tp][0], tally.last[tp][0], n) for tp, n in tally.sources.items()}
        roots = {(one.topic, one.partition): (one.min_offset, one.max_offset, one.entries) for one in reference.roots}
        facts: dict[str, tuple[object, object]] = {
            "entries": (reference.entries, tally.entries),
            "event times": ((reference.event_time_min_us, reference.event_time_max_us), tally.times),
            "sources": (said, counted),
            "roots": (
                roots,
                {root: (min(offsets), max(offsets), len(offsets)) for root, offsets in tally.roots.items()},
            ),
            "number of sources": (len(reference.sources), len(counted)),
        }
        schema = self._schemas.get(reference.schema.fingerprint)
        if schema is not None:
            nulls = {name: (one.nulls, one.non_nulls) for name, one in reference.field_counts.items()}
            rows = {name: (tally.entries - tally.non_nulls[name], tally.non_nulls[name]) for name in schema.names}
            wrong = sorted(name for name in nulls.keys() | rows.keys() if nulls.get(name) != rows.get(name))
            if nulls or not self._may_lack_counts(reference, rows):
                facts["field_counts"] = ({n: nulls.get(n) for n in wrong}, {n: rows.get(n) for n in wrong})
        for name, (stated, found) in facts.items():
            if stated != found:
                self._findings.add(Kind.REFERENCE, f"{where}: {name}: says {stated}, rows say {found}"[:400])

    def _may_lack_counts(self, reference: Reference, counts: dict[str, tuple[int, int]]) -> bool:
        """Tell whether a reference with its counts would be too large for a message."""
        given = {name: FieldCounts(*count) for name, count in counts.items()}
        schema = msgspec.structs.replace(reference.schema, text=None)
        whole = msgspec.structs.replace(reference, schema=schema, field_counts=given)
        return len(encode_reference(whole)) > self._message_bytes_max

    def _check_schema(self, reference: Reference, tally: RowTally, where: str) -> None:
        published = self._schemas.get(reference.schema.fingerprint)
        if published is None or not tally.types or not tally.all_in_source:
            return  # reported where the schema was fetched, or entries are unexpected or gone
        expected = self._expected_type(frozenset(tally.types))
        if self._is_over(expected) or any(map(self._is_entry_over, tally.types)):
            expected = without_subtrees(expected, published.type)
        for difference in schema_differences(expected, published.type):
            self._findings.add(Kind.SCHEMA, f"{where}: {difference}")

    def _is_over(self, kind: Type) -> bool:
        """Tell whether a type is over the limits of a schema, so that JSON may stand for its subtrees."""
        return fields_of(kind) > self._limits.fields_max or 2 * characters_of(kind) > self._limits.bytes_max

    def _is_entry_over(self, number: int) -> bool:
        is_over = self._over.get(number)
        if is_over is None:
            is_over = self._over[number] = self._is_over(self._table.types.values[number])
        return is_over

    def _expected_type(self, numbers: frozenset[int]) -> Type:
        expected = self._expected.get(numbers)
        if expected is None:
            joined = join([self._table.types.values[number] for number in numbers])
            expected = limit_keys(joined, self._limits.object_keys_max)
            if len(self._expected) < 100_000:  # noqa: PLR2004 - a bound on memory, not a rule
                self._expected[numbers] = expected
        return expected


def check_schema_object(fingerprint: str, data: bytes, texts: set[str], findings: Findings) -> str | None:
    """Check that a schema object is what its fingerprint and the inline texts say; give its text."""
    where = f"schema {fingerprint}"
    found = hashlib.sha256(data).hexdigest()
    if found != fingerprint:
        findings.add(Kind.SCHEMA, f"{where}: the object's SHA-256 is {found}")
    try:
        text = data.decode()
        json.loads(text)
    except ValueError:
        findings.add(Kind.SCHEMA, f"{where}: the object is not JSON")
        return None
    if texts - {text}:
        findings.add(Kind.SCHEMA, f"{where}: a text in a reference is not that of the object")
    return text


def understand_schema(fingerprint: str, text: str, parse: Parse, findings: Findings) -> PublishedSchema | None:
    """Read a published schema; report what is wrong with its form."""
    try:
        schema = PublishedSchema(text, parse)
    except UNREADABLE as error:
        findings.add(Kind.SCHEMA, f"schema {fingerprint}: {type(error).__name__} {error}")
        return None
    for problem in schema.problems:
        findings.add(Kind.SCHEMA, f"schema {fingerprint}: {problem}")
    return schema


def _rows(block: Any, schema: Any) -> Iterator[Any]:
    stream = block.bytes_
    for _ in range(block.num_records):
        yield fastavro.schemaless_reader(stream, schema, None)
    if stream.read(1):
        raise ValueError("a block holds more bytes than its rows")


def _checksum(algorithm: str, data: bytes) -> str:
    if algorithm == "sha256":
        return hashlib.sha256(data).hexdigest()
    return f"{zlib.crc32(data):08x}" if algorithm == "crc32" else f"unknown algorithm {algorithm}"
