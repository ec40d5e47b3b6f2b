"""A table remembers whose history it holds, and whose references it has left out."""

import uuid

from pyspark.sql import SparkSession

from log_partitioner.config.settings import KafkaSettings
from log_partitioner_pipeline.session import CATALOG
from log_partitioner_pipeline.whose import claim, group_of, history_of
from tests.unit.pipeline.test_whose import reference

KAFKA = KafkaSettings(bootstrap_servers="nowhere:1", source_topics=("source",), group_id="a")


def test_table_remembers_its_group_and_whose_references_it_leaves_out(spark: SparkSession) -> None:
    """The next run knows both; a table that has taken nothing yet remembers nothing."""
    table = f"{CATALOG}.left_out.t{uuid.uuid4().hex[:8]}"
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.left_out")
    spark.sql(f"CREATE TABLE {table} (n int) USING iceberg")
    unnamed = KafkaSettings(bootstrap_servers="nowhere:1", source_topics=("source",))
    claim(spark, table, history_of(spark, table, unnamed))
    assert group_of(spark, table) is None
    history = history_of(spark, table, KAFKA)
    assert history.take([reference("a", topic="source")])
    history.left_out.add("b, c")
    claim(spark, table, history)
    assert group_of(spark, table) == "a"
    again = history_of(spark, table, KAFKA)
    assert again.left_out == {"b, c"}
    claim(spark, table, again)
