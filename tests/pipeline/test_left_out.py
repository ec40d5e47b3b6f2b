"""A table remembers whose history it holds, and whose references it has left out."""

import uuid

from pyspark.sql import SparkSession

from log_partitioner.config.settings import KafkaSettings
from log_partitioner_pipeline.columns import struct_of
from log_partitioner_pipeline.table import Form, Table
from log_partitioner_pipeline.whose import claim, group_of, history_of
from tests.unit.pipeline.test_whose import reference

KAFKA = KafkaSettings(bootstrap_servers="nowhere:1", source_topics=("source",), group_id="a")


def test_table_remembers_its_group_and_whose_references_it_leaves_out(spark: SparkSession) -> None:
    """The next run knows both; a table that has taken nothing yet remembers nothing."""
    form = Form(struct_of(at="timestamptz"), "at", "days", ("at",))
    table = Table(spark, f"left_out.t{uuid.uuid4().hex[:8]}", topic="references", form=form)
    table.create()
    unnamed = KafkaSettings(bootstrap_servers="nowhere:1", source_topics=("source",))
    claim(table, history_of(table, unnamed))
    assert group_of(table) is None
    history = history_of(table, KAFKA)
    assert history.take([reference("a", topic="source")])
    history.left_out.add("b, c")
    claim(table, history)
    assert group_of(table) == "a"
    again = history_of(table, KAFKA)
    assert again.left_out == {"b, c"}
    claim(table, again)
