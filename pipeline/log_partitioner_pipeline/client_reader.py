"""Ranges of topics read by librdkafka on the executors: what Spark's own source cannot read.

Spark counts microseconds in 64 bits, and its source fails at a record with a later timestamp, whatever is asked of it;
Kafka takes any number of a producer (KAFKA_FACTS L7).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from log_partitioner.adapters.kafka.topics import KafkaTopics
from log_partitioner.formats.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from log_partitioner.config.settings import KafkaSettings
    from log_partitioner.formats.model import OffsetRanges, SourceRecord

TIMESTAMP_MAX_MS = (2**63 - 1) // 1000
_ROWS_AT_ONCE = 1000
_BYTES_AT_ONCE = 8 * 1024 * 1024
_NO_NAME = "\ufffd"  # what Spark makes of a header name that is not UTF-8


def split_off(
    settings: KafkaSettings, ranges: Mapping[TopicPartition, tuple[int, int]]
) -> tuple[OffsetRanges, OffsetRanges]:
    """Return the ranges that Spark can read, and the rest, from the first record on that it cannot.

    Asks the brokers; blocks for up to a minute.

    Raises:
        CouldNotTellError: no broker answers.
    """
    with KafkaTopics.of(settings) as topics:
        firsts = topics.offsets_at(ranges, TIMESTAMP_MAX_MS + 1)
    readable, others = dict[TopicPartition, tuple[int, int]](), dict[TopicPartition, tuple[int, int]]()
    for tp, (first, end) in ranges.items():
        begin = firsts[tp]
        cut = end if begin is None else min(max(first, begin), end)
        if first < cut:
            readable[tp] = (first, cut)
        if cut < end:
            others[tp] = (cut, end)
    return readable, others


def read_ranges(
    spark: SparkSession, settings: KafkaSettings, ranges: OffsetRanges, schema: StructType, *, records_per_task: int
) -> DataFrame:
    """Read the committed messages of these ranges, columns of `schema`; nothing happens before an action."""
    pieces = [
        (tp.topic, tp.partition, begin, min(begin + records_per_task, end))
        for tp, (first, end) in ranges.items()
        for begin in range(first, end, records_per_task)
    ]
    frame = spark.createDataFrame(pieces, "topic string, partition int, first bigint, next bigint")
    read = partial(_read, settings=settings, schema=to_arrow_schema(schema))
    return frame.repartition(len(pieces)).mapInArrow(read, schema)


def _read(pieces: Iterable[pa.RecordBatch], *, settings: KafkaSettings, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    rows: list[dict[str, Any]] = []
    size = 0
    with KafkaTopics.of(settings) as topics:
        for piece in (row for batch in pieces for row in batch.to_pylist()):
            tp = TopicPartition(piece["topic"], piece["partition"])
            for record in topics.read({tp: (piece["first"], piece["next"])}):
                rows.append(_row(record))
                size += record.size
                if len(rows) == _ROWS_AT_ONCE or size > _BYTES_AT_ONCE:
                    yield pa.RecordBatch.from_pylist(rows, schema=schema)
                    rows, size = [], 0
    yield pa.RecordBatch.from_pylist(rows, schema=schema)


def _row(record: SourceRecord) -> dict[str, Any]:
    headers = record.headers if record.unreadable is None else ((_NO_NAME, None),)
    return {
        "key": record.key,
        "value": record.value,
        "topic": record.tp.topic,
        "partition": record.tp.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "headers": [{"key": name, "value": value} for name, value in headers],
    }
