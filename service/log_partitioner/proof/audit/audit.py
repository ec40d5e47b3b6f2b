"""The audit from top to bottom: committed offsets, announcements, then flush by flush, then the ranges.

Owns the order of the steps, and the bound on memory: one flush, or as many small ones as are read at once.
"""

from __future__ import annotations

import sys
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from log_partitioner.formats.findings import Kind
from log_partitioner.formats.flush_record import Lineage
from log_partitioner.proof.accounting import tp_of
from log_partitioner.proof.audit.announced import Announced, AnnouncedBatch, Told, newest_runs
from log_partitioner.proof.audit.context import Address, Context, FetchedObject
from log_partitioner.proof.audit.flush import Strays, account, compare, judge_flush
from log_partitioner.proof.audit.put_away import NOTHING, decodes_alone, find_put_away
from log_partitioner.proof.audit.ranges import Ranges, Reached, hull, later_batches, notes_of, spans_of
from log_partitioner.proof.audit.report import Findings, Report
from log_partitioner.proof.audit.schemas import check_schema
from log_partitioner.proof.audit.whose import FlushTopics, nothing_of
from log_partitioner.proof.audit.window import PADDING_MS, FlushWindow, TimedTopics, run_window, starts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from log_partitioner.config.settings import Settings
    from log_partitioner.formats.flush_record import BackfillRecord, FlushRecord
    from log_partitioner.formats.model import OffsetRanges, SourceRecord, TopicPartition
    from log_partitioner.formats.reference import Reference
    from log_partitioner.proof.audit.ranges import Committed
    from log_partitioner.proof.audit.window import ChosenFlushes

EXAMPLES = 5
THREADS = 16
COUNTED = (
    *("source_records", "source_entries", "entries_in_files", "entries_in_dead_letters"),
    *("rows_read", "references", "objects", "object_bytes", "schemas", "flush_records"),
)
FATAL_MAX = 20  # records that ended a worker's process, each decoded in a process of its own
READ_ENTRIES = 10_000
"""Flushes are read together until they have so many entries: a read takes a round trip, however little it reads."""


class Options(NamedTuple):
    """Options of the command line."""

    require_caught_up: bool = False
    examples: int = EXAMPLES
    threads: int = THREADS
    window: FlushWindow = FlushWindow()


class Topics(FlushTopics, TimedTopics, Protocol):
    """Kafka, as far as the audit needs it; see `KafkaTopics`."""

    def ends(self, tp: TopicPartition) -> tuple[int, int]:
        """Return the first offset there is and the end of what is committed."""

    def committed(self, tps: list[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the group's committed offsets."""


class Audit:
    """One run, of the group of the settings; without `lineage` it has adopted none. Many threads open objects."""

    def __init__(
        self,
        settings: Settings,
        options: Options,
        topics: Topics,
        open_object: Callable[[Address], FetchedObject | None],
        lineage: Lineage | None = None,
    ) -> None:
        self._settings = settings
        self._lineage = lineage or Lineage(settings.kafka.group_id, [])
        self._options = options
        self._topics = topics
        self._open_object = open_object
        self._findings = Findings(examples_max=options.examples)
        self._announced = Announced(self._lineage, self._findings, dead_letters_topic=settings.kafka.dead_letters_topic)
        self._put_away = NOTHING
        self._lows: dict[TopicPartition, int] = {}  # of those that flush records cover and the source has lost
        self._fatal: dict[tuple[TopicPartition, int], SourceRecord | None] = {}
        self._schemas: set[tuple[Address, str]] = set()
        self._source: OffsetRanges = {}
        """The audited offsets of each TopicPartition: from the first one there is to the committed one."""

    def run(self) -> Report:
        """Do all steps.

        Outline: the committed offsets are read first, then the ends of the output, then the committed offsets again: a
        batch wholly between the two readings was committed meanwhile and is left out. The progress of backfills is read
        before and after, too; messages that one publishes meanwhile cannot be judged.
        """
        started_at = time.monotonic()
        kafka, findings, announced = self._settings.kafka, self._findings, self._announced
        tps = [tp for topic in kafka.source_topics for tp in self._topics.topic_partitions(topic)]
        committed = self._topics.committed(tps)
        runs = self._read_runs(findings)
        # Flush records last: of a batch that is committed meanwhile they say that it was, whatever else is seen of it.
        window = self._options.window
        topics = kafka.references_topic, kafka.dead_letters_topic, kafka.flushes_topic
        references, letters, all_flushes = (self._settled(self._topics.topic_partitions(topic)) for topic in topics)
        all_messages = {**references, **letters}
        messages = window.padded().narrow(self._topics, all_messages)
        flushes = window.padded(2).narrow(self._topics, all_flushes)
        begins = {tp: low for tp, (low, _) in {**all_messages, **all_flushes}.items() if low > 0}
        lost = {tp.topic: None for tp, (first, _) in {**messages, **flushes}.items() if begins.get(tp) == first}
        for topic in lost:
            findings.doubt(f"topic {topic} no longer has its beginning")
        records = announced.read_flushes(self._topics.read(flushes))
        later = later_batches(records, committed, self._topics.committed(tps))
        if later:
            findings.note(f"{len(later)} batches were committed while the audit was reading; left out")
        if self._read_runs(Findings(examples_max=0)) != runs:
            findings.doubt("a backfill was publishing while the audit was reading: audit again")
        records = [record for record in records if record.batch_id not in later]
        chosen = window.choose(records, runs)
        records += self._before(window, all_flushes, records, chosen)
        ranges = Ranges(records, window.committed(records, committed))
        reached = self._reached(committed, begins=ranges.first if window.is_everything else chosen.first)
        self._source = {one.tp: (one.first, max(one.first, min(one.committed or 0, one.end))) for one in reached}
        if window.is_everything:
            starts = self._starts(ranges) if kafka.start_at == "beginning" and not lost else {}
        else:
            self._source = _meeting(self._source, chosen.source)
            starts = starts_of(records)
        gaps = announced.index(records, runs, ranges.owned(starts))
        for message in self._topics.read(messages):
            announced.add(message, is_wanted=lambda batch_id: batch_id not in later, source=self._source)
        for run in [] if window.is_everything else chosen.runs:
            for message in self._topics.read(run_window(run).narrow(self._topics, all_messages)):
                announced.add(message, is_wanted=run.batch_id.__eq__, source=self._source)
        ranges.check(starts, findings)
        self._put_away = find_put_away(announced.claims)
        for (tp, first), end in sorted(self._put_away.ends.items()):
            findings.note(f"{tp}: a person has skipped the offsets {first} to {end - 1}: they are in no file")
        with ThreadPoolExecutor(self._options.threads, thread_name_prefix="audit") as pool:
            context = Context(
                self._settings,
                findings,
                open_objects=lambda addresses: pool.map(self._open_object, addresses),
                read_again=lambda tp, offset: next(iter([*self._topics.read({tp: (offset, offset + 1)})]), None),
                committed=committed,
                lows=self._lows,
                are_whole=not lost,
            )
            self._judge_all(context, chosen, gaps, ranges.begins)
        if window.is_everything:
            self._say_whose(reached, audited=bool(context.counts["source_records"] or records))
        else:
            self._say_window(reached, chosen)
        self._judge_fatal()
        flushed = sum(window.holds(record.ended_at_ms) for record in records)
        context.counts.update(schemas=len(self._schemas), flush_records=flushed)
        counts = {name: context.counts[name] for name in COUNTED} | ({"backfills": len(runs)} if runs else {})
        return Report(kafka.group_id, counts, dict(context.dead_letters), findings, time.monotonic() - started_at)

    def _before(
        self,
        window: FlushWindow,
        flushes: Mapping[TopicPartition, tuple[int, int]],
        known: list[FlushRecord],
        chosen: ChosenFlushes,
    ) -> list[FlushRecord]:
        """Read flush records back until each TopicPartition of the window has one of before it, or there are no more.

        Else a gap in front of the window's first line would be nobody's.
        """
        if window.from_ms is None:
            return []
        before = [record for record in known if record.ended_at_ms < window.from_ms]
        wanted = chosen.flushed - {tp_of(line) for record in before for line in record.topic_partitions}
        found: list[FlushRecord] = []
        length_ms, until_ms = PADDING_MS, window.padded(2).from_ms or 0
        while wanted and until_ms:
            earlier = FlushWindow(max(0, until_ms - length_ms), until_ms)
            some = self._announced.read_flushes(self._topics.read(earlier.narrow(self._topics, flushes)))
            wanted -= {tp_of(line) for record in some for line in record.topic_partitions}
            found += some
            until_ms, length_ms = earlier.from_ms or 0, 4 * length_ms
        return found

    def _read_runs(self, findings: Findings) -> dict[str, BackfillRecord]:
        """Read the newest record of each backfill; without the topic there was none."""
        topic = self._settings.kafka.backfills_topic
        ends = self._settled(self._topics.topic_partitions(topic, may_be_absent=True))
        return newest_runs(self._topics.read(ends), findings, self._lineage)

    def _settled(self, tps: list[TopicPartition]) -> Mapping[TopicPartition, tuple[int, int]]:
        ends, doubts = self._topics.settled(tps)
        for doubt in doubts:
            self._findings.doubt(doubt)
        return ends

    def _reached(self, committed: Committed, *, begins: Callable[[TopicPartition], int | None]) -> list[Reached]:
        """Ask for the ends of the source; report offsets that are gone, and those that are not committed yet."""
        reached = [Reached(tp, *self._topics.ends(tp), offset) for tp, offset in committed.items()]
        for tp, low, *_ in reached:
            begin = begins(tp)
            if begin is not None and begin < low:
                self._lows[tp] = low
                self._findings.doubt(f"{tp}: flush records begin at {begin}, the source only at {low}")
        if self._options.require_caught_up:
            beyond = {one.tp: (max(one.first, one.committed or 0), one.end) for one in reached}
            if count := sum(1 for _ in self._topics.read(beyond)):
                self._findings.doubt(f"{count:,} records of the source are not committed yet")
        for note in [] if self._options.require_caught_up else notes_of(reached):
            self._findings.note(note)
        return reached

    def _starts(self, ranges: Ranges) -> dict[TopicPartition, int]:
        """Find the first record of each TopicPartition, unless flush records begin before it."""
        starts: dict[TopicPartition, int] = {}
        for tp, (low, end) in self._source.items():
            begin = ranges.first(tp)
            for record in self._topics.read({tp: (low, end if begin is None else min(begin, end))}):
                starts.setdefault(tp, record.offset)
        return starts

    def _judge_all(
        self, context: Context, chosen: ChosenFlushes, gaps: list[AnnouncedBatch], begins: Mapping[TopicPartition, int]
    ) -> None:
        """Judge every batch: those with strays first, because others count them, then the rest.

        A window has those that are chosen, and others with messages and no record, or with entries of its offsets.
        """
        batches = [*sorted(self._announced.batches.values(), key=attrgetter("ended_at_ms")), *gaps]
        if not self._options.window.is_everything:
            batches = [one for one in batches if one.batch_id in chosen.batch_ids or one.strays or one.record is None]
        straying = [batch for batch in batches if batch.strays]
        compared = [compare(context, *found) for batch in straying for found in self._read([batch])]
        strays: Strays = defaultdict(list)
        for tp, stray in (found for one in compared for found in one.strays()):
            strays[tp].append(stray)
        for tp, some in strays.items():
            some.sort()
            places = Counter(
                one[:2] for one in some if not one.is_letter and one.offset < begins.get(tp, one.offset + 1)
            )
            for (offset, index), times in places.items():  # otherwise in the account of who answers for them
                if times > 1:
                    text = f"{tp} offset {offset} index {index}: {times} times in files"
                    self._findings.add(Kind.DUPLICATED, text, (tp, offset, index), count=times - 1)
        for one in compared:
            account(context, one, strays)
        del compared
        judged = len(straying)
        for bundle in _bundles(batch for batch in batches if not batch.strays):
            for found in self._read(bundle):
                judge_flush(context, *found, strays)
            judged += len(bundle)
            self._show(f"{judged:,} of {len(batches):,} flushes")

    def _read(self, bundle: list[AnnouncedBatch]) -> Iterator[tuple[AnnouncedBatch, Told, Iterable[SourceRecord]]]:
        """Read everything needed to judge some batches at once; the source of a single one is read as it is judged."""
        told = {batch.batch_id: Told() for batch in bundle}
        for message in self._topics.read(hull(place for batch in bundle for place in spans_of(batch.places))):
            self._announced.take(message, told)
        self._check_schemas(reference for one in told.values() for reference in one.references)
        asked = [hull(batch.spans, within=self._source) for batch in bundle]
        records = self._put_away.read(self._records, hull(span for some in asked for span in spans_of(some)))
        if len(bundle) == 1:
            yield bundle[0], told.pop(bundle[0].batch_id), records
            return
        read: dict[TopicPartition, list[SourceRecord]] = defaultdict(list)
        for record in records:
            read[record.tp].append(record)
        for batch, ranges in zip(bundle, asked, strict=True):
            yield batch, told.pop(batch.batch_id), (one for tp, span in ranges.items() for one in _cut(read[tp], *span))

    def _records(self, ranges: OffsetRanges) -> Iterator[SourceRecord]:
        """Yield the records of the source, and one record in place of offsets that a person has skipped."""
        for record in self._topics.read(ranges):
            place = record.tp, record.offset
            if place in self._put_away.fatal and place not in self._fatal:
                self._fatal[place] = record if len(self._fatal) < FATAL_MAX else None
            yield record

    def _check_schemas(self, references: Iterable[Reference]) -> None:
        """Check the object of every schema, once, and its texts in messages."""
        for bucket, schema in {(one.location.bucket, one.schema) for one in references}:
            address = Address(bucket, schema.object)
            if (address, schema.fingerprint) not in self._schemas:
                self._schemas.add((address, schema.fingerprint))
                check_schema(schema, self._open_object(address), self._findings)
            if schema.text is not None and sha256(schema.text.encode()).hexdigest() != schema.fingerprint:
                text = f"schema {schema.fingerprint}: a text in a reference is another"
                self._findings.add(Kind.REFERENCE_WRONG, text)

    def _show(self, text: str) -> None:
        """Show progress on a terminal."""
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{text}\r")
            sys.stderr.flush()

    def _say_whose(self, reached: list[Reached], *, audited: bool) -> None:
        """Name the groups whose messages were left out, and if nothing was audited the groups that there are."""
        group_id = self._lineage.group_id
        for group, messages in sorted(self._announced.others.items()):
            text = f"{messages:,} messages are of group {group}, not of the history of {group_id}"
            self._findings.note(f"{text}: left out")
        waits = any(one.committed is not None for one in reached) and all(one.first >= one.end for one in reached)
        if not audited and not waits:  # for the first record of an empty source
            self._findings.doubt(nothing_of(group_id, self._announced.groups))

    def _say_window(self, reached: list[Reached], chosen: ChosenFlushes) -> None:
        """Say how many flushes the window has; none is nothing to tell only where no record waits for one."""
        count = len(chosen.batch_ids) - len(chosen.runs)
        text = f"{count:,} flush{'' if count == 1 else 'es'} ended in the window"
        if not count and any(one.end > max(one.first, one.committed or 0) for one in reached):
            self._findings.doubt(f"{text}, and records of the source are not committed yet")
        else:
            self._findings.note(text)

    def _judge_fatal(self) -> None:
        """Report records that ended a worker's process and yet hold entries."""
        for record in filter(None, self._fatal.values()):
            if decodes_alone(self._settings, record):
                where = f"{record.tp} offset {record.offset}"
                text = f"{where}: its dead letter is fatal, and it decodes here: look at it, and replay it"
                self._findings.note(text)
        if (count := len(self._fatal)) > FATAL_MAX:
            self._findings.note(f"{count:,} dead letters are fatal; {FATAL_MAX} of these records were decoded")


def _bundles(batches: Iterable[AnnouncedBatch]) -> Iterator[list[AnnouncedBatch]]:
    """Put batches together until they have enough entries to be worth a round trip."""
    bundle: list[AnnouncedBatch] = []
    entries = 0
    for batch in batches:
        size = sum(one.totals.entries for one in batch.records) if batch.records else READ_ENTRIES
        if bundle and entries + size > READ_ENTRIES:
            yield bundle
            bundle, entries = [], 0
        bundle.append(batch)
        entries += size
    if bundle:
        yield bundle


def _meeting(some: OffsetRanges, others: OffsetRanges) -> OffsetRanges:
    return {
        tp: (max(first, others[tp][0]), max(first, min(end, others[tp][1])))
        for tp, (first, end) in some.items()
        if tp in others
    }


def _cut(records: list[SourceRecord], first: int, end: int) -> list[SourceRecord]:
    begin, stop = (bisect_left(records, offset, key=attrgetter("offset")) for offset in (first, end))
    return records[begin:stop]
