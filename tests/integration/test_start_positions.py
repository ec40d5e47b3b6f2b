"""A worker's start position: if it cannot start there, it says so and never jumps silently."""

import time

import pytest
from confluent_kafka import Producer, TopicPartition

from tests.integration.flow import some_records
from tests.integration.harness import Deploy, Deployment
from tests.integration.test_lost_offsets import QUICK, TWO, restore
from tests.stack.kafka_helper import KafkaHelper
from tests.stack.names import Names


def test_client_library_talks_at_the_first_start(kafka: KafkaHelper, deploy: Deploy) -> None:
    """Regression: a line of its log, after questions asked inside the assignment callback, aborted the process."""
    deployment = deploy(partitions=TWO, settings=QUICK | {"LOGP_KAFKA__CLIENT_PROPERTIES": '{"debug": "cgrp"}'})
    written = kafka.produce(deployment.source, some_records(10, partitions=TWO))
    deployment.start("w1")
    deployment.wait_drained(written)

    assert deployment.stop_all() == {"w1": 0}
    deployment.require_clean()


@pytest.mark.parametrize("ahead", [False, True], ids=["records-deleted", "ahead-of-the-end"])
def test_committed_offset_out_of_range_ends_with_one_line(kafka: KafkaHelper, deploy: Deploy, *, ahead: bool) -> None:
    """The worker goes neither over records that are gone nor back to a beginning: an operator must decide."""
    deployment = deploy(partitions=TWO, settings=QUICK)
    written = kafka.produce(deployment.source, some_records(40, partitions=TWO))
    deployment.start("w1")
    deployment.wait_drained(written)
    assert deployment.stop_all() == {"w1": 0}
    if ahead:
        restore(deployment, [TopicPartition(deployment.source, 1, 1_000)])
    else:
        kafka.produce(deployment.source, some_records(40, partitions=TWO, first=40))
        gone = [TopicPartition(deployment.source, 1, 30)]
        kafka.admin.delete_records(gone)[gone[0]].result(20)
    before = deployment.committed_offsets()[1]
    deployment.start("w1")

    assert deployment.exit_code("w1") == 1
    (line,) = deployment.complaints("w1")
    text = "somebody else has committed" if ahead else f"the committed offset of {deployment.source}-1 is out of range"
    assert line.startswith(f"StartPositionError: {text}")
    assert deployment.committed_offsets()[1] == before


def test_transactional_source_with_aborts_and_a_tail_of_markers(
    kafka: KafkaHelper, names: Names, deploy: Deploy
) -> None:
    """Aborted records are never read, markers are no records, and with nothing but those left the lag is 0."""
    deployment = deploy(partitions=TWO, settings=QUICK)
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "transactional.id": names.group("source-writer"),
            "transaction.timeout.ms": 20_000,
        }
    )
    producer.init_transactions(30)
    for turn, is_kept in enumerate([True, False, True, True, False, False]):
        producer.begin_transaction()
        for record in some_records(20, partitions=TWO, first=20 * turn):
            producer.produce(deployment.source, record.value, partition=record.partition or 0)
        producer.flush()
        if is_kept:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    deployment.start("w1")
    kafka.wait_for("60 records committed", lambda: _records(deployment) == 60, timeout_s=60)
    kafka.wait_for("no lag", lambda: deployment.metric("w1", "lag_records") == 0, timeout_s=10)

    time.sleep(1)  # two intervals: nothing is flushed for markers alone, or they would be for ever
    assert _records(deployment) == 60
    assert deployment.count("batch_discarded") == 0
    deployment.require_clean()


def _records(deployment: Deployment) -> int:
    return sum(flush.totals.records for flush in deployment.flush_records())
