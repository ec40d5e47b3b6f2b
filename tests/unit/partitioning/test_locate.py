"""Paths to user, time and id: entry, envelope, record key, header."""

from typing import Any

import pytest

from log_partitioner.config.section import parse_path
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.partitioning.locate import compile_path
from log_partitioner.proof.oracle import locate as second_opinion
from log_partitioner.proof.oracle.json_text import parse_rounding

RECORD = SourceRecord(
    TopicPartition("app", 0), 0, None, b'{"user": {"id": "kim"}, "n": 1}', None,
    (("who", b"first"), ("who", b"last"), ("bad", b"\xff"), ("none", None)),
)  # fmt: skip
ENTRY: dict[str, Any] = {"user": "ann", "a": {"b": {"c": 7}, "x.y": "dot"}, "a.b": "literal", "list": [1], "null": None,
                         "envelope": "own", "x:y": "colon", "x::y": "colons",
                         "log": '{"user":{"id":"kim"},"n":1,"log":"{\\"n\\":2}"}', "no": "{"}  # fmt: skip
ENVELOPE: dict[str, Any] = {"meta": {"user": "eve"}}


def found_at(path: str, record: SourceRecord = RECORD) -> list[Any]:
    """Look at a path as the worker does, and as the second opinion does."""
    around = second_opinion.Surroundings(record, ENVELOPE, parse_rounding)
    values = second_opinion.values_at((second_opinion.parse_path(path),), ENTRY, around)
    return [compile_path(path)(ENTRY, ENVELOPE, record), next(values, None)]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("user", "ann"),
        ("a.b.c", 7),
        (r"a.x\.y", "dot"),
        (r"a\.b", "literal"),
        ("absent", None),
        ("absent.deeper", None),
        ("user.deeper", None),
        ("list.0", None),
        ("null", None),
        ("envelope", "own"),
        ("x:y", "colon"),
        (r"x\:\:y", "colons"),
        ("log::user.id", "kim"),
        ("log::log::n", 2),
        ("log::absent", None),
        ("no::n", None),
        ("user::n", None),
        ("list::n", None),
        ("envelope:meta.user::n", None),
        ("envelope:meta.user", "eve"),
        ("envelope:absent", None),
        ("key", '{"user": {"id": "kim"}, "n": 1}'),
        ("key:user.id", "kim"),
        ("key:n", 1),
        ("key:absent", None),
        ("header:who", "last"),
        ("header:bad", None),
        ("header:none", None),
        ("header:absent", None),
    ],
)
def test_path_of_each_kind_finds_its_value_or_nothing(path: str, found: Any) -> None:
    """An absent value, a null or broken text is None on every kind of path."""
    assert found_at(path) == [found] * 2


@pytest.mark.parametrize(
    "key", [None, b"", b"\xff", b"plain", b"[1]", b"{", rb'{"user":"\ud800"}', b"[" * 100_000, b"1" * 5000]
)
def test_record_key_that_is_no_object_names_nobody(key: bytes | None) -> None:
    """Other producers' keys may be anything; a look into them never raises."""
    assert found_at("key:user", RECORD._replace(key=key)) == [None] * 2


@pytest.mark.parametrize("number", [b"1e400", b"1" * 5000, b"1e-400", b"-1e999999999999999999999"])
def test_number_that_no_double_holds_hides_nothing_beside_it(number: bytes) -> None:
    """Compiled JSON refuses some of them; neither a record key nor a text with one loses its user."""
    text = b'{"n":%b,"user":"ann"}' % number
    assert found_at("key:user", RECORD._replace(key=text)) == ["ann"] * 2
    around = second_opinion.Surroundings(RECORD, None, parse_rounding)
    entry = {"log": text.decode()}
    assert compile_path("log::user")(entry, None, RECORD) == "ann"
    assert [*second_opinion.values_at((second_opinion.parse_path("log::user"),), entry, around)] == ["ann"]


@pytest.mark.parametrize(
    "path", ["", "a::", "::a", "a::::b", ".", "a.", ".a", "a..b", "envelope:", "key:", "header:", "envelope:a..b"]
)
def test_path_with_an_empty_part_is_refused(path: str) -> None:
    """A slip in a setting is refused at start, with the reason."""
    with pytest.raises(ValueError, match=r"empty key|needs the name"):
        compile_path(path)


def test_parsed_path_keeps_escaped_dots() -> None:
    r"""`\.` is a dot inside a key."""
    assert parse_path(r"a\.b.c\.d") == ("entry", ("a.b", "c.d"))
