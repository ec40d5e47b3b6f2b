"""DATA PLANE 1: source record -> entries -> PartitionKey and type -> rows of the open batch -> offset covered.

Reads top to bottom in `Recorder.record`. Nothing here knows of flushes or rebalances: the controller opens batches,
closes them, and reports their outcome.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from log_partitioner.avro.entry_types import EntryTypes
from log_partitioner.avro.infer import TooDeepError, TooManyFieldsError
from log_partitioner.batch.batch import Batch, ClosedBatch, Opening
from log_partitioner.batch.fast_lane import FastLane, TakenRun, TakenSpan, has_lane, is_fast
from log_partitioner.batch.ledger import Ledger, Ledgers
from log_partitioner.batch.messages import dead_letters_of
from log_partitioner.batch.rows import Rows
from log_partitioner.batch.topic_rules import RulesByTopic
from log_partitioner.batch.types import make_types
from log_partitioner.boundary import Poll, Spool
from log_partitioner.config.settings import Settings
from log_partitioner.control.flush_policy import FlushLoad
from log_partitioner.formats import offset_metadata
from log_partitioner.formats.dead_letter import DeadLetter, Reason
from log_partitioner.formats.model import CommittedOffset, SourceRecord, TopicPartition
from log_partitioner.formats.schema import FindSchema
from log_partitioner.input.decode import BadEntry, RecordContent, refused
from log_partitioner.partitioning.chain import place_of, root_of
from log_partitioner.partitioning.partitioner import Partitioner, Rejection
from log_partitioner.runtime.first_look import FirstLook


class Recorder:
    """Owns the ledgers and the open batch; used by the loop thread only.

    Its memory is bounded, because a batch is flushed when its fixed bytes, which no spill frees, reach half of
    the `memory_bytes_max` of the spool.
    """

    def __init__(self, settings: Settings, spool: Spool, find_schema: FindSchema | None = None) -> None:
        self.outcomes: Counter[str] = Counter()
        self.rules = RulesByTopic(settings, find_schema)
        self.first_look = FirstLook(settings, self.rules)
        self._batch: Batch | None = None
        self._ledgers = Ledgers()
        self._memory_bytes_max = settings.spool.memory_bytes_max
        self._settings = settings
        self._spool = spool
        self._types = EntryTypes(settings.schema_bounds)
        self._lane = FastLane(settings) if has_lane(settings) else None

    # What is owned.

    def disown(self, tp: TopicPartition) -> None:
        """Stop owning a TopicPartition; its records are refused from now on."""
        self._ledgers.disown(tp)

    def start(self, tp: TopicPartition, start: CommittedOffset, *, is_new: bool = False) -> None:
        """Start at an offset that is committed, or that the policy gave; the open batch must not cover any of it."""
        discards = self.rules[tp.topic].settings.input.discard_replays
        ways = offset_metadata.decode(start.metadata).ways or {} if discards else None
        self._ledgers.start(tp, start, is_new=is_new, ways=ways)

    @property
    def ledgers(self) -> Mapping[TopicPartition, Ledger]:
        """The ledgers of TopicPartitions that are owned and have started at an offset, read-only."""
        return self._ledgers.by_tp

    # The open batch.

    @property
    def opening(self) -> Opening | None:
        """The opening of the open batch; None if no batch is open."""
        return None if self._batch is None else self._batch.opening

    @property
    def has_progress(self) -> bool:
        """Whether the open batch covers any offset."""
        return not self._ledgers.are_empty

    def has_lane(self, topic: str) -> bool:
        """Return whether there is a fast lane for records of a source topic."""
        return self._lane is not None and self._lane.reads(topic)

    def load(self) -> FlushLoad:
        """Return the contents of the open batch."""
        batch = self._batch
        if batch is None:
            return FlushLoad()
        rows = batch.rows
        return FlushLoad(
            source_bytes=batch.source_bytes,
            memory_bytes=rows.memory_bytes + rows.fixed_bytes + batch.dead_letter_bytes,
            fixed_bytes=rows.fixed_bytes + batch.dead_letter_bytes,
            spool_bytes=self._spool.bytes_on_disk,
            entries=batch.entries,
            row_bytes=rows.text_bytes,
            partition_keys=len(rows.keys),
            dead_letters=len(batch.dead_letters),
            dead_letter_bytes=batch.dead_letter_bytes,
        )

    def open(self, opening: Opening) -> None:
        """Open a batch, before its first record.

        Raises:
            SpoolError: the disk refused.
        """
        assert self._batch is None, "a batch is open already"
        settings = self._settings
        if self._lane is None:
            rows = Rows(make_types(settings.schema_bounds, is_fast=is_fast(settings)))
        else:
            rows = self._lane.begin()
        self._batch = Batch(opening, self._spool.open(opening.batch_id), rows)

    def close(self) -> ClosedBatch:
        """Close the open batch; `committed` or `discard` follows, and nothing is recorded in between.

        It names every TopicPartition that has started, even idle ones: a later owner compares their committed offsets.
        """
        assert self._batch is not None, "a flush needs an open batch"
        batch, self._batch = self._batch, None
        self.first_look.closed()
        return batch.close(self._ledgers.by_tp)

    def committed(self, batch: ClosedBatch, *, now_ms: int) -> None:
        """Go on behind a committed batch."""
        self._ledgers.committed(batch.ledgers, now_ms=now_ms)
        batch.spool.delete()

    def discard(self, batch: ClosedBatch | None) -> dict[TopicPartition, tuple[int, int]]:
        """Forget a batch, by default the open one; returns the offsets [first, next) that it had covered."""
        if self._batch is not None:
            self.first_look.closed()
        discarded, self._batch = batch or self._batch, None
        if discarded is not None:
            discarded.spool.delete()
        return self._ledgers.forget()

    # Many plain records.

    def take(self, poll: Poll, first: int, stop: int, *, weight_max: int, bytes_max: int) -> TakenRun:
        """Record plain records of [first, stop) at once by the fast lane, and cover them.

        `record` takes the other records, one by one. `spill_if_large` follows.
        """
        batch = self._batch
        assert batch is not None, "a batch is opened before its first record"
        assert self._lane is not None, "there is a fast lane"
        run = self._lane.take(
            poll,
            first,
            self.first_look.until(poll, first, stop),
            batch.rows,
            next_offsets={tp: ledger.next_offset for tp, ledger in self._ledgers.by_tp.items()},
            weight_max=weight_max,
            bytes_max=bytes_max,
        )
        if run.records:
            self._cover(run, poll, batch)
            self.first_look.took(poll, first, run)
        return run

    def _cover(self, run: TakenRun, poll: Poll, batch: Batch) -> None:
        for one in run.covered:
            ledger = self._ledgers.by_tp[one.tp]
            first_ms = _first_ms(poll, one) if ledger.min_offset is None else None
            ledger.cover_many(one, first_ms=first_ms, leader_epoch=poll[one.last].leader_epoch)
        batch.entries += run.entries
        batch.source_bytes += run.source_bytes
        self.outcomes["written"] += run.entries
        if run.fallbacks:
            self._count_timestamps(run.fallbacks, batch)

    def _count_timestamps(self, entries: int, batch: Batch) -> None:
        """Count entries that were written under their record's timestamp."""
        batch.record_timestamps += entries
        self.outcomes["record_timestamp"] += entries
        self.outcomes["written"] -= entries

    # One record.

    def accepts(self, record: SourceRecord) -> bool:
        """Return whether the record is the next one of its ledger: owned, and not covered yet."""
        ledger = self._ledgers.by_tp.get(record.tp)
        return ledger is not None and record.offset >= ledger.next_offset

    def record(self, record: SourceRecord) -> int:
        """Put every entry of a record into a row or a dead letter, or discard a replay, then cover its offset.

        Returns its weight: its entries, and its KiB. `spill_if_large` follows.

        Raises:
            RegistryError: it needs a schema that cannot be had now; nothing of it is recorded.
        """
        batch, ledger = self._batch, self._ledgers.by_tp[record.tp]
        assert batch is not None, "a batch is opened before its first record"
        place = place_of(record) if ledger.recorded is not None and record.headers else None
        if place is not None and ledger.has(place):
            ledger.cover_replay(record, place)
            batch.source_bytes += len(record.value or b"")
            return len(record.value or b"") // 1024
        _, decoder, partitioner = self.rules[record.tp.topic]
        decoded = decoder.decode(record.value, record.headers) if record.unreadable is None else refused(record)
        timestamps = batch.record_timestamps
        bad = decoded.bad + self._write_entries(record, decoded, partitioner, batch)
        entries = len(decoded.entries) + len(decoded.bad)
        if bad:
            self._reject(dead_letters_of(record, bad, of_entries=entries), batch, ledger)
        written = entries - len(bad)
        ledger.entries += entries
        ledger.cover(record.offset, timestamp_ms=record.timestamp_ms, leader_epoch=record.leader_epoch)
        if place is not None:
            ledger.move(place)
        batch.entries += entries
        size = max(decoded.size, len(record.value or b""))
        batch.source_bytes += size
        self.outcomes["written"] += written
        self.first_look.recorded(record, decoded, dead=len(bad), timestamps=batch.record_timestamps - timestamps)
        return entries + size // 1024

    def spill_if_large(self) -> None:
        """Bring texts to disk if the open batch takes too much memory.

        Raises:
            SpoolError: the disk refused; all rows are in memory, and the batch can be flushed.
        """
        batch = self._batch
        assert batch is not None, "a batch is opened before its first record"
        rows = batch.rows
        fixed_bytes = rows.fixed_bytes + batch.dead_letter_bytes
        if rows.memory_bytes + fixed_bytes > self._memory_bytes_max and rows.memory_bytes > fixed_bytes:
            rows.spill(batch.spool.append)

    def _write_entries(
        self, record: SourceRecord, decoded: RecordContent, partitioner: Partitioner, batch: Batch
    ) -> list[BadEntry]:
        """Write the entries of one record; returns those that could not be written."""
        bad: list[BadEntry] = []
        rows, types = batch.rows, self._types
        root = root_of(record)
        for index, entry, text, around in decoded.entries:
            placed = partitioner.partition(entry, around, record)
            if isinstance(placed, Rejection):
                bad.append(BadEntry(index, placed.reason, placed.message))
                continue
            try:
                entry_type = types.of(entry)
            except (TooDeepError, TooManyFieldsError) as error:
                reason = Reason.TOO_DEEP if isinstance(error, TooDeepError) else Reason.TOO_MANY_FIELDS
                bad.append(BadEntry(index, reason, str(error)))
                continue
            number = rows.add(record, index, placed.key, entry_type, text, placed.event_time_us)
            if placed.unique_id is not None or root is not None:
                rows.note(number, unique_id=placed.unique_id, root=root)
            if placed.fallback_time:
                self._count_timestamps(1, batch)
        return bad

    def _reject(self, dead_letters: Iterable[DeadLetter], batch: Batch, ledger: Ledger) -> None:
        for dead_letter in dead_letters:
            batch.dead_letters.append(dead_letter)
            batch.dead_letter_bytes += dead_letter.memory_bytes
            ledger.dead_letters += dead_letter.entries
            self.outcomes[dead_letter.reason.value] += dead_letter.entries


def _first_ms(poll: Poll, span: TakenSpan) -> int | None:
    """Return the timestamp of the first record of a span; asked once in a batch, of each TopicPartition."""
    tp = poll.tps.index(span.tp)
    at = next(at for at in range(span.last + 1) if poll.tp_of[at] == tp and poll.offsets[at] == span.first_offset)
    return poll.timestamps_ms[at] if poll.timestamps_ms[at] >= 0 else None
