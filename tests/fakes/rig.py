"""A small world for tests that say exactly what happens: some workers, one broker, one bucket, a clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from log_partitioner.control.state import Phase
from log_partitioner.formats.model import CommittedOffset, TopicPartition
from tests import canaries
from tests.fakes.broker import FakeBroker
from tests.fakes.check import check_all, check_commit
from tests.fakes.clock import FakeClock
from tests.fakes.consumer import Point, no_point
from tests.fakes.group import ClassicGroup, ConsumerGroup
from tests.fakes.journal import FakeJournal
from tests.fakes.member import ClassicMember, Member
from tests.fakes.records import P0, P1, entry, value_of
from tests.fakes.store import Bucket
from tests.fakes.worker import FakeWorker, Parts, Rules

COOPERATIVE, KIP848 = STYLES = ("cooperative", "kip848")


def group_of(
    style: str, clock: FakeClock, tps: Iterable[TopicPartition], **seconds: float
) -> ClassicGroup | ConsumerGroup:
    """Make the coordinator of a group."""
    return ConsumerGroup(clock, tps, **seconds) if style == KIP848 else ClassicGroup(clock, tps, **seconds)


def member_of(group: ClassicGroup | ConsumerGroup, name: str, parts: Parts) -> Member:
    """Make the client side of a member."""
    return parts.member848(group, name) if isinstance(group, ConsumerGroup) else ClassicMember(group)


class Rig:
    """Checks each transaction when it is committed; `check` looks at everything."""

    def __init__(self, style: str = COOPERATIVE, tps: tuple[TopicPartition, ...] = (P0, P1)) -> None:
        self.clock = FakeClock()
        self.broker = FakeBroker(self.clock, tps)
        self.broker.on_committed = check_commit
        self.bucket = Bucket()
        self.broker.group = self.group = group_of(style, self.clock, tps)
        self.workers: list[FakeWorker] = []
        self._boots: Counter[str] = Counter()
        self._n = 0

    def worker(
        self,
        name: str = "a",
        *,
        rules: Rules | None = None,
        parts: Parts | None = None,
        point: Point = no_point,
        start: bool = True,
        journal: FakeJournal | None = None,
    ) -> FakeWorker:
        """Start a worker."""
        member = member_of(self.group, name, parts or Parts())
        self._boots[name] += 1
        boot = f"boot{self._boots[name]}" if self._boots[name] > 1 else "boot"
        worker = FakeWorker(
            name, self.broker, member, self.clock, self.bucket,
            rules=rules, parts=parts, point=point, journal=journal, boot=boot,
        )  # fmt: skip
        self.workers.append(worker)
        if start:
            worker.start()
        return worker

    def owning(self, name: str = "a", *, rules: Rules | None = None, parts: Parts | None = None) -> FakeWorker:
        """Start a worker and wait until it owns everything, knows where to go on, and is ready for a flush."""
        worker = self.worker(name, rules=rules, parts=parts)
        self.turn_until(lambda: worker.recorder.ledgers.keys() == self.broker.logs.keys())
        worker.controller.prepare()
        return worker

    def holding(self, *, records: int = 3, **how: Any) -> FakeWorker:
        """Start a worker that owns everything and holds an open batch of every TopicPartition."""
        worker = self.owning(**how)
        for tp in self.broker.logs:
            self.fill(tp, records)
        self.turn_until(lambda: worker.recorder.has_progress)
        return worker

    def flushed(self, *, is_gone: bool = True) -> FakeWorker:
        """Let a worker flush four records of each TopicPartition, in two flushes, and leave."""
        worker = self.worker()
        for _ in range(2):
            for tp in self.broker.logs:
                self.fill(tp, 2)
            self.drain()
        if is_gone:
            worker.stop.request()
            self.turn_until(lambda: worker.controller.state.phase is Phase.STOPPED)
            worker.close()
            self.workers.remove(worker)
        return worker

    def fill(self, tp: TopicPartition, records: int, user: str = canaries.USER) -> None:
        """Append records of one entry each."""
        for _ in range(records):
            self._n += 1
            self.broker.logs[tp].append(value_of(entry(user, n=self._n)), timestamp_ms=self.clock.wall_ms())

    def leave_open(self, worker: FakeWorker, tp: TopicPartition) -> None:
        """Have another producer's transaction open over a TopicPartition, under the membership of a worker."""
        epoch = self.broker.init("another")
        self.broker.begin("another", epoch)
        generation, member, *_ = worker.consumer.membership()
        self.broker.send_offsets("another", epoch, {tp: CommittedOffset(4)}, generation=generation, member_id=member)

    def turn_until(self, done: Callable[[], bool], *, turns: int = 400) -> None:
        """Turn all workers' loops until something holds."""
        for _ in range(turns):
            if done():
                return
            self.tick()
            for worker in self.workers:
                if not worker.consumer.closed:
                    worker.step()
        raise AssertionError(f"not within {turns} turns")

    def turn_for(self, seconds: float) -> None:
        """Turn all workers' loops while time passes."""
        end_s = self.clock.now_s() + seconds
        while self.clock.now_s() < end_s:
            self.pass_time(5.0)
            for worker in self.workers:
                worker.step()

    def tick(self) -> None:
        """Let every library's thread do its part."""
        self.broker.expire()
        self.group.tick()
        for worker in self.workers:
            if worker.consumer.is_member_running:
                worker.consumer.member.background()

    def pass_time(self, seconds: float, *, except_for: FakeWorker | None = None) -> None:
        """Let time pass; `except_for` is a stopped process, which sends no heartbeats."""
        while seconds > 0:
            self.clock.advance(min(seconds, 5.0))
            seconds -= 5.0
            self.broker.expire()
            self.group.tick()
            for worker in self.workers:
                if worker is not except_for and worker.consumer.is_member_running:
                    worker.consumer.member.background()

    def committed(self) -> dict[TopicPartition, int | None]:
        """Give all committed offsets."""
        return {tp: self.broker.committed_offset(tp) for tp in self.broker.logs}

    def drain(self) -> None:
        """Turn until everything is committed, then check every invariant."""
        ends = {tp: log.records[-1].offset + 1 for tp, log in self.broker.logs.items() if log.records}
        self.turn_until(lambda: all((self.broker.committed_offset(tp) or 0) >= end for tp, end in ends.items()))
        self.check()

    def check(self, **kafka: Any) -> None:
        """Check I1 to I5, by the given settings or those of the fakes."""
        check_all(self.broker, self.bucket, **kafka)


TWO = P0, P1


def owning(style: str = COOPERATIVE, tps: tuple[TopicPartition, ...] = TWO, **how: Any) -> tuple[Rig, FakeWorker]:
    """Give a world and its worker, which owns everything."""
    rig = Rig(style, tps)
    return rig, rig.owning(**how)


def holding(style: str = COOPERATIVE, tps: tuple[TopicPartition, ...] = TWO, **how: Any) -> tuple[Rig, FakeWorker]:
    """Give a world and its worker, which holds an open batch."""
    rig = Rig(style, tps)
    return rig, rig.holding(**how)


def flushed(style: str = COOPERATIVE, tps: tuple[TopicPartition, ...] = TWO, **how: Any) -> tuple[Rig, FakeWorker]:
    """Give a world and its worker, which has flushed and is gone."""
    rig = Rig(style, tps)
    return rig, rig.flushed(**how)
