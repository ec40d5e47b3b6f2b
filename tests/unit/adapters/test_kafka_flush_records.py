"""Flush records are read newest first, as far back as needed, and what cannot be read is said, never passed over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import confluent_kafka
import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException
from structlog.testing import capture_logs

from log_partitioner.adapters.kafka import topics as kafka_topics
from log_partitioner.adapters.kafka.flush_records import KafkaFlushRecords
from log_partitioner.boundary import FIRST_OFFSET
from log_partitioner.control.deadline import Deadline
from log_partitioner.control.flush_history import OurGroup
from log_partitioner.errors import HistoryUnknownError, LeavingError
from log_partitioner.formats.flush_record import AdoptedTopicPartition, encode_adoption, encode_flush_record
from log_partitioner.formats.model import TopicPartition
from log_partitioner.formats.offset_metadata import SourceTopics
from log_partitioner.patience import Patience
from tests.fakes.clock import FakeClock
from tests.golden.example import ADOPTION, FLUSH_RECORD

APP_0, APP_3, NEW = TopicPartition("app", 0), TopicPartition("app", 3), TopicPartition("app", 9)
MINUTE_MS = 60_000
CLOCK = FakeClock()
OPTIONS = {"group.id": "g", "bootstrap.servers": "kafka:9092"}


def value(minute: int, group_id: str = FLUSH_RECORD.group_id) -> bytes:
    """Give a flush record of app-0 and app-3."""
    return encode_flush_record(msgspec.structs.replace(FLUSH_RECORD, ended_at_ms=minute * MINUTE_MS, group_id=group_id))


class Topic:
    """Partitions with values; None is a control record. `stable` is where a transaction is open, until the fifth look.

    Looks at what is open take `idle_s` of the clock.
    """

    def __init__(self, *partitions: list[bytes | None]) -> None:
        self.partitions = partitions
        self.firsts: dict[int, int] = {}
        self.stable: dict[int, int] = {}
        self.error: KafkaError | None = None
        self.fetch_error: KafkaError | None = None
        self.read: list[tuple[int, int]] = []
        self.assigned: dict[int, int] = {}
        self.open = 0
        self.idle = 0
        self.idle_s = 0.0
        self.hangs = False

    def __call__(self, options: dict[str, Any], **_kwargs: Any) -> Any:
        """Make a client."""
        assert options.keys() >= {"group.id", "error_cb"}
        self.open += 1
        return _Uncommitted(self) if options.get("isolation.level") == "read_uncommitted" else self

    def close(self) -> None:
        """Let go."""
        self.open -= 1

    def list_topics(self, topic: str, *, timeout: float) -> Any:
        """Describe the topic."""
        assert timeout > 0
        numbers = range(len(self.partitions))
        return SimpleNamespace(topics={topic: SimpleNamespace(error=self.error, partitions=dict.fromkeys(numbers))})

    def offsets_for_times(self, asked: list[Any], *, timeout: float) -> list[Any]:
        """Give first offset or end, as a reader of what is committed is told."""
        assert timeout > 0
        return [_place(one, self._first(one) if one.offset == FIRST_OFFSET else self._end(one)) for one in asked]

    def _first(self, asked: Any) -> int:
        return self.firsts.get(asked.partition, 0)

    def _end(self, asked: Any) -> int:
        if asked.partition in self.stable:
            self.idle += 1
            CLOCK.advance(self.idle_s)
        if self.idle == 5 and not self.hangs:
            self.stable.clear()
        return self.stable.get(asked.partition, len(self.partitions[asked.partition]))

    def assign(self, positions: list[Any]) -> None:
        """Begin to read."""
        self.assigned = {one.partition: one.offset for one in positions}
        self.read += [(one.partition, one.offset) for one in positions]

    def pause(self, some: list[Any]) -> None:
        """Give nothing more of these."""
        for one in some:
            self.assigned.pop(one.partition)

    def resume(self, _some: list[Any]) -> None:
        """Take no notice: they are assigned anew."""

    def unassign(self) -> None:
        """Read nothing."""
        self.assigned = {}

    def consume(self, most: int, _timeout: float) -> list[Any]:
        """Give some messages, and the end of a partition if it is reached."""
        found = []
        for partition, position in self.assigned.items():
            end = self.stable.get(partition, len(self.partitions[partition]))
            upper = max(position, min(position + most, end))
            for offset in range(position, upper):
                text = self.partitions[partition][offset]
                if text is not None:
                    found.append(_Message(partition, offset, text))
            self.assigned[partition] = upper
            if upper == end:
                found.append(_Message(partition, end, None, KafkaError(KafkaError._PARTITION_EOF)))
        if self.fetch_error is not None:
            return [_Message(0, 0, None, self.fetch_error)]
        return found


class _Uncommitted:
    """A client that reads what is open, too."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self.close, self.list_topics = topic.close, topic.list_topics

    def offsets_for_times(self, asked: list[Any], *, timeout: float) -> list[Any]:
        """Give first offset or end."""
        (one,), ends = asked, [len(self._topic.partitions[place.partition]) for place in asked]
        told = self._topic.offsets_for_times(asked, timeout=timeout)
        return told if one.offset == FIRST_OFFSET else [_place(one, ends[0])]


def _place(asked: Any, offset: int) -> confluent_kafka.TopicPartition:
    return confluent_kafka.TopicPartition(asked.topic, asked.partition, offset)


class _Message:
    def __init__(self, partition: int, offset: int, text: bytes | None, error: KafkaError | None = None) -> None:
        self.text = text
        self.partition = lambda: partition
        self.offset = lambda: offset
        self.topic = lambda: "flushes"
        self.key = self.headers = lambda: None
        self.timestamp = lambda: (0, -1)
        self.value = lambda: text
        self.error = lambda: error


def reader(topic: Topic, monkeypatch: pytest.MonkeyPatch, **options: Any) -> KafkaFlushRecords:
    """Give the adapter over the scripted topic."""
    monkeypatch.setattr(confluent_kafka, "Consumer", topic)
    monkeypatch.setattr(kafka_topics, "_LOOK_AGAIN_S", 0.0)
    return KafkaFlushRecords(OPTIONS, "flushes", group=OurGroup(FLUSH_RECORD.group_id), **options)


def ask(one: KafkaFlushRecords, *tps: TopicPartition, seconds: float = 10.0) -> dict[TopicPartition, int]:
    """Ask for next offsets."""
    deadline = Deadline.after(seconds, CLOCK.now_s)
    return one.read(tps, SourceTopics(FLUSH_RECORD.topic_ids), deadline=deadline).next_offsets


def test_newest_chunk_is_enough_where_it_names_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing older is read than the clocks may explain; the clients are closed."""
    topic = Topic([value(minute) for minute in range(3_000)], [value(minute) for minute in range(3_000)])
    assert ask(reader(topic, monkeypatch), APP_0, APP_3) == {APP_0: 110, APP_3: 9}
    assert topic.read == [(0, 2_500), (1, 2_500)]
    assert topic.open == 0


def test_topic_partition_without_flush_record_is_looked_for_to_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """In larger and larger chunks, past records of other groups and control records."""
    ours = [value(0), *[None] * 10, *[value(5, "another")] * 4_000]
    topic = Topic(ours, [], [value(3, "another")])
    assert ask(reader(topic, monkeypatch), APP_0, NEW) == {APP_0: 110}
    assert topic.read == [(0, 3_511), (2, 0), (0, 1_511), (0, 0)]


def test_newest_flush_records_are_read_so_far_and_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for a TopicPartition with a committed offset ends before the topic's beginning."""
    topic = Topic([value(0), *[value(60, "another")] * 20_000])
    deadline = Deadline.after(10.0, CLOCK.now_s)
    topics = SourceTopics(FLUSH_RECORD.topic_ids)
    assert reader(topic, monkeypatch).read([], topics, newest_of=[APP_0], deadline=deadline).next_offsets == {}
    assert topic.read == [(0, 19_501), (0, 17_501), (0, 9_501)]


def test_what_cannot_be_read_is_passed_over_where_only_the_newest_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A later version wrote it before a rollback; the committed offset is checked against the other flush records."""
    topic = Topic([value(0), b'{"format": 2}'])
    one = reader(topic, monkeypatch)
    topics = SourceTopics(FLUSH_RECORD.topic_ids)
    with capture_logs() as logs:
        found = one.read([], topics, newest_of=[APP_0], deadline=Deadline.after(10.0, CLOCK.now_s)).next_offsets
    assert found == {APP_0: 110}
    assert [line["event"] for line in logs] == ["flush_record_unknown"]
    with pytest.raises(HistoryUnknownError, match="flushes-0 has no flush record"):
        ask(one, APP_0)


def test_newest_flush_records_that_were_read_by_the_deadline_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline ends the search, unless a TopicPartition must be found: then it is an error."""
    topic = Topic([value(0), *[value(60, "another")] * 3_000])
    one = reader(topic, monkeypatch)
    clock = FakeClock()
    consume = topic.consume

    def slowly(most: int, timeout: float) -> list[Any]:
        clock.advance(4.0)
        return consume(most, timeout)

    topic.consume = slowly  # type: ignore[method-assign]
    topics = SourceTopics(FLUSH_RECORD.topic_ids)
    assert one.read([], topics, newest_of=[APP_0], deadline=Deadline.after(5.0, clock.now_s)).next_offsets == {}
    with pytest.raises(HistoryUnknownError, match="not read in time"):
        one.read([APP_0], topics, deadline=Deadline.after(5.0, clock.now_s))
    assert topic.open == 0


def test_history_that_retention_has_cut_is_told_where_it_may_have_named_somebody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If no record that is left names a TopicPartition, a record that is gone may have; it may be read anew."""
    topic = Topic([value(0)] * 9, [value(1)] * 3)
    one = reader(topic, monkeypatch)
    with capture_logs() as whole:
        assert ask(one, APP_0, NEW) == {APP_0: 110}
    topic.firsts = {0: 5}
    with capture_logs() as found:
        assert ask(one, APP_0) == {APP_0: 110}
    with capture_logs() as cut:
        assert ask(one, APP_0, NEW) == {APP_0: 110}
    assert whole == found == []
    (line,) = cut
    assert (line["event"], line["log_level"], line["topic_partitions"]) == ("history_cut", "warning", ["app-9"])
    assert "flushes-0 begins at offset 5" in line["message"]


def test_partitions_are_read_on_while_one_of_them_may_have_newer_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flush record that is found first is not always the newest."""
    topic = Topic([value(10_000)] * 600, [value(minute) for minute in range(600)])
    assert ask(reader(topic, monkeypatch), APP_0) == {APP_0: 110}
    assert topic.read == [(0, 100), (1, 100), (0, 0), (1, 0)]


def test_records_behind_an_open_transaction_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be the newest ones."""
    topic = Topic([value(0, "another"), value(1)])
    topic.stable[0] = 1
    assert ask(reader(topic, monkeypatch), APP_0) == {APP_0: 110}
    assert topic.idle >= 5


@pytest.mark.parametrize("chunks", [1, 3])
def test_transaction_that_hangs_holds_nobody_up_who_has_a_committed_offset(
    monkeypatch: pytest.MonkeyPatch, chunks: int
) -> None:
    """It is held against what is before the transaction; whether something new was flushed is not known, and said."""
    topic = Topic([*[value(0)] * 9, *[value(1, "another")] * 600 * chunks], [value(0)])
    topic.stable[0], topic.hangs, topic.idle_s = 9, True, 1.0
    one, topics, began_s = reader(topic, monkeypatch), SourceTopics(FLUSH_RECORD.topic_ids), CLOCK.now_s()
    with capture_logs() as logs:
        found = one.read([], topics, newest_of=[APP_0], deadline=Deadline.after(60.0, CLOCK.now_s)).next_offsets
    assert found == {APP_0: 110}
    assert CLOCK.now_s() - began_s == 10.0
    assert [line["event"] for line in logs] == ["history_open"]
    with pytest.raises(HistoryUnknownError, match=r"flushes-0: .* open for more than 10 s, at offset 9"):
        ask(one, APP_0)
    assert topic.open == 0


def test_topic_that_may_not_be_read_or_is_not_there_is_unknown_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the broker's word for it."""
    for code in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART):
        for name in ("error", "fetch_error"):
            topic = Topic([value(1)])
            setattr(topic, name, KafkaError(code))
            is_there = code == KafkaError.TOPIC_AUTHORIZATION_FAILED
            said = "TOPIC_AUTHORIZATION_FAILED" if is_there else "topic flushes is not there: create it: kafka-topics"
            with pytest.raises(HistoryUnknownError, match=said):
                ask(reader(topic, monkeypatch), APP_0)
            assert topic.open == 0


def test_brokers_that_do_not_answer_are_unknown_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the library says it."""
    topic = Topic([value(1)])

    def fail(*_: Any, **__: Any) -> Any:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    topic.list_topics = fail  # type: ignore[method-assign]
    with pytest.raises(HistoryUnknownError, match="_TRANSPORT"):
        ask(reader(topic, monkeypatch), APP_0, seconds=0.0)


def test_flush_records_that_are_not_read_in_time_are_unknown_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """A brand-new group reads all of them."""
    with pytest.raises(HistoryUnknownError, match="not read in time"):
        ask(reader(Topic([value(1)]), monkeypatch), APP_0, seconds=0.0)


def test_wish_to_leave_ends_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was decided by it."""
    topic = Topic([value(1)])
    topic.stable[0] = 0
    topic.consume = lambda *_: []  # type: ignore[method-assign]
    with pytest.raises(LeavingError):
        ask(reader(topic, monkeypatch, patience=Patience(lambda: True, grace_s=0.0)), APP_0)
    assert topic.open == 0


def test_foreign_group_ends_the_reading_in_the_chunk_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new group would read all there is, which may take longer than it has."""
    topic = Topic([value(minute, "another") for minute in range(3_000)])
    monkeypatch.setattr(confluent_kafka, "Consumer", topic)
    group = OurGroup("new", alone_on=["app"])
    one = KafkaFlushRecords(OPTIONS, "flushes", group=group)
    found = one.read([APP_0], SourceTopics(FLUSH_RECORD.topic_ids), deadline=Deadline.after(10.0, CLOCK.now_s))
    assert [(foreign.kind, foreign.group_id) for foreign in found.foreign] == [("other", "another")]
    assert topic.read == [(0, 2_500)]


def test_foreign_group_is_not_judged_by_what_is_before_an_open_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """The adoption that makes it part of the history may stand behind."""
    lines = tuple(
        AdoptedTopicPartition(topic=one.topic, partition=one.partition, next_offset=one.next_offset)
        for one in FLUSH_RECORD.topic_partitions
    )
    adopted = encode_adoption(
        msgspec.structs.replace(ADOPTION, group_id="new", from_group="old", topic_partitions=lines)
    )
    topic = Topic([value(0, "old"), adopted])
    topic.stable[0], topic.hangs, topic.idle_s = 1, True, 1.0
    monkeypatch.setattr(confluent_kafka, "Consumer", topic)
    one = KafkaFlushRecords(OPTIONS, "flushes", group=OurGroup("new", alone_on=["app"]))
    topics, deadline = SourceTopics(FLUSH_RECORD.topic_ids), Deadline.after(60.0, CLOCK.now_s)
    with pytest.raises(HistoryUnknownError, match=r"flushes-0: .* open for more than 10 s, at offset 1"):
        one.read([], topics, newest_of=[APP_0], deadline=deadline)
    topic.stable.clear()
    found = one.read([], topics, newest_of=[APP_0], deadline=deadline)
    assert (found.next_offsets, found.foreign) == ({APP_0: 110}, [])
