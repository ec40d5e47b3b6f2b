"""Eight hours of records, one a minute, for tests that audit them; some are lists, some have dead entries."""

import json
import time
from collections.abc import Iterator

from tests.stack.kafka_helper import ToProduce

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
HOURS = 8
# Full hours of today or yesterday: Kafka deletes what is older than its retention, while a test runs, too.
T0_MS = (int(time.time()) // 3600 - HOURS - 2) * HOUR_MS
USERS = 4
PARTITIONS = 3
RECORDS = HOURS * 60
SEVERAL_EVERY = 12
DEAD_EVERY = 20
FLUSHES = 4
# Its producer's clock goes ahead by hours: by timestamp it is of the last hour, though it stands amid the window, in
# the TopicPartition whose last record of the window is lost.
AHEAD = 149


def records() -> Iterator[ToProduce]:
    """One record a minute, one in twelve a list of three entries; every twentieth has entries without a user."""
    for number in range(RECORDS):
        at_ms = T0_MS + number * MINUTE_MS
        entry = {
            "user": f"user-{number % USERS}",
            "time": at_ms,
            "id": f"id-{number}",
            "n": number,
            "x": {"y": [number]},
        }
        if number % DEAD_EVERY == 7:
            del entry["user"]
        several = [entry, entry | {"id": f"id-{number}-b"}, entry | {"id": f"id-{number}-c", "s": "text"}]
        value = json.dumps(several if number % SEVERAL_EVERY == 0 else entry).encode()
        yield ToProduce(value=value, partition=number % PARTITIONS, timestamp_ms=timestamp_of(number))


def timestamp_of(number: int) -> int:
    """The timestamp of the n-th record."""
    return T0_MS + (RECORDS - 1 if number == AHEAD else number) * MINUTE_MS


def place_of(number: int) -> tuple[int, int, int]:
    """Give the place of the n-th record's first entry."""
    return number % PARTITIONS, number // PARTITIONS, 0
