"""The client side of the group protocols: what librdkafka's own thread does, callbacks only being queued.

Modelled on rdkafka_cgrp.c (2.16): losing the session resets the member id (classic) or the epoch (KIP-848) at once,
while the callback waits for the application; a member that waits for a callback does not join again before; and when
it is put out while an ordinary revoke is waiting, that one is *not* turned into a loss (KAFKA_FACTS F6).
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Protocol

from log_partitioner.boundary import Membership
from tests.fakes.broker import BrokerError
from tests.fakes.group import NONE, ClassicGroup, ConsumerGroup, TopicPartitions


class Callback(Enum):
    """Kafka's three."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


Queued = tuple[Callback, TopicPartitions]


class Member(Protocol):
    """One member's client side."""

    queue: deque[Queued]
    owned: TopicPartitions

    def background(self) -> None:
        """Do what the library's thread does."""
        ...

    def served(self, callback: Queued) -> None:
        """Hear that the application's callback has returned and the library has (un)assigned."""
        ...

    def membership(self) -> Membership:
        """Give the group metadata."""
        ...

    def leave(self) -> None:
        """Leave the group."""
        ...


class ClassicMember:
    """Cooperative: what is kept is owned all the time."""

    def __init__(self, group: ClassicGroup) -> None:
        self.queue: deque[Queued] = deque()
        self.owned: TopicPartitions = NONE
        self._group = group
        self._member_id = ""
        self._generation = -1
        self._joining = False
        self._rejoin = False

    def membership(self) -> Membership:
        """Give the group metadata as the library has it."""
        return Membership(self._generation, self._member_id, (self._generation, self._member_id))

    def background(self) -> None:
        """Heartbeat, join, sync."""
        if self.queue:
            self._keep_session()
        elif self._joining:
            self._await_generation()
        elif not self._member_id:
            if self.owned:
                self.queue.append((Callback.LOST, self.owned))
            else:
                self._join()
        else:
            self._heartbeat()

    def served(self, callback: Queued) -> None:
        """Join again after a revoke that others wait for, or a loss."""
        kind, _ = callback
        self._rejoin = self._rejoin or kind is Callback.REVOKED
        if self._rejoin and not self.queue:
            self._rejoin = False
            if self._member_id:
                self._join()

    def leave(self) -> None:
        """Leave the group."""
        self._group.leave(self._member_id)
        self._put_out()

    def _keep_session(self) -> None:
        try:
            self._group.heartbeat(self._member_id, self._generation)
        except BrokerError as error:
            if error.code == "UNKNOWN_MEMBER_ID":
                self._put_out()  # what is queued stays what it was: a revoke of what others own by now

    def _heartbeat(self) -> None:
        try:
            self._group.heartbeat(self._member_id, self._generation)
        except BrokerError as error:
            if error.code == "REBALANCE_IN_PROGRESS":
                self._join()
            else:
                self._put_out()

    def _join(self) -> None:
        try:
            self._member_id = self._group.join(self._member_id, self.owned)
        except BrokerError:
            self._put_out()
        else:
            self._joining = True
            self._await_generation()

    def _await_generation(self) -> None:
        try:
            answer = self._group.sync(self._member_id)
        except BrokerError:
            self._put_out()
            return
        if answer is None:
            return
        self._joining = False
        self._generation, assignment = answer
        if gone := self.owned - assignment:
            self.queue.append((Callback.REVOKED, gone))
        self.queue.append((Callback.ASSIGNED, assignment - self.owned))

    def _put_out(self) -> None:
        self._member_id, self._generation, self._joining = "", -1, False


class Member848:
    """A member of a KIP-848 group; its id is its own and stays."""

    def __init__(self, group: ConsumerGroup, member_id: str) -> None:
        self.queue: deque[Queued] = deque()
        self.owned: TopicPartitions = NONE
        self._group = group
        self._member_id = member_id
        self._epoch = 0

    def membership(self) -> Membership:
        """Give the group metadata as the library has it."""
        return Membership(self._epoch, self._member_id, (self._epoch, self._member_id), outlives_fencing=True)

    def background(self) -> None:
        """Heartbeat; the epoch may move without a callback."""
        if not self._epoch and not self._join():
            return
        try:
            report = None if self.queue else self.owned
            self._epoch, assignment = self._group.heartbeat(self._member_id, self._epoch, report)
        except BrokerError:
            self._epoch = 0
            return
        if report is None:
            return
        if gone := self.owned - assignment:
            self.queue.append((Callback.REVOKED, gone))
        if new := assignment - self.owned:
            self.queue.append((Callback.ASSIGNED, new))

    def served(self, callback: Queued) -> None:
        """Nothing: the next heartbeat reports what is owned."""

    def leave(self) -> None:
        """Leave the group."""
        self._group.leave(self._member_id)
        self._epoch = 0

    def _join(self) -> bool:
        """Join, once what was owned is given up."""
        if self.queue:
            return False
        if self.owned:
            self.queue.append((Callback.LOST, self.owned))
            return False
        self._group.join(self._member_id)
        return True


class HastyMember848(Member848):
    """One that joins again at once, before the application has heard that it was put out: no library does."""

    _is_lost = False

    def background(self) -> None:
        """Queue the loss behind whatever waits, and go on as a member."""
        self._is_lost = self._is_lost or not self._epoch
        if self._is_lost and not self.queue:
            self._is_lost = False
            if self.owned:
                self.queue.append((Callback.LOST, self.owned))
        super().background()

    def _join(self) -> bool:
        self._group.join(self._member_id)
        return True
