"""Warns when a source partition stands still because a producer has left a transaction open.

A read_committed consumer gets no further than the first message of a transaction that is open (KAFKA_FACTS T10):
nothing fails, the lag grows. A live producer may hold one open for a while; a transaction that nobody ends hangs for
ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from log_partitioner.boundary import Clock, Metrics
from log_partitioner.formats.model import TopicPartition

TELL_S = 15.0  # the first line; each next one at twice the age of the one before,
AGAIN_MAX_S = 300.0  # or that much later
NAMED_MAX = 20


@dataclass(eq=False, repr=False)
class OpenTransactions:
    """Knows since when each TopicPartition has stood still at the same offset; used by the loop thread."""

    clock: Clock
    metrics: Metrics

    def __post_init__(self) -> None:
        self._since: dict[TopicPartition, tuple[int, float]] = {}
        self._looked_s = 0.0
        self._due_s = TELL_S
        self._log = structlog.get_logger("open_transactions")

    def watch(
        self,
        blocked: Mapping[TopicPartition, int],
        next_offsets: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> None:
        """Note the TopicPartitions that stand still, and their offsets; publish the longest time, and log it if due.

        After a rewind a place stays noted, but grows no older, until its records are read up to there again, or nothing
        is behind it.
        """
        now_s = self.clock.now_s()
        passed_s, self._looked_s = now_s - self._looked_s, now_s
        known = {
            tp: (offset, since_s if tp in blocked else since_s + passed_s)
            for tp, (offset, since_s) in self._since.items()
            if blocked.get(tp, offset) == offset and next_offsets.get(tp, offset) <= offset < ends.get(tp, offset)
        }
        self._since = {tp: (offset, now_s) for tp, offset in blocked.items()} | known
        age_s = now_s - min((since_s for _, since_s in self._since.values()), default=now_s)
        self.metrics.set("open_transaction_seconds", age_s)
        if age_s < TELL_S:
            self._due_s = TELL_S
        elif age_s >= self._due_s:
            self._due_s = age_s + min(AGAIN_MAX_S, age_s)
            old = sorted((tp, offset) for tp, (offset, since_s) in self._since.items() if now_s - since_s >= TELL_S)
            named = {str(tp): offset for tp, offset in old[:NAMED_MAX]}
            self._log.warning("source_transaction_open", held_up=named, seconds=round(age_s))
