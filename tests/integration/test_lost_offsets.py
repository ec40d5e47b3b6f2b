"""Committed offsets that are of another topic, or gone: a worker refuses, and a command leads on."""

import re
import time
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.cimpl import NewPartitions

from log_partitioner.formats import offset_metadata
from tests.integration.flow import some_records
from tests.integration.harness import PROTOCOLS, Deployment
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper

TWO = 2
FOREIGN = 5_000
COORDINATOR_S = 30.0


def deployed(
    kafka: KafkaHelper, s3: S3Helper, names: Names, root: Path, protocol: str = "cooperative-sticky", **settings: str
) -> Deployment:
    """Make a deployment that flushes often."""
    quick = {"LOGP_FLUSH__INTERVAL_S": "0.5", **settings}
    return Deployment(kafka=kafka, s3=s3, names=names, root=root, partitions=TWO, protocol=protocol, settings=quick)


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


def _restore(deployment: Deployment, positions: list[TopicPartition]) -> None:
    """Commit offsets with their metadata, as a tool for administrators does; asks again while coordinators move."""
    asked = ConsumerGroupTopicPartitions(deployment.group, positions)
    admin = deployment.kafka.admin

    def are_taken() -> bool:
        (future,) = admin.alter_consumer_group_offsets([asked]).values()
        return all(one.error is None for one in future.result(20).topic_partitions)

    deployment.kafka.wait_for("offsets to be taken", are_taken, timeout_s=COORDINATOR_S)


def _remake(deployment: Deployment) -> None:
    """Delete the source topic and make it anew under its name."""
    deployment.kafka.admin.delete_topics([deployment.source])[deployment.source].result(20)
    deadline = time.monotonic() + 20
    while deployment.source in deployment.kafka.admin.list_topics(timeout=10).topics:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    deployment.kafka.create_topic(deployment.source, partitions=TWO)


def _remake_and_restore(deployment: Deployment) -> None:
    """Make the topic anew, and commit what was committed of the old one: the brokers have dropped it."""
    group, topic = deployment.group, deployment.source
    offsets = deployment.kafka.committed_offsets(group, topic)
    texts = deployment.kafka.committed_metadata(group, topic)
    _remake(deployment)
    deployment.kafka.wait_for("offsets to be dropped", lambda: not deployment.committed_offsets(), timeout_s=20)
    _restore(deployment, [TopicPartition(topic, number, offset, texts[number]) for number, offset in offsets.items()])


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
    kafka: KafkaHelper, s3: S3Helper, names: Names, tmp_path: Path, place: str, records: int
) -> None:
    """The committed number is in range, but names other records."""
    with deployed(kafka, s3, names, tmp_path) as deployment:
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
        assert (code, "repeat the command with --yes" in text) == ((0, False) if place == "committed" else (1, True)), (
            text
        )


@pytest.mark.parametrize(("place", "begins_at"), [pytest.param("committed", 20, marks=pytest.mark.sweep), ("15", 15)])
def test_log_rewritten_while_the_worker_is_away_is_refused_until_a_command_says_how_to_go_on(
    kafka: KafkaHelper, s3: S3Helper, names: Names, tmp_path: Path, place: str, begins_at: int
) -> None:
    """The committed epoch is none of this log, as after an unclean election; the other TopicPartition is in order."""
    with deployed(kafka, s3, names, tmp_path) as deployment:
        drained(deployment)
        text = deployment.kafka.committed_metadata(deployment.group, deployment.source)[0]
        _restore(deployment, [TopicPartition(deployment.source, 0, 20, text, 7)])
        written = kafka.produce(deployment.source, some_records(20, partitions=TWO, first=40))
        line = complaint(deployment, "w2")
        assert line.startswith(f"StartPositionError: the log of {deployment.source}-0 was rewritten")
        assert "offset 20 (leader epoch 7)" in line
        told = "OFFSET" if place.isdecimal() else place
        assert f"`log-partitioner offsets set --topic {deployment.source} --partition 0 --to {told}`" in line
        assert deployment.committed_offsets()[0] == 20

        command = ["offsets", "set", "--topic", deployment.source, "--partition", "0", "--to"]
        code, text = deployment.run(*command, place)
        if begins_at < 20:
            assert (code, "up to 5 records would be published a second time" in text) == (1, True), text
            code, text = deployment.run(*command, place, "--yes")
        assert (code, f"-> {begins_at}" in text) == (0, True), text
        deployment.start("w3")
        deployment.wait_drained(written)
        assert records_of(deployment) == 40 + 20 + (20 - begins_at)


def test_topic_made_anew_whose_offsets_the_brokers_have_dropped_starts_as_before(
    kafka: KafkaHelper, s3: S3Helper, names: Names, tmp_path: Path
) -> None:
    """The flush records are of another topic of this name."""
    with deployed(kafka, s3, names, tmp_path) as deployment:
        drained(deployment)
        _remake(deployment)
        written = kafka.produce(deployment.source, some_records(60, partitions=TWO))
        deployment.start("w2")
        deployment.wait_drained(written)
        assert records_of(deployment) == 100


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_topic_made_anew_while_a_worker_runs_stops_it(
    kafka: KafkaHelper, s3: S3Helper, names: Names, tmp_path: Path, protocol: str
) -> None:
    """The client library takes the new id over and reads on; a worker asks before each flush of its loop."""
    with deployed(kafka, s3, names, tmp_path, protocol) as deployment:
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
    kafka: KafkaHelper, s3: S3Helper, names: Names, tmp_path: Path, protocol: str, kept: int
) -> None:
    """An expired group, an offset of long ago: with the command nothing is missing and nothing is doubled.

    Flush records are read back over many chunks: thousands of another group, which publishes another topic, lie behind.
    """
    with deployed(kafka, s3, names, tmp_path, protocol) as deployment:
        drained(deployment)
        _drop_group(deployment)
        if kept:
            _restore(deployment, [TopicPartition(deployment.source, 0, 7)])
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


def test_offsets_of_a_group_with_live_members_are_not_set(
    kafka: KafkaHelper, s3: S3Helper, names: Names, tmp_path: Path
) -> None:
    """The brokers refuse; the command says so, and changes nothing."""
    with deployed(kafka, s3, names, tmp_path) as deployment:
        kafka.produce(deployment.source, some_records(4, partitions=1))
        deployment.start("w1")
        deployment.require_event("positioned", "w1")
        kafka.admin.create_partitions([NewPartitions(deployment.source, 3)])[deployment.source].result(20)
        where = ["--topic", deployment.source, "--partition", "2"]
        code, text = deployment.run("offsets", "set", *where, "--to", "beginning")
        assert code == 1, text
        assert "has live members: stop its workers first" in text
        assert 2 not in deployment.committed_offsets()


def test_expired_group_whose_flush_records_cannot_be_read_is_refused_unless_that_is_accepted(
    kafka: KafkaHelper, s3: S3Helper, names: Names, tmp_path: Path
) -> None:
    """Nobody knows what it has flushed: one of them is of a later version."""
    with deployed(kafka, s3, names, tmp_path) as deployment:
        drained(deployment)
        _drop_group(deployment)
        kafka.produce(deployment.flushes_topic, [ToProduce(value=b'{"format_version": 99}', partition=0)])
        line = complaint(deployment, "w2")
        assert line.startswith("StartPositionError: ")
        assert "is not known" in line
        assert "kafka.accept_unknown_history" in line
        assert deployment.committed_offsets() == {}
        code, text = deployment.run("offsets", "set", "--topic", deployment.source, "--to", "flushed")
        assert (code, "HistoryUnknownError" in text) == (1, True), text

        deployment.start("w3", LOGP_KAFKA__ACCEPT_UNKNOWN_HISTORY="true")
        (positioned,) = deployment.require_event("positioned", "w3")
        assert sorted(positioned["starts"].values()) == [[0, "policy", None]] * 2


def test_new_partition_is_read_from_its_beginning_while_a_worker_runs(
    kafka: KafkaHelper, s3: S3Helper, names: Names, tmp_path: Path
) -> None:
    """The flush records name the others only."""
    properties = '{"topic.metadata.refresh.interval.ms": "500", "fetch.wait.max.ms": "50"}'
    with deployed(kafka, s3, names, tmp_path, LOGP_KAFKA__CLIENT_PROPERTIES=properties) as deployment:
        written = kafka.produce(deployment.source, some_records(40, partitions=TWO))
        deployment.start("w1")
        deployment.wait_drained(written)
        kafka.admin.create_partitions([NewPartitions(deployment.source, 3)])[deployment.source].result(20)
        kafka.wait_for("the third partition", lambda: len(kafka.partitions(deployment.source)) == 3, timeout_s=20)
        other = KafkaHelper(
            kafka.bootstrap_servers, provider=kafka.provider
        )  # the first producer knows two for a while
        written += other.produce(deployment.source, some_records(60, partitions=3, first=40))
        deployment.wait_drained(written)
        assert deployment.stop_all() == {"w1": 0}
        deployment.require_clean()
