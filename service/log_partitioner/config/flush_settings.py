"""The section of settings about flushes, with the one budget from which all time-outs follow.

The relations between them (W10, DESIGN 4.7) hold by construction for every budget that is accepted.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from log_partitioner.config.section import SECONDS, TAKES_TIME, PositiveBytes, PositiveInt, PositiveSeconds, Section

ABORT_S = 10.0  # for an abort, after a flush that came to nothing
ANSWER_MARGIN_S = 20.0  # for answers about offsets, beyond the transaction time-out of a worker that died
POLL_MARGIN_S = 15.0  # of max.poll.interval, for what no deadline bounds
BUDGET_MIN_S = 20  # half of it is a time-out of transactions, which socket.timeout.ms of producers may not exceed
BROKER_TRANSACTION_TIMEOUT_MAX_S = 900  # transaction.max.timeout.ms, the broker's default
BudgetSeconds = Annotated[
    float, Field(ge=BUDGET_MIN_S, le=2 * BROKER_TRANSACTION_TIMEOUT_MAX_S, json_schema_extra=SECONDS), TAKES_TIME
]


class FlushSettings(Section):
    """The triggers of a flush, and its time budget."""

    interval_s: PositiveSeconds = 30
    """Seconds a batch stays open at most."""
    bytes_max: PositiveBytes = 256 * 1024 * 1024
    """Bytes of source records in a batch."""
    entries_max: PositiveInt = 2_000_000
    """Entries in a batch."""
    budget_s: BudgetSeconds = 120
    """Seconds a flush may take: three quarters for sealing and uploads, the rest for the transaction. All time-outs follow from it: of a revoke, of transactions, between two polls (DESIGN 4.7)."""

    @property
    def commit_budget_s(self) -> float:
        """Seconds for the transaction of a flush."""
        return self.budget_s / 4

    @property
    def upload_deadline_s(self) -> float:
        """Seconds for sealing and all uploads of a flush."""
        return self.budget_s - self.commit_budget_s

    @property
    def store_answer_s(self) -> float:
        """Seconds without an answer of the store, after which there is time for another try."""
        return self.budget_s / 2

    @property
    def revoke_budget_s(self) -> float:
        """Seconds for which a flush may hold up a rebalance or a stop."""
        return self.budget_s * 5 / 6

    @property
    def backoff_max_s(self) -> float:
        """Longest pause after flushes that failed one after another."""
        return self.budget_s / 4

    @property
    def transaction_timeout_s(self) -> float:
        """Seconds after which the broker aborts an open transaction: longer than a commit may take."""
        return self.budget_s / 2

    @property
    def settle_s(self) -> float:
        """Seconds reserved for the steps after a flush: an abort, another's open transaction, committed offsets."""
        return ABORT_S + self.transaction_timeout_s + ANSWER_MARGIN_S

    @property
    def max_poll_interval_s(self) -> float:
        """Seconds between two polls, after which a worker loses its place: a flush, and the steps after it."""
        return 2 * self.budget_s + 60

    @property
    def poll_budget_s(self) -> float:
        """Seconds for everything between two polls, callbacks included."""
        return self.max_poll_interval_s - POLL_MARGIN_S

    @property
    def no_membership_max_s(self) -> float:
        """Seconds out of the group, or without any broker that answers, after which the process ends.

        A slow flush and a rebalance behind it are shorter. The worker waits for a full group without limit.
        """
        return 2 * self.max_poll_interval_s

    @property
    def live_max_s(self) -> float:
        """Seconds without a turn of the loop after which /livez fails."""
        return self.max_poll_interval_s + 60
