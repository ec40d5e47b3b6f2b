"""A batch that is committed behind an open transaction: an audit waits for the transaction and misses nothing."""

from confluent_kafka import Producer

from log_partitioner.adapters.kafka.topics import KafkaTopics
from log_partitioner.config.settings import KafkaSettings
from log_partitioner.formats.model import TopicPartition
from tests.integration.harness import Deploy
from tests.stack.kafka_helper import KafkaHelper
from tests.stack.names import Names

ENTRY = b'{"user": "ann", "time": "2024-05-01T10:00:00Z"}'


def test_batch_behind_a_killed_workers_transaction_is_not_missed(
    kafka: KafkaHelper, names: Names, deploy: Deploy
) -> None:
    """(1) A worker is killed while it commits; (2) another commits; (3) until the broker ends (1), (2) is hidden."""
    deployment = deploy()
    topics = [deployment.references_topic, deployment.flushes_topic, deployment.dead_letters_topic]
    tps = [TopicPartition(topic, number) for topic in topics for number in kafka.partitions(topic)]
    deployment.start("w1")
    deployment.wait_drained(kafka.produce_values(deployment.source, [ENTRY]))
    killed = _open_transaction(kafka, names, tps)
    deployment.wait_drained(kafka.produce_values(deployment.source, [ENTRY]))
    assert len(deployment.flush_records()) == 1, "the second is hidden"

    report = deployment.require_clean()

    assert report.json["counts"]["entries_in_files"] == 2
    del killed


def test_transaction_that_stays_open_is_told(kafka: KafkaHelper, names: Names) -> None:
    """The ends are those before it, and it says which TopicPartitions are concerned."""
    tps = [TopicPartition(kafka.create_topic(names.topic(), partitions=2), number) for number in range(2)]
    open_one = _open_transaction(kafka, names, tps[1:])
    settings = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers, source_topics=(tps[0].topic,))
    with KafkaTopics.of(settings) as topics:
        ends, doubts = topics.settled(tps, within_s=1.0)
        assert ends == {tps[0]: (0, 0), tps[1]: (0, 0)}
        assert doubts == [f"{tps[1]}: a transaction has been open for more than 1 s, at offset 0"]
        open_one.abort_transaction(20)
        assert topics.settled(tps) == ({tps[0]: (0, 0), tps[1]: (0, 2)}, [])


def _open_transaction(kafka: KafkaHelper, names: Names, tps: list[TopicPartition]) -> Producer:
    """Write to each TopicPartition in a transaction that the broker ends after 15 s, at its next look."""
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "transactional.id": names.group("killed"),
            "transaction.timeout.ms": 15_000,
        }
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    for tp in tps:
        producer.produce(tp.topic, b"not committed", partition=tp.partition)
    assert producer.flush(20) == 0
    return producer
