"""Announcements of the workers and backfills of one history: an index of batches, then the messages of some.

The index holds flush records, run records, and the places of a batch's messages; references and dead letters are read
again when their batch is judged, so that memory holds those of a few flushes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from log_partitioner.formats.dead_letter import DeadLetterHeaders, own_headers, parse_headers
from log_partitioner.formats.findings import Kind
from log_partitioner.formats.flush_record import (
    Adoption,
    BackfillRecord,
    FlushRecord,
    Lineage,
    decode_backfill_record,
    decode_flushes,
    merge_parts,
)
from log_partitioner.formats.model import Headers, OffsetRanges, SourceRecord, TopicPartition
from log_partitioner.formats.reference import Reference, decode_references
from log_partitioner.formats.replay import decode_replay_mark, is_replay_mark
from log_partitioner.proof.accounting import Sums, tp_of
from log_partitioner.proof.audit.put_away import CLAIMING, Claim
from log_partitioner.proof.audit.ranges import OffsetSpan, spans_of, widen
from log_partitioner.proof.audit.report import Findings
from log_partitioner.proof.audit.whose import has_reference, has_run
from log_partitioner.proof.oracle.judge import value_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

MessagePlace = tuple[TopicPartition, int]


class SeenDeadLetter(NamedTuple):
    """A dead letter: our headers, and as much of the record's own bytes as comparing them takes."""

    says: DeadLetterHeaders
    key: bytes | None
    headers: Headers
    value_digest: bytes
    is_replayed: bool = False


@dataclass
class AnnouncedBatch:
    """One batch id in the index; it has one flush record, if all is well, or a run record.

    `owned` are the offsets for which it alone answers, `strays` those that its messages name beyond them, `places` the
    places of its messages.
    """

    batch_id: str = ""
    records: list[FlushRecord] = field(default_factory=list)
    run: BackfillRecord | None = None
    owned: list[OffsetSpan] = field(default_factory=list)
    strays: OffsetRanges = field(default_factory=dict)
    places: OffsetRanges = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its id; offsets that no batch covers are named by the first of them."""
        return self.batch_id or ", ".join(f"no flush of {span.tp} from {span.first}" for span in self.owned)

    @property
    def record(self) -> FlushRecord | BackfillRecord | None:
        """Its record, if it has one."""
        return self.run or (self.records[-1] if self.records else None)

    @property
    def ended_at_ms(self) -> int:
        """About when it was committed: messages of one time are near each other."""
        return max((record.ended_at_ms for record in self.records), default=0)

    @property
    def spans(self) -> list[OffsetSpan]:
        """The offsets of the source that are needed to judge it."""
        lines = (line for record in self.records for line in record.topic_partitions)
        covered = [OffsetSpan(tp_of(line), line.first_offset, line.next_offset) for line in lines]
        return [*covered, *self.owned, *spans_of(self.strays)]


@dataclass
class Told:
    """References and dead letters of one batch, in the order of messages and lines; `places` are the references'."""

    references: list[Reference] = field(default_factory=list)
    places: list[tuple[TopicPartition, int]] = field(default_factory=list)
    letters: list[SeenDeadLetter] = field(default_factory=list)
    messages: int = 0

    def sums(self) -> Sums:
        """Add them up, each reference id once."""
        letters, once = len(self.letters), {one.reference_id: one for one in self.references}
        sums = Sums(references=len(once), reference_messages=self.messages - letters, dead_letter_records=letters)
        for source in (one for reference in once.values() for one in reference.sources):
            sums.in_files[tp_of(source)] += source.entries
        for letter in self.letters:
            sums.dead_letters[letter.says.tp] += letter.says.entries
        return sums


class _Message(NamedTuple):
    """A message of the references or the dead letters topic."""

    batch_id: str
    group_id: str
    is_ours: bool
    references: list[Reference]
    letter: SeenDeadLetter | None

    def spans(self) -> Iterator[OffsetSpan]:
        """Yield the offsets of the source that it names."""
        for one in (source for reference in self.references for source in reference.sources):
            yield OffsetSpan(tp_of(one), one.min_offset, one.max_offset + 1)
        if self.letter is not None:
            says = self.letter.says
            yield OffsetSpan(says.tp, says.offset, says.offset + 1)


class Announced:
    """The batches of one history by id; messages of others are counted by group, dead letters `replayed` by place."""

    def __init__(
        self, lineage: Lineage, findings: Findings, *, dead_letters_topic: str, replayed: Iterable[MessagePlace] = ()
    ) -> None:
        self.replayed = set(replayed)
        self.batches: dict[str, AnnouncedBatch] = {}
        self.claims: list[Claim] = []
        self.others: Counter[str] = Counter()
        self.groups: set[str] = set()  # all that have flush records
        self._lineage = lineage
        self._findings = findings
        self._dead_letters_topic = dead_letters_topic

    def read_flushes(self, messages: Iterable[SourceRecord]) -> list[FlushRecord]:
        """Take the messages of the flushes topic; return the flush records of this history, whole."""
        parts = []
        for message in messages:
            try:
                record = decode_flushes(message.value or b"")
            except msgspec.DecodeError as error:
                text = f"{_at(message)}: not a flush record: {error}"
                self._findings.add(Kind.FLUSH_WRONG, text, (message.tp, message.offset))
                continue
            if isinstance(record, Adoption):
                continue  # the history is made of them
            self.groups.add(record.group_id)
            if self._lineage.has_flush(record):
                parts.append(record)
            else:
                self.others[record.group_id] += 1
        whole, problems = merge_parts(parts)
        for problem in problems:
            self._findings.add(Kind.FLUSH_WRONG, problem)
        return whole

    def index(
        self,
        records: Iterable[FlushRecord],
        runs: Mapping[str, BackfillRecord],
        owned: Iterable[tuple[str | None, OffsetSpan]],
    ) -> list[AnnouncedBatch]:
        """Give records and owned offsets to their batches; return a batch for each span that has none."""
        gaps = []
        for record in records:
            self._batch(record.batch_id).records.append(record)
        for batch_id, run in runs.items():
            self._batch(batch_id).run = run
        for owner, span in owned:
            if owner is None:
                gaps.append(AnnouncedBatch())
            (gaps[-1] if owner is None else self._batch(owner)).owned.append(span)
        return gaps

    def add(self, message: SourceRecord, *, is_wanted: Callable[[str], bool], source: OffsetRanges) -> None:
        """Index a message of a wanted batch: its place, and offsets of `source` that it names beyond its batch's."""
        try:
            if is_replay_mark(message.headers):
                mark = decode_replay_mark(message.value or b"")
                self.replayed.update((message.tp, offset) for offset in mark.offsets)
                return
            told = self._read(message)
        except (KeyError, ValueError) as error:
            is_letter = message.tp.topic == self._dead_letters_topic
            kind = Kind.DEAD_LETTER_WRONG if is_letter else Kind.REFERENCE_WRONG
            self._findings.add(kind, f"{_at(message)}: cannot be read: {error!r}", (message.tp, message.offset))
            return
        if not told.is_ours:
            self.others[told.group_id] += 1
        elif is_wanted(told.batch_id):
            batch = self._batch(told.batch_id)
            widen(batch.places, OffsetSpan(message.tp, message.offset, message.offset + 1))
            if told.letter is not None:
                says = told.letter.says
                if says.reason in CLAIMING:
                    self.claims.append(Claim(says.tp, says.offset, says.end_offset, says.reason))
            elif message.key != told.batch_id.encode():
                text = f"{_at(message)}: its key is not its batch id, {told.batch_id}"
                self._findings.add(Kind.REFERENCE_WRONG, text)
            for span in told.spans():
                low, end = source.get(span.tp, (0, 0))
                if not any(one.holds(span) for one in batch.owned) and span.first < end and low < span.next:
                    widen(batch.strays, span)

    def take(self, message: SourceRecord, batches: Mapping[str, Told]) -> None:
        """Give the contents of an indexed message to its batch, if that is one of these."""
        try:
            told = self._read(message)
        except (KeyError, ValueError):
            return  # the index has told
        if told.is_ours and (batch := batches.get(told.batch_id)) is not None:
            batch.references += told.references
            batch.places += [(message.tp, message.offset)] * len(told.references)
            if told.letter is not None:
                is_replayed = (message.tp, message.offset) in self.replayed
                batch.letters.append(told.letter._replace(is_replayed=is_replayed))
            batch.messages += 1

    def _batch(self, batch_id: str) -> AnnouncedBatch:
        return self.batches.get(batch_id) or self.batches.setdefault(batch_id, AnnouncedBatch(batch_id))

    def _read(self, message: SourceRecord) -> _Message:
        """Decode a message; the headers of a dead letter begin with the record's own."""
        if message.tp.topic != self._dead_letters_topic:
            references = decode_references(message.value or b"")
            if not references:
                raise ValueError("a message without references")
            is_ours = all(has_reference(self._lineage, one) for one in references)
            return _Message(references[0].batch_id, references[0].group_id, is_ours, references, None)
        says = parse_headers(message.headers)
        letter = SeenDeadLetter(says, message.key, own_headers(message.headers), value_digest(message.value))
        is_ours = self._lineage.has(says.group_id, *says.tp, says.next_offset)
        return _Message(says.batch_id, says.group_id, is_ours, [], letter)


def newest_runs(messages: Iterable[SourceRecord], findings: Findings, lineage: Lineage) -> dict[str, BackfillRecord]:
    """Return the newest run record of each backfill of a history; records of one run come in order."""
    newest: dict[str, BackfillRecord] = {}
    for message in messages:
        try:
            record = decode_backfill_record(message.value or b"")
        except msgspec.DecodeError as error:
            text = f"{_at(message)}: not a backfill's record: {error}"
            findings.add(Kind.BACKFILL_WRONG, text, (message.tp, message.offset))
            continue
        if not has_run(lineage, record):
            continue
        before = newest.get(record.batch_id)
        if before is not None and before.published >= record.published:
            text = f"{_at(message)}: backfill {record.batch_id} is at {record.published} after {before.published}"
            findings.add(Kind.BACKFILL_WRONG, text)
        newest[record.batch_id] = record
    return newest


def _at(message: SourceRecord) -> str:
    return f"{message.tp} offset {message.offset}"
