"""A member of a group without a worker around it: what is assigned to it, and what it has read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from log_partitioner.adapters.kafka.consumer import KafkaConsumer
from log_partitioner.adapters.kafka.options import PINNED_CONSUMER
from log_partitioner.control.deadline import Deadline
from log_partitioner.formats.model import CommittedOffset
from tests.fakes.listener import Listener

WAIT_S = 60.0


class Reader:
    """A member of the group: what is assigned to it, and what it has read."""

    def __init__(
        self, bootstrap: str, topics: Iterable[str], *, group: str = "group", protocol: str = "cooperative-sticky"
    ) -> None:
        listener = Listener()
        self.owned, self._new = listener.owned, listener.new
        self.values: list[bytes | None] = []
        options: dict[str, Any] = {**PINNED_CONSUMER, "bootstrap.servers": bootstrap, "group.id": group, "log_level": 0}
        if protocol == "consumer":
            options |= {"group.protocol": protocol}
        else:
            options |= {"partition.assignment.strategy": protocol, "heartbeat.interval.ms": 200}
        self.consumer = KafkaConsumer(options, topics)
        self.consumer.subscribe(listener)

    def poll(self) -> None:
        """Read for a moment; new TopicPartitions are read from their beginning."""
        while self._new:
            deadline = Deadline.after(WAIT_S, time.monotonic)
            self.consumer.seek(self._new.pop(), CommittedOffset(0), deadline=deadline)
        self.values += [record.value for record in self.consumer.consume(records_max=100, timeout_s=0.05)]


def poll_until(done: Callable[[], bool], *readers: Reader) -> None:
    """Let all of them read until then."""
    until_s = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < until_s, [reader.owned for reader in readers]
        for reader in readers:
            reader.poll()
