"""A broker: source topics, committed offsets, transactions with epochs, and what read_committed readers see.

Rules copied from Apache Kafka: `TransactionCoordinator` (init raises the epoch and aborts what is open; an expired
transaction fences its producer), `OffsetMetadataManager` (offsets of an open transaction are pending; the commit that
is appended last stands), and the group's validation in `tests.fakes.group`. Like the real broker it does not check that
a member owns the TopicPartitions that it commits.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from log_partitioner.boundary import Clock, Message
from log_partitioner.formats.model import CommittedOffset, TopicPartition
from tests.fakes.log import FakeLog

LATE_S = 5.0  # of a request to commit whose sender has given up
METADATA_CHARS_MAX = 4096  # offset.metadata.max.bytes


class BrokerError(Exception):
    """An error code of the broker; `fatal` ones end the producer."""

    def __init__(self, code: str, *, fatal: bool = False) -> None:
        super().__init__(code)
        self.code = code
        self.fatal = fatal


class Group(Protocol):
    """The group coordinator, as the broker asks it."""

    def validate(
        self, generation: int, member_id: str, tps: Collection[TopicPartition], *, transactional: bool
    ) -> None:
        """Raise BrokerError unless this member may commit offsets of these."""
        ...


@dataclass(slots=True)
class _Transaction:
    began_at_s: float
    messages: list[Message] = field(default_factory=list)
    offsets: dict[TopicPartition, tuple[int, CommittedOffset]] = field(default_factory=dict)  # with append numbers
    others: dict[TopicPartition, int | None] = field(default_factory=dict)


@dataclass(slots=True)
class _Producer:
    epoch: int = 0
    open: _Transaction | None = None


class Committed(NamedTuple):
    """One committed transaction, as read_committed readers see it.

    `before` are all committed offsets: its own as they were before it ended, all others as they were when its own were
    sent, since until it ends others may commit those.
    """

    transactional_id: str
    messages: list[Message]
    offsets: Mapping[TopicPartition, int]
    before: Mapping[TopicPartition, int | None]


class FakeBroker:
    """Owns everything durable on the side of Kafka."""

    def __init__(self, clock: Clock, tps: Iterable[TopicPartition], *, transaction_timeout_s: float = 60.0) -> None:
        self.clock = clock
        self.logs = {tp: FakeLog(tp) for tp in tps}
        self.topic_ids = {tp.topic: _topic_id(tp.topic) for tp in self.logs}
        self.group: Group | None = None
        self.transactions: list[Committed] = []
        self.aborted = 0
        self.starts: dict[TopicPartition, int] = {}
        """The offsets at which the group began, if an administrator has set them."""
        self.start_at_ms = 0
        """TopicPartitions without a committed offset are read from this time on."""
        self.on_committed: Callable[[Committed], None] = lambda _committed: None
        self._timeout_s = transaction_timeout_s
        self._producers: dict[str, _Producer] = {}
        self._late_ends: dict[str, tuple[int, float]] = {}
        self._offsets: dict[TopicPartition, tuple[int, CommittedOffset]] = {}
        self._history: list[tuple[TopicPartition, CommittedOffset | None]] = []
        self._loaded: dict[TopicPartition, CommittedOffset | None] = {}
        self._loaded_until_s = 0.0
        self._appended = 0

    # Reading.

    def messages(self, topic: str) -> list[Message]:
        """Give what a read_committed reader of a topic gets."""
        return [message for one in self.transactions for message in one.messages if message.topic == topic]

    def committed(self, tp: TopicPartition) -> CommittedOffset | None:
        """Give what is committed, whatever is pending."""
        return self._offsets[tp][1] if tp in self._offsets else None

    def committed_offset(self, tp: TopicPartition) -> int | None:
        """Give the number of it."""
        return self._offsets[tp][1].offset if tp in self._offsets else None

    def told(self, tp: TopicPartition) -> CommittedOffset | None:
        """Give what the coordinator answers, which may have loaded a part only."""
        if tp in self._loaded and self.clock.now_s() < self._loaded_until_s:
            return self._loaded[tp]
        return self.committed(tp)

    def load_part(self, share: float, *, seconds: float) -> None:
        """Let the coordinator know only the first share of the committed offsets for a while (KAFKA_FACTS O10).

        It knows at least the first offset of each TopicPartition that was not removed.
        """
        part = dict(self._history[: int(len(self._history) * share)])
        self._loaded = {tp: one for tp, one in (dict(reversed(self._history)) | part).items() if one is not None}
        self._loaded_until_s = self.clock.now_s() + seconds

    def is_stable(self, tp: TopicPartition) -> bool:
        """Whether no open transaction has an offset for it (require-stable)."""
        return not any(one.open is not None and tp in one.open.offsets for one in self._producers.values())

    # Committing outside transactions.

    def reset(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Set or remove committed offsets as a tool for administrators does."""
        for tp, offset in offsets.items():
            self._store(tp, None if offset is None else CommittedOffset(offset))
            if offset is not None:
                self.starts[tp] = offset

    def alter(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit offsets as an administrator: into a group without members, metadata too."""
        self._validate(-1, "", offsets, transactional=False)
        for tp, committed in offsets.items():
            self._store(tp, committed)

    def _store(self, tp: TopicPartition, committed: CommittedOffset | None, number: int | None = None) -> None:
        self._appended += number is None
        self._history.append((tp, committed))
        if committed is None:
            self._offsets.pop(tp, None)
        else:
            self._offsets[tp] = (self._appended if number is None else number, committed)

    # Topics.

    def grow(self, tp: TopicPartition) -> None:
        """Add a TopicPartition."""
        self.logs[tp] = FakeLog(tp)

    def remake(self, topic: str, *, keep_offsets: bool) -> str:
        """Delete a topic and make it anew under its name; gives its new id.

        The brokers drop the offsets of a topic that is deleted, but not what is committed afterwards.
        """
        tps = [tp for tp in self.logs if tp.topic == topic]
        self.logs |= {tp: FakeLog(tp) for tp in tps}
        self.topic_ids[topic] = _topic_id(self.topic_ids[topic])
        if not keep_offsets:
            self.reset(dict.fromkeys(tps))
        return self.topic_ids[topic]

    # Transactions.

    def init(self, transactional_id: str) -> int:
        """Begin a new epoch, and abort the transaction that an earlier epoch left open."""
        producer = self._producers.setdefault(transactional_id, _Producer())
        self._abort(producer)
        producer.epoch += 1
        return producer.epoch

    def begin(self, transactional_id: str, epoch: int) -> None:
        """Open a transaction."""
        producer = self._require(transactional_id, epoch)
        assert producer.open is None, "one transaction at a time"
        producer.open = _Transaction(self.clock.now_s())

    def produce(self, transactional_id: str, epoch: int, message: Message) -> None:
        """Append a message that no reader sees yet."""
        self._require_open(transactional_id, epoch).messages.append(message)

    def send_offsets(
        self,
        transactional_id: str,
        epoch: int,
        offsets: Mapping[TopicPartition, CommittedOffset],
        *,
        generation: int,
        member_id: str,
    ) -> None:
        """Add offsets to the transaction; ownership is not looked at."""
        self._deliver_late_end(transactional_id)
        transaction = self._require_open(transactional_id, epoch)
        self._validate(generation, member_id, offsets, transactional=True)
        for tp, committed in offsets.items():
            self._appended += 1
            transaction.offsets[tp] = (self._appended, committed)
        transaction.others = {tp: self.committed_offset(tp) for tp in self.logs}

    def end(self, transactional_id: str, epoch: int, *, commit: bool) -> None:
        """Commit or abort."""
        producer = self._require(transactional_id, epoch)
        transaction = producer.open
        if transaction is None:
            raise BrokerError("INVALID_TXN_STATE", fatal=True)
        if not commit:
            self._abort(producer)
            return
        producer.open = None
        before = transaction.others | {tp: self.committed_offset(tp) for tp in transaction.offsets}
        for tp, (number, committed) in transaction.offsets.items():
            if tp not in self._offsets or number > self._offsets[tp][0]:
                self._store(tp, committed, number)
        offsets = {tp: committed.offset for tp, (_, committed) in transaction.offsets.items()}
        done = Committed(transactional_id, transaction.messages, offsets, before)
        self.transactions.append(done)
        self.on_committed(done)

    def delay_end(self, transactional_id: str, epoch: int) -> None:
        """Keep a request to commit on its way, for LATE_S or until the next transaction of this id is half written."""
        self._late_ends[transactional_id] = epoch, self.clock.now_s()

    def _deliver_late_end(self, transactional_id: str) -> None:
        """Let it arrive: it ends what is open in the epoch that it carries, and nothing else (KAFKA_FACTS F2)."""
        epoch, _ = self._late_ends.pop(transactional_id, (None, 0.0))
        if epoch is not None:
            with suppress(BrokerError):
                self.end(transactional_id, epoch, commit=True)

    def _deliver_late_ends(self) -> None:
        """Deliver those whose own transaction has been open for so long."""
        for transactional_id, (_, sent_at_s) in list(self._late_ends.items()):
            own = self._producers[transactional_id].open
            if own is not None and own.began_at_s <= sent_at_s <= self.clock.now_s() - LATE_S:
                self._deliver_late_end(transactional_id)

    def expire(self) -> None:
        """Abort transactions that are open for too long and fence their producers; late requests arrive before."""
        self._deliver_late_ends()
        for producer in self._producers.values():
            if producer.open is not None and self.clock.now_s() - producer.open.began_at_s >= self._timeout_s:
                self._abort(producer)
                producer.epoch += 1

    def publish(self, messages: Iterable[Message]) -> None:
        """Append messages outside any transaction: every reader sees them."""
        self.transactions.append(Committed("", list(messages), {}, {}))

    def _validate(
        self, generation: int, member_id: str, offsets: Mapping[TopicPartition, CommittedOffset], *, transactional: bool
    ) -> None:
        if self.group is not None:
            self.group.validate(generation, member_id, offsets.keys(), transactional=transactional)
        if any(len(committed.metadata) >= METADATA_CHARS_MAX for committed in offsets.values()):  # the NUL counts
            raise BrokerError("OFFSET_METADATA_TOO_LARGE")

    def _abort(self, producer: _Producer) -> None:
        if producer.open is not None:
            producer.open = None
            self.aborted += 1

    def _require(self, transactional_id: str, epoch: int) -> _Producer:
        self.expire()
        producer = self._producers.get(transactional_id)
        if producer is None or producer.epoch != epoch:
            raise BrokerError("_FENCED", fatal=True)
        return producer

    def _require_open(self, transactional_id: str, epoch: int) -> _Transaction:
        transaction = self._require(transactional_id, epoch).open
        if transaction is None:
            raise BrokerError("INVALID_TXN_STATE", fatal=True)
        return transaction


def _topic_id(topic: str) -> str:
    """Make an id as Kafka's tools write them."""
    return base64.urlsafe_b64encode(hashlib.sha256(topic.encode()).digest()[:16]).decode().rstrip("=")
