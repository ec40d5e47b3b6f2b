"""O08: a transaction of the source that never ends, and the operator's remedy (KIP-664).

It is made as brokers make it by themselves (KAFKA_FACTS T19): a TopicPartition has no leader in the moment in which a
producer's transaction ends, so that its marker is left out, and the transaction is over for the coordinator alone.
"""

import re

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from log_partitioner.runtime.open_transactions import TELL_S
from tests.integration.flow import some_records
from tests.integration.harness import Deploy, Deployment
from tests.integration.segments import bystander, leader, runbook, states_of, told, transactions_in
from tests.stack.kafka_helper import KafkaHelper
from tests.stack.names import Names
from tools.local.kafka import KafkaCluster
from tools.local.topics import create_missing

WRITTEN = 20


@pytest.fixture
def keeper(kafka_cluster: KafkaCluster, cluster_helper: KafkaHelper, names: Names) -> int:
    """The index of the one broker that keeps partition 0 of the source."""
    return make_source(kafka_cluster, cluster_helper, names)


def make_source(kafka_cluster: KafkaCluster, cluster_helper: KafkaHelper, names: Names) -> int:
    """Make a source topic; return the index of the one broker that keeps its partition 0."""
    transactional_id = names.group("source-writer")
    options = {"bootstrap.servers": kafka_cluster.direct_bootstrap_servers, "transactional.id": transactional_id}
    Producer(options).init_transactions(60)
    keeper = bystander(kafka_cluster, cluster_helper, transactional_id)
    topic = NewTopic(
        names.topic("source"),
        num_partitions=2,
        replica_assignment=[[keeper + 1], [(keeper + 1) % 3 + 1]],
        config={"retention.ms": "-1", "min.insync.replicas": "1"},
    )
    create_missing(cluster_helper.admin, [topic])
    return keeper


@pytest.fixture
def deployment(kafka_cluster: KafkaCluster, cluster_helper: KafkaHelper, keeper: int, deploy: Deploy) -> Deployment:
    """A deployment that reads this source."""
    del kafka_cluster, keeper
    settings = {"LOGP_FLUSH__INTERVAL_S": "1"}
    return deploy(kafka=cluster_helper, partitions=2, settings=settings)


def hang(cluster: KafkaCluster, deployment: Deployment, transactional_id: str, keeper: int) -> int:
    """Leave a transaction open in partition 0 of the source for ever; return the offset where it begins."""
    producer = Producer({"bootstrap.servers": deployment.kafka.bootstrap_servers, "transactional.id": transactional_id})
    producer.init_transactions(60)
    producer.begin_transaction()
    places: list[int] = []
    for record in some_records(5, partitions=1):
        producer.produce(
            deployment.source, record.value, partition=0, on_delivery=lambda _, message: places.append(message.offset())
        )
    assert producer.flush(60) == 0
    cluster.pause(keeper)
    producer.commit_transaction(180)
    deployment.kafka.wait_for(  # the coordinator may wait for the answer of the stopped broker before
        "an end",
        lambda: states_of(cluster, deployment.kafka, transactional_id)[-1].startswith("CompleteCommit"),
        timeout_s=120,
    )
    cluster.resume(keeper)
    deployment.kafka.wait_for(
        "a leader", lambda: leader(deployment.kafka, deployment.source, 0) == keeper, timeout_s=60
    )
    return min(places)


def test_o08_hanging_transaction_in_the_source_is_told_and_ends_by_the_runbook(
    kafka_cluster: KafkaCluster, deployment: Deployment, names: Names, keeper: int
) -> None:
    """(1) What is before it and beside it is delivered; (2) nothing behind it is, which gauge and log line tell.

    (3) A person finds it and aborts it with the runbook's commands, of the place that the log line names. (4) Without a
    restart the worker goes on behind it.
    """
    kafka = deployment.kafka
    before = kafka.produce(deployment.source, some_records(WRITTEN, partitions=2))
    start_offset = hang(kafka_cluster, deployment, names.group("source-writer"), keeper)
    behind = kafka.produce(deployment.source, some_records(WRITTEN, partitions=2, first=WRITTEN))
    deployment.start("w1")
    deployment.wait_drained([*before, *((partition, offset) for partition, offset in behind if partition == 1)])
    tp = f"{deployment.source}-0"

    (line,) = deployment.require_event("source_transaction_open", "w1")[:1]
    assert line["held_up"] == {tp: start_offset}
    assert deployment.metric("w1", "open_transaction_seconds") >= TELL_S
    assert deployment.metric("w1", "lag_records") > 0
    assert deployment.committed_offsets()[0] == start_offset
    assert told(transactions_in(kafka_cluster, kafka, deployment.source)) == ["P1 E0: 5 records"], "no marker"

    values = {"BROKER": kafka.bootstrap_servers, "TOPIC": deployment.source, "PARTITION": 0, "OFFSET": start_offset}
    found = runbook(kafka_cluster, "find-hanging", **values, MINUTES=0)
    assert re.search(rf"^{deployment.source}\s+0\s", found, re.MULTILINE), found
    runbook(kafka_cluster, "abort", **values)
    deployment.wait_drained(behind)
    deployment.wait_metric("w1", "open_transaction_seconds", 0)

    assert told(transactions_in(kafka_cluster, kafka, deployment.source)) == ["P1 E0: 5 records", "P1 E0: ABORT"]
    assert deployment.stop_all() == {"w1": 0}
    deployment.require_clean()
