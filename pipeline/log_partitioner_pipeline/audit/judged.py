"""Judged batches in a form that tasks hand to the driver: findings by hour, counts, what an hour has; no Spark.

A finding belongs to the date and hour of its entry or its reference. One that has none, such as that of a flush record,
belongs to every hour of its batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from log_partitioner.formats.findings import Kind
from log_partitioner.proof.audit.report import Findings, PlacedFinding

if TYPE_CHECKING:
    from log_partitioner.formats.model import PartitionKey, TopicPartition
    from log_partitioner.proof.audit.context import Context
    from log_partitioner.proof.audit.flush import ComparedBatch
    from log_partitioner.proof.audit.ranges import OffsetSpan
    from log_partitioner.proof.audit.source import SourceColumn

HOUR_MS = 3_600_000


class BatchHour(NamedTuple):
    """A batch in an hour; date and hour are None for what is of no hour."""

    batch: str | None
    date: str | None = None
    hour: int | None = None


class FoundAt(msgspec.Struct, frozen=True, kw_only=True):
    """A finding as an example, with all that is known of its place."""

    kind: Kind
    text: str
    count: int
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    index: int | None = None
    user: str | None = None
    date: str | None = None
    hour: int | None = None
    reference_id: str | None = None
    object: str | None = None
    batch_id: str | None = None


class HourCounts(msgspec.Struct):
    """Counts of one batch in one hour of event time, or of all batches.

    `expected` deliverable entries belong there; `in_files` and `in_dead_letters` of them were seen, anywhere.
    """

    expected: int = 0
    in_files: int = 0
    in_dead_letters: int = 0
    references: int = 0
    bytes: int = 0

    def add(self, other: HourCounts) -> None:
        """Add the counts of others."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class RecordCounts(msgspec.Struct):
    """Counts of one hour of record timestamps; `lags` are milliseconds to the end of the flush, to three digits."""

    records: int = 0
    entries: int = 0
    in_files: int = 0
    in_dead_letters: int = 0
    missing: int = 0
    duplicated: int = 0
    lags: dict[int, int] = {}

    def add(self, other: RecordCounts) -> None:
        """Add the counts of others."""
        self.lags = dict(Counter(self.lags) + Counter(other.lags))
        for name in self.__struct_fields__[:-1]:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class JudgedBatches(msgspec.Struct):
    """Batches that were judged; parts of it can be added up.

    `kinds` counts findings by place and kind (0: it is counted elsewhere, and wrong here, too), `hours` are by place,
    `record_hours` by hour since 1970 (None: no timestamp), `source` has records and entries by topic and partition.
    """

    examples: list[FoundAt] = []
    kinds: dict[BatchHour, dict[Kind, int]] = {}
    counts: dict[str, int] = {}
    dead_letters: dict[str, int] = {}
    hours: dict[BatchHour, HourCounts] = {}
    record_hours: dict[int | None, RecordCounts] = {}
    source: dict[tuple[str, int], tuple[int, int]] = {}
    doubts: list[str] = []
    notes: list[str] = []

    def add(self, other: JudgedBatches, *, examples_max: int) -> None:
        """Add what was judged elsewhere; so many examples of each kind are kept."""
        kept = Counter(one.kind for one in self.examples)
        for one in other.examples:
            kept[one.kind] += 1
            if kept[one.kind] <= examples_max:
                self.examples.append(one)
        for place, kinds in other.kinds.items():
            mine = self.kinds.setdefault(place, {})
            mine.update({kind: mine.get(kind, 0) + count for kind, count in kinds.items()})
        self.counts = dict(Counter(self.counts) + Counter(other.counts))
        self.dead_letters = dict(Counter(self.dead_letters) + Counter(other.dead_letters))
        for place, counts in other.hours.items():
            self.hours.setdefault(place, HourCounts()).add(counts)
        for hour, records in other.record_hours.items():
            self.record_hours.setdefault(hour, RecordCounts()).add(records)
        for tp, (records_read, entries) in other.source.items():
            known = self.source.get(tp, (0, 0))
            self.source[tp] = known[0] + records_read, known[1] + entries
        self.doubts += [doubt for doubt in other.doubts if doubt not in self.doubts]
        self.notes += [note for note in other.notes if note not in self.notes]


class PlacedFindings(Findings):
    """Findings that keep the hours that they are of; one of a message that is acknowledged is a note."""

    def __init__(
        self, *, examples_max: int, is_acknowledged: Callable[[TopicPartition, int], bool] = lambda *_: False
    ) -> None:
        super().__init__(examples_max=examples_max)
        self._is_acknowledged = is_acknowledged
        self.kinds: dict[BatchHour, Counter[Kind]] = {}
        self.found: list[FoundAt] = []

    def take(self, finding: PlacedFinding) -> None:
        """Count a finding at its place."""
        reference, at = finding.reference, finding.place
        if isinstance(at, tuple) and len(at) > 1 and self._is_acknowledged(at[0], at[1]):
            self.note(f"{finding.text}: acknowledged")
            return
        key = finding.key or (None if reference is None else reference.partition_key)
        place = BatchHour(self.batch) if key is None else BatchHour(self.batch, key.date, key.hour)
        self.kinds.setdefault(place, Counter())[finding.kind] += finding.number
        if reference is not None and key != reference.partition_key:  # it is wrong there, too, and counted once
            _, date, hour = reference.partition_key
            self.kinds.setdefault(BatchHour(self.batch, date, hour), Counter())[finding.kind] += 0
        if finding.number and self.wants_example(finding.kind):
            self.found.append(self._placed(finding, key))
        super().take(finding)

    def begin_anew(self) -> None:
        """Forget all findings, doubts and notes."""
        for kept in (self.counts, self.examples, self.places):
            kept.clear()
        self.kinds, self.found, self.doubts, self.notes = {}, [], [], []

    def _placed(self, finding: PlacedFinding, key: PartitionKey | None) -> FoundAt:
        reference, at = finding.reference, finding.place
        named = None if reference is None else reference.location.object
        place: dict[str, Any] = {}
        if isinstance(at, str):
            named = at
        elif at is not None:
            place = dict(zip(("topic", "partition", "offset", "index"), (*at[0], *at[1:]), strict=False))
        return FoundAt(
            kind=finding.kind,
            text=finding.text,
            count=finding.number,
            user=None if key is None else key.user,
            date=None if key is None else key.date,
            hour=None if key is None else key.hour,
            reference_id=None if reference is None else reference.reference_id,
            object=named,
            batch_id=self.batch,
            **place,
        )


def judged_of(findings: PlacedFindings, context: Context, batches: Iterable[ComparedBatch]) -> JudgedBatches:
    """Gather what was said and counted while these batches were judged."""
    judged = JudgedBatches(examples=[], kinds={}, hours={}, record_hours={}, source={})
    for batch in batches:
        _count(judged, batch)
    judged.counts, judged.dead_letters = dict(context.counts), dict(context.dead_letters)
    judged.examples = findings.found
    judged.kinds = {place: dict(kinds) for place, kinds in findings.kinds.items()}
    judged.doubts, judged.notes = findings.doubts, findings.notes
    return judged


def _count(judged: JudgedBatches, compared: ComparedBatch) -> None:
    batch, name = compared.batch, compared.batch.name
    for reference in compared.told.references:
        _, date, hour = reference.partition_key
        counts = judged.hours.setdefault(BatchHour(name, date, hour), HourCounts())
        counts.references += 1
        counts.bytes += sum(length for _, length in reference.location.ranges)
    for span in batch.owned:
        column = compared.source.columns[span.tp]
        _count_entries(judged, name, column, span)
        _count_records(judged, column, span, ended_at_ms=batch.ended_at_ms if batch.records else None)


def _count_entries(judged: JudgedBatches, name: str, column: SourceColumn, span: OffsetSpan) -> None:
    for row in column.rows(span.first, span.next):
        key = column.shapes[row].key
        if key is not None:
            counts = judged.hours.setdefault(BatchHour(name, key.date, key.hour), HourCounts())
            counts.expected += 1
            counts.in_files += bool(column.files[row])
            counts.in_dead_letters += bool(column.letters[row])


def _count_records(judged: JudgedBatches, column: SourceColumn, span: OffsetSpan, *, ended_at_ms: int | None) -> None:
    records = entries = 0
    for timestamp_ms, rows in column.records(span.first, span.next):
        hour = None if timestamp_ms is None else timestamp_ms // HOUR_MS
        counts = judged.record_hours.setdefault(hour, RecordCounts(lags={}))
        counts.records += 1
        counts.entries += len(rows)
        records += 1
        entries += len(rows)
        for files, letters in ((column.files[row], column.letters[row]) for row in rows):
            counts.in_files += bool(files)
            counts.in_dead_letters += bool(letters)
            counts.missing += not files and not letters
            counts.duplicated += max(0, files - 1)
        if timestamp_ms is not None and ended_at_ms is not None:
            lag = _rounded(ended_at_ms - timestamp_ms)
            counts.lags[lag] = counts.lags.get(lag, 0) + 1
    known = judged.source.get(span.tp, (0, 0))
    judged.source[span.tp] = known[0] + records, known[1] + entries


def _rounded(value: int) -> int:
    """Round to three significant digits: so there are few lags, however many records."""
    return round(float(f"{value:.3g}"))


def percentile(counts: dict[int, int], part: float) -> int | None:
    """Return the lowest value that so large a part of all values reaches; None if there are none."""
    wanted, reached = part * sum(counts.values()), 0
    for value, count in sorted(counts.items()):
        reached += count
        if reached >= wanted:
            return value
    return None


def ids_of(batches: Iterable[ComparedBatch]) -> Iterator[str]:
    """Yield the unique ids of the entries for which batches answer, and that files must have."""
    for compared in batches:
        for span in compared.batch.owned:
            column = compared.source.columns[span.tp]
            for row in column.rows(span.first, span.next):
                name = column.ids[row]
                if name is not None and not (column.letters[row] and not column.files[row]):
                    yield name
