"""librdkafka's options: what the promise needs wins over whatever is passed through."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from log_partitioner.adapters.kafka.options import (
    consumer_options,
    producer_options,
)
from log_partitioner.config.settings import FlushSettings, KafkaSettings, S3Settings, Settings

PROMISED = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "check.crcs": True,
    "allow.auto.create.topics": False,
}


def settings(*, budget_s: float = 120, **more: object) -> Settings:
    """Give settings with these beside the required ones."""
    kafka = KafkaSettings(bootstrap_servers="broker:9092", source_topics=("source",), **more)
    return Settings(kafka=kafka, s3=S3Settings(bucket="bucket"), flush=FlushSettings(budget_s=budget_s))


def test_finding_7_consumer_reads_committed_and_commits_and_resets_nothing() -> None:
    """The options that the promise hangs on, explicitly, never by default."""
    options = consumer_options(settings(), worker="w")
    assert options.items() >= PROMISED.items()
    assert options["max.poll.interval.ms"] == 300_000
    assert (options["session.timeout.ms"], options["heartbeat.interval.ms"]) == (30_000, 3_000)


def test_what_is_passed_through_reaches_both_clients_and_properties_of_one_that_one() -> None:
    """Security settings go to both; each client has its own; secrets are revealed here only."""
    kafka = settings(
        client_properties={"security.protocol": "SASL_SSL", "fetch.min.bytes": "10", "compression.type": "lz4"},
        secret_properties={"sasl.password": SecretStr("s3cret")},
    )
    consumer = consumer_options(kafka, worker="w")
    producer = producer_options(kafka, worker="w", transactional_id="id")
    assert consumer["security.protocol"] == producer["security.protocol"] == "SASL_SSL"
    assert consumer["sasl.password"] == producer["sasl.password"] == "s3cret"
    assert consumer["fetch.min.bytes"] == "10"
    assert "fetch.min.bytes" not in producer
    assert producer["compression.type"] == "lz4"
    assert "compression.type" not in consumer


@pytest.mark.parametrize(("protocol", "has_strategy"), [("classic", True), ("consumer", False)])
def test_strategy_and_session_belong_to_the_classic_protocol(protocol: str, *, has_strategy: bool) -> None:
    """With KIP-848 they are the broker's; librdkafka refuses them there."""
    options = consumer_options(settings(group_protocol=protocol), worker="w")
    assert options["group.protocol"] == protocol
    assert ("partition.assignment.strategy" in options) == has_strategy
    assert ("session.timeout.ms" in options) == ("heartbeat.interval.ms" in options) == has_strategy


def test_transactional_id_and_time_out_are_ours() -> None:
    """They are made of settings that are checked against each other."""
    options = producer_options(
        settings(budget_s=90, client_properties={"transactional.id": "x", "transaction.timeout.ms": "1"}),
        worker="w",
        transactional_id="prefix.group.w",
    )
    assert options["transactional.id"] == "prefix.group.w"
    assert (options["enable.idempotence"], options["acks"]) == (True, "all")
    assert options["transaction.timeout.ms"] == 45_000


def test_library_accepts_all_options() -> None:
    """No name is misspelt: the clients are made of them (no broker is asked)."""
    import confluent_kafka  # noqa: PLC0415

    quiet = {"log_level": 0, "error_cb": lambda _error: None}
    for protocol in ("classic", "consumer"):
        confluent_kafka.Consumer({**consumer_options(settings(group_protocol=protocol), worker="w"), **quiet}).close()
    confluent_kafka.Producer({**producer_options(settings(), worker="w", transactional_id="id"), **quiet})
