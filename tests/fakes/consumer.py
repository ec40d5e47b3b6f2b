"""A consumer with librdkafka's semantics: positions move with what is handed over, callbacks run inside `consume`.

Records that one `consume` has popped before a callback are returned after it, also those of TopicPartitions that the
callback gave away - or gave away and got back. With `purge` the library's barrier drops the latter, as librdkafka
does since 1.7; without it the fake is as bad as the library has ever been (confluent-kafka-python 1013, 4117).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Self

from log_partitioner.boundary import END_OFFSET, FIRST_OFFSET, FetchFailure, Membership, Poll, RebalanceListener
from log_partitioner.config.source_topics import SourceNames
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import CouldNotTellError, SourceError, StartPositionError
from log_partitioner.formats.model import CommittedOffset, OffsetRanges, SourceRecord, TopicPartition
from tests.fakes.broker import FakeBroker
from tests.fakes.clock import FakeClock
from tests.fakes.member import Callback, Member
from tests.fakes.records import poll_of

Point = Callable[[str], None]
ANSWER_STEP_S = 1.0
TRUNCATED = -1


def no_point(_name: str) -> None:
    """Nothing happens between two steps."""


class FakeConsumer:
    """Fulfils `boundary.Consumer` on a FakeBroker; `point` is called wherever other things may happen."""

    def __init__(self, broker: FakeBroker, member: Member, clock: FakeClock, *, point: Point = no_point) -> None:
        self.member = member
        self.assigned: set[TopicPartition] = set()
        self.positions: dict[TopicPartition, int] = {}
        self.paused = False
        self.closed = False
        self.pop_first: Callable[[int], int] = lambda _records_max: 0
        self.callbacks_max: Callable[[], int] = lambda: 1
        self.purge = True
        self.raise_after_pop: Exception | None = None
        self.failed: dict[TopicPartition, FetchFailure] = {}
        self._broker = broker
        self._clock = clock
        self._point = point
        self._listener: RebalanceListener | None = None
        self._versions: dict[TopicPartition, int] = {}
        self._turn = 0
        self._in_callback = False

    @property
    def is_member_running(self) -> bool:
        """Whether the library's thread has anything to do."""
        return self._listener is not None and not self.closed

    def subscribe(self, listener: RebalanceListener) -> None:
        """Join the group."""
        self._listener = listener
        self.member.background()

    def consume(self, *, records_max: int, timeout_s: float) -> Poll:
        """Take records; callbacks run after the first `pop_first` of them."""
        self._point("consume")
        self.member.background()
        popped = self._pop(min(records_max, self.pop_first(records_max)))
        versions = dict(self._versions)
        for _ in range(self.callbacks_max()):
            if not self.member.queue:
                break
            self._serve()
            self._point("callback_served")
            self.member.background()
        if self.raise_after_pop is not None:  # positions have moved, records are gone (KAFKA_FACTS F4)
            error, self.raise_after_pop = self.raise_after_pop, None
            raise error
        if self.purge:
            popped = [one for one in popped if self._versions[one.tp] == versions[one.tp]]
        popped += self._pop(records_max - len(popped))
        self._clock.advance(0.001 if popped else timeout_s)
        return poll_of(popped)

    def _pop(self, records_max: int) -> list[SourceRecord]:
        popped: list[SourceRecord] = []
        if self.paused or not records_max:
            return popped
        tps = sorted(self.positions.keys() - self.failed.keys())
        self._turn += 1
        for number in range(len(tps)):  # none starves: another one is first each time
            tp = tps[(number + self._turn) % len(tps)]
            log = self._broker.logs[tp]
            if self.positions[tp] < log.first_offset or self.positions[tp] > log.end:
                raise StartPositionError(f"{tp}: offset {self.positions[tp]} is out of range")
            if len(popped) == records_max:
                break
            found = log.read(self.positions[tp], records_max - len(popped))
            broken = log.broken_at(self.positions[tp], found[-1].offset + 1 if found else log.end)
            if broken is not None:
                self.failed[tp] = FetchFailure(broken.start, "_BAD_MSG", "failed CRC32C check")
                found = [one for one in found if one.offset < broken.start]
            if found:
                self.positions[tp] = found[-1].offset + 1
                popped += found
        return popped

    def _serve(self) -> None:
        """Run the first callback that waits; it goes on waiting, for the library's thread, until it has returned."""
        kind, tps = callback = self.member.queue[0]
        listener = self._listener
        assert listener is not None, "subscribed before anything is assigned"
        self._in_callback = True
        if kind is Callback.ASSIGNED:
            listener.on_assigned(tps)
            self.member.owned |= tps
            self.assigned |= tps
            self._drop(tps)
        else:
            if kind is Callback.REVOKED:
                listener.on_revoked(tps)
            else:
                listener.on_lost(tps)
            self.member.owned -= tps
            self.assigned -= tps
            self._drop(tps)
        self._in_callback = False
        self.member.queue.popleft()
        self.member.served(callback)

    def _drop(self, tps: frozenset[TopicPartition]) -> None:
        """Fetch nothing of these before they are sought."""
        for tp in tps:
            self.positions.pop(tp, None)
            self.failed.pop(tp, None)
            self._versions[tp] = self._versions.get(tp, 0) + 1

    def committed(
        self, tps: Iterable[TopicPartition], *, deadline: Deadline
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Ask for stable offsets; waits while a transaction over them is open. Not inside a callback."""
        assert not self._in_callback, "a question there never returns, or aborts the process"
        self._point("committed")
        tps = list(tps)
        while not all(self._broker.is_stable(tp) for tp in tps):
            if deadline.has_passed():
                raise SourceError("no committed offsets: timed out")
            self._clock.advance(ANSWER_STEP_S)
            self.member.background()
            self._broker.expire()
            self._point("unstable")
        return {tp: self._broker.told(tp) for tp in tps}

    def offsets_at(self, tps: Iterable[TopicPartition], at_ms: int, *, deadline: Deadline) -> dict[TopicPartition, int]:
        """Ask for the first offset of this time or later; the end if there is none."""
        del deadline
        assert not self._in_callback, "a question there never returns, or aborts the process"
        self._point("offsets_at")
        logs = {tp: self._broker.logs[tp] for tp in tps}
        if at_ms == FIRST_OFFSET:
            return {tp: log.first_offset for tp, log in logs.items()}
        if at_ms == END_OFFSET:
            return {tp: log.end for tp, log in logs.items()}
        return {
            tp: next((one.offset for one in log.records if (one.timestamp_ms or 0) >= at_ms), log.end)
            for tp, log in logs.items()
        }

    def topic_ids(self, topics: Iterable[str], *, deadline: Deadline) -> dict[str, str]:
        """Ask for the ids of topics; not inside a callback."""
        del deadline
        assert not self._in_callback, "the real one aborts the process"
        ids = self._broker.topic_ids
        return {topic: ids[topic] for topic in SourceNames(topics).among(ids) if topic in ids}

    def seek(self, tp: TopicPartition, start: CommittedOffset, *, deadline: Deadline) -> None:
        """Go to an offset of an assigned TopicPartition."""
        del deadline
        self._point("seek")
        assert not self._in_callback, "it is asynchronous, and what is assigned there comes later"
        if tp not in self.assigned:
            raise SourceError(f"{tp} cannot be sought to {start.offset}: not assigned")
        self.positions[tp] = self._compared(tp, start)
        self.failed.pop(tp, None)

    def _compared(self, tp: TopicPartition, start: CommittedOffset) -> int:
        """Give the position, or a refused one if the start's epoch ends below it or is not in the log."""
        end = None if start.leader_epoch is None else self._broker.logs[tp].end_of(start.leader_epoch)
        return start.offset if end is None or start.offset <= end else TRUNCATED

    def hold(self, tp: TopicPartition, failure: FetchFailure) -> None:
        """Hand over nothing more of a TopicPartition until it is sought."""
        self.failed[tp] = failure

    def failures(self) -> Mapping[TopicPartition, FetchFailure]:
        """Give what could not be read."""
        return self.failed

    def partitions_of(self, topic: str, *, deadline: Deadline) -> list[TopicPartition]:
        """Ask for all TopicPartitions of a topic."""
        del deadline
        return sorted(tp for tp in self._broker.logs if tp.topic == topic)

    def pause(self) -> None:
        """Take no records, of what is assigned meanwhile neither."""
        self.paused = True

    def resume(self) -> None:
        """Take records again."""
        self.paused = False

    def membership(self) -> Membership:
        """Give the current group metadata."""
        return self.member.membership()

    def ends(self, next_offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Give the ends of assigned TopicPartitions, or the next offset if no record is left."""
        logs = {tp: self._broker.logs[tp] for tp in next_offsets if tp in self.positions}
        return {
            tp: log.end if log.open_at is not None or log.read(self.positions[tp], 1) else next_offsets[tp]
            for tp, log in logs.items()
        }

    def blocked_by_transaction(self, next_offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Give what waits for a transaction to end, with nothing left before it."""
        logs = {tp: self._broker.logs[tp] for tp in next_offsets if tp in self.positions}
        return {
            tp: log.open_at
            for tp, log in logs.items()
            if log.open_at is not None and not log.read(self.positions[tp], 1)
        }

    def close(self) -> None:
        """Give back what is owned, then leave."""
        if not self.closed:
            self.closed = True
            self._point("close")
            self.member.queue.clear()
            if self.member.owned:
                self.member.queue.append((Callback.REVOKED, self.member.owned))
                self._serve()
            self.member.leave()


class FakeSource:
    """Fulfils `log_partitioner.proof.audit.judge.RangeReader`: reads the source again, by offset."""

    def __init__(self, broker: FakeBroker, wait: Callable[[], Deadline], *, point: Point = no_point) -> None:
        self._broker = broker
        self._wait = wait
        self._point = point

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of it."""

    def read(self, ranges: OffsetRanges) -> Iterator[SourceRecord]:
        """Yield the records of the ranges."""
        for tp, (first, end) in ranges.items():
            until = self._wait()
            self._point("reread")
            log = self._broker.logs[tp]
            if until.has_passed() or (first < end and (log.first_offset > first or log.broken_at(first, end))):
                raise CouldNotTellError(f"{tp}: cannot be read from {first}")
            yield from (one for one in log.read(first, end - first) if one.offset < end)
