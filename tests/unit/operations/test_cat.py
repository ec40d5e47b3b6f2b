"""`cat`: the object that an argument names."""

from __future__ import annotations

import io
import json

import pytest

from log_partitioner.errors import SettingsError
from log_partitioner.formats.reference import decode_references
from log_partitioner.operations.cat import places
from log_partitioner.proof.audit.store import Address
from tests.golden.example import GOLDEN

MESSAGE = (GOLDEN / "references.json").read_bytes()
REFERENCES = decode_references(MESSAGE)
FIND = {one.reference_id: one.location for one in REFERENCES}.__getitem__


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
    """The command searches for the reference."""
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
