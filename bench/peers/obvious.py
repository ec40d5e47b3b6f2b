"""The program that one writes first: lists of entries, an Avro file for each user and hour every half a minute.

Files go to S3 by `upload_file`, 32 at a time; one transaction commits a reference to each file, and the offsets. Flat
entries have one schema. Others have one for each file, with JSON for values whose types differ. It skips
entries without user or time, knows no rebalances, and ends at the end of the topic.
"""

import json
import re
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

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
_KINDS = {bool: "boolean", int: "long", float: "double", str: "string"}


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
        self._flushes = self._puts = self._skipped = 0

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
        mark("end", flushes=self._flushes, PUTs=self._puts, skipped=self._skipped)
        self._consumer.close()

    def _take(self, partition: Any, offset: Any, value: Any) -> None:
        entry = json.loads(value)
        user, at = _first(entry, self._task.user_paths), _first(entry, self._task.time_paths)
        if isinstance(at, int):
            at = datetime.fromtimestamp(at / 1000, UTC).isoformat()
        if isinstance(user, str) and isinstance(at, str):
            self._entries[user, at[:10], at[11:13]].append(entry)
        else:
            self._skipped += 1
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
        schema, rows = (_SCHEMA, entries) if self._task.is_flat else _with_schema(entries)
        file = Path(self._task.directory, f"{quote(user, safe='')}-{date}-{hour}.avro")
        with file.open("wb") as out:
            fastavro.writer(out, schema, rows, codec="deflate")
        key = f"{self._task.name}/user={quote(user, safe='')}/date={date}/hour={hour}/{self._flushes}.avro"
        self._s3.upload_file(str(file), self._task.bucket, key)
        file.unlink()
        return {"key": key, "user": user, "date": date, "hour": hour, "entries": len(entries)}


def _first(entry: Any, paths: list[str]) -> Any:
    """Return the first value that a path leads to; None if none does."""
    for path in paths:
        value = entry
        for key in path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            return value
    return None


def _with_schema(entries: list[Any]) -> tuple[Any, list[Any]]:
    """Return a schema for these entries, and them as its rows."""
    schema, row = _infer(entries, "Entry")
    return fastavro.parse_schema(schema), list(map(row, entries))


def _infer(values: list[Any], name: str) -> tuple[Any, Callable[[Any], Any]]:
    """Return the Avro type of values that are not null, and what makes one of them a value of it."""
    kinds = {type(value) for value in values}
    if kinds == {dict}:
        return _infer_record(values, name)
    if kinds == {list}:
        of, item = _infer([one for value in values for one in value if one is not None], name)
        return {"type": "array", "items": ["null", of]}, lambda value: [None if x is None else item(x) for x in value]
    if kinds == {int, float}:
        return "double", float
    if (
        len(kinds) == 1
        and (kind := _KINDS.get(*kinds))
        and (kind != "long" or all(-(2**63) <= n < 2**63 for n in values))
    ):
        return kind, lambda value: value
    return "string", json.dumps


def _infer_record(values: list[Any], name: str) -> tuple[Any, Callable[[Any], Any]]:
    columns: defaultdict[str, list[Any]] = defaultdict(list)
    for value in values:
        for key, one in value.items():
            if one is not None:
                columns[key].append(one)
    fields, ways = [], {}
    for number, (key, several) in enumerate(columns.items()):
        field = f"{re.sub(r'[^A-Za-z0-9_]', '_', key)}_{number}"  # two keys may differ only in what is replaced
        of, way = _infer(several, f"{name}_{number}")
        fields.append({"name": field if field[0].isalpha() else f"_{field}", "type": ["null", of], "default": None})
        ways[key] = fields[-1]["name"], way
    schema = {"type": "record", "name": name, "fields": fields}
    return schema, lambda value: {ways[key][0]: ways[key][1](one) for key, one in value.items() if one is not None}


if __name__ == "__main__":
    Obvious(Task.given()).run()
