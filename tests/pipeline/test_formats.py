"""The same entries in each format, by schemas of files and of a real registry: equal rows, and both audits clean."""

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pytest
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData

from log_partitioner.formats.schema import Schema
from log_partitioner.proof.accounting import ExitCode
from log_partitioner.proof.oracle.equal import canonical
from log_partitioner.protoc import compile_schema
from log_partitioner_pipeline.audit.auditor import Auditor, Options
from log_partitioner_pipeline.audit.result import Window
from tests.integration.harness import ANY_TIMESTAMP, Deployment
from tests.integration.one_worker import run_through
from tests.integration.readback import Row, read_objects
from tests.pipeline.conftest import Lake
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.providers import REPOSITORY
from tests.stack.s3_helper import S3Helper
from tools.local.registry import APICURIOS, CONFLUENTS, RegistryServer, ensure_registry

pytestmark = pytest.mark.slow

PARTITIONS, USERS = 3, 50
SCHEMA: Any = {
    "type": "record",
    "name": "Log",
    "fields": [
        {"name": "user", "type": "string"},
        {"name": "time", "type": "string"},
        {"name": "n", "type": "long"},
        {"name": "took", "type": "double"},
        {"name": "ok", "type": ["null", "boolean"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {
            "name": "request",
            "type": {
                "type": "record",
                "name": "Request",
                "fields": [{"name": "path", "type": "string"}, {"name": "status", "type": "int"}],
            },
        },
    ],
}
PROTO = """
syntax = "proto3"; package logs;
message Request { string path = 1; int32 status = 2; }
message Log {
  string user = 1; string time = 2; int64 n = 3; double took = 4; bool ok = 5;
  repeated string tags = 6; Request request = 7;
}
"""
EVERYTHING = Window(from_ms=None, until_ms=None, padding_s=600)


def entries(count: int) -> list[dict[str, Any]]:
    """Make entries; a false value is absent, as in Protobuf."""
    made = []
    for n in range(1, count + 1):
        entry = {"user": f"canary-user-{n % USERS}", "time": f"2026-03-04T{n % 24:02}:06:07Z", "n": n, "took": n + 0.5}
        entry |= {"tags": ["a", str(n)], "request": {"path": f"/{n}", "status": 200 + n % 5}}
        made.append(entry | ({"ok": True} if n % 2 else {}))
    return made


class Form(NamedTuple):
    """A form of records: its settings, and how an entry is written."""

    settings: dict[str, str]
    write: Callable[[dict[str, Any]], bytes]


def as_avro(entry: dict[str, Any]) -> bytes:
    """Write an entry in Avro."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, SCHEMA, entry)
    return out.getvalue()


def as_protobuf(entry: dict[str, Any]) -> bytes:
    """Write an entry in Protobuf."""
    message = GetMessageClass(compile_schema(Schema(PROTO)).message(name="logs.Log"))
    payload: bytes = ParseDict(entry, message()).SerializeToString()
    return payload


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    """Serve a registry."""
    jar = ensure_registry(REPOSITORY / ".local" / "jars")
    with RegistryServer(jar=jar, root=tmp_path_factory.mktemp("registry")) as server:
        yield server


@pytest.fixture
def forms(registry: RegistryServer, tmp_path: Path) -> dict[str, Form]:
    """Give each form that has the same rows; an id is a global id, too, as long as no text comes twice."""
    (tmp_path / "log.avsc").write_text(json.dumps(SCHEMA))
    (tmp_path / "log.proto").write_text(PROTO)
    avro = registry.register("avro-value", json.dumps(SCHEMA))
    protobuf = registry.register("protobuf-value", PROTO, kind="PROTOBUF")

    def settings(form: str, **others: str) -> dict[str, str]:
        return {"LOGP_INPUT__FORMAT": form} | {f"LOGP_{name.upper()}": value for name, value in others.items()}

    confluents = {"input__framing": "confluent", "registry__url": registry.address + CONFLUENTS}
    apicurios = {"input__framing": "apicurio8", "registry__url": registry.address + APICURIOS}
    file = {"input__schema_file": str(tmp_path / "log.avsc")}
    source = {"input__schema_file": str(tmp_path / "log.proto"), "input__schema_message": "logs.Log"}
    place = b"\2\2"  # the second message of its schema
    return {
        "json": Form(settings("json"), lambda entry: json.dumps(entry).encode()),
        "avro, file": Form(settings("avro", **file), as_avro),
        "avro, registry": Form(settings("avro", **confluents), lambda one: b"\0" + avro.to_bytes(4) + as_avro(one)),
        "avro, apicurio8": Form(settings("avro", **apicurios), lambda one: b"\0" + avro.to_bytes(8) + as_avro(one)),
        "protobuf, file": Form(settings("protobuf", **source), as_protobuf),
        "protobuf, registry": Form(
            settings("protobuf", **confluents), lambda one: b"\0" + protobuf.to_bytes(4) + place + as_protobuf(one)
        ),
    }


def placed(row: Row) -> tuple[str, int, object]:
    """Give of a row what is the same whatever its record was."""
    return row.user, row.event_time_us, canonical(row.entry)


def rows_of(deployment: Deployment) -> dict[int, Any]:
    """Read all rows by their number."""
    rows = [row for found in read_objects(deployment) for row in found.rows]
    found = {row.entry["n"]: placed(row) for row in rows}
    assert len(found) == len(rows)
    return found


class World(NamedTuple):
    """Servers, and a place for files."""

    kafka: KafkaHelper
    s3: S3Helper
    root: Path
    lake_of: Callable[..., Lake]

    def deliver(self, name: str, settings: dict[str, str], values: Iterable[bytes]) -> Deployment:
        """Send values through a worker with these settings."""
        deployment = Deployment(
            kafka=self.kafka,
            s3=self.s3,
            names=Names(name),
            root=self.root / re.sub("[^a-z0-9]+", "-", name),
            partitions=PARTITIONS,
            settings=settings,
        )
        with deployment:
            records = (ToProduce(value=value, partition=n % PARTITIONS) for n, value in enumerate(values))
            run_through(deployment, records)
        return deployment


@pytest.fixture
def world(kafka: KafkaHelper, s3: S3Helper, tmp_path: Path, lake_of: Callable[..., Lake]) -> World:
    """Give the servers."""
    return World(kafka, s3, tmp_path, lake_of)


def audit_on_spark(lake: Lake) -> None:
    """Audit in tasks of Spark, however little there is."""
    options = Options(EVERYTHING, verdicts=False, here_entries_max=0)
    result = Auditor(lambda: lake.spark, lake.settings, options).run()
    assert (result.exit_code, result.findings) == (ExitCode.CLEAN, [])


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.sweep)])
def test_same_entries_are_the_same_rows_in_each_format(count: int, forms: dict[str, Form], world: World) -> None:
    given = entries(count)
    expected: dict[int, Any] = {}
    for name, form in forms.items():
        deployment = world.deliver(name, form.settings | {"LOGP_TIME__PATHS": "time"}, map(form.write, given))
        assert deployment.require_clean().json["counts"]["entries_in_files"] == count, name
        rows = rows_of(deployment)
        expected = expected or rows
        assert rows == expected, name
        if "registry" in name:
            audit_on_spark(world.lake_of(deployment))
    assert sorted(expected) == [one["n"] for one in given]


def test_topics_of_one_worker_are_read_by_settings_of_their_own(
    forms: dict[str, Form], kafka: KafkaHelper, s3: S3Helper, tmp_path: Path, lake_of: Callable[..., Lake]
) -> None:
    """JSON, lines of a web server and Avro side by side, of the same users: each entry once, both audits clean."""
    count, names = 300, Names("topics")
    web, binary = (
        kafka.create_topic(names.topic(role), partitions=2, config=ANY_TIMESTAMP) for role in ("web", "binary")
    )
    settings = {
        "LOGP_KAFKA__SOURCE_TOPICS": json.dumps([names.topic("source"), web, binary]),
        "LOGP_TOPICS": json.dumps(
            {
                web: {"input": {"format": "access-log"}},
                binary: {"input": {"format": "avro", "schema_file": str(tmp_path / "log.avsc")}},
            }
        ),
    }
    given = entries(count)
    lines = [f'192.0.2.1 - {one["user"]} [04/Mar/2026:05:06:07 +0000] "GET / HTTP/1.1" 200 {one["n"]}' for one in given]
    deployment = Deployment(kafka=kafka, s3=s3, names=names, root=tmp_path, partitions=PARTITIONS, settings=settings)
    with deployment:
        kafka.produce_values(deployment.source, map(forms["json"].write, given))
        kafka.produce_values(web, map(str.encode, lines))
        kafka.produce_values(binary, map(as_avro, given))
        worker = deployment.start("w1")
        kafka.wait_for("all records", lambda: deployment.metric("w1", "records_total") == 3 * count, timeout_s=60)
        assert deployment.stop_all() == {"w1": 0}, worker.last_lines()
    assert deployment.require_clean().json["counts"]["entries_in_files"] == 3 * count
    rows = [row for found in read_objects(deployment) for row in found.rows]
    assert sorted(row.entry["n"] for row in rows if "n" in row.entry) == sorted(2 * [one["n"] for one in given])
    assert {row.user for row in rows if "bytes" in row.entry} == {one["user"] for one in given}
    audit_on_spark(lake_of(deployment))


def requests(given: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Put entries into requests of logs, as a collector exports them: ten records of one resource and scope each."""
    for at in range(0, len(given), 10):
        records = [
            {
                "timeUnixNano": str(1_772_600_767_000_000_000 + one["n"]),
                "severityNumber": 9,
                "body": {"stringValue": one["request"]["path"]},
                "attributes": [
                    {"key": "user.id", "value": {"stringValue": one["user"]}},
                    {"key": "n", "value": {"intValue": str(one["n"])}},
                    {"key": "took", "value": {"doubleValue": one["took"]}},
                ],
            }
            for one in given[at : at + 10]
        ]
        resource = {"attributes": [{"key": "service.name", "value": {"stringValue": f"s{at % 30}"}}]}
        scope_logs = {"scope": {"name": "lib"}, "logRecords": records}
        yield {"resourceLogs": [{"resource": resource, "scopeLogs": [scope_logs]}]}


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.sweep)])
def test_logs_of_a_collector_are_the_same_rows_in_protobuf_and_json(count: int, world: World) -> None:
    settings = {
        "LOGP_INPUT__FORMAT": "otlp",
        "LOGP_USER__PATHS": r"attributes.user\.id",
        "LOGP_TIME__PATHS": "time_unix_nano",
    }
    found = []
    for name, write in {
        "otlp in json": lambda request: json.dumps(request).encode(),
        "otlp in protobuf": lambda request: ParseDict(request, LogsData()).SerializeToString(),
    }.items():
        deployment = world.deliver(name, settings, map(write, requests(entries(count))))
        assert deployment.require_clean().json["counts"]["entries_in_files"] == count
        rows = [row for one in read_objects(deployment) for row in one.rows]
        found.append(
            {one.entry["attributes"]["n"]: (one.user, one.event_time_us, canonical(one.entry)) for one in rows}
        )
        audit_on_spark(world.lake_of(deployment))
    assert found[0] == found[1]
    assert sorted(found[0]) == [*range(1, count + 1)]
