"""The consumer adapter: begins where it is sought, keeps nothing paused for ever, ends on what waiting cannot mend."""

from __future__ import annotations

import time

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, Message
from structlog.testing import capture_logs

from log_partitioner.adapters.kafka import consumer as kafka_consumer
from log_partitioner.adapters.kafka.consumer import KafkaConsumer
from log_partitioner.boundary import END_OFFSET, FIRST_OFFSET, FetchFailure
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import LeavingError, SourceError
from log_partitioner.formats.model import CommittedOffset, SourceRecord, TopicPartition
from log_partitioner.patience import Patience
from tests.fakes.clock import FakeClock
from tests.fakes.records import P0, P1
from tests.unit.adapters.scripted_kafka import (
    ScriptedConsumer,
    fresh_consumer_class,
    kafka_error,
    scripted_message,
)

NO_OFFSET = -1001
S0, S1 = ("source", 0), ("source", 1)


def soon() -> Deadline:
    """Give a deadline of the real clock."""
    return Deadline.after(0.2, time.monotonic)


class Listener:
    """Remembers what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, frozenset[TopicPartition]]] = []

    def on_assigned(self, tps: frozenset[TopicPartition]) -> None:
        """Hear."""
        self.heard.append(("assigned", tps))

    def on_revoked(self, tps: frozenset[TopicPartition]) -> None:
        """Hear."""
        self.heard.append(("revoked", tps))

    def on_lost(self, tps: frozenset[TopicPartition]) -> None:
        """Hear."""
        self.heard.append(("lost", tps))


class Bench:
    """The adapter over a scripted consumer."""

    def __init__(self, consumers: type[ScriptedConsumer]) -> None:
        self.adapter = KafkaConsumer({"group.id": "g"}, ["source"])
        (self.library,) = consumers.made
        self.adapter._asking = self.library  # type: ignore[assignment] # it answers questions, too
        self.listener = Listener()
        self.adapter.subscribe(self.listener)

    def assign(self, *tps: tuple[str, int]) -> None:
        """Let the library call back."""
        self.library.callbacks["on_assign"](self.library, [confluent_kafka.TopicPartition(*tp) for tp in tps])

    def seek(self, *tps: TopicPartition) -> None:
        """Begin at offset 40."""
        for tp in tps:
            self.adapter.seek(tp, CommittedOffset(40, 2, "meta"), deadline=soon())

    def consume(self, *messages: Message) -> list[int]:
        """Hand messages over; gives the offsets of what comes out."""
        self.library.batches.append(list(messages))
        return [one.offset for one in self.adapter.consume(records_max=10, timeout_s=0.2)]


@pytest.fixture
def consumers(monkeypatch: pytest.MonkeyPatch) -> type[ScriptedConsumer]:
    """Give the scripted class."""
    made = fresh_consumer_class()
    monkeypatch.setattr(confluent_kafka, "Consumer", made)
    return made


@pytest.fixture
def bench(consumers: type[ScriptedConsumer]) -> Bench:
    """Give a bench."""
    return Bench(consumers)


def test_all_three_callbacks_are_registered(bench: Bench) -> None:
    """Without on_lost, what is lost would come as revoked and be flushed (KAFKA_FACTS R2)."""
    assert bench.library.callbacks.keys() == {"on_assign", "on_revoke", "on_lost"}
    for name in ("on_revoke", "on_lost"):
        bench.assign(S0)
        bench.library.callbacks[name](bench.library, [confluent_kafka.TopicPartition("source", 0)])
    assert [kind for kind, _ in bench.listener.heard] == ["assigned", "revoked", "assigned", "lost"]
    assert {tps for _, tps in bench.listener.heard} == {frozenset({P0})}


def test_nothing_of_an_assignment_is_the_librarys_before_it_is_sought(bench: Bench) -> None:
    """By the call that both protocols want (KAFKA_FACTS T15), and at the offset itself: it looks up none (R19)."""
    bench.assign(S0, S1)
    assert (bench.library.assigned, bench.library.calls) == ({}, ["incremental_assign"])
    bench.seek(P0)
    assert bench.library.assigned == {S0: (40, 2, "meta")}
    assert bench.library.seeks == [(40, 2, "meta")]
    assert bench.consume(scripted_message(40)) == [40]
    bench.adapter.seek(P1, CommittedOffset(7), deadline=soon())
    assert bench.library.assigned[S1] == (7, None, "")
    assert len(bench.library.seeks) == 1, "without a leader epoch there is nothing to compare"


@pytest.mark.parametrize("callback", ["on_revoke", "on_lost"])
def test_only_what_the_library_has_is_taken_back_from_it(bench: Bench, callback: str) -> None:
    """The library refuses all if one is not its own; it is told in any case, or the binding takes back everything."""
    bench.assign(S0, S1)
    bench.seek(P0)
    bench.library.callbacks[callback](bench.library, [confluent_kafka.TopicPartition(*S1)])
    assert bench.library.assigned.keys() == {S0}
    bench.assign(S1)
    bench.library.callbacks[callback](bench.library, [confluent_kafka.TopicPartition(*tp) for tp in (S0, S1)])
    assert bench.library.assigned == {}
    assert bench.library.calls.count("incremental_unassign") == 2


def test_record_is_taken_over_as_it_is(bench: Bench) -> None:
    """Key, value, offset, headers, time stamp and leader epoch; none is none."""
    message = scripted_message(7, headers=[("a", b"1"), ("a", None)])
    bench.library.batches.append([message])
    (record,) = bench.adapter.consume(records_max=10, timeout_s=0.2)
    assert record == SourceRecord(P0, 7, 7, b"key", b"value", (("a", b"1"), ("a", None)), 4)
    assert bench.consume(scripted_message(8)) == [8]


@pytest.mark.parametrize("timestamp", [(confluent_kafka.TIMESTAMP_NOT_AVAILABLE, 0), (1, -1)])
def test_record_without_time_stamp_has_none(bench: Bench, timestamp: tuple[int, int]) -> None:
    """A record of an old producer is not from 1970."""
    bench.library.batches.append([scripted_message(timestamp=timestamp)])
    (record,) = bench.adapter.consume(records_max=10, timeout_s=0.2)
    assert record.timestamp_ms is None


@pytest.mark.parametrize(
    "error",
    [
        KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED),
        KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED),
        KafkaError(KafkaError._AUTHENTICATION),
        KafkaError(KafkaError._FATAL, "comes without the flag"),
        KafkaError(KafkaError.UNSUPPORTED_VERSION),
        KafkaError(KafkaError.FENCED_INSTANCE_ID, "fenced", True),  # noqa: FBT003
    ],
)
def test_error_that_waiting_does_not_mend_stops_the_worker(bench: Bench, error: KafkaError) -> None:
    """A worker that is ready and does nothing is worse than one that ends (KAFKA_FACTS R13)."""
    with pytest.raises(SourceError):
        bench.consume(scripted_message(1), scripted_message(error=error, topic=None))


def test_topic_that_is_not_there_ends_the_worker_only_if_it_is_named(bench: Bench) -> None:
    """One that matched was deleted, or nothing matches yet, which is told of the pattern itself (KAFKA_FACTS R21)."""
    bench.adapter = KafkaConsumer({"group.id": "g"}, ["source", "^app-.*"])
    bench.library = type(bench.library).made[-1]
    bench.adapter.subscribe(bench.listener)
    assert bench.library.topics == ["source", "^(^app-.*)$"]
    unknown = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    for topic in ("app-a", "^(^app-.*)$"):
        assert bench.consume(scripted_message(error=unknown, topic=topic)) == []
    with pytest.raises(SourceError, match="source-0: UNKNOWN_TOPIC_OR_PART"):
        bench.consume(scripted_message(error=unknown))


def test_login_by_a_token_that_has_ended_is_tried_again(bench: Bench) -> None:
    """The next token mends it; how long a worker may be kept out is for others to say."""
    bench.adapter._options = {"oauth_cb": lambda _config: ("token", 0.0)}
    error = scripted_message(error=KafkaError(KafkaError._AUTHENTICATION), topic=None)
    assert bench.consume(scripted_message(1), error) == [1]


@pytest.mark.parametrize(
    "code", [KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._MAX_POLL_EXCEEDED, KafkaError._TIMED_OUT]
)
def test_error_that_the_library_mends_costs_no_record(bench: Bench, code: int) -> None:
    """It is logged; the records beside it are handed on."""
    with capture_logs() as logs:
        error = scripted_message(NO_OFFSET, error=KafkaError(code))
        offsets = bench.consume(scripted_message(1), error, scripted_message(2))
    assert offsets == [1, 2]
    assert [one["event"] for one in logs] == ["consumer_error"]


def test_nothing_behind_what_cannot_be_read_is_handed_over_until_it_is_sought(bench: Bench) -> None:
    """The TopicPartition is paused meanwhile, whatever is resumed; the others stay as they are."""
    bench.library.assigned = {S0: (0, None, ""), S1: (7, None, "")}
    bad = scripted_message(2, error=KafkaError(KafkaError._BAD_MSG, "failed CRC32C check"))
    assert bench.consume(scripted_message(1), bad, bad, scripted_message(3)) == [1]
    assert bench.consume(scripted_message(4)) == []
    assert bench.adapter.failures() == {TopicPartition(*S0): FetchFailure(2, "_BAD_MSG", "failed CRC32C check")}
    bench.adapter.pause()
    bench.adapter.resume()
    assert bench.library.paused == {S0}
    bench.adapter.seek(TopicPartition(*S0), CommittedOffset(2), deadline=soon())
    assert bench.library.calls == ["incremental_unassign", "incremental_assign"]
    assert bench.library.assigned == {S0: (2, None, ""), S1: (7, None, "")}
    assert (bench.library.paused, dict(bench.adapter.failures())) == (set(), {})
    assert bench.consume(scripted_message(2)) == [2]


def test_error_of_what_is_not_sought_yet_is_of_an_earlier_tenure(bench: Bench) -> None:
    """Taken with the callbacks of a revoke and an assignment: it would be held against the new tenure."""
    bench.assign(S0)
    assert bench.consume(scripted_message(2, error=KafkaError(KafkaError._BAD_MSG))) == []
    assert not bench.adapter.failures()
    bench.seek(P0)
    assert bench.consume(scripted_message(40)) == [40]


@pytest.mark.parametrize("callback", ["on_revoke", "on_lost"])
def test_failure_is_forgotten_with_its_topic_partition(bench: Bench, callback: str) -> None:
    """When it comes back it is read from where it is sought."""
    bench.assign(S0)
    bench.seek(P0)
    bench.consume(scripted_message(2, error=KafkaError(KafkaError._BAD_MSG)))
    bench.library.callbacks[callback](bench.library, [confluent_kafka.TopicPartition(*S0)])
    assert not bench.adapter.failures()
    bench.assign(S0)
    bench.seek(P0)
    assert (bench.library.paused, bench.consume(scripted_message(2))) == (set(), [2])


def test_finding_4_exception_out_of_consume_is_a_stop(bench: Bench) -> None:
    """Records were popped and are gone: nothing but an end is safe."""
    bench.library.batches.append(kafka_error(KafkaError._FAIL))
    with pytest.raises(SourceError):
        bench.adapter.consume(records_max=10, timeout_s=0.2)


def test_topic_partition_paused_lost_and_assigned_again_is_not_silent_for_ever(bench: Bench) -> None:
    """It is kept paused by the library over loss and assignment (KAFKA_FACTS R9)."""
    bench.assign(S0, S1)
    bench.seek(P0, P1)
    bench.adapter.pause()
    bench.library.unassign_for_test(S1)
    bench.adapter.resume()
    assert bench.library.paused == {S1}
    bench.assign(S1)
    bench.seek(P1)
    assert bench.library.paused == set()


def test_pause_and_resume_are_not_repeated(bench: Bench) -> None:
    """Each call purges what was fetched (KAFKA_FACTS R9)."""
    bench.assign(S0)
    bench.seek(P0)
    bench.adapter.resume()
    bench.adapter.pause()
    bench.library.paused.clear()
    bench.adapter.pause()
    assert bench.library.paused == set()


def test_committed_offsets_are_numbers_or_none(bench: Bench) -> None:
    """-1001 stands for none; an offset of another tool has neither metadata nor epoch."""
    bench.library.answers = [
        confluent_kafka.TopicPartition("source", 0, 0, "meta", 3),
        confluent_kafka.TopicPartition("source", 1, confluent_kafka.OFFSET_INVALID),
        confluent_kafka.TopicPartition("source", 2, 5),
    ]
    p2 = TopicPartition("source", 2)
    expected = {P0: CommittedOffset(0, 3, "meta"), P1: None, p2: CommittedOffset(5, None, "")}
    assert bench.adapter.committed([P0, P1, p2], deadline=soon()) == expected


def test_questions_share_one_deadline(bench: Bench) -> None:
    """Each may take the time that the ones before it have left, and is asked even if none is left."""
    clock = FakeClock()
    deadline = Deadline.after(20.0, clock.now_s)
    bench.library.times = {FIRST_OFFSET: 0}
    bench.library.answers = []
    for _ in range(3):
        bench.adapter.committed([P0], deadline=deadline)
        clock.advance(15.0)
        bench.adapter.offsets_at([P0], FIRST_OFFSET, deadline=deadline)
    assert [pytest.approx(left) for left in (20.0, 5.0, 5.0, 0.1, 0.1, 0.1)] == bench.library.waited_s


def test_question_without_an_answer_stops_the_worker(bench: Bench) -> None:
    """A place to start or to go on is never guessed."""
    bench.library.answers = bench.library.times = kafka_error(KafkaError._TIMED_OUT)
    with pytest.raises(SourceError):
        bench.adapter.committed([P0], deadline=soon())
    with pytest.raises(SourceError):
        bench.adapter.offsets_at([P0], 1_000, deadline=soon())


@pytest.mark.parametrize("code", [KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS])
def test_committed_offsets_are_asked_for_again_while_the_coordinator_moves(bench: Bench, code: int) -> None:
    """The library does not: when all brokers were killed and came back, workers that had asked too soon ended."""
    bench.library.answers = [confluent_kafka.TopicPartition("source", 0, 7)]
    bench.library.refusals = [kafka_error(code)] * 2
    assert bench.adapter.committed([P0], deadline=Deadline.after(30.0, time.monotonic)) == {P0: CommittedOffset(7)}
    assert bench.library.refusals == []


def test_committed_offsets_of_a_coordinator_that_never_comes_stop_the_worker(bench: Bench) -> None:
    """By the deadline."""
    clock = FakeClock()
    bench.library.answers = kafka_error(KafkaError.NOT_COORDINATOR)
    deadline = Deadline.after(0.0, clock.now_s)
    clock.advance(1.0)
    with pytest.raises(SourceError):
        bench.adapter.committed([P0], deadline=deadline)


def test_stop_is_not_held_up_by_a_coordinator_that_refuses_at_once(bench: Bench) -> None:
    """Each answer comes, and none of them is one."""
    bench.library.answers = kafka_error(KafkaError.NOT_COORDINATOR)
    bench.adapter._patience = Patience(lambda: True, grace_s=0.2)
    with pytest.raises(LeavingError):
        bench.adapter.committed([P0], deadline=Deadline.after(30.0, time.monotonic))


def test_committed_offsets_of_nothing_are_not_asked_for(bench: Bench) -> None:
    """An empty assignment while the consumer is being closed would wait for its whole time-out."""
    bench.library.answers = kafka_error(KafkaError._TIMED_OUT)
    assert bench.adapter.committed([], deadline=soon()) == {}


@pytest.mark.parametrize(("answer", "offset"), [(7, 7), (confluent_kafka.OFFSET_END, 9)])
def test_offset_by_time_is_the_end_if_no_record_is_so_late(bench: Bench, answer: int, offset: int) -> None:
    """The end as it was before: a record that comes between the two questions is not left out."""
    bench.library.times = {END_OFFSET: 9, 1_000: answer}
    assert bench.adapter.offsets_at([P0, P1], 1_000, deadline=soon()) == {P0: offset, P1: offset}
    assert bench.library.calls == ["list_topics"]


def test_seek_waits_for_what_was_assigned_a_moment_ago(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library refuses to seek what it does not fetch yet."""
    monkeypatch.setattr(kafka_consumer, "_SEEK_AGAIN_S", 0.0)
    bench.library.seek_errors.extend([kafka_error(KafkaError._STATE)] * 3)
    bench.adapter.seek(P0, CommittedOffset(12, 1, "meta"), deadline=Deadline.after(30.0, FakeClock().now_s))
    assert bench.library.seeks == [(12, 1, "meta")]


@pytest.mark.parametrize("errors", [[KafkaError._UNKNOWN_PARTITION], [KafkaError._STATE] * 1000])
def test_seek_that_does_not_succeed_stops_the_worker(bench: Bench, errors: list[int]) -> None:
    """Going on without it would leave a gap; waiting ends by the deadline."""
    bench.library.seek_errors.extend(kafka_error(code) for code in errors)
    with pytest.raises(SourceError, match="cannot be sought"):
        bench.adapter.seek(P0, CommittedOffset(12), deadline=soon())


def test_end_is_left_out_while_nobody_knows_it(bench: Bench) -> None:
    """No fetch yet: no lag to report."""
    bench.library.marks = (-1001, -1001)
    assert bench.adapter.ends({P0: 0}) == {}
    bench.library.marks = (0, 9)
    assert bench.adapter.ends({P0: 5}) == {P0: 9}


def test_end_of_which_only_markers_are_left_is_no_lag(bench: Bench) -> None:
    """Everything up to the end was handed over: behind the last record lie only control records."""
    bench.consume(scripted_message(9, error=KafkaError(KafkaError._PARTITION_EOF)))
    bench.library.marks = (0, 9)
    assert bench.adapter.ends({P0: 5}) == {P0: 5}
    bench.library.marks = (0, 11)
    assert bench.adapter.ends({P0: 5}) == {P0: 11}


def test_what_an_open_transaction_holds_up_is_told_until_more_is_handed_over(bench: Bench) -> None:
    """The end is reached at the last stable offset, and the log goes on behind it; nothing is said of the unknown."""
    bench.library.marks = (0, 11)
    assert bench.adapter.blocked_by_transaction({P0: 5}) == {}
    bench.consume(scripted_message(9, error=KafkaError(KafkaError._PARTITION_EOF)))
    assert bench.adapter.blocked_by_transaction({P0: 5}) == {P0: 9}
    assert bench.adapter.blocked_by_transaction({P0: 10}) == {}
    bench.library.marks = (0, 9)
    assert bench.adapter.blocked_by_transaction({P0: 5}) == {}


def test_end_is_a_lag_again_after_a_rewind(bench: Bench) -> None:
    """Records that were handed over once and discarded are still to be read."""
    bench.consume(scripted_message(9, error=KafkaError(KafkaError._PARTITION_EOF)))
    bench.adapter.seek(P0, CommittedOffset(2), deadline=soon())
    bench.library.marks = (0, 9)
    assert bench.adapter.ends({P0: 2}) == {P0: 9}


@pytest.mark.parametrize(("protocol", "outlives_fencing"), [("consumer", True), ("classic", False)])
def test_member_id_proves_nothing_under_the_consumer_protocol(
    consumers: type[ScriptedConsumer], *, protocol: str, outlives_fencing: bool
) -> None:
    """A member that was put out comes back under it (KAFKA_FACTS R12)."""
    adapter = KafkaConsumer({"group.id": "g", "group.protocol": protocol}, ["source"])
    assert len(consumers.made) == 1
    assert adapter.membership().outlives_fencing is outlives_fencing


def test_close_leaves_the_group(bench: Bench) -> None:
    """The library runs the callbacks; the client for questions is closed behind it."""
    bench.adapter.close()
    assert bench.library.calls == ["close", "close"]
