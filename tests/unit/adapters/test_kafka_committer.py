"""The committer: a new producer for every transaction, every message acknowledged, every error told apart."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections import deque
from functools import partial
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from log_partitioner.adapters.kafka.committer import KafkaCommitter
from log_partitioner.adapters.kafka.log import Brokers
from log_partitioner.boundary import Membership, Message
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import (
    CommitAbortedError,
    CommitUnknownError,
    FencedError,
    MembershipError,
    SourceError,
    StopError,
    TokenError,
)
from log_partitioner.formats.model import CommittedOffset, TopicPartition
from log_partitioner.patience import Patience
from tests.fakes.clock import FakeClock
from tests.fakes.records import P0, P1
from tests.unit.adapters.scripted_kafka import ScriptedProducer, fresh_producer_class, kafka_error

MESSAGES = [Message("references", b"k", b"v1", [("h", b"x")]), Message("flushes", None, b"v2", [])]
MEMBER = Membership(3, "member", b"raw bytes")


class Bench:
    """A committer over scripted producers."""

    def __init__(self, producers: type[ScriptedProducer]) -> None:
        self.producers = producers
        self.clock = FakeClock()
        self.committer = KafkaCommitter(
            {"transactional.id": "id", "bootstrap.servers": "broker:9092"},
            init_budget_s=120.0,
            clock=self.clock,
            brokers=Brokers(self.clock.now_s),
        )

    @property
    def made(self) -> list[ScriptedProducer]:
        """All producers so far."""
        return self.producers.made

    def fail(self, call: str, *errors: Exception | None) -> None:
        """Let the next calls fail."""
        self.producers.fails.setdefault(call, deque()).extend(errors)

    def slow_down(self) -> None:
        """Let each `init_transactions` take all of its time."""
        init = self.producers.init_transactions

        def slow(producer: ScriptedProducer, timeout: float) -> None:
            self.clock.advance(timeout)
            init(producer, timeout)

        self.producers.init_transactions = slow  # type: ignore[method-assign,assignment]

    def commit(self, membership: Membership = MEMBER, seconds: float = 30.0) -> None:
        """Commit two messages and two offsets."""
        deadline = Deadline.after(seconds, self.clock.now_s)
        offsets = {P0: CommittedOffset(5, 3, "of 5"), P1: CommittedOffset(9)}
        self.committer.commit(MESSAGES, offsets, membership, deadline=deadline)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Give a bench."""
    producers = fresh_producer_class()
    monkeypatch.setattr(confluent_kafka, "Producer", producers)
    return Bench(producers)


def test_offsets_of_many_topic_partitions_are_sent_some_at_once(bench: Bench) -> None:
    """The coordinator writes what it is sent at once as one record batch: of 5,000 it refuses them for their size."""
    offsets = {
        TopicPartition("t" * 249, number): CommittedOffset(number) for number in range(2 * 770 + 1)
    }  # of 649 bytes
    deadline = Deadline.after(30.0, bench.clock.now_s)
    bench.committer.commit(iter(MESSAGES), offsets, MEMBER, deadline=deadline)
    (producer,) = bench.made
    assert producer.calls == ["init", "begin", "produce", "produce", "flush", *["offsets"] * 3, "commit"]
    assert producer.offsets.keys() == offsets.keys()


def test_commit_is_one_transaction_in_this_order(bench: Bench) -> None:
    """Init, begin, messages, all acknowledged, offsets with the metadata as it came, commit."""
    bench.commit()
    (producer,) = bench.made
    assert producer.calls == ["init", "begin", "produce", "produce", "flush", "offsets", "commit"]
    assert producer.offsets == {("source", 0): (5, 3, "of 5"), ("source", 1): (9, None, "")}
    assert producer.metadata == b"raw bytes"
    assert [one["topic"] for one in producer.produced] == ["references", "flushes"]
    assert producer.produced[0]["headers"] == [("h", b"x")]


def test_finding_2_every_transaction_has_a_producer_of_its_own(bench: Bench) -> None:
    """A delayed EndTxn of one transaction finds another epoch when the next is open: InitProducerId came between."""
    for _ in range(3):
        bench.commit()
        assert not bench.committer.is_ready
    assert len(bench.made) == 3
    assert all(one.calls[:2] == ["init", "begin"] for one in bench.made)


@pytest.mark.parametrize("call", ["begin", "produce", "flush", "offsets", "commit"])
def test_finding_2_producer_is_never_used_again_after_an_error(bench: Bench, call: str) -> None:
    """After any failure the next transaction begins with a new epoch."""
    bench.fail(call, kafka_error(KafkaError.TRANSACTION_COORDINATOR_FENCED, abortable=True))
    with pytest.raises((CommitAbortedError, CommitUnknownError)):
        bench.commit()
    assert not bench.committer.is_ready
    bench.commit()
    assert len(bench.made) == 2


@pytest.mark.parametrize("membership", [Membership(-1, "", b""), Membership(-1, "m", b""), Membership(4, "", b"")])
def test_finding_3_metadata_that_proves_nothing_never_reaches_the_broker(bench: Bench, membership: Membership) -> None:
    """Nothing is begun: the broker would take it from anybody."""
    with pytest.raises(MembershipError):
        bench.commit(membership)
    assert bench.made == []


@pytest.mark.parametrize("call", ["begin", "produce", "flush", "offsets"])
@pytest.mark.parametrize(
    "code", [KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID, KafkaError._TIMED_OUT, 9999]
)
def test_error_before_the_commit_aborts(bench: Bench, call: str, code: int) -> None:
    """Nothing was asked for: abort, and say the code; an unknown one, too (KAFKA_FACTS T1)."""
    bench.fail(call, kafka_error(code, abortable=True))
    with pytest.raises(CommitAbortedError) as caught:
        bench.commit()
    assert caught.value.code == KafkaError(code).name()
    assert bench.made[0].calls[-1] == "abort"
    assert "commit" not in bench.made[0].calls


@pytest.mark.parametrize(
    ("call", "error"),
    [(call, kafka_error(KafkaError._FENCED, fatal=True)) for call in ("begin", "produce", "flush", "offsets")]
    + [("produce", kafka_error(KafkaError._FATAL))],
)
def test_fatal_error_before_the_commit_is_told_apart(bench: Bench, call: str, error: KafkaException) -> None:
    """Another process has our id, or the transaction has timed out: counted, and nothing more is asked.

    `produce` says it by the code alone, once a call before it has found it (KAFKA_FACTS R13).
    """
    bench.fail(call, error)
    with pytest.raises(FencedError, match=r"another process has the name of this worker \(id\)"):
        bench.commit()
    assert "abort" not in bench.made[0].calls


def test_abort_that_fails_is_left_to_the_next_init(bench: Bench) -> None:
    """No commit was asked for, so the next producer's init aborts (KAFKA_FACTS T5)."""
    bench.fail("offsets", kafka_error(KafkaError.UNKNOWN_MEMBER_ID, abortable=True))
    bench.fail("abort", kafka_error(KafkaError._STATE))
    with pytest.raises(CommitAbortedError) as caught:
        bench.commit()
    assert caught.value.code == "UNKNOWN_MEMBER_ID"


def test_commit_that_is_aborted_by_the_broker_is_aborted(bench: Bench) -> None:
    """The error says that it needs an abort: it was not committed."""
    bench.fail("commit", kafka_error(KafkaError.INVALID_PRODUCER_ID_MAPPING, abortable=True))
    with pytest.raises(CommitAbortedError):
        bench.commit()
    assert bench.made[0].calls[-1] == "abort"


def test_commit_that_is_retriable_is_called_again(bench: Bench) -> None:
    """The same call again, until it has an outcome (KAFKA_FACTS T1)."""
    bench.fail("commit", *[kafka_error(KafkaError._TIMED_OUT, retriable=True)] * 3)
    bench.commit()
    assert bench.made[0].calls.count("commit") == 4


def test_commit_that_stays_retriable_past_the_deadline_is_unknown(bench: Bench) -> None:
    """Its outcome is unknown; it is not aborted, since it may be committed."""
    bench.fail("commit", *[kafka_error(KafkaError._TIMED_OUT, retriable=True)] * 3)
    commit = bench.producers.commit_transaction

    def slow(producer: ScriptedProducer, timeout: float = -1) -> None:
        bench.clock.advance(20.0)
        commit(producer, timeout)

    bench.producers.commit_transaction = slow  # type: ignore[assignment,method-assign]
    with pytest.raises(CommitUnknownError) as caught:
        bench.commit(seconds=30.0)
    assert caught.value.code == "_TIMED_OUT"
    assert "abort" not in bench.made[0].calls
    assert all(timeout <= 30.0 for timeout in bench.made[0].commit_timeouts)


@pytest.mark.parametrize(
    "error",
    [
        kafka_error(KafkaError._FENCED, fatal=True, retriable=True),
        kafka_error(KafkaError._FENCED, fatal=True),
        kafka_error(9999),
    ],
)
def test_fatal_commit_is_unknown_and_never_repeated(bench: Bench, error: KafkaException) -> None:
    """A commit that the broker has but the library calls failed comes as a fatal error (KAFKA_FACTS T3).

    An error that is not classified is treated as the worst.
    """
    bench.fail("commit", error)
    with pytest.raises(CommitUnknownError):
        bench.commit()
    assert bench.made[0].calls.count("commit") == 1
    assert "abort" not in bench.made[0].calls


@pytest.mark.parametrize("call", ["produce", "flush", "offsets", "commit"])
def test_error_that_the_binding_wraps_is_judged_by_its_cause(bench: Bench, call: str) -> None:
    """A fatal error and a delivery report in one call come as a SystemError."""
    wrapped = SystemError("returned a result with an exception set")
    wrapped.__cause__ = kafka_error(KafkaError._FENCED, fatal=True)
    bench.fail(call, wrapped)
    with pytest.raises(CommitUnknownError if call == "commit" else FencedError):
        bench.commit()


def test_message_without_delivery_report_is_never_committed(bench: Bench) -> None:
    """The acknowledgements are counted (KAFKA_FACTS T8)."""
    bench.producers.lost_reports = 1
    with pytest.raises(CommitAbortedError, match="1 of 2"):
        bench.commit()
    assert "offsets" not in bench.made[0].calls


def test_message_that_is_not_delivered_aborts(bench: Bench) -> None:
    """A local time-out of one message does not fail the transaction by itself."""
    bench.producers.report_errors.append(KafkaError(KafkaError._MSG_TIMED_OUT))
    with pytest.raises(CommitAbortedError) as caught:
        bench.commit()
    assert caught.value.code == "_MSG_TIMED_OUT"
    assert "commit" not in bench.made[0].calls


@pytest.mark.parametrize("refused_at", [0, 1])
def test_topic_that_refuses_is_named_and_not_one_whose_messages_the_library_drops(
    bench: Bench, refused_at: int
) -> None:
    """A transaction that has failed takes nothing more: what waits for other topics is purged, told before or after."""
    errors = [KafkaError(KafkaError._PURGE_QUEUE)] * 2
    errors[refused_at] = KafkaError(KafkaError.INVALID_TIMESTAMP)
    bench.producers.report_errors.extend(errors)
    topic = MESSAGES[refused_at].topic
    with pytest.raises(CommitAbortedError, match=f"^topic {topic} takes no message: .*timestamp") as caught:
        bench.commit()
    assert caught.value.code == "INVALID_TIMESTAMP"
    assert bench.committer.trouble == str(caught.value)


def test_topic_that_is_not_there_is_named_within_seconds_until_a_commit_succeeds(bench: Bench) -> None:
    """The library waits for half a minute, and then for the others, too: no line named the topic."""
    bench.producers.waits = lambda: bench.clock.advance(0.5)
    bench.producers.topics["references"] = lambda: KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    begun_s = bench.clock.now_s()
    with pytest.raises(CommitAbortedError, match="topic references is not there: create it: kafka-topics") as caught:
        bench.commit()

    assert caught.value.code == "UNKNOWN_TOPIC_OR_PART"
    assert bench.clock.now_s() - begun_s < 5
    assert bench.committer.trouble == str(caught.value)
    bench.producers.waits = None
    bench.commit()
    assert bench.committer.trouble is None


@pytest.mark.parametrize("answers", [True, False])
def test_topics_that_are_there_are_waited_for_until_the_deadline(bench: Bench, *, answers: bool) -> None:
    """Brokers that are slow, or do not answer that question either: it is asked once, and what is not there is told."""
    bench.producers.waits = lambda: bench.clock.advance(0.5)
    if not answers:
        bench.fail("list_topics", kafka_error(KafkaError._TIMED_OUT))
    begun_s = bench.clock.now_s()
    with pytest.raises(
        CommitAbortedError, match="0 of 2 messages are acknowledged; not: 1 of flushes, 1 of references"
    ):
        bench.commit()

    assert bench.clock.now_s() - begun_s >= 30
    assert bench.made[0].calls.count("list_topics") == (2 if answers else 1)
    assert bench.committer.trouble is None


def test_full_queue_is_waited_for(bench: Bench) -> None:
    """Thousands of references do not fit into the queue at once."""
    bench.producers.full_queue = 3
    bench.commit()
    assert len(bench.made[0].produced) == 2


def test_queue_that_stays_full_past_the_deadline_aborts(bench: Bench) -> None:
    """Waiting has an end."""
    bench.producers.full_queue = 10**6
    with pytest.raises(CommitAbortedError) as caught:
        bench.commit(seconds=0.0)
    assert caught.value.code == "BUFFER_FULL"


@pytest.mark.parametrize("call", ["produce", "offsets", "commit"])
@pytest.mark.parametrize(
    "code", [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError._AUTHENTICATION]
)
def test_missing_permission_stops_the_worker(bench: Bench, call: str, code: int) -> None:
    """A permission does not come by trying again."""
    bench.fail(call, kafka_error(code, abortable=True))
    with pytest.raises(SourceError, match="not permitted"):
        bench.commit()


@pytest.mark.parametrize(
    ("call", "code", "said"),
    [
        ("produce", KafkaError.MSG_SIZE_TOO_LARGE, "a message is larger"),
        ("offsets", KafkaError.OFFSET_METADATA_TOO_LARGE, r"offset\.metadata\.max\.bytes"),
    ],
)
def test_message_too_large_for_its_topic_stops_the_worker(bench: Bench, call: str, code: int, said: str) -> None:
    """The same message or metadata would be made again for ever; a person has to look (KAFKA_FACTS T12)."""
    bench.fail(call, kafka_error(code, abortable=True))
    with pytest.raises(SourceError, match=said):
        bench.commit()


@pytest.mark.parametrize(("slow_s", "left_s"), [(0.0, 10.0), (35.0, 5.0), (60.0, 0.1)])
def test_abort_ends_ten_seconds_after_the_deadline_at_most(bench: Bench, slow_s: float, left_s: float) -> None:
    """The library goes on to wait for an answer to the offsets: what that took is not there for the abort."""
    send = bench.producers.send_offsets_to_transaction

    def slow(producer: ScriptedProducer, *arguments: object) -> None:
        bench.clock.advance(slow_s)
        send(producer, *arguments)  # type: ignore[arg-type]

    bench.producers.send_offsets_to_transaction = slow  # type: ignore[method-assign,assignment]
    bench.fail("offsets", kafka_error(KafkaError._TIMED_OUT, abortable=True))
    with pytest.raises(CommitAbortedError):
        bench.commit(seconds=30.0)
    assert bench.made[0].abort_timeouts == [pytest.approx(left_s)]


def test_prepare_makes_one_producer_and_commit_uses_it(bench: Bench) -> None:
    """A producer that is ready is not made again."""
    bench.committer.prepare()
    bench.committer.prepare()
    assert bench.committer.is_ready
    bench.commit()
    assert len(bench.made) == 1


def test_prepare_waits_while_the_broker_ends_what_an_earlier_producer_left_open(bench: Bench) -> None:
    """CONCURRENT_TRANSACTIONS and time-outs are waited for (KAFKA_FACTS T7)."""
    bench.fail("init", *[kafka_error(KafkaError._TIMED_OUT, retriable=True)] * 4)
    bench.committer.prepare()
    assert bench.made[0].calls == ["init"] * 5


def test_prepare_that_is_never_answered_stops_within_its_budget(bench: Bench) -> None:
    """A worker that cannot get an epoch is no worker."""
    bench.slow_down()
    bench.fail("init", *[kafka_error(KafkaError._TIMED_OUT, retriable=True)] * 1000)
    started_s = bench.clock.now_s()
    with pytest.raises(StopError):
        bench.committer.prepare()
    assert bench.clock.now_s() - started_s == pytest.approx(120.0, abs=10.0)
    assert not bench.committer.is_ready


@pytest.mark.parametrize("in_commit", [True, False])
def test_prepare_that_is_never_answered_ends_by_the_deadline_it_is_given(bench: Bench, *, in_commit: bool) -> None:
    """Inside a callback: the batch is discarded, since nothing was sent; the next prepare has its own budget."""
    bench.slow_down()
    bench.fail("init", *[kafka_error(KafkaError._TIMED_OUT, retriable=True)] * 50)
    started_s = bench.clock.now_s()
    deadline = Deadline.after(25.0, bench.clock.now_s)
    ask = partial(bench.commit, seconds=25.0) if in_commit else partial(bench.committer.prepare, deadline=deadline)
    with pytest.raises(CommitAbortedError) as caught:
        ask()
    assert caught.value.code == "_TIMED_OUT"
    assert bench.clock.now_s() - started_s == pytest.approx(25.0)
    bench.committer.prepare()
    assert bench.committer.is_ready


@pytest.mark.parametrize("seconds", [None, 25.0])
def test_transaction_that_brokers_do_not_end_is_the_trouble_until_they_have(
    bench: Bench, seconds: float | None
) -> None:
    """An earlier trouble may be over; the new one names the command that shows the transaction (KAFKA_FACTS T20)."""
    bench.slow_down()
    bench.fail("init", *[kafka_error(KafkaError.CONCURRENT_TRANSACTIONS, retriable=True)] * 240)
    bench.committer.trouble = "topic references takes no message"
    deadline = None if seconds is None else Deadline.after(seconds, bench.clock.now_s)
    way_on = "kafka-transactions.sh --bootstrap-server broker:9092 describe --transactional-id id"
    with pytest.raises((StopError, CommitAbortedError), match=f"CONCURRENT_TRANSACTIONS: .*{way_on}"):
        bench.committer.prepare(deadline=deadline)
    assert way_on in (bench.committer.trouble or "")
    bench.producers.fails["init"].clear()
    bench.committer.prepare()
    assert bench.committer.trouble is None


@pytest.mark.parametrize("seconds", [None, 25.0])
@pytest.mark.parametrize(
    "error",
    [
        kafka_error(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        kafka_error(KafkaError.INVALID_TRANSACTION_TIMEOUT),
        kafka_error(KafkaError._FENCED, fatal=True),
    ],
)
def test_prepare_that_cannot_succeed_stops_at_once(bench: Bench, error: KafkaException, seconds: float | None) -> None:
    """Waiting mends none of these; a fatal one, which the library raises once more, once hid the sentence."""
    bench.fail("init", error)
    bench.fail("poll", error)
    deadline = None if seconds is None else Deadline.after(seconds, bench.clock.now_s)
    with pytest.raises(StopError):
        bench.committer.prepare(deadline=deadline)
    assert bench.made[0].calls == ["init"]


@pytest.mark.parametrize(("seconds", "verdict"), [(None, TokenError), (25.0, CommitAbortedError)])
def test_flush_without_a_token_to_log_in_with_is_discarded_and_a_start_ends(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, seconds: float | None, verdict: type[Exception]
) -> None:
    """The binding makes no client then (KAFKA_FACTS L13); the next flush tries again."""

    def none(_options: object, **_: object) -> None:
        raise kafka_error(KafkaError.SASL_AUTHENTICATION_FAILED)

    monkeypatch.setattr(confluent_kafka, "Producer", none)
    deadline = None if seconds is None else Deadline.after(seconds, bench.clock.now_s)
    with pytest.raises(verdict, match="no token to log in to Kafka with"):
        bench.committer.prepare(deadline=deadline)


def test_right_on_the_transactional_id_that_is_missing_is_named_with_its_command(bench: Bench) -> None:
    """The library says that one is missing, and not which."""
    bench.fail("init", kafka_error(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    bench.committer.options = {"transactional.id": "p.g.w", "bootstrap.servers": "b:1"}
    with pytest.raises(StopError, match=r"kafka-acls\.sh --bootstrap-server b:1 .* --transactional-id p\.g\.w"):
        bench.committer.prepare()


def test_offsets_are_never_missing(bench: Bench) -> None:
    """W1: without offsets the library would commit the messages alone, and say nothing (KAFKA_FACTS T13)."""
    with pytest.raises(AssertionError, match="W1"):
        bench.committer.commit(MESSAGES, {}, MEMBER, deadline=Deadline.after(30.0, bench.clock.now_s))


def test_close_lets_the_producer_go(bench: Bench) -> None:
    """Nothing is waited for: the next init ends what is open."""
    bench.committer.prepare()
    bench.committer.close()
    assert not bench.committer.is_ready


@pytest.mark.parametrize("call", ["flush", "offsets", "commit"])
def test_flush_that_is_abandoned_waits_for_no_answer(bench: Bench, call: str) -> None:
    """It ends within a second, without an abort; before the commit nothing is visible, after it the outcome is open."""
    answer = threading.Event()
    method = {"flush": "flush", "offsets": "send_offsets_to_transaction", "commit": "commit_transaction"}[call]
    setattr(bench.producers, method, lambda *_arguments: not answer.wait(0.05 if call == "flush" else 30.0))
    bench.committer = KafkaCommitter(
        {}, init_budget_s=120.0, clock=bench.clock, patience_of_flush=Patience(lambda: True, grace_s=0.3)
    )
    expected: Any = CommitUnknownError if call == "commit" else CommitAbortedError
    begun_s = time.monotonic()
    with pytest.raises(expected) as caught:
        bench.commit()
    answer.set()

    assert caught.value.code == "ABANDONED"
    assert "abort" not in bench.made[0].calls
    assert time.monotonic() - begun_s < 10


@pytest.mark.parametrize("call", ["init", "flush", "offsets", "commit"])
def test_producer_that_failed_is_gone_with_its_error(bench: Bench, call: str) -> None:
    """It has threads and connections: seen alive for a quarter of an hour, kept by a cycle through a traceback."""
    bench.fail(call, kafka_error(KafkaError.REBALANCE_IN_PROGRESS, abortable=True))
    gc.collect()
    gc.disable()
    try:
        failed = False
        try:
            bench.commit(seconds=0.0 if call == "init" else 30.0)
        except (CommitAbortedError, CommitUnknownError):
            failed = True
        (producer,) = map(weakref.ref, bench.made)
        bench.made.clear()
        assert failed
        assert producer() is None
    finally:
        gc.enable()
