"""Records that the client library cannot read, on its mock cluster: no later record is handed over (DESIGN 4.8)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from threading import Event
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError

from log_partitioner.adapters.kafka import topics as kafka_topics
from log_partitioner.adapters.kafka.consumer import KafkaConsumer
from log_partitioner.adapters.kafka.options import PINNED_CONSUMER
from log_partitioner.adapters.kafka.topics import Search
from log_partitioner.boundary import END_OFFSET
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import SourceError, StartPositionError, StopError
from log_partitioner.formats.model import CommittedOffset, SourceRecord, TopicPartition
from tests.contract.mock_cluster import MockCluster, batch, old_message
from tests.fakes.listener import Listener

TP = TopicPartition("source", 0)
BEGINNING = CommittedOffset(0)
WAIT_S = 30.0
GOOD = (batch(b"a", b"b"), batch(b"g"))
DAMAGES = {
    "checksum": (batch(b"c", b"d", b"e", b"f", is_flipped=True), "_BAD_MSG"),
    "unknown codec": (batch(b"c", b"d", b"e", b"f", codec=7), "_NOT_IMPLEMENTED"),
    "gzip": (batch(b"c", b"d", b"e", b"f", codec=1), "_BAD_COMPRESSION"),
    "snappy": (batch(b"c", b"d", b"e", b"f", codec=2), "_BAD_COMPRESSION"),
    "lz4": (batch(b"c", b"d", b"e", b"f", codec=3), "_BAD_COMPRESSION"),
    "zstd": (batch(b"c", b"d", b"e", b"f", codec=4), "_BAD_COMPRESSION"),
    "magic byte": (batch(b"c", b"d", b"e", b"f", magic=3), "_NOT_IMPLEMENTED"),
}
# The client library maps these of a fetch each in a way of its own; all others alike.
MAPPED = tuple(
    getattr(KafkaError, name)
    for name in (
        *("UNKNOWN_TOPIC_OR_PART", "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "BROKER_NOT_AVAILABLE"),
        *("REPLICA_NOT_AVAILABLE", "KAFKA_STORAGE_ERROR", "UNKNOWN_LEADER_EPOCH", "FENCED_LEADER_EPOCH"),
        *("TOPIC_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_ID", "INVALID_MSG", "UNKNOWN"),
    )
)
_CODES = sorted(
    code for name, code in vars(KafkaError).items() if name.isupper() and type(code) is int and (code > 1 or code == -1)
)
CODES = [tuple(islice(_CODES, first, first + 16)) for first in range(0, len(_CODES), 16)]


def first_quick(names: Iterable[str]) -> list[Any]:
    """Give cases of which the first is quick enough for `make test`: one of each sweep."""
    return [pytest.param(name, marks=pytest.mark.slow if at else []) for at, name in enumerate(names)]


def soon() -> Deadline:
    """Give a deadline of the real clock."""
    return Deadline.after(WAIT_S, time.monotonic)


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    """Give a mock cluster of its own."""
    with MockCluster("source") as cluster:
        yield cluster


def options_of(cluster: MockCluster) -> dict[str, Any]:
    """Give a client's options as the worker and `offsets skip` have them."""
    return {
        **PINNED_CONSUMER,
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "group",
        "log_level": 0,
        "partition.assignment.strategy": "cooperative-sticky",
        "fetch.error.backoff.ms": 20,
        "fetch.wait.max.ms": 20,
    }


def readable_from(cluster: MockCluster, offset: int) -> int:
    """Look for the first offset that can be read, as `offsets skip` does."""
    consumer = KafkaConsumer(options_of(cluster), ["source"])
    try:
        end = consumer.offsets_at([TP], END_OFFSET, deadline=soon())[TP]
    finally:
        consumer.close()
    return Search(options_of(cluster), TP, soon()).readable_from(offset, end)


@contextmanager
def reading(cluster: MockCluster, *, start: CommittedOffset = BEGINNING) -> Iterator[KafkaConsumer]:
    """Give the adapter as it joins the group; it begins at the beginning unless told otherwise."""
    consumer = KafkaConsumer(options_of(cluster), ["source"])
    try:
        listener, deadline = Listener(), soon()
        consumer.subscribe(listener)
        while TP not in listener.owned and not deadline.has_passed():
            assert not consumer.consume(records_max=1, timeout_s=0.05)
        consumer.seek(TP, start, deadline=deadline)
        yield consumer
    finally:
        consumer.close()


def read(consumer: KafkaConsumer, *, to: int, longer_s: float = 0.3) -> list[SourceRecord]:
    """Consume until offset `to` has come, or something has failed; then a little longer."""
    deadline = soon()
    found: list[SourceRecord] = []
    while not deadline.has_passed() and not consumer.failures() and not (found and found[-1].offset >= to):
        found += consumer.consume(records_max=100, timeout_s=0.05)
    return [*found, *consumer.consume(records_max=100, timeout_s=longer_s)]


@pytest.mark.parametrize("damage", first_quick(DAMAGES))
def test_nothing_behind_what_cannot_be_read_is_handed_over(cluster: MockCluster, damage: str) -> None:
    """The library may go on to deliver later records; a seek to the bad record fails again."""
    bad, code = DAMAGES[damage]
    for records in (GOOD[0], bad, GOOD[1]):
        cluster.append(records)
    with reading(cluster) as consumer:
        assert [one.value for one in read(consumer, to=6)] == [b"a", b"b"]
        assert (2, code) == consumer.failures()[TP][:2]
        for _ in range(3):
            consumer.seek(TP, CommittedOffset(2), deadline=soon())
            assert ([], code) == (read(consumer, to=6), consumer.failures()[TP].code)
        consumer.seek(TP, CommittedOffset(6), deadline=soon())
        assert [one.value for one in read(consumer, to=6)] == [b"g"]


def test_what_is_assigned_anew_begins_where_it_is_told(cluster: MockCluster) -> None:
    """However soon it is told: a seek alone went to the end of the log, in a third of all times (KAFKA_FACTS R19)."""
    for records in GOOD[:2]:
        cluster.append(records)
    with reading(cluster) as consumer:
        for epoch in (None, 0) * 6:
            consumer.seek(TP, CommittedOffset(1, epoch), deadline=soon())
            assert [one.offset for one in read(consumer, to=1, longer_s=0.05)][:1] == [1]


def test_nothing_behind_an_old_message_that_cannot_be_read_is_handed_over(cluster: MockCluster) -> None:
    """The library would skip a broken message outside a batch and go on; the adapter stops there."""
    for records in (old_message(b"a"), old_message(b"b", is_flipped=True), old_message(b"c")):
        cluster.append(records)
    with reading(cluster) as consumer:
        assert [one.value for one in read(consumer, to=2)] == [b"a"]
        assert consumer.failures()[TP][:2] == (1, "_BAD_MSG")
    assert readable_from(cluster, 1) == 2


@pytest.mark.parametrize("damage", first_quick(name for name in DAMAGES if name != "magic byte"))
@pytest.mark.parametrize("first", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_first_offset_that_can_be_read_again_is_found(cluster: MockCluster, damage: str, first: int) -> None:
    """Behind two broken batches, and not later: exactly where the next good one begins."""
    bad, _ = DAMAGES[damage]
    for records in (GOOD[0], bad, batch(*[b"x"] * 100, is_flipped=True), GOOD[1], bad, GOOD[1]):
        cluster.append(records)
    assert readable_from(cluster, first) == 106
    assert readable_from(cluster, 107) == 111


def test_end_of_the_log_can_always_be_read(cluster: MockCluster) -> None:
    """If the broken batch is the last, the worker goes on at the log's end, where later records will be."""
    for records in (GOOD[0], batch(b"c", b"d", is_flipped=True)):
        cluster.append(records)
    assert readable_from(cluster, 2) == 4


@pytest.mark.slow
def test_client_that_never_returns_from_close_holds_up_no_search(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that has read garbage behind a broken batch: the search goes on, and so does the worker."""
    for records in (GOOD[0], batch(b"c", is_flipped=True), GOOD[1]):
        cluster.append(records)
    clients: list[Any] = []
    ended = Event()

    class Stuck(Consumer):
        def close(self) -> None:
            clients.append(self)  # kept: it would be closed when it is forgotten
            ended.wait(WAIT_S)

    monkeypatch.setattr(kafka_topics, "make_client", lambda _kind, _name, options: Stuck(options))
    begun_s = time.monotonic()
    assert readable_from(cluster, 2) == 3
    assert time.monotonic() - begun_s < WAIT_S / 2
    ended.set()
    for client in clients:
        Consumer.close(client)


@pytest.mark.slow
def test_unknown_magic_byte_hides_where_its_batch_ends(cluster: MockCluster) -> None:
    """The library says nothing of it but at its first offset: a person has to know where it ends."""
    for records in (GOOD[0], DAMAGES["magic byte"][0], GOOD[1]):
        cluster.append(records)
    with pytest.raises(SourceError, match="name it by --to"):
        readable_from(cluster, 2)


@pytest.mark.parametrize("name", [b"\xff\xfe", b"a\xc3", "a\N{REPLACEMENT CHARACTER}".encode()])
def test_header_name_that_is_not_utf_8_is_told_of_its_record_alone(cluster: MockCluster, name: bytes) -> None:
    """The binding raises or returns a list with a hole in it; the record's value, key and neighbours are as they are.

    A name that others would make of such a one counts as such: for them the two are the same.
    """
    cluster.append(GOOD[0])
    cluster.append(batch(b"c", headers=[(b"fine", b"1"), (name, b"2")]))
    cluster.append(batch(b"d", headers=[("fän".encode(), b"1")]))
    with reading(cluster) as consumer:
        found = read(consumer, to=3)
    assert [one.value for one in found] == [b"a", b"b", b"c", b"d"]
    assert [one.unreadable for one in found] == [None, None, "the name of a header is not UTF-8", None]
    assert [one.headers for one in found[2:]] == [(), (("fän", b"1"),)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "codes",
    [
        pytest.param(MAPPED, id="mapped"),
        *(pytest.param(codes, id=f"{codes[0]}-{codes[-1]}", marks=pytest.mark.sweep) for codes in CODES),
    ],
)
def test_no_error_of_a_fetch_passes_anything_over(cluster: MockCluster, codes: tuple[int, ...]) -> None:
    """Each code of the broker: either all records come, in order, or the adapter has failed or stopped before them."""
    cluster.append(GOOD[1])
    with reading(cluster) as consumer:
        assert [one.offset for one in read(consumer, to=0)] == [0]
        for offset, code in enumerate(codes, 1):
            cluster.fail_fetches(code)
            cluster.append(GOOD[1])
            found = read_at_last(consumer, offset)
            assert [offset] == [one.offset for one in found], f"error {code}"


def test_offset_out_of_range_stops(cluster: MockCluster) -> None:
    """The records between it and the log's end are not known."""
    cluster.append(GOOD[1])
    cluster.fail_fetches(KafkaError.OFFSET_OUT_OF_RANGE)
    with reading(cluster) as consumer, pytest.raises(StartPositionError, match="source-0 is out of range"):
        read(consumer, to=0)


def test_offset_out_of_range_behind_what_was_read_stops_once_it_was_sought(cluster: MockCluster) -> None:
    """The library may have gone there by itself: its error counts only if the worker has sought that offset."""
    cluster.append(GOOD[1])
    with reading(cluster) as consumer:
        assert [one.offset for one in read(consumer, to=0)] == [0]
        cluster.fail_fetches(KafkaError.OFFSET_OUT_OF_RANGE)
        assert read(consumer, to=1) == []
        assert consumer.failures()[TP].offset == 1
        cluster.fail_fetches(*[KafkaError.OFFSET_OUT_OF_RANGE] * 2)  # a first answer may come before it is resumed
        consumer.seek(TP, CommittedOffset(1), deadline=soon())
        with pytest.raises(StartPositionError, match="source-0 is out of range"):
            read(consumer, to=1)


@pytest.mark.parametrize("leader_epoch", [0, 1])
def test_start_below_which_the_log_was_rewritten_is_refused(cluster: MockCluster, leader_epoch: int) -> None:
    """The start's epoch ended before its offset; a start of the current epoch is read."""
    cluster.append(batch(b"a", b"b", b"c", b"d"))
    cluster.elect()
    cluster.append(batch(*[b"e"] * 9))
    with reading(cluster, start=CommittedOffset(10, leader_epoch)) as consumer:
        if leader_epoch == 1:
            assert [one.offset for one in read(consumer, to=12)] == [10, 11, 12]
            return
        with pytest.raises(StartPositionError, match=r"source-0 was rewritten.*broker end offset is 4 "):
            read(consumer, to=12)


def read_at_last(consumer: KafkaConsumer, offset: int) -> list[SourceRecord]:
    """Read to this offset, from there again after a failure, or a stop."""
    try:
        found = read(consumer, to=offset, longer_s=0)
        if not (failure := consumer.failures().get(TP)):
            return found
        assert (offset, []) == (failure.offset, found)
    except StopError:
        pass
    consumer.seek(TP, CommittedOffset(offset), deadline=soon())
    return read(consumer, to=offset, longer_s=0)
