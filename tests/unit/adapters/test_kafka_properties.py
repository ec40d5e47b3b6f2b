"""Properties that may be passed through, and secrets, judged by what the client library itself makes of each."""

from __future__ import annotations

from typing import Any, get_args

import confluent_kafka
import pytest

from log_partitioner.adapters.kafka.options import consumer_options, producer_options
from log_partitioner.config.kafka_properties import ALLOWED, SECRET, Role, is_allowed, why_not
from log_partitioner.config.settings import KafkaSettings, S3Settings, Settings
from tests.unit.adapters.library_properties import REDACTED, effect, effective

SHOWN_BY_US = {"sasl.username", "ssl.key.location", "sasl.oauthbearer.assertion.private.key.file", "ssl.ca.pem"}
"""Names, paths and public certificates, which the library does not show and an operator wants to see."""
TUNED = {"compression.type", "compression.codec", "fetch.queue.backoff.ms", "linger.ms", "queue.buffering.max.ms",
         "queued.max.messages.kbytes", "socket.timeout.ms", "topic.metadata.refresh.interval.ms"}  # fmt: skip
"""The worker sets these as it needs them; an operator may pass other values through."""
FILES = {"https.ca.location", "ssl.keystore.location"}
"""The library takes these only if there is such a file."""


@pytest.mark.slow
@pytest.mark.parametrize("role", get_args(Role))
def test_what_may_be_passed_through_changes_nothing_that_the_promise_needs(role: Role) -> None:
    """The library knows each name, and sets by it no property that the worker sets."""
    promised = effective(kind_of(role), told(role, {})).keys() - TUNED
    sets = {name: effect(name).keys() for name in ALLOWED[role]}

    assert {name for name, made in sets.items() if not made} == FILES
    assert {name for name, made in sets.items() if made & promised} == set()
    assert ("transactional.id" if role == "producer" else "check.crcs") in promised


def kind_of(role: Role) -> type[Any]:
    """Return the class of the client."""
    kind: type[Any] = getattr(confluent_kafka, role.title())
    return kind


def told(role: Role, properties: dict[str, str]) -> dict[str, Any]:
    """Return what a client is told if settings pass these properties; there are no brokers, since nothing is asked."""
    kafka = KafkaSettings(bootstrap_servers="", source_topics=("source",), client_properties=properties)
    settings = Settings(kafka=kafka, s3=S3Settings(bucket="bucket"))
    if role == "consumer":
        return consumer_options(settings, worker="w")
    return producer_options(settings, worker="w", transactional_id="id")


@pytest.mark.parametrize("name", sorted({*told("consumer", {}), *told("producer", {})} - TUNED))
def test_what_the_worker_sets_wins_and_may_not_be_passed_through(name: str) -> None:
    """The settings may be unchecked: the adapter does not trust its caller."""
    assert not is_allowed(name, "something else")
    for role in get_args(Role):
        assert told(role, {name: "something else"}) == told(role, {})


@pytest.mark.parametrize(
    "name",
    ["topic.auto.offset.reset", "topic.acks", "request.required.acks", "group.instance.id", "plugin.library.paths",
     "test.mock.num.brokers", "default.topic.config", "delivery.report.only.error", "enable.gapless.guarantee",
     "offset.store.method", "Isolation.Level", " acks", "stats_cb", "ssl.engine.location"],
)  # fmt: skip
def test_other_spelling_and_what_puts_something_else_in_place_is_refused(name: str) -> None:
    """One identity for all replicas, foreign code, brokers of tests, a jump: whatever is not named is refused."""
    assert not is_allowed(name, "x")


@pytest.mark.parametrize(
    ("name", "said"),
    [("auto.offset.reset", "set kafka.start_at"), ("security.protokol", "did you mean security.protocol?"),
     ("ssl.endpoint.identification.algorithm", "only as https"), ("acks", "docs/CONFIGURATION.md lists ")],
)  # fmt: skip
def test_refusal_says_what_to_do(name: str, said: str) -> None:
    """A setting, the nearest name, the only value, or where all of them stand."""
    assert why_not(name).startswith(said)


def test_safe_values_of_refused_properties_are_no_problem() -> None:
    """Who writes down the default is right."""
    assert is_allowed("ssl.endpoint.identification.algorithm", "https")
    assert is_allowed("enable.ssl.certificate.verification", "true")
    assert not is_allowed("ssl.endpoint.identification.algorithm", "none")


@pytest.mark.slow
def test_every_property_that_the_library_hides_is_a_secret() -> None:
    """Names, paths and public values are the exceptions."""
    hidden = {name for names in ALLOWED.values() for name in names if REDACTED in effect(name).values()}

    assert hidden >= SECRET
    assert hidden - SECRET == SHOWN_BY_US
