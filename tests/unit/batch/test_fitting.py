"""What a message weighs on its way, and what is done with a dead letter that its topic does not take, by literal."""

from __future__ import annotations

import pytest

from log_partitioner.batch.messages import (
    BATCH_BYTES,
    HEADER_BYTES,
    OUR_HEADERS_BYTES,
    Apart,
    Sender,
    dead_letter_message,
    message_bytes,
    split_letter,
    stored_apart,
    stored_object,
)
from log_partitioner.boundary import Message
from log_partitioner.formats.dead_letter import DeadLetter, Reason, decode_stored_record, parse_headers
from log_partitioner.formats.model import SourceRecord, TopicPartition
from tests.fakes.worker import settings_of

SENDER = Sender("w1", "boot", settings_of().kafka, "bucket")
A = TopicPartition("app", 0)
RECORD = SourceRecord(A, 7, None, b"k", b"value", (("trace", b"\xff"),))
LETTER = DeadLetter(RECORD, Reason.NO_USER, "why", (0,))
LIMIT = OUR_HEADERS_BYTES + BATCH_BYTES + 4_000


def message_of(letter: DeadLetter, object_key: str | None = None) -> Message:
    """Wrap a dead letter."""
    return dead_letter_message(letter, SENDER, batch_id="b1", object_key=object_key)


def test_message_weighs_its_bytes_and_what_is_around_them() -> None:
    """Names in UTF-8, or what stands for it; absent values weigh nothing."""
    assert message_bytes(Message("t", None, None, ())) == BATCH_BYTES
    headers = [("aé", b"123"), ("b", None), ("\udcff", b"")]
    assert message_bytes(Message("t", b"key", b"value", headers)) == BATCH_BYTES + 8 + 3 * HEADER_BYTES + 6 + 1 + 3


@pytest.mark.parametrize(
    ("record", "apart"),
    [
        (RECORD, None),
        (RECORD._replace(value=None), None),
        (RECORD._replace(value=b"x" * 6_000), Apart.VALUE),
        (RECORD._replace(key=b"x" * 3_000, value=b"x" * 6_000), Apart.VALUE),
        (RECORD._replace(key=b"x" * 6_000), Apart.RECORD),
        (RECORD._replace(headers=(("trace", b"x" * 6_000),)), Apart.RECORD),
        (RECORD._replace(headers=(("é" * 2_000, b""),)), Apart.RECORD),
        (RECORD._replace(headers=(("", b""),) * 401), Apart.RECORD),
    ],
)
def test_record_too_large_for_the_dead_letter_topic_is_an_object(record: SourceRecord, apart: Apart | None) -> None:
    """Its value alone, or with key and headers where these are too large; the message names the object and fits."""
    letter = LETTER._replace(record=record)
    assert stored_apart(letter, message_bytes_max=LIMIT) is apart
    if apart is None:
        assert message_bytes(message_of(letter)) <= LIMIT
        return
    key, body = stored_object(record, apart, prefix="logs", batch_id="b1", number=3)
    message = message_of(letter, key)
    assert message_bytes(message) <= LIMIT
    assert parse_headers(message.headers).object_key == key
    assert message.value is None
    if apart is Apart.RECORD:
        stored = decode_stored_record(body)
        assert key == "logs/_dead-letters/b1-3.record.json"
        assert (stored.key, stored.value, tuple(stored.headers)) == (record.key, record.value, record.headers)
        assert (message.key, dict(message.headers).get("trace")) == (None, None)
    else:
        assert (key, body) == ("logs/_dead-letters/b1-3", record.value)
        assert (message.key, message.headers[0]) == (record.key, ("trace", b"\xff"))


@pytest.mark.parametrize(
    ("indexes", "parts"),
    [(None, 1), ((0,), 1), (tuple(range(1_000)), 1), (tuple(range(1_001)), 2), ((10**9,) * 9, 1)],
)
def test_dead_letter_of_too_many_indexes_is_several_that_share_them(
    indexes: tuple[int, ...] | None, parts: int
) -> None:
    """Each of the record and the reason, with some of the indexes, in order; one that fits stays as it is."""
    letter = LETTER._replace(indexes=indexes)
    letters = split_letter(letter, message_bytes_max=LIMIT)
    assert [one._replace(indexes=None) for one in letters] == [letter._replace(indexes=None)] * parts
    assert tuple(index for one in letters for index in one.indexes or ()) == (indexes or ())
    for one in letters:
        apart = stored_apart(one, message_bytes_max=LIMIT)
        assert message_bytes(message_of(one, None if apart is None else f"key{apart.value}.record.json")) <= LIMIT
