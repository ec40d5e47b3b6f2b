"""What the flush records of a group say of its TopicPartitions: up to where each was flushed, so where to go on.

Owns the choice; the records come from `adapters.kafka_flush_records`, newest first. A part of a flush record says as
much of its own TopicPartitions as a whole one: its transaction is committed, or nobody reads it.
"""

from __future__ import annotations

from collections.abc import Iterable

from service.formats.flush_record import FlushRecord
from service.formats.model import TopicPartition
from service.formats.offset_metadata import SourceTopics

SKEW_MS = 600_000
"""How far the clocks of two workers may be apart: of flush records nearer to each other the furthest one counts."""


class FlushHistory:
    """Collects the next offset of each TopicPartition wanted, from flush records of one group and these topics.

    A topic is the same where the ids are equal, or one of them is not known. What was flushed before a person set its
    offset is passed over, for SKEW_MS too much rather than too little. Of `newest_of` only the newest
    flush records matter.
    """

    def __init__(
        self,
        wanted: Iterable[TopicPartition],
        *,
        newest_of: Iterable[TopicPartition] = (),
        group_id: str,
        topics: SourceTopics,
    ) -> None:
        self._wanted = frozenset(wanted)
        self._newest_of = frozenset(newest_of)
        self._group_id = group_id
        self._topics = topics
        self._newest: dict[TopicPartition, list[tuple[int, int]]] = {}

    def add(self, record: FlushRecord) -> None:
        """Take one in; the order is no matter."""
        if record.group_id != self._group_id:
            return
        for line in record.topic_partitions:
            tp = TopicPartition(line.topic, line.partition)
            if (tp in self._wanted or tp in self._newest_of) and self._counts(record, tp):
                self._take(tp, record.ended_at_ms, line.next_offset)

    def _counts(self, record: FlushRecord, tp: TopicPartition) -> bool:
        topic_id = record.topic_ids.get(tp.topic)
        is_same = topic_id is None or self._topics.ids.get(tp.topic, topic_id) == topic_id
        set_ms = self._topics.set_ms.get(tp)
        return is_same and (set_ms is None or record.ended_at_ms > set_ms + SKEW_MS)

    def _take(self, tp: TopicPartition, ended_at_ms: int, next_offset: int) -> None:
        known = [*self._newest.get(tp, ()), (ended_at_ms, next_offset)]
        newest_ms, _ = max(known)
        self._newest[tp] = [one for one in known if one[0] >= newest_ms - SKEW_MS]

    def is_enough(self, oldest_ms: int, *, is_long: bool = False) -> bool:
        """Return whether the next offset of all wanted is known, and nothing older than `oldest_ms` can change it.

        Of `newest_of` it need not be known where what was read `is_long`. Times are by the workers' clocks.
        """
        needed = self._wanted if is_long else self._wanted | self._newest_of
        return all(tp in self._newest and max(self._newest[tp])[0] - SKEW_MS > oldest_ms for tp in needed)

    @property
    def next_offsets(self) -> dict[TopicPartition, int]:
        """The next offset of each that a flush record names."""
        return {tp: max(next_offset for _, next_offset in some) for tp, some in sorted(self._newest.items())}
