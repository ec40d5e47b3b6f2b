"""The transaction: the only user of `confluent_kafka.Producer`. Fulfils `boundary.Committer`.

A new producer for every transaction: librdkafka has no KIP-890 and retries EndTxn by itself, so a delayed one could
hit the next transaction of the same epoch, unseen by us; InitProducerId raises the epoch (ADR 3, KAFKA_FACTS F2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any

import confluent_kafka
import structlog
from confluent_kafka import KafkaError, KafkaException

from log_partitioner.adapters.kafka.errors import (
    is_fatal,
    is_no_topic,
    not_permitted,
    without_end,
    without_topic,
)
from log_partitioner.adapters.kafka.log import Brokers, fields_of, make_client
from log_partitioner.adapters.kafka.values import offset_to_library
from log_partitioner.boundary import Clock, Membership, Message
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import (
    CommitAbortedError,
    CommitUnknownError,
    FencedError,
    LeavingError,
    MembershipError,
    SourceError,
    StopError,
    TokenError,
)
from log_partitioner.formats.model import CommittedOffset, TopicPartition
from log_partitioner.patience import Patience

TIMED_OUT = KafkaError._TIMED_OUT  # noqa: SLF001 - librdkafka's own codes begin with an underscore
_INIT_TRY_S = 0.5  # the next call goes on where the last one ended; in between we read log lines and see a stop
_ABORT_S = 10.0  # after the deadline; if `send_offsets` has used them up, the next init aborts
_COMMIT_TRY_S = 1.0
_TOPICS_S = 2.0  # without an acknowledgement, after which the topics are asked for
_FLUSH_TRY_S = 0.5
_ABANDONED, _NO_TOKEN = "ABANDONED", "NO_TOKEN"
_BY_KEY, _NOW = -1, 0  # RD_KAFKA_PARTITION_UA, and no timestamp of the caller's
# Offsets that are sent at once are one record batch of the coordinator (KAFKA_FACTS T16).
_OFFSETS_BYTES_MAX = 500_000
_OFFSET_BYTES = 400  # of one, with the group's name, beside topic and metadata
_HOPELESS = {
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.INVALID_TRANSACTION_TIMEOUT,
    KafkaError._AUTHENTICATION,  # noqa: SLF001
}
_NOT_AUTHORISED = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}

_Offsets = tuple[list[confluent_kafka.TopicPartition], Any]  # sent at once, with the library's group metadata


@dataclass(eq=False, repr=False)
class KafkaCommitter:
    """Commits messages and offsets together; used by the loop thread only.

    `patience` ends once the worker is asked to leave, `patience_of_flush` once the flush is abandoned.
    """

    options: Mapping[str, Any]
    _: KW_ONLY
    init_budget_s: float
    clock: Clock
    brokers: Brokers = field(default_factory=Brokers)
    patience: Patience = field(default_factory=Patience)
    patience_of_flush: Patience = field(default_factory=Patience)

    def __post_init__(self) -> None:
        self._ready: confluent_kafka.Producer | None = None
        self._log = structlog.get_logger("committer")
        self.trouble: str | None = None
        """Why no commit is possible, if an operator can mend that; None if nothing is wrong."""

    @property
    def is_ready(self) -> bool:
        """Whether a producer is ready that no transaction was begun on."""
        return self._ready is not None

    def prepare(self, *, deadline: Deadline | None = None) -> None:
        """Make a producer ready; blocks until the broker has ended the transaction that an earlier one left open.

        Raises:
            CommitAbortedError: not ready by the deadline; nothing was asked for.
            StopError: refused, or without a deadline not ready within the committer's own budget.
            LeavingError: asked to leave meanwhile.
        """
        self._prepare(deadline, self.patience)

    def _prepare(self, deadline: Deadline | None, patience: Patience) -> None:
        if self._ready is not None:
            return
        begun_s = self.brokers.now_s()
        until = Deadline.after(self.init_budget_s, self.clock.now_s) if deadline is None else deadline
        try:
            producer = make_client(confluent_kafka.Producer, "producer", self.options, self.brokers)
        except TokenError as error:
            if deadline is None:
                raise
            raise CommitAbortedError(str(error), code=_NO_TOKEN) from error
        unended = without_end(self.options.get("transactional.id"), self.options.get("bootstrap.servers"))
        while True:
            try:
                producer.init_transactions(min(_INIT_TRY_S, until.timeout_s()))
                break
            except KafkaException as error:
                with suppress(KafkaException):  # a fatal error comes once more
                    producer.poll(0)  # hands over the library's lines about the brokers
                problem = error.args[0]
                if problem.code() != TIMED_OUT:  # that was an answer: the broker is not silent
                    begun_s = self.brokers.now_s()
                self.brokers.waited(str(self.options.get("bootstrap.servers", "")), begun_s)
                told = self.brokers.trouble() or problem.str()
                if problem.code() == KafkaError.CONCURRENT_TRANSACTIONS:
                    told = self.trouble = unended
                if problem.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                    told = self._not_permitted()
                what = f"no producer for transactions: {problem.name()}: {told}"
                is_refused = problem.code() in _HOPELESS or is_fatal(problem)
                if is_refused or (deadline is None and until.has_passed()):
                    raise StopError(what) from error
                if until.has_passed():
                    raise CommitAbortedError(what, code=problem.name()) from error
                patience.require()
                if problem.code() != TIMED_OUT and (times := self.brokers.pace.times(problem.code())):
                    self._log.warning("init_transactions_repeated", **fields_of(problem), times=times)
        self.brokers.answered()
        self.trouble = None if self.trouble == unended else self.trouble
        self._ready = producer

    def _not_permitted(self) -> str:
        transactional_id, servers = self.options.get("transactional.id"), self.options.get("bootstrap.servers")
        told = not_permitted("transactional-id", str(transactional_id), ["Write"], servers)
        return f"{told} (or what it begins with, by --resource-pattern-type prefixed)"

    def commit(
        self,
        messages: Iterable[Message],
        offsets: Mapping[TopicPartition, CommittedOffset],
        membership: Membership,
        *,
        deadline: Deadline,
    ) -> None:
        """Run one transaction: begin, produce all, send offsets, commit. W7: it is open only in here.

        Ends up to 10 s after the deadline: time for an abort, or for an answer for which librdkafka goes on waiting.

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
        self._run(messages, deadline, [(some, membership.raw) for some in _at_once(offsets)])

    def commit_without_member(
        self,
        messages: Iterable[Message],
        offsets: Mapping[TopicPartition, CommittedOffset],
        membership: Membership,
        *,
        deadline: Deadline,
    ) -> None:
        """Run one transaction with offsets of a group without members; ends and raises as `commit` does.

        The caller must make sure that there are none, because a classic group takes it in any case (KAFKA_FACTS F3).
        """
        self._run(messages, deadline, [(some, membership.raw) for some in _at_once(offsets)])

    def publish(self, messages: Iterable[Message], *, deadline: Deadline) -> None:
        """Run one transaction of messages alone; ends and raises as `commit` does."""
        self._run(messages, deadline, ())

    def _run(self, messages: Iterable[Message], deadline: Deadline, offsets: Iterable[_Offsets]) -> None:
        self._prepare(deadline, self.patience_of_flush)
        producer, self._ready = self._ready, None  # never used again, whatever happens
        assert producer is not None, "prepare makes a producer ready"
        self._fill(producer, messages, deadline, offsets)
        self._end(producer, deadline)
        self.trouble = None

    def _fill(
        self,
        producer: confluent_kafka.Producer,
        messages: Iterable[Message],
        deadline: Deadline,
        offsets: Iterable[_Offsets],
    ) -> None:
        deliveries = _Deliveries()
        try:
            producer.begin_transaction()
            sent = 0
            for message in messages:
                self._produce(producer, message, deliveries, deadline)
                sent += 1
            self._await(producer, deliveries, deadline)
            deliveries.require(sent)
            for some, group in offsets:
                send = partial(producer.send_offsets_to_transaction, some, group, deadline.timeout_s())
                self.patience_of_flush.ask(send)
        except LeavingError as error:  # the worker does not wait for an abort either: the next init or a time-out does
            raise CommitAbortedError("the flush is abandoned", code=_ABANDONED) from error
        except (KafkaException, BufferError, SystemError) as error:
            self.trouble = deliveries.refusal() or self.trouble
            raise self._aborted(producer, error, deadline) from error

    def _await(self, producer: confluent_kafka.Producer, deliveries: _Deliveries, deadline: Deadline) -> None:
        """Wait for the acknowledgements; if they do not come, ask whether the topics are there.

        The library waits half a minute for a missing topic, because it may be about to be made.
        """
        ask_at_s = deadline.now_s() + _TOPICS_S
        while producer.flush(deadline.at_most(_FLUSH_TRY_S).timeout_s()) and not deadline.has_passed():
            self.patience_of_flush.require()
            if deadline.now_s() >= ask_at_s:
                ask_at_s = deadline.at_s
                self._require_topics(producer, sorted(+deliveries.waiting), deadline)

    def _require_topics(self, producer: confluent_kafka.Producer, topics: Iterable[str], deadline: Deadline) -> None:
        for topic in topics:
            try:
                found = producer.list_topics(topic, timeout=deadline.at_most(_TOPICS_S).timeout_s()).topics[topic].error
            except KafkaException:
                return  # brokers that do not answer are waited for
            if found is not None and is_no_topic(found):
                self.trouble = without_topic(topic, self.options.get("bootstrap.servers"))
                raise KafkaException(KafkaError(found.code(), self.trouble))

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
                    partition=_BY_KEY if message.partition is None else message.partition,
                    timestamp=message.timestamp_ms or _NOW,
                    on_delivery=partial(deliveries, message.topic),
                )
                deliveries.waiting[message.topic] += 1
            except BufferError:
                if deadline.has_passed():
                    raise
                self.patience_of_flush.require()
                producer.poll(0.1)
            else:
                producer.poll(0)
                return

    def _end(self, producer: confluent_kafka.Producer, deadline: Deadline) -> None:
        """Commit, within the deadline.

        Without a time-out librdkafka asks for as long as the coordinator is out of reach. With one, its state may be
        wrong afterwards (KAFKA_FACTS T6), which does no harm, because a producer is never reused.
        """
        while True:
            try:
                left_s = max(_COMMIT_TRY_S, deadline.remaining_s())
                self.patience_of_flush.ask(partial(producer.commit_transaction, left_s))
            except LeavingError as error:
                raise CommitUnknownError("the flush is abandoned while it commits", code=_ABANDONED) from error
            except (KafkaException, SystemError) as error:
                problem = _problem_of(error)
                if problem is None:
                    raise CommitUnknownError(str(error), code=type(error).__name__) from error
                if problem.txn_requires_abort():
                    raise self._aborted(producer, error, deadline) from error
                if problem.retriable() and not is_fatal(problem) and not deadline.has_passed():
                    self._log.warning("commit_transaction_repeated", **fields_of(problem))
                    continue
                raise CommitUnknownError(problem.str(), code=problem.name()) from error
            else:
                return

    def _aborted(self, producer: confluent_kafka.Producer, error: Exception, deadline: Deadline) -> Exception:
        """Abort the transaction; if that fails, the next producer's init aborts it, because no commit was asked for."""
        problem = _problem_of(error)
        if problem is not None and is_fatal(problem):  # nothing can be asked of this producer any more
            if problem.code() in _HOPELESS:
                return SourceError(f"the transaction is not permitted: {problem.name()}: {problem.str()}")
            who = f"another process has the name of this worker ({self.options['transactional.id']})"
            stopped = "it was stopped for longer than its transaction may take"
            return FencedError(f"{problem.str()}: {who}, or {stopped}", code=problem.name())
        until = Deadline(deadline.at_s + _ABORT_S, deadline.now_s).at_most(_ABORT_S)
        try:
            self.patience_of_flush.ask(partial(producer.abort_transaction, until.timeout_s()))
        except (KafkaException, SystemError, LeavingError) as failure:
            why = _problem_of(failure)
            self._log.warning("abort_failed", **(fields_of(why) if why else {"message": str(failure)}))
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


def _at_once(offsets: Mapping[TopicPartition, CommittedOffset]) -> Iterator[list[confluent_kafka.TopicPartition]]:
    """Cut offsets into groups that are sent at once."""
    some: list[confluent_kafka.TopicPartition] = []
    size = 0
    for tp, committed in offsets.items():
        weight = _OFFSET_BYTES + len(tp.topic) + len(committed.metadata.encode())
        if some and size + weight > _OFFSETS_BYTES_MAX:
            yield some
            some, size = [], 0
        some.append(offset_to_library(tp, committed))
        size += weight
    yield some


def _problem_of(error: BaseException) -> KafkaError | None:
    """Find the broker's or librdkafka's error in an exception.

    If a fatal error and a delivery report come in the same call, the binding raises SystemError with the KafkaException
    as its cause, because it calls the report with an exception set.
    """
    if isinstance(error, SystemError) and error.__cause__ is not None:
        error = error.__cause__
    return error.args[0] if isinstance(error, KafkaException) else None


class _Deliveries:
    """Counts delivery reports; every message must be acknowledged before the commit (KAFKA_FACTS T8)."""

    def __init__(self) -> None:
        self.waiting: Counter[str] = Counter()
        self.acknowledged = 0
        self.error: KafkaError | None = None

    def __call__(self, topic: str, error: KafkaError | None, _message: object) -> None:
        if error is None:
            self.acknowledged += 1
            self.waiting[topic] -= 1
        elif self.error is None or self.error.code() < 0 <= error.code():  # a broker's word before the library's
            told = f"topic {topic} takes no message: {error.str()}"
            self.error = KafkaError(error.code(), told, fatal=error.fatal())

    def refusal(self) -> str | None:
        """Name the topic that takes no message, if a broker has said so."""
        return None if self.error is None or self.error.code() < 0 else self.error.str()

    def require(self, messages: int) -> None:
        """Raise KafkaException unless all are acknowledged."""
        if self.error is not None:
            raise KafkaException(self.error)
        if self.acknowledged != messages:
            where = ", ".join(f"{count} of {topic}" for topic, count in sorted((+self.waiting).items()))
            told = f"{self.acknowledged} of {messages} messages are acknowledged; not: {where}"
            raise KafkaException(KafkaError(TIMED_OUT, told))
