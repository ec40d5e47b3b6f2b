"""Flush records against the source, the references and each other (DESIGN 3.6).

Owns contiguity and the conservation law. Every number of a flush record is counted again.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from service.audit.announced import Announced, BatchSums, Committed
from service.audit.backfills import MadeGood, made_good
from service.audit.findings import Findings, Kind
from service.formats.flush_record import FlushedTopicPartition, FlushRecord
from service.formats.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from service.audit.source_table import SourceTable
    from service.formats.reference import Reference

Ranges = dict[TopicPartition, list[FlushedTopicPartition]]


def tp_of(flushed: FlushedTopicPartition) -> TopicPartition:
    """Give the TopicPartition of a line of a flush record."""
    return TopicPartition(flushed.topic, flushed.partition)


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
    ranges: Ranges, committed: Committed, starts: dict[TopicPartition, int], findings: Findings
) -> None:
    """Check that ranges join from `starts` (where known) to the committed offset."""
    for tp in sorted(ranges.keys() | committed.keys()):
        covered = ranges.get(tp, [])
        end = committed.get(tp)
        if not covered:
            if end is not None and tp in starts and starts[tp] < end:
                findings.add(Kind.FLUSH, f"{tp}: no flush record covers [{starts[tp]}, {end})")
            continue
        reached = min(starts.get(tp, covered[0].first_offset), covered[0].first_offset)
        for one in covered:
            name = "gap" if one.first_offset > reached else "overlap"
            if one.first_offset != reached:
                findings.add(Kind.FLUSH, f"{tp}: {name} between {reached} and [{one.first_offset}, {one.next_offset})")
            if one.next_offset < one.first_offset:
                findings.add(Kind.FLUSH, f"{tp}: [{one.first_offset}, {one.next_offset}) runs backwards")
            reached = max(reached, one.next_offset)
        if reached != end:
            findings.add(Kind.FLUSH, f"{tp}: flush records reach {reached}, the group's committed offset is {end}")


def check_flushes(announced: Announced, table: SourceTable, findings: Findings, *, group_id: str) -> None:
    """Check every flush record of the group against the source and the sums of its references and dead letters.

    Where these fall short, data of backfills within its ranges has to make good exactly what is lacking.
    """
    sums = announced.sums()
    seen: Counter[str] = Counter(flush.batch_id for flush in announced.flushes)
    for batch_id, count in seen.items():
        if count > 1:
            findings.add(Kind.FLUSH, f"batch {batch_id}: {count} flush records")
    for batch_id in sums.keys() - seen.keys() - announced.backfills.keys():
        findings.add(Kind.FLUSH, f"batch {batch_id}: references or dead letters without a flush record")
    for flush in announced.flushes:
        if flush.group_id != group_id:
            findings.add(Kind.FLUSH, f"batch {flush.batch_id}: flushed by group {flush.group_id}, not {group_id}")
        batch = sums.get(flush.batch_id, BatchSums())
        extra = made_good(flush, table)
        _check_totals(flush, batch, extra, findings)
        lines = {tp_of(flushed): flushed for flushed in flush.topic_partitions}
        for tp in (batch.in_files.keys() | batch.dead_letters.keys()) - lines.keys():
            findings.add(Kind.FLUSH, f"batch {flush.batch_id}: data of {tp}, which its flush record does not name")
        for tp, flushed in lines.items():
            _check_line(flush.batch_id, flushed, batch, extra, table, findings)
            own = batch.in_files[tp] + batch.dead_letters[tp]
            if flushed.entries != own + extra.of(tp) + flushed.discarded_replays:
                text = f"batch {flush.batch_id} {tp}: {flushed.entries} entries, but "
                text += f"{batch.in_files[tp]} in files + {batch.dead_letters[tp]} dead"
                text += f" + {flushed.discarded_replays} replays"
                text += f" + {extra.of(tp)} of backfills" if extra.of(tp) else ""
                findings.add(Kind.FLUSH, text)


def made_good_batches(announced: Announced, table: SourceTable) -> set[str]:
    """Find batches that have fewer references than their flush record says, and entries in data of backfills."""
    sums = announced.sums()
    return {
        flush.batch_id
        for flush in announced.flushes
        if sums.get(flush.batch_id, BatchSums()).references < flush.totals.references
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
    """Check what references share with the flush record of their batch."""
    flushes = {flush.batch_id: (flush, _covered(flush)) for flush in announced.flushes}
    seen: Counter[str] = Counter(reference.reference_id for reference in announced.references)
    for reference_id, count in seen.items():
        if count > 1:
            findings.add(Kind.REFERENCE, f"reference id {reference_id}: used {count} times")
    for reference in announced.references:
        if reference.batch_id in flushes:
            _check_reference(reference, *flushes[reference.batch_id], findings)


def _covered(flush: FlushRecord) -> dict[TopicPartition, tuple[int, int]]:
    return {tp_of(one): (one.first_offset, one.next_offset) for one in flush.topic_partitions}


def _check_reference(
    reference: Reference,
    flush: FlushRecord,
    covered: dict[TopicPartition, tuple[int, int]],
    findings: Findings,
) -> None:
    where = f"reference {reference.reference_id}"
    if (reference.worker, reference.generation) != (flush.worker, flush.generation):
        findings.add(Kind.REFERENCE, f"{where}: worker or generation is not that of its flush record")
    for source in reference.sources:
        tp = TopicPartition(source.topic, source.partition)
        given = (source.first_offset, source.next_offset)
        if covered.get(tp, given) != given:  # where there is none, check_flushes says so
            findings.add(Kind.REFERENCE, f"{where} {tp}: range {given} is not the flush record's {covered[tp]}")
        if not source.first_offset <= source.min_offset <= source.max_offset < source.next_offset:
            span = (source.min_offset, source.max_offset)
            findings.add(Kind.REFERENCE, f"{where}: offsets {span} are not within the range {given}")


def _check_line(
    batch_id: str,
    flushed: FlushedTopicPartition,
    batch: BatchSums,
    extra: MadeGood,
    table: SourceTable,
    findings: Findings,
) -> None:
    tp = tp_of(flushed)
    if flushed.first_offset < table.of(tp).low_offset:
        return  # the source is gone; stated as a doubt
    source = table.of(tp).totals(flushed.first_offset, flushed.next_offset)
    facts = {
        "records": (flushed.records, source.records),
        "entries": (flushed.entries, source.entries),
        "dead_letters": (flushed.dead_letters, batch.dead_letters[tp] + extra.dead_letters[tp]),
        "min_offset": (flushed.min_offset, source.min_offset),
        "max_offset": (flushed.max_offset, source.max_offset),
    }
    if source.records:
        facts["timestamp_max_ms"] = (flushed.timestamp_max_ms, source.timestamp_max_ms)
    for name, (said, counted) in facts.items():
        if said != counted:
            at = f"batch {batch_id} {tp} [{flushed.first_offset}, {flushed.next_offset})"
            findings.add(Kind.FLUSH, f"{at}: {name} is {said}, counted {counted}")


def _check_totals(flush: FlushRecord, batch: BatchSums, extra: MadeGood, findings: Findings) -> None:
    totals, lines = flush.totals, flush.topic_partitions
    in_files, dead_letters = batch.in_files.total(), batch.dead_letters.total()
    facts = {
        "records": (totals.records, sum(line.records for line in lines)),
        "entries": (totals.entries, sum(line.entries for line in lines)),
        "entries_in_files": (totals.entries_in_files, in_files + extra.in_files.total()),
        "dead_letters": (totals.dead_letters, dead_letters + extra.dead_letters.total()),
        "dead_letter_records": (totals.dead_letter_records, batch.dead_letter_records),
        "discarded_replays": (totals.discarded_replays, sum(line.discarded_replays for line in lines)),
        "references": (totals.references, batch.references),
    }
    # Of what is made good the entries are counted; how many references they once had nobody knows any more.
    if extra.in_files.total() and batch.references < totals.references:
        del facts["references"]
    if extra.dead_letters.total() and batch.dead_letter_records < totals.dead_letter_records:
        del facts["dead_letter_records"]
    for name, (said, counted) in facts.items():
        if said != counted:
            findings.add(Kind.FLUSH, f"batch {flush.batch_id}: total of {name} is {said}, counted {counted}")
