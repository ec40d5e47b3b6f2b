"""What is done about records that the client library cannot read: fetched again, then stopped, held or put away.

A bad fetch is not a bad log: another replica, or the same one a moment later, may hand over what this one did not.
Nothing behind such a record is recorded before it is (I1): the consumer hands over no more of its
TopicPartition until it is sought.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple

import structlog

from service.batch.progress import Progress
from service.boundary import Clock, FetchFailure
from service.control.deadline import Deadline
from service.errors import SourceError
from service.formats.log_events import OffsetsPutAway, Unreadable, tell
from service.formats.model import CommittedOffset, SourceRecord, TopicPartition
from service.runtime.ports import Consumer, Metrics
from service.runtime.recorder import Recorder

OnUnreadable = Literal["stop", "hold", "dead-letter"]
FETCHES_MAX = 3  # again, after the first one
AGAIN_S = 1.0  # before the first of them; doubled for each
HOLD_S = 60.0  # between two fetches of what is held
SEARCH_S = 20.0


class _Trouble(NamedTuple):
    """A place that could not be read: how often in a row, why, and when it is fetched again."""

    offset: int
    times: int
    failure: FetchFailure
    due_s: float


class Refetcher:
    """Watches the consumer's failures; used by the loop thread, outside callbacks."""

    def __init__(
        self, *, policy: OnUnreadable, recorder: Recorder, consumer: Consumer, clock: Clock, metrics: Metrics
    ) -> None:
        self._policy = policy
        self._recorder = recorder
        self._consumer = consumer
        self._clock = clock
        self._metrics = metrics
        self._troubles: dict[TopicPartition, _Trouble] = {}
        self._log = structlog.get_logger("refetch")

    def turn(self, deadline: Deadline) -> SourceRecord | None:
        """Try again what is due; returns what stands for offsets that are put away, to be recorded.

        Once it is recorded, `go_on` fetches what follows. Blocks for up to 20 s if something is due and the deadline of
        the poll leaves these.

        Raises:
            SourceError: it could not be read four times, and the policy is to stop.
        """
        owned = self._recorder.positions
        failures = {tp: failure for tp, failure in self._consumer.failures().items() if tp in owned}
        if failures or self._troubles:
            self._forget_what_went_on(owned)
            for tp, failure in failures.items():
                known = self._troubles.get(tp)
                if known is None or known.failure is not failure:
                    self._note(tp, owned[tp].next_offset, failure)
        record = self._try_again(failures) if deadline.remaining_s() >= SEARCH_S else None
        self._metrics.set("held_topic_partitions", sum(one.times > FETCHES_MAX for one in self._troubles.values()))
        return record

    def _forget_what_went_on(self, owned: Mapping[TopicPartition, Progress]) -> None:
        """Forget what is not owned, has moved, or did not fail again for a while: then there may be no record."""
        now_s = self._clock.now_s()
        self._troubles = {
            tp: one
            for tp, one in self._troubles.items()
            if tp in owned and one.offset == owned[tp].next_offset and now_s < one.due_s + HOLD_S
        }

    def _note(self, tp: TopicPartition, offset: int, failure: FetchFailure) -> None:
        """Count one more failure in a row."""
        known = self._troubles.get(tp)
        times = known.times + 1 if known is not None and known.offset == offset else 1
        wait_s = AGAIN_S * 2 ** (times - 1) if times <= FETCHES_MAX else HOLD_S
        self._troubles[tp] = _Trouble(offset, times, failure, self._clock.now_s() + wait_s)
        self._metrics.add("fetch_failures", 1, code=failure.code)
        tell(self._log.warning, Unreadable(*tp, offset, times=times, code=failure.code, message=failure.message))
        if times > FETCHES_MAX and self._policy == "stop":
            raise SourceError(
                f"{tp} cannot be read at offset {offset}: {failure.code}: {failure.message}. See kafka.on_unreadable "
                "for how to go on without it"
            )

    def _try_again(self, failures: Collection[TopicPartition]) -> SourceRecord | None:
        """Fetch again what is due for longest, where another client can read it by now.

        Else count that, and put it away at last. One in a turn: the group is polled between two looks.
        """
        tp = min(failures, key=lambda one: self._troubles[one].due_s, default=None)
        if tp is None or self._clock.now_s() < self._troubles[tp].due_s:
            return None
        offset, _, failure, _ = self._troubles[tp]
        end = self._consumer.readable_from(tp, offset, deadline=Deadline.after(SEARCH_S, self._clock.now_s))
        if end == offset:
            self.go_on(tp)
            return None
        self._note(tp, offset, failure)
        if end is None or self._policy != "dead-letter" or self._troubles[tp].times <= FETCHES_MAX:
            return None
        why = f"offsets {offset} to {end - 1} cannot be read: {failure.code}: {failure.message}"
        tell(self._log.error, OffsetsPutAway(*tp, offset=offset, end_offset=end))
        return SourceRecord(tp, offset, None, None, None, (), unreadable=why, end_offset=end)

    def go_on(self, tp: TopicPartition) -> None:
        """Fetch what follows what is recorded: once it can be read, or is put away."""
        progress = self._recorder.positions[tp]
        self._consumer.fetch_again(tp, CommittedOffset(progress.next_offset, progress.leader_epoch))
