"""A topic read in slices, for jobs that keep its offsets themselves.

Owns the bounds of slices, and the check that offsets fit the topic. A message of one object has one reference, that of
a pack thousands; so slices are bounded by items and bytes. Offsets never stand inside a message, so one that alone has
more is a slice of its own.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from log_partitioner.adapters.kafka.topics import Ends, KafkaTopics
from log_partitioner.formats.model import TopicPartition
from log_partitioner_pipeline.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from log_partitioner.config.settings import KafkaSettings
    from log_partitioner.formats.model import SourceRecord

Offsets = dict[int, int]
"""Next offset by partition of the topic."""
T = TypeVar("T")


class AtPlace(Protocol):
    """A message that stands at a place of a topic."""

    @property
    def tp(self) -> TopicPartition:
        """Its partition."""

    @property
    def offset(self) -> int:
        """Its offset."""


M = TypeVar("M", bound=AtPlace)


class Bounds(NamedTuple):
    """Bounds of a slice, unless its only message is larger."""

    items_max: int
    bytes_max: int = 256 * 1024 * 1024


class Slice(NamedTuple, Generic[T]):
    """Items of committed messages, such as references, and the offsets behind these messages."""

    items: list[T]
    offsets: Offsets


class Items(NamedTuple, Generic[T]):
    """The items of one message, and the bytes that they weigh."""

    items: list[T]
    size: int


def read_slices(
    settings: KafkaSettings,
    topic: str,
    offsets: Offsets,
    ends: dict[int, Ends],
    *,
    take: Callable[[SourceRecord], Items[T]],
    bounds: Bounds,
) -> Iterator[Slice[T]]:
    """Read on from these offsets to these ends; each slice is read when the caller takes it. None if nothing is new.

    A partition that has no offset yet begins at its beginning. The last slice goes to the ends, behind the markers of
    transactions, too, and may have no item.

    Raises:
        CouldNotTellError: no broker answers.
    """
    reached = {number: end.first for number, end in ends.items()} | offsets
    stops = {number: end.next for number, end in ends.items() if reached[number] < end.next}
    if stops:
        ranges = {TopicPartition(topic, number): (reached[number], stop) for number, stop in stops.items()}
        with KafkaTopics.of(settings) as topics:
            yield from cut(topics.read(ranges), reached, stops, take=take, bounds=bounds)


def cut(
    messages: Iterable[M],
    starts: Offsets,
    stops: Offsets,
    *,
    take: Callable[[M], Items[T]],
    bounds: Bounds,
) -> Iterator[Slice[T]]:
    """Cut messages into slices; the offsets of the last one are `stops`."""
    reached, items, size = dict(starts), list[T](), 0
    for message in messages:
        more = take(message)
        if size and (len(items) + len(more.items) > bounds.items_max or size + more.size > bounds.bytes_max):
            yield Slice(items, dict(reached))
            items, size = [], 0
        items += more.items
        size += more.size
        reached[message.tp.partition] = message.offset + 1
    yield Slice(items, reached | stops)


def count_behind(offsets: Offsets, ends: dict[int, Ends]) -> int:
    """Count the offsets between these and the ends."""
    return sum(max(0, end.next - offsets.get(number, end.first)) for number, end in ends.items())


def lost_ranges(offsets: Offsets, ends: dict[int, Ends]) -> dict[int, tuple[int, int]]:
    """Return [first, next) offsets by partition that are gone and were not read.

    A reader that has begun has an offset for every partition of that time: a partition without one is new, and begins
    at 0.
    """
    reached = {number: offsets.get(number, 0) for number in ends if offsets}
    return {number: (at, ends[number].first) for number, at in reached.items() if at < ends[number].first}


def require_unbroken(offsets: Offsets, ends: dict[int, Ends], topic: str) -> None:
    """Refuse to go on if messages are gone that were not read, or the topic is another one.

    Raises:
        PipelineError: it names the partitions.
    """
    lost = lost_ranges(offsets, ends)
    if lost:
        raise PipelineError(
            f"messages of {topic} were deleted before they were read: {acknowledging(topic, lost)} passes over them"
        )
    ahead = [number for number, offset in offsets.items() if number not in ends or offset > ends[number].next]
    if ahead:
        raise PipelineError(
            f"{topic} ends before the offsets that were read, in partitions {ahead}: it is another topic of that name"
        )


def acknowledging(topic: str, spans: Mapping[int, tuple[int, int]]) -> str:
    """Write the command that acknowledges [first, next) offsets by partition; its reason is the person's."""
    return f"acknowledge --offsets '{json.dumps({topic: {str(number): span for number, span in spans.items()}})}'"
