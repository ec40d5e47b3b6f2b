"""Up to which moment the table is complete: never further than what is committed and in it."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer

from log_partitioner.formats.model import TopicPartition
from log_partitioner_pipeline.complete import PROPERTY_COMPLETE, Committed, Completeness, SourceEnds
from log_partitioner_pipeline.entries import EntryTable
from log_partitioner_pipeline.jobs.materialize import Materialize
from tests.pipeline.by_hand import ByHand
from tests.pipeline.conftest import Lake
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper

P0, P1 = TopicPartition("source", 0), TopicPartition("source", 1)
TIME_MS = 1_772_600_400_000
BEGIN = datetime(2026, 3, 4, tzinfo=UTC)


class Job:
    """A job that looks once a minute, and is a new process each time."""

    def __init__(self) -> None:
        self.properties: dict[str, str] = {}
        self.minute = 0

    def look(self, ends: dict[TopicPartition, int | None], committed: Committed) -> int | None:
        """Look at these ends; returns the minute up to which the table is complete."""
        self.minute += 1
        moment = SourceEnds(BEGIN + timedelta(minutes=self.minute), ends)
        self.properties |= Completeness(self.properties).reach(moment, committed)
        through = Completeness(self.properties).through
        return None if through is None else (through - BEGIN) // timedelta(minutes=1)


def test_table_is_complete_up_to_the_moment_whose_ends_are_committed() -> None:
    """A group that is never at the end of a busy source is behind it by its own delay, and no more."""
    job = Job()
    assert job.look({P0: 10, P1: 10}, {P0: 5, P1: 10}) is None
    assert job.look({P0: 20, P1: 10}, {P0: 9, P1: 10}) is None
    assert job.look({P0: 30, P1: 10}, {P0: 10, P1: 10}) == 1
    assert job.look({P0: 40, P1: 10}, {P0: 29, P1: 10}) == 1
    assert job.look({P0: 50, P1: 10}, {P0: 45, P1: 10}) == 3
    assert job.look({P0: 50, P1: 10}, {P0: 50, P1: 10}) == 6
    assert job.look({P0: 60, P1: 10}, {P0: 50, P1: 10}) == 6
    assert job.look({P0: 60, P1: 10}, {P0: 60, P1: 10}) == 8


def test_topic_that_was_deleted_is_waited_for_no_more() -> None:
    """It matched a pattern, and no commit of it will come; the job waits for the other topics as before."""
    job = Job()
    assert job.look({P0: 10, P1: 10}, {P0: 9, P1: 5}) is None
    assert job.look({P0: 20}, {P0: 9}) is None
    assert job.look({P0: 30}, {P0: 10}) == 1


def test_partition_that_nobody_has_committed_is_no_complete_one() -> None:
    """One without records is, and a new one is waited for from the moment on at which it was seen."""
    job = Job()
    assert job.look({P0: 10, P1: None}, {P0: 10, P1: None}) == 1
    assert job.look({P0: 10, P1: 3}, {P0: 10, P1: None}) == 1
    assert job.look({P0: 20, P1: 3}, {P0: 20, P1: 3}) == 3


@pytest.fixture
def deployment(kafka: KafkaHelper, s3: S3Helper, names: Names) -> ByHand:
    """A deployment of three source partitions, one of which has no record."""
    return ByHand(kafka=kafka, s3=s3, names=names, layout="pack")


def test_records_that_are_not_committed_hold_the_moment_back(deployment: ByHand, lake_of: Callable[..., Lake]) -> None:
    """Their timestamps do not matter; this holds from one run to the next."""
    lake = lake_of(deployment)
    begun = now()
    deployment.deliver(records(0))
    first = complete_through(lake)
    assert first is not None
    assert begun <= first

    waiting = records(10)
    places = deployment.kafka.produce(deployment.source, waiting)
    assert complete_through(lake) == first
    asked = now()
    deployment.flush(waiting, places)
    deployment.kafka.produce(deployment.source, records(20))
    second = complete_through(lake)
    assert second is not None
    assert first < second <= asked


def test_markers_of_transactions_are_no_records(deployment: ByHand, lake_of: Callable[..., Lake]) -> None:
    """A source that is written in transactions ends behind what is committed."""
    lake = lake_of(deployment)
    kafka = deployment.kafka.bootstrap_servers
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": deployment.source})
    producer.init_transactions()
    producer.begin_transaction()
    some = records(0, partitions=1)
    for record in some:
        producer.produce(deployment.source, record.value, partition=0, timestamp=record.timestamp_ms or 0)
    producer.commit_transaction()
    deployment.flush(some, [(0, offset) for offset in range(len(some))])
    assert complete_through(lake) is not None


def records(first: int, *, partitions: int = 2) -> list[ToProduce]:
    """Make records of a user for some of the partitions, all of one time."""
    entries = [{"user": "u", "time": TIME_MS, "n": number} for number in range(first, first + 10)]
    return [
        ToProduce(value=json.dumps(one).encode(), partition=number % partitions, timestamp_ms=TIME_MS)
        for number, one in enumerate(entries)
    ]


def complete_through(lake: Lake) -> datetime | None:
    """Materialise, and read the moment off the table."""
    Materialize(lake.spark, lake.settings).run(continuous=False)
    table = EntryTable(lake.spark, lake.settings)
    text = table.properties().get(PROPERTY_COMPLETE)
    return None if text is None else datetime.fromisoformat(text)


def now() -> datetime:
    """Tell the time in whole seconds."""
    return datetime.now(UTC).replace(microsecond=0)
