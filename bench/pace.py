"""`python -m bench.pace BOOTSTRAP TOPIC RATE SECONDS RECORDS`: writes so many records of A a second, over and over.

They are made beforehand and go around: a ring of RECORDS values, whose event times repeat. Prints how many were
written, and by how many seconds the next of them was behind its time at most.
"""

import json
import sys
import time
from dataclasses import replace

from confluent_kafka import Producer

from bench.workloads import PARTITIONS, WORKLOADS, generate

_TURN_S = 0.02
_FLUSH_S = 60


def main(bootstrap: str, topic: str, rate: int, seconds: float, records: int) -> None:
    """Write at the rate until the time is over."""
    ring = list(generate(replace(WORKLOADS["A"], records=records)))
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": "lz4",
            "linger.ms": 100,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
            "log_level": 2,
        }
    )
    produce, total = producer.produce, int(rate * seconds)
    written, behind_s, begun = 0, 0.0, time.monotonic()
    while written < total:
        passed_s = time.monotonic() - begun
        behind_s = max(behind_s, min(passed_s, seconds) - written / rate)
        due = min(total, int(passed_s * rate))
        for number in range(written, due):
            produce(topic, ring[number % records], partition=number % PARTITIONS)
        written = due
        producer.poll(0)
        time.sleep(_TURN_S)
    left = producer.flush(_FLUSH_S)
    print(json.dumps({"written": written - left, "behind_s": behind_s, "cpu_s": time.process_time()}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
