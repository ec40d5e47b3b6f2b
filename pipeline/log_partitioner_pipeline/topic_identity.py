"""Remembers to which topic a table's offsets belong: a topic that was made anew under its name has another id.

Offsets of the old topic say nothing about the new one. As long as the new topic is shorter, the table's offsets are
beyond its end, which shows. Once it has grown past them, its references below them would be skipped unnoticed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from log_partitioner_pipeline.errors import TableError
from log_partitioner_pipeline.kafka import ask_topic_id
from log_partitioner_pipeline.table import commit, load_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from log_partitioner.config.settings import KafkaSettings

PROPERTY_TOPIC_ID = "log-partitioner.topic-id"


def require_same_topic(spark: SparkSession, table: str, *, topic: str, kafka: KafkaSettings) -> None:
    """Compare a topic's id with the one that the table remembers; the first call makes the table remember it.

    Compares nothing if the broker knows no ids. Blocks for up to a minute.

    Raises:
        TableError: it is another topic.
        CouldNotTellError: no broker answers, or there is no such topic.
    """
    topic_id = ask_topic_id(kafka, topic)
    if topic_id is None:
        return
    name = f"{PROPERTY_TOPIC_ID}.{topic}"
    known = load_table(spark, table).properties().get(name)
    if known is None:
        commit(lambda: load_table(spark, table).updateProperties().set(name, topic_id).commit())
    elif known != topic_id:
        raise TableError(
            f"table {table} was made from another topic named {topic}: that had the id {known}, this one has "
            f"{topic_id}; if it has the same messages at the same offsets, set the table's property '{name}' to that"
        )
