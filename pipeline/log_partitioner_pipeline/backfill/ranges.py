"""Chooses the offsets of the source that a backfill takes: any below the group's committed offsets.

Above them a worker may be at work; below them no worker will ever be again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from log_partitioner.adapters.kafka.topics import KafkaTopics
from log_partitioner.formats.model import TopicPartition
from log_partitioner_pipeline.errors import RangeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from log_partitioner.config.settings import KafkaSettings

Ranges = dict[TopicPartition, range]
"""Offsets to look at; no range is empty."""

LastOf = Callable[[dict[TopicPartition, tuple[int, int]], int | None, int], dict[TopicPartition, int]]
"""Looks in [first, next) for the last record with a timestamp from the first up to before the second moment."""

_offsets_decoder = msgspec.json.Decoder(dict[str, dict[int, tuple[int, int]]])


class Wanted(NamedTuple):
    """A person's request: offsets, or record timestamps from `from_ms` up to before `until_ms`."""

    offsets: Ranges | None = None
    from_ms: int | None = None
    until_ms: int | None = None

    @property
    def is_nothing(self) -> bool:
        """Whether nothing is asked for."""
        return self == Wanted()


def resolve(settings: KafkaSettings, wanted: Wanted, last_of: LastOf) -> Ranges:
    """Return the requested offsets.

    A range of time ends at the committed offsets at the latest; a range of offsets that goes beyond is refused. Its end
    is behind its last record, though one before it has a later timestamp: blocks until `last_of` has looked.

    Raises:
        RangeError: the offsets are not the group's, not there any more, or not of a source topic.
        CouldNotTellError: no broker answers.
    """
    with KafkaTopics.of(settings) as topics:
        tps = topics.source_topic_partitions(settings.sources)
        committed = topics.committed(tps)
        if wanted.offsets is not None:
            firsts = {tp: topics.ends(tp).first for tp in wanted.offsets if tp in committed}
            require_readable(wanted.offsets, committed, firsts)
            return wanted.offsets
        starts = _at(topics, tps, wanted.from_ms)
        stops = _at(topics, tps, wanted.until_ms)
        found, behind = {}, {}
        for tp in tps:
            ends, reached = topics.ends(tp), committed[tp]
            start, stop = starts.get(tp), stops.get(tp)
            first = ends.first if wanted.from_ms is None else ends.next if start is None else start
            found[tp] = range(max(first, ends.first), min(ends.next if stop is None else stop, reached or 0))
            if stop is not None and reached is not None:
                behind[tp] = (max(stop, ends.first), min(ends.next, reached))
    if wanted.until_ms is not None:
        for tp, last in last_of(behind, wanted.from_ms, wanted.until_ms).items():
            found[tp] = range(found[tp].start, last + 1)
    return {tp: span for tp, span in found.items() if span}


def _at(topics: KafkaTopics, tps: list[TopicPartition], time_ms: int | None) -> dict[TopicPartition, int | None]:
    return {} if time_ms is None else topics.offsets_at(tps, time_ms)


def require_readable(
    offsets: Ranges, committed: Mapping[TopicPartition, int | None], firsts: Mapping[TopicPartition, int]
) -> None:
    """Refuse offsets that a backfill may not take, or that are not there any more.

    Raises:
        RangeError: it names the first one, and what the limit is.
    """
    for tp, span in sorted(offsets.items()):
        name = f"[{span.start}, {span.stop}) of {tp}"
        if tp not in committed:
            raise RangeError(f"{name}: not a TopicPartition of the source topics")
        reached = committed[tp]
        if reached is None or span.stop > reached:
            limit = "nothing" if reached is None else f"up to {reached}"
            raise RangeError(f"{name} goes beyond what the group has committed, {limit}: a worker may be at it")
        if span.start < firsts[tp]:
            raise RangeError(f"{name} is not all there any more: it begins at {firsts[tp]}")


def parse_offsets(text: str) -> Ranges:
    """Read `{"topic": {"0": [first, next], ...}, ...}`.

    Raises:
        RangeError: it is something else.
    """
    try:
        given = _offsets_decoder.decode(text)
    except msgspec.DecodeError as error:
        raise RangeError(f'offsets are written {{"topic": {{"0": [first, next]}}}}: {error}') from error
    found = {
        TopicPartition(topic, number): range(*span) for topic, spans in given.items() for number, span in spans.items()
    }
    wrong = [tp for tp, span in found.items() if span.start < 0 or not span]
    if wrong:
        raise RangeError(f"the range of {wrong[0]} is empty, or begins below 0")
    return found


def format_offsets(ranges: Ranges) -> str:
    """Write offsets in the form that `parse_offsets` reads."""
    topics: dict[str, dict[str, list[int]]] = {}
    for tp, span in sorted(ranges.items()):
        topics.setdefault(tp.topic, {})[str(tp.partition)] = [span.start, span.stop]
    return json.dumps(topics)
