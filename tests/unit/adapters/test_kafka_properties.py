"""Refused properties and secrets, judged by what the client library itself makes of each name that it knows."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest

from service.adapters.kafka_options import consumer_options, producer_options
from service.config.kafka_properties import REFUSED, SECRET, is_secret, refused
from service.config.settings import KafkaSettings, S3Settings, Settings
from tests.unit.adapters.library_properties import REDACTED, effect, effective, known_names

SHOWN_BY_US = {"sasl.username", "ssl.key.location", "sasl.oauthbearer.assertion.private.key.file", "ssl.ca.pem"}
"""Names, paths and public certificates, which the library does not show and an operator wants to see."""


def test_every_spelling_of_a_refused_property_is_refused() -> None:
    """Aliases, and `topic.` before a topic's: whatever sets what a refused name sets is refused as well."""
    protected = {made for name in REFUSED for made in effect(name)}
    passed = {
        name: made for name in known_names() if (made := protected & effect(name).keys()) and not refused(name, "?")
    }

    assert {"auto.offset.reset", "isolation.level", "request.required.acks"} <= protected
    assert "topic.auto.offset.reset" in known_names()
    assert passed == {}


@pytest.mark.slow
@pytest.mark.parametrize("role", ["consumer", "producer"])
def test_no_spelling_changes_what_the_library_makes_of_the_promise(role: str) -> None:
    """The configuration in force is the same with and without a refused property, however it is spelled."""
    kind: type[Any] = getattr(confluent_kafka, role.title())
    plain = effective(kind, told(role, {}))

    changed = {
        name: made
        for name in known_names()
        if refused(name, "1") and (made := effective(kind, told(role, {name: "1"}))) != plain
    }

    assert changed == {}
    assert plain["transactional.id" if role == "producer" else "check.crcs"]


def told(role: str, properties: dict[str, str]) -> dict[str, Any]:
    """Return what a client is told where settings pass these properties; no brokers, since nothing is asked."""
    kafka = KafkaSettings(bootstrap_servers="", source_topics=("source",), client_properties=properties)
    settings = Settings(kafka=kafka, s3=S3Settings(bucket="bucket"))
    if role == "consumer":
        return consumer_options(settings, worker="w")
    return producer_options(settings, worker="w", transactional_id="id")


@pytest.mark.parametrize(
    ("name", "word"),
    [("group.instance.id", "one value for all"), ("plugin.library.paths", "plugin"), ("test.mock.num.brokers", "tests"),
     ("test.mock.broker.rtt", "tests"), ("topic.auto.offset.reset", "jump"), ("topic.acks", "in-sync"),
     ("default.topic.config", "own names"), ("delivery.report.only.error", "acknowledgement")],
)  # fmt: skip
def test_property_that_puts_something_else_in_place_is_refused_with_a_reason(name: str, word: str) -> None:
    """One identity for all replicas, foreign code, brokers of tests, a jump."""
    assert word in (refused(name, "x") or "")


@pytest.mark.slow
def test_every_property_that_the_library_hides_is_a_secret() -> None:
    """Under all its names; but for what is a name, a path or public."""
    hidden = {name for name in known_names() if REDACTED in effect(name).values()}

    assert "sasl.oauthbearer.client.credentials.client.secret" in hidden
    assert hidden >= SECRET
    assert {name for name in hidden if not is_secret(name)} == SHOWN_BY_US


@pytest.mark.parametrize(
    "name", ["sasl.phrase.password", "Sasl.Password", " sasl.password", "ssl.truststore.password", "sasl.jaas.config"]
)
def test_property_that_is_only_named_like_a_secret_is_one(name: str) -> None:
    """A slip, or another client's name: the library refuses it, but its value must not be shown before."""
    assert is_secret(name)


@pytest.mark.slow
def test_tuning_is_neither_refused_nor_a_secret() -> None:
    """What the lists do not name passes: they have not grown over what operators need."""
    free = {name for name in known_names() if not refused(name, "?") and not is_secret(name)}

    assert {"fetch.max.bytes", "linger.ms", "compression.type", "ssl.ca.location", "sasl.mechanism"} <= free
    assert len(free) > 80
