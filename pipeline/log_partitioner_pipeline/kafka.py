"""Kafka for all jobs: ends and ids of topics, and committed messages of offset ranges. One reader: librdkafka.

The driver reads announcements itself (`topic_log`). Spark's tasks read everything else, a range of offsets each, with
the worker's own client options. Spark's source fails at a timestamp beyond its microseconds (KAFKA_FACTS L7), and knows
not all of the worker's ways to log in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from log_partitioner.adapters.kafka.topics import Ends, KafkaTopics
from log_partitioner.formats.model import SourceRecord, TopicPartition, readable
from log_partitioner_pipeline.frames import struct

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from log_partitioner.config.settings import KafkaSettings

Ranges = Mapping[TopicPartition, tuple[int, int]]
"""[first, next) offsets."""

MESSAGE = struct(
    key=T.BinaryType(),
    value=T.BinaryType(),
    topic=T.StringType(),
    partition=T.IntegerType(),
    offset=T.LongType(),
    timestamp_ms=T.LongType(),
    headers=T.ArrayType(struct(key=T.StringType(), value=T.BinaryType())),
)
_ARROW_MESSAGE = to_arrow_schema(MESSAGE)
_LAST = struct(topic=T.StringType(), partition=T.IntegerType(), last=T.LongType())
_RECORDS_PER_TASK = 200_000  # about: judging them takes some seconds
_ROWS_AT_ONCE = 1000
_BYTES_AT_ONCE = 8 * 1024 * 1024
_NO_NAME = "\ufffd"  # stands for a header name that is not UTF-8


def partition_ends(settings: KafkaSettings, topic: str) -> dict[int, Ends]:
    """Ask for the first and the next offset of a topic's partitions; blocks for up to a minute a partition.

    Raises:
        CouldNotTellError: no broker answers, or there is no such topic.
    """
    with KafkaTopics.of(settings) as topics:
        return {tp.partition: topics.ends(tp) for tp in topics.topic_partitions(topic)}


def ask_topic_id(settings: KafkaSettings, topic: str) -> str | None:
    """Ask for the id of a topic, which changes if it is made anew; None if brokers have none. Blocks for a minute.

    Raises:
        CouldNotTellError: no broker answers, or there is no such topic.
    """
    with KafkaTopics.of(settings) as topics:
        return topics.topic_id(topic)


def read_messages(spark: SparkSession, settings: KafkaSettings, ranges: Ranges) -> DataFrame:
    """Read the committed messages of these ranges, columns of MESSAGE; nothing happens before an action.

    A timestamp below zero counts as none, as in the worker.
    """
    return _by_task(spark, ranges, partial(_read, settings=settings), MESSAGE)


def last_offsets(
    spark: SparkSession, settings: KafkaSettings, ranges: Ranges, *, from_ms: int | None, until_ms: int
) -> dict[TopicPartition, int]:
    """Find the last committed record with a timestamp from `from_ms` to before `until_ms` in each of these ranges.

    Brokers find the first record as late as a moment, and one record with a clock ahead hides all records behind it.
    Blocks for as long as reading the ranges takes; TopicPartitions without such a record are absent.
    """
    look = partial(_look, settings=settings, from_ms=from_ms or 0, until_ms=until_ms)
    found: dict[TopicPartition, int] = {}
    for topic, partition, last in _by_task(spark, ranges, look, _LAST).collect():
        tp = TopicPartition(topic, partition)
        found[tp] = max(last, found.get(tp, last))
    return found


def record_of(message: Mapping[str, Any]) -> SourceRecord:
    """Return the record of a row with the columns of MESSAGE."""
    pairs = tuple((header["key"], header["value"]) for header in message["headers"] or ())
    headers, unreadable = readable(pairs)
    return SourceRecord(
        tp=TopicPartition(message["topic"], message["partition"]),
        offset=message["offset"],
        timestamp_ms=message["timestamp_ms"],
        key=message["key"],
        value=message["value"],
        headers=headers,
        unreadable=unreadable,
    )


def _by_task(spark: SparkSession, ranges: Ranges, take: Any, columns: T.StructType) -> DataFrame:
    """Let tasks take ranges of about the same number of records."""
    pieces = [
        (tp, (begin, min(begin + _RECORDS_PER_TASK, end)))
        for tp, (first, end) in ranges.items()
        for begin in range(first, end, _RECORDS_PER_TASK)
    ]
    if not pieces:
        return spark.createDataFrame([], columns)
    numbers = spark.range(0, len(pieces), 1, len(pieces))
    return numbers.mapInArrow(partial(_each, pieces=pieces, take=take), columns)


def _each(
    numbers: Iterable[pa.RecordBatch], *, pieces: list[tuple[TopicPartition, tuple[int, int]]], take: Any
) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from take(*pieces[number])


def _read(tp: TopicPartition, span: tuple[int, int], *, settings: KafkaSettings) -> Iterator[pa.RecordBatch]:
    rows: list[dict[str, Any]] = []
    size = 0
    with KafkaTopics.of(settings) as topics:
        for record in topics.read({tp: span}):
            rows.append(_row(record))
            size += record.size
            if len(rows) == _ROWS_AT_ONCE or size > _BYTES_AT_ONCE:
                yield pa.RecordBatch.from_pylist(rows, schema=_ARROW_MESSAGE)
                rows, size = [], 0
    yield pa.RecordBatch.from_pylist(rows, schema=_ARROW_MESSAGE)


def _row(record: SourceRecord) -> dict[str, Any]:
    headers = record.headers if record.unreadable is None else ((_NO_NAME, None),)
    return {
        "key": record.key,
        "value": record.value,
        "topic": record.tp.topic,
        "partition": record.tp.partition,
        "offset": record.offset,
        "timestamp_ms": _time_of(record),
        "headers": [{"key": name, "value": value} for name, value in headers],
    }


def _time_of(record: SourceRecord) -> int | None:
    return None if record.timestamp_ms is None or record.timestamp_ms < 0 else record.timestamp_ms


def _look(
    tp: TopicPartition, span: tuple[int, int], *, settings: KafkaSettings, from_ms: int, until_ms: int
) -> Iterator[pa.RecordBatch]:
    last = None
    with KafkaTopics.of(settings) as topics:
        for record in topics.read({tp: span}):
            time_ms = _time_of(record)
            if time_ms is not None and from_ms <= time_ms < until_ms:
                last = record.offset
    if last is not None:
        yield pa.RecordBatch.from_pylist([{**tp._asdict(), "last": last}], to_arrow_schema(_LAST))
