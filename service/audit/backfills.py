"""Run records of backfills, and what backfills make good of a flush (DESIGN 8).

Owns the rule that data of no flush record needs a backfill's record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from service.accounting import Kind, Sums, judge_run, tp_of
from service.audit.whose import has_run
from service.formats.flush_record import decode_backfill_record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from service.audit.announced import Announced, Committed
    from service.audit.findings import Findings
    from service.audit.source_table import SourceTable
    from service.formats.adoption import Lineage
    from service.formats.flush_record import BackfillRecord, FlushRecord
    from service.formats.model import SourceRecord


def newest_records(messages: Iterable[SourceRecord], findings: Findings, lineage: Lineage) -> dict[str, BackfillRecord]:
    """Return the newest record of each batch id of a history: those of one run come in order, each further on."""
    newest: dict[str, BackfillRecord] = {}
    for message in messages:
        where = f"{message.tp} offset {message.offset}"
        try:
            record = decode_backfill_record(message.value or b"")
        except msgspec.DecodeError as error:
            findings.add(Kind.BACKFILL_WRONG, f"{where}: not a backfill's record: {error}")
            continue
        if not has_run(lineage, record):
            continue
        before = newest.get(record.batch_id)
        if before is not None and before.published >= record.published:
            text = f"{where}: backfill {record.batch_id} is at {record.published} after {before.published}"
            findings.add(Kind.BACKFILL_WRONG, text)
        newest[record.batch_id] = record
    return newest


def made_good(flush: FlushRecord, table: SourceTable) -> Sums:
    """Count the entries of a flush record's ranges that stand in data of backfills."""
    found = Sums()
    for line in flush.topic_partitions:
        tp = tp_of(line)
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
            findings.add(Kind.BACKFILL_WRONG, f"{where}: there is a flush record of this batch id, too")
        if not record.is_finished:
            findings.note(
                f"{where} has published {record.published} of {record.messages} messages and goes on from there"
            )
        reached = {tp: committed.get(tp) or 0 for tp in map(tp_of, record.topic_partitions)}
        for wrong in judge_run(record, sums.get(batch_id, Sums()), reached):
            findings.tell(wrong, where)
