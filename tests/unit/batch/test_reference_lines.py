"""Lines of messages, as readers decode them: shared lists, where messages end, what is left out for lack of room."""

from collections.abc import Mapping
from typing import Any, cast

import msgspec
import pytest

from log_partitioner.avro.schema import META, schema_of
from log_partitioner.avro.schema_types import RecordType, Scalar
from log_partitioner.batch.pack_schema import merge_entries
from log_partitioner.batch.reference_lines import ROOTS_MAX, Described, LineGroup, LineWriter, root_place, widen
from log_partitioner.formats.model import PartitionKey, RootLink, TopicPartition
from log_partitioner.formats.projection import null_counts
from log_partitioner.formats.reference import (
    Checksum,
    Line,
    ObjectPlace,
    Reference,
    ReferenceMessage,
    RootRange,
    SchemaLocation,
    decode_references,
    encode_message,
)

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
Roots = dict[tuple[str, int], list[int]]


def part(
    user: str = "ann",
    hour: int = 10,
    entry_type: RecordType = ANN,
    *,
    nulls: Mapping[str, int] | None = None,
    sources: Mapping[TopicPartition, list[int]] | None = None,
    roots: Roots | None = None,
) -> Described:
    """Describe a part of two entries."""
    return Described(
        key=PartitionKey(user, "2024-05-01", hour),
        entry_type=entry_type,
        entries=2,
        event_time_min_us=HOUR_US + hour,
        event_time_max_us=HOUR_US + hour + 7,
        nulls={"n": 2} if nulls is None else nulls,
        start=50,
        length=30,
        sources={A: [110, 120, 2]} if sources is None else dict(sources),
        roots=roots or {},
    )


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


def written(*parts: Described, bytes_max: int = 10**6, merged: RecordType = MERGED) -> list[list[Reference]]:
    """Write parts, and give the references of each message."""
    writer = LineWriter(merged, SPANS, bytes_max=bytes_max)
    for one in parts:
        writer.add(one)
    groups = writer.groups()
    assert writer.lines == len(parts)
    read = [decode_references(message) for message in messages(groups)]
    assert [len(references) for references in read] == [group.references for group in groups]
    return read


def test_what_lines_share_stands_once() -> None:
    """Hours, schemas and offset ranges: a line is a few dozen bytes."""
    writer = LineWriter(MERGED, SPANS, bytes_max=10**6)
    for n in range(1_000):
        writer.add(part(f"user-{n}", n % 2, (ANN, BOB)[n % 2], nulls={}))
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
        writer = LineWriter(merged, spans, bytes_max=bytes_max)
        for n, (tp, kind) in enumerate(parts):
            writer.add(part(f"user-{n}", n % 24, kind, nulls={}, sources={tp: [n, n, 2]}))
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
            assert {line[9][0] for line in lines} == set(range(len(group.sources)))


def test_line_that_is_too_large_for_a_message_brings_nothing_into_the_one_before() -> None:
    """What it alone would have pointed to goes with it: the message before stays within its bytes."""
    wide = RecordType({f"k{n}": T.BOOL for n in range(0, 400, 2)})
    merged = RecordType({**{f"k{n}": T.BOOL for n in range(400)}, **MERGED.by_name})
    writer = LineWriter(merged, SPANS, bytes_max=900)
    for one in (part(), part("bob", 11, wide, nulls={}, sources={B: [5, 5, 2]}), part("cem")):
        writer.add(one)
    first, second, third = writer.groups()
    assert (len(first.hours), len(first.schemas), [one.topic for one in first.sources]) == (1, 1, ["app"])
    assert (len(second.hours), len(second.schemas), [one.topic for one in second.sources]) == (1, 1, ["other"])
    assert third.references == 1


def test_line_too_large_alone_loses_its_nulls() -> None:
    """They are statistics: a reader may count them; everything else stays."""
    kind = RecordType({f"k{n}": T.BOOL for n in range(300)})
    nulls = dict.fromkeys(kind.by_name, 1)
    ((whole,),) = written(part(entry_type=kind, nulls=nulls), merged=kind)
    assert dict(whole.nulls or ()) == dict.fromkeys(range(300), 1)
    users = [("ann", {}), ("bob", nulls), ("cem", {})]
    parts = [part(user, entry_type=kind, nulls=counts) for user, counts in users]
    ((before,), (cut, after)) = written(*parts, bytes_max=600, merged=kind)
    assert cut.nulls is None
    assert null_counts(cut, schema_of(kind)) is None
    assert cut.sources == whole.sources
    assert (before.nulls, after.nulls) == ((), ())


def test_roots_beyond_the_most_of_one_reference_are_cut() -> None:
    """And the line says so; those that are listed are in order."""
    roots: Roots = {("raw", n): [n, n + 1, 2] for n in reversed(range(ROOTS_MAX + 1))}
    ((one, other, none),) = written(
        part(roots=roots), part("bob", roots={("raw", 3): [1, 2, 1], ("a", 9): [4, 4, 1]}), part("cem")
    )
    assert (len(one.roots), one.roots_cut) == (ROOTS_MAX, True)
    assert [root.partition for root in one.roots] == [*range(ROOTS_MAX)]
    assert (other.roots, other.roots_cut) == ((RootRange("a", 9, 4, 4, 1), RootRange("raw", 3, 1, 2, 1)), False)
    assert (none.roots, none.roots_cut) == ((), False)
    ((most,),) = written(part(roots=dict([*roots.items()][1:])))
    assert (len(most.roots), most.roots_cut) == (ROOTS_MAX, False)


@pytest.mark.parametrize(("bytes_max", "listed"), [(600, 0), (200_000, 100)])
def test_roots_that_no_message_holds_are_cut_further(bytes_max: int, listed: int) -> None:
    """A hostile header names topics of control characters, six bytes each: a flush that can never be sent is none."""
    roots: Roots = {("\1" * 249, n): [n, n, 1] for n in range(ROOTS_MAX)}
    ((one,),) = written(part(roots=roots), bytes_max=bytes_max)
    assert (len(one.roots), one.roots_cut, one.nulls) == (listed, True, None)
    assert len(msgspec.json.encode(one.roots)) <= bytes_max


def test_spans_widen_in_any_order() -> None:
    """Roots come in no order."""
    spans: dict[Any, list[int]] = {}
    for offset in (5, 3, 9, 4):
        widen(spans, root_place(RootLink("raw", 1, offset)), offset)
    widen(spans, ("raw", 2), 7)
    assert spans == {("raw", 1): [3, 9, 4], ("raw", 2): [7, 7, 1]}
