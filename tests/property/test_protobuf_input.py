"""Messages of Protobuf: worker and second opinion read the same, and a row holds it (docs/INPUTS.md)."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData

from log_partitioner.config.settings import InputSettings, SchemaBounds
from log_partitioner.formats.schema import Schema, SchemaRef
from log_partitioner.formats.values import encode_json
from log_partitioner.input.decode import RecordDecoder
from log_partitioner.proof.oracle import decode as oracle
from tests.fakes.lanes import assert_decoded_alike
from tests.fakes.messages import SCHEMA, messages
from tests.property.reading import assert_reads_back
from tests.strategies import times_as_many

LIMITS = SchemaBounds()
RULES = InputSettings(format="protobuf", framing="confluent", record_bytes_max=3_000)
DECODER = RecordDecoder(RULES, lambda _ref: SCHEMA)
OTLP = InputSettings(format="otlp", record_bytes_max=5_000)


def find(_ref: SchemaRef) -> Schema:
    """Give the one schema."""
    return SCHEMA


OPINION = oracle.Decoder(RULES, find)


@times_as_many(4)
@given(messages())
def test_row_of_a_message_reads_back_equal_and_has_the_type_of_the_second_opinion(payload: bytes) -> None:
    """Each type of a field alone, repeated, in a map, and within messages; null is an absent field."""
    value = b"\0\0\0\0\7\0" + payload
    decoded = DECODER.decode(value)
    assert_decoded_alike(decoded, value, RULES, (), find)
    if not decoded.entries:
        return
    ((_, entry, text, _),) = decoded.entries
    (other,) = OPINION.decode(value).entries
    assert_reads_back(entry, text, other.value)


@st.composite
def damaged(draw: st.DrawFn, payloads: st.SearchStrategy[bytes]) -> bytes:
    """Cut, change or lengthen a payload in a few places; or write any bytes."""
    payload = draw(payloads)
    if draw(st.integers(0, 7)) == 0:
        payload = draw(st.binary(max_size=40))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(payload)))
        payload = payload[:at] + draw(st.binary(max_size=3)) + payload[at + draw(st.integers(0, 3)) :]
    return payload


@times_as_many(4)
@given(damaged(messages().map(b"\0".__add__)))
def test_damaged_message_is_dead_or_alive_as_the_second_opinion_says(payload: bytes) -> None:
    """Its place in the schema is damaged, too."""
    value = b"\0\0\0\0\7" + payload
    assert_decoded_alike(DECODER.decode(value), value, RULES, (), find)


def _fill(draw: st.DrawFn, value: AnyValue, depth: int) -> None:
    kind = draw(st.sampled_from(["text", "bool", "int", "double", "bytes", "none", "list", "map"]))
    if kind == "list" and depth:
        value.array_value.SetInParent()
        for _ in range(draw(st.integers(0, 2))):
            _fill(draw, value.array_value.values.add(), depth - 1)
    elif kind == "map" and depth:
        value.kvlist_value.SetInParent()
        for _ in range(draw(st.integers(0, 2))):
            pair = value.kvlist_value.values.add(key=draw(st.text(max_size=2)))
            _fill(draw, pair.value, depth - 1)
    elif kind == "text":
        value.string_value = draw(st.text(max_size=3))
    elif kind == "bool":
        value.bool_value = draw(st.booleans())
    elif kind == "int":
        value.int_value = draw(st.integers(-(2**63), 2**63 - 1))
    elif kind == "double":
        value.double_value = draw(st.floats())
    elif kind == "bytes":
        value.bytes_value = draw(st.binary(max_size=3))


@st.composite
def requests(draw: st.DrawFn) -> LogsData:
    """Write a request of logs."""
    data = LogsData()
    for _ in range(draw(st.integers(0, 2))):
        of_resource = data.resource_logs.add(schema_url=draw(st.sampled_from(["", "u"])))
        if draw(st.booleans()):
            _fill(draw, of_resource.resource.attributes.add(key="service.name").value, 2)
        for _ in range(draw(st.integers(0, 2))):
            of_scope = of_resource.scope_logs.add()
            of_scope.scope.name = draw(st.sampled_from(["", "lib"]))
            for _ in range(draw(st.integers(0, 2))):
                record = of_scope.log_records.add(
                    time_unix_nano=draw(st.sampled_from([0, 1_770_000_000_000_000_001, 2**64 - 1])),
                    severity_number=draw(st.sampled_from([0, 9, 99])),
                    trace_id=draw(st.sampled_from([b"", bytes(range(16))])),
                )
                _fill(draw, record.body, 2)
                _fill(draw, record.attributes.add(key=draw(st.text(max_size=2))).value, 2)
    return data


@times_as_many(2)
@given(damaged(requests().map(LogsData.SerializeToString)))
def test_request_of_logs_is_decoded_as_the_second_opinion_says(payload: bytes) -> None:
    """Damaged or not."""
    assert_decoded_alike(RecordDecoder(OTLP).decode(payload), payload, OTLP)


def json_of(data: LogsData) -> bytes:
    """Write a request as collectors do: without what is empty, ids in hexadecimal, 64 bits as text."""

    def value(given: AnyValue) -> Any:
        kind = given.WhichOneof("value")
        if kind is None:
            return {}
        inner = getattr(given, kind)
        if kind == "array_value":
            return {"arrayValue": {"values": [value(one) for one in inner.values]}}
        if kind == "kvlist_value":
            return {"kvlistValue": {"values": pairs(inner.values)}}
        if kind == "double_value" and inner - inner != 0:
            inner = "NaN" if inner != inner else "Infinity" if inner > 0 else "-Infinity"  # noqa: PLR0124
        inner = str(inner) if kind == "int_value" else inner
        name = kind.replace("_v", "V")
        return {name: inner}

    def pairs(given: Any) -> Any:
        return [{"key": one.key, "value": value(one.value)} for one in given]

    def record(one: Any) -> Any:
        return {
            "timeUnixNano": str(one.time_unix_nano or ""),
            "severityNumber": one.severity_number,
            "traceId": one.trace_id.hex().upper(),
            **({"body": value(one.body)} if one.HasField("body") else {}),
            "attributes": pairs(one.attributes),
        }

    return encode_json(
        {
            "resourceLogs": [
                {
                    **({"resource": {"attributes": pairs(r.resource.attributes)}} if r.HasField("resource") else {}),
                    "schemaUrl": r.schema_url,
                    "scopeLogs": [
                        {"scope": {"name": s.scope.name}, "logRecords": [record(one) for one in s.log_records]}
                        for s in r.scope_logs
                    ],
                }
                for r in data.resource_logs
            ]
        }
    )


@times_as_many(2)
@given(requests())
def test_json_of_a_request_gives_the_rows_of_its_protobuf(data: LogsData) -> None:
    """With resource and scope, in the order of the records."""
    text, payload = json_of(data), data.SerializeToString()
    decoded = RecordDecoder(OTLP).decode(text)
    assert_decoded_alike(decoded, text, OTLP)
    binary = RecordDecoder(OTLP).decode(payload)
    if payload:
        assert [(entry, around) for _, entry, _, around in decoded.entries] == [
            (entry, around) for _, entry, _, around in binary.entries
        ]


@times_as_many(2)
@given(requests(), st.randoms())
def test_any_json_of_a_request_is_decoded_as_the_second_opinion_says(data: LogsData, chance: Any) -> None:
    """Members of any type stand anywhere."""
    text = json_of(data)
    for old, new in (
        (b'"stringValue"', b'"else"'),
        (b"[", b"{}"),
        (b'"key"', b'"k"'),
        (b"{}", b"[7]"),
        (b'"', b"7"),
        (b"{}", b"null"),
    ):
        places = [at for at in range(len(text)) if text.startswith(old, at)]
        if places and chance.random() < 0.4:
            at = chance.choice(places)
            text = text[:at] + new + text[at + len(old) :]
    assert_decoded_alike(RecordDecoder(OTLP).decode(text), text, OTLP)
