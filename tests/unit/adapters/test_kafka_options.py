"""librdkafka's options: what the promise needs wins over whatever is passed through."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from service.adapters.kafka_options import (
    PINNED_CONSUMER,
    PINNED_PRODUCER,
    consumer_options,
    producer_options,
)
from service.config.kafka_properties import REFUSED, refused
from service.config.settings import FlushSettings, KafkaSettings, S3Settings, Settings

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


@pytest.mark.parametrize("place", ["client_properties", "consumer_properties"])
@pytest.mark.parametrize("name", sorted(PROMISED))
def test_finding_7_promised_values_win_over_what_is_passed_through(place: str, name: str) -> None:
    """Also where nobody has checked the settings: the adapter does not trust its caller."""
    options = consumer_options(settings(**{place: {name: "something else"}}), worker="w")
    assert options[name] == PROMISED[name]


@pytest.mark.parametrize("name", ["enable.idempotence", "acks", "allow.auto.create.topics"])
def test_promised_values_of_the_producer_win_too(name: str) -> None:
    """Without them a transaction is none."""
    options = producer_options(settings(producer_properties={name: "0"}), worker="w", transactional_id="id")
    assert options[name] == PINNED_PRODUCER[name]


@pytest.mark.parametrize("place", ["client_properties", "consumer_properties", "producer_properties"])
@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refused_property_never_reaches_the_library(place: str, name: str) -> None:
    """Nor does an alias of one: which of two names wins would be the library's choice."""
    kafka = settings(**{place: {name: "something else"}})
    consumer = consumer_options(kafka, worker="w")
    producer = producer_options(kafka, worker="w", transactional_id="id")
    assert "something else" not in (consumer.get(name), producer.get(name))


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_every_refused_property_is_refused_with_a_reason(name: str) -> None:
    """Whatever its value; but for the two that only repeat the safe default."""
    assert refused(name, "whatever") == REFUSED[name]


def test_safe_values_of_refused_properties_are_no_problem() -> None:
    """Who writes down the default is right."""
    assert refused("ssl.endpoint.identification.algorithm", "https") is None
    assert refused("enable.ssl.certificate.verification", "true") is None
    assert refused("ssl.endpoint.identification.algorithm", "none") is not None


@pytest.mark.parametrize("name", sorted(PINNED_CONSUMER.keys() & PROMISED.keys()))
def test_promised_properties_are_refused_from_outside(name: str) -> None:
    """What wins silently is also said aloud by check-config."""
    assert name in REFUSED


def test_what_is_passed_through_reaches_both_clients_and_own_properties_one() -> None:
    """Security settings go to both; each client has its own; secrets are revealed here only."""
    kafka = settings(
        client_properties={"security.protocol": "SASL_SSL"},
        consumer_properties={"fetch.min.bytes": "10"},
        producer_properties={"compression.type": "lz4"},
        secret_properties={"sasl.password": SecretStr("s3cret")},
    )
    consumer = consumer_options(kafka, worker="w")
    producer = producer_options(kafka, worker="w", transactional_id="id")
    assert consumer["security.protocol"] == producer["security.protocol"] == "SASL_SSL"
    assert consumer["sasl.password"] == producer["sasl.password"] == "s3cret"
    assert consumer["fetch.min.bytes"] == "10"
    assert "fetch.min.bytes" not in producer
    assert producer["compression.type"] == "lz4"


@pytest.mark.parametrize(("protocol", "has_strategy"), [("classic", True), ("consumer", False)])
def test_strategy_and_session_belong_to_the_classic_protocol(protocol: str, *, has_strategy: bool) -> None:
    """With KIP-848 they are the broker's; librdkafka refuses them there."""
    options = consumer_options(settings(group_protocol=protocol), worker="w")
    assert options["group.protocol"] == protocol
    assert ("partition.assignment.strategy" in options) == has_strategy
    assert ("session.timeout.ms" in options) == has_strategy


def test_transactional_id_and_time_out_are_ours() -> None:
    """They are made of settings that are checked against each other."""
    options = producer_options(
        settings(budget_s=90, producer_properties={"transactional.id": "x", "transaction.timeout.ms": "1"}),
        worker="w",
        transactional_id="prefix.group.w",
    )
    assert options["transactional.id"] == "prefix.group.w"
    assert options["transaction.timeout.ms"] == 45_000


def test_library_accepts_all_options() -> None:
    """No name is misspelt: the clients are made of them (no broker is asked)."""
    import confluent_kafka  # noqa: PLC0415

    quiet = {"log_level": 0, "error_cb": lambda _error: None}
    for protocol in ("classic", "consumer"):
        confluent_kafka.Consumer({**consumer_options(settings(group_protocol=protocol), worker="w"), **quiet}).close()
    confluent_kafka.Producer({**producer_options(settings(), worker="w", transactional_id="id"), **quiet})
