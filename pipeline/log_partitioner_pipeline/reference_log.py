"""The references topic read in slices, for jobs that keep their offsets themselves.

Owns the bounds of slices, and the check that offsets fit the topic. A message of one object has one reference, that of
a pack thousands; so slices are bounded by references and bytes. Offsets never stand inside a message, so one that alone
has more is a slice of its own; its rows are read by several tasks and in bounded Arrow batches all the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from log_partitioner.formats.reference import decode_message
from log_partitioner_pipeline.errors import PipelineError
from log_partitioner_pipeline.kafka import spark_options
from log_partitioner_pipeline.references import MessageAt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from log_partitioner.adapters.kafka.topics import Ends
    from log_partitioner.config.settings import KafkaSettings

WEIGHED_AT_ONCE = 10_000
"""Offsets whose messages are weighed at once; only a `Weight` of each stays."""

Offsets = dict[int, int]
"""Next offset by partition of the references topic."""


class Weight(NamedTuple):
    """A message: its place, its references, and its bytes with those of the blocks that they point to."""

    partition: int
    offset: int
    references: int
    bytes: int


class Bounds(NamedTuple):
    """Bounds of a slice, unless its only message is larger."""

    references_max: int
    bytes_max: int


class Slice(NamedTuple):
    """Committed messages, and the offsets behind them."""

    messages: list[MessageAt]
    offsets: Offsets


_WEIGHT = T.StructType(
    [
        T.StructField("partition", T.IntegerType()),
        *[T.StructField(name, T.LongType()) for name in ("offset", "references", "bytes")],
    ]
)
_ARROW_WEIGHT = to_arrow_schema(_WEIGHT)


class ReferenceLog:
    """A references topic, through one Spark session."""

    def __init__(self, spark: SparkSession, settings: KafkaSettings, topic: str) -> None:
        self._spark = spark
        self._settings = settings
        self._topic = topic

    def slices(self, offsets: Offsets, ends: dict[int, Ends], bounds: Bounds) -> Iterator[Slice]:
        """Read on from these offsets to these ends; each slice is read when the caller takes it.

        A partition that has no offset yet begins at its beginning. All partitions that are behind advance together.
        """
        reached = {number: end.first for number, end in ends.items()} | offsets
        while stops := _next_ends(reached, ends):
            begins = {number: reached[number] for number in stops}
            for one in self.slices_of(self._frame(begins, stops), begins, stops, bounds):
                reached |= one.offsets
                yield Slice(one.messages, dict(reached))

    def slices_of(self, messages: DataFrame, starts: Offsets, stops: Offsets, bounds: Bounds) -> Iterator[Slice]:
        """Cut these messages, from `starts` to `stops`, into slices; each is read when the caller takes it.

        A partition that has no start yet begins at its first message, because nobody has asked for the begin of its
        log.
        """
        weights = [Weight(*row) for row in messages.mapInArrow(weigh, _WEIGHT).collect()]
        reached = begins_of(weights, stops) | starts
        for ends in cut(weights, stops, bounds):
            some = {number: end for number, end in ends.items() if end > reached[number]}
            found = [MessageAt.of(row) for row in self._frame(reached, some).collect()] if weights and some else []
            reached |= ends
            yield Slice(found, dict(reached))

    def _frame(self, starts: Offsets, stops: Offsets) -> DataFrame:
        options = spark_options(self._settings, self._topic)
        del options["subscribe"]
        return (
            self._spark.read.format("kafka")
            .options(**options)
            .option("assign", json.dumps({self._topic: list(stops)}))
            .option("startingOffsets", json.dumps({self._topic: {str(number): starts[number] for number in stops}}))
            .option("endingOffsets", json.dumps({self._topic: {str(number): stop for number, stop in stops.items()}}))
            .load()
            .select("partition", "offset", "value")
        )


def begins_of(weights: Iterable[Weight], stops: Offsets) -> Offsets:
    """Return the offset of each partition's first message; the stop offset if a partition has no message to read."""
    return stops | {one.partition: one.offset for one in sorted(weights, reverse=True)}


def weigh(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Weigh messages (partition, offset, value) on the executors; one that holds no references weighs its bytes."""
    for batch in batches:
        weights = [_weight_of(MessageAt.of(row))._asdict() for row in batch.to_pylist()]
        yield pa.RecordBatch.from_pylist(weights, _ARROW_WEIGHT)


def _weight_of(message: MessageAt) -> Weight:
    try:
        lines = decode_message(message.value).references
    except (msgspec.DecodeError, UnicodeDecodeError):
        lines = ()  # who reads it says what is wrong
    size = len(message.value) + sum(line.length for line in lines)
    return Weight(message.partition, message.offset, len(lines), size)


def cut(weights: Iterable[Weight], stops: Offsets, bounds: Bounds) -> Iterator[Offsets]:
    """Yield the offsets behind each slice; the last ones are `stops`, behind the markers of transactions, too.

    The first messages of all partitions come first, then the second ones, and so on.
    """
    by_partition: dict[int, list[Weight]] = {}
    for weight in sorted(weights):
        by_partition.setdefault(weight.partition, []).append(weight)
    in_turn = sorted((nth, one) for some in by_partition.values() for nth, one in enumerate(some))
    reached: Offsets = {}
    references = size = 0
    for _, one in in_turn:
        references += one.references
        size += one.bytes
        if reached and (references > bounds.references_max or size > bounds.bytes_max):
            yield reached
            reached, references, size = {}, one.references, one.bytes
        reached[one.partition] = one.offset + 1
    yield stops


def _next_ends(reached: Offsets, ends: dict[int, Ends]) -> Offsets:
    """Return the offsets up to which to weigh the partitions that are behind: each its share."""
    behind = [number for number, end in ends.items() if reached[number] < end.next]
    share = max(1, WEIGHED_AT_ONCE // max(1, len(behind)))
    return {number: min(ends[number].next, reached[number] + share) for number in behind}


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
