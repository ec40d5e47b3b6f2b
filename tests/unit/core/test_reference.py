"""Reference and flush record: encode and decode, held to golden files of version 1 (DESIGN 3.5, 3.6)."""

from pathlib import Path

import msgspec
import pytest

from service.core.reference import (
    Checksum,
    FieldCounts,
    FlushedTopicPartition,
    FlushRecord,
    FlushTotals,
    Location,
    Partition,
    Reference,
    RootRange,
    SchemaLocation,
    SourceRange,
    decode_flush_record,
    decode_reference,
    encode_flush_record,
    encode_reference,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "format-1"
REFERENCE = Reference(
    reference_id="r1",
    batch_id="b1",
    worker="w1",
    generation=7,
    location=Location(
        bucket="logs",
        object="logs/user=%C3%A9/date=2024-05-01/hour=07/b1-0.avro",
        etag='"abc"',
        version_id=None,
        size=1000,
        checksum=Checksum("sha256", "ab" * 32),
        ranges=((0, 1000),),
    ),
    partition=Partition("é", "2024-05-01", 7),
    entries=3,
    event_time_min_us=1_714_546_800_000_000,
    event_time_max_us=1_714_550_399_999_999,
    schema=SchemaLocation("cd" * 32, "logs/_schemas/" + "cd" * 32 + ".avsc", None),
    field_counts={"a.b": FieldCounts(1, 2), "": FieldCounts(0, 3)},
    sources=(SourceRange("app", 3, 10, 20, 11, 19, 3),),
    roots=(RootRange("raw", 0, 2**40, 2**62, 2),),
)
FLUSH_RECORD = FlushRecord(
    batch_id="b1",
    worker="w1",
    boot="boot-1",
    seq=4,
    generation=7,
    reason="interval",
    started_at_ms=1_714_550_400_000,
    ended_at_ms=1_714_550_401_500,
    step_seconds={"seal": 0.25, "upload": 1.0},
    topic_partitions=(
        FlushedTopicPartition(
            topic="app",
            partition=3,
            first_offset=10,
            next_offset=20,
            min_offset=11,
            max_offset=19,
            timestamp_max_ms=1_714_550_399_000,
            idle_since_ms=None,
            records=5,
            entries=6,
            dead_letters=2,
            discarded_replays=1,
        ),
        FlushedTopicPartition(
            topic="app",
            partition=4,
            first_offset=0,
            next_offset=0,
            min_offset=None,
            max_offset=None,
            timestamp_max_ms=None,
            idle_since_ms=1_714_540_000_000,
            records=0,
            entries=0,
            dead_letters=0,
            discarded_replays=0,
        ),
    ),
    totals=FlushTotals(
        records=5,
        entries=6,
        entries_in_files=3,
        dead_letters=2,
        dead_letter_records=1,
        discarded_replays=1,
        references=1,
        bytes=1000,
    ),
)


def golden(name: str) -> bytes:
    """Read a golden file, written on several lines for people."""
    return msgspec.json.encode(msgspec.json.decode((GOLDEN / name).read_bytes()))


def test_reference_of_format_1_is_the_golden_one() -> None:
    """Field names, their order and the version are what readers count on."""
    assert encode_reference(REFERENCE) == golden("reference.json")
    assert decode_reference(golden("reference.json")) == REFERENCE


def test_flush_record_of_format_1_is_the_golden_one() -> None:
    """W3 stands in it: entries == in files + dead letters + discarded replays."""
    assert encode_flush_record(FLUSH_RECORD) == golden("flush_record.json")
    assert decode_flush_record(golden("flush_record.json")) == FLUSH_RECORD
    totals = FLUSH_RECORD.totals
    assert totals.entries == totals.entries_in_files + totals.dead_letters + totals.discarded_replays


@pytest.mark.parametrize(
    ("name", "decode"), [("reference.json", decode_reference), ("flush_record.json", decode_flush_record)]
)
def test_message_of_another_version_is_refused_and_new_fields_are_ignored(name: str, decode: object) -> None:
    """A reader that does not know a version says so; a field more is no new version."""
    assert callable(decode)
    message = msgspec.json.decode(golden(name))
    decode(msgspec.json.encode({**message, "new": 1}))
    with pytest.raises(msgspec.ValidationError, match="format_version 2"):
        decode(msgspec.json.encode({**message, "format_version": 2}))
    with pytest.raises(msgspec.DecodeError):
        decode(b"not JSON")
    with pytest.raises(msgspec.ValidationError):
        decode(msgspec.json.encode({key: value for key, value in message.items() if key != "batch_id"}))
