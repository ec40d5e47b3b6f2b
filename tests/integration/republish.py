"""A republisher as a process of its own: `republish.py BROKERS GROUP FROM TO PARTITIONS BY`; it may be killed anywhere.

It keeps the conditions of DESIGN 3.8: outputs in order, a function of their input alone, by an idempotent producer. It
commits behind every twentieth message.
"""

import json
import sys
from zlib import crc32

from confluent_kafka import Consumer, Producer

from log_partitioner.chain import link

COMMITS_EVERY = 20


def main(brokers: str, group: str, source: str, target: str, partitions: str, by: str) -> None:
    """Republish until killed."""
    consumer = Consumer(
        {
            "bootstrap.servers": brokers, "group.id": group, "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "session.timeout.ms": 6000, "heartbeat.interval.ms": 1000,
            "partition.assignment.strategy": "cooperative-sticky",
        }
    )  # fmt: skip
    producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True, "linger.ms": 0})
    consumer.subscribe([source])
    taken = 0
    while True:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            value = message.value() or b""
            for index in range(1 + crc32(value) % 3):
                entry = {**json.loads(value), "output": index}
                partition = crc32(value, index + 1) % int(partitions)
                headers = [link(message, by, index)]
                producer.produce(target, json.dumps(entry).encode(), partition=partition, headers=headers)
            producer.flush()
            taken += 1
        if taken and (message is None or taken >= COMMITS_EVERY):
            consumer.commit(asynchronous=False)
            taken = 0


if __name__ == "__main__":
    main(*sys.argv[1:])
