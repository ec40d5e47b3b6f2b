"""The message of the references topic: what a reader makes of the golden one, and what it refuses (DESIGN 3.5)."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from log_partitioner.formats.reference import begun_ms, decode_references
from tests.golden.example import GOLDEN, HEADER, PACK

MESSAGE = (GOLDEN / "references.json").read_bytes()
START, SOURCES = 6, 8  # places in a line
Change = Callable[[dict[str, Any]], object]


def changed(change: Change) -> bytes:
    """Change the golden message."""
    message = json.loads(MESSAGE)
    change(message)
    return json.dumps(message).encode()


def line(number: int, place: int, value: object) -> Change:
    """Put another value into a line."""
    return lambda message: message["references"][number].__setitem__(place, value)


def test_object_of_one_reference_is_one_range_under_its_own_schema() -> None:
    """A file is a pack of one: null stands for the object's own schema."""

    def alone(message: dict[str, Any]) -> None:
        message["references"] = message["references"][:1]
        message["references"][0][START + 1] = len(PACK) - len(HEADER)
        message["schemas"] = [None]

    (whole,) = decode_references(changed(alone))
    assert whole.location.ranges == ((0, len(PACK)),)
    assert whole.projection is None


def test_what_a_reader_does_not_know_it_passes_by() -> None:
    """A field more in the message or in an object of it, or an element more in a line, is no new version."""

    def more(message: dict[str, Any]) -> None:
        message["new"] = message["object"]["new"] = message["sources"][0]["new"] = {"a": 1}
        message["references"][1].append("new")

    assert decode_references(changed(more)) == decode_references(MESSAGE)


@pytest.mark.parametrize(
    "change",
    [
        line(0, 1, 2),
        line(0, 5, 3),
        line(0, SOURCES, [2, 1, 0, 2]),
        lambda message: message.update(hours=[]),
        lambda message: message.update(schemas=[]),
        lambda message: message.update(sources=[]),
    ],
)
def test_line_that_points_outside_its_message_is_refused(change: Change) -> None:
    """A number that names nothing is an error, never the nearest thing."""
    with pytest.raises(msgspec.ValidationError, match="points outside"):
        decode_references(changed(change))


@pytest.mark.parametrize(
    "change",
    [
        *(line(0, place, -1) for place in (1, 2, 4, 5, START, START + 1)),
        *(line(0, SOURCES, [*([0] * at), -1, *([0] * (3 - at))]) for at in range(4)),
        lambda message: message.update(first_number=-1),
        lambda message: message["object"].update(header_bytes=-1),
        lambda message: message["object"].update(size=-1),
    ],
)
def test_negative_number_is_refused(change: Change) -> None:
    """No pointer counts from a list's end, and no byte range from an object's."""
    with pytest.raises(msgspec.ValidationError, match=">= 0"):
        decode_references(changed(change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (line(0, SOURCES, [0, 1, 0, 2, 1, 1]), "6 numbers of sources"),
        (lambda message: message["references"][0].__delitem__(slice(8, None)), "length"),
        (lambda message: message.pop("batch_id"), "batch_id"),
        (lambda message: message.update(format_version=2), "format_version 2"),
        (lambda message: message.update(hours=[["2026-03-04"]]), "length"),
    ],
)
def test_message_that_is_none_of_this_format_is_refused(change: Change, message: str) -> None:
    """A reader says what is wrong."""
    with pytest.raises(msgspec.ValidationError, match=message):
        decode_references(changed(change))


def test_bytes_that_are_not_json_are_refused() -> None:
    """The error is that of any other message that is not a reference."""
    with pytest.raises(msgspec.DecodeError):
        decode_references(b"not JSON")


@pytest.mark.parametrize(
    ("batch_id", "expected"),
    [("20260304T050607Z-1f2e3d4c-17", 1772600767000), ("backfill-of-march", None), ("2026", None), ("", None)],
)
def test_batch_says_when_it_began_unless_somebody_has_named_it(batch_id: str, expected: int | None) -> None:
    """A backfill may have any name."""
    assert begun_ms(batch_id) == expected
