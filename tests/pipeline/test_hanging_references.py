"""References that no reader will ever see though their offsets are committed (KAFKA_FACTS T19): found, and made good.

It takes a TopicPartition of the references topic that no broker can lead in the moment in which a worker's transaction
ends: with one replica it is enough that one broker is gone.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from log_partitioner.formats.findings import Kind
from log_partitioner_pipeline.backfill.ranges import Wanted
from log_partitioner_pipeline.jobs.backfill import Backfill
from tests.integration.flow import some_records
from tests.integration.harness import Deployment
from tests.integration.segments import bystander, coordinator, leader, runbook, states_of, told, transactions_in
from tests.pipeline.conftest import Lake
from tests.stack.kafka_helper import KafkaHelper
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper
from tools.local.kafka import KafkaCluster
from tools.local.tcp_proxy import API_END_TXN
from tools.local.topics import create_missing

WORKER = "w1"


class Stage:
    """One worker whose references go to a topic that one broker keeps, the `keeper`."""

    def __init__(self, cluster: KafkaCluster, kafka: KafkaHelper, names: Names) -> None:
        self.transactional_id = f"log-partitioner.{names.group()}.{WORKER}"
        Producer(
            {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": self.transactional_id}
        ).init_transactions(60)
        self.keeper = bystander(cluster, kafka, self.transactional_id)
        self.references = names.topic("references-of-one")
        topic = NewTopic(
            self.references,
            num_partitions=1,
            replica_assignment=[[self.keeper + 1]],
            config={"retention.ms": "-1", "min.insync.replicas": "1"},
        )
        create_missing(kafka.admin, [topic])
        self.settings = {
            "LOGP_FLUSH__INTERVAL_S": "1",
            "LOGP_KAFKA__REFERENCES_TOPIC": self.references,
            "LOGP_KAFKA__BACKFILLS_TOPIC": kafka.create_topic(names.topic("backfills"), partitions=1),
        }


@pytest.fixture
def stage(kafka_cluster: KafkaCluster, cluster_helper: KafkaHelper, names: Names) -> Stage:
    """Give the topic and its keeper."""
    return Stage(kafka_cluster, cluster_helper, names)


@pytest.fixture
def deployment(
    kafka_cluster: KafkaCluster, cluster_helper: KafkaHelper, s3: S3Helper, names: Names, tmp_path: Path, stage: Stage
) -> Iterator[Deployment]:
    """Give a deployment behind proxies."""
    with Deployment(
        kafka=cluster_helper,
        s3=s3,
        names=names,
        root=tmp_path,
        partitions=2,
        bootstrap_servers=kafka_cluster.bootstrap_servers,
        settings=stage.settings,
    ) as deployment:
        yield deployment


def _commit_without_a_marker(cluster: KafkaCluster, deployment: Deployment, stage: Stage) -> None:
    """Let the worker commit a batch while no broker leads its references."""
    kafka = deployment.kafka
    of_worker = cluster.proxies[coordinator(kafka, "__transaction_state", stage.transactional_id)]
    end = of_worker.hold_at(API_END_TXN)
    written = kafka.produce(deployment.source, some_records(20, partitions=2, first=20))
    end.wait()
    cluster.kill(stage.keeper)  # one that is only paused may find the marker among what it was sent meanwhile
    end.release()
    deployment.wait_drained(written)
    kafka.wait_for(
        "its end, or the next one", lambda: "Prepare" not in states_of(cluster, kafka, stage.transactional_id)[-1]
    )
    cluster.restart(stage.keeper)
    kafka.wait_for("a leader", lambda: leader(kafka, stage.references, 0) == stage.keeper, timeout_s=60)


def test_references_without_a_marker_are_missed_and_backfilled(
    kafka_cluster: KafkaCluster, deployment: Deployment, stage: Stage, lake_of: Callable[..., Lake]
) -> None:
    """(1) The worker has committed, and knows of nothing; (2) the audit misses its entries, and says what is open.

    (3) The runbook's commands find and abort it: they are missing for good. (4) A backfill publishes them anew, once.
    """
    kafka = deployment.kafka
    first = kafka.produce(deployment.source, some_records(20, partitions=2))
    deployment.start(WORKER)
    deployment.wait_drained(first)
    _commit_without_a_marker(kafka_cluster, deployment, stage)
    assert deployment.stop_all() == {WORKER: 0}
    assert deployment.count("batch_discarded") == 0
    hanging = transactions_in(kafka_cluster, kafka, stage.references)[-1]
    assert hanging.what == "records", "no marker"

    missed = deployment.audit("--require-caught-up")
    assert missed.exit_code == 1, missed.text
    assert missed.json["findings"].keys() == {Kind.MISSING, Kind.REFERENCE_MISSING}, missed.text
    assert "a transaction has been open for more than" in missed.text

    values = {"BROKER": kafka.bootstrap_servers, "TOPIC": stage.references, "PARTITION": 0}
    found = runbook(kafka_cluster, "find-hanging", **values, MINUTES=0)
    assert re.search(rf"^{stage.references}\s+0\s.*\s{hanging.offset}\s", found, re.MULTILINE), found
    runbook(kafka_cluster, "abort", **values, OFFSET=hanging.offset)
    assert told(transactions_in(kafka_cluster, kafka, stage.references))[-1].endswith("ABORT")
    missed = deployment.audit("--require-caught-up")
    assert missed.json["findings"].keys() == {Kind.MISSING, Kind.REFERENCE_MISSING}, missed.text
    assert missed.json["doubts"] == [], missed.text

    lake = lake_of(deployment)
    assert Backfill(lake.settings, "made-good", spark=lake.spark).run(Wanted(from_ms=0)).messages > 0
    deployment.require_clean()
