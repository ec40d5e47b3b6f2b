"""What bounds a slice: references and bytes, exactly, with offsets that never stand inside a message."""

import pyarrow as pa

from log_partitioner.formats.model import PartitionKey
from log_partitioner.formats.reference import encode_message
from log_partitioner_pipeline.reference_log import Bounds, Weight, begins_of, cut, weigh
from tests.pipeline.packs import KEY, Entry, write_object

BOUNDS = Bounds(references_max=10, bytes_max=1000)


def message(partition: int, offset: int, references: int, size: int = 10) -> Weight:
    """Weigh a message."""
    return Weight(partition, offset, references, size)


def test_a_slice_has_as_many_references_as_it_may() -> None:
    """Three, three and four are ten; what would be the eleventh begins the next."""
    weights = [message(0, 0, 3), message(0, 1, 3), message(0, 2, 4), message(0, 3, 1), message(0, 4, 9)]
    assert list(cut(weights, {0: 7}, BOUNDS)) == [{0: 3}, {0: 7}]
    assert list(cut(weights[:4], {0: 4}, BOUNDS)) == [{0: 3}, {0: 4}]


def test_a_slice_has_as_many_bytes_as_it_may() -> None:
    """Whatever the number of its references."""
    weights = [message(0, offset, 1, 400) for offset in range(5)]
    assert list(cut(weights, {0: 5}, BOUNDS)) == [{0: 2}, {0: 4}, {0: 5}]


def test_a_message_with_more_is_a_slice_of_its_own() -> None:
    """Offsets cannot stand inside it; neighbours do not join it."""
    weights = [message(0, 0, 1), message(0, 1, 5000), message(0, 2, 1), message(0, 3, 1)]
    assert list(cut(weights, {0: 4}, BOUNDS)) == [{0: 1}, {0: 2}, {0: 4}]


def test_partitions_come_forward_together() -> None:
    """The first messages of all, then the second ones; each partition in its order, whatever order they came in."""
    weights = [message(1, 7, 4), message(0, 0, 4), message(0, 1, 4), message(1, 9, 4), message(2, 3, 2)]
    assert list(cut(weights, {0: 2, 1: 11, 2: 4}, BOUNDS)) == [{0: 1, 1: 8, 2: 4}, {0: 2, 1: 11, 2: 4}]


def test_markers_alone_move_the_offsets() -> None:
    """No message, and yet something to be behind."""
    assert list(cut([], {0: 2}, BOUNDS)) == [{0: 2}]


def test_a_partition_begins_at_its_first_message() -> None:
    """Without one there is nothing before the end; no offset stands for another, since each may be committed."""
    weights = [message(0, 9, 1), message(0, 5, 1), message(2, 0, 1)]
    assert begins_of(weights, {0: 11, 1: 0, 2: 2}) == {0: 5, 1: 0, 2: 0}


def test_a_message_weighs_its_lines_and_their_blocks() -> None:
    """Beside its own bytes; one that nobody can read, and one without a value, weigh no more than they are."""
    written = write_object(Entry(PartitionKey(f"u{at}", *KEY[1:]), {"n": at}) for at in range(5))
    value = encode_message(written.message)
    values = [value, b"none of ours", None]
    batch = pa.RecordBatch.from_pylist([{"partition": 0, "offset": at, "value": one} for at, one in enumerate(values)])
    (weighed,) = weigh([batch])
    blocks = len(written.content) - written.message.object.header_bytes
    assert [Weight(**row) for row in weighed.to_pylist()] == [
        message(0, 0, 5, len(value) + blocks),
        message(0, 1, 0, len(b"none of ours")),
        message(0, 2, 0, 0),
    ]
