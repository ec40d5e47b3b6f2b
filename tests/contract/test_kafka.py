"""The contracts of consumer and committer, for the fakes, in all three ways of handing out TopicPartitions."""

from __future__ import annotations

import pytest

from service.core.model import TopicPartition
from service.runtime.ports import Committer, Consumer
from tests.contract import kafka_suite
from tests.contract.kafka_suite import CommitterContract, ConsumerContract
from tests.fakes.committer import FakeCommitter
from tests.fakes.consumer import FakeConsumer
from tests.fakes.group import ConsumerGroup
from tests.fakes.member import ClassicMember, Member, Member848
from tests.fakes.records import P0, P1
from tests.fakes.rig import STYLES, Rig

reading = kafka_suite.reading


class FakeKafka:
    """A rig without workers."""

    tps = (P0, P1)
    announcements = "announcements"

    def __init__(self, style: str) -> None:
        self._rig = Rig(style)
        self._rig.broker.on_committed = lambda _committed: None
        self._members: list[Member] = []

    def append(self, tp: TopicPartition, *values: bytes) -> None:
        """Append records."""
        for value in values:
            self._rig.broker.logs[tp].append(value)

    def consumer(self) -> Consumer:
        """Make a consumer; whatever it does, the other libraries' threads do theirs."""
        group = self._rig.group
        member: Member
        if isinstance(group, ConsumerGroup):
            member = Member848(group, f"member-{len(self._members)}")
        else:
            member = ClassicMember(group)
        consumer = FakeConsumer(self._rig.broker, member, self._rig.clock, point=lambda _name: self._background())
        self._members.append(member)
        self._consumers = [*getattr(self, "_consumers", []), consumer]
        return consumer

    def _background(self) -> None:
        for consumer in self._consumers:
            if consumer.is_member_running:
                consumer.member.background()

    def committer(self, transactional_id: str) -> Committer:
        """Make a committer."""
        return FakeCommitter(self._rig.broker, transactional_id, self._rig.clock)

    def announced(self) -> list[bytes | None]:
        """Read what is committed."""
        return [message.value for message in self._rig.broker.messages(self.announcements)]

    def now_s(self) -> float:
        """The virtual clock."""
        return self._rig.clock.now_s()


@pytest.fixture(params=STYLES)
def kafka(request: pytest.FixtureRequest) -> FakeKafka:
    """Give a Kafka."""
    return FakeKafka(request.param)


class TestFakeConsumer(ConsumerContract):
    """The fake."""


class TestFakeCommitter(CommitterContract):
    """The fake."""
