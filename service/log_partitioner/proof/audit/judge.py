"""Judges announced batches: reads what they need, several small ones at once, and compares it.

Owns the bound on memory: one flush, or as many small ones as are read at once, and all batches with strays.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Protocol, Self

from log_partitioner.formats.findings import Kind
from log_partitioner.proof.audit.announced import Announced, AnnouncedBatch, Told
from log_partitioner.proof.audit.context import Context, Ground
from log_partitioner.proof.audit.flush import ComparedBatch, Strays, account, compare, judge_flush
from log_partitioner.proof.audit.ranges import hull, spans_of
from log_partitioner.proof.audit.report import Findings
from log_partitioner.proof.audit.schemas import check_schema
from log_partitioner.proof.audit.store import Address, FetchedObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from log_partitioner.formats.model import SourceRecord, TopicPartition
    from log_partitioner.formats.reference import Reference

THREADS = 16
READ_ENTRIES = 10_000
"""Batches are read together until they have so many entries: a read takes a round trip, however little it reads."""


class RangeReader(Protocol):
    """Kafka, as far as judging needs it; see `KafkaTopics`."""

    def read(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> Iterator[SourceRecord]:
        """Yield the messages of [first, next) ranges, each TopicPartition in offset order."""


class BatchJudge:
    """Judges batches of one ground; for one thread. A context manager, whose threads open objects."""

    def __init__(
        self,
        ground: Ground,
        topics: RangeReader,
        open_object: Callable[[Address], FetchedObject | None],
        findings: Findings,
        *,
        threads: int = THREADS,
    ) -> None:
        self._ground = ground
        self._topics = topics
        self._open_object = open_object
        self._findings = findings
        self._announced = Announced(
            ground.lineage,
            findings,
            dead_letters_topic=ground.settings.kafka.dead_letters_topic,
            replayed=ground.replayed,
        )
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="audit")
        self._schemas: dict[tuple[Address, str], list[Kind]] = {}  # with what is wrong with each
        self.context = Context(
            ground,
            findings,
            open_objects=lambda addresses: self._pool.map(open_object, addresses),
            read_source=topics.read,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    @property
    def schemas(self) -> int:
        """The number of schemas that were checked."""
        return len(self._schemas)

    def judge(self, bundle: Sequence[AnnouncedBatch], strays: Strays) -> Iterator[ComparedBatch]:
        """Judge batches that are read at once; yields each when all is said of it."""
        for batch, told, records in self._read(bundle):
            yield judge_flush(self.context, batch, told, records, strays)

    def judge_straying(
        self, batches: Iterable[AnnouncedBatch], begins: Mapping[TopicPartition, int]
    ) -> tuple[Strays, list[ComparedBatch]]:
        """Judge batches with strays, which the accounts of all others count; return the strays.

        From the offsets `begins` on somebody answers for strays.
        """
        compared = [compare(self.context, *found) for batch in batches for found in self._read([batch])]
        strays: Strays = defaultdict(list)
        for tp, stray in (found for one in compared for found in one.strays()):
            strays[tp].append(stray)
        for tp, some in strays.items():
            some.sort(key=itemgetter(0, 1))
            places = Counter(
                one[:2]
                for one in some
                if not one.is_letter and one.given_up is None and one.offset < begins.get(tp, one.offset + 1)
            )
            for (offset, index), times in places.items():  # otherwise in the account of who answers for them
                text = f"{tp} offset {offset} index {index}: {times} times in files"
                holders = [one.batch.name for one in compared if one.holds(tp, offset, index)] if times > 1 else []
                for self._findings.batch in holders:
                    count = times - 1 if self._findings.batch == holders[-1] else 0  # counted once, and of each
                    self._findings.add(Kind.DUPLICATED, text, (tp, offset, index), count=count)
        for one in compared:
            account(self.context, one, strays)
        return dict(strays), compared

    def _read(self, bundle: Sequence[AnnouncedBatch]) -> Iterator[tuple[AnnouncedBatch, Told, Iterable[SourceRecord]]]:
        """Read everything needed to judge some batches at once; the source of a single one is read as it is judged."""
        told = {batch.batch_id: Told() for batch in bundle}
        for message in self._topics.read(hull(place for batch in bundle for place in spans_of(batch.places))):
            self._announced.take(message, told)
        self._check_schemas(reference for one in told.values() for reference in one.references)
        asked = [hull(batch.spans, within=self._ground.source) for batch in bundle]
        put_away = self._ground.put_away
        records = put_away.read(self._topics.read, hull(span for some in asked for span in spans_of(some)))
        if len(bundle) == 1:
            yield bundle[0], told.pop(bundle[0].batch_id), records
            return
        read: dict[TopicPartition, list[SourceRecord]] = defaultdict(list)
        for record in records:
            read[record.tp].append(record)
        for batch, ranges in zip(bundle, asked, strict=True):
            # Offsets that nobody covers come in batches without an id.
            its = told.get(batch.batch_id, Told())
            yield batch, its, (one for tp, span in ranges.items() for one in _cut(read[tp], *span))

    def _check_schemas(self, references: Iterable[Reference]) -> None:
        """Check the object of every schema, once, and its texts in messages."""
        for reference in {(one.location.bucket, one.schema): one for one in references}.values():
            schema, address = reference.schema, Address(reference.location.bucket, reference.schema.object)
            self._findings.batch = reference.batch_id
            for kind in self._schemas.get((address, schema.fingerprint), ()):
                self._findings.add(kind, "", schema.object, count=0)  # counted once, and of each batch
            if (address, schema.fingerprint) not in self._schemas:
                before = Counter(self._findings.counts)
                check_schema(schema, self._open_object(address), self._findings)
                self._schemas[address, schema.fingerprint] = list(self._findings.counts - before)
            if schema.text is not None and sha256(schema.text.encode()).hexdigest() != schema.fingerprint:
                text = f"schema {schema.fingerprint}: a text in a reference is another"
                self._findings.add(Kind.REFERENCE_WRONG, text)


def bundles(batches: Iterable[AnnouncedBatch]) -> Iterator[list[AnnouncedBatch]]:
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


def _cut(records: list[SourceRecord], first: int, end: int) -> list[SourceRecord]:
    begin, stop = (bisect_left(records, offset, key=attrgetter("offset")) for offset in (first, end))
    return records[begin:stop]
