"""Questions to brokers: a leader or a coordinator that moves is asked again, any other refusal is told."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from log_partitioner.adapters.kafka import topics as kafka_topics
from log_partitioner.adapters.kafka.topics import KafkaTopics, UnansweredError
from log_partitioner.boundary import END_OFFSET, FIRST_OFFSET
from log_partitioner.config.settings import KafkaSettings
from log_partitioner.config.source_topics import SourceNames
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import CouldNotTellError
from tests.fakes.records import P0


class Consumer:
    """A client that refuses to tell the ends some times, and gives messages poll by poll."""

    refusals: list[int]
    polls: list[list[Any]]
    assigned: list[int]

    def __init__(self, _options: dict[str, Any]) -> None:
        """Take no notice."""

    def offsets_for_times(self, asked: list[Any], *, timeout: float) -> list[Any]:
        """Refuse, or answer."""
        assert timeout > 0
        if self.refusals:
            raise KafkaException(KafkaError(self.refusals.pop()))
        told = {FIRST_OFFSET: 3, END_OFFSET: 9}
        return [confluent_kafka.TopicPartition(one.topic, one.partition, told[one.offset]) for one in asked]

    def list_topics(self, topic: str | None = None, *, timeout: float) -> Any:
        """Give all topics, or the one that is asked for."""
        assert timeout > 0
        found = {name: SimpleNamespace(error=None, partitions={1: 1, 0: 0}) for name in ("app-b", "app-a", "web", "x")}
        found["app-gone"] = SimpleNamespace(error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), partitions={})
        return SimpleNamespace(topics=found if topic is None else {topic: found.get(topic, found["app-gone"])})

    def consume(self, most: int, _timeout: float) -> list[Any]:
        """Give the next poll's messages."""
        assert most > 0
        return self.polls.pop(0) if self.polls else []

    def assign(self, places: list[confluent_kafka.TopicPartition]) -> None:
        """Note the offsets."""
        self.assigned += [place.offset for place in places]

    def pause(self, _places: object) -> None:
        """Take no notice."""

    resume = pause

    def unassign(self) -> None:
        """Take no notice."""

    def close(self) -> None:
        """Do nothing."""


def message(offset: int, code: int | None = None) -> Any:
    """Give a message, or the client's word for what is at an offset."""
    error = None if code is None else KafkaError(code)
    said = {"topic": P0.topic, "partition": P0.partition, "offset": offset, "error": error, "timestamp": (1, 7)}
    said |= {"key": None, "value": b"x", "headers": None}
    return SimpleNamespace(**{name: lambda value=value: value for name, value in said.items()})


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> KafkaTopics:
    """Give what asks, over that client."""
    monkeypatch.setattr(confluent_kafka, "Consumer", Consumer)
    Consumer.assigned = []
    return KafkaTopics.of(KafkaSettings(bootstrap_servers="nowhere:1", source_topics=("app",)))


def test_what_moves_for_ever_is_told(topics: KafkaTopics, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the time for an answer."""
    monkeypatch.setattr(kafka_topics, "ANSWER_S", 0.25)
    Consumer.refusals = [KafkaError.NOT_COORDINATOR] * 100
    with pytest.raises(CouldNotTellError):
        topics.ends(P0)


def test_what_no_waiting_mends_is_told_at_once(topics: KafkaTopics) -> None:
    """Such as a permission."""
    Consumer.refusals = [KafkaError.TOPIC_AUTHORIZATION_FAILED] * 2
    with pytest.raises(CouldNotTellError):
        topics.ends(P0)
    assert len(Consumer.refusals) == 1


def test_source_topics_are_those_named_and_those_that_match_now(topics: KafkaTopics) -> None:
    """A named one has to be there; and something has to match, or nothing would be compared with nothing."""
    found = topics.source_topic_partitions(SourceNames(["web", "^app-.*"]))
    assert found == [
        P0._replace(topic=topic, partition=number) for topic in ("web", "app-a", "app-b") for number in (0, 1)
    ]
    assert topics.source_topics(SourceNames(["^no.*"])) == []
    with pytest.raises(CouldNotTellError, match=r"no topic of nowhere:1 matches \^no\.\*, \^neither"):
        topics.source_topic_partitions(SourceNames(["^no.*", "^neither"]))
    with pytest.raises(CouldNotTellError, match="topic absent of nowhere:1: UNKNOWN_TOPIC_OR_PART"):
        topics.source_topic_partitions(SourceNames(["absent", "^app-.*"]))


def test_end_of_a_leader_that_lags_is_no_end(topics: KafkaTopics) -> None:
    """One that was just elected does not know yet of all that is committed: what comes a moment later is read."""
    end = KafkaError._PARTITION_EOF
    Consumer.polls = [[message(3), message(4, end)], [], [message(4), message(6, end)]]
    assert [record.offset for record in topics.read({P0: (3, 6)})] == [3, 4]


def test_what_cannot_be_read_is_told_with_its_offset(topics: KafkaTopics) -> None:
    """Later messages do not hide it."""
    Consumer.polls = [[message(3), message(4, KafkaError._BAD_MSG), message(9)]]
    read = topics.read({P0: (3, 6)})
    assert next(read).offset == 3
    with pytest.raises(UnansweredError, match=r"reading .*_BAD_MSG") as told:
        next(read)
    assert told.value.offset == 4


def test_error_behind_the_range_is_none_of_it(topics: KafkaTopics) -> None:
    """Behind a broken batch the library may go where the log has nothing, say so later, and fetch no more."""
    Consumer.polls = [
        [message(3), message(2**52, KafkaError._AUTO_OFFSET_RESET)],
        [message(5, KafkaError._PARTITION_EOF)],
    ]
    assert [record.offset for record in topics.read({P0: (3, 5)})] == [3]
    assert Consumer.assigned == [3, 4]


def test_errors_behind_the_range_again_and_again_are_silence(
    topics: KafkaTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They say nothing of the range."""
    monkeypatch.setattr(kafka_topics, "ANSWER_S", 0.1)
    error = message(2**52, KafkaError._AUTO_OFFSET_RESET)
    monkeypatch.setattr(Consumer, "consume", lambda *_: [error])
    with pytest.raises(UnansweredError, match="not read in time"):
        list(topics.read({P0: (3, 5)}))


def test_silence_is_told(topics: KafkaTopics, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the time for an answer, counted from the last message."""
    monkeypatch.setattr(kafka_topics, "ANSWER_S", 0.1)
    Consumer.polls = [[message(3)]]
    read = topics.read({P0: (3, 6)})
    assert next(read).offset == 3
    with pytest.raises(UnansweredError, match="not read in time"):
        next(read)


def test_client_that_gets_no_token_leaves_the_question_unanswered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The binding says so by a SystemError if the callback for a token fails while a client is made."""

    def refuse(_options: dict[str, Any], **_: Any) -> Consumer:
        raise SystemError("returned a result with an exception set")

    monkeypatch.setattr(confluent_kafka, "Consumer", refuse)
    options = {"bootstrap.servers": "nowhere:1", "oauth_cb": str}
    asking = KafkaTopics(options, wait=lambda: Deadline.after(1, time.monotonic), log_as="test")
    with pytest.raises(UnansweredError, match="no token to log in"):
        asking.topic_partitions("app")
