"""Cases from other people's bug reports that only a real broker can show: the worker passes them."""

from __future__ import annotations

import socket
import struct
from contextlib import ExitStack

import pytest

from log_partitioner.adapters.clock import SystemClock
from log_partitioner.adapters.kafka.committer import KafkaCommitter
from log_partitioner.adapters.kafka.options import PINNED_PRODUCER
from log_partitioner.boundary import Message
from log_partitioner.control.deadline import Deadline
from log_partitioner.formats.model import TopicPartition
from tests.contract.reader import WAIT_S, Reader, poll_until
from tests.integration.harness import PROTOCOLS
from tests.stack.kafka_helper import KafkaHelper
from tests.stack.names import Names

INIT_PRODUCER_ID, CONCURRENT_TRANSACTIONS = 22, 51
EPOCH_LAST = 32_766  # the next init gives another producer id
AT_ONCE = 64


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_topic_partition_is_without_owner_while_a_rolling_restart_adds_a_topic(
    kafka: KafkaHelper, names: Names, protocol: str
) -> None:
    """P07: members of different subscriptions, which the assignor must keep apart."""
    source = kafka.create_topic(names.topic("source"), partitions=2)
    second = kafka.create_topic(names.topic("second"), partitions=3)
    tps = {TopicPartition(topic, number) for topic, last in ((source, 2), (second, 3)) for number in range(last)}
    with ExitStack() as cleanup:

        def reader(*topics: str) -> Reader:
            made = Reader(kafka.bootstrap_servers, topics, group=names.group(), protocol=protocol)
            cleanup.callback(made.consumer.close)
            return made

        old = reader(source)
        poll_until(lambda: len(old.owned) == 2, old)
        new = reader(source, second)
        poll_until(lambda: old.owned | new.owned == tps and not old.owned & new.owned, old, new)


@pytest.mark.slow
def test_flushes_across_the_last_producer_epoch_are_committed_once_each(kafka: KafkaHelper, names: Names) -> None:
    """P08: after 32,766 transactions, eleven days of a flush each 30 s, brokers give the id another producer id."""
    topic, transactional_id, clock = kafka.create_topic(names.topic(), partitions=1), names.group("old"), SystemClock()
    options = {**PINNED_PRODUCER, "bootstrap.servers": kafka.bootstrap_servers, "transactional.id": transactional_id}
    committer = KafkaCommitter(options, init_budget_s=WAIT_S, clock=clock)

    def publish(number: int) -> None:
        message = Message(topic, None, b"%d" % number, [])
        committer.publish([message], deadline=Deadline.after(WAIT_S, clock.now_s))

    publish(0)
    producer_id, epoch = raise_epoch(kafka.bootstrap_servers, transactional_id, to=EPOCH_LAST - 3)
    for number in range(1, 8):
        publish(number)

    now_id, now_epoch = raise_epoch(kafka.bootstrap_servers, transactional_id, to=0)
    assert (now_id > producer_id, now_epoch < epoch) == (True, True)
    values = [message.value() for message in kafka.read_committed(topic)]
    assert values == [b"%d" % number for number in range(8)]


def raise_epoch(bootstrap: str, transactional_id: str, *, to: int) -> tuple[int, int]:
    """Ask for a producer id again and again, many at once, until its epoch is at least this; gives both."""
    host, _, port = bootstrap.partition(":")
    name = transactional_id.encode()
    body = struct.pack(">hhih", INIT_PRODUCER_ID, 1, 1, -1) + struct.pack(">h", len(name)) + name
    request = struct.pack(">i", len(body) + 4) + body + struct.pack(">i", 10_000)
    producer_id = epoch = -1
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as link, link.makefile("rb") as answers:
        while epoch < max(to, 0):
            many = max(1, min(AT_ONCE, to - epoch))
            link.sendall(request * many)
            for _ in range(many):
                (size,) = struct.unpack(">i", answers.read(4))
                error, *told = struct.unpack_from(">hqh", answers.read(size), 8)
                if error != CONCURRENT_TRANSACTIONS:
                    assert error == 0
                    producer_id, epoch = told
    return producer_id, epoch
