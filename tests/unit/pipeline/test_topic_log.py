"""Slices are bounded by items and bytes, with offsets that never stand inside a message."""

from collections.abc import Iterable
from itertools import count

from log_partitioner.formats.model import PartitionKey, SourceRecord, TopicPartition
from log_partitioner.formats.reference import encode_message
from log_partitioner_pipeline.references import once, weigh
from log_partitioner_pipeline.topic_log import Bounds, Offsets, cut
from tests.pipeline.packs import KEY, Entry, write_object

BOUNDS = Bounds(items_max=10, bytes_max=1 << 30)
_NUMBERS = count()


def message(partition: int, offset: int, references: int) -> SourceRecord:
    """Announce so many references in one message."""
    entries = [Entry(PartitionKey(f"u{at}", *KEY[1:]), {"n": at}) for at in range(references)]
    value = encode_message(write_object(entries, batch_id=f"b{next(_NUMBERS)}").message)
    return SourceRecord(TopicPartition("references", partition), offset, 0, None, value, ())


def cuts(messages: Iterable[SourceRecord], stops: Offsets, bounds: Bounds = BOUNDS) -> list[tuple[int, Offsets]]:
    """Give the references and the offsets of each slice."""
    return [(len(once(one.items)), one.offsets) for one in cut(messages, {}, stops, take=weigh, bounds=bounds)]


def test_a_slice_has_as_many_references_as_it_may() -> None:
    """Three, three and four are ten; the message with the eleventh begins the next slice."""
    messages = [message(0, at, references) for at, references in enumerate([3, 3, 4, 1, 9])]
    assert cuts(messages, {0: 7}) == [(10, {0: 3}), (10, {0: 7})]
    assert cuts(messages[:4], {0: 4}) == [(10, {0: 3}), (1, {0: 4})]


def test_a_slice_has_as_many_bytes_as_it_may() -> None:
    """The bytes of messages and of their blocks count, whatever the number of references."""
    written = write_object(Entry(PartitionKey(f"u{at}", *KEY[1:]), {"n": at}) for at in range(5))
    value = encode_message(written.message)
    weight = len(value) + sum(one.location.ranges[-1][1] for one in written.references)
    messages = [message(0, offset, 1)._replace(value=value) for offset in range(5)]
    for most, ends in ((2 * weight, [2, 4, 5]), (2 * weight - 1, [1, 2, 3, 4, 5])):
        found = cuts(messages, {0: 5}, Bounds(items_max=1000, bytes_max=most))
        assert [offsets for _, offsets in found] == [{0: end} for end in ends]


def test_a_message_with_more_is_a_slice_of_its_own() -> None:
    """Offsets cannot stand inside it; neighbours do not join it."""
    messages = [message(0, at, references) for at, references in enumerate([1, 50, 1, 1])]
    assert cuts(messages, {0: 4}) == [(1, {0: 1}), (50, {0: 2}), (2, {0: 4})]


def test_partitions_come_forward_in_the_order_of_their_messages() -> None:
    """Each slice has the offsets of all partitions; a partition that has not come yet keeps its offset."""
    messages = [message(1, 7, 4), message(0, 0, 4), message(0, 1, 4), message(1, 9, 4)]
    found = list(cut(messages, {0: 0, 1: 7, 2: 3}, {0: 2, 1: 11, 2: 4}, take=weigh, bounds=BOUNDS))
    assert [one.offsets for one in found] == [{0: 1, 1: 8, 2: 3}, {0: 2, 1: 11, 2: 4}]


def test_markers_alone_move_the_offsets() -> None:
    """No message, and yet something to be behind."""
    assert cuts([], {0: 2}) == [(0, {0: 2})]


def test_a_reference_that_comes_again_is_one() -> None:
    """By its id; in another slice it comes again, and the table knows."""
    one = message(0, 0, 4)
    assert cuts([one, one._replace(offset=1)], {0: 2}) == [(4, {0: 2})]
