"""`topics create`: how each topic is created."""

from __future__ import annotations

import pytest

from log_partitioner.config.settings import KafkaSettings
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
