"""A stand-in for the older system: takes the source topic on its own and archives every entry as CSV, by hour.

It shares nothing with the product: a consumer of its own, the json and csv modules, names of its own for columns.
`python -m tests.pipeline.older_system BOOTSTRAP_SERVERS TOPIC DIRECTORY` archives all there is.
"""

import csv
import gzip
import io
import json
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

COLUMNS = ["log_id", "who", "message", "written", "number", "details", "ok"]
FOLDERS = "%Y/%m/%d/%H"
_SILENCE_S = 30

Row = dict[str, Any]


def take_all(bootstrap_servers: str, topic: str) -> list[Row]:
    """Read all committed records of a topic; gives a row for each entry."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "older-system",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
    )
    rows: list[Row] = []
    try:
        partitions = list(consumer.list_topics(topic, timeout=_SILENCE_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        open_ones = set(partitions)
        while open_ones:
            message = consumer.poll(_SILENCE_S)
            assert message is not None, f"nothing came for {_SILENCE_S} s"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error.str()
                open_ones.discard(message.partition() or 0)
                continue
            value = json.loads(message.value() or b"[]")
            rows += [_row(entry) for entry in (value if isinstance(value, list) else [value])]
    finally:
        consumer.close()
    return rows


def _row(entry: dict[str, Any]) -> Row:
    return {
        "log_id": entry.get("id"),
        "who": entry.get("user"),
        "message": entry.get("msg"),
        "written": datetime.fromtimestamp(entry["time"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S"),
        "number": entry["n"],
        "details": json.dumps(entry["x"]),
        "ok": entry["n"] % 2 == 0,
    }


def archive(rows: Iterable[Row]) -> dict[str, bytes]:
    """Make one file for each hour; gives their content by path."""
    texts: dict[str, io.StringIO] = {}
    for row in rows:
        path = datetime.fromisoformat(row["written"]).strftime(f"{FOLDERS}/log.csv")
        if path not in texts:
            texts[path] = io.StringIO(newline="")
            csv.DictWriter(texts[path], COLUMNS).writeheader()
        csv.DictWriter(texts[path], COLUMNS).writerow(row)
    return {path: text.getvalue().encode() for path, text in texts.items()}


def write(files: dict[str, bytes], directory: Path) -> None:
    """Write files below a directory."""
    for path, content in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(content)


def compress(files: dict[str, bytes]) -> dict[str, bytes]:
    """Compress files, as such systems do in the end."""
    return {f"{path}.gz": gzip.compress(content) for path, content in files.items()}


if __name__ == "__main__":
    write(archive(take_all(sys.argv[1], sys.argv[2])), Path(sys.argv[3]))
