"""One flush judged: source, references, objects, dead letters, flush record -> findings, in memory for one flush.

Owns the checks of its record, and that every entry is in exactly one place; `objects` and `letters` compare the rest.
The same judgement serves backfills, which have a run record and answer for no offsets, and offsets that no flush record
covers. An entry that a batch holds of another's offsets, a stray, counts in the account of the other.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

from log_partitioner.formats.findings import Kind
from log_partitioner.formats.flush_record import FlushRecord
from log_partitioner.formats.model import TopicPartition
from log_partitioner.formats.reference import reference_id
from log_partitioner.proof.accounting import (
    Sums,
    judge_line,
    judge_published,
    judge_range,
    judge_run,
    judge_totals,
    tp_of,
)
from log_partitioner.proof.audit.letters import check_letter
from log_partitioner.proof.audit.objects import FlushObjects
from log_partitioner.proof.audit.ranges import OffsetSpan
from log_partitioner.proof.audit.replays import Replays
from log_partitioner.proof.audit.source import FlushSource, count_seen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from log_partitioner.formats.flush_record import BackfillRecord
    from log_partitioner.formats.model import SourceRecord
    from log_partitioner.formats.reference import Reference
    from log_partitioner.proof.audit.announced import AnnouncedBatch, Told
    from log_partitioner.proof.audit.context import Context
    from log_partitioner.proof.audit.source import GivenUp, SourceColumn


class Stray(NamedTuple):
    """An entry that was seen, once, or `given_up` in a batch that does not answer for its offset."""

    offset: int
    number: int
    is_letter: bool
    of_backfill: bool
    given_up: GivenUp | None = None


Strays = dict[TopicPartition, list[Stray]]
"""The strays of all batches, in order."""


class ComparedBatch(NamedTuple):
    """A batch whose references, objects and dead letters are compared; its offsets remain to be accounted for."""

    batch: AnnouncedBatch
    told: Told
    source: FlushSource
    objects: FlushObjects
    sums: Sums
    is_cut: bool

    def holds(self, tp: TopicPartition, offset: int, index: int) -> bool:
        """Return whether a file of the batch has this entry."""
        column = self.source.columns[tp]
        record = column.find(offset)
        return record is not None and index < len(record.rows) and column.files[record.rows[index]] > 0

    def strays(self) -> Iterator[tuple[TopicPartition, Stray]]:
        """Yield the entries of other batches' offsets that were seen in this one."""
        for tp, column in self.source.columns.items():
            own = [column.rows(span.first, span.next) for span in self.batch.owned if span.tp == tp]
            for row in (row for row in range(len(column.files)) if not any(row in rows for rows in own)):
                stray = Stray(*column.place_of(row), is_letter=False, of_backfill=self.batch.run is not None)
                yield from repeat((tp, stray), column.files[row])
                yield from repeat((tp, stray._replace(is_letter=True)), column.letters[row])
                if not column.files[row] and row in column.given_up:
                    yield tp, stray._replace(given_up=column.given_up[row])


def judge_flush(
    context: Context, batch: AnnouncedBatch, told: Told, records: Iterable[SourceRecord], strays: Strays
) -> ComparedBatch:
    """Judge a batch's output. `records` are the source at its `spans`, TopicPartitions in offset order."""
    compared = compare(context, batch, told, records)
    account(context, compared, strays)
    return compared


def compare(context: Context, batch: AnnouncedBatch, told: Told, records: Iterable[SourceRecord]) -> ComparedBatch:
    """Compare references, objects and dead letters of a batch with the source."""
    context.findings.batch = batch.name
    source, replays = FlushSource(keeps_ids=context.keeps_ids), Replays(context, batch.records)
    for record in records:
        source.add(record, replays.judge(record))
    replays.finish(f"batch {batch.batch_id}")
    objects = FlushObjects(context, source)
    objects.check(told)
    _check_references(context, batch.record, told.references)
    seen: set[object] = set()
    for letter in told.letters:
        check_letter(context, letter, source.columns[letter.says.tp], seen)
    is_cut = batch.run is not None and not batch.run.is_finished
    if not context.ground.are_whole:
        is_cut |= all(one.reference_id != reference_id(one.batch_id, 0) for one in told.references)
    return ComparedBatch(batch, told, source, objects, told.sums(), is_cut)


def account(context: Context, compared: ComparedBatch, strays: Strays) -> None:
    """Count the outcome of each entry for which a batch answers, and compare it with the batch's record."""
    batch, source = compared.batch, compared.source
    context.findings.batch = batch.name
    _check_record(context, compared, strays)  # first: so only what its own references give up is known
    for span in batch.owned:
        column = source.columns[span.tp]
        for stray in _within(strays, span):
            rows = column.rows(stray.offset, stray.offset + 1)
            for row in rows[stray.number : stray.number + 1]:
                if stray.given_up is None:
                    count_seen(column.letters if stray.is_letter else column.files, row)
                else:
                    column.given_up.setdefault(row, stray.given_up)
    for span in batch.owned:
        _account(context, span, source.columns[span.tp])


def _check_record(context: Context, compared: ComparedBatch, strays: Strays) -> None:
    """Check flush records, or the run record, against the source and what the batch has published."""
    batch, _, source, objects, sums, is_cut = compared
    where = f"batch {batch.batch_id}"
    if batch.places and batch.record is None:
        kind = Kind.REFERENCE_WRONG if sums.references else Kind.DEAD_LETTER_WRONG
        context.findings.add(kind, f"{where}: references or dead letters without a flush record")
    if len(batch.records) > 1:
        context.findings.add(Kind.FLUSH_OVERLAP, f"{where}: {len(batch.records)} flush records")
    is_made_good = False
    for record in batch.records:
        lines, good = record.topic_partitions, made_good(record, source, strays)
        is_made_good |= sums.references < record.totals.references and good.in_files.total() > 0
        there = [line for line in lines if not context.is_gone(tp_of(line), line.first_offset)]
        found = [*judge_totals(record.totals, lines)]
        found += judge_published(record.totals, lines, sums, good, has_source=len(there) == len(lines))
        for line in there:
            found += judge_line(line, source.columns[tp_of(line)].totals(line.first_offset, line.next_offset))
        for wrong in found:
            context.findings.tell(wrong, where)
    if batch.run is not None:
        _check_run(context, batch, batch.run, sums)
    has_all = not is_cut and batch.record is not None and batch.record.totals.references == sums.references
    objects.finish(has_all=has_all, is_cut=is_cut, is_made_good=is_made_good)


def _check_run(context: Context, batch: AnnouncedBatch, run: BackfillRecord, sums: Sums) -> None:
    where = f"backfill {batch.batch_id}"
    if batch.records:
        context.findings.add(Kind.BACKFILL_WRONG, f"{where}: there is a flush record of this batch id, too")
    if not run.is_finished:
        text = f"{where} has published {run.published} of {run.messages} messages and goes on from there"
        context.findings.note(text)
    reached = {tp: context.ground.committed.get(tp) or 0 for tp in map(tp_of, run.topic_partitions)}
    for wrong in judge_run(run, sums, reached):
        context.findings.tell(wrong, where)


def _check_references(
    context: Context, record: FlushRecord | BackfillRecord | None, references: list[Reference]
) -> None:
    """Check ids of references, and the fields that they share with the batch's record."""
    for number, count in Counter(one.reference_id for one in references).items():
        if count > 1:
            text = f"reference id {number}: used {count} times"
            again = next(one for one in references if one.reference_id == number)
            context.findings.add(Kind.REFERENCE_DUPLICATED, text, count=count - 1, reference=again)
    if record is None:
        return
    covered = {tp_of(one): (one.first_offset, one.next_offset) for one in record.topic_partitions}
    name = "flush record" if isinstance(record, FlushRecord) else "run record"
    for reference in references:
        if (reference.worker, reference.generation) != (record.worker, record.generation):
            context.refute(reference, f"worker or generation are not those of its {name}")
        for one in reference.sources:
            for text in judge_range(one, covered.get(tp_of(one)), record=name):
                context.refute(reference, f"{tp_of(one)}: {text}")


def _account(context: Context, span: OffsetSpan, column: SourceColumn) -> None:
    """Count the entries of a span; report those in no place and those in several."""
    tp = span.tp
    rows, totals = column.rows(span.first, span.next), column.totals(span.first, span.next)
    missing = [row for row in rows if not column.files[row] and not column.letters[row]]
    for row in missing:
        if (reason := column.given_up.get(row)) is not None:
            count_seen(column.files, row)
            context.counts[reason] += 1
            continue
        kind = Kind.DEAD_LETTER_MISSING if column.shapes[row].key is None else Kind.MISSING
        context.findings.add(kind, *_name(tp, column, row), key=column.shapes[row].key)
    for row in rows:
        files, letters = column.files[row], column.letters[row]
        if files + letters < 2:  # noqa: PLR2004
            continue
        (name, place), shape = _name(tp, column, row), column.shapes[row]
        if shape.key is not None and files > 1:
            text = f"{name}: {files} times in files"
            context.findings.add(Kind.DUPLICATED, text, place, count=files - 1, key=shape.key)
        surplus = letters + (min(files, 1) if shape.key is not None else 0) - 1
        if letters and surplus > 0 and shape.reasons:
            text = f"{name}: {letters} times in dead letters, {files} times in files"
            context.findings.add(Kind.DEAD_LETTER_DUPLICATED, text, place, count=surplus, key=shape.key)
    files, letters = (len(rows) - some[rows.start : rows.stop].count(0) for some in (column.files, column.letters))
    seen = {"entries_in_files": files, "entries_in_dead_letters": letters}
    context.counts.update({"source_records": totals.records, "source_entries": totals.entries, **seen})


def made_good(record: FlushRecord, source: FlushSource, strays: Strays) -> Sums:
    """Count the entries of a flush record's ranges that stand in data of backfills, and not in the batch's references.

    Those of references that are given up stand in both.
    """
    found = Sums()
    for line in record.topic_partitions:
        tp, column = tp_of(line), source.columns[tp_of(line)]
        here = _within(strays, OffsetSpan(tp, line.first_offset, line.next_offset))
        theirs = [stray for stray in here if stray.of_backfill]
        seen = {stray[:2] for stray in theirs if stray.given_up is None}
        for stray in (one for one in theirs if one.given_up is None or one[:2] not in seen):
            rows = column.rows(stray.offset, stray.offset + 1)[stray.number : stray.number + 1]
            if not any(row in column.given_up for row in rows):
                (found.dead_letters if stray.is_letter else found.in_files)[tp] += 1
    return found


def _within(strays: Strays, span: OffsetSpan) -> list[Stray]:
    here = strays.get(span.tp, [])
    return here[bisect_left(here, (span.first,)) : bisect_left(here, (span.next,))]


def _name(tp: TopicPartition, column: SourceColumn, row: int) -> tuple[str, tuple[TopicPartition, int, int]]:
    place = tp, *column.place_of(row)
    return "{} offset {} index {}".format(*place), place
