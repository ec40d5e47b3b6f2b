"""JSON of a JSON-Schema producer: the schema's id before the payload or in a header (docs/INPUTS.md)."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from log_partitioner.config.settings import InputSettings
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.model import Headers
from log_partitioner.formats.schema import Schema, SchemaRef
from log_partitioner.input.decode import RecordContent, RecordDecoder
from tests.fakes.lanes import decode_alike

PREFIX = b"\0\0\0\0\7"
IN_HEADER: Headers = (("__value_schema_id", b"\1" + bytes(16)),)


def decode(value: bytes, headers: Headers = (), **rules: Any) -> RecordContent:
    """Decode by these rules; the second opinion says the same."""
    return decode_alike(value, InputSettings(**rules), headers)


@pytest.mark.parametrize(
    ("value", "headers", "form"),
    [
        (PREFIX + b'{"user":"ann"}', (), "json"),
        (b'{"user":"ann"}', IN_HEADER, "json"),
        (PREFIX + b'[{"user":"ann"}]', (), "json"),
        (PREFIX + b'{"user":"ann"}\n', (), "ndjson"),
    ],
)
def test_entries_behind_an_id_are_rows(value: bytes, headers: Headers, form: Any) -> None:
    decoded = decode(value, headers, framing="confluent", format=form)
    assert decoded.entries == [(0, {"user": "ann"}, b'{"user":"ann"}', None)]
    assert not decoded.bad


@pytest.mark.parametrize("value", [b'{"user":"ann"}', PREFIX[:4], b"\1" + PREFIX[1:] + b"{}"])
def test_value_without_an_id_is_dead_and_says_which_setting_reads_it(value: bytes) -> None:
    (bad,) = decode(value, framing="confluent").bad
    assert (bad.number, bad.reason) == (None, Reason.MALFORMED)
    assert "input.framing = none" in bad.message


@pytest.mark.parametrize(
    ("value", "setting"),
    [
        (PREFIX + b'{"user":"ann"}', "input.framing = confluent"),
        (b"{}\n{}", "input.format = ndjson"),
        (b"127.0.0.1 - ann [10/Oct/2000:13:55:36 -0700]", "input.format = access-log, syslog, cri or text reads lines"),
        (b"<34>Oct 11 22:14:15 host su: gone", "input.format = access-log, syslog, cri or text reads lines"),
    ],
)
def test_dead_letter_of_a_record_that_another_setting_reads_names_it(value: bytes, setting: str) -> None:
    (bad,) = decode(value).bad
    assert (bad.number, bad.reason) == (None, Reason.MALFORMED)
    assert setting in bad.message


UUID = bytes(range(16))
ANN = b'{"user":"ann"}'


@pytest.mark.parametrize(
    ("framing", "value", "found"),
    [
        ("apicurio8", bytes(8) + b"\7" + ANN, ""),
        ("apicurio8", bytes(8), "malformed: no global id of a schema before it"),
        ("apicurio8", ANN, "malformed: no global id of a schema before it"),
        ("glue", b"\3\0" + UUID + ANN, ""),
        ("glue", b"\3\5" + UUID + zlib.compress(ANN), ""),
        ("glue", b"\3\1" + UUID + ANN, "malformed: no prefix of AWS Glue before it"),
        ("glue", b"\3\0" + UUID[:-1], "malformed: no prefix of AWS Glue before it"),
        ("glue", b"\3\5" + UUID + zlib.compress(ANN)[:-1], "decompression: the compressed data ends early"),
        ("glue", b"\3\5" + UUID + b"no zlib", "decompression: Error -3"),
        ("glue", b"\3\5" + UUID + zlib.compress(b" " * 1_001 + ANN), "record_too_large: more than 1000 bytes"),
    ],
)
def test_other_registries_frame_otherwise(framing: Any, value: bytes, found: str) -> None:
    """Apicurio's serializers of version 2, and AWS Glue's, which may compress."""
    decoded = decode(value, framing=framing, record_bytes_max=1000)
    told = "".join(f"{bad.reason}: {bad.message}" for bad in decoded.bad)
    assert told.startswith(found)
    assert [entry for _, entry, *_ in decoded.entries] == ([] if found else [{"user": "ann"}])


def test_schema_is_asked_for_by_its_global_id() -> None:
    rules, asked = InputSettings(format="avro", framing="apicurio8"), []
    RecordDecoder(rules, lambda ref: asked.append(ref) or Schema('"long"')).decode(bytes(8) + b"\7\2")  # type: ignore[func-returns-value]
    assert asked == [SchemaRef("global_id", 7)]
