"""The last sum: every entry below the committed offset in exactly one place.

Owns coverage (from which offset the worker answers for the source) and the count of missing and duplicated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from service.accounting import Kind
from service.audit.findings import Findings

if TYPE_CHECKING:
    from service.audit.announced import Committed
    from service.audit.flushes import Ranges
    from service.audit.objects import SourceSpan
    from service.audit.source_table import SourceColumns, SourceTable
    from service.formats.model import TopicPartition
    from service.formats.reference import Reference


class Accounts(NamedTuple):
    """What became of the entries of the covered records."""

    records: int
    entries: int
    in_files: int
    in_dead_letters: int
    discarded_replays: int


def first_records(table: SourceTable, committed: Committed) -> dict[TopicPartition, int]:
    """Return the first data record's offset by TopicPartition, where one is below the committed offset."""
    starts = {}
    for tp, end in committed.items():
        first = table.of(tp).totals(0, end or 0).min_offset
        if first is not None:
            starts[tp] = first
    return starts


def account(
    table: SourceTable,
    *,
    ranges: Ranges,
    committed: Committed,
    starts: dict[TopicPartition, int],
    findings: Findings,
) -> Accounts:
    """Count every covered entry; report those in no place and those in several."""
    sums = Accounts(0, 0, 0, 0, 0)
    for tp, end in sorted(committed.items()):
        covered = ranges.get(tp, [])
        begins = [one.first_offset for one in covered[:1]]
        if tp in starts:
            begins.append(starts[tp])
        begin = min(begins, default=None)
        if end is None or begin is None:
            continue
        columns = table.of(tp)
        totals = columns.totals(begin, end)
        missing = [row for row in columns.rows(begin, end) if not _places(columns, row)]
        replays = 0
        for one in covered:
            if one.discarded_replays:
                rows = columns.rows(one.first_offset, one.next_offset)
                unseen = [row for row in missing if row in rows]
                if len(unseen) == one.discarded_replays:
                    replays += len(unseen)
                    missing = [row for row in missing if row not in rows]
        _report_missing(columns, missing, findings)
        _report_duplicated(columns, findings)
        in_files = sum(1 for row in columns.rows(begin, end) if columns.in_files[row])
        in_dead_letters = sum(1 for row in columns.rows(begin, end) if columns.in_dead_letters[row])
        here = Accounts(totals.records, totals.entries, in_files, in_dead_letters, replays)
        sums = Accounts(*(one + other for one, other in zip(sums, here, strict=True)))
    if sums.discarded_replays:
        findings.note(f"{sums.discarded_replays} discarded replays are taken from flush records, not verified")
    return sums


def check_order(positions: list[tuple[Reference, list[SourceSpan]]], findings: Findings) -> None:
    """Check that references of one batch and PartitionKey continue each other, by offset and line in their topic."""
    last: dict[tuple[str, object], dict[TopicPartition, tuple[int, int]]] = {}
    for reference, spans in positions:
        reached = last.setdefault((reference.batch_id, reference.partition_key), {})
        for span in spans:
            if reached.get(span.tp, (-1, -1)) >= span.first:
                text = f"{reference.location.object}: {span.tp} {span.first} comes after {reached[span.tp]}"
                findings.add(Kind.REFERENCE_WRONG, f"{text} of the reference before")
            reached[span.tp] = max(span.last, reached.get(span.tp, span.last))


def _places(columns: SourceColumns, row: int) -> int:
    return columns.in_files[row] + columns.in_dead_letters[row]


def _report_missing(columns: SourceColumns, missing: list[int], findings: Findings) -> None:
    for row in missing:
        kind = Kind.MISSING if columns.is_deliverable(row) else Kind.DEAD_LETTER_MISSING
        if findings.wants_example(kind):
            findings.add(kind, _name(columns, row))
        else:
            findings.counts[kind] += 1


def _report_duplicated(columns: SourceColumns, findings: Findings) -> None:
    for row in range(columns.entries):
        files, letters = columns.in_files[row], columns.in_dead_letters[row]
        if files + letters < 2:  # noqa: PLR2004
            continue
        name, is_deliverable = _name(columns, row), columns.is_deliverable(row)
        if is_deliverable and files > 1:
            findings.add(Kind.DUPLICATED, f"{name}: {files} times in files", count=files - 1)
        surplus = letters + (min(files, 1) if is_deliverable else 0) - 1
        if letters and surplus > 0 and columns.reasons(row):
            text = f"{name}: {letters} times in dead letters, {files} times in files"
            findings.add(Kind.DEAD_LETTER_DUPLICATED, text, count=surplus)


def _name(columns: SourceColumns, row: int) -> str:
    record = columns.record_of_row(row)
    return f"{columns.tp} offset {record.offset} index {row - record.first_row}"
