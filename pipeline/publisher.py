"""The transaction of the backfill: the pipeline's only user of `confluent_kafka.Producer`.

A new producer for every transaction, as in the worker: librdkafka has no KIP-890 and retries EndTxn by itself, so a
delayed one could hit the next transaction of the same epoch (DESIGN 4.2). All producers of a group's backfills have
one transactional id: whoever opens next ends, and fences, what was open before.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from pipeline.errors import BrokerError, OvertakenError
from pipeline.kafka import client_options

if TYPE_CHECKING:
    from service.config import Settings
    from service.core import exchange

_INIT_TRY_S = 10.0
_COMMIT_TRY_S = 5.0
_MESSAGE_MAX_BYTES = 1_000_000  # librdkafka's default
_FENCED = {
    KafkaError._FENCED,  # noqa: SLF001 - librdkafka's own codes begin with an underscore
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
}


class UnknownOutcomeError(BrokerError):
    """A commit was asked for and not answered: what has become of it is seen after the next `open`."""


class Publisher:
    """Publishes messages in transactions under one static id; for one thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings.kafka
        self._transactional_id = settings.backfill_transactional_id
        self._ready: Producer | None = None
        self._log = structlog.get_logger("publisher")

    def open(self) -> None:
        """Make a producer ready, and fence every earlier one.

        Blocks until the broker has ended what an earlier one left open: on return, all that they have committed is
        visible, and nothing of theirs will be committed any more.

        Raises:
            BrokerError: not ready within twice the transaction time-out, or refused.
        """
        self._ready = None
        producer = Producer(self._options())
        deadline = time.monotonic() + 2 * self._settings.transaction_timeout_s
        while True:
            try:
                producer.init_transactions(_INIT_TRY_S)
                break
            except KafkaException as error:
                problem = error.args[0]
                if problem.fatal() or not problem.retriable() or time.monotonic() > deadline:
                    raise BrokerError(f"no producer for transactions: {problem.str()}") from error
                self._log.warning("init_transactions_repeated", code=problem.name(), message=problem.str())
        self._ready = producer

    def commit(self, messages: Sequence[exchange.Message]) -> None:
        """Publish all of these in one transaction, or none; `open` comes before.

        Raises:
            OvertakenError: another publisher has opened since; nothing of this is visible.
            UnknownOutcomeError: the next `open` ends it, and the topics tell.
            BrokerError: nothing of this is visible; it cannot be published.
        """
        producer, self._ready = self._ready, None  # never used again, whatever happens
        assert producer is not None, "open makes a producer ready"
        self._fill(producer, messages)
        self._end(producer)

    def _fill(self, producer: Producer, messages: Sequence[exchange.Message]) -> None:
        deliveries = _Deliveries()
        try:
            producer.begin_transaction()
            for message in messages:
                self._produce(producer, message, deliveries)
            producer.flush(self._settings.transaction_timeout_s)
            deliveries.require(len(messages))
        except (KafkaException, BufferError, SystemError) as error:
            raise _failure(error) from error

    def _produce(self, producer: Producer, message: exchange.Message, deliveries: _Deliveries) -> None:
        deadline = time.monotonic() + self._settings.transaction_timeout_s
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
                if time.monotonic() > deadline:
                    raise
                producer.poll(0.1)
            else:
                producer.poll(0)
                return

    def _end(self, producer: Producer) -> None:
        deadline = time.monotonic() + self._settings.transaction_timeout_s
        while True:
            try:
                producer.commit_transaction(_COMMIT_TRY_S)
            except (KafkaException, SystemError) as error:
                problem = _problem_of(error)
                if problem is not None and (problem.txn_requires_abort() or problem.code() in _FENCED):
                    raise _failure(error) from error
                if problem is not None and problem.retriable() and time.monotonic() < deadline:
                    self._log.warning("commit_transaction_repeated", code=problem.name(), message=problem.str())
                    continue
                raise UnknownOutcomeError(f"the outcome of a transaction is not known: {error}") from error
            else:
                return

    def _options(self) -> dict[str, str | int | float | bool]:
        kafka = self._settings
        return {
            **client_options(kafka),
            **kafka.producer_properties,
            "client.id": "log-partitioner-backfill",
            "transactional.id": self._transactional_id,
            "transaction.timeout.ms": round(kafka.transaction_timeout_s * 1000),
            "enable.idempotence": True,
            "acks": "all",
            "compression.type": "zstd",
            "linger.ms": 5,
            "allow.auto.create.topics": False,
            # A broker refuses a batch, not a message, that is larger than max.message.bytes.
            "batch.size": kafka.message_bytes_max,
            "message.max.bytes": max(_MESSAGE_MAX_BYTES, kafka.message_bytes_max),
        }


def _failure(error: BaseException) -> BrokerError | OvertakenError:
    """Say what a failed transaction means; it is left to the next `open`, here or elsewhere, to abort it."""
    problem = _problem_of(error)
    if problem is not None and (problem.fatal() or problem.code() in _FENCED):
        return OvertakenError(
            f"another backfill of this group has opened a transaction since, or ours has timed out: {problem.str()}"
        )
    return BrokerError(f"a transaction failed: {error if problem is None else problem.str()}")


def _problem_of(error: BaseException) -> KafkaError | None:
    if isinstance(error, SystemError) and error.__cause__ is not None:
        error = error.__cause__  # the binding calls a delivery report with an exception set
    return error.args[0] if isinstance(error, KafkaException) else None


class _Deliveries:
    """Counts delivery reports; every message must be acknowledged before the commit."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self.error: KafkaError | None = None

    def __call__(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.error = self.error or error

    def require(self, messages: int) -> None:
        """Raise KafkaException unless all are acknowledged."""
        if self.error is not None:
            raise KafkaException(self.error)
        if self.acknowledged != messages:
            timed_out = KafkaError._TIMED_OUT  # noqa: SLF001
            raise KafkaException(KafkaError(timed_out, f"{self.acknowledged} of {messages} messages are acknowledged"))
