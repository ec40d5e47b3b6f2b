"""SIGTERM: the worker ends in time with exit code 0, and leaves the group if it can; at once if brokers say nothing."""

import os
import time

import confluent_kafka
import pytest

from tests.integration.flow import some_records
from tests.integration.harness import Deploy, Deployment
from tests.stack.kafka_helper import KafkaHelper
from tools.local.kafka import KafkaCluster
from tools.local.s3_fault_rules import Action, Rule
from tools.local.s3_faults import S3FaultProxy

DATA = "/user="
NEVER = "600"
GRACE_S = 30  # what Kubernetes gives by default
LOADED_S = 8.0  # for the promised two seconds, if others have most of the machine
SETTLED_S = 2.0


@pytest.fixture
def deployment(kafka_cluster: KafkaCluster, cluster_helper: KafkaHelper, deploy: Deploy) -> Deployment:
    """A deployment whose workers reach the brokers through proxies."""
    return deploy(kafka=cluster_helper, bootstrap_servers=kafka_cluster.bootstrap_servers)


def hold(cluster: KafkaCluster) -> None:
    """Let no byte pass to or from any broker; connections stay."""
    for proxy in cluster.proxies:
        proxy.hold()


def require_end(deployment: Deployment, begun_s: float) -> None:
    """Wait until the worker has ended in order, soon."""
    assert deployment.exit_code("w1", within_s=60) == 0
    took_s = time.monotonic() - begun_s
    print(f"ended after {took_s:.1f} s")
    assert took_s < LOADED_S
    assert deployment.complaints("w1") == []


def members(deployment: Deployment) -> int:
    """Ask the brokers, past the proxies, how many members the group has."""
    (asked,) = deployment.kafka.admin.describe_consumer_groups([deployment.group]).values()
    return len(asked.result().members)


def test_idle_worker_ends_although_no_broker_answers(deployment: Deployment, kafka_cluster: KafkaCluster) -> None:
    """Nothing is to be flushed; the library would wait five seconds for an answer to its leaving."""
    deployment.start("w1")
    deployment.require_event("partitions_assigned", "w1")
    time.sleep(SETTLED_S)
    hold(kafka_cluster)
    begun_s = time.monotonic()
    deployment.workers["w1"].terminate()
    require_end(deployment, begun_s)


def test_second_signal_ends_a_commit_that_no_broker_answers(
    deployment: Deployment, kafka_cluster: KafkaCluster
) -> None:
    """The flush on the first signal has its budget; the second ends it at once, and all records are read again."""
    written = deployment.kafka.produce(deployment.source, some_records(60, partitions=6))
    worker = deployment.start("w1", LOGP_FLUSH__INTERVAL_S=NEVER)
    deployment.wait_metric("w1", "records_total", 60)
    time.sleep(SETTLED_S)  # until the producer of the next flush is ready
    hold(kafka_cluster)
    worker.terminate()
    deployment.require_event("flush_started", "w1")
    time.sleep(SETTLED_S)
    assert worker.is_alive()
    begun_s = time.monotonic()
    worker.terminate()
    require_end(deployment, begun_s)

    kafka_cluster.heal()
    deployment.start("w2")
    deployment.wait_drained(written)
    deployment.require_clean()


def test_worker_that_waits_for_anothers_transaction_leaves_the_group(deployment: Deployment) -> None:
    """Committed offsets are stable only when that has ended, up to its time-out later: a stop is heeded before."""
    deployment.kafka.produce(deployment.source, some_records(60, partitions=6))
    other = confluent_kafka.Producer(
        {
            "bootstrap.servers": deployment.kafka.bootstrap_servers,
            "transactional.id": f"other-{os.getpid()}",
            "transaction.timeout.ms": 60_000,
        }
    )
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": deployment.kafka.bootstrap_servers, "group.id": deployment.group}
    )
    other.init_transactions(60)
    other.begin_transaction()
    place = confluent_kafka.TopicPartition(deployment.source, 0, 5)
    other.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), 30)
    deployment.start("w1")
    deployment.kafka.wait_for("the worker is a member", lambda: members(deployment) == 1, timeout_s=60)
    time.sleep(SETTLED_S)
    assert deployment.count("positioned") == 0
    begun_s = time.monotonic()
    deployment.workers["w1"].terminate()
    require_end(deployment, begun_s)

    assert members(deployment) == 0
    other.abort_transaction(30)
    consumer.close()


def test_uploads_under_way_are_finished(kafka: KafkaHelper, s3_faults: S3FaultProxy, deploy: Deploy) -> None:
    """One SIGTERM during a slow flush by interval: that flush commits, and nothing is flushed twice."""
    deployment = deploy(endpoint=s3_faults.endpoint)
    s3_faults.add(Rule(Action.DELAY, "PUT", DATA, times=4, delay_s=600))
    written = kafka.produce(deployment.source, some_records(60, partitions=6))
    deployment.start("w1", LOGP_FLUSH__INTERVAL_S="0.5")
    kafka.wait_for("uploads under way", lambda: s3_faults.done[Action.DELAY] == 4, timeout_s=60)
    deployment.workers["w1"].terminate()
    s3_faults.clear()

    assert deployment.exit_code("w1", within_s=GRACE_S) == 0
    deployment.wait_drained(written, timeout_s=5)
    assert [flush.reason for flush in deployment.flush_records()] == ["interval"]
    deployment.require_clean()


def test_two_stop_at_once(kafka: KafkaHelper, deploy: Deploy) -> None:
    """Each flushes its own batch although the other's leaving makes a rebalance meanwhile."""
    deployment = deploy(protocol="consumer")
    for name in ("w1", "w2"):
        deployment.start(name, LOGP_FLUSH__INTERVAL_S=NEVER)
    for name in ("w1", "w2"):
        deployment.wait_metric(name, "owned_topic_partitions", 3)
    written = kafka.produce(deployment.source, some_records(120, partitions=6))
    for name in ("w1", "w2"):
        deployment.wait_metric(name, "records_total", 60)

    assert deployment.stop_all() == {"w1": 0, "w2": 0}
    deployment.wait_drained(written, timeout_s=5)
    deployment.require_clean()
