"""A window of an audit: the flushes that ended in it, each as a whole.

The flush is the unit, not the record: so neither clocks of producers nor late records leave anything out, and windows
that follow on each other audit each flush once. Messages of a flush have timestamps of about its end. Flush records are
read for twice as long around the window as references and dead letters, so that none of these lacks the record of its
batch; those outside of the window are not judged, but their ranges must join.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

from log_partitioner.errors import CouldNotTellError
from log_partitioner.proof.accounting import tp_of
from log_partitioner.proof.audit.ranges import OffsetSpan, hull

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from log_partitioner.formats.flush_record import BackfillRecord, FlushRecord
    from log_partitioner.formats.model import OffsetRanges, TopicPartition
    from log_partitioner.proof.audit.ranges import Committed

PADDING_MS = 15 * 60_000  # from a message of a flush to its end, at most: brokers end a transaction that takes longer


class TimedTopics(Protocol):
    """Kafka, as far as a window needs it; see `KafkaTopics`."""

    def offsets_at(self, tps: Iterable[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int | None]:
        """Return the first offset with this message timestamp or a later one, None if there is none."""


class ChosenFlushes(NamedTuple):
    """The batches of a window, the runs of backfills among them, and the offsets of the source that they name.

    `flushed` are the TopicPartitions of flushes.
    """

    batch_ids: set[str]
    runs: list[BackfillRecord]
    flushed: set[TopicPartition]
    source: OffsetRanges

    def first(self, tp: TopicPartition) -> int | None:
        """Return the first offset of a TopicPartition, None if it has none."""
        return self.source[tp][0] if tp in self.source else None


class FlushWindow(NamedTuple):
    """The time [from_ms, until_ms) in which flushes ended; None: since the beginning, until now."""

    from_ms: int | None = None
    until_ms: int | None = None

    @classmethod
    def between(cls, begin: object, end: object) -> FlushWindow:
        """Return the time between two moments, as `moment_of` gives them, or None."""
        return cls(*(round(1000 * one.timestamp()) if isinstance(one, datetime) else None for one in (begin, end)))

    @property
    def is_everything(self) -> bool:
        """Whether there are no bounds."""
        return self == FlushWindow()

    def holds(self, at_ms: int) -> bool:
        """Return whether a moment is in it."""
        return self.meets(at_ms, at_ms)

    def meets(self, first_ms: int, last_ms: int) -> bool:
        """Return whether a time has a moment in it."""
        begins = self.from_ms is None or self.from_ms <= last_ms
        return begins and (self.until_ms is None or first_ms < self.until_ms)

    def padded(self, times: int = 1) -> FlushWindow:
        """Return it with so many paddings before and behind."""
        more = times * PADDING_MS
        return FlushWindow(
            None if self.from_ms is None else max(0, self.from_ms - more),
            None if self.until_ms is None else self.until_ms + more,
        )

    def narrow(self, topics: TimedTopics, ranges: Mapping[TopicPartition, tuple[int, int]]) -> OffsetRanges:
        """Narrow ranges of topics to the messages with timestamps in it; asks brokers."""
        narrowed = dict(ranges)
        for place, moment_ms in enumerate(self):
            if moment_ms is not None:
                at = topics.offsets_at(ranges, moment_ms)
                for tp, (first, end) in narrowed.items():
                    found = at[tp]
                    offset = end if found is None else min(max(found, first), end)
                    narrowed[tp] = (offset, end) if place == 0 else (first, offset)
        return narrowed

    def choose(self, records: Iterable[FlushRecord], runs: Mapping[str, BackfillRecord]) -> ChosenFlushes:
        """Choose flushes that ended in it, and backfills that went on in it or hold entries of these flushes."""
        flushes = [record for record in records if self.holds(record.ended_at_ms)]
        covered = hull(_spans(flushes))
        padded = self.padded()
        chosen = [
            run
            for run in runs.values()
            if padded.meets(run.started_at_ms, run.committed_at_ms) or _intersect(covered, hull(_spans([run])))
        ]
        ids = {record.batch_id for record in flushes} | {run.batch_id for run in chosen}
        return ChosenFlushes(ids, chosen, set(covered), hull([*_spans(flushes), *_spans(chosen)]))

    def committed(self, records: Iterable[FlushRecord], committed: Committed) -> Committed:
        """Return the offsets up to which ranges must join: no further than is known if the window has an end."""
        if self.until_ms is None:
            return committed
        known = hull(_spans(records))
        return {tp: None if end is None else min(end, known.get(tp, (0, end))[1]) for tp, end in committed.items()}


def window_of(begin: object, end: object, last_s: float | None, *, now_ms: int) -> FlushWindow:
    """Return the window that the options of a command ask for.

    Raises:
        CouldNotTellError: they contradict each other.
    """
    window = FlushWindow.between(begin, end)
    if last_s is not None:
        if not window.is_everything:
            raise CouldNotTellError("--last is a window of its own: give it, or --from and --until")
        return FlushWindow(now_ms - round(1000 * last_s))
    if window.from_ms is not None and window.until_ms is not None and window.from_ms >= window.until_ms:
        raise CouldNotTellError("--from is not before --until")
    return window


def run_window(run: BackfillRecord) -> FlushWindow:
    """Return the time in which a backfill has published."""
    return FlushWindow(run.started_at_ms, run.committed_at_ms + 1).padded()


def starts_of(records: Iterable[FlushRecord]) -> dict[TopicPartition, int]:
    """Return the first offset that records name of each TopicPartition, also if they cover nothing of it."""
    starts: dict[TopicPartition, int] = {}
    for line in (line for record in records for line in record.topic_partitions):
        starts[tp_of(line)] = min(line.first_offset, starts.get(tp_of(line), line.first_offset))
    return starts


def _spans(records: Iterable[FlushRecord | BackfillRecord]) -> list[OffsetSpan]:
    lines = (line for record in records for line in record.topic_partitions)
    return [
        OffsetSpan(tp_of(line), line.first_offset, line.next_offset)
        for line in lines
        if line.first_offset < line.next_offset
    ]


def _intersect(some: OffsetRanges, others: OffsetRanges) -> bool:
    return any(tp in others and first < others[tp][1] and others[tp][0] < end for tp, (first, end) in some.items())
