"""Ids of topics: as Kafka's tools print them, and never a failure."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, TopicCollection, Uuid
from structlog.testing import capture_logs

from log_partitioner.adapters.kafka import log as kafka_log
from log_partitioner.adapters.kafka.consumer import KafkaConsumer
from log_partitioner.adapters.kafka.topics import KafkaTopics
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import CouldNotTellError
from tests.fakes.clock import FakeClock
from tests.unit.adapters.scripted_kafka import fresh_consumer_class, kafka_error

KNOWN, NONE = Uuid(-(2**62) + 1, -1), Uuid(0, 0)


class ScriptedAdmin:
    """Answers with an id or an error for each topic."""

    answers: Mapping[str, Uuid | Exception]
    waited_s: list[float]
    answers_within_s = 5.0

    def __init__(self, options: dict[str, Any], **_kwargs: Any) -> None:
        assert options["group.id"] == "g"

    def list_topics(self, *, timeout: float) -> Any:
        """Give all there are."""
        if timeout > self.answers_within_s:
            return SimpleNamespace(topics=dict.fromkeys(self.answers))
        raise kafka_error(KafkaError._TIMED_OUT)

    def describe_topics(self, asked: TopicCollection, *, request_timeout: float) -> dict[str, Future[Any]]:
        """Answer at once."""
        self.waited_s.append(request_timeout)
        futures = {}
        for topic in asked.topic_names:
            future: Future[Any] = Future()
            answer = self.answers[topic]
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(SimpleNamespace(topic_id=answer))
            futures[topic] = future
        return futures


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> type[ScriptedAdmin]:
    """Give the scripted class; `a` has an id, the broker gives none of `b`, and refuses to describe `c`."""
    refused = kafka_error(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    made = type("Admin", (ScriptedAdmin,), {"answers": {"a": KNOWN, "b": NONE, "c": refused}, "waited_s": []})
    monkeypatch.setattr(kafka_log, "AdminClient", made)
    monkeypatch.setattr(confluent_kafka, "Consumer", fresh_consumer_class())
    return made


@pytest.fixture
def consumer(admin: type[ScriptedAdmin]) -> KafkaConsumer:
    """Give the adapter over the scripted library."""
    assert admin.waited_s == []
    return KafkaConsumer({"group.id": "g"}, ["a", "b", "c"])


def test_ids_are_in_the_alphabet_for_urls(consumer: KafkaConsumer) -> None:
    """The client library writes `+` and `/`, Kafka's tools `-` and `_`; all zeros stand for none."""
    found = consumer.topic_ids(["c", "a", "b"], deadline=Deadline.after(20.0, FakeClock().now_s))
    assert "/" in str(KNOWN)
    assert found == {"a": str(KNOWN).replace("/", "_")}


def test_ids_of_topics_that_match_are_told(consumer: KafkaConsumer, admin: type[ScriptedAdmin]) -> None:
    """None is, if the topics are not told in time: nothing depends on them."""
    admin.answers = {"app-a": KNOWN, "app-b": KNOWN, "web": KNOWN, "x": KNOWN}
    deadline = Deadline.after(20.0, FakeClock().now_s)
    assert consumer.topic_ids(["web", "^app-.*"], deadline=deadline).keys() == {"app-a", "app-b", "web"}
    admin.answers_within_s = 60.0
    assert consumer.topic_ids(["web", "^app-.*"], deadline=deadline) == {}


def test_untold_ids_are_logged_once_and_asked_for_again_after_a_minute(
    consumer: KafkaConsumer, admin: type[ScriptedAdmin]
) -> None:
    """Each flush asks; each question has a deadline."""
    clock = FakeClock()
    deadline = Deadline.after(35.0, clock.now_s)
    with capture_logs() as logs:
        for _ in range(5):
            assert consumer.topic_ids(["b", "c"], deadline=deadline) == {}
            clock.advance(30.0)
    assert [pytest.approx(left) for left in (10.0, 0.1, 0.1)] == admin.waited_s
    causes = {one["topic"]: one["cause"] for one in logs}
    assert causes == {"b": "the broker gives none", "c": "TOPIC_AUTHORIZATION_FAILED"}
    assert [one["event"] for one in logs] == ["topic_id_unknown"] * 2


def test_topic_that_is_not_there_is_asked_for_each_time(consumer: KafkaConsumer, admin: type[ScriptedAdmin]) -> None:
    """An operator may be making it anew, and a kept answer would let a worker read on for a minute."""
    admin.answers = {"a": kafka_error(KafkaError.UNKNOWN_TOPIC_OR_PART)}
    deadline = Deadline.after(20.0, FakeClock().now_s)
    with capture_logs() as logs:
        for _ in range(3):
            assert consumer.topic_ids(["a"], deadline=deadline) == {}
    assert len(admin.waited_s) == 3
    assert len(logs) == 1
    admin.answers = {"a": KNOWN}
    assert consumer.topic_ids(["a"], deadline=deadline).keys() == {"a"}


def test_jobs_are_told_an_id_none_or_why_nobody_can_tell(admin: type[ScriptedAdmin]) -> None:
    """A job that took "could not tell" for "brokers have no ids" would not notice a topic that was made anew."""
    clock = FakeClock()
    options = {"group.id": "g", "bootstrap.servers": "b:1"}
    with KafkaTopics(options, wait=lambda: Deadline.after(20.0, clock.now_s)) as topics:
        assert (topics.topic_id("a"), topics.topic_id("b")) == (str(KNOWN).replace("/", "_"), None)
        with pytest.raises(CouldNotTellError, match="topic c of b:1: TOPIC_AUTHORIZATION_FAILED"):
            topics.topic_id("c")
    assert len(admin.waited_s) == 3


def test_client_that_gets_no_token_tells_no_id_and_raises_nothing(
    consumer: KafkaConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop asks before each flush, and goes on without ids."""

    def none(_options: object, **_: object) -> None:
        raise kafka_error(KafkaError.SASL_AUTHENTICATION_FAILED)

    monkeypatch.setattr(kafka_log, "AdminClient", none)
    with capture_logs() as logs:
        assert consumer.topic_ids(["a"], deadline=Deadline.after(20.0, FakeClock().now_s)) == {}
    assert "no token to log in to Kafka with" in logs[0]["cause"]
