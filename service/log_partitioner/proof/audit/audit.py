"""The audit from top to bottom: committed offsets, announcements, ranges, then flush by flush.

Owns the order of the steps, and which flushes are judged; `judge` judges them, here or in tasks of Spark.
"""

from __future__ import annotations

import sys
import time
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from log_partitioner.formats.dead_letter import reason_of
from log_partitioner.formats.flush_record import Lineage
from log_partitioner.formats.replay import is_replay_mark
from log_partitioner.proof.accounting import tp_of
from log_partitioner.proof.audit.announced import Announced, newest_runs
from log_partitioner.proof.audit.context import Ground
from log_partitioner.proof.audit.judge import THREADS, BatchJudge, bundles
from log_partitioner.proof.audit.put_away import decodes_alone, find_put_away
from log_partitioner.proof.audit.ranges import SHOWN, Ranges, Reached, is_covered, later_batches, notes_of, spans_of
from log_partitioner.proof.audit.report import Findings, Report
from log_partitioner.proof.audit.whose import FlushTopics, nothing_of
from log_partitioner.proof.audit.window import PADDING_MS, FlushWindow, TimedTopics, run_window, starts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from log_partitioner.config.settings import Settings
    from log_partitioner.config.source_topics import SourceNames
    from log_partitioner.formats.flush_record import BackfillRecord, FlushRecord
    from log_partitioner.formats.model import OffsetRanges, SourceRecord, TopicPartition
    from log_partitioner.formats.schema import FindSchema
    from log_partitioner.proof.audit.announced import AnnouncedBatch
    from log_partitioner.proof.audit.ranges import Committed
    from log_partitioner.proof.audit.store import Address, FetchedObject
    from log_partitioner.proof.audit.window import ChosenFlushes

EXAMPLES = 5
COUNTED = (
    *("source_records", "source_entries", "entries_in_files", "entries_in_dead_letters"),
    *("rows_read", "references", "objects", "object_bytes", "schemas", "flush_records"),
)
ALONE_MAX = 20  # records that dead letters stand for as a whole, each decoded in a process of its own


class Options(NamedTuple):
    """Options of the command line."""

    require_caught_up: bool = False
    examples: int = EXAMPLES
    threads: int = THREADS
    window: FlushWindow = FlushWindow()


class Topics(FlushTopics, TimedTopics, Protocol):
    """Kafka, as far as the audit needs it; see `KafkaTopics`."""

    def source_topic_partitions(self, sources: SourceNames) -> list[TopicPartition]:
        """List the TopicPartitions of the source topics that there are."""

    def ends(self, tp: TopicPartition) -> tuple[int, int]:
        """Return the first offset that there is, and the end of committed messages."""

    def committed(self, tps: list[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the group's committed offsets."""


class Index(NamedTuple):
    """All batches of an audit, and the ground on which they are judged.

    Gaps are batches without an id. `flushes` are the flush records of the window, `runs` the newest record of each
    backfill; `references` and `letters` are the ranges of their topics of which everything was taken into account.
    """

    ground: Ground
    batches: list[AnnouncedBatch]
    begins: Mapping[TopicPartition, int]
    flushes: list[FlushRecord]
    runs: Mapping[str, BackfillRecord]
    reached: list[Reached]
    chosen: ChosenFlushes
    references: OffsetRanges
    letters: OffsetRanges

    @property
    def whole(self) -> set[str]:
        """The names of those that are judged as a whole: with each batch that answers for an entry that they hold."""
        chosen = self.chosen.batch_ids
        owned = [span for batch in self.batches for span in batch.owned]
        return {
            batch.name
            for batch in self.batches
            if (not batch.batch_id or batch.batch_id in chosen)
            and all(is_covered(stray, owned) for stray in spans_of(batch.strays))
        }

    @property
    def straying(self) -> list[AnnouncedBatch]:
        """Those with entries of offsets for which others answer: they are judged first."""
        return [batch for batch in self.batches if batch.strays]

    @property
    def others(self) -> list[AnnouncedBatch]:
        """The other ones, of which none needs another."""
        return [batch for batch in self.batches if not batch.strays]


class Audit:
    """One run, of the group of the settings; without `lineage` it has adopted none. Many threads open objects."""

    def __init__(
        self,
        settings: Settings,
        options: Options,
        topics: Topics,
        open_object: Callable[[Address], FetchedObject | None],
        lineage: Lineage | None = None,
        findings: Findings | None = None,
        *,
        find_schema: FindSchema | None = None,
    ) -> None:
        self._settings = settings
        self._find_schema = find_schema
        self._lineage = lineage or Lineage(settings.kafka.group_id, [])
        self._options = options
        self._topics = topics
        self._open_object = open_object
        self._findings = Findings(examples_max=options.examples) if findings is None else findings
        self._announced = Announced(self._lineage, self._findings, dead_letters_topic=settings.kafka.dead_letters_topic)
        self._lows: dict[TopicPartition, int] = {}  # of those that flush records cover and the source has lost

    def run(self) -> Report:
        """Do all steps; blocks until everything is read."""
        started_at = time.monotonic()
        index = self.index()
        with BatchJudge(
            index.ground, self._topics, self._open_object, self._findings, threads=self._options.threads
        ) as judge:
            strays, straying = judge.judge_straying(index.straying, index.begins)
            judged = len(straying)
            del straying
            for bundle in bundles(index.others):
                judged += sum(1 for _ in judge.judge(bundle, strays))
                self._show(f"{judged:,} of {len(index.batches):,} flushes")
            self.conclude(index, judge, records=judge.context.counts["source_records"])
        counted = judge.context.counts
        counted.update(schemas=judge.schemas, flush_records=len(index.flushes))
        counts = {name: counted[name] for name in COUNTED} | ({"backfills": len(index.runs)} if index.runs else {})
        group_id, seconds = self._settings.kafka.group_id, time.monotonic() - started_at
        return Report(group_id, counts, dict(judge.context.dead_letters), self._findings, seconds)

    def index(self) -> Index:
        """Find what there is to judge: what is committed, announced and audited; blocks until announcements are read.

        Outline: the committed offsets are read first, then the ends of the output, then the committed offsets again: a
        batch wholly between the two readings was committed meanwhile and is left out. The progress of backfills is read
        before and after, too; messages that one publishes meanwhile cannot be judged.
        """
        kafka, findings, announced = self._settings.kafka, self._findings, self._announced
        committed = self._committed()
        runs = self._read_runs(findings)
        # Flush records last: of a batch that is committed meanwhile they say that it was, whatever else is seen of it.
        window = self._options.window
        topics = kafka.references_topic, kafka.dead_letters_topic, kafka.flushes_topic
        references, letters, all_flushes = (self._settled(self._topics.topic_partitions(topic)) for topic in topics)
        all_messages = {**references, **letters}
        messages = window.padded().narrow(self._topics, all_messages)
        flushes = window.padded(2).narrow(self._topics, all_flushes)
        begins = {tp: low for tp, (low, _) in {**all_messages, **all_flushes}.items() if low > 0}
        asked = {
            tp: first for tp, (first, end) in {**messages, **flushes}.items() if first < end or window.is_everything
        }
        lost = {tp.topic: None for tp, first in asked.items() if begins.get(tp) == first}
        for topic in lost:
            findings.doubt(f"topic {topic} no longer has its beginning")
        records = announced.read_flushes(self._topics.read(flushes))
        later = later_batches(records, committed, self._committed())
        if later:
            findings.note(f"{len(later)} batches were committed while the audit was reading; left out")
        if self._read_runs(Findings(examples_max=0)) != runs:
            findings.doubt("a backfill was publishing while the audit was reading: audit again")
        records = [record for record in records if record.batch_id not in later]
        chosen = window.choose(records, runs)
        records += self._before(window, all_flushes, records, chosen)
        committed |= (gone := self._gone(records, committed))
        ranges = Ranges(records, window.committed(records, committed))
        reached = self._reached(committed, gone, begins=ranges.first if window.is_everything else chosen.first)
        source = {one.tp: (one.first, max(one.first, min(one.committed or 0, one.end))) for one in reached}
        if window.is_everything:
            starts = self._starts(ranges, source) if kafka.start_at == "beginning" and not lost else {}
        else:
            source = _meeting(source, ranges.reaching_back(chosen.source))
            starts = starts_of(records)
        gaps = announced.index(records, runs, ranges.owned(starts))
        for message in chain(self._topics.read(messages), self._marks_behind(messages, letters)):
            announced.add(message, is_wanted=lambda batch_id: batch_id not in later, source=source)
        for run in [] if window.is_everything else chosen.runs:
            for message in self._topics.read(run_window(run).narrow(self._topics, all_messages)):
                announced.add(message, is_wanted=run.batch_id.__eq__, source=source)
        ranges.check(starts, findings)
        put_away = find_put_away(announced.claims)
        for (tp, first), end in sorted(put_away.ends.items()):
            findings.note(f"{tp}: a person has skipped the offsets {first} to {end - 1}: they are in no file")
        batches = [*sorted(announced.batches.values(), key=attrgetter("ended_at_ms")), *gaps]
        if not window.is_everything:  # others have messages and no record, or entries of its offsets
            batches = [one for one in batches if one.batch_id in chosen.batch_ids or one.strays or one.record is None]
        ground = Ground(
            self._settings, self._lineage, source, put_away, committed, self._lows, are_whole=not lost,
            find_schema=self._find_schema, firsts={one.tp: one.first for one in reached},
            replayed=frozenset(announced.replayed),
        )  # fmt: skip
        ended = [record for record in records if window.holds(record.ended_at_ms)]
        return Index(ground, batches, ranges.begins, ended, runs, reached, chosen, dict(references), dict(letters))

    def conclude(self, index: Index, judge: BatchJudge, *, records: int) -> None:
        """Say whose the output is, or how many flushes the window has; and which dead ones decode after all.

        So many `records` of the source were judged.
        """
        if self._options.window.is_everything:
            self._say_whose(index.reached, audited=bool(index.flushes or records))
        else:
            self._say_window(index.reached, index.chosen)
        self._judge_alone(index.ground, judge)

    def _before(
        self,
        window: FlushWindow,
        flushes: Mapping[TopicPartition, tuple[int, int]],
        known: list[FlushRecord],
        chosen: ChosenFlushes,
    ) -> list[FlushRecord]:
        """Read flush records back until each TopicPartition of the window has an earlier one, or the topic begins.

        Without it no flush record would answer for a gap in front of the window's first line.
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

    def _marks_behind(
        self, messages: OffsetRanges, letters: Mapping[TopicPartition, tuple[int, int]]
    ) -> Iterator[SourceRecord]:
        """Yield the replay marks behind the dead letters of a window, if it has any."""
        if any(messages[tp][0] < messages[tp][1] for tp in letters):
            behind = {tp: (messages[tp][1], end) for tp, (_, end) in letters.items()}
            yield from (message for message in self._topics.read(behind) if is_replay_mark(message.headers))

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

    def _committed(self) -> Committed:
        """Ask for the committed offsets of the source topics that there are now: some come or go meanwhile."""
        return self._topics.committed(self._topics.source_topic_partitions(self._settings.kafka.sources))

    def _gone(self, records: list[FlushRecord], committed: Committed) -> dict[TopicPartition, int]:
        """Find TopicPartitions of topics that match a pattern and are not there any more, with the ends of flushes."""
        there, sources = {tp.topic for tp in committed}, self._settings.kafka.sources
        lines = [line for record in records for line in record.topic_partitions]
        gone: dict[TopicPartition, int] = {}
        for line in (line for line in lines if line.topic not in there and line.topic in sources):
            gone[tp_of(line)] = max(line.next_offset, gone.get(tp_of(line), 0))
        return gone

    def _reached(
        self,
        committed: Committed,
        gone: Mapping[TopicPartition, int],
        *,
        begins: Callable[[TopicPartition], int | None],
    ) -> list[Reached]:
        """Ask for the ends of the source; report offsets that are gone, and those that are not committed yet."""
        reached = [
            Reached(tp, *((gone[tp], gone[tp]) if tp in gone else self._topics.ends(tp)), offset)
            for tp, offset in committed.items()
        ]
        self._say_which({tp.topic for tp in committed.keys() - gone.keys()})
        for tp, low, *_ in reached:
            begin = begins(tp)
            if begin is not None and begin < low:
                self._lows[tp] = low
                source = "its topic is not there any more" if tp in gone else f"the source only at {low}"
                self._findings.doubt(f"{tp}: flush records begin at {begin}, {source}")
        if self._options.require_caught_up:
            beyond = {one.tp: (max(one.first, one.committed or 0), one.end) for one in reached}
            if count := sum(1 for _ in self._topics.read(beyond)):
                self._findings.doubt(f"{count:,} records of the source are not committed yet")
        for note in [] if self._options.require_caught_up else notes_of(reached):
            self._findings.note(note)
        return reached

    def _starts(self, ranges: Ranges, source: OffsetRanges) -> dict[TopicPartition, int]:
        """Find the first record of each TopicPartition, unless flush records begin before it."""
        starts: dict[TopicPartition, int] = {}
        for tp, (low, end) in source.items():
            begin = ranges.first(tp)
            for record in self._topics.read({tp: (low, end if begin is None else min(begin, end))}):
                starts.setdefault(tp, record.offset)
        return starts

    def _show(self, text: str) -> None:
        """Show progress on a terminal."""
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{text}\r")
            sys.stderr.flush()

    def _say_which(self, topics: set[str]) -> None:
        """Name the source topics, if patterns have chosen them."""
        sources, names = self._settings.kafka.sources, sorted(topics)
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        if sources.has_patterns:
            self._findings.note(f"source topics ({sources}): {', '.join(names[:SHOWN])}{more}")

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
        """Say how many flushes the window has; none is nothing to tell only if no record waits for one."""
        count = len(chosen.batch_ids) - len(chosen.runs)
        text = f"{count:,} flush{'' if count == 1 else 'es'} ended in the window"
        if not count and any(one.end > max(one.first, one.committed or 0) for one in reached):
            self._findings.doubt(f"{text}, and records of the source are not committed yet")
        else:
            self._findings.note(text)

    def _judge_alone(self, ground: Ground, judge: BatchJudge) -> None:
        """Report records that ended a worker's process, or had an unknown schema, and yet hold entries."""
        alone = ground.put_away.alone
        places = [(tp, at) for tp, at in sorted(alone) if at in range(*ground.source.get(tp, (0, 0)))]
        for tp, offset in places[:ALONE_MAX]:
            record = judge.context.read_again(tp, offset)
            if record is not None and decodes_alone(self._settings, record, ground.find_schema):
                reason = reason_of(record._replace(unreadable=alone[tp, offset]))
                text = (
                    f"{tp} offset {offset}: its dead letter is {reason}, and it decodes here: look at it, and replay it"
                )
                self._findings.note(text)
        if len(places) > ALONE_MAX:
            self._findings.note(
                f"{len(places):,} dead letters are fatal or of unknown schemas; {ALONE_MAX} of these were decoded"
            )


def _meeting(some: OffsetRanges, others: OffsetRanges) -> OffsetRanges:
    return {
        tp: (max(first, others[tp][0]), max(first, min(end, others[tp][1])))
        for tp, (first, end) in some.items()
        if tp in others
    }
