"""Flush records against the source, what was published, and each other; references against their records.

What must add up is said in `service.accounting`; every number is counted again.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from service.accounting import (
    Kind,
    Sums,
    judge_joins,
    judge_line,
    judge_published,
    judge_range,
    judge_totals,
    judge_uncommitted,
    tp_of,
)
from service.audit.backfills import made_good
from service.formats.flush_record import BackfillRecord, FlushedTopicPartition, FlushRecord
from service.formats.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from service.audit.announced import Announced, Committed
    from service.audit.findings import Findings
    from service.audit.source_table import SourceTable
    from service.formats.reference import Reference

Ranges = dict[TopicPartition, list[FlushedTopicPartition]]
Covered = dict[TopicPartition, tuple[int, int]]


def ranges_of(flushes: Iterable[FlushRecord]) -> Ranges:
    """Sort the ranges that cover an offset by TopicPartition and offset."""
    ranges: Ranges = {}
    for flush in flushes:
        for flushed in flush.topic_partitions:
            if flushed.first_offset != flushed.next_offset:
                ranges.setdefault(tp_of(flushed), []).append(flushed)
    for covered in ranges.values():
        covered.sort(key=lambda one: (one.first_offset, one.next_offset))
    return ranges


def later_batches(flushes: Iterable[FlushRecord], before: Committed, after: Committed) -> set[str]:
    """Find batches that were committed after `before` was read and before `after` was."""
    later = set()
    for flush in flushes:
        covered = [one for one in flush.topic_partitions if one.first_offset != one.next_offset]
        if covered and all(
            (before.get(tp_of(one)) or 0) <= one.first_offset < one.next_offset <= (after.get(tp_of(one)) or 0)
            for one in covered
        ):
            later.add(flush.batch_id)
    return later


def check_contiguity(
    flushes: list[FlushRecord], committed: Committed, starts: dict[TopicPartition, int], findings: Findings
) -> None:
    """Check that ranges join from `starts` (where known) to the committed offset, which whatever is flushed has."""
    ranges = ranges_of(flushes)
    named = {tp_of(line) for flush in flushes for line in flush.topic_partitions}
    for tp in sorted(named | committed.keys()):
        lines, reached = ranges.get(tp, []), committed.get(tp)
        for wrong, _ in judge_joins(tp, lines, start=starts.get(tp), committed=reached or 0):
            findings.add(wrong.kind, f"{tp}: {wrong.text}")
        for wrong, _ in judge_uncommitted(tp, lines, committed=reached):
            findings.add(wrong.kind, f"{tp}: {wrong.text}")
        if reached is None and tp in named and not lines:
            findings.add(Kind.FLUSH_WRONG, f"{tp}: flush records name it, and the group has no committed offset")


def check_flushes(announced: Announced, table: SourceTable, findings: Findings) -> None:
    """Check every flush record against itself, the source, and what its batch has published.

    Where that falls short, data of backfills within its ranges has to make good exactly what is lacking.
    """
    sums = announced.sums()
    seen: Counter[str] = Counter(flush.batch_id for flush in announced.flushes)
    for batch_id, count in seen.items():
        if count > 1:
            findings.add(Kind.FLUSH_OVERLAP, f"batch {batch_id}: {count} flush records")
    for batch_id in sums.keys() - seen.keys() - announced.backfills.keys():
        kind = Kind.REFERENCE_WRONG if sums[batch_id].references else Kind.DEAD_LETTER_WRONG
        findings.add(kind, f"batch {batch_id}: references or dead letters without a flush record")
    for flush in announced.flushes:
        where = f"batch {flush.batch_id}"
        own, good = sums.get(flush.batch_id, Sums()), made_good(flush, table)
        has_source = all(one.first_offset >= table.of(tp_of(one)).low_offset for one in flush.topic_partitions)
        published = judge_published(flush.totals, flush.topic_partitions, own, good, has_source=has_source)
        found = [*judge_totals(flush.totals, flush.topic_partitions), *published]
        for line in flush.topic_partitions:
            columns = table.of(tp_of(line))
            if line.first_offset >= columns.low_offset:  # otherwise the source is gone; stated as a doubt
                found += judge_line(line, columns.totals(line.first_offset, line.next_offset))
        for wrong in found:
            findings.tell(wrong, where)


def made_good_batches(announced: Announced, table: SourceTable) -> set[str]:
    """Find batches that have fewer references than their flush record says, and entries in data of backfills."""
    sums = announced.sums()
    return {
        flush.batch_id
        for flush in announced.flushes
        if sums.get(flush.batch_id, Sums()).references < flush.totals.references
        and made_good(flush, table).in_files.total()
    }


def check_topic_ids(flushes: Iterable[FlushRecord], findings: Findings) -> None:
    """State which source topics were made anew: offsets of another topic of the same name cannot be told apart."""
    ids: dict[str, set[str]] = {}
    for flush in flushes:
        for topic, topic_id in flush.topic_ids.items():
            ids.setdefault(topic, set()).add(topic_id)
    for topic, found in sorted(ids.items()):
        if len(found) > 1:
            findings.note(f"flush records are of {len(found)} topics named {topic}: it was made anew")


def check_references(announced: Announced, findings: Findings) -> None:
    """Check what references share with the flush record, or the backfill's record, of their batch."""
    records: dict[str, FlushRecord | BackfillRecord] = {flush.batch_id: flush for flush in announced.flushes}
    records |= announced.backfills
    covered = {batch_id: _covered(record) for batch_id, record in records.items()}
    seen: Counter[str] = Counter(reference.reference_id for reference in announced.references)
    for reference_id, count in seen.items():
        if count > 1:
            text = f"reference id {reference_id}: used {count} times"
            findings.add(Kind.REFERENCE_DUPLICATED, text, count=count - 1)
    for reference in announced.references:
        record = records.get(reference.batch_id)
        if record is not None:  # where there is none, check_flushes says so
            _check_reference(reference, record, covered[reference.batch_id], findings)


def _covered(record: FlushRecord | BackfillRecord) -> Covered:
    return {
        TopicPartition(one.topic, one.partition): (one.first_offset, one.next_offset) for one in record.topic_partitions
    }


def _check_reference(
    reference: Reference, record: FlushRecord | BackfillRecord, covered: Covered, findings: Findings
) -> None:
    name = "flush record" if isinstance(record, FlushRecord) else "run record"
    where = f"reference {reference.reference_id}"
    if (reference.worker, reference.generation) != (record.worker, record.generation):
        findings.add(Kind.REFERENCE_WRONG, f"{where}: worker or generation are not those of its {name}")
    for source in reference.sources:
        tp = TopicPartition(source.topic, source.partition)
        for text in judge_range(source, covered.get(tp), record=name):
            findings.add(Kind.REFERENCE_WRONG, f"{where} {tp}: {text}")
