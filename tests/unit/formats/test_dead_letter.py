"""The dead letter: the record untouched, our headers behind its own (DESIGN 3.7)."""

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from log_partitioner.batch.messages import dead_letters_of
from log_partitioner.formats.dead_letter import (
    MESSAGE_CHARS_MAX,
    DeadLetter,
    DeadLetterHeaders,
    Reason,
    headers_of,
    parse_headers,
)
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.input.decode import BadEntry

GOLDEN = Path(__file__).parents[2] / "golden" / "format-1" / "dead_letter_headers.json"
RECORD = SourceRecord(
    TopicPartition("app", 3), 2**40, 1_714_564_800_000, b"k", b"[1,{}]", (("trace", b"\xff\0"), ("empty", None))
)
LETTER = DeadLetter(RECORD, Reason.NOT_AN_OBJECT, "an entry is an object, not int", (0,), of_entries=2)
PARSED = DeadLetterHeaders(
    reason="not_an_object",
    message="an entry is an object, not int",
    topic="app",
    partition=3,
    offset=2**40,
    index_list="0",
    batch_id="b1",
    group_id="g",
    of_entries=2,
    timestamp_ms=1_714_564_800_000,
)


def test_headers_of_a_dead_letter_are_the_records_own_and_then_ours() -> None:
    """Bytes, nulls and order of the record's headers are untouched; ours read back."""
    headers = headers_of(LETTER, batch_id="b1", group_id="g")
    assert tuple(headers[:2]) == RECORD.headers
    assert parse_headers(headers) == PARSED


def test_headers_of_format_1_are_those_of_the_golden_file() -> None:
    """Tomorrow's readers read the headers of today, and today's readers those of tomorrow."""
    golden: list[Any] = json.loads(GOLDEN.read_text())
    as_bytes = [(name, bytes.fromhex(value["hex"]) if isinstance(value, dict) else value and value.encode())
                for name, value in golden]  # fmt: skip
    assert headers_of(LETTER, batch_id="b1", group_id="g", object_key="logs/_dead-letters/b1-0") == as_bytes
    assert parse_headers(as_bytes) == replace(PARSED, object_key="logs/_dead-letters/b1-0")


@pytest.mark.parametrize(("indexes", "entries"), [(None, 1), ((4,), 1), ((0, 7, 99_999), 3)])
def test_indexes_of_any_number_read_back_and_count(indexes: tuple[int, ...] | None, entries: int) -> None:
    """W3: a record that could not be split counts as one entry, `all`."""
    letter = LETTER._replace(indexes=indexes)
    assert letter.entries == entries
    assert parse_headers(headers_of(letter, batch_id="b1", group_id="g")).indexes == indexes


PLAIN = SourceRecord(TopicPartition("app", 3), 0, None, None, None, ())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "indexes"),
    [
        (lambda number: PLAIN._replace(value=b'{"a":%d}' % number), 1),
        (lambda number: PLAIN._replace(key=b"k" * 500 + b"%d" % number, value=b"x" * 5_000 + b"%d" % number), 1),
        (lambda number: PLAIN._replace(headers=tuple((f"{n}-{number}", b"") for n in range(200))), 1),
        (
            lambda number: PLAIN._replace(
                headers=tuple((f"\N{GRINNING FACE}{n}" * 9, b"%d" % number) for n in range(9))
            ),
            1,
        ),
        (lambda number: PLAIN._replace(value=b"x" * number), 3_000),
    ],
    ids=["small", "key-and-value", "headers", "emoji", "indexes"],
)
def test_dead_letter_takes_no_more_memory_than_it_says(make: Callable[[int], SourceRecord], indexes: int) -> None:
    """With its record, its headers and its indexes: a batch of nothing else is bounded by what they say."""
    count, kept = 300, []
    tracemalloc.start()
    try:
        for number in range(count):
            record = make(number)._replace(offset=10**6 + number, timestamp_ms=10**12 + number)
            bad = (BadEntry(10**5 + index, Reason.NO_USER, f"no user in {number}") for index in range(indexes))
            kept += dead_letters_of(record, bad, of_entries=indexes)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    said = sum(letter.memory_bytes for letter in kept)
    assert taken <= said
    assert said <= 4 * taken


def test_record_without_a_timestamp_has_no_timestamp_header() -> None:
    """Absent stays absent."""
    letter = LETTER._replace(record=RECORD._replace(timestamp_ms=None))
    assert "lp-timestamp-ms" not in dict(headers_of(letter, batch_id="b1", group_id="g"))


def test_replayed_dead_letter_is_read_by_its_newest_headers() -> None:
    """A record that brings the headers of its first death along does not lend them to the second."""
    first = headers_of(LETTER._replace(indexes=None), batch_id="b1", group_id="g", object_key="logs/_dead-letters/b1-0")
    replayed = RECORD._replace(offset=9, headers=tuple(first))
    second = headers_of(LETTER._replace(record=replayed), batch_id="b2", group_id="g")
    assert parse_headers(second) == replace(PARSED, offset=9, batch_id="b2", group_id="g")


def test_message_is_cut_and_holds_what_utf8_can() -> None:
    """A message quotes hostile text: bounded, and never a reason to fail."""
    headers = dict(headers_of(LETTER._replace(message="\ud800" + "x" * 999), batch_id="b1", group_id="g"))
    assert headers["lp-message"] == b"?" + b"x" * (MESSAGE_CHARS_MAX - 1)


@pytest.mark.parametrize(
    "change",
    [
        ("lp-offset", b"x"),
        ("lp-indexes", b"1,,2"),
        ("lp-indexes", b"all\n"),
        ("lp-indexes", b"1" * 5_000),
        ("lp-topic", b"\xff"),
        ("lp-topic", None),
    ],
    ids=lambda change: repr(change)[:40],
)
def test_headers_that_are_not_ours_are_refused(change: tuple[str, bytes | None]) -> None:
    """A missing or malformed header is an error of the reader; the reader guesses nothing."""
    headers = [header for header in headers_of(LETTER, batch_id="b1", group_id="g") if header[0] != change[0]]
    with pytest.raises(ValueError, match=r"lp-|utf-8"):
        parse_headers([*headers, change])
