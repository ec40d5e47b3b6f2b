"""Reads the state of a topic's TopicPartitions: committed offsets, flushed offsets, and the offsets in the log.

Owns the questions, and `show`; changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from log_partitioner.boundary import END_OFFSET, FIRST_OFFSET, Clock, Consumer, FlushRecords
from log_partitioner.control.deadline import Deadline
from log_partitioner.control.flush_history import FlushedOffsets
from log_partitioner.errors import HistoryUnknownError, SettingsError
from log_partitioner.formats import offset_metadata
from log_partitioner.formats.model import CommittedOffset, TopicPartition
from log_partitioner.formats.offset_metadata import SourceTopics, Ways

ANSWER_S = 120.0  # also for a transaction that a dead worker has left open over committed offsets
FLUSH_RECORDS_S = 1800.0


class Standing(NamedTuple):
    """One TopicPartition. `flushed` is the end of the newest flush record, even if a person has set an offset since.

    `ways` are the places of source topic chains that are recorded there.
    """

    tp: TopicPartition
    committed: CommittedOffset | None
    flushed: int | None
    first: int
    end: int
    ways: Ways | None = None


@dataclass(eq=False, repr=False)
class Survey:
    """Asks of one topic, as one group."""

    consumer: Consumer
    flush_records: FlushRecords
    topic: str
    clock: Clock
    accept_unknown: bool = False

    def __post_init__(self) -> None:
        deadline = self._deadline()
        self.tps = self.consumer.partitions_of(self.topic, deadline=deadline)
        self.topics = SourceTopics(self.consumer.topic_ids([self.topic], deadline=deadline))
        self.topic_id = self.topics.ids.get(self.topic)

    def _deadline(self) -> Deadline:
        return Deadline.after(ANSWER_S, self.clock.now_s)

    def committed(self, partitions: Collection[int] = ()) -> dict[TopicPartition, CommittedOffset | None]:
        """Return the committed offsets of the named partitions, or of all.

        Raises:
            SettingsError: the topic has no such partition.
        """
        if unknown := sorted(set(partitions) - {tp.partition for tp in self.tps}):
            raise SettingsError([f"--partition {unknown[0]}: the topic has no such partition"])
        asked = [tp for tp in self.tps if not partitions or tp.partition in partitions]
        found = self.consumer.committed(asked, deadline=self._deadline())
        return {tp: found[tp] for tp in asked}

    def standings(self, partitions: Collection[int] = (), *, is_quick: bool = False) -> list[Standing]:
        """Return the state of each partition. A quick look reads the newest flush records only, and warns at most.

        Raises:
            HistoryUnknownError: the flush records cannot be read, and that is not accepted.
        """
        committed = self.committed(partitions)
        deadline = Deadline.after(FLUSH_RECORDS_S, self.clock.now_s)
        wanted, newest_of = ([], committed) if is_quick else (list(committed), ())
        try:
            found = self.flush_records.read(wanted, self.topics, newest_of=newest_of, deadline=deadline)
        except HistoryUnknownError:
            if not self.accept_unknown:
                raise
            found = FlushedOffsets({}, [])
        flushed, ways = found.next_offsets, found.ways
        firsts, ends = (
            self.consumer.offsets_at(committed, at, deadline=self._deadline()) for at in (FIRST_OFFSET, END_OFFSET)
        )
        return [Standing(tp, one, flushed.get(tp), firsts[tp], ends[tp], ways.get(tp)) for tp, one in committed.items()]

    def flushes(self) -> FlushedOffsets:
        """Return the ends of the flush records of all TopicPartitions, and the other groups that flush this topic.

        Raises:
            HistoryUnknownError: they cannot be read.
        """
        deadline = Deadline.after(FLUSH_RECORDS_S, self.clock.now_s)
        return self.flush_records.read(self.tps, self.topics, deadline=deadline)

    def disagreements(
        self, committed: Mapping[TopicPartition, CommittedOffset], flushed: Mapping[TopicPartition, int], group_id: str
    ) -> Iterator[str]:
        """Yield committed offsets that differ from flush records, or are of another topic, or not the group's own."""
        recover = f"with the settings of group {group_id}, `log-partitioner offsets set --to flushed` sets it right"
        for tp, end in flushed.items():
            one = committed.get(tp)
            if one is None or one.offset != end:
                there = "nothing" if one is None else one.offset
                yield f"{tp}: group {group_id} has committed {there} and flushed up to {end}: {recover}"
        for tp, one in committed.items():
            if self.is_of_another_topic(one):
                yield f"{tp}: what group {group_id} has committed is of another topic of this name"
            elif tp not in flushed and not offset_metadata.decode(one.metadata).is_ours:
                yield f"{tp}: somebody else has committed {one.offset} as group {group_id}: {recover}"

    def is_of_this_topic(self, committed: CommittedOffset) -> bool:
        """Return whether a committed offset is known to be of this topic."""
        known = offset_metadata.decode(committed.metadata).topic_id
        return known is not None and known == self.topic_id

    def is_of_another_topic(self, committed: CommittedOffset) -> bool:
        """Return whether a committed offset is known to be of another topic of this name."""
        known = offset_metadata.decode(committed.metadata).topic_id
        return known is not None and known != self.topic_id

    def now_ms(self) -> int:
        """Return the wall-clock time."""
        return self.clock.wall_ms()

    def describe(self, committed: CommittedOffset | None) -> str:
        """Describe a committed offset in words, with who committed it."""
        if committed is None:
            return "nothing"
        told = offset_metadata.decode(committed.metadata)
        words = [] if told.is_ours else ["by somebody else"]
        if told.set_ms is not None:
            words.append(f"set by a person {_moment(told.set_ms)}")
        if self.is_of_another_topic(committed):
            words.append(f"of another topic of this name, {told.topic_id}")
        if committed.leader_epoch is not None:
            words.append(f"leader epoch {committed.leader_epoch}")
        return f"{committed.offset} ({', '.join(words)})" if words else str(committed.offset)

    def show(self) -> Iterator[str]:
        """Write a line for each TopicPartition, and one for all."""
        found = self.standings(is_quick=True)
        for tp, committed, flushed, first, end, _ in found:
            lag = "" if committed is None else f", lag {max(0, end - committed.offset)}"
            newest = "no flush record" if flushed is None else f"flushed up to {flushed}"
            yield f"{tp}: committed {self.describe(committed)}, {newest}, log {first} to {end}{lag}"
        lag_sum = sum(max(0, one.end - one.committed.offset) for one in found if one.committed is not None)
        without = sum(one.committed is None for one in found)
        yield f"{len(found)} TopicPartitions, lag {lag_sum}, {without} without a committed offset"


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
