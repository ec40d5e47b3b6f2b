"""What a reference says of its rows, against the rows (DESIGN 3.5).

Owns the comparison of counts, times, offsets, roots and numbers of nulls.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from service.accounting import Kind
from service.audit.findings import Findings
from service.formats.model import TopicPartition
from service.formats.projection import null_counts, number_of
from service.oracle.published_schema import NAME_PROPERTY

if TYPE_CHECKING:
    from service.audit.rows import RowTally
    from service.formats.reference import Reference
    from service.oracle.object_schema import ExactSchema, HeaderSchema

EXAMPLE_CHARS_MAX = 400


def check_statements(reference: Reference, tally: RowTally, findings: Findings, where: str) -> None:
    """Check what a reference says of its entries; of the fields of their schema see `check_nulls`."""
    said = {
        TopicPartition(one.topic, one.partition): (one.min_offset, one.max_offset, one.entries)
        for one in reference.sources
    }
    counted = {tp: (tally.first[tp][0], tally.last[tp][0], n) for tp, n in tally.sources.items()}
    facts: dict[str, tuple[object, object]] = {
        "entries": (reference.entries, tally.entries),
        "event times": ((reference.event_time_min_us, reference.event_time_max_us), tally.times),
        "sources": (said, counted),
        "number of sources": (len(reference.sources), len(counted)),
    }
    for name, (stated, found) in facts.items():
        if stated != found:
            _report(findings, where, name, stated, found)
    _check_roots(reference, tally, findings, where)


def _check_roots(reference: Reference, tally: RowTally, findings: Findings, where: str) -> None:
    """Outline: all roots are listed, or fewer where the reference says that they were cut."""
    said = {(one.topic, one.partition): (one.min_offset, one.max_offset, one.entries) for one in reference.roots}
    counted = {root: (min(offsets), max(offsets), len(offsets)) for root, offsets in tally.roots.items()}
    expected = {root: span for root, span in counted.items() if root in said} if reference.roots_cut else counted
    if said != expected or len(reference.roots) != len(said):
        _report(findings, where, "roots", said, expected)
    if reference.roots_cut and len(said) >= len(counted):
        findings.add(Kind.REFERENCE_WRONG, f"{where}: says that roots were cut, but all {len(counted)} are listed")


def check_nulls(
    reference: Reference, header: HeaderSchema, exact: ExactSchema, tally: RowTally, findings: Findings, where: str
) -> None:
    """Check the numbers of nulls by field of the exact schema."""
    if reference.nulls is None:
        return
    counted = {name: (tally.entries - tally.non_nulls[name], tally.non_nulls[name]) for name in exact.names}
    try:
        said = null_counts(reference, header.json) or {}
    except ValueError as error:
        findings.add(Kind.REFERENCE_WRONG, f"{where}: {error}")
        return
    wrong = sorted(name for name in counted if said.get(name) != counted[name])
    if wrong:
        _report(findings, where, "nulls", {n: said.get(n) for n in wrong}, {n: counted[n] for n in wrong})
    numbers = [number for number, _ in reference.nulls]
    if any(one >= other for one, other in pairwise(numbers)) or any(count < 1 for _, count in reference.nulls):
        findings.add(Kind.REFERENCE_WRONG, f"{where}: nulls are not in order, or of fields without any")


def nulls_bytes(reference: Reference, header: HeaderSchema, tally: RowTally) -> int:
    """Return how many bytes the numbers of nulls of a reference take in its message."""
    names = [field.get(NAME_PROPERTY, field["name"]) for field in header.json["fields"][1:]]
    numbers = range(len(names)) if reference.projection is None else map(number_of, reference.projection)
    nulls = [(number, tally.entries - tally.non_nulls[names[number]]) for number in numbers]
    return len(msgspec.json.encode([part for pair in nulls if pair[1] for part in pair]))


def _report(findings: Findings, where: str, name: str, said: object, found: object) -> None:
    findings.add(Kind.REFERENCE_WRONG, f"{where}: {name}: says {said}, rows say {found}"[:EXAMPLE_CHARS_MAX])
