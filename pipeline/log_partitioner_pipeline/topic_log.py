"""The references topic read in slices, for jobs that keep their offsets themselves.

Owns the bounds of slices, and the check that offsets fit the topic. A message of one object has one reference, that of
a pack thousands; so slices are bounded by references and bytes. Offsets never stand inside a message, so one that alone
has more is a slice of its own; its rows are read by several tasks and in bounded Arrow batches all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from log_partitioner.adapters.kafka.topics import Ends, KafkaTopics
from log_partitioner.formats.model import TopicPartition
from log_partitioner.formats.reference import Reference
from log_partitioner_pipeline.errors import PipelineError
from log_partitioner_pipeline.references import decode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from log_partitioner.config.settings import KafkaSettings
    from log_partitioner.formats.model import SourceRecord

Offsets = dict[int, int]
"""Next offset by partition of the references topic."""


class Bounds(NamedTuple):
    """Bounds of a slice, unless its only message is larger."""

    references_max: int
    bytes_max: int = 256 * 1024 * 1024


class Slice(NamedTuple):
    """References of committed messages, each id once, and the offsets behind them."""

    references: list[Reference]
    offsets: Offsets


def read_slices(
    settings: KafkaSettings, topic: str, offsets: Offsets, ends: dict[int, Ends], bounds: Bounds
) -> Iterator[Slice]:
    """Read on from these offsets to these ends; each slice is read when the caller takes it. None if nothing is new.

    A partition that has no offset yet begins at its beginning. The last slice goes to the ends, behind the markers of
    transactions, too, and may have no reference.

    Raises:
        PipelineError: a message is none of references in a known version.
        CouldNotTellError: no broker answers.
    """
    reached = {number: end.first for number, end in ends.items()} | offsets
    stops = {number: end.next for number, end in ends.items() if reached[number] < end.next}
    if stops:
        ranges = {TopicPartition(topic, number): (reached[number], stop) for number, stop in stops.items()}
        with KafkaTopics.of(settings) as topics:
            yield from cut(topics.read(ranges), reached, stops, bounds)


def cut(messages: Iterable[SourceRecord], starts: Offsets, stops: Offsets, bounds: Bounds) -> Iterator[Slice]:
    """Cut messages into slices; the offsets of the last one are `stops`."""
    reached, references, size = dict(starts), dict[str, Reference](), 0
    for message in messages:
        found = decode([message])
        more = message.size + sum(one.location.ranges[-1][1] for one in found)
        if size and (len(references) + len(found) > bounds.references_max or size + more > bounds.bytes_max):
            yield Slice(list(references.values()), dict(reached))
            references, size = {}, 0
        references |= {one.reference_id: one for one in found if one.reference_id not in references}
        size += more
        reached[message.tp.partition] = message.offset + 1
    yield Slice(list(references.values()), reached | stops)


def count_behind(offsets: Offsets, ends: dict[int, Ends]) -> int:
    """Count the offsets between these and the ends."""
    return sum(max(0, end.next - offsets.get(number, end.first)) for number, end in ends.items())


def require_unbroken(offsets: Offsets, ends: dict[int, Ends], topic: str) -> None:
    """Refuse to go on if references are gone that were not read, or the topic is another one.

    A reader that has begun has an offset for every partition of that time: a partition without one is new, and begins
    at 0.

    Raises:
        PipelineError: it names the partitions.
    """
    gone = [number for number, end in ends.items() if offsets and offsets.get(number, 0) < end.first]
    if gone:
        raise PipelineError(
            f"references of {topic} were deleted before they were read: partitions {gone} begin at "
            f"{[ends[number].first for number in gone]}, read up to {[offsets.get(number, 0) for number in gone]}"
        )
    ahead = [number for number, offset in offsets.items() if number not in ends or offset > ends[number].next]
    if ahead:
        raise PipelineError(
            f"{topic} ends before the offsets that were read, in partitions {ahead}: it is another topic of that name"
        )
