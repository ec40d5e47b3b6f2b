"""Committed offsets that are of another topic, or gone: a worker refuses, and a command leads on."""

import re

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from log_partitioner.formats import offset_metadata
from tests.integration.flow import some_records
from tests.integration.harness import PROTOCOLS, Deploy, Deployment
from tests.integration.test_outside import delete
from tests.stack.kafka_helper import KafkaHelper

TWO = 2
FOREIGN = 5_000
COORDINATOR_S = 30.0
QUICK = {"LOGP_FLUSH__INTERVAL_S": "0.5"}


def drained(deployment: Deployment, records: int = 40) -> list[tuple[int, int]]:
    """Let a worker flush some records, and stop it."""
    written = deployment.kafka.produce(deployment.source, some_records(records, partitions=TWO))
    deployment.start("w1")
    deployment.wait_drained(written)
    assert deployment.stop_all() == {"w1": 0}
    return written


def complaint(deployment: Deployment, name: str, **settings: str) -> str:
    """Start a worker that ends by itself; gives what it says."""
    deployment.start(name, **settings)
    assert deployment.exit_code(name, within_s=60) == 1
    (line,) = deployment.complaints(name)
    return line


def restore(deployment: Deployment, positions: list[TopicPartition]) -> None:
    """Commit offsets with their metadata, as a tool for administrators does; asks again while coordinators move."""
    asked = ConsumerGroupTopicPartitions(deployment.group, positions)
    admin = deployment.kafka.admin

    def are_taken() -> bool:
        (future,) = admin.alter_consumer_group_offsets([asked]).values()
        return all(one.error is None for one in future.result(20).topic_partitions)

    deployment.kafka.wait_for("offsets to be taken", are_taken, timeout_s=COORDINATOR_S)


def _remake(deployment: Deployment) -> None:
    """Delete the source topic and make it anew under its name."""
    delete(deployment.kafka, deployment.source)
    deployment.kafka.create_topic(deployment.source, partitions=TWO)


def _remake_and_restore(deployment: Deployment) -> None:
    """Make the topic anew, and commit what was committed of the old one: the brokers have dropped it."""
    group, topic = deployment.group, deployment.source
    offsets = deployment.kafka.committed_offsets(group, topic)
    texts = deployment.kafka.committed_metadata(group, topic)
    _remake(deployment)
    deployment.kafka.wait_for("offsets to be dropped", lambda: not deployment.committed_offsets(), timeout_s=20)
    restore(deployment, [TopicPartition(topic, number, offset, texts[number]) for number, offset in offsets.items()])


def _drop_group(deployment: Deployment) -> None:
    for future in deployment.kafka.admin.delete_consumer_groups([deployment.group]).values():
        future.result(20)


def records_of(deployment: Deployment) -> int:
    """Count the records of all flushes."""
    return sum(flush.totals.records for flush in deployment.flush_records())


@pytest.mark.parametrize(
    ("place", "records"), [("committed", 10), pytest.param("beginning", 50, marks=pytest.mark.sweep)]
)
def test_topic_made_anew_while_the_worker_is_away_is_refused_until_a_command_says_how_to_go_on(
    kafka: KafkaHelper, place: str, records: int, deploy: Deploy
) -> None:
    """The committed number is in range, but names other records."""
    deployment = deploy(partitions=TWO, settings=QUICK)
    drained(deployment)
    old = offset_metadata.decode(kafka.committed_metadata(deployment.group, deployment.source)[0]).topic_id
    _remake_and_restore(deployment)
    written = kafka.produce(deployment.source, some_records(50, partitions=TWO))
    line = complaint(deployment, "w2")
    assert line.startswith(f"StartPositionError: topic {deployment.source} was made anew under its name")
    assert f"{deployment.source}-0 (20, of id {old})" in line
    assert f"`log-partitioner offsets set --topic {deployment.source} --to {place}`" in line
    assert deployment.committed_offsets() == {0: 20, 1: 20}

    command = ["offsets", "set", "--topic", deployment.source, "--to", place]
    code, text = deployment.run(*command)
    assert (code, text.count("-> 20" if place == "committed" else "-> 0")) == (0, 2), text
    assert f"{deployment.source}-0: 20 (of another topic of this name, {old}" in text
    deployment.start("w3")
    deployment.wait_drained(written)
    assert records_of(deployment) == 40 + records
    deployment.stop_all()
    code, text = deployment.run(*command)
    assert (code, "repeat the command with --yes" in text) == ((0, False) if place == "committed" else (1, True)), text


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_topic_made_anew_while_a_worker_runs_stops_it(kafka: KafkaHelper, protocol: str, deploy: Deploy) -> None:
    """The client library takes the new id over and reads on; a worker asks before each flush of its loop."""
    deployment = deploy(partitions=TWO, protocol=protocol, settings=QUICK)
    written = kafka.produce(deployment.source, some_records(40, partitions=TWO))
    deployment.start("w1")
    deployment.wait_drained(written)
    _remake(deployment)
    kafka.produce(deployment.source, some_records(60, partitions=TWO))
    assert deployment.exit_code("w1", within_s=90) == 1
    (line,) = deployment.complaints("w1")
    assert re.search("was made anew|no such topic|UNKNOWN_TOPIC", line), line


@pytest.mark.parametrize(
    ("kept", "protocol"),
    [
        pytest.param(1, "cooperative-sticky", id="one-cooperative-sticky", marks=pytest.mark.sweep),
        pytest.param(0, "consumer", id="all-consumer", marks=pytest.mark.sweep),
        pytest.param(1, "consumer", id="one-consumer"),
    ],
)
def test_lost_offsets_are_refused_until_a_command_takes_them_from_flush_records(
    kafka: KafkaHelper, protocol: str, kept: int, deploy: Deploy
) -> None:
    """An expired group, an offset of long ago: with the command nothing is missing and nothing is doubled.

    Flush records are read back over many chunks: thousands of another group, which publishes another topic, lie behind.
    """
    deployment = deploy(partitions=TWO, protocol=protocol, settings=QUICK)
    drained(deployment)
    _drop_group(deployment)
    if kept:
        restore(deployment, [TopicPartition(deployment.source, 0, 7)])
    (message,) = kafka.read_committed(deployment.flushes_topic)[-1:]
    foreign = (message.value() or b"").replace(deployment.group.encode(), b"another")
    foreign = foreign.replace(deployment.source.encode(), b"web")
    kafka.produce_values(deployment.flushes_topic, [foreign] * FOREIGN)
    written = kafka.produce(deployment.source, some_records(40, partitions=TWO, first=40))
    line = complaint(deployment, "w2")
    assert line.startswith(f"StartPositionError: group {deployment.group} has lost committed offsets")
    assert all(f"{deployment.source}-{number} at 20" in line for number in range(TWO)), line
    assert f"`log-partitioner offsets set --topic {deployment.source} --to flushed`" in line
    assert deployment.committed_offsets() == ({0: 7} if kept else {})

    command = ["offsets", "set", "--topic", deployment.source, "--to", "flushed"]
    code, text = deployment.run(*command, "--dry-run")
    assert (code, text.count(" -> 20\n")) == (0, TWO), text
    assert deployment.committed_offsets() == ({0: 7} if kept else {})
    code, text = deployment.run(*command)
    assert (code, text.count(" -> 20\n")) == (0, TWO), text
    deployment.start("w3")
    deployment.wait_drained(written)
    code, text = deployment.run(*command)
    assert (code, text.count("left: it is there")) == (0, TWO), text
    deployment.require_clean()
