"""A committer over the fake broker: a new epoch for every transaction, and outcomes that a script decides."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import Enum

from log_partitioner.boundary import Membership, Message
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import (
    CommitAbortedError,
    CommitUnknownError,
    FencedError,
    MembershipError,
    SourceError,
)
from log_partitioner.formats.model import CommittedOffset, TopicPartition
from tests.fakes.broker import BrokerError, FakeBroker
from tests.fakes.clock import FakeClock
from tests.fakes.consumer import Point, no_point

Aborted = str
"""The code to abort with, before the offsets are sent."""


class Outcome(Enum):
    """The end of a transaction, if it does not abort with a code."""

    COMMITTED = "committed"
    UNKNOWN_COMMITTED = "the answer to the commit is lost, the commit is not"
    UNKNOWN_OPEN = "the commit is late: the next init may abort before it arrives"
    TIMED_OUT = "the broker aborts it before the commit arrives"
    NOT_ABORTED = "it fails, and so does the abort; the next init aborts"


class FakeCommitter:
    """Fulfils `boundary.Committer`; without a script the broker alone decides."""

    def __init__(self, broker: FakeBroker, transactional_id: str, clock: FakeClock, *, point: Point = no_point) -> None:
        self.script: deque[Outcome | Aborted] = deque()
        self.calls = 0
        self.init_s = 0.07
        self.trusts_any_membership = False
        self._broker = broker
        self._id = transactional_id
        self._clock = clock
        self._point = point
        self._epoch: int | None = None

    @property
    def is_ready(self) -> bool:
        """Whether an epoch is ready that no transaction was begun in."""
        return self._epoch is not None

    def prepare(self, *, deadline: Deadline | None = None) -> None:
        """Begin a new epoch, which aborts an open transaction. Takes `init_s`, or until the deadline."""
        if self._epoch is None:
            self._point("init")
            if deadline is not None and deadline.remaining_s() < self.init_s:
                self._clock.advance(deadline.remaining_s())
                raise CommitAbortedError("no producer for transactions", code="_TIMED_OUT")
            self._clock.advance(self.init_s)
            self._epoch = self._broker.init(self._id)

    def commit(
        self,
        messages: Iterable[Message],
        offsets: Mapping[TopicPartition, CommittedOffset],
        membership: Membership,
        *,
        deadline: Deadline,
    ) -> None:
        """Run one transaction."""
        self.calls += bool(messages)
        if not membership.is_proof and not self.trusts_any_membership:
            raise MembershipError(f"generation {membership.generation}, member id {membership.member_id!r}")
        assert offsets, "W1: a transaction without offsets"
        generation, member_id, *_ = membership

        def send(epoch: int) -> None:
            self._broker.send_offsets(self._id, epoch, offsets, generation=generation, member_id=member_id)
            self._point("offsets_sent")

        self._run(messages, deadline, send)

    def publish(self, messages: Iterable[Message], *, deadline: Deadline) -> None:
        """Run one transaction of messages alone."""
        self._run(messages, deadline, lambda _epoch: None)

    def _run(self, messages: Iterable[Message], deadline: Deadline, send: Callable[[int], None]) -> None:
        self.prepare(deadline=deadline)
        epoch, self._epoch = self._epoch, None
        assert epoch is not None, "prepared"
        outcome = self.script.popleft() if self.script else Outcome.COMMITTED
        asked = False
        try:
            self._point("begin")
            self._broker.begin(self._id, epoch)
            for message in messages:
                self._broker.produce(self._id, epoch, message)
            self._point("produced")
            _require_no_abort(outcome, deadline)
            send(epoch)
            if outcome is Outcome.NOT_ABORTED:
                raise CommitAbortedError("the abort failed, too", code="_TRANSPORT")
            asked = True
            self._end(epoch, outcome)
        except BrokerError as error:
            if asked:
                raise CommitUnknownError(error.code, code=error.code) from error
            self._abort(epoch)
            raise _aborted(error) from error

    def _end(self, epoch: int, outcome: Outcome | Aborted) -> None:
        if outcome is Outcome.UNKNOWN_OPEN:
            self._broker.delay_end(self._id, epoch)
            raise CommitUnknownError("no answer", code="_TIMED_OUT")
        if outcome is Outcome.TIMED_OUT:
            self._clock.advance(60.1)
            self._broker.expire()
        self._point("ending")
        self._broker.end(self._id, epoch, commit=True)
        self._point("ended")
        if outcome is Outcome.UNKNOWN_COMMITTED:
            raise CommitUnknownError("no answer", code="_TIMED_OUT")

    def _abort(self, epoch: int) -> None:
        with suppress(BrokerError):  # then the next init aborts
            self._broker.end(self._id, epoch, commit=False)

    def close(self) -> None:
        """Let the producer go."""
        self._epoch = None


def _require_no_abort(outcome: Outcome | Aborted, deadline: Deadline) -> None:
    if isinstance(outcome, str):
        raise BrokerError(outcome)
    if deadline.has_passed():
        raise BrokerError("_TIMED_OUT")


def _aborted(error: BrokerError) -> CommitAbortedError | FencedError | SourceError:
    if error.fatal:
        return FencedError(error.code, code=error.code)
    if error.code == "OFFSET_METADATA_TOO_LARGE":
        return SourceError(error.code)
    return CommitAbortedError(error.code, code=error.code)
