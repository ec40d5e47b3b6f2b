"""Backfill on real Kafka and S3 fills holes in a worker's output exactly once, whatever process is killed.

A hole is made by copying the worker's references (or dead letters) without some of them to another topic, which then
is the deployment's: each line that is left in a message of its own. A driver is stopped inside a transaction, and one
with its objects written and nothing else; that it is killed, at any point, is a sweep.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

import confluent_kafka
import pytest
from pyspark.errors.exceptions.captured import PythonException

from log_partitioner.adapters.kafka.topics import KafkaTopics
from log_partitioner.errors import CouldNotTellError
from log_partitioner.formats.dead_letter import parse_headers
from log_partitioner.formats.model import TopicPartition
from log_partitioner.formats.projection import project
from log_partitioner.formats.reference import Reference, decode_message, decode_references, encode_message
from log_partitioner_pipeline.backfill.outbox import Run
from log_partitioner_pipeline.backfill.ranges import Wanted, parse_offsets
from log_partitioner_pipeline.errors import OvertakenError, RangeError
from log_partitioner_pipeline.jobs.backfill import Backfill
from tests.integration.harness import Deployment
from tests.integration.one_worker import run_through
from tests.pipeline.backfill_driver import POINTS
from tests.pipeline.conftest import Lake
from tests.pipeline.groups import commit
from tests.pipeline.packs import split_message
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper
from tools.local.processes import ServerProcess

REPEAT = int(os.environ.get("LOGP_TEST_REPEAT", "1"))
DRIVER = str(Path(__file__).parent / "backfill_driver.py")
EVERYTHING = Wanted(from_ms=0)
OVERTAKEN = 2
STOPPED_S = 180.0

pytestmark = pytest.mark.usefixtures("small_outbox")


class DiedError(Exception):
    """The driver is dead."""


def die(*_: object) -> NoReturn:
    """Die in place of another step."""
    raise DiedError


class Worked(NamedTuple):
    """A worker's output, in several batches."""

    deployment: Deployment
    references: list[Reference]


@pytest.fixture(scope="module")
def worked(kafka: KafkaHelper, s3: S3Helper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worked]:
    """One worker's work, for all tests here: they only read it."""
    records = []
    for at in range(600):
        entries = [
            {
                "user": f"user-{at % 7}",
                "time": f"2026-03-04T{5 + at % 3:02}:06:{k:02}Z",
                "n": at,
                "x": k or "text",
            }
            for k in range(4)
        ]
        if at % 50 == 0:
            entries[1] = {"nobody": at, "time": "2026-03-04T05:00:00Z"}
        value = b"not JSON" if at % 97 == 5 else json.dumps(entries).encode()
        timestamp_ms = 2**63 - 1 if at == 300 else 0
        headers = {"h": b"1"}
        records.append(ToProduce(value=value, partition=at % 6, key=b"k", headers=headers, timestamp_ms=timestamp_ms))
    with Deployment(
        kafka=kafka, s3=s3, names=Names("backfill"), root=tmp_path_factory.mktemp("backfill")
    ) as deployment:
        run_through(deployment, records, LOGP_FLUSH__ENTRIES_MAX="600")
        yield Worked(deployment, deployment.references())


class Hole:
    """The worker's work with every third reference and every second dead letter lost."""

    def __init__(self, worked: Worked, names: Names, lake_of: Callable[..., Lake]) -> None:
        deployment = self.deployment = worked.deployment
        kafka = deployment.kafka
        self.name = names.group("run")  # run ids live in the bucket, which the tests here share
        self.references_topic = kafka.create_topic(names.topic("refs-left"), partitions=3)
        self.dead_letters_topic = kafka.create_topic(names.topic("dead-left"))
        self.backfills_topic = kafka.create_topic(names.topic("backfills"))
        self.lost: dict[str, Reference] = {}
        lines = [
            (message, encode_message(line))
            for message in kafka.read_committed(deployment.references_topic)
            for line in split_message(decode_message(message.value()), lines_max=1)
        ]
        for _, value in lines[::3]:
            self.lost |= {one.reference_id: one for one in decode_references(value)}
        kept = [
            ToProduce(value=value, key=message.key(), headers=dict(message.headers()), partition=message.partition())
            for number, (message, value) in enumerate(lines)
            if number % 3
        ]
        kafka.produce(self.references_topic, kept)
        letters = deployment.dead_letters()
        kept = [ToProduce(value=one.value(), key=one.key(), headers=dict(one.headers())) for one in letters[::2]]
        kafka.produce(self.dead_letters_topic, kept)
        self.lost_letters = len(letters[1::2])
        self.settings = {
            "LOGP_KAFKA__REFERENCES_TOPIC": self.references_topic,
            "LOGP_KAFKA__DEAD_LETTERS_TOPIC": self.dead_letters_topic,
            "LOGP_KAFKA__BACKFILLS_TOPIC": self.backfills_topic,
            "LOGP_LAYOUT": "pack",  # under `auto`, chance says whether a task has keys enough for a pack
        }
        self.lake = lake_of(deployment, **self.settings)

    def backfill(self, run_id: str) -> Backfill:
        """Make a driver in this process."""
        return Backfill(self.lake.settings, f"{self.name}-{run_id}", spark=self.lake.spark)

    def start(self, name: str, point: str, *arguments: str) -> ServerProcess:
        """Start a driver that stops itself at a point, and wait for that."""
        driver = self.lake.start(name, point, *arguments, program=(DRIVER,))
        driver.wait_for_line(f"stopped at {point}", timeout_s=STOPPED_S)
        return driver

    def published(self) -> list[Reference]:
        """The backfills' references."""
        messages = self.deployment.kafka.read_committed(self.references_topic)
        found = [one for message in messages for one in decode_references(message.value())]
        return [one for one in found if one.batch_id.startswith("backfill-")]

    def schemas_of(self, references: Collection[Reference]) -> set[str]:
        """The exact schemas of references."""
        s3, bucket = self.deployment.s3, self.deployment.bucket
        headers = {key: json.loads(s3.read(bucket, key)) for key in {one.schema.object for one in references}}
        return {json.dumps(project(headers[one.schema.object], one.projection)) for one in references}

    def require_filled(self) -> None:
        """Ask the audit, and compare with what was lost: per PartitionKey the same entries, a schema of them all."""
        kept = dict(self.deployment._direct)
        self.deployment._direct |= self.settings
        try:
            self.deployment.require_clean()
        finally:
            self.deployment._direct = kept
        published = self.published()
        assert sum(one.entries for one in published) == sum(one.entries for one in self.lost.values())
        assert {one.partition_key for one in published} == {one.partition_key for one in self.lost.values()}
        assert len({one.reference_id for one in published}) == len(published)
        letters = self.deployment.kafka.read_committed(self.dead_letters_topic)
        ours = [one for one in letters if parse_headers(one.headers()).batch_id.startswith("backfill-")]
        assert len(ours) == self.lost_letters


def test_hole_filled_once(
    worked: Worked, names: Names, lake_of: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lost references and dead letters come back, although the run's first driver ended between upload and manifest.

    The run again, and another run, publish nothing. If retention has taken the run records, the run is refused, and
    another one still publishes nothing.
    """
    hole = Hole(worked, names, lake_of)
    summary = hole.backfill("dry").summarise(EVERYTHING)
    lost = sum(one.entries for one in hole.lost.values())
    assert summary.entries_in_files == lost
    with monkeypatch.context() as patch:
        patch.setattr(Backfill, "_write_outbox", die)
        with pytest.raises(DiedError):
            hole.backfill("one").run(EVERYTHING)
    done = hole.backfill("one").run(EVERYTHING)
    assert done.transactions > 2
    assert hole.backfill("one").run(Wanted()).messages == 0
    assert hole.backfill("two").run(EVERYTHING).messages == 0
    hole.require_filled()
    published = hole.published()
    assert len({one.location.object for one in published}) < len(published)
    assert hole.schemas_of(published) <= hole.schemas_of(hole.lost.values())
    to_end = confluent_kafka.TopicPartition(hole.backfills_topic, 0, confluent_kafka.OFFSET_END)
    (deleted,) = hole.deployment.kafka.admin.delete_records([to_end]).values()
    assert deleted.result().low_watermark > done.transactions
    with pytest.raises(OvertakenError, match="lost records of it"):
        hole.backfill("one").run(Wanted())
    assert hole.backfill("three").run(EVERYTHING).messages == 0


def test_range_beyond_the_committed_offset_is_refused(
    worked: Worked, names: Names, lake_of: Callable[..., Lake]
) -> None:
    """A worker may be at it."""
    hole = Hole(worked, names, lake_of)
    offsets = json.dumps({worked.deployment.source: {"0": [0, 100_000]}})
    with pytest.raises(RangeError, match="beyond what the group has committed"):
        hole.backfill("beyond").run(Wanted(offsets=parse_offsets(offsets)))


def test_range_of_time_reaches_to_its_last_record(
    worked: Worked, kafka: KafkaHelper, names: Names, lake_of: Callable[..., Lake]
) -> None:
    """A record amid the range has a timestamp far ahead; offsets that are not committed are left out.

    If brokers do not give the offset of a partition, this is an error and not an empty partition.
    """
    source, group, minute_ms = kafka.create_topic(names.topic("minutes"), partitions=2), names.group("minutes"), 60_000
    t0_ms = (int(time.time()) - 5 * 3600) * 1000
    for partition in range(2):
        minutes = [40 if number == 12 else number for number in range(30)]
        some = [ToProduce(value=b"{}", partition=partition, timestamp_ms=t0_ms + at * minute_ms) for at in minutes]
        kafka.produce(source, some)
    commit(kafka, group, source, {0: 30, 1: 15})
    settings = {"LOGP_KAFKA__SOURCE_TOPICS": json.dumps([source]), "LOGP_KAFKA__GROUP_ID": group}
    lake = lake_of(worked.deployment, **settings)
    wanted = Wanted(from_ms=t0_ms + 10 * minute_ms, until_ms=t0_ms + 20 * minute_ms)
    run = Backfill(lake.settings, "minutes", spark=lake.spark)._begin(wanted)
    assert run.ranges == {TopicPartition(source, 0): range(10, 20), TopicPartition(source, 1): range(10, 15)}
    with KafkaTopics.of(lake.settings.worker.kafka) as topics, pytest.raises(CouldNotTellError, match=f"{source}-7"):
        topics.offsets_at([TopicPartition(source, 0), TopicPartition(source, 7)], t0_ms)


def test_other_run_over_the_same_range_stops(worked: Worked, names: Names, lake_of: Callable[..., Lake]) -> None:
    """Two runs have looked at the same hole: the second to publish finds it filled, and publishes nothing."""
    hole = Hole(worked, names, lake_of)
    one, other = hole.backfill("one"), hole.backfill("other")
    theirs = other._prepare(other._begin(EVERYTHING))
    one.run(EVERYTHING)
    with pytest.raises(OvertakenError, match="has published entries of the same range"):
        other.publish(theirs)
    hole.require_filled()


@pytest.mark.sweep
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("turn", range(REPEAT))
def test_driver_killed(point: str, turn: int, worked: Worked, names: Names, lake_of: Callable[..., Lake]) -> None:
    """SIGKILL at this point; the run goes on by its id, each entry is published once."""
    del turn
    hole = Hole(worked, names, lake_of)
    driver = hole.start("killed", point, "--from", "1970-01-01", "--run-id", f"{hole.name}-run")
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait(grace_s=10)
    hole.backfill("run").run(EVERYTHING)
    hole.require_filled()


@pytest.mark.parametrize(
    "point", ["inside an open transaction", pytest.param("between two transactions", marks=pytest.mark.sweep)]
)
@pytest.mark.parametrize("turn", range(REPEAT))
def test_driver_overtaken(point: str, turn: int, worked: Worked, names: Names, lake_of: Callable[..., Lake]) -> None:
    """A publisher stopped there, resumed after its successor's commits: it adds nothing; inside, it is fenced."""
    del turn
    hole = Hole(worked, names, lake_of)
    driver = hole.start("overtaken", point, "--from", "1970-01-01", "--run-id", f"{hole.name}-run")
    hole.backfill("run").run(EVERYTHING)
    os.killpg(driver.pid, signal.SIGCONT)
    driver.wait(grace_s=60)
    assert driver.exit_code == (OVERTAKEN if point.startswith("inside") else 0), driver.last_lines()
    hole.require_filled()


def test_what_is_deleted_before_it_is_read_is_missed(
    worked: Worked, names: Names, lake_of: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    """References that retention takes while a run begins: nothing is published a second time for want of them."""
    hole = Hole(worked, names, lake_of)
    backfill, kafka = hole.backfill("late"), hole.deployment.kafka
    begin = backfill._begin
    partition = kafka.read_committed(hole.references_topic)[0].partition()

    def begin_and_lose(wanted: Wanted) -> Run:
        run = begin(wanted)
        to_first = confluent_kafka.TopicPartition(hole.references_topic, partition, 1)
        (deleted,) = kafka.admin.delete_records([to_first]).values()
        assert deleted.result().low_watermark == 1
        return run

    monkeypatch.setattr(backfill, "_begin", begin_and_lose)
    with pytest.raises(PythonException, match="requested offset not available"):
        backfill.run(EVERYTHING)
    assert hole.published() == []
