"""Workers by hand: a worker's steps on the real adapters, one by one, so that a test can stop between any two of them.

A hand reads records of the source, announces each by its offset, and commits both in one transaction, as a flush does
with references. Its fences can be taken out, which no setting of the product can do: that makes the controls.
"""

import struct
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from log_partitioner.adapters.clock import SystemClock
from log_partitioner.adapters.kafka.committer import KafkaCommitter
from log_partitioner.adapters.kafka.consumer import KafkaConsumer
from log_partitioner.adapters.kafka.options import consumer_options, producer_options
from log_partitioner.boundary import Membership, Message
from log_partitioner.config.settings import FlushSettings, KafkaSettings, S3Settings, Settings
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import DiscardError
from log_partitioner.formats.model import CommittedOffset, TopicPartition
from tests.integration.segments import coordinator
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tools.local.kafka import KafkaCluster
from tools.local.tcp_proxy import API_HEARTBEAT, API_TXN_OFFSET_COMMIT, HeldRequest

RECORDS = 3
SESSION_S = 3.0
WAIT_S = 60.0
COMMITTED = "committed"


class Stage:
    """A source whose first TopicPartition has some records, a group that reads it, and a topic for announcements."""

    def __init__(
        self,
        cluster: KafkaCluster,
        kafka: KafkaHelper,
        names: Names,
        *,
        announcements: str | None = None,
        partitions: int = 1,
    ) -> None:
        self.cluster = cluster
        self.kafka = kafka
        self.group = names.group()
        self.source = TopicPartition(kafka.create_topic(names.topic("source"), partitions=partitions), 0)
        self.announcements = announcements or kafka.create_topic(names.topic("references"))
        kafka.produce(self.source.topic, [ToProduce(value=b"%d" % number, partition=0) for number in range(RECORDS)])
        self._hands: list[Hand] = []

    def hand(
        self,
        name: str,
        *,
        beside: bool = False,
        transactional_id: str | None = None,
        committer: type[KafkaCommitter] = KafkaCommitter,
        transaction_timeout_s: float = 60.0,
        **consumer_properties: Any,
    ) -> "Hand":
        """Make a worker; it reaches the brokers through the proxies, or with `beside` past them."""
        settings = Settings(
            kafka=KafkaSettings(
                bootstrap_servers=self.kafka.bootstrap_servers if beside else self.cluster.bootstrap_servers,
                group_id=self.group,
                source_topics=(self.source.topic,),
                session_timeout_s=SESSION_S,
                client_properties={"fetch.wait.max.ms": "50"},
            ),
            s3=S3Settings(bucket="bucket"),
            flush=FlushSettings(budget_s=2 * transaction_timeout_s),
        )
        full_id = self.transactional_id(transactional_id or name)
        made = Hand(
            self,
            KafkaConsumer(consumer_options(settings, worker=name) | consumer_properties, [self.source.topic]),
            committer(
                producer_options(settings, worker=name, transactional_id=full_id),
                init_budget_s=WAIT_S,
                clock=SystemClock(),
            ),
        )
        self._hands.append(made)
        return made

    def transactional_id(self, name: str) -> str:
        """Return a transactional id of this stage."""
        return f"{self.group}.{name}"

    def hold_at(self, api_key: int, name: str = "") -> HeldRequest:
        """Hold the next request of a kind, to the coordinator of a worker's transactions or to that of the group."""
        of_group = api_key in (API_HEARTBEAT, API_TXN_OFFSET_COMMIT)
        number = self.group_coordinator if of_group else self.transaction_coordinator(name)
        return self.cluster.proxies[number].hold_at(api_key)

    @property
    def group_coordinator(self) -> int:
        """The index of the broker that coordinates the group."""
        return coordinator(self.kafka, "__consumer_offsets", self.group)

    def transaction_coordinator(self, name: str) -> int:
        """Return the index of the broker that coordinates a worker's transactions."""
        return coordinator(self.kafka, "__transaction_state", self.transactional_id(name))

    def stop_network(self) -> None:
        """Let nothing pass any more: to the brokers, a worker behind the proxies is a stopped one."""
        for proxy in self.cluster.proxies:
            proxy.hold()

    def start_network(self) -> None:
        """Let everything pass that was held, and what comes."""
        for proxy in self.cluster.proxies:
            proxy.heal()

    def settle(self) -> None:
        """Wait until the markers of all hands' transactions are written: a commit returns when it is decided."""
        for hand in self._hands:
            hand.settle()

    def announced(self) -> list[str]:
        """Return what a reader of committed announcements gets, sorted: the offset of each record that is announced."""
        return sorted((one.value() or b"").decode() for one in self.kafka.read_committed(self.announcements))

    def committed(self) -> int | None:
        """Return the committed offset of the source."""
        return self.kafka.committed_offsets(self.group, self.source.topic).get(0)

    def close(self) -> None:
        """Let all hands leave, those first that own: others may wait for them to join."""
        self.start_network()
        for hand in reversed(self._hands):
            hand.close()


ONCE = [str(number) for number in range(RECORDS)]
TWICE = sorted(ONCE * 2)


class Hand:
    """One worker; only one thread at a time may call it."""

    def __init__(self, stage: Stage, consumer: KafkaConsumer, committer: KafkaCommitter) -> None:
        self.consumer = consumer
        self.committer = committer
        self.heard: list[str] = []
        self.read: list[int] = []
        self.starts: dict[TopicPartition, int] = {}
        self._new: set[TopicPartition] = set()
        self.at_revoke: Callable[[], None] = lambda: None
        self.membership = Membership(-1, "", None)
        self._stage = stage
        self._is_closed = False

    # Callbacks.

    def on_assigned(self, tps: frozenset[TopicPartition]) -> None:
        """Take note."""
        self.heard.append("assigned")
        self._new |= tps

    def on_revoked(self, tps: frozenset[TopicPartition]) -> None:
        """Do what the test wants done."""
        self.heard.append("revoked")
        self._new -= tps
        self.at_revoke()

    def on_lost(self, tps: frozenset[TopicPartition]) -> None:
        """Take note."""
        self.heard.append("lost")
        self._new -= tps

    # Steps.

    def join(self) -> None:
        """Make a producer ready, which ends what an earlier one of its id left open; then join the group."""
        self.committer.prepare()
        self.consumer.subscribe(self)

    def turn(self) -> None:
        """Seek what is new where the group has committed, once that is stable, or at the beginning; then poll."""
        if self._new:
            found = self.consumer.committed(sorted(self._new), deadline=_soon())
            self.starts = {tp: 0 if one is None else one.offset for tp, one in found.items()}
            for tp, one in found.items():
                self.consumer.seek(tp, one or CommittedOffset(0), deadline=_soon())
            self._new.clear()
        self.read += (one.offset for one in self.consumer.consume(records_max=100, timeout_s=0.1))

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        """Poll until something holds."""

        def holds() -> bool:
            self.turn()
            return condition()

        self._stage.kafka.wait_for(what, holds, timeout_s=WAIT_S)

    def read_all(self) -> None:
        """Read all records there are, as the member that it is then."""
        self.until("all records", lambda: len(self.read) == RECORDS)
        self.membership = self.consumer.membership()

    def commit(self, offsets: Collection[int] | None = None, membership: Membership | None = None) -> None:
        """Announce what was read and commit the offset behind it, in one transaction; raises as the committer does."""
        read = self.read if offsets is None else offsets
        messages = [Message(self._stage.announcements, None, b"%d" % offset, ()) for offset in read]
        behind = {self._stage.source: CommittedOffset(max(read) + 1)}
        self.committer.commit(messages, behind, membership or self.membership, deadline=_soon())

    def settle(self) -> None:
        """Wait until the marker of its last transaction is written: the next producer of its id cannot begin before."""
        self.committer.prepare()

    def begin_commit(self, offsets: Collection[int] | None = None) -> "Begun":
        """Commit beside the test, which goes on meanwhile."""
        return Begun(lambda: self.commit(offsets))

    def close(self) -> None:
        """Leave."""
        if not self._is_closed:
            self._is_closed = True
            self.committer.close()
            self.consumer.close()


def outcome_of(what: Callable[[], None]) -> str:
    """Do something, and return that it is committed, or the error by which it is discarded, and its code."""
    try:
        what()
    except DiscardError as error:
        return f"{type(error).__name__}: {getattr(error, 'code', '')}"
    return COMMITTED


class Begun:
    """An action that runs beside the test, in a thread."""

    def __init__(self, what: Callable[[], None]) -> None:
        self._what = what
        self._outcome = ""
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._outcome = outcome_of(self._what)
        except BaseException as error:  # noqa: BLE001 - raised again by the test's thread
            self._error = error

    @property
    def goes_on(self) -> bool:
        """Whether it has not ended yet."""
        return self._thread.is_alive()

    def outcome(self) -> str:
        """Wait for the end; return as `outcome_of` does."""
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "it has an end"
        if self._error is not None:
            raise self._error
        return self._outcome


# Fences taken out.


class HasNoGuard(KafkaCommitter):
    """Sends whatever group metadata it is given, proof or none."""

    def commit(
        self,
        messages: Iterable[Message],
        offsets: Mapping[TopicPartition, CommittedOffset],
        membership: Membership,
        *,
        deadline: Deadline,
    ) -> None:
        """Commit as the member that the metadata names."""
        super().commit(messages, offsets, Membership(1, "passes", membership.raw), deadline=deadline)


class CommitsAsNobody(HasNoGuard):
    """Sends its offsets with generation -1 and an empty member id, as producers did before KIP-447."""

    def commit(
        self,
        messages: Iterable[Message],
        offsets: Mapping[TopicPartition, CommittedOffset],
        membership: Membership,
        *,
        deadline: Deadline,
    ) -> None:
        """Commit as no member."""
        super().commit(messages, offsets, Membership(-1, "", _as_nobody(membership.raw)), deadline=deadline)


def _as_nobody(raw: object) -> bytes:
    """Return the library's bytes of group metadata without generation and member id."""
    assert isinstance(raw, bytes)
    start = len(b"CGMDv2:")
    group, _, rest = raw[start + 4 :].partition(b"\0")
    return raw[:start] + struct.pack("<i", -1) + group + b"\0\0" + rest.partition(b"\0")[2]


class KeepsItsProducer(KafkaCommitter):
    """Has one producer, and so one epoch, for all its transactions, as is usual with KIP-890."""

    def _run(self, messages: Iterable[Message], deadline: Deadline, offsets: Iterable[Any]) -> None:
        self.prepare()
        kept = self._ready
        super()._run(messages, deadline, offsets)
        self._ready = kept


def _soon() -> Deadline:
    """Return a deadline that no answer takes long enough for."""
    return Deadline.after(WAIT_S, SystemClock().now_s)
