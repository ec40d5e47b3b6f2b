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

from service.adapters import kafka_topic_ids
from service.adapters.kafka_consumer import KafkaConsumer
from service.core.deadline import Deadline
from tests.fakes.clock import FakeClock
from tests.unit.adapters.scripted_kafka import fresh_consumer_class, kafka_error

KNOWN, NONE = Uuid(-(2**62) + 1, -1), Uuid(0, 0)


class ScriptedAdmin:
    """Answers with an id or an error for each topic."""

    answers: Mapping[str, Uuid | Exception]
    waited_s: list[float]

    def __init__(self, options: dict[str, Any], **_kwargs: Any) -> None:
        assert options == {"group.id": "g"}

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
    monkeypatch.setattr(kafka_topic_ids, "AdminClient", made)
    monkeypatch.setattr(confluent_kafka, "Consumer", fresh_consumer_class())
    return made


def test_ids_are_in_the_alphabet_for_urls_and_untold_ones_are_left_out_and_logged_once(
    admin: type[ScriptedAdmin],
) -> None:
    """librdkafka writes `+` and `/`, Kafka's tools `-` and `_`; all zeros stand for none."""
    clock = FakeClock()
    consumer = KafkaConsumer({"group.id": "g"}, ["a", "b", "c"], incremental=True)
    deadline = Deadline.after(20.0, clock.now_s)
    with capture_logs() as logs:
        for _ in range(2):
            assert {"a": str(KNOWN).replace("/", "_")} == consumer.topic_ids(["c", "a", "b"], deadline=deadline)
            clock.advance(30.0)
    assert "/" in str(KNOWN)
    assert [pytest.approx(left) for left in (20.0, 0.1)] == admin.waited_s
    assert {"b": "the broker gives none", "c": "TOPIC_AUTHORIZATION_FAILED"} == {
        one["topic"]: one["cause"] for one in logs
    }
    assert [one["event"] for one in logs] == ["topic_id_unknown"] * 2


def test_ids_of_no_topics_are_not_asked_for(admin: type[ScriptedAdmin]) -> None:
    """The library would refuse the question."""
    consumer = KafkaConsumer({"group.id": "g"}, [], incremental=True)
    assert {} == consumer.topic_ids([], deadline=Deadline.after(20.0, FakeClock().now_s))
    assert admin.waited_s == []
