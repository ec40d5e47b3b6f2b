"""Published schemas against the entries that they are for (DESIGN 3.3, 6).

Owns the checks of a header's schema and of what references make of it; which type entries have stands in
`expected_schema`, how a schema is written in `published_schema`.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from service.accounting import Kind
from service.audit.findings import Findings
from service.oracle.expected_schema import (
    Type,
    characters_of,
    fields_of,
    join,
    limit_keys,
    paths_of,
    schema_differences,
    without_subtrees,
)
from service.oracle.object_schema import ExactSchema, HeaderSchema, ObjectSchemas

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from service.audit.rows import RowTally
    from service.audit.source_table import SourceTable
    from service.config.settings import SchemaSettings
    from service.formats.reference import Reference
    from service.oracle.json_text import Parse

EXPECTED_MAX = 100_000

Sharing = tuple[str, str]  # the batch id and the schema's fingerprint: packs of a batch may share a merged schema


class SchemaAudit:
    """Checks the schemas of headers and references."""

    def __init__(self, table: SourceTable, findings: Findings, *, limits: SchemaSettings, parse: Parse) -> None:
        self._table = table
        self._findings = findings
        self._limits = limits
        self._schemas = ObjectSchemas(parse)
        self._reported: set[str] = set()
        self._expected: dict[frozenset[int], Type] = {}
        self._over: dict[int, bool] = {}
        self._lacking: dict[Sharing, tuple[str, set[tuple[str, ...]]]] = {}
        self._unknown: set[Sharing] = set()

    def header(self, text: str) -> HeaderSchema:
        """Read the schema of a header; what is wrong with its form is reported once."""
        header = self._schemas.header(text)
        if header.fingerprint not in self._reported:
            self._reported.add(header.fingerprint)
            for problem in header.published.problems:
                self._findings.add(Kind.REFERENCE_WRONG, f"schema {header.fingerprint}: {problem}")
        return header

    def exact(self, reference: Reference, header: HeaderSchema, where: str) -> ExactSchema | None:
        """Return the exact schema of a reference, None if it has none; check that it may stand under the header's."""
        if reference.schema.fingerprint != header.fingerprint:
            self._findings.add(Kind.REFERENCE_WRONG, f"{where}: the object's schema is not the reference's")
        try:
            exact = self._schemas.exact(header, reference.projection)
        except ValueError as error:
            self._findings.add(Kind.REFERENCE_WRONG, f"{where}: {error}")
            return None
        for problem in exact.problems:
            self._findings.add(Kind.REFERENCE_WRONG, f"{where}: {problem}")
        return exact

    def check_entries(self, exact: ExactSchema, tally: RowTally, where: str) -> None:
        """Check that an exact schema is what the entries of its reference make."""
        if not tally.types or not tally.all_in_source:
            return  # entries are unexpected or gone, which is reported
        expected = self._expected_type(frozenset(tally.types))
        if self._is_over(expected) or any(map(self._is_entry_over, tally.types)):
            expected = without_subtrees(expected, exact.type)
        for difference in schema_differences(expected, exact.type):
            self._findings.add(Kind.REFERENCE_WRONG, f"{where}: {difference}")

    def check_own(self, reference: Reference, header: HeaderSchema, exact: ExactSchema, where: str) -> None:
        """Check that an object of one PartitionKey has its exact schema."""
        if reference.projection is not None and exact.type != header.published.type:
            self._findings.add(
                Kind.REFERENCE_WRONG, f"{where}: the object's schema is not the exact one of its PartitionKey"
            )

    def see_fields(self, reference: Reference, header: HeaderSchema, exact: ExactSchema) -> None:
        """Take note which fields of a pack's schema occur in a reference."""
        sharing = (reference.batch_id, header.fingerprint)
        if sharing not in self._lacking:
            self._lacking[sharing] = (reference.location.object, set(paths_of(header.published.type)))
        _, lacking = self._lacking[sharing]
        if lacking:
            lacking -= exact.paths

    def leave_out(self, references: Iterable[Reference]) -> None:
        """Do not judge the fields of these packs: not all that is in them is known."""
        self._unknown.update((reference.batch_id, reference.schema.fingerprint) for reference in references)

    def check_fields(self, incomplete: Collection[str]) -> None:
        """Check that each field of a pack's schema occurs in a reference to it, or to another pack of this schema.

        `incomplete` are the batches of which references are missing.
        """
        for sharing, (key, lacking) in self._lacking.items():
            if sharing not in self._unknown and sharing[0] not in incomplete:
                for path in sorted(lacking):
                    self._findings.add(
                        Kind.REFERENCE_WRONG, f"{key}: {'.'.join(path)}: field of a pack occurs in no reference"
                    )

    def _is_over(self, kind: Type) -> bool:
        """Return whether a type is over the limits of a schema, so that JSON may stand for its subtrees."""
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
            if len(self._expected) < EXPECTED_MAX:
                self._expected[numbers] = expected
        return expected


def check_schema_object(fingerprint: str, data: bytes, texts: set[str], findings: Findings) -> None:
    """Check that a schema object is what its fingerprint and the inline texts say."""
    where = f"schema {fingerprint}"
    found = hashlib.sha256(data).hexdigest()
    if found != fingerprint:
        findings.add(Kind.OBJECT_ALTERED, f"{where}: the object's SHA-256 is {found}")
    try:
        text = data.decode()
        json.loads(text)
    except ValueError:
        findings.add(Kind.OBJECT_UNREADABLE, f"{where}: the object is not JSON")
        return
    if texts - {text}:
        findings.add(Kind.REFERENCE_WRONG, f"{where}: a text in a reference is not that of the object")
