"""What the audit asks brokers: a leader or a coordinator that moves is asked again, anything else is told."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from service.audit import kafka_topics
from service.audit.findings import CouldNotTellError
from service.audit.kafka_topics import Ends, KafkaTopics
from service.config.settings import KafkaSettings
from tests.fakes.records import P0


class Consumer:
    """A client that refuses to tell watermarks some times."""

    refusals: list[int]

    def __init__(self, _options: dict[str, Any]) -> None:
        """Take no notice."""

    def get_watermark_offsets(self, _tp: object, *, timeout: float) -> tuple[int, int]:
        """Refuse, or answer."""
        assert timeout > 0
        if self.refusals:
            raise KafkaException(KafkaError(self.refusals.pop()))
        return 3, 9

    def close(self) -> None:
        """Do nothing."""


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> KafkaTopics:
    """Give what asks, over that client."""
    monkeypatch.setattr(confluent_kafka, "Consumer", Consumer)
    return KafkaTopics(KafkaSettings(bootstrap_servers="nowhere:1", source_topics=("app",)))


@pytest.mark.parametrize("code", [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.NOT_COORDINATOR])
def test_what_moves_is_asked_again(topics: KafkaTopics, code: int) -> None:
    """An audit beside brokers that were killed could not tell, for one question in the wrong second."""
    Consumer.refusals = [code] * 3
    assert topics.ends(P0) == Ends(3, 9)
    assert Consumer.refusals == []


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
