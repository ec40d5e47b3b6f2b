"""Flush record and backfill record: held to golden files of format 1; parts of what is too large (DESIGN 3.6)."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from log_partitioner.formats.flush_record import (
    FlushedTopicPartition,
    FlushRecord,
    decode_backfill_record,
    decode_flush_record,
    encode_flush_record,
    merge_parts,
    split_parts,
)
from tests.golden.example import BACKFILL_RECORD, FLUSH_RECORD, GOLDEN


def golden(name: str) -> bytes:
    """Read a golden file."""
    return (GOLDEN / name).read_bytes()


def with_lines(*topics: str) -> FlushRecord:
    """Make a flush record of TopicPartitions of these topics; the id of one is known by its first letter."""
    line = FLUSH_RECORD.topic_partitions[0]
    lines = tuple(msgspec.structs.replace(line, topic=topic, partition=n) for n, topic in enumerate(topics))
    ids = {topic: f"id-{topic[0]}" for topic in topics if topic != "b"}
    return msgspec.structs.replace(FLUSH_RECORD, topic_partitions=lines, topic_ids=ids)


def changed(record: Any, **changes: Any) -> Any:
    """Put other values into a record."""
    return msgspec.structs.replace(record, **changes)


def test_records_of_format_1_are_the_golden_ones() -> None:
    """Field names and the version are what readers count on."""
    assert decode_flush_record(golden("flush_record.json")) == FLUSH_RECORD
    assert decode_backfill_record(golden("backfill_record.json")) == BACKFILL_RECORD


def test_backfill_is_finished_when_all_of_its_messages_are_published() -> None:
    """Until then a restart goes on behind `published`."""
    assert not BACKFILL_RECORD.is_finished
    assert changed(BACKFILL_RECORD, published=BACKFILL_RECORD.messages).is_finished


@pytest.mark.parametrize(
    ("name", "decode"),
    [("flush_record.json", decode_flush_record), ("backfill_record.json", decode_backfill_record)],
)
def test_record_of_another_version_is_refused_and_new_fields_are_ignored(
    name: str, decode: Callable[[bytes], Any]
) -> None:
    """A reader that does not know a version says so; a field more is no new version."""
    record = msgspec.json.decode(golden(name))
    assert decode(msgspec.json.encode({**record, "new": 1})) == decode(golden(name))
    with pytest.raises(msgspec.ValidationError, match="format_version 2"):
        decode(msgspec.json.encode({**record, "format_version": 2}))
    with pytest.raises(msgspec.ValidationError, match="batch_id"):
        decode(msgspec.json.encode({key: value for key, value in record.items() if key != "batch_id"}))
    with pytest.raises(msgspec.DecodeError):
        decode(b"not JSON")


def test_record_that_fits_is_one_part() -> None:
    """So is one without TopicPartitions."""
    assert split_parts(FLUSH_RECORD, bytes_max=900_000) == [FLUSH_RECORD]
    assert split_parts(with_lines(), bytes_max=900_000) == [with_lines()]


@pytest.mark.parametrize("topics", [["t"] * 40, ["t"] * 30 + ["t" * 249] * 10, ["t" * 249, "t"] * 20])
@pytest.mark.parametrize("bytes_max", [1500, 2000, 4000])
def test_parts_fit_into_a_message_and_are_the_record_again(topics: list[str], bytes_max: int) -> None:
    """However unlike the lines are in size; each part has the ids of its topics, and everything else but the lines."""
    record = with_lines(*topics)
    parts = split_parts(record, bytes_max=bytes_max)
    assert len(parts) > 1
    assert max(len(encode_flush_record(part)) for part in parts) <= bytes_max
    assert [(part.part, part.parts) for part in parts] == [(n, len(parts)) for n in range(1, len(parts) + 1)]
    assert {part.totals for part in parts} == {record.totals}
    assert [{*part.topic_ids} for part in parts] == [{line.topic for line in part.topic_partitions} for part in parts]
    assert merge_parts(reversed(parts)) == ([record], [])


def test_line_that_alone_is_too_large_is_a_part_of_its_own() -> None:
    """Nothing is left out; the broker has the last word."""
    assert len(split_parts(with_lines("a", "b", "c"), bytes_max=1)) == 3


def test_whole_records_are_in_the_order_of_their_first_parts() -> None:
    """Parts of several flushes come interleaved if workers flush at once."""
    one, other = with_lines("a", "b"), changed(with_lines("c", "d"), batch_id="other")
    (one_1, one_2), (other_1, other_2) = (split_parts(record, bytes_max=1) for record in (one, other))
    assert merge_parts([other_2, one_1, other_1, one_2]) == ([other, one], [])


def test_two_records_of_one_batch_in_one_part_stay_two() -> None:
    """Whether that is allowed is for the caller to say."""
    assert merge_parts([FLUSH_RECORD, FLUSH_RECORD]) == ([FLUSH_RECORD, FLUSH_RECORD], [])


def parts_of_three() -> list[FlushRecord]:
    """Make three parts."""
    return split_parts(with_lines("a", "b", "c"), bytes_max=1)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda parts: parts[:2], "parts 1 of 3, 2 of 3"),
        (lambda parts: parts[1:], "parts 2 of 3, 3 of 3"),
        (lambda parts: [*parts, parts[0]], "parts 1 of 3, 1 of 3, 2 of 3, 3 of 3"),
        (lambda parts: [parts[0], changed(parts[1], parts=2)], "parts 1 of 3, 2 of 2"),
        (lambda parts: [*parts, FLUSH_RECORD], "1 of 1"),
        (lambda parts: [*parts[:2], changed(parts[2], parts=10**15)], "3 of 1000000000000000"),
        (lambda parts: [*parts[:2], changed(parts[2], generation=9)], "differ"),
        (lambda parts: [*parts[:2], changed(parts[2], topic_ids={"a": "another"})], "differ"),
    ],
)
def test_parts_that_do_not_make_a_record_are_a_problem_and_keep_their_lines(
    change: Callable[[list[FlushRecord]], list[FlushRecord]], problem: str
) -> None:
    """Missing, doubled, of other numbers, unlike each other: what is there is still seen."""
    some = change(parts_of_three())
    (whole,), problems = merge_parts(some)
    assert len(problems) == 1
    assert problem in problems[0]
    assert FLUSH_RECORD.batch_id in problems[0]
    assert sorted(whole.topic_partitions, key=_order) == sorted(
        (line for part in some for line in part.topic_partitions), key=_order
    )


def _order(line: FlushedTopicPartition) -> tuple[str, int]:
    return line.topic, line.partition
