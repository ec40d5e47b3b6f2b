"""The loop: poll, record, flush when due - on one thread, which owns consumer, producer, batch and spool (W8).

While a flush runs the loop does not poll, so a revoke can never interleave with a timer flush; librdkafka sends
heartbeats from its own thread, and `max.poll.interval.ms` is the bound.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import structlog

from log_partitioner.batch.fast_lane import LARGE_BYTES
from log_partitioner.boundary import FetchFailure, Poll
from log_partitioner.control.flush_policy import FlushBounds, FlushReason, decide_by_load
from log_partitioner.control.rate import Rate
from log_partitioner.control.state import Phase
from log_partitioner.errors import RegistryError, SpoolError
from log_partitioner.formats.log_events import OffsetGaps, RecordsNotRecorded, tell
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.runtime.controller import Controller
from log_partitioner.runtime.crash_guard import CrashGuard
from log_partitioner.runtime.flusher import Flusher
from log_partitioner.runtime.open_transactions import OpenTransactions
from log_partitioner.runtime.ports import Ports
from log_partitioner.runtime.recorder import Recorder
from log_partitioner.runtime.refetch import Refetcher

POLL_S = 0.2
ROOM_S = 1.0  # the longest wait between two polls that keeps to the upper rate
PUBLISH_S = 1.0  # between two publications of all TopicPartitions, maybe thousands: no scraper asks more often
RECORDS_MAX = 2000  # taken from the client library in one call
CHECK_EVERY = 1024  # entries and KiB of records, between two looks at how full the batch is,
CHECK_PART = 4  # or when it has grown by this part since the last one
GAPS_LOGGED_MAX = 20
TIME_OF = {"written": "entry", "record_timestamp": "record"}


Gaps = dict[TopicPartition, list[tuple[int, int]]]
"""Offsets [from, to) without a record, by TopicPartition."""


@dataclass(eq=False, repr=False)
class Runloop:
    """Runs a worker until it is asked to stop."""

    ports: Ports
    bounds: FlushBounds
    controller: Controller
    recorder: Recorder
    flusher: Flusher
    entries_per_s_max: float | None = None

    def __post_init__(self) -> None:
        self.records_max, self.publish_s = RECORDS_MAX, PUBLISH_S
        self._rate = Rate(self.entries_per_s_max)
        self._entries_per_record = math.inf  # unknown before the first record
        self._publish_at_s = -math.inf
        self._refetcher = Refetcher(self.ports, self.recorder)
        self._crash_guard = CrashGuard(self.ports, self.recorder)
        self._open_transactions = OpenTransactions(self.ports.clock, self.ports.metrics)
        self._weight = self._check_at = 0
        self._one_by_one = 0
        self._gaps: Gaps = {}
        self._held: set[TopicPartition] = set()  # in the poll at hand
        self._log = structlog.get_logger("runloop")

    def run(self) -> None:
        """Join the group and work until stopped; blocks. On return the batch is committed or discarded.

        Raises:
            StopError: the worker cannot go on.
        """
        self.begin()
        while self.controller.state.phase is not Phase.STOPPED:
            self.ports.beat()
            self.turn()

    def begin(self) -> None:
        """Settle the remains of an earlier process, and join the group."""
        self._crash_guard.begin()
        self.ports.committer.prepare()  # that ends an earlier process's open transaction, before offsets are asked for
        self.ports.consumer.subscribe(self.controller)

    def turn(self) -> None:
        """Do one turn."""
        self.controller.prepare()
        self.controller.position()
        records = self.ports.consumer.consume(records_max=self._await_rate(), timeout_s=POLL_S)
        self.controller.consume_returned()
        if records:
            try:
                self._record_all(records)
            except MemoryError:  # the same as a kill: the next process takes smaller batches
                raise
            except Exception:  # the broker, the store, the disk or a bug of ours fails: no record is to blame
                self._crash_guard.release()
                raise
        self._refetcher.turn(flush=lambda: self._flush(FlushReason.REFETCH), deadline=self.controller.deadline)
        self._count(len(records))
        if self.ports.stop.requested:
            self.controller.stop()
            return
        self.controller.tick()
        opening = self.recorder.opening
        if opening is not None and self.ports.clock.now_s() - opening.opened_at_s >= self.bounds.interval_s:
            self._flush(FlushReason.INTERVAL)
        if (now_s := self.ports.clock.now_s()) >= self._publish_at_s:
            self._publish_at_s = now_s + self.publish_s
            self._publish()

    def _await_rate(self) -> int:
        """Wait for up to a second until the rate allows more entries; returns the number of records that may come."""
        if self._rate.per_s is None:
            return self.records_max
        self.ports.clock.sleep(min(ROOM_S, self._rate.wait_s(self.ports.clock.now_s())))
        return max(1, min(self.records_max, int(self._rate.per_s * ROOM_S / self._entries_per_record)))

    def _record_all(self, poll: Poll) -> None:
        """Record the records of a poll. Refused ones of owned TopicPartitions are read again, after a rewind."""
        refused: Counter[str] = Counter()
        self._held.clear()
        for first, stop in self._crash_guard.parts(poll, lambda: self._flush(FlushReason.SHRUNK)):
            at = first
            while at < stop:
                taken = self._take(poll, at, stop)
                if taken:
                    at += taken
                else:
                    if (cause := self._record_one(poll[at])) is not None:
                        refused[cause] += 1
                    at += 1
        for cause, count in refused.items():
            self.ports.metrics.add("records_refused", count, cause=cause)
            tell(self._log.info, RecordsNotRecorded(cause, records=count))
        self._report_gaps()

    def _take(self, poll: Poll, first: int, stop: int) -> int:
        """Record plain records at once, up to the next look at the size of the batch; returns how many."""
        recorder, size_max = self.recorder, self.controller.state.size_max
        if recorder.opening is None or not recorder.has_lane(poll.tps[poll.tp_of[first]].topic):
            return 0
        if self.controller.state.to_seek or self._crash_guard.is_alone:
            return 0
        load, bytes_max, entries_max = recorder.load(), self.bounds.bytes_max, self._check_at - self._weight
        if size_max is not None:
            bytes_max, entries_max = size_max.source_bytes, min(entries_max, size_max.entries - load.entries)
        taken = recorder.take(
            poll, first, stop, weight_max=max(0, entries_max), bytes_max=max(0, bytes_max - load.source_bytes)
        )
        if not taken.records:
            return 0
        self._weight += taken.weight
        for tp, expected, found in taken.gaps:
            self._gaps.setdefault(tp, []).append((expected, found))
        self._spill_or_flush()
        return taken.records

    def _record_one(self, record: SourceRecord) -> str | None:
        """Record a record, and flush a full batch; returns the cause if it is refused: then it is read again."""
        ledgers, tp = self.recorder.ledgers, record.tp
        if tp in self.controller.state.to_seek or tp in self._held:
            return "rewound"
        if not self.recorder.accepts(record):
            return "covered" if tp in ledgers else "not_owned"
        if not self._make_room(record):
            return "rewound"
        if self.recorder.opening is None:
            if not self.controller.open_batch():
                return "rewound"
            self._weight = self._check_at = 0
        expected = ledgers[tp].next_offset
        try:
            self._weight += self._crash_guard.record(record)
        except RegistryError as error:
            self._hold(record, error)
            return "rewound"
        if record.offset > expected:
            self._gaps.setdefault(tp, []).append((expected, record.offset))
        self._one_by_one += self.recorder.has_lane(tp.topic)
        self._spill_or_flush()
        return None

    def _hold(self, record: SourceRecord, error: RegistryError) -> None:
        """Leave a record that needs a schema, and all records behind it, to the refetcher; others go on."""
        self._held.add(record.tp)
        failure = FetchFailure(record.offset, f"SCHEMA_{error.cause.upper()}", str(error))
        self.ports.consumer.hold(record.tp, failure)
        if not self.recorder.has_progress:
            self.recorder.discard(None)  # it was opened for this record

    def _spill_or_flush(self) -> None:
        """Bring texts to disk if they take too much memory, and flush a full batch."""
        try:
            self.recorder.spill_if_large()
        except SpoolError as error:  # all recorded texts stay in memory
            self._log.warning("spill_refused", message=str(error))
            self._flush(FlushReason.SPOOL)
            return
        size_max = self.controller.state.size_max
        if self._weight < self._check_at and size_max is None:
            return
        self._check_at = self._weight + min(CHECK_EVERY, 1 + self._weight // CHECK_PART)
        load = self.recorder.load()
        reason = decide_by_load(load, self.bounds, estimate_s=self.flusher.estimate_s(load), size_max=size_max)
        if reason is not None:
            self._flush(reason)

    def _make_room(self, record: SourceRecord) -> bool:
        """Flush the open batch if the record does not fit into it: the record goes into a batch of its own.

        Returns False if that batch was discarded, and the record is to be read again.
        """
        size, size_max = len(record.value or b""), self.controller.state.size_max
        if self.recorder.opening is None or (size <= LARGE_BYTES and size_max is None):
            return True
        source_bytes = self.recorder.load().source_bytes + size
        if size_max is not None and source_bytes > size_max.source_bytes:
            self._flush(FlushReason.SHRUNK)
        elif source_bytes > self.bounds.bytes_max:
            self._flush(FlushReason.BYTES)
        return record.tp not in self.controller.state.to_seek

    def _flush(self, reason: FlushReason) -> None:
        """Flush the open batch between two records; none is in hand meanwhile. Reports holes in the offsets before."""
        if not self.recorder.has_progress:
            return
        self._report_gaps()
        self._crash_guard.release()
        self.controller.flush_due(reason)

    def _report_gaps(self) -> None:
        gaps, self._gaps = self._gaps, {}
        for tp, holes in gaps.items():  # legal if a hole holds no data record (KAFKA_FACTS O5)
            self.ports.metrics.add("offset_gaps", len(holes))
            tell(self._log.info, OffsetGaps(*tp, gaps=len(holes), first=holes[:GAPS_LOGGED_MAX]))

    def _count(self, records: int) -> None:
        """Count the records of this turn, before a flush that may be the last."""
        if records:
            self.ports.metrics.add("records", records)
            self.ports.metrics.add("slow_lane_records", self._one_by_one)
            self._one_by_one = 0
            entries = self.recorder.outcomes.total()
            self._rate.took(entries, self.ports.clock.now_s())
            self._entries_per_record = max(1.0, entries / records)
        for outcome, count in self.recorder.outcomes.items():
            if outcome in TIME_OF:
                self.ports.metrics.add("written_entries", count, time=TIME_OF[outcome])
            else:
                self.ports.metrics.add("dead_letter_entries", count, reason=outcome)
        self.recorder.outcomes.clear()
        json = self.recorder.rules.json
        if json.rounded:
            self.ports.metrics.add("inexact_numbers", json.rounded)
            json.rounded = 0

    def _publish(self) -> None:
        """Publish the owned TopicPartitions and the state of the open batch."""
        ledgers, now_ms = self.recorder.ledgers, self.ports.clock.wall_ms()
        next_offsets = {tp: ledger.next_offset for tp, ledger in ledgers.items()}
        ends = self.ports.consumer.ends(next_offsets)
        self._open_transactions.watch(self.ports.consumer.blocked_by_transaction(next_offsets), next_offsets, ends)
        for tp, end in ends.items():
            committed, labels = ledgers[tp].first_offset, {"topic": tp.topic, "partition": str(tp.partition)}
            self.ports.metrics.set("lag_records", max(0, end - committed), **labels)
            since_ms = ledgers[tp].waits_since_ms if end > committed else now_ms
            if since_ms is None:
                self.ports.metrics.forget("lag_seconds", **labels)
            else:
                self.ports.metrics.set("lag_seconds", max(0, now_ms - since_ms) / 1000, **labels)
            self.ports.metrics.set("committed_offset", committed, **labels)
        load = self.recorder.load()
        self.ports.metrics.set("spool_bytes", load.spool_bytes)
        self.ports.metrics.set("memory_bytes", load.memory_bytes)
        self.ports.metrics.set("partition_keys", load.partition_keys)
        self.ports.metrics.set("batch_entries", load.entries)
        self.ports.metrics.set("owned_topic_partitions", len(ledgers))
        for phase in Phase:
            self.ports.metrics.set("state", float(phase is self.controller.state.phase), state=phase.value)
