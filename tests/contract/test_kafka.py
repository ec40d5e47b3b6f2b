"""The contracts of consumer and committer, for the fakes, in both ways of handing out TopicPartitions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from log_partitioner.boundary import Consumer, Message
from log_partitioner.control.flush_history import OurGroup
from log_partitioner.errors import CommitAbortedError, CommitUnknownError, StartPositionError
from log_partitioner.formats.model import CommittedOffset, TopicPartition
from tests.contract import kafka_suite
from tests.contract.kafka_suite import CommitterContract, ConsumerContract, FlushRecordsContract, Reading, soon
from tests.fakes.broker import FakeBroker
from tests.fakes.clock import FakeClock
from tests.fakes.committer import FakeCommitter, Outcome
from tests.fakes.consumer import FakeConsumer
from tests.fakes.flush_records import FakeFlushRecords
from tests.fakes.records import P0, P1
from tests.fakes.rig import STYLES, group_of, member_of
from tests.fakes.worker import Parts

reading = kafka_suite.reading


class FakeKafka:
    """A broker and a group, without workers."""

    tps = (P0, P1)
    announcements = "announcements"

    def __init__(self, style: str) -> None:
        self._clock = FakeClock()
        self._broker = FakeBroker(self._clock, self.tps)
        self._broker.group = self._group = group_of(style, self._clock, self.tps)
        self._consumers: list[FakeConsumer] = []

    def append(self, tp: TopicPartition, *values: bytes) -> None:
        """Append records."""
        for value in values:
            self._broker.logs[tp].append(value)

    def append_aborted(self, tp: TopicPartition) -> None:
        """Append a record that was aborted, and the marker."""
        self._broker.logs[tp].append_hole()
        self._broker.logs[tp].append_hole()

    def append_open(self, tp: TopicPartition) -> Callable[[], None]:
        """Append what is not read, with what is behind it, until it is aborted."""
        log = self._broker.logs[tp]
        log.open_at = log.end
        log.append_hole()

        def abort() -> None:
            log.open_at = None
            log.append_hole()

        return abort

    def elect(self, tp: TopicPartition) -> None:
        """Begin the next leader epoch."""
        self._broker.logs[tp].leader_epoch += 1

    def consumer(self) -> Consumer:
        """Make a consumer; whatever it does, the other libraries' threads do theirs."""
        member = member_of(self._group, f"member-{len(self._consumers)}", Parts())
        consumer = FakeConsumer(self._broker, member, self._clock, point=lambda _name: self._background())
        self._consumers.append(consumer)
        return consumer

    def _background(self) -> None:
        for consumer in self._consumers:
            if consumer.is_member_running:
                consumer.member.background()

    def committer(self, transactional_id: str) -> FakeCommitter:
        """Make a committer."""
        return FakeCommitter(self._broker, transactional_id, self._clock)

    def announce(self, *values: bytes) -> None:
        """Append committed values to the announcements."""
        self._broker.publish(Message(self.announcements, None, value, []) for value in values)

    def flush_records(self, group_id: str) -> FakeFlushRecords:
        """Give a reader of flush records."""
        return FakeFlushRecords(self._broker, self.announcements, OurGroup(group_id))

    def announced(self) -> list[bytes | None]:
        """Read what is committed."""
        return [message.value for message in self._broker.messages(self.announcements)]

    def now_s(self) -> float:
        """The virtual clock."""
        return self._clock.now_s()


@pytest.fixture(params=STYLES)
def kafka(request: pytest.FixtureRequest) -> FakeKafka:
    """Give a Kafka."""
    return FakeKafka(request.param)


class TestFakeConsumer(ConsumerContract):
    """The fake, and an election, which is the library's mock cluster's in test_unreadable.py."""

    def test_leader_epoch_that_ended_before_the_offset_is_refused_by_a_seek(
        self, kafka: FakeKafka, reading: Reading
    ) -> None:
        """The log had it, and was rewritten below the offset; the same offset of the epoch of now is read."""
        first, _ = kafka.tps
        kafka.append(first, *[b"a"] * 4)
        kafka.elect(first)
        kafka.append(first, *[b"b"] * 9)
        reading.until(lambda: len(reading.records) == 13)
        reading.consumer.seek(first, CommittedOffset(10, leader_epoch=1), deadline=soon(kafka))
        reading.until(lambda: reading.offsets(first)[13:] == [10, 11, 12])
        reading.consumer.seek(first, CommittedOffset(10, leader_epoch=0), deadline=soon(kafka))
        with pytest.raises(StartPositionError):
            reading.until(lambda: len(reading.records) > 16)


class TestFakeFlushRecords(FlushRecordsContract):
    """The fake."""


class TestFakeCommitter(CommitterContract):
    """The fake, and the outcomes that only a script brings about."""

    @pytest.mark.parametrize(("outcome", "is_committed"), [("UNKNOWN_COMMITTED", True), ("UNKNOWN_OPEN", False)])
    def test_unknown_outcome_is_known_after_the_next_init(
        self, kafka: FakeKafka, reading: Reading, outcome: str, *, is_committed: bool
    ) -> None:
        """Messages and offsets are both there, or neither is; the committed offset tells."""
        first, _ = kafka.tps
        committer = kafka.committer("one")
        committer.script.append(Outcome[outcome])
        with pytest.raises(CommitUnknownError):
            self.commit(kafka, committer, reading.consumer.membership(), {first: 7})
        committer.prepare()
        assert self.committed(kafka, reading, first) == (7 if is_committed else None)
        assert kafka.announced() == ([b"announced"] if is_committed else [])

    def test_commit_whose_producer_is_not_ready_in_time_is_aborted(self, kafka: FakeKafka, reading: Reading) -> None:
        """By the deadline of the callback, not by the committer's own budget; nothing was asked for."""
        first, _ = kafka.tps
        committer = kafka.committer("one")
        committer.init_s = 40.0
        began_s = kafka.now_s()
        with pytest.raises(CommitAbortedError):
            self.commit(kafka, committer, reading.consumer.membership(), {first: 7})
        assert kafka.now_s() - began_s == pytest.approx(30.0)
        assert self.committed(kafka, reading, first) is None
