"""References into the table: every entry once, every value under its original name, whatever conflicts."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import OFFSET_END, Producer, TopicPartition

from log_partitioner.config.settings import KafkaSettings
from log_partitioner.formats.reference import Reference, encode_message
from log_partitioner.proof.oracle.equal import canonical
from log_partitioner_pipeline.errors import PipelineError, TableError
from log_partitioner_pipeline.jobs.materialize import Materialize
from log_partitioner_pipeline.kafka import ask_topic_id, partition_ends
from log_partitioner_pipeline.metrics import TABLE, read_gauge
from tests.integration.harness import Deployment
from tests.integration.one_worker import run_through
from tests.pipeline.conftest import Lake
from tests.pipeline.packs import messages_of
from tests.pipeline.readback import Places, read_by_pyiceberg, read_table, without_empty
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper

# One user, one hour each: every value of `x` meets every other, in one file and in files of their own.
CONFLICTING: list[Any] = [
    *[1, 2**53 + 1, -(2**63), 2**64, 0.5, 1e300, True, "text", "", {}, {"a": 1}, {"a": "one"}, {"a": {}}],
    *[{"a": {"b": []}}, [], [None], [1, 2], ["a"], [1, "a"], [{}], [{"k": 1}, {"k": "v"}], [[1], []], [[]]],
    *[{"a.b": 1, "A.b": 2}, {"": 0}, {"__": 1, "a__long": 2, "%": 3, "é": 4, "a space": 5, "`": 6, '"': 7, "\\": 8}],
    *[{"deep": {"deeper": [{"deepest": {"": [{}]}}]}}, [{"a": None}, {"b": {"c": None}}]],
]
NAMES = {
    "_meta": 1,
    "_reference": "mine",
    "_META": {"user": "me"},
    "_rest": {"a": 1},
    "v": 1,
    "V": 2,
    "_file": {"a": 1},
    "_partition": {"b": 2},
}
SIMILAR = {"a b": 3, "a_x20b": 4, "x__long": 5, "x": 6, "x__array_long": [7], "__": 8, "_": 9, "": 10, "日本": 11}
# Alike in the files of the table, where Iceberg has other names for some.
IN_PARQUET = {"1": 1, "_1": 2, "a-b": 3, "a_x2Db": 4, "a@": {"1": 5, "_1": 6}, "a_x40": {"%": 7, "_x25": 8}}


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="at-once"),
        pytest.param({"PIPELINE_MATERIALIZE__REFERENCES_MAX": "7"}, id="bit-by-bit", marks=pytest.mark.sweep),
        pytest.param({"PIPELINE_TABLE__COLUMNS_MAX": "20"}, id="few-columns"),
    ],
)
def test_values_that_conflict_are_all_in_the_table(
    settings: dict[str, str], conflicting: tuple[Deployment, Places], lake_of: Callable[..., Lake]
) -> None:
    """Types that meet in one file and across files, odd names, empty containers: every entry comes back equal."""
    deployment, expected = conflicting
    lake = lake_of(deployment, **settings)
    Materialize(lake.spark, lake.settings).run(continuous=False)
    assert read_table(lake) == expected
    assert without_empty_values(read_by_pyiceberg(lake)) == without_empty_values(expected)
    assert lake.spark.conf.get("spark.sql.caseSensitive") == "false", "as most engines read"


def test_columns_of_a_table_are_those_of_the_first_values(
    conflicting: tuple[Deployment, Places], lake_of: Callable[..., Lake], tmp_path: Path
) -> None:
    """Read bit by bit, other columns may come first; every entry comes back equal all the same."""
    deployment, expected = conflicting
    for references in ("100", "5"):
        catalog = str(tmp_path / f"catalog-{references}.db")
        settings = {"PIPELINE_CATALOG__URI": catalog, "PIPELINE_MATERIALIZE__REFERENCES_MAX": references}
        lake = lake_of(deployment, **settings)
        Materialize(lake.spark, lake.settings).run(continuous=False)
        assert read_table(lake) == expected
        assert read_by_pyiceberg(lake).keys() == expected.keys()


def test_missing_object_is_named(
    conflicting: tuple[Deployment, Places], lake_of: Callable[..., Lake], kafka: KafkaHelper, names: Names
) -> None:
    """A reference to an object that is not there: exit code 2, one line that says which, and nothing in the table.

    Nothing else is said but events: of Spark's Java one line, which no option takes away.
    """
    deployment, _ = conflicting
    reference = deployment.references()[0]
    location = msgspec.structs.replace(reference.location, object="logs/gone.avro")
    topic = kafka.create_topic(names.topic("references"), partitions=1)
    kafka.produce_values(topic, [alone(msgspec.structs.replace(reference, location=location))])
    lake = lake_of(deployment, LOGP_KAFKA__REFERENCES_TOPIC=topic)
    job = lake.start("materialize", "materialize")
    job.wait(grace_s=120)
    sentence = f"materialize: s3://{deployment.bucket}/logs/gone.avro is referenced and not there"
    assert (job.exit_code, job.last_lines(1)) == (2, sentence)
    first, *lines = job.last_lines(1000).splitlines()
    assert '"event": "spark_starting"' in first
    known = ("{", "WARNING: Using incubator modules", "NOTE: Picked up JDK_JAVA_OPTIONS")  # the last is this test's own
    assert [line for line in lines if not line.startswith(known)] == [sentence]
    assert lake.spark.table(lake.table).count() == 0


def test_retention_of_what_was_read_is_no_loss(
    conflicting: tuple[Deployment, Places],
    lake_of: Callable[..., Lake],
    kafka: KafkaHelper,
    names: Names,
    tmp_path: Path,
) -> None:
    """Messages that were read may go, with the markers behind them; others are missed, in a new partition too.

    Metrics say when the table last had everything: a run that stops leaves them as they were.
    """
    deployment, _ = conflicting
    read, unread = [alone(reference) for reference in deployment.references()[:2]]
    topic = kafka.create_topic(names.topic("references"), partitions=2)
    file = tmp_path / "table.prom"
    lake = lake_of(deployment, LOGP_KAFKA__REFERENCES_TOPIC=topic, PIPELINE_MATERIALIZE__METRICS_FILE=str(file))
    produce_in_transaction(kafka, topic, 0, read)
    begun_s = time.time()
    Materialize(lake.spark, lake.settings).run(continuous=False)
    committed_s = read_gauge(file, f"{TABLE.prefix}_last_commit_timestamp_seconds")
    assert committed_s is not None
    assert committed_s >= begun_s
    entries = lake.spark.table(lake.table).count()
    delete_everything(kafka, topic, 0)
    Materialize(lake.spark, lake.settings).run(continuous=False)
    assert lake.spark.table(lake.table).count() == entries > 0
    caught_up_s = read_gauge(file, f"{TABLE.prefix}_caught_up_timestamp_seconds")
    assert caught_up_s is not None
    assert caught_up_s > committed_s
    assert read_gauge(file, f"{TABLE.prefix}_offsets_behind") == 0

    produce_in_transaction(kafka, topic, 1, unread)
    delete_everything(kafka, topic, 1)
    with pytest.raises(PipelineError, match=r"deleted before they were read: .*\{\"1\": \[0, 2\]\}"):
        Materialize(lake.spark, lake.settings).run(continuous=False)
    assert read_gauge(file, f"{TABLE.prefix}_caught_up_timestamp_seconds") == caught_up_s


def test_a_topic_made_anew_is_refused(
    conflicting: tuple[Deployment, Places], lake_of: Callable[..., Lake], kafka: KafkaHelper, names: Names
) -> None:
    """Its offsets would pass for those of the old one as soon as it is as long, and what is below be skipped."""
    deployment, _ = conflicting
    values = [alone(reference) for reference in deployment.references()[:2]]
    topic = kafka.create_topic(names.topic("references"), partitions=1)
    lake = lake_of(deployment, LOGP_KAFKA__REFERENCES_TOPIC=topic)
    kafka.produce_values(topic, values[:1])
    Materialize(lake.spark, lake.settings).run(continuous=False)
    entries = lake.spark.table(lake.table).count()
    old = ask_topic_id(lake.settings.worker.kafka, topic)

    kafka.admin.delete_topics([topic])[topic].result()
    kafka.wait_for("its end", lambda: topic not in kafka.admin.list_topics(timeout=10).topics)
    kafka.create_topic(topic, partitions=1)
    kafka.produce_values(topic, [*values[1:], *values])
    new = ask_topic_id(lake.settings.worker.kafka, topic)
    with pytest.raises(TableError, match=f"had the id {old}, this one has {new}"):
        Materialize(lake.spark, lake.settings).run(continuous=False)
    assert lake.spark.table(lake.table).count() == entries > 0


def alone(reference: Reference) -> bytes:
    """Announce a reference in a message of its own; the first range ends where the object's header ends."""
    location = reference.location
    header_bytes = location.ranges[0][1] if len(location.ranges) > 1 else 1
    (message,) = messages_of([reference], {location.object: header_bytes})
    return encode_message(message)


def produce_in_transaction(kafka: KafkaHelper, topic: str, partition: int, value: bytes) -> None:
    """Write one message, and the marker that a worker's commit leaves behind it."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"{topic}-{partition}"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, value, partition=partition)
    producer.commit_transaction(20)
    settings = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers, source_topics=(topic,))
    kafka.wait_for("its marker", lambda: partition_ends(settings, topic)[partition].next == 2)


def delete_everything(kafka: KafkaHelper, topic: str, partition: int) -> None:
    """Delete what a partition has, as retention does."""
    to_the_end = TopicPartition(topic, partition, OFFSET_END)
    for deleted in kafka.admin.delete_records([to_the_end]).values():
        assert deleted.result().low_watermark == 2


@pytest.fixture(scope="module")
def conflicting(
    kafka: KafkaHelper, s3: S3Helper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Deployment, Places]]:
    """One worker's work on entries that conflict, and what the table must then hold."""
    hour = {"time": "2026-03-04T05:06:07Z"}
    entries: list[dict[str, Any]] = [{"user": "one", **hour, "x": value} for value in CONFLICTING]
    entries += [{"user": f"user-{at}", **hour, "x": value} for at, value in enumerate(CONFLICTING)]
    entries += [{"user": "names", **hour, **NAMES}, {"user": "similar", **hour, **SIMILAR}]
    entries += [{"user": "parquet", **hour, **IN_PARQUET}]
    records = [ToProduce(value=json.dumps(entry).encode(), partition=at % 6) for at, entry in enumerate(entries)]
    root = tmp_path_factory.mktemp("conflicting")
    with Deployment(kafka=kafka, s3=s3, names=Names("conflicting"), root=root) as deployment:
        written = run_through(deployment, records)
        yield deployment, {(*place, 0): canonical(entry) for place, entry in zip(written, entries, strict=True)}


def without_empty_values(places: Places) -> Places:
    """Make entries comparable with what PyIceberg reads."""
    return {place: without_empty(entry) for place, entry in places.items()}
