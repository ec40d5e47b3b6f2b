"""One task of a backfill writes every entry once, under numbers of its own, each PartitionKey's lines in order."""

import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import fastavro
import msgspec
import pytest

from log_partitioner.config.settings import Settings
from log_partitioner.formats.dead_letter import Reason, parse_headers
from log_partitioner.formats.model import PartitionKey, TopicPartition
from log_partitioner.formats.reference import Reference, decode_message, decode_references
from log_partitioner_pipeline.backfill.memory_spool import MemorySpool
from log_partitioner_pipeline.backfill.outbox import Outbox, OutboxMessage, Run
from log_partitioner_pipeline.backfill.publish import advance, beginning
from log_partitioner_pipeline.backfill.split import PIECE, rules_of, split
from log_partitioner_pipeline.backfill.write import LINES_MAX, Writer, _parts
from tests.contract.http_s3 import HttpS3, serve

TP = TopicPartition("logs", 3)
AT_MS = 1_772_600_000_000
RUN = Run("r1", AT_MS, "group", "references", "dead-letters", {TP: range(10, 900)}, {}, {})
USERS = [f"user-{number}" for number in range(12)]
RECORDS: list[list[dict[str, Any]]] = [
    [
        {"user": USERS[(at + k) % 12], "time": f"2026-03-04T{5 + at % 2:02}:06:07Z", "n": at, "x": k or "text", "k": k}
        for k in range(3)
    ]
    for at in range(100)
]


@pytest.fixture
def store() -> Iterator[HttpS3]:
    """An S3 of this test's own."""
    with serve() as running:
        yield running


def settings_of(store: HttpS3, **further: Any) -> Settings:
    """Give a worker's settings: rows of two dozen records fill the memory."""
    s3 = {"bucket": "data", "endpoint_url": store.url, "access_key": "a", "secret_key": "s"}
    kafka = {"bootstrap_servers": "127.0.0.1:1", "source_topics": ["logs"]}
    spool = {"memory_bytes_max": 32 * 1024}
    return Settings.model_validate({"s3": s3, "kafka": kafka, "spool": spool, "time": {"paths": ["time"]}, **further})


def pieces_of(values: list[bytes], settings: Settings) -> list[dict[str, Any]]:
    """Split records as one task would get them, sorted."""
    rules = rules_of(settings)
    row = {
        "topic": TP.topic,
        "partition": TP.partition,
        "timestamp_ms": AT_MS,
        "key": None,
        "headers": None,
        "held": None,
    }
    blank: dict[str, Any] = dict.fromkeys(PIECE.names)
    pieces = [
        blank | piece
        for at, value in enumerate(values)
        for piece in split(row | {"offset": 10 + at, "value": value}, rules)
    ]
    return sorted(
        pieces, key=lambda one: (one["date"] or "", one["hour"] or 0, one["user"] or "", one["offset"], one["reason"])
    )


def written(values: list[bytes], settings: Settings, *, task: int = 0) -> list[OutboxMessage]:
    """Write records as one task."""
    with ThreadPoolExecutor(2) as pool:
        return list(Writer(RUN, settings, pool, task=task).write(pieces_of(values, settings)))


def encoded(records: list[list[dict[str, Any]]]) -> list[bytes]:
    """Give records as they are in the source."""
    return [json.dumps(record).encode() for record in records]


def references_of(messages: list[OutboxMessage]) -> list[Reference]:
    """Decode all references."""
    return [one for message in messages for one in decode_references(message.value or b"")]


def rows_of(store: HttpS3, one: Reference) -> list[Any]:
    """Read the rows of a reference, by its ranges alone."""
    data = store.read(one.location.object)
    assert data is not None
    file = b"".join(data[start : start + length] for start, length in one.location.ranges)
    return list(fastavro.reader(io.BytesIO(file)))


@pytest.mark.parametrize("layout", ["auto", "pack", "file"])
def test_every_entry_is_in_one_row_of_its_partition_key(store: HttpS3, layout: str) -> None:
    """This holds for each layout; ranges are the run's, and rows of one PartitionKey stand in order over all lines."""
    references = references_of(written(encoded(RECORDS), settings_of(store, layout=layout)))
    found: dict[tuple[int, int], tuple[PartitionKey, int]] = {}
    last: dict[PartitionKey, tuple[int, int]] = {}
    for one in references:
        rows = rows_of(store, one)
        assert one.entries == len(rows)
        assert [(one.first_offset, one.next_offset) for one in one.sources] == [(10, 900)]
        for row in rows:
            meta = row["_meta"]
            place = meta["offset"], meta["index"]
            assert place > last.get(one.partition_key, (0, 0))
            last[one.partition_key] = place
            found[place] = one.partition_key, row["n"]
    assert found == {
        (10 + at, k): (PartitionKey(entry["user"], "2026-03-04", 5 + at % 2), at)
        for at, record in enumerate(RECORDS)
        for k, entry in enumerate(record)
    }
    assert sum(one.entries for one in references) == 300
    assert (len({one.location.object for one in references}) == len(references)) == (layout == "file")


def test_numbers_are_of_one_task_and_ascend(store: HttpS3) -> None:
    """Over several fillings of the memory; another task has others, another attempt of the same one the same."""
    settings = settings_of(store)
    ids = []
    for task in (0, 7, 7):
        messages = written(encoded(RECORDS), settings, task=task)
        assert len({decode_message(one.value or b"").object.key for one in messages}) > 1
        references = references_of(messages)
        first = task * LINES_MAX
        assert [one.reference_id for one in references] == [
            f"backfill-r1-{number}" for number in range(first, first + len(references))
        ]
        assert {one.key for one in messages} == {b"backfill-r1"}
        ids.append(({one.reference_id for one in references}, {one.location.object for one in references}))
    (of_zero, _), (of_seven, objects), (again, objects_again) = ids
    assert of_zero.isdisjoint(of_seven)
    assert of_seven == again
    assert objects.isdisjoint(objects_again)


def test_dead_entries_are_dead_letters(store: HttpS3) -> None:
    """By reason and record; one that is too large for its topic is an object."""
    half = [*RECORDS[0][:1], {"time": "2026-03-04T05:06:07Z"}]
    large = b"[" + b" " * 2_000_000 + b'{"time": "2026-03-04T05:06:07Z"}]'
    messages = written([b"no JSON", json.dumps(half).encode(), large], settings_of(store))
    says = [parse_headers(one.headers) for one in messages if one.topic == RUN.dead_letters_topic]
    assert [(one.offset, one.reason, one.indexes) for one in says] == [
        (10, Reason.MALFORMED, None),
        (11, Reason.NO_USER, (1,)),
        (12, Reason.NO_USER, (0,)),
    ]
    assert [store.read(one.object_key) for one in says if one.object_key] == [large]
    assert [one.entries for one in references_of(messages[len(says) :])] == [1]


def test_part_of_the_outbox_is_bounded_by_messages_and_by_bytes() -> None:
    """A message may be as large as its topic takes: a thousand of these are not one part."""
    sizes = [10, 10, 10, 10, 95, 200, 1, 1]
    messages = (OutboxMessage("t", None, b"x" * size, []) for size in sizes)
    parts = _parts(messages, messages_max=3, bytes_max=100)
    assert [[one.size for one in part] for part in parts] == [[10, 10, 10], [10, 95], [200], [1, 1]]


def test_record_counts_an_object_of_several_messages_once(store: HttpS3) -> None:
    """`bytes` are those of objects, `references` lines, `published` messages."""
    settings = settings_of(store, layout="pack", spool={"memory_bytes_max": 2**30})
    wholes = written(encoded(RECORDS), settings)
    messages = [decode_message(one.value or b"") for one in wholes]
    halves = [
        msgspec.structs.replace(message, first_number=message.first_number + at, references=message.references[at:end])
        for message in messages
        for at, end in ((0, 5), (5, None))
    ]
    before = beginning(Outbox(RUN, (), "digest"))
    for half in halves:
        announced = msgspec.structs.replace(wholes[0], value=msgspec.json.encode(half))
        before = advance(before, [announced], RUN, at_ms=1)
    totals = before.totals
    assert (before.published, totals.references, totals.entries_in_files) == (len(halves), 24, 300)
    assert totals.bytes == sum(message.object.size for message in messages)
    assert [line.entries_in_files for line in before.topic_partitions] == [300]


def test_memory_spool_gives_back_what_it_was_given() -> None:
    """Pieces in any order, an object with its checksums, nothing after it was deleted."""
    spool = MemorySpool()
    pieces = [spool.append(data) for data in (b"one", b"", b"three")]
    assert [spool.read(piece) for piece in reversed(pieces)] == [b"three", b"", b"one"]
    file = spool.create(4)
    file.write(b"ab")
    file.write(b"c")
    assert file.size == 3
    sealed = file.finish()
    assert (spool.load(sealed), sealed.size) == (b"abc", 3)
    spool.delete()
    with pytest.raises(KeyError):
        spool.load(sealed)
