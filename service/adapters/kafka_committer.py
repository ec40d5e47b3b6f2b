"""The transaction: the only user of `confluent_kafka.Producer`. Fulfils `runtime.ports.Committer`.

A new producer for every transaction: librdkafka has no KIP-890 and retries EndTxn by itself, so a delayed one could
hit the next transaction of the same epoch, unseen by us; InitProducerId raises the epoch (DESIGN 4.2, TESTING 0.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import confluent_kafka
import structlog
from confluent_kafka import KafkaError, KafkaException

from service.adapters.kafka_log import client_logger, describe
from service.adapters.kafka_values import position
from service.core.deadline import Deadline
from service.core.exchange import Clock, Membership, Message
from service.core.model import CommittedOffset, TopicPartition
from service.errors import (
    CommitAbortedError,
    CommitUnknownError,
    FencedError,
    MembershipError,
    SourceError,
    StopError,
)

TIMED_OUT = KafkaError._TIMED_OUT  # noqa: SLF001 - librdkafka's own codes begin with an underscore
_INIT_TRY_S = 10.0
_ABORT_S = 10.0  # after the deadline; where `send_offsets` has used them up, the next init aborts
_COMMIT_TRY_S = 1.0
_HOPELESS = {
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.INVALID_TRANSACTION_TIMEOUT,
    KafkaError._AUTHENTICATION,  # noqa: SLF001
}
_NOT_AUTHORISED = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}


class KafkaCommitter:
    """Commits messages and offsets together; used by the loop thread only."""

    def __init__(self, options: Mapping[str, Any], *, init_budget_s: float, clock: Clock) -> None:
        self._options = options
        self._init_budget_s = init_budget_s
        self._clock = clock
        self._ready: confluent_kafka.Producer | None = None
        self._log = structlog.get_logger("committer")

    @property
    def is_ready(self) -> bool:
        """Whether a producer is ready that no transaction was begun on."""
        return self._ready is not None

    def prepare(self, *, deadline: Deadline | None = None) -> None:
        """Make a producer ready; blocks until the broker has ended what an earlier one left open.

        Raises:
            CommitAbortedError: not ready by the deadline; nothing was asked for.
            StopError: refused, or without a deadline not ready within the committer's own budget.
        """
        if self._ready is not None:
            return
        until = Deadline.after(self._init_budget_s, self._clock.now_s) if deadline is None else deadline
        logger, handler = client_logger("producer")
        producer = confluent_kafka.Producer({**self._options, "error_cb": handler.on_error}, logger=logger)
        while True:
            try:
                producer.init_transactions(min(_INIT_TRY_S, max(0.1, until.remaining_s())))
                break
            except KafkaException as error:
                problem = error.args[0]
                what = f"no producer for transactions: {problem.name()}: {problem.str()}"
                is_refused = problem.code() in _HOPELESS or problem.fatal()
                if is_refused or (deadline is None and until.has_passed()):
                    raise StopError(what) from error
                if until.has_passed():
                    raise CommitAbortedError(what, code=problem.name()) from error
                self._log.warning("init_transactions_repeated", **describe(problem))
        self._ready = producer

    def commit(
        self,
        messages: Sequence[Message],
        offsets: Mapping[TopicPartition, CommittedOffset],
        membership: Membership,
        *,
        deadline: Deadline,
    ) -> None:
        """Run one transaction: begin, produce all, send offsets, commit. W7: it is open only in here.

        Ends up to 10 s after the deadline: that is for an abort, and for an answer that librdkafka goes on to wait for.

        Raises:
            MembershipError: the membership proves nothing; nothing was sent.
            CommitAbortedError, FencedError: nothing of it is or will be visible.
            CommitUnknownError: the commit was asked for, its outcome is not known.
            SourceError: a permission is missing, or a message or metadata is larger than the broker takes.
            StopError: no producer for transactions is permitted.
        """
        if not membership.is_proof:
            raise MembershipError(f"generation {membership.generation}, member id {membership.member_id!r}")
        assert offsets, "W1: a transaction without offsets would announce data nobody accounts for"
        self.prepare(deadline=deadline)
        producer, self._ready = self._ready, None  # never used again, whatever happens
        assert producer is not None, "prepare makes a producer ready"
        self._fill(producer, messages, offsets, membership, deadline)
        self._end(producer, deadline)

    def _fill(
        self,
        producer: confluent_kafka.Producer,
        messages: Sequence[Message],
        offsets: Mapping[TopicPartition, CommittedOffset],
        membership: Membership,
        deadline: Deadline,
    ) -> None:
        deliveries = _Deliveries()
        try:
            producer.begin_transaction()
            for message in messages:
                self._produce(producer, message, deliveries, deadline)
            producer.flush(max(0.1, deadline.remaining_s()))
            deliveries.require(len(messages))
            positions = [position(tp, committed) for tp, committed in offsets.items()]
            producer.send_offsets_to_transaction(positions, membership.raw, max(0.1, deadline.remaining_s()))
        except (KafkaException, BufferError, SystemError) as error:
            raise self._aborted(producer, error, deadline) from error

    def _produce(
        self,
        producer: confluent_kafka.Producer,
        message: Message,
        deliveries: _Deliveries,
        deadline: Deadline,
    ) -> None:
        while True:
            try:
                producer.produce(
                    message.topic,
                    value=message.value,
                    key=message.key,
                    headers=list(message.headers),
                    on_delivery=deliveries,
                )
            except BufferError:
                if deadline.has_passed():
                    raise
                producer.poll(0.1)
            else:
                producer.poll(0)
                return

    def _end(self, producer: confluent_kafka.Producer, deadline: Deadline) -> None:
        """Commit, within the deadline.

        Without a time-out librdkafka asks for as long as the coordinator is out of reach. With one its state may be
        wrong afterwards (TESTING T6), which is no matter here: a producer is never used again.
        """
        while True:
            try:
                producer.commit_transaction(max(_COMMIT_TRY_S, deadline.remaining_s()))
            except (KafkaException, SystemError) as error:
                problem = _problem_of(error)
                if problem is None:
                    raise CommitUnknownError(str(error), code=type(error).__name__) from error
                if problem.txn_requires_abort():
                    raise self._aborted(producer, error, deadline) from error
                if problem.retriable() and not problem.fatal() and not deadline.has_passed():
                    self._log.warning("commit_transaction_repeated", **describe(problem))
                    continue
                raise CommitUnknownError(problem.str(), code=problem.name()) from error
            else:
                return

    def _aborted(self, producer: confluent_kafka.Producer, error: Exception, deadline: Deadline) -> Exception:
        """Abort. Where that fails the next producer's init aborts: no commit was ever asked for."""
        problem = _problem_of(error)
        if problem is not None and problem.fatal():  # nothing can be asked of this producer any more
            if problem.code() in _HOPELESS:
                return SourceError(f"the transaction is not permitted: {problem.name()}: {problem.str()}")
            return FencedError(problem.str(), code=problem.name())
        until = Deadline(deadline.at_s + _ABORT_S, deadline.now_s).at_most(_ABORT_S)
        try:
            producer.abort_transaction(max(0.1, until.remaining_s()))
        except (KafkaException, SystemError) as failure:
            why = _problem_of(failure)
            self._log.warning("abort_failed", **(describe(why) if why else {"message": str(failure)}))
        if problem is None:
            code = "BUFFER_FULL" if isinstance(error, BufferError) else type(error).__name__
            return CommitAbortedError(str(error), code=code)
        if problem.code() == KafkaError.MSG_SIZE_TOO_LARGE:  # the same message would be made again, for ever
            return SourceError(
                f"a message is larger than its topic takes: {problem.str()}: set kafka.message_bytes_max to at most "
                "max.message.bytes of the references, flushes and dead-letters topics"
            )
        if problem.code() == KafkaError.OFFSET_METADATA_TOO_LARGE:  # so would the same metadata
            return SourceError(
                "the metadata of a committed offset is larger than the broker takes: set its offset.metadata.max.bytes "
                "to 4096, Kafka's default, at least"
            )
        if problem.code() in _NOT_AUTHORISED or problem.code() in _HOPELESS:
            return SourceError(f"the transaction is not permitted: {problem.name()}: {problem.str()}")
        return CommitAbortedError(problem.str(), code=problem.name())

    def close(self) -> None:
        """Let the producer go. Not `Producer.close`: that would wait for an abort; the next init does it as well."""
        self._ready = None


def _problem_of(error: BaseException) -> KafkaError | None:
    """Find the broker's or librdkafka's word.

    Where a fatal error and a delivery report come in the same call, the binding raises SystemError, with the
    KafkaException as its cause: it calls the report with an exception set.
    """
    if isinstance(error, SystemError) and error.__cause__ is not None:
        error = error.__cause__
    return error.args[0] if isinstance(error, KafkaException) else None


class _Deliveries:
    """Counts delivery reports; every message must be acknowledged before the commit (TESTING T8)."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self.error: KafkaError | None = None

    def __call__(self, error: KafkaError | None, _message: object) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.error = self.error or error

    def require(self, messages: int) -> None:
        """Raise KafkaException unless all are acknowledged."""
        if self.error is not None:
            raise KafkaException(self.error)
        if self.acknowledged != messages:
            raise KafkaException(KafkaError(TIMED_OUT, f"{self.acknowledged} of {messages} messages are acknowledged"))
