"""What the flush records of a group say of TopicPartitions that have no committed offset: where to go on.

Owns the choice; the records come from `adapters.kafka_flush_records`, newest first. A part of a flush record says as
much of its own TopicPartitions as a whole one: its transaction is committed, or nobody reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from service.formats.flush_record import FlushRecord
from service.formats.model import TopicPartition

SKEW_MS = 600_000
"""How far the clocks of two workers may be apart: of flush records nearer to each other the furthest one counts."""


class FlushHistory:
    """Collects the next offset of each TopicPartition wanted, from flush records of one group and these topics.

    A topic is the same where the ids are equal, or one of them is not known.
    """

    def __init__(self, wanted: Iterable[TopicPartition], *, group_id: str, topic_ids: Mapping[str, str]) -> None:
        self._wanted = frozenset(wanted)
        self._group_id = group_id
        self._topic_ids = topic_ids
        self._newest: dict[TopicPartition, tuple[int, int]] = {}

    def add(self, record: FlushRecord) -> None:
        """Take one in; the order is no matter."""
        if record.group_id != self._group_id:
            return
        for line in record.topic_partitions:
            tp = TopicPartition(line.topic, line.partition)
            if tp in self._wanted and self._is_same(line.topic, record.topic_ids.get(line.topic)):
                self._take(tp, record.ended_at_ms, line.next_offset)

    def _is_same(self, topic: str, topic_id: str | None) -> bool:
        return topic_id is None or self._topic_ids.get(topic, topic_id) == topic_id

    def _take(self, tp: TopicPartition, ended_at_ms: int, next_offset: int) -> None:
        known_ms, known_offset = self._newest.get(tp, (ended_at_ms, next_offset))
        if abs(ended_at_ms - known_ms) <= SKEW_MS:
            self._newest[tp] = max(ended_at_ms, known_ms), max(next_offset, known_offset)
        elif ended_at_ms > known_ms:
            self._newest[tp] = ended_at_ms, next_offset

    def is_enough(self, oldest_ms: int) -> bool:
        """Return whether the next offset of all wanted is known, and nothing older than `oldest_ms` can change it.

        Times are by the workers' clocks.
        """
        return self._newest.keys() == self._wanted and all(
            ended_at_ms - SKEW_MS > oldest_ms for ended_at_ms, _ in self._newest.values()
        )

    @property
    def next_offsets(self) -> dict[TopicPartition, int]:
        """The next offset of each that a flush record names."""
        return {tp: next_offset for tp, (_, next_offset) in sorted(self._newest.items())}
