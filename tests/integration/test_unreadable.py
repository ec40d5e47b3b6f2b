"""Record batches that are damaged on a broker's disk, and headers that Python cannot read, on the real path."""

import json
import time
from collections.abc import Iterator

import pytest

from log_partitioner.control.deadline import Deadline
from log_partitioner.formats.dead_letter import parse_headers
from log_partitioner.formats.model import CommittedOffset, TopicPartition
from tests.contract.mock_cluster import append, batch
from tests.contract.reader import Reader, poll_until
from tests.integration.harness import Deploy, Deployment
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.providers import jars
from tools.local.kafka import KafkaCluster

MARK = b"turned-on-disk"
BATCH = 10  # records
NO_WAIT = {"LOGP_FLUSH__INTERVAL_S": "1"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A broker of this module: its files are damaged."""
    with KafkaCluster(jars=jars(), root=tmp_path_factory.mktemp("damaged"), brokers=1) as broker:
        yield broker


@pytest.fixture
def deployment(broker: KafkaCluster, request: pytest.FixtureRequest, deploy: Deploy) -> Deployment:
    """A deployment with two TopicPartitions on that broker; the test says which protocol, if it matters."""
    kafka = KafkaHelper(broker.bootstrap_servers, provider="local process")
    protocol = getattr(request, "param", "cooperative-sticky")
    return deploy(kafka=kafka, partitions=2, protocol=protocol, settings=NO_WAIT)


def entry(number: int, *, text: str = "fine") -> bytes:
    """Make the value of a record."""
    return json.dumps({"user": f"u{number % 3}", "time": "2024-05-01T10:00:00Z", "n": number, "text": text}).encode()


def write_batches(deployment: Deployment, *, damaged: int) -> list[tuple[int, int]]:
    """Write five record batches to each TopicPartition; a mark on the disk shows the damaged one of partition 0."""
    written = []
    for number in range(5):
        for partition in (0, 1):
            text = MARK.decode() if (partition, number) == (0, damaged) else "fine"
            values = (entry(BATCH * number + one, text=text) for one in range(BATCH))
            records = [ToProduce(value=value, partition=partition) for value in values]
            written += deployment.kafka.produce(deployment.source, records)
    return written


def damage(broker: KafkaCluster, topic: str) -> None:
    """Turn a bit of the marked batch in the files of partition 0."""
    (segment,) = broker.root.glob(f"broker-1/data/{topic}-0/*.log")
    with segment.open("r+b") as file:
        at = file.read().index(MARK)
        file.seek(at)
        file.write(bytes([MARK[0] ^ 1]))


@pytest.mark.parametrize(
    "deployment", ["cooperative-sticky", pytest.param("consumer", marks=pytest.mark.sweep)], indirect=True
)
def test_batch_that_is_damaged_on_disk_is_held_until_a_person_skips_it(
    broker: KafkaCluster, deployment: Deployment
) -> None:
    """Nothing behind it is committed before; then one dead letter names its offsets, and audit and logs agree.

    A worker that took the later records for the next ones would have committed behind it silently.
    """
    written = write_batches(deployment, damaged=2)
    damage(broker, deployment.source)
    deployment.start("w1")
    deployment.wait_metric("w1", "held_topic_partitions", 1)
    code, text = deployment.skip(partition=0, first=2 * BATCH)
    assert (code, "has live members" in text) == (1, True), text
    assert deployment.stop_all() == {"w1": 0}
    assert deployment.committed_offsets()[0] == 2 * BATCH

    where = ["--topic", deployment.source, "--partition", "0", "--from", "20"]
    code, text = deployment.run("offsets", "skip", *where, "--dry-run")
    assert (code, "the offsets 20 to 29 become one dead letter, the group goes on at 30" in text) == (0, True), text
    code, text = deployment.run("offsets", "skip", *where)
    assert (code, "up to 10 records would be skipped" in text) == (1, True), text
    assert deployment.committed_offsets()[0] == 2 * BATCH
    code, text = deployment.skip(partition=0, first=2 * BATCH)
    assert code == 0, text
    assert deployment.committed_offsets()[0] == 3 * BATCH

    deployment.start("w2")
    deployment.wait_drained(written, timeout_s=90)
    assert deployment.stop_all()["w2"] == 0
    report = deployment.require_clean(put_away={"skipped": 1})
    assert report.json["counts"]["entries_in_dead_letters"] == 1
    (letter,) = map(parse_headers, (message.headers() for message in deployment.dead_letters()))  # type: ignore[arg-type]
    assert (letter.reason, letter.partition, letter.offset, letter.end_offset) == ("skipped", 0, 20, 30)
    code, text = deployment.run("verify-logs", *map(str, deployment.logs()))
    assert code == 0, text


def test_pause_over_a_damaged_batch_is_no_end_of_the_log(broker: KafkaCluster, deployment: Deployment) -> None:
    """A pause drops what was fetched, the batch's error with it; that of the offset behind, which is garbage, stays."""
    write_batches(deployment, damaged=0)
    damage(broker, deployment.source)
    damaged = TopicPartition(deployment.source, 0)
    reader = Reader(broker.bootstrap_servers, [deployment.source])
    poll_until(lambda: damaged in reader.owned, reader)
    consumer, deadline = reader.consumer, Deadline.after(60, time.monotonic)
    consumer.seek(damaged, CommittedOffset(0), deadline=deadline)
    time.sleep(0.5)  # for the library to fetch the batch, and what it takes for the next one
    consumer.pause()
    consumer.resume()
    for code in ("_AUTO_OFFSET_RESET", "_BAD_MSG"):
        while not consumer.failures() and not deadline.has_passed():
            assert not consumer.consume(records_max=100, timeout_s=0.05)
        assert consumer.failures()[damaged].code == code
        consumer.seek(damaged, CommittedOffset(0), deadline=deadline)
    consumer.close()


def test_header_name_that_is_not_utf_8_is_a_dead_letter(broker: KafkaCluster, deployment: Deployment) -> None:
    """Any producer may send it; it ended the worker, and each after it."""
    kafka, topic = broker.bootstrap_servers, deployment.source
    append(kafka, topic, batch(entry(1), entry(2), headers=[(b"trace\xff", b"1")]))
    append(kafka, topic, batch(entry(3), headers=[(b"trace", b"1")]))
    deployment.start("w1")
    deployment.wait_drained([(0, 2)])
    assert deployment.stop_all() == {"w1": 0}
    report = deployment.require_clean()
    assert report.json["dead_letters"] == {"unreadable_headers": 2}
    values = {message.value() for message in deployment.dead_letters()}
    assert values == {entry(1), entry(2)}
    assert [source.entries for one in deployment.references() for source in one.sources] == [1]
