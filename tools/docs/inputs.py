"""docs/INPUTS.md: forms of records in topics of logs, with the settings that read them, and what becomes of each.

`FORMS` is also a test: tests/unit/input/test_forms.py reads each record by its settings.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from log_partitioner.formats.model import Headers
from tools.docs.tables import code, table

_TIME = "2026-03-04T05:06:07Z"
_TIME_NS = 1_772_600_767_000_000_000
_ID = b"\0\0\0\0\7"
_SAMPLE_CHARS, _BINARY_CHARS = 110, 24  # of bytes the first, as those of a framing


class Form(NamedTuple):
    """A record as a producer writes it, the settings that read it, and its rows, or the dead letter that it becomes.

    `schema` is the registry's. A row has a user; all are of one hour. In `dead`, `…` stands for any text.
    """

    name: str
    written_by: str
    value: bytes
    rows: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    settings: Mapping[str, str] = {}
    headers: Headers = ()
    schema: str | None = None
    dead: str | None = None


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _varint(text: bytes) -> bytes:
    """Write bytes as a field of Avro."""
    return bytes([2 * len(text)]) + text


def _field(number: int, content: bytes) -> bytes:
    """Write bytes as a field of Protobuf."""
    return bytes([number << 3 | 2, len(content)]) + content


_ANN = {"user": "ann", "time": _TIME, "n": 1}
_ANNS = (("ann", _ANN),)
_TYPES = {"user": "string", "time": "string", "n": "int"}
_FIELDS = [{"name": name, "type": kind} for name, kind in _TYPES.items()]
_AVSC = json.dumps({"type": "record", "name": "Log", "fields": _FIELDS})
_REGISTRY = {"input.framing": "confluent", "registry.url": "https://registry:8081"}
_APICURIO = {"input.framing": "apicurio8", "registry.url": "https://registry/apis/registry/v2"}
_AVRO = _varint(b"ann") + _varint(_TIME.encode()) + b"\2"
_PROTO = 'syntax = "proto3"; message Log { string user = 1; string time = 2; int32 n = 3; }'
_MESSAGE = _field(1, b"ann") + _field(2, _TIME.encode()) + b"\x18\1"
_OTLP_JSON = {
    "resourceLogs": [
        {
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "api"}}]},
            "scopeLogs": [
                {
                    "logRecords": [
                        {
                            "timeUnixNano": str(_TIME_NS),
                            "body": {"stringValue": "GET /"},
                            "attributes": [{"key": "user.id", "value": {"stringValue": "ann"}}],
                        }
                    ]
                }
            ],
        }
    ]
}
_OTLP_ROW = {
    "time_unix_nano": _TIME_NS,
    "body": "GET /",
    "attributes": {"user.id": "ann"},
    "_envelope": {"resource_logs": {"resource": {"attributes": {"service.name": "api"}}}},
}
_PAIR = _field(1, b"user.id") + _field(2, _field(1, b"ann"))
_LOG_RECORD = b"\x09" + _TIME_NS.to_bytes(8, "little") + _field(5, _field(1, b"GET /")) + _field(6, _PAIR)
_RESOURCE = _field(1, _field(1, b"service.name") + _field(2, _field(1, b"api")))
_OTLP = _field(1, _field(1, _RESOURCE) + _field(2, _field(2, _LOG_RECORD)))
_OTLP_PATHS = {"input.format": "otlp", "user.paths": r"attributes.user\.id", "time.paths": "time_unix_nano"}
_DEBEZIUM = {
    "before": None,
    "after": {"id": 7, "user": "ann"},
    "source": {"table": "log"},
    "op": "c",
    "ts_ms": 1772600767000,
}
_COMMON = '192.0.2.1 - ann [04/Mar/2026:05:06:07 +0000] "GET / HTTP/1.1" 200 12'
_COMMON_ROW = {
    "client": "192.0.2.1",
    "ident": "-",
    "user": "ann",
    "time": "04/Mar/2026:05:06:07 +0000",
    "request": "GET / HTTP/1.1",
    "status": 200,
    "bytes": 12,
}
_CLOUDEVENT = {"specversion": "1.0", "id": "e1", "type": "log", "time": _TIME, "data": {"user": "ann"}}

_WRAPPED = {"time": _TIME, "log": '{"user":"ann"}'}
_SYSLOG = {"facility": 4, "severity": 2, "time": _TIME, "host": "h", "app": "su", "message": "ann has left"}

_BINARY = "invalid_unicode: …; if it is no text: input.format = avro, protobuf and otlp read binary records"

FORMS: tuple[Form, ...] = (
    Form("a JSON object", "Fluent Bit, Vector, Filebeat, Logstash, applications", _json(_ANN), _ANNS),
    Form("a JSON array", "applications, Firehose", _json([_ANN, _ANN]), _ANNS * 2),
    Form(
        "an envelope around a list",
        "CloudWatch, batching agents",
        _json({"group": "g", "events": [_ANN]}),
        (("ann", {**_ANN, "_envelope": {"group": "g"}}),),
        {"input.entries_path": "events[]"},
    ),
    Form("lines of JSON", "Vector, Fluentd", _json(_ANN) + b"\n" + _json(_ANN), _ANNS * 2, {"input.format": "ndjson"}),
    Form("gzip or zstd of any of these", "agents that compress values", gzip.compress(_json(_ANN), mtime=0), _ANNS),
    Form(
        "JSON text within JSON",
        "Docker, containers behind Fluent Bit",
        _json(_WRAPPED),
        (("ann", _WRAPPED),),
        {"user.paths": "log::user"},
    ),
    Form(
        "Debezium's envelope",
        "Kafka Connect",
        _json(_DEBEZIUM),
        (("ann", _DEBEZIUM),),
        {"user.paths": "after.user", "time.paths": "ts_ms"},
    ),
    Form(
        "a CloudEvent, structured", "Knative", _json(_CLOUDEVENT), (("ann", _CLOUDEVENT),), {"user.paths": "data.user"}
    ),
    Form(
        "a CloudEvent, binary",
        "Knative",
        _json({"user": "ann"}),
        (("ann", {"user": "ann"}),),
        {"time.paths": "header:ce_time"},
        (("ce_time", _TIME.encode()),),
    ),
    Form(
        "JSON with a schema's id",
        "JSON Schema serializers of Confluent",
        _ID + _json(_ANN),
        _ANNS,
        {"input.framing": "confluent"},
    ),
    Form(
        "JSON with AWS Glue's prefix",
        "serializers of AWS Glue",
        b"\3\0" + bytes(16) + _json(_ANN),
        _ANNS,
        {"input.framing": "glue"},
    ),
    Form(
        "Avro with a schema's id",
        "Avro serializers of Confluent, Debezium",
        _ID + _AVRO,
        _ANNS,
        {"input.format": "avro", **_REGISTRY},
        (),
        _AVSC,
    ),
    Form(
        "Avro with Apicurio's global id",
        "serializers of Apicurio 2",
        bytes(8) + b"\7" + _AVRO,
        _ANNS,
        {"input.format": "avro", **_APICURIO},
        (),
        _AVSC,
    ),
    Form(
        "Protobuf with a schema's id",
        "Protobuf serializers of Confluent",
        _ID + b"\0" + _MESSAGE,
        _ANNS,
        {"input.format": "protobuf", **_REGISTRY},
        (),
        _PROTO,
    ),
    Form("OTLP in Protobuf", "OpenTelemetry collectors, Grafana Alloy", _OTLP, (("ann", _OTLP_ROW),), _OTLP_PATHS),
    Form("OTLP in JSON", "OpenTelemetry collectors", _json(_OTLP_JSON), (("ann", _OTLP_ROW),), _OTLP_PATHS),
    Form(
        "lines of a web server",
        "Apache, nginx",
        _COMMON.encode(),
        (("ann", _COMMON_ROW),),
        {"input.format": "access-log"},
    ),
    Form(
        "lines of syslog",
        "rsyslog, syslog-ng",
        f"<34>1 {_TIME} h su - - - ann has left".encode(),
        (("h", _SYSLOG),),
        {"input.format": "syslog", "user.paths": "host"},
    ),
    Form(
        "lines of containers",
        "containerd, CRI-O",
        f'{_TIME} stdout F {{"user":"ann"}}'.encode(),
        (("ann", {"time": _TIME, "stream": "stdout", "tag": "F", "message": '{"user":"ann"}'}),),
        {"input.format": "cri", "user.paths": "message::user"},
    ),
    Form(
        "any other lines",
        "older agents",
        f"{_TIME} ann hello".encode(),
        (("ann", {"time": _TIME, "user": "ann", "text": "hello"}),),
        {"input.format": "text", "input.pattern": "(?P<time>[^ ]+) (?P<user>[^ ]+) (?P<text>.*)"},
    ),
    Form(
        "several objects without `ndjson`",
        "applications",
        _json(_ANN) + b"\n" + _json(_ANN),
        dead="malformed: Extra data: line 2 column 1 (char 51); input.format = ndjson reads one object per line",
    ),
    Form(
        "a schema's id without `framing`",
        "serializers of registries",
        _ID + _json(_ANN),
        dead="malformed: …; it begins as with the id of a schema, which input.framing = confluent …",
    ),
    Form("MessagePack", "Fluentd", b"\x82\xa4user\xa3ann\xa4time\xa1x", dead=_BINARY),
    Form("a value in LZ4 or Snappy", "few applications", b"\x04\x22\x4d\x18\x64\x40\xa7", dead=_BINARY),
)

_DETAILS = Path(__file__).with_name("inputs.md.in")
_HEAD = """\
# Inputs

Made by `python -m tools.docs` from `tools/docs/inputs.py` and `inputs.md.in`; do not edit.
`tests/unit/input/test_forms.py` runs each line.

Settings that are not named are `user.paths = user` and `time.paths = time`. `log-partitioner try FILE` and
`try --topic T` show what settings make of your own records (a line of FILE is one, so try binary ones by `--topic`);
the rules stand [below](#formats-in-detail). If topics have several forms,
`LOGP_TOPICS='{"web": {"input": {"format": "access-log"}}}'` gives one its own settings, and `try FILE --topic web`
tries them. `text`, `protobuf` and `otlp` need the extra `formats`. Kafka's own compression (`compression.type`) plays
no part here.

"""
_ROWS = """\
## Read

"""
_DEAD = """
## Not read

A dead letter says which setting reads it, if one does; it keeps the record as it is, so that nothing is lost.

"""


def inputs_page() -> str:
    """Write the page."""
    read = [form for form in FORMS if form.dead is None]
    rows = table(("form", "written by", "settings", "a record", "a row"), (_line(form) for form in read))
    dead = table(
        ("form", "written by", "a record", "its dead letter"),
        ((form.name, form.written_by, _sample(form.value), code(form.dead or "")) for form in FORMS if form.dead),
    )
    return _HEAD + _ROWS + rows + _DEAD + dead + "\n" + _DETAILS.read_text(encoding="utf-8")


def _line(form: Form) -> tuple[str, ...]:
    settings = "<br>".join(code(f"{name} = {value}") for name, value in form.settings.items())
    headers = "".join(f"<br>header {code(name)}: {_sample(value or b'')}" for name, value in form.headers)
    return form.name, form.written_by, settings, _sample(form.value) + headers, _sample(_json(form.rows[0][1]))


def _sample(value: bytes) -> str:
    text, room = "", _SAMPLE_CHARS
    with suppress(UnicodeDecodeError):
        text = value.decode().replace("\n", " ⏎ ")
    if not text or not text.isprintable():
        text, room = value.hex(" ", 4), _BINARY_CHARS
    return code(text if len(text) <= room else f"{text[:room]}…")
