"""The program that one writes first: lists of entries, an Avro file for each user and hour every half a minute.

Files go to S3 by `upload_file`, 32 at a time; one transaction commits a reference to each file, and the offsets. It has
one schema, knows no bad records and no rebalances, and ends at the end of the topic.
"""

import json
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import fastavro
from botocore.config import Config
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from bench.peers.task import FIELDS, Task, mark

_INTERVAL_S = 30.0
_UPLOADS = 32
_SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Entry",
        "fields": [{"name": name, "type": ["null", kind], "default": None} for name, kind in FIELDS.items()],
    }
)


class Obvious:
    """Everything between two flushes is in memory."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._consumer = Consumer(
            {
                "bootstrap.servers": task.bootstrap,
                "group.id": task.name,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        self._producer = Producer({"bootstrap.servers": task.bootstrap, "transactional.id": task.name})
        self._s3 = boto3.client(
            "s3",
            endpoint_url=task.endpoint,
            region_name=task.region,
            aws_access_key_id=task.access_key,
            aws_secret_access_key=task.secret_key,
            config=Config(max_pool_connections=_UPLOADS, proxies={}, s3={"addressing_style": "path"}),
        )
        self._entries: defaultdict[tuple[str, str, str], list[Any]] = defaultdict(list)
        self._positions: dict[int, int] = {}
        self._flushes = self._puts = 0

    def run(self) -> None:
        """Read the topic to its end and deliver everything."""
        self._producer.init_transactions()
        self._consumer.subscribe([self._task.topic])
        partitions = len(self._consumer.list_topics(self._task.topic, timeout=30).topics[self._task.topic].partitions)
        mark("start")
        ended: set[int | None] = set()
        flushed = time.monotonic()
        while len(ended) < partitions:
            for message in self._consumer.consume(1000, 1.0):
                error = message.error()
                if error is None:
                    self._take(message.partition(), message.offset(), message.value())
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # so the library names it
                    ended.add(message.partition())
                else:
                    raise SystemExit(str(error))
            if time.monotonic() - flushed > _INTERVAL_S:
                self._flush()
                flushed = time.monotonic()
        self._flush()
        mark("end", flushes=self._flushes, PUTs=self._puts)
        self._consumer.close()

    def _take(self, partition: Any, offset: Any, value: Any) -> None:
        entry = json.loads(value)
        at = entry["time"]
        self._entries[entry["user"], at[:10], at[11:13]].append(entry)
        self._positions[partition] = offset + 1

    def _flush(self) -> None:
        with ThreadPoolExecutor(_UPLOADS) as pool:
            uploaded = list(pool.map(self._upload, self._entries.items()))
        self._producer.begin_transaction()
        for reference in uploaded:
            self._producer.produce(self._task.references, json.dumps(reference), key=reference["user"])
        offsets = [TopicPartition(self._task.topic, *position) for position in self._positions.items()]
        self._producer.send_offsets_to_transaction(offsets, self._consumer.consumer_group_metadata())
        self._producer.commit_transaction()
        self._entries.clear()
        self._flushes += 1
        self._puts += len(uploaded)

    def _upload(self, item: tuple[tuple[str, str, str], list[Any]]) -> dict[str, Any]:
        (user, date, hour), entries = item
        file = Path(self._task.directory, f"{user}-{date}-{hour}.avro")
        with file.open("wb") as out:
            fastavro.writer(out, _SCHEMA, entries, codec="deflate")
        key = f"{self._task.name}/user={user}/date={date}/hour={hour}/{self._flushes}.avro"
        self._s3.upload_file(str(file), self._task.bucket, key)
        file.unlink()
        return {"key": key, "user": user, "date": date, "hour": hour, "entries": len(entries)}


if __name__ == "__main__":
    Obvious(Task.given()).run()
