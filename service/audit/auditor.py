"""The audit from top to bottom: what was committed, what the source holds, what the objects hold, the sums.

Owns the order of the steps; every rule stands in the module that the step calls.
"""

from __future__ import annotations

import sys
import time
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

from service.accounting import Kind
from service.audit.announced import Announced, Committed
from service.audit.backfills import check_backfills, newest_records
from service.audit.dead_letters import DeadLetterAudit
from service.audit.fetch import Address, Fetcher, Store, address_of
from service.audit.findings import Findings
from service.audit.flushes import (
    check_contiguity,
    check_flushes,
    check_references,
    check_topic_ids,
    later_batches,
    made_good_batches,
    ranges_of,
)
from service.audit.objects import ObjectAudit, SourceSpan
from service.audit.put_away import decodes_alone, find_put_away
from service.audit.reconcile import account, check_order, first_records
from service.audit.report import Report
from service.audit.schemas import check_schema_object
from service.audit.source_table import SourceTable
from service.audit.uncommitted import Reached, notes_of, waits_for_records
from service.audit.whose import nothing_of
from service.formats.adoption import Lineage
from service.oracle.equal import differences
from service.oracle.judge import Judge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from service.audit.rows import AlteredRow
    from service.config.settings import Settings
    from service.formats.flush_record import BackfillRecord
    from service.formats.model import OffsetRanges, SourceRecord, TopicPartition
    from service.formats.reference import Reference, SchemaLocation

EXAMPLES = 5
THREADS = 16
DIFFERENCES_MAX = 5
FATAL_MAX = 20  # records that ended a worker's process, each decoded in a process of its own
PROGRESS_EVERY_S = 0.5
SCHEMA_BYTES = 64 * 1024  # of an ordinary schema's object: it bounds how many are read ahead


class Options(NamedTuple):
    """What the command line says."""

    require_caught_up: bool = False
    examples: int = EXAMPLES
    threads: int = THREADS


class Topics(Protocol):
    """Kafka, as far as the audit needs it; see `KafkaTopics`."""

    def topic_partitions(self, topic: str, *, may_be_absent: bool = False) -> list[TopicPartition]:
        """List the TopicPartitions of a topic; none where it is absent and may be."""

    def ends(self, tp: TopicPartition) -> tuple[int, int]:
        """Return the first offset there is and the end of what is committed."""

    def settled(self, tps: Iterable[TopicPartition]) -> tuple[Mapping[TopicPartition, tuple[int, int]], list[str]]:
        """Wait until no transaction is open; return the same of these, and why some are still open."""

    def committed(self, tps: list[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the group's committed offsets."""

    def read(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> Iterator[SourceRecord]:
        """Yield the messages of [first, next) ranges, each TopicPartition in offset order."""


class Audit:
    """One run over `topics` and `store`, of the group of the settings; without `lineage` it has adopted none."""

    def __init__(
        self, settings: Settings, options: Options, topics: Topics, store: Store, lineage: Lineage | None = None
    ) -> None:
        self._settings = settings
        self._lineage = lineage or Lineage(settings.kafka.group_id, [])
        self._options = options
        self._topics = topics
        self._fetch = Fetcher(store, threads=options.threads)
        self._judge = Judge(settings)
        self._findings = Findings(examples_max=options.examples)
        self._announced = Announced(self._findings, self._lineage)
        self._table = SourceTable()
        self._fatal: list[SourceRecord] = []
        self._show = _progress()

    def run(self) -> Report:
        """Do all steps.

        Outline: the committed offsets are read first, then what was announced, then the committed offsets
        again: a batch that lies wholly between the two readings was committed meanwhile and is left out.
        How far backfills have come is read before and after, too: what one publishes meanwhile cannot be told.
        """
        started_at = time.monotonic()
        kafka, findings = self._settings.kafka, self._findings
        tps = [tp for topic in kafka.source_topics for tp in self._topics.topic_partitions(topic)]
        committed = self._topics.committed(tps)
        self._announced.backfills = self._read_backfills(findings)
        are_whole = self._read_announced()
        if self._read_backfills(Findings(examples_max=0)) != self._announced.backfills:
            findings.doubt("a backfill was publishing while the audit was reading: audit again")
        self._leave_out_later(committed, self._topics.committed(tps))
        ends = self._read_source(committed)
        objects, sizes = self._check_objects(are_whole=are_whole)
        dead_letters = self._check_dead_letters()
        ranges = ranges_of(self._announced.flushes)
        is_from_start = kafka.start_at == "beginning" and are_whole
        starts = first_records(self._table, committed) if is_from_start else {}
        check_flushes(self._announced, self._table, findings)
        check_topic_ids(self._announced.flushes, findings)
        check_references(self._announced, findings)
        check_backfills(self._announced, committed, findings)
        check_contiguity(self._announced.flushes, committed, starts, findings)
        accounts = account(self._table, ranges=ranges, committed=committed, starts=starts, findings=findings)
        self._say_whose(ends, audited=bool(accounts.records or self._announced.flushes))
        self._judge_fatal()
        self._explain(objects.altered)
        self._show(None)
        counts = {
            "source_records": accounts.records,
            "source_entries": accounts.entries,
            "entries_in_files": accounts.in_files,
            "entries_in_dead_letters": accounts.in_dead_letters,
            "discarded_replays": accounts.discarded_replays,
            "rows_read": objects.rows,
            "users_dates_hours": len(self._table.keys.values),
            "flush_records": len(self._announced.flushes),
            "references": len(self._announced.references),
            **({"backfills": len(self._announced.backfills)} if self._announced.backfills else {}),
            **sizes,
        }
        by_reason = dict(dead_letters.entries_by_reason)
        return Report(counts, self._places(), by_reason, findings, time.monotonic() - started_at)

    def _read_backfills(self, findings: Findings) -> dict[str, BackfillRecord]:
        """Read the newest record of each backfill; without the topic there was none."""
        topic = self._settings.kafka.backfills_topic
        ranges = self._settled(self._topics.topic_partitions(topic, may_be_absent=True))
        return newest_records(self._topics.read(ranges), findings, self._lineage)

    def _settled(self, tps: list[TopicPartition]) -> Mapping[TopicPartition, tuple[int, int]]:
        ranges, doubts = self._topics.settled(tps)
        for doubt in doubts:
            self._findings.doubt(doubt)
        return ranges

    def _read_announced(self) -> bool:
        """Read the three output topics; tell whether they still have their beginning.

        Flush records last: of a batch that is committed meanwhile they say that it was, whatever else is seen of it.
        """
        kafka = self._settings.kafka
        are_whole = True
        for topic, take in (
            (kafka.references_topic, self._announced.add_references),
            (kafka.dead_letters_topic, self._announced.add_dead_letter),
            (kafka.flushes_topic, self._announced.add_flush),
        ):
            ranges = self._settled(self._topics.topic_partitions(topic))
            if any(low > 0 for low, _ in ranges.values()):
                are_whole = False
                self._findings.doubt(f"topic {topic} no longer has its beginning")
            for count, message in enumerate(self._topics.read(ranges), 1):
                take(message)
                self._show(f"{topic}: {count:,}")
        self._announced.join_flushes()
        return are_whole

    def _leave_out_later(self, committed: Committed, committed_later: Committed) -> None:
        later = later_batches(self._announced.flushes, committed, committed_later)
        if later:
            self._announced.drop_batches(later)
            self._findings.note(f"{len(later)} batches were committed while the audit was reading; left out")

    def _read_source(self, committed: Committed) -> list[Reached]:
        ranges: OffsetRanges = {}
        ends: list[Reached] = []
        covered = ranges_of(self._announced.flushes)
        for tp, reached in committed.items():
            low, end = self._topics.ends(tp)
            if tp in covered and covered[tp][0].first_offset < low:
                self._table.of(tp).low_offset = low
                begin = covered[tp][0].first_offset
                self._findings.doubt(f"{tp}: flush records begin at {begin}, the source only at {low}")
            ranges[tp] = (low, end if self._options.require_caught_up else min(reached or 0, end))
            ends.append(Reached(tp, low, end, reached))
        for note in [] if self._options.require_caught_up else notes_of(ends):
            self._findings.note(note)
        beyond = 0
        for count, record in enumerate(self._records(ranges), 1):
            if record.offset >= (committed[record.tp] or 0):
                beyond += 1
            else:
                self._table.add(record, self._judge.judge(record))
            self._show(f"source: {count:,} records")
        if beyond:
            self._findings.doubt(f"{beyond:,} records of the source are not committed yet")
        return ends

    def _say_whose(self, ends: list[Reached], *, audited: bool) -> None:
        """Say which groups' messages were left out, and where nothing was audited which groups there are."""
        others, group_id = self._announced.others, self._lineage.group_id
        for group, messages in sorted(others.items()):
            text = f"{messages:,} messages are of group {group}, not of the history of {group_id}"
            self._findings.note(f"{text}: left out")
        if not audited and not waits_for_records(ends):
            self._findings.doubt(nothing_of(group_id, self._announced.groups))

    def _judge_fatal(self) -> None:
        """Say which records that ended a worker's process hold entries after all."""
        good = [record for record in self._fatal[:FATAL_MAX] if decodes_alone(self._settings, record)]
        for record in good:
            where = f"{record.tp} offset {record.offset}"
            self._findings.note(f"{where}: its dead letter is fatal, and it decodes here: look at it, and replay it")
        if len(self._fatal) > FATAL_MAX:
            self._findings.note(
                f"{len(self._fatal):,} dead letters are fatal; {FATAL_MAX} of these records were decoded"
            )

    def _records(self, ranges: OffsetRanges) -> Iterator[SourceRecord]:
        """Yield what the source holds; of offsets that a person has skipped, one record that stands for them."""
        put_away = find_put_away(self._announced.claims())
        for (tp, first), end in sorted(put_away.ends.items()):
            self._findings.note(f"{tp}: a person has skipped the offsets {first} to {end - 1}: they are in no file")
        for stand_in, readable in put_away.around(ranges):
            if stand_in is not None:
                yield stand_in
            for record in self._topics.read(readable):
                if (record.tp, record.offset) in put_away.fatal:
                    self._fatal.append(record)
                yield put_away.seen(record)

    def _check_objects(self, *, are_whole: bool) -> tuple[ObjectAudit, dict[str, int]]:
        announced, findings = self._announced, self._findings
        schemas = self._check_schemas()
        audit = ObjectAudit(self._table, announced, findings, settings=self._settings, parse=self._judge.parse)
        groups: dict[Address, list[Reference]] = {}
        for reference in announced.references:
            groups.setdefault(address_of(reference), []).append(reference)
        versions = len(groups) - len({(one.bucket, one.key) for one in groups})
        if versions:
            findings.add(Kind.REFERENCE_WRONG, f"{versions} objects are referenced in several versions", count=versions)
        positions: dict[int, list[SourceSpan]] = {}
        size = 0
        sizes = {address: some[0].location.size for address, some in groups.items()}
        for count, (address, stored) in enumerate(self._fetch.all(sizes), 1):
            self._show(f"objects: {count:,} of {len(groups):,}")
            size += len(stored.data) if stored else 0
            positions.update((id(one), spans) for one, spans in audit.check(groups[address], stored))
        check_order([(one, positions[id(one)]) for one in announced.references if id(one) in positions], findings)
        audit.finish(
            cut_off=announced.cut_off(are_whole=are_whole),
            incomplete=announced.incomplete(),
            made_good=made_good_batches(announced, self._table),
        )
        return audit, {"objects": len(groups), "object_bytes": size, "schemas": schemas}

    def _check_schemas(self) -> int:
        """Check the object of every schema; give how many there are."""
        wanted: dict[Address, set[SchemaLocation]] = {}
        for one in self._announced.references:
            wanted.setdefault(Address(one.location.bucket, one.schema.object, None), set()).add(one.schema)
        for address, stored in self._fetch.all(dict.fromkeys(wanted, SCHEMA_BYTES)):
            for schema in wanted[address]:
                if stored is None:
                    self._findings.add(Kind.OBJECT_MISSING, f"{address.key}: there is no such object")
                else:
                    texts = self._announced.inline_texts.get(schema, set())
                    check_schema_object(schema.fingerprint, stored.data, texts, self._findings)
        return len(wanted)

    def _check_dead_letters(self) -> DeadLetterAudit:
        def read_stored(key: str) -> bytes | None:
            stored = self._fetch.one(Address(self._settings.s3.bucket, key, None))
            return None if stored is None else stored.data

        backfills = frozenset(self._announced.backfills)
        audit = DeadLetterAudit(self._table, self._findings, read_stored=read_stored, backfills=backfills)
        for letter in self._announced.dead_letters:
            audit.check(letter)
        return audit

    def _explain(self, altered: list[AlteredRow]) -> None:
        """Read the source again for the examples of altered entries, to name the fields that differ."""
        for row in altered:
            text = "the source record is gone"
            for record in self._topics.read({row.tp: (row.offset, row.offset + 1)}):
                found = differences(self._judge.values(record)[row.entry_index], row.values)
                text = "; ".join(islice(found, DIFFERENCES_MAX))
            self._findings.examples.setdefault(Kind.ALTERED, []).append(f"{row.where}: {text}")

    def _places(self) -> dict[str, str]:
        kafka, s3 = self._settings.kafka, self._settings.s3
        return {
            "brokers": kafka.bootstrap_servers,
            "group": kafka.group_id,
            "source": ", ".join(kafka.source_topics),
            "references": kafka.references_topic,
            "flush records": kafka.flushes_topic,
            "dead letters": kafka.dead_letters_topic,
            "backfills": kafka.backfills_topic,
            "objects": f"s3://{s3.bucket}/{s3.prefix}" + (f" at {s3.endpoint_url}" if s3.endpoint_url else ""),
        }


def _progress() -> Callable[[str | None], None]:
    """Return what shows progress on a terminal, and nothing elsewhere; None clears the line."""
    if not sys.stderr.isatty():
        return lambda _text: None
    shown_at = 0.0

    def show(text: str | None) -> None:
        nonlocal shown_at
        now = time.monotonic()
        if text is None or now - shown_at > PROGRESS_EVERY_S:
            shown_at = now
            sys.stderr.write(f"\r\x1b[K{text or ''}")
            sys.stderr.flush()

    return show
