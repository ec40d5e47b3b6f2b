"""The audit on Spark: clean where nothing is wrong, and otherwise exactly the faults that were planted."""

import json
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest
from confluent_kafka import Message

from pipeline.audit.auditor import Auditor, Options
from pipeline.audit.result import Result, Window
from pipeline.jobs.materialize import Materialize
from service.core.reference import FlushRecord, Reference, encode_flush_record, encode_reference
from tests.integration.harness import Deployment
from tests.integration.one_worker import run_through
from tests.pipeline.conftest import Lake
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper

EVERYTHING = Window(from_ms=None, until_ms=None, padding_s=600)
HOUR_MS = 3_600_000
# Full hours of today or yesterday: Kafka deletes what is older than its retention, while a test runs, too.
T0_MS = (int(time.time()) // 3600 - 6) * HOUR_MS
USERS = 3
ENTRIES = 240
DEAD_EVERY = 20


def records() -> Iterator[ToProduce]:
    """Four hours of records, one in twelve a list of three; every twentieth entry has no user."""
    for number in range(ENTRIES):
        at_ms = T0_MS + number * 60_000
        entry = {
            "user": f"user-{number % USERS}",
            "time": at_ms,
            "id": f"id-{number}",
            "n": number,
            "x": {"y": [number]},
        }
        if number % DEAD_EVERY == 7:
            del entry["user"]
        several = [entry, entry | {"id": f"id-{number}-b"}, entry | {"id": f"id-{number}-c", "s": "text"}]
        value = json.dumps(several if number % 12 == 0 else entry).encode()
        yield ToProduce(value=value, partition=number % 3, timestamp_ms=at_ms)


def run(lake: Lake, window: Window = EVERYTHING, **options: bool) -> Result:
    """Audit in this process."""
    options = {"verdicts": False, **options}
    return Auditor(lake.spark, lake.settings, Options(window, **options)).run()


def found(result: Result) -> dict[str, int]:
    """Findings by kind."""
    return {finding.kind.value: finding.count for finding in result.findings}


@pytest.fixture(scope="module")
def deployment(kafka: KafkaHelper, s3: S3Helper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """One worker's run that all tests audit, in several flushes; they must not change what it left."""
    root = tmp_path_factory.mktemp("audit")
    settings = {"LOGP_ID__PATHS": '["id"]'}
    with Deployment(kafka=kafka, s3=s3, names=Names("audit"), root=root, partitions=3, settings=settings) as one:
        some = list(records())
        half = len(some) // 2
        run_through(one, some[:half])
        (root / "logs" / "w1.log").unlink()
        run_through(one, some[half:])
        yield one


def test_nothing_is_found_where_nothing_is_wrong(deployment: Deployment, lake_of: Callable[..., Lake]) -> None:
    """A clean run: every entry is accounted for, by position and by id, hour by hour, and in the table."""
    lake = lake_of(deployment, PIPELINE_AUDIT__UNREFERENCED_AGE_S="0")
    Materialize(lake.spark, lake.settings).run(continuous=False)
    result = run(lake, table=True, list_objects=True, verdicts=True)
    assert (result.exit_code, found(result), result.could_not_tell) == (0, {}, [])


class Copies:
    """Copies of the worker's topics, with a fault planted in them."""

    def __init__(self, deployment: Deployment, name: str) -> None:
        self._deployment = deployment
        self._names = Names(name)
        self.variables: dict[str, str] = {"PIPELINE_AUDIT__UNREFERENCED_AGE_S": "0"}

    def _copy(self, role: str, setting: str, records: list[ToProduce]) -> None:
        topic = self._deployment.kafka.create_topic(self._names.topic(role), partitions=1)
        self._deployment.kafka.produce(topic, records)
        self.variables[f"LOGP_KAFKA__{setting}"] = topic

    def references(self, references: list[Reference]) -> None:
        """Let these be the references."""
        self._copy("references", "REFERENCES_TOPIC", [ToProduce(value=encode_reference(one)) for one in references])

    def flushes(self, flushes: list[FlushRecord]) -> None:
        """Let these be the flush records."""
        self._copy("flushes", "FLUSHES_TOPIC", [ToProduce(value=encode_flush_record(one)) for one in flushes])

    def dead_letters(self, messages: list[Message]) -> None:
        """Let these be the dead letters."""
        records = [ToProduce(value=one.value(), key=one.key(), headers=dict(one.headers() or [])) for one in messages]  # type: ignore[arg-type]
        self._copy("dead", "DEAD_LETTERS_TOPIC", records)


def sorted_references(deployment: Deployment) -> list[Reference]:
    """Give the references, by object."""
    return sorted(deployment.references(), key=lambda one: one.location.object)


Fault = Callable[[Deployment, Copies], dict[str, int]]


def drop_a_reference(deployment: Deployment, copies: Copies) -> dict[str, int]:
    first, *rest = sorted_references(deployment)
    copies.references(rest)
    return {"missing": first.entries, "reference_missing": 1, "object_unreferenced": 1}


def duplicate_a_reference(deployment: Deployment, copies: Copies) -> dict[str, int]:
    every = sorted_references(deployment)
    copies.references([*every, every[0]])
    return {"reference_duplicated": 1}


def announce_data_twice(deployment: Deployment, copies: Copies) -> dict[str, int]:
    every = sorted_references(deployment)
    copies.references([*every, msgspec.structs.replace(every[0], reference_id="another")])
    return {"duplicated": every[0].entries, "reference_wrong": 1}


def misplace_a_file(deployment: Deployment, copies: Copies) -> dict[str, int]:
    first, *rest = sorted_references(deployment)
    place = msgspec.structs.replace(first.partition, hour=(first.partition.hour + 1) % 24)
    copies.references([msgspec.structs.replace(first, partition=place), *rest])
    return {"misplaced": first.entries}


def state_a_wrong_checksum(deployment: Deployment, copies: Copies) -> dict[str, int]:
    first, *rest = sorted_references(deployment)
    checksum = msgspec.structs.replace(first.location.checksum, value="0" * 64)
    copies.references(
        [msgspec.structs.replace(first, location=msgspec.structs.replace(first.location, checksum=checksum)), *rest]
    )
    return {"object_altered": 1}


def name_an_object_that_is_not_there(deployment: Deployment, copies: Copies) -> dict[str, int]:
    first, *rest = sorted_references(deployment)
    location = msgspec.structs.replace(first.location, object="logs/nowhere.avro")
    copies.references([msgspec.structs.replace(first, location=location), *rest])
    return {"object_missing": 1, "missing": first.entries, "object_unreferenced": 1}


def state_wrong_entries(deployment: Deployment, copies: Copies) -> dict[str, int]:
    first, *rest = sorted_references(deployment)
    copies.references([msgspec.structs.replace(first, entries=first.entries + 1), *rest])
    return {"reference_wrong": 1}


def drop_a_dead_letter(deployment: Deployment, copies: Copies) -> dict[str, int]:
    first, *rest = deployment.dead_letters()
    copies.dead_letters(rest)
    indexes = dict(first.headers() or [])["lp-indexes"]
    assert isinstance(indexes, bytes)
    return {"dead_letter_missing": len(indexes.split(b","))}


def duplicate_a_dead_letter(deployment: Deployment, copies: Copies) -> dict[str, int]:
    every = deployment.dead_letters()
    copies.dead_letters([*every, every[-1]])
    indexes = dict(every[-1].headers() or [])["lp-indexes"]
    assert isinstance(indexes, bytes)
    return {"dead_letter_duplicated": len(indexes.split(b","))}


def drop_a_flush_record(deployment: Deployment, copies: Copies) -> dict[str, int]:
    first, *rest = deployment.flush_records()
    copies.flushes(rest)
    return {"flush_gap": sum(one.first_offset < one.next_offset for one in first.topic_partitions)}


def repeat_a_flush_record(deployment: Deployment, copies: Copies) -> dict[str, int]:
    every = deployment.flush_records()
    copies.flushes([*every, every[0]])
    return {"flush_overlap": sum(one.first_offset < one.next_offset for one in every[0].topic_partitions)}


FAULTS: list[Fault] = [
    drop_a_reference,
    duplicate_a_reference,
    announce_data_twice,
    misplace_a_file,
    state_a_wrong_checksum,
    name_an_object_that_is_not_there,
    state_wrong_entries,
    drop_a_dead_letter,
    duplicate_a_dead_letter,
    drop_a_flush_record,
    repeat_a_flush_record,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_planted_fault_is_named_and_nothing_else(
    fault: Fault, deployment: Deployment, lake_of: Callable[..., Lake]
) -> None:
    """One fault in a copy of a topic: its kind and how much it is of, and no other kind."""
    copies = Copies(deployment, fault.__name__)
    expected = fault(deployment, copies)
    result = run(lake_of(deployment, **copies.variables), list_objects=True)
    assert (found(result), result.could_not_tell) == (expected, [])
    assert all(finding.examples for finding in result.findings)


def test_only_what_is_in_the_window_is_found(deployment: Deployment, lake_of: Callable[..., Lake]) -> None:
    """A dropped reference of one hour: found by the window of that hour, entry by entry, and by no other."""
    copies = Copies(deployment, "window")
    every = sorted_references(deployment)
    second_hour = time.gmtime(T0_MS / 1000 + 3600).tm_hour
    dropped = next(one for one in every if one.partition.hour == second_hour)
    copies.references([one for one in every if one is not dropped])
    lake = lake_of(deployment, **copies.variables)
    inside = Window(from_ms=T0_MS + HOUR_MS, until_ms=T0_MS + 2 * HOUR_MS, padding_s=60)
    outside = Window(from_ms=T0_MS + 3 * HOUR_MS, until_ms=T0_MS + 4 * HOUR_MS, padding_s=60)
    assert found(run(lake, inside))["missing"] == dropped.entries
    result = run(lake, outside)
    assert (result.exit_code, found(result), result.counts.records) == (0, {}, 60)
