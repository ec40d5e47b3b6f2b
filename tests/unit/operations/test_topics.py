"""`topics create`: how each topic is created."""

from __future__ import annotations

import argparse
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from log_partitioner.adapters.kafka.topics import UnansweredError
from log_partitioner.config.settings import KafkaSettings
from log_partitioner.operations import topics
from log_partitioner.operations.topics import BROKERS_DEFAULT, plans_of


@pytest.mark.parametrize(
    ("replicas", "retention_s", "message_bytes", "evidence"),
    [
        (BROKERS_DEFAULT, None, 900_000, {"retention.ms": "-1"}),
        (2, 86_400, 900_000, {"retention.ms": "86400000"}),
        (3, None, 900_000, {"retention.ms": "-1", "min.insync.replicas": "2"}),
        (3, None, 2_000_000, {"retention.ms": "-1", "min.insync.replicas": "2", "max.message.bytes": "4000000"}),
    ],
)
def test_topics_keep_evidence_by_age_alone_and_of_a_backfill_the_newest_record(
    replicas: int, retention_s: float | None, message_bytes: int, evidence: dict[str, str]
) -> None:
    """Two of three replicas have what counts, no leader is elected uncleanly, and the largest message fits."""
    kafka = KafkaSettings(bootstrap_servers="b:1", source_topics=("s",), message_bytes_max=message_bytes)

    plans = plans_of(kafka, 6, replicas, retention_s)

    assert [(one.name, one.partitions, one.replicas) for one in plans] == [
        ("references", 6, replicas), ("flushes", 1, replicas), ("dead-letters", 6, replicas), ("backfills", 1, replicas)
    ]  # fmt: skip
    kept = {"cleanup.policy": "delete", "retention.bytes": "-1", "unclean.leader.election.enable": "false", **evidence}
    newest = {name: value for name, value in kept.items() if not name.startswith("retention")}
    assert [dict(one.configs) for one in plans] == [kept] * 3 + [{**newest, "cleanup.policy": "compact"}]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "source topic s is not there: it is yours to create\n"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, ""),
    ],
)
def test_topics_are_created_without_a_right_on_the_source(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int, told: str
) -> None:
    """Their principal has rights on the topics that it creates (docs/ACCESS.md); an absent source is a note."""
    created: list[str] = []

    def topic_partitions(topic: str, *, may_be_absent: bool) -> list[Any]:
        assert may_be_absent
        if topic == "s" and code != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise UnansweredError("topic s of b:1", KafkaError(code))
        return []

    def create_topics(_client: object, plans: Any, **_: object) -> dict[str, str]:
        created.extend(plan.name for plan in plans)
        return dict.fromkeys(created, "")

    opened = contextmanager(lambda *_, **__: iter([SimpleNamespace(topic_partitions=topic_partitions)]))
    monkeypatch.setattr(topics, "KafkaTopics", SimpleNamespace(of=opened))
    monkeypatch.setattr(topics, "consumer_options", lambda *_, **__: {})
    monkeypatch.setattr(topics, "create_topics", create_topics)
    monkeypatch.setattr(topics, "KafkaNeeds", lambda *_: SimpleNamespace(ask_keeping=list))
    given = argparse.Namespace(partitions=6, replication_factor=3, retention=None, dry_run=False, is_json=False)
    settings: Any = SimpleNamespace(kafka=KafkaSettings(bootstrap_servers="b:1", source_topics=("s", "^t-.*")))

    assert topics.main(given, settings) == 0
    assert created == ["references", "flushes", "dead-letters", "backfills"]
    assert capsys.readouterr().err == told
