"""The Kafka of the test run does what the service relies on, alone and as three brokers under faults."""

import socket
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import ConfigResource, ResourceType

from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.providers import jars
from tools.local.errors import PortInUseError
from tools.local.kafka import KafkaCluster, make_cluster_id
from tools.local.ports import LOOPBACK
from tools.local.tcp_proxy import API_END_TXN, CutMoment
from tools.local.topics import create_topics

pytestmark = pytest.mark.integration


def _transactional_producer(bootstrap_servers: str, transactional_id: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 10_000,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,  # lost connections are the point here
        }
    )
    producer.init_transactions(30)
    return producer


@pytest.fixture
def topic(kafka: KafkaHelper, names: Names) -> str:
    return kafka.create_topic(names.topic(), partitions=2)


def test_records_come_back_as_written(kafka: KafkaHelper, topic: str) -> None:
    written = kafka.produce(
        topic,
        [
            ToProduce(value=b"v0", key=b"k", partition=1, timestamp_ms=1_700_000_000_000, headers={"h": b"x"}),
            ToProduce(value=None, partition=0),
        ],
    )
    records = sorted(kafka.read_committed(topic), key=lambda record: -record.partition())

    assert written == [(1, 0), (0, 0)]
    assert [(r.key(), r.value(), r.headers()) for r in records] == [
        (b"k", b"v0", [("h", b"x")]),
        (None, None, None),
    ]
    assert records[0].timestamp()[1] == 1_700_000_000_000


def test_aborted_records_are_seen_by_uncommitted_readers_only(kafka: KafkaHelper, topic: str, names: Names) -> None:
    producer = _transactional_producer(kafka.bootstrap_servers, names.group())
    for value, commit in ((b"aborted", False), (b"committed", True)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush()
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()

    assert [r.value() for r in kafka.read_committed(topic)] == [b"committed"]
    assert [r.value() for r in kafka.read_uncommitted(topic)] == [b"aborted", b"committed"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_gets_its_partitions_and_commits(kafka: KafkaHelper, topic: str, names: Names, protocol: str) -> None:
    """Both group protocols work, the second being KIP-848."""
    kafka.produce(topic, [ToProduce(value=b"v", partition=partition) for partition in (0, 1)])
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": names.group(),
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe([topic])
        received = consumer.consume(2, timeout=20)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()

    assert sorted(record.partition() for record in received) == [0, 1]
    assert kafka.committed_offsets(names.group(), topic) == {0: 1, 1: 1}


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


def test_start_on_a_port_in_use_starts_nothing(tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as listener:
        port = listener.getsockname()[1]
        cluster = KafkaCluster(jars=jars(), root=tmp_path, ports=[port])
        with pytest.raises(PortInUseError, match=f"Port {port} on 127.0.0.1 is in use, but Kafka needs it"):
            cluster.start()

    assert cluster.processes == []


def test_cluster_id_is_never_taken_for_an_option() -> None:
    """One id in 64 began with a dash, and the cluster then could not be formatted."""
    ids = {make_cluster_id() for _ in range(2000)}

    assert [cluster_id for cluster_id in ids if cluster_id.startswith("-")] == []
    assert {len(cluster_id) for cluster_id in ids} == {22}


@pytest.fixture
def replicated(cluster_helper: KafkaHelper, names: Names) -> str:
    """A topic with three replicas of which two are needed."""
    return cluster_helper.create_topic(names.topic("replicated"), partitions=3)


@pytest.mark.cluster
def test_cluster_goes_on_without_a_killed_broker(
    kafka_cluster: KafkaCluster, cluster_helper: KafkaHelper, replicated: str
) -> None:
    before = uuid.uuid4().bytes
    cluster_helper.produce_values(replicated, [before])

    kafka_cluster.kill(0)
    cluster_helper.produce(replicated, [ToProduce(value=b"after", partition=p) for p in range(3)])
    kafka_cluster.restart(0)

    values = [record.value() for record in cluster_helper.read_committed(replicated)]
    assert sorted(values, key=len) == [b"after"] * 3 + [before]


@pytest.mark.cluster
def test_cluster_goes_on_without_a_paused_broker(
    kafka_cluster: KafkaCluster, cluster_helper: KafkaHelper, replicated: str
) -> None:
    kafka_cluster.pause(1)
    cluster_helper.produce(replicated, [ToProduce(value=b"v", partition=p) for p in range(3)])
    kafka_cluster.resume(1)

    assert len(cluster_helper.read_committed(replicated)) == 3


@pytest.mark.cluster
@pytest.mark.parametrize("moment", CutMoment)
def test_commit_outlives_a_cut_at_its_end(
    kafka_cluster: KafkaCluster, cluster_helper: KafkaHelper, replicated: str, names: Names, moment: CutMoment
) -> None:
    """Whether the broker has seen EndTxn or not, the client asks again, and the data are there once."""
    producer = _transactional_producer(kafka_cluster.bootstrap_servers, names.group())
    producer.begin_transaction()
    producer.produce(replicated, b"v")
    producer.flush()
    before = sum(proxy.cuts_done for proxy in kafka_cluster.proxies)
    for proxy in kafka_cluster.proxies:
        proxy.cut_at(API_END_TXN, moment)

    producer.commit_transaction(30)

    assert sum(proxy.cuts_done for proxy in kafka_cluster.proxies) > before
    assert [record.value() for record in cluster_helper.read_committed(replicated)] == [b"v"]
