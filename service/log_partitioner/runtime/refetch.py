"""Retries records that cannot be read, and never goes on behind them.

A bad fetch is not a bad log: another replica, or the same one a moment later, may hand over the records. So does a
registry that gives a schema later. The consumer hands over no more of the TopicPartition until it is sought again (I1);
only a person skips offsets (`log-partitioner offsets skip`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import structlog

from log_partitioner.boundary import FetchFailure
from log_partitioner.control.deadline import Deadline
from log_partitioner.formats.log_events import Unreadable, tell
from log_partitioner.formats.model import CommittedOffset, TopicPartition
from log_partitioner.runtime.ports import Ports
from log_partitioner.runtime.recorder import Recorder

RETRIES = 3  # before the TopicPartition counts as held
RETRY_S = 1.0  # before the first of them; doubled for each
HOLD_S = 30.0  # between two retries of a held TopicPartition


class _Trouble(NamedTuple):
    """A place that cannot be read: the failures in a row, the cause, and the time of the next fetch."""

    offset: int
    times: int
    failure: FetchFailure
    due_s: float


@dataclass(eq=False, repr=False)
class Refetcher:
    """Watches the consumer's failures; used by the loop thread, outside callbacks."""

    ports: Ports
    recorder: Recorder

    def __post_init__(self) -> None:
        self._troubles: dict[TopicPartition, _Trouble] = {}
        self._log = structlog.get_logger("refetch")

    def turn(self, *, flush: Callable[[], None], deadline: Deadline) -> None:
        """Note new failures, and seek those that are due, after a flush of the open batch.

        The consumer assigns the TopicPartition anew, which the library may take for the answer to a revoke that it has
        not reported yet. Then the next owner reads the revoked ones, from their committed offsets.
        """
        owned, now_s = self.recorder.ledgers, self.ports.clock.now_s()
        failures = {tp: failure for tp, failure in self.ports.consumer.failures().items() if tp in owned}
        # A place that has not failed again for a while may have no record: that does not prove that it can be read.
        self._troubles = {
            tp: one
            for tp, one in self._troubles.items()
            if tp in owned and one.offset == owned[tp].next_offset and (tp in failures or now_s < one.due_s + HOLD_S)
        }
        due = []
        for tp, failure in failures.items():
            known = self._troubles.get(tp)
            if known is None or known.failure is not failure:
                self._note(tp, owned[tp].next_offset, failure)
            elif now_s >= known.due_s:
                due.append(tp)
        if any(self._troubles[tp].times > RETRIES for tp in due):  # one flush serves all that are held
            due = [tp for tp in failures if tp in due or self._troubles[tp].times > RETRIES]
        if due:
            flush()
        for tp in due:
            if (ledger := self.recorder.ledgers.get(tp)) is not None:
                start = CommittedOffset(ledger.next_offset, ledger.leader_epoch)
                self.ports.consumer.seek(tp, start, deadline=deadline)
        self.ports.metrics.set("held_topic_partitions", sum(one.times > RETRIES for one in self._troubles.values()))

    def _note(self, tp: TopicPartition, offset: int, failure: FetchFailure) -> None:
        """Count one more failure in a row."""
        known = self._troubles.get(tp)
        times = 1 if known is None else known.times + 1
        wait_s = RETRY_S * 2 ** (times - 1) if times <= RETRIES else HOLD_S
        self._troubles[tp] = _Trouble(offset, times, failure, self.ports.clock.now_s() + wait_s)
        self.ports.metrics.add("fetch_failures", 1, code=failure.code)
        tell(self._log.warning, Unreadable(*tp, offset, times=times, code=failure.code, message=failure.message))
