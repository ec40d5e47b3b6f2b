"""The contract of every consumer and committer; subclass it with a `kafka` fixture (see FakeKafka in test_kafka.py).

Nothing here knows how a group hands out TopicPartitions: everything waits for what it needs, within limits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import pytest
from msgspec.structs import replace

from log_partitioner.boundary import END_OFFSET, FIRST_OFFSET, Committer, Consumer, FlushRecords, Membership, Message
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import (
    CommitAbortedError,
    FencedError,
    HistoryUnknownError,
    MembershipError,
    SourceError,
    StartPositionError,
)
from log_partitioner.formats.flush_record import encode_flush_record
from log_partitioner.formats.model import CommittedOffset, SourceRecord, TopicPartition
from log_partitioner.formats.offset_metadata import SourceTopics
from tests.fakes.listener import Listener
from tests.golden.example import FLUSH_RECORD

METADATA_BYTES_MAX = 4095  # of a committed offset: brokers take one more, the NUL behind it (KAFKA_FACTS O9)


class Kafka(Protocol):
    """A source topic of two TopicPartitions and a group of this test's own, and the announcements' topic."""

    tps: tuple[TopicPartition, TopicPartition]
    announcements: str

    def append(self, tp: TopicPartition, *values: bytes) -> None:
        """Append records to the source."""
        ...

    def append_aborted(self, tp: TopicPartition) -> None:
        """Append what no read_committed consumer gets to see: at least one offset."""
        ...

    def append_open(self, tp: TopicPartition) -> Callable[[], None]:
        """Append a record in a transaction that stays open until the returned function aborts it."""
        ...

    def consumer(self) -> Consumer:
        """Make a consumer of the group."""
        ...

    def committer(self, transactional_id: str) -> Committer:
        """Make a committer."""
        ...

    def announced(self) -> list[bytes | None]:
        """Read all values that a read_committed reader of the announcements gets."""
        ...

    def announce(self, *values: bytes) -> None:
        """Append committed values to the announcements."""
        ...

    def flush_records(self, group_id: str) -> FlushRecords:
        """Give a reader of the announcements as flush records of a group."""
        ...

    def now_s(self) -> float:
        """The clock for deadlines."""
        ...


def soon(kafka: Kafka) -> Deadline:
    """Give a deadline that no answer takes long enough for."""
    return Deadline.after(30.0, kafka.now_s)


class Reading:
    """A consumer that takes part, and what it was handed over so far; it begins at committed offsets, or at 0."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self.consumer = kafka.consumer()
        self.listener = Listener()
        self.consumer.subscribe(self.listener)
        self.records: list[SourceRecord] = []
        self.is_seeking = True

    def turn(self) -> None:
        """Consume once."""
        new = self.listener.new if self.is_seeking else set()
        for tp, found in self.consumer.committed(sorted(new), deadline=soon(self._kafka)).items():
            self.consumer.seek(tp, found or CommittedOffset(0), deadline=soon(self._kafka))
            self.listener.new.discard(tp)
        self.records += self.consumer.consume(records_max=100, timeout_s=0.2)

    def until(self, done: Callable[[], bool], *others: Reading) -> None:
        """Consume until something holds."""
        for _ in range(300):
            if done():
                return
            for one in (self, *others):
                one.turn()
        raise AssertionError("not within 300 turns")

    def offsets(self, tp: TopicPartition) -> list[int]:
        """Give the offsets handed over of one TopicPartition."""
        return [record.offset for record in self.records if record.tp == tp]


@pytest.fixture
def reading(kafka: Kafka) -> Iterable[Reading]:
    """Give a consumer that owns everything; it is closed in the end."""
    made = Reading(kafka)
    made.until(lambda: made.listener.owned == set(kafka.tps))
    yield made
    made.consumer.close()


class ConsumerContract:
    """Positions move with what is handed over; nothing is before the first seek."""

    def test_records_come_in_the_order_of_their_offsets(self, kafka: Kafka, reading: Reading) -> None:
        """Each once, per TopicPartition in order, with what was written."""
        first, second = kafka.tps
        kafka.append(first, b"a", b"b")
        kafka.append(second, b"c")
        reading.until(lambda: len(reading.records) >= 3)
        assert reading.offsets(first) == [0, 1]
        assert reading.offsets(second) == [0]
        assert [record.value for record in reading.records if record.tp == first] == [b"a", b"b"]
        assert {record.leader_epoch for record in reading.records} == {0}

    def test_nothing_is_handed_over_before_the_first_seek_which_says_where_to_begin(self, kafka: Kafka) -> None:
        """No start and no reset of the client's own."""
        first, second = kafka.tps
        kafka.append(first, b"a", b"b", b"c")
        kafka.append(second, b"d")
        one = Reading(kafka)
        one.until(lambda: one.listener.owned == set(kafka.tps))
        starts = {first: CommittedOffset(2), second: CommittedOffset(0)}
        committer = kafka.committer("one")
        committer.commit([], starts, one.consumer.membership(), deadline=soon(kafka))
        committer.close()
        one.consumer.close()
        other = Reading(kafka)
        other.is_seeking = False
        other.until(lambda: other.listener.owned == set(kafka.tps))
        for _ in range(10):
            other.turn()
        assert other.records == []
        other.is_seeking = True
        other.until(lambda: len(other.records) >= 2)
        assert other.offsets(first) == [2]
        other.consumer.close()

    def test_seek_gives_records_again_and_none_of_before(self, kafka: Kafka, reading: Reading) -> None:
        """Whatever was fetched before the seek is never handed over after it."""
        first, _ = kafka.tps
        kafka.append(first, *(b"%d" % number for number in range(20)))
        reading.until(lambda: len(reading.offsets(first)) == 20)
        reading.records.clear()
        reading.consumer.seek(first, CommittedOffset(5, leader_epoch=0), deadline=soon(kafka))
        kafka.append(first, b"last")
        reading.until(lambda: 20 in reading.offsets(first))
        assert reading.offsets(first) == list(range(5, 21))

    def test_paused_hands_nothing_over_and_goes_on_where_it_was(self, kafka: Kafka, reading: Reading) -> None:
        """A seek during the pause counts, too."""
        first, _ = kafka.tps
        kafka.append(first, b"a", b"b")
        reading.until(lambda: len(reading.offsets(first)) == 2)
        reading.consumer.pause()
        kafka.append(first, b"c")
        for _ in range(10):
            reading.turn()
        assert reading.offsets(first) == [0, 1]
        reading.consumer.seek(first, CommittedOffset(1), deadline=soon(kafka))
        reading.consumer.resume()
        reading.until(lambda: len(reading.offsets(first)) >= 4)
        assert reading.offsets(first) == [0, 1, 1, 2]

    def test_topic_partition_assigned_while_paused_is_read_after_resume(self, kafka: Kafka) -> None:
        """Not before, and not never."""
        first, second = kafka.tps
        one = Reading(kafka)
        one.until(lambda: one.listener.owned == set(kafka.tps))
        other = Reading(kafka)
        one.until(lambda: len(one.listener.owned) == len(other.listener.owned) == 1, other)
        one.consumer.pause()
        other.consumer.close()
        one.until(lambda: one.listener.owned == set(kafka.tps))
        kafka.append(first, b"a")
        kafka.append(second, b"b")
        one.records.clear()
        for _ in range(10):
            one.turn()
        assert one.records == []
        one.consumer.resume()
        one.until(lambda: len(one.records) >= 2)
        one.consumer.close()

    def test_second_member_gets_its_share(self, kafka: Kafka, reading: Reading) -> None:
        """No two members own the same TopicPartition."""
        other = Reading(kafka)
        reading.until(lambda: len(reading.listener.owned) == len(other.listener.owned) == 1, other)
        assert not reading.listener.owned & other.listener.owned
        assert "lost" not in reading.listener.heard
        other.consumer.close()

    def test_membership_proves_only_what_is(self, kafka: Kafka) -> None:
        """Before the first join and after the close there is nothing that a broker would check."""
        one = Reading(kafka)
        assert not kafka.consumer().membership().is_proof
        one.until(lambda: bool(one.listener.owned))
        assert one.consumer.membership().is_proof
        one.consumer.close()

    def test_committed_offset_that_is_none_is_none(self, kafka: Kafka, reading: Reading) -> None:
        """A committed one comes as it was committed, 0 too, with its metadata."""
        first, second = kafka.tps
        start = CommittedOffset(0, metadata='{"a": "é"}')
        assert {first: None, second: None} == reading.consumer.committed([first, second], deadline=soon(kafka))
        committer = kafka.committer("one")
        committer.commit([], {first: start}, reading.consumer.membership(), deadline=soon(kafka))
        committer.close()
        assert {first: start, second: None} == reading.consumer.committed([first, second], deadline=soon(kafka))

    def test_leader_epoch_that_the_log_never_had_is_refused_by_a_seek(self, kafka: Kafka, reading: Reading) -> None:
        """The offset is of another topic, or of records that an election has dropped: nothing is read."""
        first, _ = kafka.tps
        kafka.append(first, b"a", b"b")
        reading.until(lambda: len(reading.records) == 2)
        reading.consumer.seek(first, CommittedOffset(1, leader_epoch=7), deadline=soon(kafka))
        with pytest.raises(StartPositionError):
            reading.until(lambda: len(reading.records) > 2)
        assert len(reading.records) == 2

    def test_ends_are_those_last_seen(self, kafka: Kafka) -> None:
        """Left out before the first fetch; behind is the end; with nothing but aborted records left, no lag."""
        first, second = kafka.tps
        kafka.append(first, b"a", b"b")
        one = Reading(kafka)
        assert one.consumer.ends({first: 0, second: 0}) == {}
        one.until(lambda: len(one.records) == 2)
        one.until(lambda: one.consumer.ends({first: 0, second: 0}).keys() == {first, second})
        assert one.consumer.ends({first: 2}) == {first: 2}
        kafka.append_aborted(first)
        one.until(lambda: one.consumer.ends({first: 2}) == {first: 2})
        one.consumer.seek(first, CommittedOffset(1), deadline=soon(kafka))
        assert one.consumer.ends({first: 1})[first] > 1
        kafka.append(first, b"c")
        one.until(lambda: len(one.records) == 4)
        one.consumer.close()

    def test_transaction_that_stays_open_is_told_where_it_holds_up_what_is_behind_it(
        self, kafka: Kafka, reading: Reading
    ) -> None:
        """It blocks from its first message on and counts as lag; later records come once it has ended."""
        first, second = kafka.tps
        kafka.append(first, b"a")
        kafka.append(second, b"b")
        abort = kafka.append_open(first)
        kafka.append(first, b"c")
        reading.until(lambda: reading.consumer.blocked_by_transaction({first: 1, second: 1}) == {first: 1})
        assert reading.consumer.ends({first: 1})[first] > 1
        assert reading.offsets(first) == [0]
        abort()
        reading.until(lambda: reading.offsets(first) == [0, 2])
        reading.until(lambda: reading.consumer.blocked_by_transaction({first: 3, second: 1}) == {})

    def test_topic_is_described(self, kafka: Kafka, reading: Reading) -> None:
        """Its TopicPartitions, and where each begins and ends."""
        first, second = kafka.tps
        kafka.append(first, b"a", b"b")
        assert reading.consumer.partitions_of(first.topic, deadline=soon(kafka)) == [first, second]
        for at, expected in ((FIRST_OFFSET, {first: 0, second: 0}), (END_OFFSET, {first: 2, second: 0})):
            assert reading.consumer.offsets_at([first, second], at, deadline=soon(kafka)) == expected

    def test_offset_is_told_by_the_time_of_records(self, kafka: Kafka, reading: Reading) -> None:
        """The first record of that time or later; the end if all are older."""
        first, _ = kafka.tps
        kafka.append(first, b"a", b"b")
        reading.until(lambda: len(reading.records) == 2)
        times = [one.timestamp_ms or 0 for one in reading.records]
        for at_ms, expected in ((times[0], 0), (times[1] + 1, 2)):
            assert reading.consumer.offsets_at([first], at_ms, deadline=soon(kafka)) == {first: expected}

    def test_topic_has_an_id_that_every_member_is_told(self, kafka: Kafka, reading: Reading) -> None:
        """As Kafka's tools print it; a topic that does not exist has none, and that is no failure."""
        topic = kafka.tps[0].topic
        found = reading.consumer.topic_ids([topic, "absent"], deadline=soon(kafka))
        assert found == kafka.consumer().topic_ids([topic], deadline=soon(kafka))
        assert found.keys() == {topic}
        assert re.fullmatch("[A-Za-z0-9_-]{22}", found[topic])
        assert reading.consumer.topic_ids([], deadline=soon(kafka)) == {}

    def test_close_gives_everything_back(self, kafka: Kafka) -> None:
        """Through the callback, before it returns."""
        one = Reading(kafka)
        one.until(lambda: one.listener.owned == set(kafka.tps))
        one.consumer.close()
        assert one.listener.owned == set()
        assert one.listener.heard[-1] == "revoked"


class FlushRecordsContract:
    """A reader gets the flush records of the group and topic that it asks for, and of no other."""

    def test_next_offsets_are_those_of_the_group_and_of_the_topic_asked_for(self, kafka: Kafka) -> None:
        """The newest; nothing of a TopicPartition that no flush record names, nor of another topic of its name."""
        ours, group_id = FLUSH_RECORD.topic_partitions, FLUSH_RECORD.group_id
        topics, made_anew = SourceTopics(FLUSH_RECORD.topic_ids), SourceTopics({"app": "made anew"})
        first, second, absent = (TopicPartition("app", number) for number in (0, 3, 9))
        deadline = soon(kafka)
        assert kafka.flush_records(group_id).read([first], topics, deadline=deadline).next_offsets == {}
        older = replace(FLUSH_RECORD, ended_at_ms=0, topic_partitions=(replace(ours[0], next_offset=500),))
        foreign = replace(FLUSH_RECORD, group_id="another", topic_partitions=(replace(ours[0], next_offset=900),))
        kafka.announce(*map(encode_flush_record, (older, FLUSH_RECORD, foreign)))
        asked = [first, second, absent]
        found = kafka.flush_records(group_id).read(asked, topics, deadline=deadline).next_offsets
        assert found == {first: ours[0].next_offset, second: ours[1].next_offset}
        assert kafka.flush_records(group_id).read([], topics, newest_of=asked, deadline=deadline).next_offsets == found
        assert kafka.flush_records("another").read(asked, topics, deadline=deadline).next_offsets == {first: 900}
        assert kafka.flush_records(group_id).read(asked, made_anew, deadline=deadline).next_offsets == {}

    def test_what_is_no_flush_record_is_not_passed_over(self, kafka: Kafka) -> None:
        """It may be one of a later version."""
        kafka.announce(b"{}")
        with pytest.raises(HistoryUnknownError):
            kafka.flush_records("group").read([TopicPartition("app", 0)], SourceTopics(), deadline=soon(kafka))


class CommitterContract:
    """Messages and offsets become visible together, or neither; the broker fences by member and epoch only."""

    def commit(
        self,
        kafka: Kafka,
        committer: Committer,
        membership: Membership,
        offsets: Mapping[TopicPartition, int],
        value: bytes = b"announced",
    ) -> None:
        """Commit one message and offsets."""
        message = Message(kafka.announcements, b"key", value, [("header", b"value")])
        committed = {tp: CommittedOffset(offset) for tp, offset in offsets.items()}
        committer.commit([message], committed, membership, deadline=soon(kafka))

    def committed(self, kafka: Kafka, reading: Reading, tp: TopicPartition) -> int | None:
        """Give the number that is committed."""
        found = reading.consumer.committed([tp], deadline=soon(kafka))[tp]
        return None if found is None else found.offset

    def test_messages_and_offsets_are_there_together(self, kafka: Kafka, reading: Reading) -> None:
        """After the commit, for readers of committed data."""
        first, _ = kafka.tps
        committer = kafka.committer("one")
        self.commit(kafka, committer, reading.consumer.membership(), {first: 7})
        assert kafka.announced() == [b"announced"]
        assert self.committed(kafka, reading, first) == 7
        assert not committer.is_ready
        committer.close()

    def test_leader_epoch_and_metadata_come_back(self, kafka: Kafka, reading: Reading) -> None:
        """With offset 0, which is a committed offset, too; metadata up to what the broker takes."""
        first, _ = kafka.tps
        committer = kafka.committer("one")
        for leader_epoch, metadata in [(None, ""), (0, '{"v":1}'), (3, "é" * 1000), (None, "x" * METADATA_BYTES_MAX)]:
            committed = CommittedOffset(0, leader_epoch, metadata)
            committer.commit([], {first: committed}, reading.consumer.membership(), deadline=soon(kafka))
            assert {first: committed} == reading.consumer.committed([first], deadline=soon(kafka))
        committer.close()

    def test_metadata_that_the_broker_does_not_take_stops(self, kafka: Kafka, reading: Reading) -> None:
        """One character more: nothing becomes visible, and the same would be sent again for ever."""
        first, _ = kafka.tps
        committer = kafka.committer("one")
        message = Message(kafka.announcements, None, b"announced", [])
        committed = CommittedOffset(7, metadata="x" * (METADATA_BYTES_MAX + 1))
        with pytest.raises(SourceError):
            committer.commit([message], {first: committed}, reading.consumer.membership(), deadline=soon(kafka))
        assert kafka.announced() == []
        assert self.committed(kafka, reading, first) is None
        committer.close()

    def test_producer_that_is_ready_is_used_and_then_another_is(self, kafka: Kafka, reading: Reading) -> None:
        """Three transactions, each with its own."""
        first, _ = kafka.tps
        committer = kafka.committer("one")
        for offset in (1, 2, 3):
            committer.prepare()
            assert committer.is_ready
            self.commit(kafka, committer, reading.consumer.membership(), {first: offset}, b"%d" % offset)
        assert kafka.announced() == [b"1", b"2", b"3"]
        committer.close()

    @pytest.mark.parametrize("membership", [Membership(-1, "", b""), Membership(-1, "x", b""), Membership(3, "", b"")])
    def test_finding_3_empty_metadata_is_refused_here_since_the_broker_does_not(
        self, kafka: Kafka, reading: Reading, membership: Membership
    ) -> None:
        """Nothing becomes visible."""
        first, _ = kafka.tps
        committer = kafka.committer("one")
        with pytest.raises(MembershipError):
            self.commit(kafka, committer, membership, {first: 7})
        assert kafka.announced() == []
        assert self.committed(kafka, reading, first) is None
        committer.close()

    def test_metadata_of_before_a_rebalance_is_refused_by_the_broker(self, kafka: Kafka, reading: Reading) -> None:
        """ILLEGAL_GENERATION: aborted, nothing visible; the next transaction with fresh metadata is committed.

        For what was given away, that is: since KIP-1251 (Kafka 4.3) a KIP-848 member may still commit with an older
        epoch what it has owned all the time.
        """
        stale = reading.consumer.membership()
        other = Reading(kafka)
        reading.until(lambda: len(reading.listener.owned) == len(other.listener.owned) == 1, other)
        (ours,), (given_away,) = reading.listener.owned, other.listener.owned
        committer = kafka.committer("one")
        with pytest.raises(CommitAbortedError) as caught:
            self.commit(kafka, committer, stale, {given_away: 7}, b"stale")
        assert caught.value.code == "ILLEGAL_GENERATION"
        assert kafka.announced() == []
        self.commit(kafka, committer, reading.consumer.membership(), {ours: 7}, b"fresh")
        assert kafka.announced() == [b"fresh"]
        committer.close()
        other.consumer.close()

    def test_metadata_of_a_member_that_has_left_is_refused_by_the_broker(self, kafka: Kafka, reading: Reading) -> None:
        """UNKNOWN_MEMBER_ID, or its generation: aborted."""
        first, _ = kafka.tps
        other = Reading(kafka)
        reading.until(lambda: len(other.listener.owned) == 1, other)
        left = other.consumer.membership()
        other.consumer.close()
        reading.until(lambda: reading.listener.owned == set(kafka.tps))
        committer = kafka.committer("one")
        with pytest.raises(CommitAbortedError):
            self.commit(kafka, committer, left, {first: 7})
        assert kafka.announced() == []
        committer.close()

    def test_finding_3_broker_does_not_check_who_owns_what_is_committed(self, kafka: Kafka, reading: Reading) -> None:
        """Why the filter on ownership is a matter of safety: a member may commit what another one owns."""
        other = Reading(kafka)
        reading.until(lambda: len(reading.listener.owned) == len(other.listener.owned) == 1, other)
        (not_ours,) = other.listener.owned
        committer = kafka.committer("one")
        self.commit(kafka, committer, reading.consumer.membership(), {not_ours: 7})
        assert self.committed(kafka, reading, not_ours) == 7
        committer.close()
        other.consumer.close()

    def test_finding_2_second_committer_of_one_id_fences_the_first(self, kafka: Kafka, reading: Reading) -> None:
        """The first's producer is dead for good; nothing of its transaction is visible; its next one works."""
        first, _ = kafka.tps
        one, two = kafka.committer("same"), kafka.committer("same")
        one.prepare()
        two.prepare()
        with pytest.raises((FencedError, CommitAbortedError)):
            self.commit(kafka, one, reading.consumer.membership(), {first: 7}, b"fenced")
        self.commit(kafka, one, reading.consumer.membership(), {first: 8}, b"again")
        assert kafka.announced() == [b"again"]
        one.close()
        two.close()
