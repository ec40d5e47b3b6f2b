"""The references topic read in slices, for jobs that keep their offsets themselves and decide when to read.

Owns which messages belong to a slice, and when offsets do not fit the topic.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from pipeline.errors import PipelineError
from pipeline.kafka import Ends, spark_options
from pipeline.references import MessageAt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from service.config import KafkaSettings

Offsets = dict[int, int]
"""Next offset by partition of the references topic."""


class Slice(NamedTuple):
    """Committed messages, and the offsets behind them."""

    messages: list[MessageAt]
    offsets: Offsets


class ReferenceLog:
    """A references topic, through one Spark session."""

    def __init__(self, spark: SparkSession, settings: KafkaSettings, topic: str) -> None:
        self._spark = spark
        self._settings = settings
        self._topic = topic

    def read(self, offsets: Offsets, ends: dict[int, Ends], *, messages_max: int) -> Slice:
        """Read on from these offsets, towards these ends; blocks until the messages are here.

        A partition that has no offset yet begins at its beginning. Every partition that is behind comes forward.
        """
        starts = {number: offsets.get(number, end.first) for number, end in ends.items()}
        stops = slice_ends(starts, ends, messages_max=messages_max)
        reached = offsets | starts | stops
        if not stops:
            return Slice([], reached)
        options = spark_options(self._settings, self._topic)
        del options["subscribe"]
        messages = (
            self._spark.read.format("kafka")
            .options(**options)
            .option("assign", json.dumps({self._topic: list(stops)}))
            .option("startingOffsets", json.dumps({self._topic: {str(number): starts[number] for number in stops}}))
            .option("endingOffsets", json.dumps({self._topic: {str(number): stop for number, stop in stops.items()}}))
            .load()
            .select("partition", "offset", "value")
        )
        found = [MessageAt.of(row) for row in messages.collect()]
        return Slice(found, reached)


def slice_ends(starts: Offsets, ends: dict[int, Ends], *, messages_max: int) -> Offsets:
    """Say up to where to read the partitions that are behind: each its share of `messages_max`, at least one."""
    behind = [number for number, end in ends.items() if starts[number] < end.next]
    share = max(1, messages_max // max(1, len(behind)))
    return {number: min(ends[number].next, starts[number] + share) for number in behind}


def count_behind(offsets: Offsets, ends: dict[int, Ends]) -> int:
    """Count what lies between these offsets and the ends."""
    return sum(max(0, end.next - offsets.get(number, end.first)) for number, end in ends.items())


def require_unbroken(offsets: Offsets, ends: dict[int, Ends], topic: str) -> None:
    """Refuse to go on where references are gone that were not read, or the topic is another one.

    Who has read any has an offset for every partition there was: one without is new, and begins at 0.

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
