"""The contract suites of the ports (tests/contract) against the real Kafka and the real S3: the fakes pass the same."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Literal

import pytest
from confluent_kafka import Producer

from log_partitioner.adapters.clock import SystemClock
from log_partitioner.adapters.kafka.committer import KafkaCommitter
from log_partitioner.adapters.kafka.consumer import KafkaConsumer
from log_partitioner.adapters.kafka.flush_records import KafkaFlushRecords
from log_partitioner.adapters.kafka.options import consumer_options, producer_options
from log_partitioner.adapters.object_store import S3Store
from log_partitioner.boundary import Committer, Consumer, FlushRecords
from log_partitioner.config.s3_settings import S3Settings
from log_partitioner.config.settings import KafkaSettings, Settings
from log_partitioner.control.flush_history import OurGroup
from log_partitioner.formats.model import TopicPartition
from tests.contract import kafka_suite
from tests.contract.kafka_suite import CommitterContract, ConsumerContract, FlushRecordsContract
from tests.contract.store_suite import ObjectStoreContract, Place
from tests.fakes.clock import FakeClock
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper
from tools.local.s3 import S3Endpoint

reading = kafka_suite.reading


class RealKafka:
    """Topics and a group of one test, through the real adapters."""

    def __init__(self, helper: KafkaHelper, names: Names, protocol: Literal["classic", "consumer"]) -> None:
        self._helper = helper
        source = helper.create_topic(names.topic("source"), partitions=2)
        self.announcements = helper.create_topic(names.topic("announcements"))
        self.tps = (TopicPartition(source, 0), TopicPartition(source, 1))
        self._settings = Settings(
            kafka=KafkaSettings(
                bootstrap_servers=helper.bootstrap_servers,
                group_id=names.group(),
                source_topics=(source,),
                session_timeout_s=10,
                client_properties={"fetch.wait.max.ms": "50"},
                group_protocol=protocol,
            ),
            s3=S3Settings(bucket="bucket"),
        )
        self._numbers = itertools.count()
        self._consumers: list[KafkaConsumer] = []

    def append(self, tp: TopicPartition, *values: bytes) -> None:
        """Append records."""
        self._helper.produce(tp.topic, (ToProduce(value=value, partition=tp.partition) for value in values))

    def append_aborted(self, tp: TopicPartition) -> None:
        """Append a record that is aborted, and the marker."""
        self.append_open(tp)()

    def append_open(self, tp: TopicPartition) -> Callable[[], None]:
        """Append a record in a transaction that is aborted later."""
        producer = Producer(
            {"bootstrap.servers": self._helper.bootstrap_servers, "transactional.id": self._settings.kafka.group_id}
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(tp.topic, b"aborted", partition=tp.partition)
        producer.flush(30)
        return lambda: producer.abort_transaction(30)

    def consumer(self) -> Consumer:
        """Make a consumer."""
        options = consumer_options(self._settings, worker=f"w{next(self._numbers)}")
        made = KafkaConsumer(options, self._settings.kafka.source_topics)
        self._consumers.append(made)
        return made

    def committer(self, transactional_id: str) -> Committer:
        """Make a committer."""
        full_id = f"{self._settings.kafka.group_id}.{transactional_id}"
        options = producer_options(self._settings, worker="w", transactional_id=full_id)
        return KafkaCommitter(options, init_budget_s=60.0, clock=SystemClock())

    def announce(self, *values: bytes) -> None:
        """Append values to the announcements."""
        self._helper.produce_values(self.announcements, values)

    def flush_records(self, group_id: str) -> FlushRecords:
        """Give a reader of flush records."""
        return KafkaFlushRecords(
            consumer_options(self._settings, worker="w"), self.announcements, group=OurGroup(group_id)
        )

    def announced(self) -> list[bytes | None]:
        """Read what is committed."""
        return [message.value() for message in self._helper.read_committed(self.announcements)]

    def now_s(self) -> float:
        """The real clock."""
        return time.monotonic()

    def close(self) -> None:
        """Close what a failed test left open."""
        for consumer in self._consumers:
            consumer.close()


@pytest.fixture(params=["classic", "consumer"])
def protocol(request: pytest.FixtureRequest) -> str:
    """Give a group protocol; not a parameter of `kafka`: the broker would start anew for each."""
    chosen: str = request.param
    return chosen


@pytest.fixture
def kafka(protocol: Literal["classic", "consumer"], kafka: KafkaHelper, names: Names) -> Iterator[RealKafka]:
    """Give a Kafka of this test's own."""
    made = RealKafka(kafka, names, protocol)
    yield made
    made.close()


class TestKafkaConsumer(ConsumerContract):
    """The real consumer."""


class TestKafkaFlushRecords(FlushRecordsContract):
    """The real reader."""


class TestKafkaCommitter(CommitterContract):
    """The real committer."""


@pytest.fixture
def place(s3: S3Helper, names: Names) -> Place:
    """Give a place in the real store."""
    endpoint: S3Endpoint = s3.endpoint
    bucket = s3.create_bucket(names.bucket())
    settings = S3Settings(
        bucket=bucket,
        endpoint_url=endpoint.url,
        region=endpoint.region,
        access_key=endpoint.access_key,
        secret_key=endpoint.secret_key,
    )

    def read(key: str) -> bytes | None:
        listed = s3.client.list_objects_v2(Bucket=bucket, Prefix=key).get("Contents", [])
        if not any(one["Key"] == key for one in listed):
            return None
        body: bytes = s3.client.get_object(Bucket=bucket, Key=key)["Body"].read()
        return body

    return Place(S3Store(settings), "logs", FakeClock(), read, bucket)


class TestS3Store(ObjectStoreContract):
    """The real store."""
