"""`python -m bench.discard BOOTSTRAP TOPIC`: F, the least that any consumer in Python pays for a record.

Calls consume(10000), takes value, TopicPartition and offset of each record, and throws them away. Prints CPU seconds
of the process, from the consumer's construction to the last record, and the number of records.
"""

import json
import sys
import time

from confluent_kafka import Consumer, TopicPartition

from bench.workloads import PARTITIONS, next_offsets

_PER_CALL = 10_000


def main(bootstrap: str, topic: str) -> None:
    """Read the topic to its end."""
    ends = next_offsets(bootstrap, topic)
    begun_s = time.process_time()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.queue.backoff.ms": 20,  # as the worker's
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    left = sum(ends.values())
    while left:
        messages = consumer.consume(_PER_CALL, 1.0)
        for message in messages:
            if message.error():
                raise SystemExit(str(message.error()))
            message.value()
            message.partition()
            message.offset()
        left -= len(messages)
    cpu_s = time.process_time() - begun_s
    consumer.close()
    print(json.dumps({"cpu_s": cpu_s, "records": sum(ends.values())}))


if __name__ == "__main__":
    main(*sys.argv[1:3])
