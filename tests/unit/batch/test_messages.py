"""The messages of one flush: references by object, a flush record in parts, dead letters."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from log_partitioner.batch.batch import Batch, Opening
from log_partitioner.batch.ledger import Ledgers
from log_partitioner.batch.messages import (
    BATCH_BYTES,
    FLUSH_TYPE,
    HEADER_BYTES,
    OUR_HEADERS_BYTES,
    REFERENCES_TYPE,
    Sender,
    StoredPart,
    UploadedObject,
    backfill_message,
    check_references,
    dead_letter_message,
    dead_letters_of,
    flush_messages,
    flush_record_of,
    key_of,
    message_bytes,
    object_metadata,
    reference_messages,
    rows_in,
    split_letter,
    stored_apart,
    stored_object,
)
from log_partitioner.batch.seal import SealedObject
from log_partitioner.boundary import Membership, Message, StoredObject
from log_partitioner.control.flush_policy import FlushReason
from log_partitioner.formats.dead_letter import DeadLetter, Reason, decode_stored_record, parse_headers
from log_partitioner.formats.flush_record import (
    BackfillRecord,
    BackfillTotals,
    decode_backfill_record,
)
from log_partitioner.formats.model import CommittedOffset, SourceRecord, TopicPartition
from log_partitioner.formats.object_key import schema_key
from log_partitioner.formats.reference import CoveredRange, Reference, decode_references
from log_partitioner.input.decode import BadEntry
from tests.fakes.spool import FakeSpool
from tests.fakes.worker import settings_of
from tests.golden.example import FLUSH_RECORD
from tests.strategies import A, empty_rows, keyed_rows, seal_rules, sealed_objects

MEMBER = Membership(1, "member", None)
SENDER = Sender("w1", "boot", settings_of().kafka, "bucket")
B = TopicPartition("app", 1)
AT_MS = 1_714_564_800_123
RECORD = SourceRecord(A, 7, None, b"k", b"value", (("trace", b"\xff"),))


def headers(message: Message) -> dict[str, str]:
    """Give the headers of a message of ours."""
    return {name: (value or b"").decode() for name, value in message.headers}


def objects(users: int, *, layout: str = "pack", **rules: Any) -> list[SealedObject]:
    """Seal rows of so many users, of two kinds that share no pack."""
    rows = keyed_rows((f"user-{number}", 10, {"a": 1} if number % 2 else {"b": "x"}) for number in range(users))
    return sealed_objects(rows, FakeSpool().open("b1"), seal_rules(layout=layout, **rules))


def announced(sealed: list[SealedObject], *, inline: bool = False, first_number: int = 0) -> list[Message]:
    """Announce objects."""
    uploaded = [
        UploadedObject(
            one, StoredObject(key_of(one, "logs", batch_id="b1", attempt=0), '"etag"', "v1"),
            schema_key("logs", one.schema.fingerprint), inline,
        )
        for one in sealed
    ]  # fmt: skip
    return list(
        reference_messages(uploaded, SENDER, batch_id="b1", generation=4, at_ms=AT_MS, first_number=first_number)
    )


def references(messages: list[Message]) -> list[Reference]:
    """Read all references."""
    return [one for message in messages for one in decode_references(message.value or b"")]


def test_message_announces_one_object_with_all_its_references() -> None:
    """Two packs, two messages, each named by the first number in it; the key is the batch id."""
    sealed = objects(40)
    messages = announced(sealed, first_number=100)
    assert [(message.topic, message.key) for message in messages] == [("references", b"b1")] * 2
    assert [headers(message)["ce_id"] for message in messages] == ["b1-100", "b1-120"]
    found = references(messages)
    assert [one.reference_id for one in found] == [f"b1-{n}" for n in range(100, 140)]
    assert {(one.batch_id, one.worker, one.generation) for one in found} == {("b1", "w1", 4)}
    for one, message in zip(sealed, messages, strict=True):
        for at in (ref.location for ref in decode_references(message.value or b"")):
            assert (at.bucket, at.object) == ("bucket", f"logs/pack/b1-{one.number}.avro")
            assert (at.etag, at.version_id) == ('"etag"', "v1")
            assert (at.size, at.checksum.value) == (one.file.size, one.file.sha256.hex())


def test_rows_of_objects_are_all_named_by_their_messages() -> None:
    """W3: by TopicPartition; a message, a line or an entry that is left out is noticed."""
    sealed = objects(40, group_bytes_max=500)
    messages = announced(sealed)
    assert rows_in(sealed) == {A: 40}
    check_references(sealed, messages)
    with pytest.raises(AssertionError, match=r"W3: \d+ references are in messages, 40 should be"):
        check_references(sealed, messages[:-1])
    last = sealed[-1]
    for group, match in (
        (last.groups[0]._replace(entries=(0,)), "W3: app-0: .* entries are in references, 40 should be"),
        (last.groups[0]._replace(sources=(CoveredRange("app", 1, 0, 99),)), "W3: app-0"),
    ):
        wrong = [*sealed[:-1], last._replace(groups=[group, *last.groups[1:]])]
        with pytest.raises(AssertionError, match=match):
            check_references(wrong, messages)


def test_schema_text_stands_in_a_message_where_it_is_asked_for() -> None:
    """Fingerprint and place of the schema's own object always do."""
    sealed = objects(3, layout="file")
    for inline in (False, True):
        for one, found in zip(sealed, references(announced(sealed, inline=inline)), strict=True):
            assert found.schema.text == (one.schema.text if inline else None)
            assert found.schema.fingerprint == one.schema.fingerprint
            assert found.schema.object == f"logs/_schemas/{one.schema.fingerprint}.avsc"


def test_message_is_a_cloud_event_in_binary_mode() -> None:
    """Any tool sees what it is, from whom and of when."""
    (message,) = announced(objects(1))
    assert headers(message) == {
        "ce_specversion": "1.0",
        "ce_id": "b1-0",
        "ce_source": "/log-partitioner/group/w1",
        "ce_type": REFERENCES_TYPE,
        "ce_time": "2024-05-01T12:00:00.123Z",
        "content-type": "application/json",
    }


def test_object_is_named_by_what_it_holds() -> None:
    """A file by its PartitionKey, a pack by its hour if it has only one; its metadata say how much is in it."""
    (file,) = objects(1, layout="file")
    assert key_of(file, "logs", batch_id="b1", attempt=0) == "logs/user=user-0/date=2024-05-01/hour=10/b1-0.avro"
    assert key_of(file, "logs", batch_id="b1", attempt=1) == "logs/user=user-0/date=2024-05-01/hour=10/b1-0-1.avro"
    packs = objects(250)
    assert [key_of(pack, "logs", batch_id="b1", attempt=0) for pack in packs] == [
        "logs/pack/date=2024-05-01/hour=10/b1-0.avro", "logs/pack/date=2024-05-01/hour=10/b1-1.avro"
    ]  # fmt: skip
    assert object_metadata(packs[0], batch_id="b1") == {
        "lp-batch-id": "b1", "lp-entries": "125", "lp-references": "125"
    }  # fmt: skip


def test_flush_record_says_what_the_batch_covers_and_what_became_of_it() -> None:
    """Ranges and sums are those of the ledgers; ids of topics as far as they are known."""
    ledgers = Ledgers()
    for tp in (B, A, TopicPartition("other", 0)):
        ledgers.start(tp, CommittedOffset(5))
    ledger = ledgers.by_tp[A]
    for offset in (7, 9):
        ledger.cover(offset, timestamp_ms=offset)
    ledger.entries, ledger.dead_letters = 5, 2
    ledgers.by_tp[B].idle_since_ms = 77
    batch = Batch(Opening("b1", 4, MEMBER, 1.0, 1000), FakeSpool().open("b1"), empty_rows())
    batch.dead_letters.append(DeadLetter(RECORD, Reason.MALFORMED, "", (1, 2)))
    sealed = objects(3)
    record = flush_record_of(
        batch.close(ledgers.by_tp), SENDER, iter(sealed), seq=9, reason=FlushReason.BYTES, ended_at_ms=2000,
        step_seconds={"seal": 0.12345678}, topic_ids={"app": "id-of-app", "unrelated": "x"},
    )  # fmt: skip
    assert (record.batch_id, record.group_id, record.worker, record.boot) == ("b1", "group", "w1", "boot")
    assert (record.seq, record.generation, record.reason) == (9, 4, "bytes")
    assert (record.started_at_ms, record.ended_at_ms, record.step_seconds) == (1000, 2000, {"seal": 0.123457})
    assert record.topic_ids == {"app": "id-of-app"}
    assert [(one.topic, one.partition) for one in record.topic_partitions] == [("app", 0), ("app", 1), ("other", 0)]
    first, second, _ = record.topic_partitions
    assert (first.first_offset, first.next_offset, first.min_offset, first.max_offset) == (5, 10, 7, 9)
    assert (first.records, first.entries, first.dead_letters, first.timestamp_max_ms) == (2, 5, 2, 9)
    assert (second.next_offset, second.min_offset, second.max_offset, second.idle_since_ms) == (5, None, None, 77)
    totals = record.totals
    assert (totals.records, totals.entries, totals.entries_in_files) == (2, 5, 3)
    assert (totals.dead_letters, totals.dead_letter_records, totals.references) == (2, 1, 3)
    assert totals.bytes == sum(one.file.size for one in sealed)


def test_parts_of_a_flush_record_are_of_one_key_and_have_ids_of_their_own() -> None:
    """A record too large for its topic comes in parts; tests/property says that they fit and make it again."""
    lines = tuple(msgspec.structs.replace(FLUSH_RECORD.topic_partitions[0], partition=n) for n in range(99))
    record = msgspec.structs.replace(FLUSH_RECORD, batch_id="b1", topic_partitions=lines)
    messages = list(flush_messages(record, SENDER, message_bytes_max=20_000, at_ms=AT_MS))
    assert {(message.topic, message.key, headers(message)["ce_type"]) for message in messages} == {
        ("flushes", b"w1", FLUSH_TYPE)
    }
    assert [headers(message)["ce_id"] for message in messages] == ["b1/1", "b1/2"]


def test_record_has_one_dead_letter_for_each_reason() -> None:
    """With the indexes of all entries that are dead for it, and the message of the first."""
    bad = [
        BadEntry(5, Reason.NO_USER, "first"),
        BadEntry(1, Reason.TOO_DEEP, "deep"),
        BadEntry(2, Reason.NO_USER, "second"),
    ]
    assert dead_letters_of(RECORD, bad, of_entries=6) == [
        DeadLetter(RECORD, Reason.NO_USER, "first", (2, 5), of_entries=6),
        DeadLetter(RECORD, Reason.TOO_DEEP, "deep", (1,), of_entries=6),
    ]  # fmt: skip
    assert dead_letters_of(RECORD, [BadEntry(None, Reason.MALFORMED, "all")], of_entries=1) == [
        DeadLetter(RECORD, Reason.MALFORMED, "all", None, of_entries=1)
    ]
    assert dead_letters_of(RECORD, [], of_entries=2) == []


def test_record_of_a_backfill_is_keyed_by_its_batch() -> None:
    """A compacted topic keeps the last of each run."""
    totals = BackfillTotals(references=1, entries_in_files=1, dead_letters=0, dead_letter_records=0, bytes=5)
    record = BackfillRecord(
        batch_id="b1", group_id="group", worker="w1", generation=0, started_at_ms=1, committed_at_ms=2, outbox="ab",
        published=3, messages=4, topic_partitions=(), totals=totals,
    )  # fmt: skip
    message = backfill_message(record, "backfills", SENDER, at_ms=AT_MS)
    assert (message.topic, message.key, headers(message)["ce_id"]) == ("backfills", b"b1", "b1/3")
    assert decode_backfill_record(message.value or b"") == record


# The size of a message on its way, and dead letters that are too large for their topic.

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
        (RECORD._replace(value=b"x" * 6_000), StoredPart.VALUE),
        (RECORD._replace(key=b"x" * 3_000, value=b"x" * 6_000), StoredPart.VALUE),
        (RECORD._replace(key=b"x" * 6_000), StoredPart.RECORD),
        (RECORD._replace(headers=(("trace", b"x" * 6_000),)), StoredPart.RECORD),
        (RECORD._replace(headers=(("é" * 2_000, b""),)), StoredPart.RECORD),
        (RECORD._replace(headers=(("", b""),) * 401), StoredPart.RECORD),
    ],
)
def test_record_too_large_for_the_dead_letter_topic_is_an_object(
    record: SourceRecord, apart: StoredPart | None
) -> None:
    """Its value alone, or with key and headers if these are too large; the message names the object and fits."""
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
    if apart is StoredPart.RECORD:
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
