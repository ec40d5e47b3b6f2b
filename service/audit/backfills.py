"""Run records of backfills against their references and dead letters, and what they make good of a flush (DESIGN 8).

Owns the rule that data of no flush record needs a backfill's record, and the sum that completes a flush record.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from service.audit.announced import BatchSums
from service.audit.findings import Findings, Kind
from service.formats.flush_record import decode_backfill_record
from service.formats.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from service.audit.announced import Announced, Committed
    from service.audit.source_table import SourceTable
    from service.formats.flush_record import BackfilledTopicPartition, BackfillRecord, FlushRecord
    from service.formats.model import SourceRecord
    from service.formats.reference import Reference


class MadeGood(NamedTuple):
    """Entries of the ranges of one flush record that backfills have published, by TopicPartition."""

    in_files: Counter[TopicPartition]
    dead_letters: Counter[TopicPartition]

    def of(self, tp: TopicPartition) -> int:
        """Give how many of a TopicPartition."""
        return self.in_files[tp] + self.dead_letters[tp]

    @property
    def total(self) -> int:
        """How many there are."""
        return self.in_files.total() + self.dead_letters.total()


def newest_records(messages: Iterable[SourceRecord], findings: Findings) -> dict[str, BackfillRecord]:
    """Give the newest record of each batch id: those of one run come in order, each further than the one before."""
    newest: dict[str, BackfillRecord] = {}
    for message in messages:
        where = f"{message.tp} offset {message.offset}"
        try:
            record = decode_backfill_record(message.value or b"")
        except msgspec.DecodeError as error:
            findings.add(Kind.BACKFILL, f"{where}: not a backfill's record: {error}")
            continue
        before = newest.get(record.batch_id)
        if before is not None and before.published >= record.published:
            text = f"{where}: backfill {record.batch_id} is at {record.published} after {before.published}"
            findings.add(Kind.BACKFILL, text)
        newest[record.batch_id] = record
    return newest


def made_good(flush: FlushRecord, table: SourceTable) -> MadeGood:
    """Count the entries of a flush record's ranges that stand in data of backfills."""
    found = MadeGood(Counter(), Counter())
    for line in flush.topic_partitions:
        tp = TopicPartition(line.topic, line.partition)
        columns = table.of(tp)
        rows = columns.rows(line.first_offset, line.next_offset)
        found.in_files[tp] += sum(columns.files_of_backfills[rows.start : rows.stop])
        found.dead_letters[tp] += sum(columns.dead_letters_of_backfills[rows.start : rows.stop])
    return found


def check_backfills(announced: Announced, committed: Committed, findings: Findings) -> None:
    """Check every backfill's record against the sums of its references and dead letters, which it must equal."""
    sums = announced.sums()
    flushed = {flush.batch_id for flush in announced.flushes}
    for batch_id, record in announced.backfills.items():
        where = f"backfill {batch_id}"
        if batch_id in flushed:
            findings.add(Kind.BACKFILL, f"{where}: there is a flush record of this batch id, too")
        if not record.is_finished:
            findings.note(
                f"{where} has published {record.published} of {record.messages} messages and goes on from there"
            )
        batch = sums.get(batch_id, BatchSums())
        _check_totals(record, batch, findings, where)
        lines = {TopicPartition(line.topic, line.partition): line for line in record.topic_partitions}
        for tp in sorted((batch.in_files.keys() | batch.dead_letters.keys()) - lines.keys()):
            findings.add(Kind.BACKFILL, f"{where}: data of {tp}, which its record does not name")
        for tp, line in lines.items():
            _check_line(line, tp, batch, committed, findings, where)
    for reference in announced.references:
        if reference.batch_id in announced.backfills:
            _check_reference(reference, announced.backfills[reference.batch_id], findings)


def _check_totals(record: BackfillRecord, batch: BatchSums, findings: Findings, where: str) -> None:
    totals = record.totals
    facts = {
        "references": (totals.references, batch.references),
        "entries_in_files": (totals.entries_in_files, batch.in_files.total()),
        "dead_letters": (totals.dead_letters, batch.dead_letters.total()),
        "dead_letter_records": (totals.dead_letter_records, batch.dead_letter_records),
        "published": (record.published, batch.reference_messages + batch.dead_letter_records),
    }
    for name, (said, counted) in facts.items():
        if said != counted:
            findings.add(Kind.BACKFILL, f"{where}: total of {name} is {said}, counted {counted}")


def _check_line(
    line: BackfilledTopicPartition,
    tp: TopicPartition,
    batch: BatchSums,
    committed: Committed,
    findings: Findings,
    where: str,
) -> None:
    said, counted = (line.entries_in_files, line.dead_letters), (batch.in_files[tp], batch.dead_letters[tp])
    if said != counted:
        findings.add(Kind.BACKFILL, f"{where} {tp}: {said} entries in files and dead letters, counted {counted}")
    reached = committed.get(tp) or 0
    if not line.first_offset <= line.next_offset <= reached:
        span = f"[{line.first_offset}, {line.next_offset})"
        findings.add(Kind.BACKFILL, f"{where} {tp}: {span} is not below the group's committed offset {reached}")


def _check_reference(reference: Reference, record: BackfillRecord, findings: Findings) -> None:
    where = f"reference {reference.reference_id}"
    if (reference.worker, reference.generation) != (record.worker, record.generation):
        findings.add(Kind.REFERENCE, f"{where}: worker or generation is not that of its backfill's record")
    lines = {(one.topic, one.partition): (one.first_offset, one.next_offset) for one in record.topic_partitions}
    for source in reference.sources:
        given = (source.first_offset, source.next_offset)
        covered = lines.get((source.topic, source.partition))
        name = f"{where} {source.topic}-{source.partition}"
        if covered != given:
            findings.add(Kind.REFERENCE, f"{name}: range {given} is not that of its backfill's record, {covered}")
        if not source.first_offset <= source.min_offset <= source.max_offset < source.next_offset:
            span = (source.min_offset, source.max_offset)
            findings.add(Kind.REFERENCE, f"{name}: offsets {span} are not within the range {given}")
