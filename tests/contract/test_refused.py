"""A group that does not take a member, on the real client library: what ends, what is waited for, what is said."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import KafkaError
from structlog.testing import capture_logs

from log_partitioner.adapters.kafka import consumer as kafka_consumer
from log_partitioner.adapters.kafka.consumer import KafkaConsumer
from log_partitioner.adapters.kafka.log import Brokers
from log_partitioner.adapters.kafka.options import PINNED_CONSUMER
from log_partitioner.errors import SourceError
from tests.contract.mock_cluster import GROUP_HEARTBEAT, JOIN_GROUP, MockCluster
from tests.fakes.listener import Listener

WAIT_S = 30.0
REQUEST = {"classic": JOIN_GROUP, "consumer": GROUP_HEARTBEAT}


class Member:
    """Joins a group, and notes what is assigned to it."""

    def __init__(self, cluster: MockCluster, protocol: str) -> None:
        self._listener = Listener()
        self.brokers = Brokers()
        options: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap, "group.id": "group", "log_level": 0}
        options |= {**PINNED_CONSUMER, "group.protocol": protocol}
        if protocol == "classic":
            options |= {"partition.assignment.strategy": "cooperative-sticky"}
        self.consumer = KafkaConsumer(options, [cluster.topic], brokers=self.brokers)
        self.consumer.subscribe(self._listener)

    def poll_until_refused(self) -> str:
        """Poll until the group has said why it does not take us."""
        until_s = time.monotonic() + WAIT_S
        while (refusal := self.brokers.refusal()) is None and time.monotonic() < until_s:
            self.consumer.consume(records_max=1, timeout_s=0.05)
        assert refusal is not None
        return refusal.text

    def poll_until_assigned(self) -> None:
        """Poll until something is assigned."""
        until_s = time.monotonic() + WAIT_S
        while not self._listener.owned and time.monotonic() < until_s:
            self.consumer.consume(records_max=1, timeout_s=0.05)
        assert self._listener.owned


@contextmanager
def refused(protocol: str, *codes: int) -> Iterator[Member]:
    """Give a member whose first requests to join are answered with these errors."""
    with MockCluster("source") as cluster:
        cluster.fail(REQUEST[protocol], *codes)
        member = Member(cluster, protocol)
        try:
            yield member
        finally:
            member.consumer.close()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (KafkaError.UNSUPPORTED_VERSION, "set kafka.group_protocol to classic"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "Group authorization failed"),
        (KafkaError.UNSUPPORTED_ASSIGNOR, "not supported by the consumer group"),
        (KafkaError.UNKNOWN, "Unknown broker error"),
    ],
)
def test_member_that_is_refused_for_good_stops_with_the_reason(code: int, said: str) -> None:
    """P02: with KIP-848 the library reports it once, as a fatal error that says `fatal() == False`, and is silent."""
    with refused("consumer", code) as member, pytest.raises(SourceError, match=said):
        member.poll_until_assigned()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_full_group_is_waited_for_with_one_line_and_joined_once_there_is_room(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P05: the client that KIP-848 kills is replaced by another one; the reason is at hand until then."""
    monkeypatch.setattr(kafka_consumer, "JOIN_AGAIN_S", 0.1)
    with capture_logs() as logs, refused(protocol, *[KafkaError.GROUP_MAX_SIZE_REACHED] * 2) as member:
        text = member.poll_until_refused()
        member.poll_until_assigned()
        assert member.consumer.membership().is_proof

    (line,) = [line for line in logs if line["event"] == "consumer_error"]
    assert "the group is full" in text
    assert line["message"] == text


def test_other_strategy_is_told_with_what_to_do_and_waited_for() -> None:
    """P06: workers of before, as by `range`, are stopped; once the last is gone the same worker joins."""
    with refused("classic", *[KafkaError.INCONSISTENT_GROUP_PROTOCOL] * 2) as member:
        text = member.poll_until_refused()
        assert "do not assign by cooperative-sticky" in text
        assert "stop all of them" in text
        assert "joins once the last of them is gone" in text
        member.poll_until_assigned()
