"""Every message of a flush is within `kafka.message_bytes_max`, whatever records, names and settings are at their most.

The rules are the worker's own, as they follow from settings; store, spool and broker are fakes. The test puts messages
together that were split or stored apart, as a reader does, and nothing is missing.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from log_partitioner.batch.messages import message_bytes
from log_partitioner.formats.dead_letter import decode_stored_record, parse_headers
from log_partitioner.formats.flush_record import decode_flush_record, merge_parts
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.formats.reference import decode_references
from log_partitioner.partitioning.partitioner import USER_CHARS_MAX
from tests.fakes.hostile import DEAD_LETTERS, FEW, FLUSHES, MOST, REFERENCES, Deployment, Sizes, fill

sizes = st.builds(
    Sizes,
    message_bytes_max=st.sampled_from([100_000, 150_000, 900_000]),
    name=st.sampled_from(["a", "é", "\x01", "\N{GRINNING FACE}"]),
    topic_partitions=st.sampled_from([1, 60, 700, 3_000]),
    topics=st.sampled_from([1, 60, 700]),
    users=st.sampled_from([1, 5, 40]),
    user=st.sampled_from(["ann", '"' * USER_CHARS_MAX, "\N{GRINNING FACE}" * 1_000, MOST.user]),
    fields=st.sampled_from([0, 60, 900]),
    bad_entries=st.sampled_from([0, 3, 3_000, 20_000, 100_000]),
    key_bytes=st.sampled_from([0, 50_000, 90_000, 300_000]),
    header_bytes=st.sampled_from([0, 50_000, 440_000]),
    headers=st.sampled_from([0, 1, 5_000]),
    value_bytes=st.sampled_from([0, 60_000, 800_000]),
)


def check_dead_letters(deployment: Deployment, records: list[SourceRecord]) -> None:
    """Each entry is named once, and each letter leads to key, value and headers of its record."""
    named: Counter[tuple[str, int, int, int]] = Counter()
    by_place = {(record.tp.topic, record.tp.partition, record.offset): record for record in records}
    for letter in deployment.broker.messages(DEAD_LETTERS):
        says = parse_headers(letter.headers)
        record = by_place[says.topic, says.partition, says.offset]
        own = tuple(letter.headers[: [name for name, _ in letter.headers].index("lp-reason")])
        key, value = letter.key, letter.value
        if says.object_key is not None:
            body = deployment.bucket.objects[says.object_key]
            value = body
            if says.object_key.endswith(".record.json"):
                whole = decode_stored_record(body)
                key, value, own = whole.key, whole.value, tuple(whole.headers)
        assert (key, value, own) == (record.key, record.value, record.headers)
        for index in (0,) if says.indexes is None else says.indexes:
            named[says.topic, says.partition, says.offset, index] += 1
    assert set(named.values()) <= {1}
    bad = deployment.size.bad_entries
    assert named.total() == (2 * bad + 1 if records else 0)


def check_references(deployment: Deployment) -> None:
    """Every entry is announced, of the TopicPartition that it came from."""
    named: Counter[TopicPartition] = Counter()
    for message in deployment.broker.messages(REFERENCES):
        for reference in decode_references(message.value or b""):
            assert sum(one.entries for one in reference.sources) == reference.entries
            for source in reference.sources:
                named[TopicPartition(source.topic, source.partition)] += source.entries
    users = deployment.size.users
    assert named == {tp: 1 + (number < users) for number, tp in enumerate(deployment.tps)}


@pytest.mark.slow
@settings(max_examples=25)
@given(sizes)
@example(MOST)
@example(MOST._replace(message_bytes_max=900_000))
@example(FEW)
def test_every_message_of_a_flush_is_within_its_limit(size: Sizes) -> None:
    """However large indexes, headers, key, users, names, schemas and numbers of TopicPartitions are together."""
    deployment = Deployment(size)
    dead = fill(deployment)
    deployment.flush()
    messages = deployment.broker.transactions[-1].messages
    assert max(map(message_bytes, messages)) <= size.message_bytes_max
    check_references(deployment)
    check_dead_letters(deployment, dead)
    parts = [decode_flush_record(message.value or b"") for message in deployment.broker.messages(FLUSHES)]
    (record,), problems = merge_parts(parts)
    assert problems == []
    assert [TopicPartition(one.topic, one.partition) for one in record.topic_partitions] == sorted(deployment.tps)
    assert record.topic_ids.keys() == {tp.topic for tp in deployment.tps}
    assert record.totals.dead_letter_records == len(deployment.broker.messages(DEAD_LETTERS))
    assert record.totals.references == sum(
        len(decode_references(message.value or b"")) for message in deployment.broker.messages(REFERENCES)
    )


def test_record_of_several_letters_is_stored_once() -> None:
    """Dead letters that have no room for their record name one object; one with few indexes has room for a key."""
    deployment = Deployment(FEW._replace(bad_entries=100_000, value_bytes=500_000))
    dead = fill(deployment)
    deployment.flush()
    check_dead_letters(deployment, dead)
    letters = [parse_headers(message.headers) for message in deployment.broker.messages(DEAD_LETTERS)]
    by_record: dict[tuple[int, int], set[str | None]] = {}
    for says in letters:
        by_record.setdefault((says.partition, says.offset), set()).add(says.object_key)
    assert len(letters) > 10
    assert max(map(len, by_record.values())) <= 2
    assert len([key for key in deployment.bucket.puts if "/_dead-letters/" in key]) <= 4
