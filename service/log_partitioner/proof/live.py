"""Verification mode's judge: the audit's judgement of one flush, right after its commit.

    the messages as they were sent -> references, dead letters, flush record
    the offsets as they were sent  -> the entries for which the flush answers
    the source, read again         -> where each entry must stand
    the objects, read again        -> the rows that stand there

Memory holds one flush: one of its objects at a time, and a row of numbers for each entry. A finding is reported by its
kind and its place, never with a user or a value (I11).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from log_partitioner.boundary import FlushFindings
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import CouldNotTellError, ReadBackError, RegistryError, StoreRefusedError
from log_partitioner.formats.flush_record import Lineage
from log_partitioner.formats.model import OffsetRanges, SourceRecord, TopicPartition
from log_partitioner.privacy import veiled
from log_partitioner.proof.accounting import tp_of
from log_partitioner.proof.audit.announced import Announced, Told
from log_partitioner.proof.audit.context import Context, Ground
from log_partitioner.proof.audit.flush import judge_flush
from log_partitioner.proof.audit.judge import RangeReader
from log_partitioner.proof.audit.put_away import find_put_away
from log_partitioner.proof.audit.ranges import Ranges, hull
from log_partitioner.proof.audit.report import Findings
from log_partitioner.proof.audit.store import Address, FetchedObject

if TYPE_CHECKING:
    from collections.abc import Iterable

    from log_partitioner.boundary import SentFlush
    from log_partitioner.config.settings import Settings
    from log_partitioner.formats.schema import FindSchema
    from log_partitioner.proof.audit.report import Place

ANSWER_S = 10.0
PLACES_MAX = 20


@runtime_checkable
class StoredObjects(Protocol):
    """The store, read by key; see `S3Store`."""

    def read(self, bucket: str, key: str, version_id: str | None, *, deadline: Deadline) -> bytes | None:
        """Return the bytes of an object; None if there is none.

        Raises:
            ReadBackError: it cannot be read now, or not before the deadline.
            StoreRefusedError: no permission.
        """


OpenSource = Callable[[Callable[[], Deadline]], AbstractContextManager[RangeReader]]
"""Makes a client of the source that waits for each answer until a deadline, for which it asks."""


class LiveJudge:
    """Fulfils `boundary.FlushJudge`; for one thread. A client of the source lives for one flush."""

    def __init__(
        self,
        settings: Settings,
        objects: StoredObjects,
        open_source: OpenSource,
        find_schema: FindSchema | None = None,
    ) -> None:
        self._settings = settings
        self._objects = objects
        self._open_source = open_source
        self._find_schema = find_schema

    def judge(self, flush: SentFlush, until: Callable[[], Deadline]) -> FlushFindings:
        """Judge the output of a committed flush; blocks. Findings from before the deadline count even if it passes.

        Raises:
            StoreRefusedError: no permission.
        """
        findings = Findings(examples_max=PLACES_MAX)
        objects, problem = 0, None
        try:
            with self._open_source(lambda: until().at_most(ANSWER_S)) as source:
                objects = self._judge(flush, source, findings, until)
        except (ReadBackError, CouldNotTellError, RegistryError) as error:
            problem = str(error)
        except StoreRefusedError:
            raise
        except Exception as error:  # noqa: BLE001 - the flush is committed: whatever it is, it ends no worker
            problem = type(error).__name__
        differences = Counter({kind.value: count for kind, count in findings.counts.items()})
        places = [f"{kind} {self._told(place)}" for kind, place in findings.places[:PLACES_MAX]]
        return FlushFindings(differences, places, objects, problem)

    def _judge(self, flush: SentFlush, source: RangeReader, findings: Findings, until: Callable[[], Deadline]) -> int:
        """Judge a flush, and return the number of its objects."""
        kafka = self._settings.kafka
        lineage = Lineage(kafka.group_id, [])
        announced = Announced(lineage, findings, dead_letters_topic=kafka.dead_letters_topic)
        told, flush_messages = {flush.batch_id: Told()}, []
        for number, one in enumerate(flush.messages()):
            message = SourceRecord(TopicPartition(one.topic, 0), number, None, one.key, one.value, tuple(one.headers))
            if one.topic == kafka.flushes_topic:
                flush_messages.append(message)
                continue
            announced.add(message, is_wanted=lambda _: True, source={})
            announced.take(message, told)
        flushes = announced.read_flushes(flush_messages)
        # Before the flush each of its TopicPartitions was committed up to the first offset of its line.
        before = {tp_of(line): line.first_offset for record in flushes for line in record.topic_partitions}
        ranges = Ranges(flushes, {**before, **flush.next_offsets})
        ranges.check({}, findings)
        gaps = announced.index(flushes, {}, ranges.owned({}))
        put_away = find_put_away(announced.claims)

        def require_time() -> None:
            if until().has_passed():
                raise ReadBackError("no time is left")

        def open_objects(addresses: Iterable[Address]) -> Iterator[FetchedObject | None]:
            for address in addresses:
                require_time()
                data = self._objects.read(*address, deadline=until().at_most(ANSWER_S))
                yield None if data is None else FetchedObject(data, None)

        def read(ranges: OffsetRanges) -> Iterator[SourceRecord]:
            for record in source.read(ranges):
                require_time()
                yield record

        context = Context(
            Ground(self._settings, lineage, {}, put_away, {}, {}, find_schema=self._find_schema),
            findings,
            open_objects,
            read_source=read,
            require_time=require_time,
        )
        for batch in [*announced.batches.values(), *gaps]:
            records = put_away.read(read, hull(batch.spans))
            judge_flush(context, batch, told.get(batch.batch_id, Told()), records, {})
        return context.counts["objects"]

    def _told(self, place: Place) -> str:
        """Name a place: users in keys are veiled, and a row that is not ours may name any topic (I11)."""
        if isinstance(place, str):
            return veiled(place)
        tp, *numbers = place
        is_source = tp.topic in self._settings.kafka.sources
        return "/".join(map(str, [tp if is_source else "?", *numbers]))
