"""JSON of a JSON-Schema producer: the schema's id before the payload or in a header (DESIGN 3.1)."""

from __future__ import annotations

from typing import Any

import pytest

from log_partitioner.config.settings import InputSettings
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.model import Headers
from log_partitioner.input.decode import Decoded, RecordDecoder
from tests.fakes.lanes import assert_decoded_alike

PREFIX = b"\0\0\0\0\7"
IN_HEADER: Headers = (("__value_schema_id", b"\1" + bytes(16)),)


def decode(value: bytes, headers: Headers = (), **rules: Any) -> Decoded:
    """Decode by these rules; the second opinion says the same."""
    settings = InputSettings(**rules)
    decoded = RecordDecoder(settings).decode(value, headers)
    assert_decoded_alike(decoded, value, settings, headers)
    return decoded


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
