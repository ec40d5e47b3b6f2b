"""The transactions of the backfill: the worker's own transaction class, without offsets (DESIGN 4.2).

All producers of a group's backfills have one transactional id: the next one to open ends and fences the open
transaction of an earlier one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from log_partitioner.adapters.clock import SystemClock
from log_partitioner.adapters.kafka.committer import KafkaCommitter
from log_partitioner.adapters.kafka.options import producer_options
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import CodedError, CommitUnknownError, LogPartitionerError
from log_partitioner_pipeline.errors import BrokerError, OvertakenError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from log_partitioner.boundary import Message
    from log_partitioner.config.settings import Settings


class UnknownOutcomeError(BrokerError):
    """A commit was asked for and not answered; its outcome is visible after the next `open`."""


class Publisher:
    """Publishes messages in transactions under one static id; for one thread."""

    def __init__(self, settings: Settings) -> None:
        options = producer_options(settings, worker="backfill", transactional_id=settings.backfill_transactional_id)
        self._timeout_s = settings.flush.transaction_timeout_s
        self._clock = SystemClock()
        self._committer = KafkaCommitter(options, init_budget_s=2 * self._timeout_s, clock=self._clock)

    def open(self) -> None:
        """Make a producer ready, and fence every earlier one.

        Blocks until the broker has ended the transactions that earlier ones left open. On return, everything they have
        committed is visible, and nothing of theirs will be committed any more.

        Raises:
            BrokerError: not ready within twice the transaction time-out, or refused.
        """
        self._committer.close()
        try:
            self._committer.prepare()
        except LogPartitionerError as error:
            raise BrokerError(str(error)) from error

    def commit(self, messages: Iterable[Message]) -> None:
        """Publish all of these in one transaction, or none; `open` comes before.

        Raises:
            OvertakenError: another publisher has opened since, or this transaction has timed out.
            UnknownOutcomeError: the next `open` ends it, and the topics tell.
            BrokerError: nothing of this is visible; it cannot be published.
        """
        assert self._committer.is_ready, "open makes a producer ready"
        try:
            self._committer.publish(messages, deadline=Deadline.after(self._timeout_s, self._clock.now_s))
        except LogPartitionerError as error:
            if isinstance(error, CodedError) and error.is_fenced:
                raise OvertakenError(
                    f"another backfill of this group has opened a transaction since, or ours has timed out: {error}"
                ) from error
            if isinstance(error, CommitUnknownError):
                raise UnknownOutcomeError(f"the outcome of a transaction is not known: {error}") from error
            raise BrokerError(f"a transaction failed: {error}") from error
