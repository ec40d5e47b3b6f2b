"""Logs of OpenTelemetry: the rows of a request as collectors send it, and what is dead or kept as it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData

from log_partitioner.config.settings import InputSettings
from log_partitioner.formats.values import Bytes, DeclaredMap
from log_partitioner.partitioning.partitioner import Partitioner, Placement
from tests.fakes.lanes import decode_alike, settings
from tests.fakes.records import P0, record

RULES = InputSettings(format="otlp")
TIME_NS = 1_770_000_000_123_456_789
RECORD: dict[str, Any] = {
    "timeUnixNano": str(TIME_NS),
    "severityNumber": 9,
    "severityText": "Info",
    "body": {"stringValue": "GET /"},
    "attributes": [
        {"key": "user.id", "value": {"stringValue": "u1"}},
        {"key": "took", "value": {"doubleValue": 5}},
        {"key": "count", "value": {"intValue": "9007199254740993"}},
        {"key": "tags", "value": {"arrayValue": {"values": [{"boolValue": True}, {}]}}},
        {"key": "in", "value": {"kvlistValue": {"values": [{"key": "raw", "value": {"bytesValue": "AP8="}}]}}},
    ],
    "droppedAttributesCount": 0,
    "traceId": "0AF7651916CD43DD8448EB211C80319C",
    "spanId": "",
}
RESOURCE = {"attributes": [{"key": "service.name", "value": {"stringValue": "api"}}]}
ENTRY = {
    "time_unix_nano": TIME_NS,
    "severity_number": 9,
    "severity_text": "Info",
    "body": "GET /",
    "attributes": {"user.id": "u1", "took": 5.0, "count": 2**53 + 1, "tags": [True, None], "in": {"raw": "AP8="}},
    "trace_id": "0af7651916cd43dd8448eb211c80319c",
}
AROUND = {
    "resource_logs": {
        "resource": {"attributes": {"service.name": "api"}},
        "scope_logs": {"scope": {"name": "lib", "version": "1"}, "schema_url": "s"},
    }
}


def request(*records: Any) -> dict[str, Any]:
    """Put records into a request."""
    of_scope = {"scope": {"name": "lib", "version": "1"}, "logRecords": records, "schemaUrl": "s"}
    return {"resourceLogs": [{"resource": RESOURCE, "scopeLogs": [of_scope]}]}


def as_protobuf(data: Any) -> bytes:
    """Write a request in Protobuf: in JSON the library has ids as base64."""
    text = json.dumps(data).replace(RECORD["traceId"], "CvdlGRbNQ92ESOshHIAxnA==")
    return ParseDict(json.loads(text), LogsData()).SerializeToString()


def decode(payload: bytes) -> Any:
    """Decode a payload as the second opinion does."""
    return decode_alike(payload, RULES)


@pytest.mark.parametrize("write", [lambda data: json.dumps(data).encode(), as_protobuf])
def test_each_record_is_an_entry_with_resource_and_scope_around_it(write: Any) -> None:
    found = decode(write(request(RECORD, RECORD)))
    assert [entry for _, entry, *_ in found.entries] == [{**ENTRY, "_envelope": AROUND}] * 2
    entry = found.entries[0][1]
    assert type(entry["attributes"]) is DeclaredMap
    assert type(entry["attributes"]["in"]["raw"]) is Bytes


def test_user_and_time_are_found_by_paths_in_the_record_and_around_it() -> None:
    rules = settings(
        input=RULES,
        user={"paths": [r"envelope:resource_logs.resource.attributes.service\.name"]},
        time={"paths": ["time_unix_nano"]},
    )
    ((_, entry, _, around),) = decode(as_protobuf(request(RECORD))).entries
    placed = Partitioner(rules).partition(entry, around, record(P0, 0))
    assert isinstance(placed, Placement)
    assert placed.key == ("api", "2026-02-02", 2)


@pytest.mark.parametrize(
    "data",
    [{}, {"resourceLogs": []}, {"resourceLogs": [{"resource": RESOURCE}]}, {"resourceLogs": [{"scopeLogs": [{}]}]}],
)
def test_request_without_records_has_no_entries(data: Any) -> None:
    for payload in (json.dumps(data).encode(), as_protobuf(data)):
        assert decode(payload)[:2] == ([], [])


def test_what_the_schema_lacks_is_kept_as_it_is() -> None:
    odd = {"timeUnixNano": "soon", "later": {"x": "1"}, "attributes": [{"k": 1}], "body": {"newValue": 1}}
    ((_, entry, *_),) = decode(json.dumps(request(odd)).encode()).entries
    del entry["_envelope"]
    assert entry == {
        "time_unix_nano": "soon",
        "later": {"x": "1"},
        "attributes": [{"k": 1}],
        "body": {"newValue": 1},
    }


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b'{"resourceLogs": {}}', "malformed: resource_logs is of type dict"),
        (b'{"resourceLogs": [7]}', "malformed: ResourceLogs is of type int"),
        (json.dumps(request(7)).encode(), "malformed: LogRecord is of type int"),
        (b'{"resourceLogs": [', "malformed: "),
        (b"[]", "malformed: it is no message of its schema"),
        (b'{"resourceLogs": "\xff"}', "invalid_unicode: "),
        (b"\x0a\x05", "malformed: it is no message of its schema"),
        (b"plain text", "malformed: it is no message of its schema"),
    ],
)
def test_payload_that_is_no_request_is_dead(payload: bytes, reason: str) -> None:
    (bad,) = decode(payload).bad
    assert f"{bad.reason}: {bad.message}".startswith(reason)


def test_copies_of_a_large_resource_are_bounded() -> None:
    """As for any envelope: 20,000 records within a resource of 10 kB would be 200 MB."""
    data = LogsData()
    of_resource = data.resource_logs.add()
    of_resource.resource.attributes.add(key="x").value.string_value = "x" * 10_000
    for _ in range(20_000):
        of_resource.scope_logs.add().log_records.add(flags=1)
    (bad,) = decode(data.SerializeToString()).bad
    assert bad.reason == "record_too_large"


def with_body(value: Any, **others: Any) -> bytes:
    """Write a request of one record, in JSON."""
    return json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": value, **others}]}]}]}).encode()


@pytest.mark.parametrize(
    ("value", "body"),
    [
        ({}, None),
        ({"intValue": "0"}, 0),
        ({"doubleValue": 10**400}, 10**400),
        ({"doubleValue": True}, True),
        ({"arrayValue": 5}, {"arrayValue": 5}),
        ({"arrayValue": True}, {"arrayValue": True}),
        ({"kvlistValue": [{}]}, {"kvlistValue": [{}]}),
        ({"arrayValue": {"more": 1}}, {"arrayValue": {"more": 1}}),
        ({"": 5}, {"": 5}),
        ({"stringValue": "a", "more": 1}, {"stringValue": "a", "more": 1}),
        (7, 7),
        ({"kvlistValue": {"values": [{"key": "a", "value": {}, "more": 1}]}}, [{"key": "a", "value": {}, "more": 1}]),
        (
            {"kvlistValue": {"values": [{"key": "a", "value": {"intValue": "1"}}, {"key": "a"}]}},
            [{"key": "a", "value": 1}, {"key": "a", "value": None}],
        ),
    ],
)
def test_value_is_what_it_holds_or_stays_as_it_is(value: Any, body: Any) -> None:
    """A key that comes twice, which OpenTelemetry forbids, loses nothing."""
    ((_, entry, *_),) = decode(with_body(value)).entries
    assert entry["body"] == body


def test_zeros_are_absent_as_in_protobuf() -> None:
    zeros = {"timeUnixNano": "0", "flags": 0, "severityText": "", "attributes": [], "traceId": None}
    ((_, entry, *_),) = decode(with_body({"stringValue": "x"}, **zeros)).entries
    assert entry == {"body": "x"}


@pytest.mark.parametrize(
    "payload",
    [
        b'{"resourceLogs": [{}], "resource_logs": [{}]}',
        b'{"resourceLogs": [{"resource": {"entityRefs": [{"idKeys": "x"}]}}]}',
        b'{"resourceLogs": [null]}',
        b'{"resourceLogs": [{"scopeLogs": [null]}]}',
        b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [null]}]}]}',
    ],
)
def test_request_of_another_form_is_dead(payload: bytes) -> None:
    (bad,) = decode(payload).bad
    assert bad.reason == "malformed"


def test_json_may_begin_with_white_space() -> None:
    assert len(decode(b"\n " + with_body({})).entries) == 1


@pytest.mark.parametrize("levels", [50, 150, 600, 900])
def test_nesting_around_records_is_a_dead_letter_and_no_end(levels: int) -> None:
    value = {"arrayValue": {"values": [{}]}}
    text = json.dumps({"resourceLogs": [{"later": "HERE", "scopeLogs": [{"logRecords": [{"body": value}]}]}]})
    found = decode(text.replace('"HERE"', '{"a":' * levels + "1" + "}" * levels).encode())
    assert [bad.reason for bad in found.bad] == (["too_deep"] if levels > 90 else [])
