"""The client library's lines, at a pace that a person can read, and the state of the brokers that they tell."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError
from structlog.testing import capture_logs

from log_partitioner.adapters.kafka.log import TROUBLE_S, Brokers, client_logger
from log_partitioner.pace import AGAIN_MAX_S, Pace
from tests.fakes.clock import FakeClock

REFUSED = (
    "broker-1:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: Connection refused (after 0ms in state CONNECT)"
)
IDLE = "broker-1:9092/1: Disconnected (after 600004ms in state UP)"


def fail(text: str) -> str:
    """Make a line of the library's log."""
    return f"FAIL [rdkafka#producer-1] [thrd:x]: {text}"


def test_what_comes_again_is_said_at_distances_that_double() -> None:
    """At once, then after 5 s, 10 s ... and five minutes at most; each time how often it came."""
    clock = FakeClock()
    pace = Pace(clock.now_s)
    said = []
    for second in range(2000):
        if times := pace.times("same"):
            said.append((second, times))
        clock.advance(1.0)

    assert said[:5] == [(0, 1), (5, 5), (15, 10), (35, 20), (75, 40)]
    assert {b - a for (a, _), (b, _) in zip(said[-3:], said[-2:], strict=False)} == {AGAIN_MAX_S}


def test_pace_forgets_the_oldest_of_more_than_two_hundred_things() -> None:
    """A line that it remembers is not said again at once; memory is bounded."""
    pace = Pace(FakeClock().now_s)
    assert [pace.times(number) for number in range(200)] == [1] * 200
    assert pace.times(0) == 0
    pace.times(200)
    assert pace.times(0) == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (REFUSED, "connection refused"),
        (
            "ssl://[::1]:9093/2: SSL handshake failed: certificate verify failed (after 3ms in state SSL_HANDSHAKE)",
            "TLS",
        ),
        ("sasl_ssl://b:9/3: SASL authentication error: bad password (after 3ms in state AUTH_REQ)", "SASL"),
        (
            "GroupCoordinator: b:9: Failed to resolve 'b:9': Name or service not known (after 1ms in state CONNECT)",
            "host",
        ),
        ("b:9/1: 3 request(s) timed out: disconnect (average rtt 1.0ms) (after 10000ms in state UP)", "no answer"),
        ("b:9/1: something that nobody has seen yet (after 1ms in state CONNECT)", "fails"),
    ],
)
def test_failure_of_a_broker_is_one_line_however_often_and_from_whom_it_comes(text: str, reason: str) -> None:
    """Log line and error event of both clients are the same thing."""
    clock = FakeClock()
    brokers = Brokers(clock.now_s)
    with capture_logs() as logs:
        for client in ("consumer", "producer"):
            logger, handler = client_logger(client, brokers)
            for _ in range(100):
                logger.error(fail(text))
                handler.on_error(KafkaError(KafkaError._TRANSPORT, text))
            handler.on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    (line,) = logs

    assert line["event"] == "broker_unreachable"
    assert reason in line["reason"]
    assert line["address"] in text
    assert line["address"] in str(brokers.trouble())


def test_connection_that_ends_after_it_was_in_use_is_no_trouble() -> None:
    """Brokers close what is idle."""
    brokers = Brokers()
    logger, _ = client_logger("consumer", brokers)
    with capture_logs() as logs:
        logger.info(fail(IDLE))
    assert (logs, brokers.trouble()) == ([], None)


def test_trouble_ends_with_an_answer_or_when_it_is_seen_no_more() -> None:
    """One broker of three that is down is none, once the others have answered; that all are down is one again."""
    clock = FakeClock()
    brokers = Brokers(clock.now_s)
    logger, handler = client_logger("consumer", brokers)
    logger.error(fail(REFUSED))
    clock.advance(7.0)
    logger.error(fail(REFUSED))  # again: it is since the first
    assert brokers.trouble() == (
        "broker broker-1:9092: connection refused, for 7 s (Connect to ipv4#10.0.0.1:9092 failed: Connection refused)"
    )
    clock.advance(TROUBLE_S + 1.0)
    assert brokers.trouble() is None

    logger.error(fail(REFUSED))
    brokers.answered()
    logger.error(fail(REFUSED))
    assert brokers.trouble() is None
    handler.on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert brokers.trouble() is not None


def test_trouble_that_the_library_tells_no_more_is_not_taken_for_silence() -> None:
    """It tells an error that comes again each 30 s only; only without any trouble a broker says nothing."""
    clock = FakeClock()
    brokers = Brokers(clock.now_s)
    logger, _ = client_logger("producer", brokers)
    logger.error(fail(REFUSED))
    clock.advance(31.0)
    brokers.waited("broker-1:9092", 0.0)
    assert "connection refused, for 31 s" in (brokers.trouble() or "")
    clock.advance(TROUBLE_S)
    brokers.waited("broker-1:9092", 0.0)
    assert "broker-1:9092: no answer" in (brokers.trouble() or "")


def test_other_lines_and_errors_are_said_too() -> None:
    """Once each, with the numbers in them left out of the comparison."""
    logger, handler = client_logger("producer", Brokers(FakeClock().now_s))
    with capture_logs() as logs:
        for number in range(50):
            logger.warning("GETPID [rdkafka#producer-%d]: coordinator load in progress", number)
            handler.on_error(KafkaError(KafkaError._FENCED, "fenced", True))  # noqa: FBT003 - the library's way
            handler.on_error(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "denied"))
    told: list[Any] = [(line["event"], line["log_level"]) for line in logs]
    assert told == [("client_log", "warning"), *[("client_error", "warning")] * 2]
