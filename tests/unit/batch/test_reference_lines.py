"""Lines of messages, as readers decode them: shared lists, and where messages end."""

from collections.abc import Mapping
from typing import cast

import msgspec

from log_partitioner.avro.schema import META
from log_partitioner.avro.schema_types import RecordType, Scalar
from log_partitioner.batch.reference_lines import LineGroup, LineWriter, Numbered
from log_partitioner.batch.row_writer import Blocks
from log_partitioner.formats.model import TopicPartition
from log_partitioner.formats.reference import (
    Checksum,
    Line,
    ObjectPlace,
    ReferenceMessage,
    SchemaLocation,
    decode_references,
    encode_message,
)
from tests.strategies import merge_entries

T = Scalar
A, B = TopicPartition("app", 0), TopicPartition("other", 7)
SPANS = {A: (100, 200), B: (5, 50)}
ANN, BOB = RecordType({"a": T.LONG53, "n": T.NULL}), RecordType({"a": T.LONG53, "b": T.STRING})
MERGED = merge_entries(ANN, BOB, reserved=(META,), keys_max=100)
HOUR_US = 1_714_557_600_000_000
PLACE = ObjectPlace(
    bucket="bucket", key="key", etag=None, version_id=None, size=1, checksum=Checksum("sha256", "00"), header_bytes=50
)
HEAD_BYTES = 1_000


class Lines:
    """Writes lines of parts of two entries, and gives them."""

    def __init__(
        self, merged: RecordType = MERGED, spans: Mapping[TopicPartition, tuple[int, int]] = SPANS, *, bytes_max: int
    ) -> None:
        self._tps = [*spans]
        self._numbered = Numbered(self._tps, spans, bytes_max=bytes_max)
        self._writer = LineWriter(merged, self._numbered)

    def add(
        self, user: str, hour: int, kind: RecordType, tp: TopicPartition = A, offsets: tuple[int, int] = (110, 120)
    ) -> None:
        """Add a part."""
        numbers = self._numbered.hour(("2024-05-01", hour)), self._numbered.exact_type(kind)
        sources = [(self._tps.index(tp), *offsets, 2)]
        self._writer.add_line(Blocks(user, *numbers, 30, 2, HOUR_US + hour, HOUR_US + hour + 7, sources), 50)

    def groups(self) -> list[LineGroup]:
        """Give all lines."""
        return self._writer.groups()


def messages(groups: list[LineGroup]) -> list[bytes]:
    """Put the object around each group."""
    made, number = [], 0
    for group in groups:
        message = ReferenceMessage(
            batch_id="b1", group_id="g", worker="w", generation=1, first_number=number, object=PLACE,
            schema=SchemaLocation("ab", "key"), sources=group.sources, event_time_us=group.event_time_us,
            hours=group.hours, schemas=group.schemas, references=cast("tuple[Line, ...]", group.lines),
        )  # fmt: skip
        number += group.references
        made.append(encode_message(message))
    return made


def test_what_lines_share_stands_once() -> None:
    """Hours, schemas and offset ranges: a line is a few dozen bytes."""
    writer = Lines(bytes_max=10**6)
    for n in range(1_000):
        writer.add(f"user-{n}", n % 2, (ANN, BOB)[n % 2])
    (group,) = writer.groups()
    assert (len(group.hours), len(group.schemas), len(group.sources)) == (2, 2, 1)
    assert len(bytes(group.lines)) < 1_000 * 60


def test_messages_end_at_their_bytes_and_stand_for_themselves() -> None:
    """Each has all that its lines point to and nothing else; no line is lost, all are in order."""
    parts = []
    for n in range(60):
        tp = TopicPartition(f"topic-{n}", n)
        kind = RecordType({f"k{n}-{m}": T.BOOL for m in range(n % 7)})
        parts.append((tp, kind))
    merged = RecordType({name: child for _, kind in parts for name, child in kind.by_name.items()})
    spans = {tp: (0, 1000) for tp, _ in parts}
    for bytes_max in (300, 1_000, 1_500, 10**6):
        writer = Lines(merged, spans, bytes_max=bytes_max)
        for n, (tp, kind) in enumerate(parts):
            writer.add(f"user-{n}", n % 24, kind, tp, (n, n))
        groups = writer.groups()
        found = messages(groups)
        assert all(len(message) <= max(bytes_max, 700) + HEAD_BYTES for message in found)
        assert len(found) == 1 if bytes_max == 10**6 else len(found) > 5
        references = [one for message in found for one in decode_references(message)]
        assert [one.reference_id for one in references] == [f"b1-{n}" for n in range(60)]
        assert [one.partition_key.user for one in references] == [f"user-{n}" for n in range(60)]
        assert [one.sources[0].topic for one in references] == [f"topic-{n}" for n in range(60)]
        for group in groups:
            lines = msgspec.json.decode(group.lines)
            assert {line[1] for line in lines} == set(range(len(group.hours)))
            assert {line[5] for line in lines} == set(range(len(group.schemas)))
            assert {line[8][0] for line in lines} == set(range(len(group.sources)))


def test_line_that_is_too_large_for_a_message_brings_nothing_into_the_one_before() -> None:
    """What it alone would have pointed to goes with it: the message before stays within its bytes."""
    wide = RecordType({f"k{n}": T.BOOL for n in range(0, 400, 2)})
    merged = RecordType({**{f"k{n}": T.BOOL for n in range(400)}, **MERGED.by_name})
    writer = Lines(merged, bytes_max=900)
    writer.add("ann", 10, ANN)
    writer.add("bob", 11, wide, B, (5, 5))
    writer.add("cem", 10, ANN)
    first, second, third = writer.groups()
    assert (len(first.hours), len(first.schemas), [one.topic for one in first.sources]) == (1, 1, ["app"])
    assert (len(second.hours), len(second.schemas), [one.topic for one in second.sources]) == (1, 1, ["other"])
    assert third.references == 1
