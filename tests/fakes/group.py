"""Group coordinators: classic (cooperative) and KIP-848, with generations, member ids and time-outs.

`validate` is copied from Apache Kafka's `ClassicGroup.validateOffsetCommit` and
`ConsumerGroup.validateOffsetCommit`, with the bypass of the first (KAFKA_FACTS F3).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from log_partitioner.boundary import Clock
from log_partitioner.formats.model import TopicPartition
from tests.fakes.broker import BrokerError

TopicPartitions = frozenset[TopicPartition]
NONE: TopicPartitions = frozenset()


@dataclass(slots=True)
class _ClassicMember:
    seen_at_s: float
    joined: bool = False
    owned: TopicPartitions = NONE
    assignment: TopicPartitions = NONE


class ClassicGroup:
    """Join, sync, heartbeat, leave. A generation begins when all members have joined or their time is over."""

    def __init__(
        self,
        clock: Clock,
        tps: Iterable[TopicPartition],
        *,
        session_s: float = 30.0,
        rebalance_s: float = 300.0,
    ) -> None:
        self.generation = 0
        self.initial_members = 1  # the first generation waits for so many (group.initial.rebalance.delay.ms)
        self.members: dict[str, _ClassicMember] = {}
        self._clock = clock
        self._tps = sorted(tps)
        self._session_s = session_s
        self._rebalance_s = rebalance_s
        self._preparing_since_s: float | None = None
        self._ids = itertools.count(1)

    def join(self, member_id: str, owned: TopicPartitions) -> str:
        """Join or join again; returns the member id."""
        if member_id and member_id not in self.members:
            raise BrokerError("UNKNOWN_MEMBER_ID")
        if not member_id:
            member_id = f"member-{next(self._ids):04}"
            self.members[member_id] = _ClassicMember(self._clock.now_s())
        self._prepare()
        member = self.members[member_id]
        member.joined, member.owned, member.seen_at_s = True, owned, self._clock.now_s()
        self.tick()
        return member_id

    def sync(self, member_id: str) -> tuple[int, TopicPartitions] | None:
        """Give generation and assignment; None while others are waited for."""
        if member_id not in self.members:
            raise BrokerError("UNKNOWN_MEMBER_ID")
        self.members[member_id].seen_at_s = self._clock.now_s()
        self.tick()
        if self._preparing_since_s is not None:
            return None
        return self.generation, self.members[member_id].assignment

    def heartbeat(self, member_id: str, generation: int) -> None:
        """Stay a member."""
        self.tick()
        if member_id not in self.members:
            raise BrokerError("UNKNOWN_MEMBER_ID")
        self.members[member_id].seen_at_s = self._clock.now_s()
        if self._preparing_since_s is not None:
            raise BrokerError("REBALANCE_IN_PROGRESS")
        if generation != self.generation:
            raise BrokerError("ILLEGAL_GENERATION")

    def leave(self, member_id: str) -> None:
        """Leave."""
        if self.members.pop(member_id, None) is not None:
            self._prepare()
            self.tick()

    def tick(self) -> None:
        """Put out those whose time is over; begin the generation when every member is there."""
        now_s = self._clock.now_s()
        gone = [one for one, member in self.members.items() if now_s - member.seen_at_s > self._session_s]
        since_s = self._preparing_since_s
        if since_s is not None and now_s - since_s > self._rebalance_s:
            gone += [one for one, member in self.members.items() if not member.joined and one not in gone]
        for member_id in gone:
            del self.members[member_id]
        if gone:
            self._prepare()
        if not self.generation and len(self.members) < self.initial_members:
            return
        if self._preparing_since_s is not None and all(member.joined for member in self.members.values()):
            self._begin_generation()

    def validate(
        self, generation: int, member_id: str, tps: Collection[TopicPartition], *, transactional: bool
    ) -> None:
        """Raise BrokerError unless this member may commit; the group does not compare its TopicPartitions."""
        del tps
        self.tick()
        if generation < 0 and not self.members:
            return
        if generation >= 0 or member_id:
            if member_id not in self.members:
                raise BrokerError("UNKNOWN_MEMBER_ID")
            if generation != self.generation:
                raise BrokerError("ILLEGAL_GENERATION")
        elif not transactional and self.members:
            raise BrokerError("UNKNOWN_MEMBER_ID")
        if not transactional and self._preparing_since_s is not None and self.members[member_id].joined:
            raise BrokerError("REBALANCE_IN_PROGRESS")

    def _prepare(self) -> None:
        if self._preparing_since_s is None:
            self._preparing_since_s = self._clock.now_s()
            for member in self.members.values():
                member.joined = False

    def _begin_generation(self) -> None:
        self.generation += 1
        self._preparing_since_s = None
        owned = {one: member.owned for one, member in self.members.items()}
        target = sticky_assignment(owned, self._tps)
        for one, member in self.members.items():
            others = frozenset().union(*(tps for other, tps in owned.items() if other != one))
            member.assignment = target[one] - others  # what another still owns comes in the next generation
            member.joined = False


@dataclass(slots=True)
class _Member848:
    seen_at_s: float
    epoch: int = 0
    held: TopicPartitions = NONE
    since: dict[TopicPartition, int] = field(default_factory=dict)


class ConsumerGroup:
    """KIP-848: each member has an epoch of its own and is moved to its target step by step."""

    def __init__(self, clock: Clock, tps: Iterable[TopicPartition], *, session_s: float = 45.0) -> None:
        self.epoch = 0
        self.is_lenient = True
        self.members: dict[str, _Member848] = {}
        self._target: dict[str, TopicPartitions] = {}
        self._clock = clock
        self._tps = sorted(tps)
        self._session_s = session_s

    def join(self, member_id: str) -> None:
        """Become a member under an id of the client's choice."""
        self.members[member_id] = _Member848(self._clock.now_s())
        self._retarget()

    def heartbeat(self, member_id: str, epoch: int, owned: TopicPartitions | None) -> tuple[int, TopicPartitions]:
        """Report what is owned (None: nothing new to report); returns epoch and what to own."""
        self.tick()
        member = self.members.get(member_id)
        if member is None or epoch > member.epoch:
            raise BrokerError("FENCED_MEMBER_EPOCH")
        member.seen_at_s = self._clock.now_s()
        if owned is not None:
            member.held = owned
            member.since = {tp: since for tp, since in member.since.items() if tp in owned}
        target = self._target[member_id]
        if not member.held <= target:
            return member.epoch, member.held & target
        member.epoch = self.epoch
        if owned is not None:
            taken = frozenset().union(*(other.held for one, other in self.members.items() if one != member_id))
            member.since |= dict.fromkeys(target - taken - member.held, member.epoch)
            member.held |= target - taken
        return member.epoch, member.held

    def leave(self, member_id: str) -> None:
        """Leave."""
        if self.members.pop(member_id, None) is not None:
            self._retarget()

    def tick(self) -> None:
        """Put out those whose session is over."""
        now_s = self._clock.now_s()
        gone = [one for one, member in self.members.items() if now_s - member.seen_at_s > self._session_s]
        for member_id in gone:
            del self.members[member_id]
        if gone:
            self._retarget()

    def validate(
        self, generation: int, member_id: str, tps: Collection[TopicPartition], *, transactional: bool
    ) -> None:
        """Raise BrokerError unless id and epoch are those of a member.

        With the current epoch the offsets are not compared. With an older one only TopicPartitions that the member has
        owned since then pass, if the broker knows that (KIP-1251, Kafka 4.3); otherwise none does.
        """
        del transactional
        self.tick()
        if generation < 0 and not self.members:
            return
        member = self.members.get(member_id)
        if member is None:
            raise BrokerError("UNKNOWN_MEMBER_ID")
        if generation == member.epoch:
            return
        owned_since = (member.since.get(tp, member.epoch + 1) for tp in tps)
        if self.is_lenient and generation < member.epoch and all(since <= generation for since in owned_since):
            return
        raise BrokerError("ILLEGAL_GENERATION")  # STALE_MEMBER_EPOCH, as older requests get it

    def _retarget(self) -> None:
        self.epoch += 1
        self._target = sticky_assignment({one: member.held for one, member in self.members.items()}, self._tps)


def sticky_assignment(
    owned: Mapping[str, TopicPartitions], tps: Iterable[TopicPartition]
) -> dict[str, TopicPartitions]:
    """Balance; who owns something keeps it as far as that is fair."""
    tps = sorted(tps)
    if not owned:
        return {}
    members = sorted(owned)
    most = -(-len(tps) // len(members))
    target: dict[str, list[TopicPartition]] = {one: [] for one in members}
    free = []
    for tp in tps:
        owner = next((one for one in members if tp in owned[one] and len(target[one]) < most), None)
        if owner is None:
            free.append(tp)
        else:
            target[owner].append(tp)
    for tp in free:
        target[min(members, key=lambda one: (len(target[one]), one))].append(tp)
    while True:  # nobody has two more than another
        least = min(members, key=lambda one: (len(target[one]), one))
        fullest = max(members, key=lambda one: (len(target[one]), one))
        if len(target[fullest]) - len(target[least]) <= 1:
            return {one: frozenset(some) for one, some in target.items()}
        target[least].append(target[fullest].pop())
