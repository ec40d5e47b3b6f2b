"""Published schemas against the entries that they are for (DESIGN 3.3, 6), and their objects.

Owns the checks of a header's schema and of its projections in the references of a flush. `expected_schema` has the
types of entries, `published_schema` the form of a schema.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from log_partitioner.formats.findings import Kind
from log_partitioner.proof.oracle.expected_schema import (
    Type,
    is_over,
    join,
    limit_keys,
    paths_of,
    schema_differences,
    without_subtrees,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from log_partitioner.formats.reference import Reference, SchemaLocation
    from log_partitioner.proof.audit.context import Context
    from log_partitioner.proof.audit.report import Findings
    from log_partitioner.proof.audit.store import FetchedObject
    from log_partitioner.proof.oracle.published_schema import ExactSchema, HeaderSchema


class FlushSchemas:
    """The schemas of one flush."""

    def __init__(self, context: Context) -> None:
        self._findings = context.findings
        self._refute = context.refute
        self._read = context.header
        self._limits = context.ground.settings.schema_bounds
        self._seen: set[str] = set()
        self._expected: dict[frozenset[int], Type] = {}
        # Packs may share a merged schema: the object, and fields that no reference has, by fingerprint.
        self._lacking: dict[str, tuple[str, set[tuple[str, ...]]]] = {}
        self._unknown: set[str] = set()

    def header(self, text: str) -> HeaderSchema:
        """Read the schema of a header; problems of its form are reported once."""
        header = self._read(text)
        if header.fingerprint not in self._seen:
            self._seen.add(header.fingerprint)
            for problem in header.published.problems:
                self._findings.add(Kind.REFERENCE_WRONG, f"schema {header.fingerprint}: {problem}")
        return header

    def exact(self, reference: Reference, header: HeaderSchema, *, is_pack: bool) -> ExactSchema | None:
        """Return the exact schema of a reference, None if it has none; check that the header's schema allows it."""
        problems = []
        if reference.schema.fingerprint != header.fingerprint:
            problems.append("the object's schema is not the reference's")
        exact = None
        try:
            exact = header.exact(reference.projection)
        except ValueError as error:
            problems.append(str(error))
            self.leave_out([reference])
        else:
            problems += exact.problems
            if is_pack:
                if header.fingerprint not in self._lacking:
                    self._lacking[header.fingerprint] = reference.location.object, set(paths_of(header.published.type))
                self._lacking[header.fingerprint][1].difference_update(exact.paths)
            elif reference.projection is not None and exact.type != header.published.type:
                problems.append("the object's schema is not the exact one of its PartitionKey")
        for problem in problems:
            self._refute(reference, problem)
        return exact

    def check_entries(self, exact: ExactSchema, types: dict[int, Type], reference: Reference) -> None:
        """Check that an exact schema is that of entries of these types; subtrees over the limits may be JSON."""
        expected = self._expected.get(frozenset(types))
        if expected is None:
            expected = limit_keys(join(types.values()), self._limits.object_keys_max)
            self._expected[frozenset(types)] = expected
        if expected != exact.type and any(is_over(kind, self._limits) for kind in (expected, *types.values())):
            expected = without_subtrees(expected, exact.type)
        for difference in schema_differences(expected, exact.type):
            self._refute(reference, difference)

    def leave_out(self, references: Iterable[Reference]) -> None:
        """Do not judge the fields of these packs, because not all of their rows are known."""
        self._unknown.update(reference.schema.fingerprint for reference in references)

    def check_fields(self) -> None:
        """Check that each field of a pack's schema occurs in a reference to it, or to another pack of this schema."""
        for fingerprint, (key, lacking) in self._lacking.items():
            for path in sorted(lacking if fingerprint not in self._unknown else ()):
                text = f"{key}: {'.'.join(path)}: field of a pack occurs in no reference"
                self._findings.add(Kind.REFERENCE_WRONG, text, key)


def check_schema(schema: SchemaLocation, stored: FetchedObject | None, findings: Findings) -> None:
    """Check that a schema's object is there, and holds the schema of its fingerprint."""
    if stored is None:
        findings.add(Kind.OBJECT_MISSING, f"{schema.object}: there is no such object", schema.object)
        return
    found = hashlib.sha256(stored.data).hexdigest()
    if found != schema.fingerprint:
        text = f"schema {schema.fingerprint}: the object's SHA-256 is {found}"
        findings.add(Kind.OBJECT_ALTERED, text, schema.object)
    try:
        json.loads(stored.data.decode())
    except ValueError:
        text = f"schema {schema.fingerprint}: the object is not JSON"
        findings.add(Kind.OBJECT_UNREADABLE, text, schema.object)
