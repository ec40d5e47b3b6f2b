"""`cat`: the object that an argument names, and its rows as JSON."""

from __future__ import annotations

import io
import json

import pytest

from log_partitioner.errors import SettingsError
from log_partitioner.formats.reference import decode_references
from log_partitioner.operations.cat import places
from log_partitioner.operations.rows import Row, rows_of, to_json
from log_partitioner.proof.audit.context import Address
from log_partitioner.proof.oracle.json_text import parse_keeping
from tests.golden.example import GOLDEN

MESSAGE = (GOLDEN / "references.json").read_bytes()
PACK = (GOLDEN / "pack.avro").read_bytes()
REFERENCES = decode_references(MESSAGE)
FIND = {one.reference_id: one.location for one in REFERENCES}.__getitem__
META = {"user": "u", "event_time": 0, "timestamp": -1}


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("logs/user=a/1.avro", Address("mine", "logs/user=a/1.avro")),
        ("s3://other/logs/1.avro", Address("other", "logs/1.avro")),
    ],
)
def test_place_of_an_object_is_a_url_or_a_key_of_the_bucket(text: str, address: Address) -> None:
    """All of it is read."""
    assert list(places(text, "mine", FIND)) == [(address, None)]


def test_place_of_an_id_is_that_of_its_reference() -> None:
    """Which is searched for."""
    location = REFERENCES[2].location
    assert list(places(REFERENCES[2].reference_id, "mine", FIND)) == [(Address("my-logs", location.object), location)]


def test_place_of_a_message_is_that_of_each_of_its_references(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an argument, or a line of standard input; a single reference is one, too."""
    expected = [(Address("my-logs", one.location.object), one.location) for one in REFERENCES]
    whole = json.loads((GOLDEN / "references_whole.json").read_text())
    lines = "".join(f"{json.dumps(one)}\n" for one in whole)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{lines}\n{json.dumps(json.loads(MESSAGE))}\n"))

    assert list(places(MESSAGE.decode(), "mine", FIND)) == expected
    assert list(places("-", "mine", FIND)) == expected * 2


@pytest.mark.parametrize("text", ["{", "{}", '{"location": 1}', MESSAGE.decode().replace('"bob", 0', '"bob", 9')])
def test_json_that_is_no_reference_is_refused_with_its_reason(text: str) -> None:
    """It is no key either."""
    with pytest.raises(SettingsError, match="neither a reference nor a message"):
        list(places(text, "mine", FIND))


def test_rows_of_a_reference_are_its_entries_under_their_original_names() -> None:
    """Its byte ranges alone are a file; nulls are absent, and times are texts."""
    (start, header), (block, length) = REFERENCES[1].location.ranges

    (row,) = rows_of(PACK[start : start + header] + PACK[block : block + length], parse_keeping)

    assert json.loads(to_json(row)) == {
        "_meta": {
            "user": "bob", "event_time": "2026-03-04T04:00:00Z", "id": None, "topic": "app", "partition": 0,
            "offset": 104, "index": 0, "timestamp": "2026-03-04T05:06:00Z",
            "root": {"topic": "raw", "partition": 5, "offset": 4711, "index": 1},
        },
        "entry": {"bytes": 9007199254740993, "ctx": {"a-b": 1}, "status": 200, "tags": ["x"]},
    }  # fmt: skip


def test_number_that_no_double_holds_keeps_its_digits() -> None:
    """It stands in a JSON-marked column; a text that looks like its form stays a text."""
    entry = {"n": {"\ud800": "12345e999"}, "text": '{"\\ud800": "1"}', "é": [{"\ud800": "1e-999"}]}

    line = to_json(Row(META, entry))

    assert '"timestamp": null' in line
    assert line.endswith('"entry": {"n": 12345e999, "text": "{\\"\\\\ud800\\": \\"1\\"}", "\\u00e9": [1e-999]}}')
