"""Inputs of a fuzzer, by format: under which settings a worker reads each, and what has to hold of it.

Two bytes precede the content of an input: the case of its format, and how the content is compressed.
"""

from __future__ import annotations

import gzip
import json
import resource
import time
import zlib
from base64 import b85decode
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from log_partitioner.avro.infer import TooDeepError
from log_partitioner.avro.schema_types import RecordType, join_records
from log_partitioner.config.settings import IdSettings, InputSettings, Settings, TimeSettings, UserSettings
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.model import Headers, SourceRecord, TopicPartition
from log_partitioner.formats.schema import Schema, SchemaRef
from log_partitioner.input.decode import RecordDecoder
from log_partitioner.partitioning.partitioner import Partitioner, Rejection
from log_partitioner.proof.oracle.decode import Decoder
from log_partitioner.proof.oracle.equal import digest
from log_partitioner.proof.oracle.expected_schema import limit_keys
from log_partitioner.proof.oracle.judge import Judge
from log_partitioner.zstd import compress as zstd
from tests.fakes.lanes import assert_alike, settings
from tests.fakes.messages import SCHEMA as MESSAGES
from tests.fakes.messages import descriptors
from tests.fakes.schemas import with_schema
from tests.inferred import infer_entry
from tests.property.reading import read_back
from tests.property.test_second_opinion import as_oracle
from tests.strategies import AVRO_FIXED, AVRO_LOGICAL, AVRO_PRIMITIVES

CORPUS = Path(__file__).parent / "corpus"
HEAD_BYTES = 2
RECORD_BYTES_MAX = 64 * 1024
SECONDS_MAX = 1.0
MEMORY_BYTES_MAX = 50_000_000 + 200 * RECORD_BYTES_MAX
ID = b"\0\0\0\0\7"
GLUE = b"\3\0" + bytes(16)
_ENTRIES_MAX = 20  # of a record are judged as rows
_TP, _NOW_MS = TopicPartition("app", 0), 1_767_225_600_000  # 2026-01-01
_gzip = partial(gzip.compress, mtime=0)
_COMPRESSIONS = (
    lambda content: content,
    _gzip,
    zstd,
    lambda content: _gzip(content[:9]) + _gzip(content[9:]) + bytes(3),
    lambda content: b"\3\5" + content[2:18] + zlib.compress(content[18:]),  # as Glue does
)


class Case(NamedTuple):
    """How a worker reads records. `has_header`: before the value of one stand a length, and so much of a header.

    `has_schema`: before it stand the text of the schema, which the registry gives, and a zero.
    """

    settings: Settings
    schema: Schema | None = None
    has_header: bool = False
    has_schema: bool = False


def _case(format_: Any, schema: Schema | None = None, *, schema_file: Any = None, **others: Any) -> Case:
    case = {name: others.pop(name, False) for name in ("has_header", "has_schema")}
    rules = InputSettings(format=format_, record_bytes_max=RECORD_BYTES_MAX, **others)
    strict = "inexact_numbers" in others
    return Case(
        settings(
            input=rules if schema_file is None else with_schema(rules, schema_file),
            user=UserSettings(paths=_USERS, missing_name=None if strict else "nobody"),
            time=TimeSettings(paths=_TIMES, missing="dead-letter" if strict else "record-timestamp"),
            id=IdSettings(paths=("id", "message::id", "after.id")),
        ),
        schema,
        **case,
    )


_USERS = ("user", r"attributes.user\.id", "host", "message::user", "log::user", "envelope:user", "header:h", "key:user")
_TIMES = ("time", "time_unix_nano", "message::time", "ts_ms", "envelope:time")
_NOTHINGS = {"type": "array", "items": "null"}  # take no bytes
_BOXED = [
    _NOTHINGS,
    *AVRO_LOGICAL,
    *({"type": "fixed", "name": f"F{n}", **fixed} for n, fixed in enumerate(AVRO_FIXED)),
]
_BOXES = [
    {"type": "record", "name": f"B{n}", "fields": [{"name": "v", "type": boxed}]} for n, boxed in enumerate(_BOXED)
]
_ENUM = {"type": "enum", "name": "E", "symbols": ["RED", "GREEN"]}
_NESTS = [{"type": "array", "items": "Log"}, {"type": "map", "values": ["null", "long", "Log"]}, "Log"]
_ITEM = [*AVRO_PRIMITIVES, _ENUM, *_NESTS, *_BOXES]
AVRO_LOG = {"type": "record", "name": "Log", "fields": [
    {"name": "user", "type": ["null", "string", "long", "double", "bytes"]},
    {"name": "time", "type": ["null", "string", "long", {"type": "long", "logicalType": "timestamp-micros"}]},
    {"name": "items", "type": {"type": "array", "items": _ITEM}},
]}  # fmt: skip
_AVRO = Schema(json.dumps(AVRO_LOG))
_PATTERN = r"(?P<time>[^ ]+) (?P<user>\S*) (?:(?P<n>\d+)|(?P<word>\pL*)) (?P<message>.*)"


@cache
def cases(format_: str) -> list[Case]:
    """Return the cases of a format."""
    confluent: dict[str, Any] = {"framing": "confluent"}
    match format_:
        case "json":
            return [
                _case("json"),
                _case("json", entries_path="entries[]", envelope="drop", inexact_numbers="text"),
                _case("json", entries_path="a.b[].c[]"),
                _case("json", entries_path=r"pay\.load"),
                _case("ndjson"),
                _case("ndjson", inexact_numbers="text"),
                _case("json", entries_path="entries[]", **confluent),
                _case("json", has_header=True, **confluent),
                _case("json", framing="glue"),
                _case("ndjson", framing="apicurio8"),
            ]
        case "lines":
            lines = [_case("access-log"), _case("syslog"), _case("cri"), _case("text", pattern=_PATTERN)]
            return [*lines, _case("syslog", **confluent)]
        case "avro":
            return [
                _case("avro", _AVRO, **confluent),
                _case("avro", _AVRO, has_header=True, **confluent),
                _case("avro", _AVRO, framing="apicurio8", entries_path="items[]", envelope="drop"),
                _case("avro", schema_file=AVRO_LOG, framing="glue"),
                _case("avro", schema_file={"type": "array", "items": AVRO_LOG}),
                _case("avro", schema_file={"type": "map", "values": AVRO_LOG}, entries_path="a.items[].Log.items[]"),
                _case("avro", has_schema=True, **confluent),
            ]
        case "protobuf":
            files = descriptors()
            return [
                _case("protobuf", MESSAGES, **confluent),
                _case("protobuf", MESSAGES, has_header=True, **confluent),
                _case("protobuf", MESSAGES, framing="apicurio8", entries_path="inners[].inners[]"),
                _case("protobuf", schema_file=files, framing="glue"),
                _case("protobuf", schema_file=files),
                _case("protobuf", schema_file=files, schema_message="tests.Older"),
            ]
        case "otlp" | "otlp-json":
            kinds: list[dict[str, Any]] = [{}, {"envelope": "drop", "inexact_numbers": "text"}, confluent]
            return [_case("otlp", **kind) for kind in kinds]
    raise KeyError(format_)


FORMATS = ("json", "lines", "avro", "protobuf", "otlp", "otlp-json")


def kept_inputs(format_: str) -> list[bytes]:
    """Return the inputs that were kept, each of which runs other code."""
    file = CORPUS / f"{format_}.txt"
    return [*map(b85decode, file.read_bytes().split())] if file.exists() else []


def judge(format_: str, data: bytes) -> None:
    """Read an input by the worker and by the second opinion.

    Raises:
        AssertionError: they do not agree, or the worker takes too long.
        MemoryError: it takes too much.
    """
    if len(data) < HEAD_BYTES:
        return
    number, compress = data[0] % len(cases(format_)), _COMPRESSIONS[data[1] % len(_COMPRESSIONS)]
    case, content = cases(format_)[number], data[HEAD_BYTES:]
    headers: Headers = ()
    if case.has_schema:
        text, _, content = content.partition(b"\0")
        readers, content = _readers(case.settings, Schema(text.decode("utf-8", "replace"))), ID + content
    else:
        readers = _readers_of(format_, number)
    if case.has_header:
        end = 1 + sum(content[:1])
        headers, content = (("__value_schema_id", content[1:end]), ("h", b"ann")), content[end:]
    with _bounded_memory():
        _judge(readers, SourceRecord(_TP, 0, _NOW_MS, b'{"user":"kim"}', compress(content), headers))


class _Readers(NamedTuple):
    decoder: RecordDecoder
    partitioner: Partitioner
    other_decoder: Decoder
    judge: Judge


def _readers(rules: Settings, schema: Schema | None) -> _Readers:
    def find(ref: SchemaRef) -> Schema | None:
        return schema if ref.value == ID[-1] or ref.kind == "guid" else None

    return _Readers(
        RecordDecoder(rules.input, find), Partitioner(rules), Decoder(rules.input, find), Judge(rules, find)
    )


@cache
def _readers_of(format_: str, number: int) -> _Readers:
    return _readers(*cases(format_)[number][:2])


def _judge(readers: _Readers, record: SourceRecord) -> None:
    began = time.thread_time()
    decoded = readers.decoder.decode(record.value, record.headers)
    spent = time.thread_time() - began
    assert spent <= SECONDS_MAX, f"{spent:.1f} s"
    assert_alike(decoded, record.value, record.headers, readers.other_decoder)
    judged = readers.judge.judge(record).entries
    for index, entry, text, around in decoded.entries[:_ENTRIES_MAX]:
        expected, reasons = judged[index]
        placed = readers.partitioner.partition(entry, around, record)
        if isinstance(placed, Rejection):
            assert expected is None
            assert placed.reason in reasons
            continue
        try:
            kind = infer_entry(entry, Settings.schema_bounds)
        except TooDeepError:
            assert Reason.TOO_DEEP in reasons
            continue
        assert expected is not None, reasons
        assert (placed.key, placed.event_time_us, placed.unique_id) == expected[:3]
        kind = join_records(RecordType({}), kind, object_keys_max=Settings.schema_bounds.object_keys_max)
        assert as_oracle(kind) == limit_keys(expected.type, Settings.schema_bounds.object_keys_max)
        row = read_back(kind, readers.decoder.json.decode_again(text), readers.judge.parse)
        assert digest(row) == expected.digest


@contextmanager
def _bounded_memory() -> Iterator[None]:
    """Let this process take no more memory than it has, and MEMORY_BYTES_MAX; else what runs gets a MemoryError."""
    pages = int(Path("/proc/self/statm").read_bytes().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY_BYTES_MAX, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
