"""The replay mark: told from dead letters by its headers alone."""

from __future__ import annotations

import pytest

from log_partitioner.formats.dead_letter import DeadLetter, Reason, headers_of
from log_partitioner.formats.model import Headers, SourceRecord, TopicPartition
from log_partitioner.formats.replay import decode_replay_mark, is_replay_mark
from tests.golden.example import GOLDEN, REPLAY_MARK

TYPE = ("ce_type", b"log-partitioner.replay.v1")


def test_mark_of_format_1_is_read_by_the_code_of_today() -> None:
    """The golden file is what others write."""
    assert decode_replay_mark((GOLDEN / "replay_mark.json").read_bytes()) == REPLAY_MARK


@pytest.mark.parametrize(
    ("headers", "is_mark"),
    [((TYPE,), True), ((), False), ((("ce_type", b"log-partitioner.flush.v1"),), False), ((("ce_type", None),), False)],
)
def test_message_is_a_mark_by_its_type(headers: Headers, is_mark: bool) -> None:  # noqa: FBT001 - a case of a table
    """Its content does not matter."""
    assert is_replay_mark(headers) is is_mark


def test_dead_letter_of_a_record_that_has_the_headers_of_a_mark_stays_a_dead_letter() -> None:
    """Producers may write any header; none of theirs hides what they have written from audits."""
    record = SourceRecord(TopicPartition("app", 0), 7, None, None, b"{", (TYPE,))
    headers = headers_of(DeadLetter(record, Reason.MALFORMED, "no", None), batch_id="b1", group_id="g")
    assert not is_replay_mark(headers)
