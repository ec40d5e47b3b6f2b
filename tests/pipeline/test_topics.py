"""The audit on Spark reads topics as the worker does."""

import json
from pathlib import Path

from pyspark.sql import SparkSession

from log_partitioner.formats.model import TopicPartition
from log_partitioner_pipeline.kafka import last_offsets, read_messages
from tests.pipeline.conftest import pipeline_variables, settings_of
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names


def test_a_timestamp_below_zero_is_none(spark: SparkSession, kafka: KafkaHelper, names: Names, tmp_path: Path) -> None:
    """A producer without a clock writes -1, and Kafka calls it the time of creation all the same."""
    topic = kafka.create_topic(names.topic("clockless"))
    stamps = [-1, -5, 1_772_600_000_000]
    kafka.produce(topic, [ToProduce(value=b"{}", timestamp_ms=stamp) for stamp in stamps])
    worker = {
        "LOGP_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "LOGP_KAFKA__SOURCE_TOPICS": json.dumps([topic]),
        "LOGP_S3__BUCKET": "none",
    }
    settings = settings_of(worker | pipeline_variables(tmp_path)).worker.kafka
    tp = TopicPartition(topic, 0)
    messages = read_messages(spark, settings, {tp: (0, 3)})
    read = {row["offset"]: row["timestamp_ms"] for row in messages.collect()}
    assert read == {0: None, 1: None, 2: stamps[2]}
    assert last_offsets(spark, settings, {tp: (0, 2)}, from_ms=None, until_ms=stamps[2]) == {}
