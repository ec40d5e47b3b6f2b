"""The Kafka of the test run does what the service relies on, alone and as three brokers under faults."""

import pytest
from confluent_kafka.admin import ConfigResource, ResourceType

from tests.stack.kafka_helper import KafkaHelper
from tests.stack.names import Names
from tools.local.kafka import make_cluster_id
from tools.local.topics import create_topics

pytestmark = pytest.mark.integration


def test_topics_are_created_once_with_their_settings(kafka: KafkaHelper, names: Names) -> None:
    source, references = names.topic("source"), names.topic("references")
    for _ in range(2):
        create_topics(
            kafka.bootstrap_servers,
            source=source,
            partitions=4,
            references=references,
            flushes=names.topic("flushes"),
            dead_letters=names.topic("dead-letters"),
        )
    resource = ConfigResource(ResourceType.TOPIC, references)
    config = kafka.admin.describe_configs([resource])[resource].result(10)

    assert kafka.partitions(source) == [0, 1, 2, 3]
    assert (config["retention.ms"].value, config["min.insync.replicas"].value) == ("-1", "1")


def test_cluster_id_is_never_taken_for_an_option() -> None:
    """One id in 64 began with a dash, and the cluster then could not be formatted."""
    ids = {make_cluster_id() for _ in range(2000)}

    assert [cluster_id for cluster_id in ids if cluster_id.startswith("-")] == []
    assert {len(cluster_id) for cluster_id in ids} == {22}
