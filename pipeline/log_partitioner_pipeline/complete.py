"""Up to which moment the table is complete: every record that the source had by then is in it, or a dead letter.

The moment is the clock's, not that of records or entries, so neither clocks of producers, nor idle partitions, nor
rebalances make it wrong: the ends of all source partitions are asked for at a moment, and once the group has committed
up to them, and the table has its references, the table is complete up to that moment. An hour of events is complete
once that is its end and as much later as entries come late.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from log_partitioner.adapters.kafka.topics import Ends, KafkaTopics
from log_partitioner.formats.model import TopicPartition

if TYPE_CHECKING:
    from log_partitioner.config.settings import KafkaSettings

PROPERTY_COMPLETE = "log-partitioner.complete-through"
PROPERTY_ASKED = "log-partitioner.source-ends"
_MARKERS_MAX = 100  # of transactions, which are offsets behind the last record; more offsets are not read for that

Committed = Mapping[TopicPartition, int | None]


class SourceEnds(NamedTuple):
    """The ends of the source's partitions at a moment, None if there was no record."""

    at: datetime
    ends: dict[TopicPartition, int | None]

    def is_reached(self, committed: Committed) -> bool:
        """Return whether everything that there was is committed, but for topics that are not there any more."""
        return all(end is None or (committed.get(tp, end) or 0) >= end for tp, end in self.ends.items())


class _Stored(msgspec.Struct):
    at: datetime
    ends: list[tuple[str, int, int | None]]


class Completeness:
    """The moment up to which the table is complete, and a later one that is waited for."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Go on from the table's properties."""
        self.through = _moment_of(properties.get(PROPERTY_COMPLETE))
        self._awaited = _decode(properties.get(PROPERTY_ASKED))

    def reach(self, now: SourceEnds, committed: Committed) -> dict[str, str]:
        """Take offsets that are committed and in the table; returns the properties to set, none if nothing changed."""
        if now.is_reached(committed):
            self.through, self._awaited = now.at, None
        elif self._awaited is None or self._awaited.is_reached(committed):
            self.through = self._awaited.at if self._awaited is not None else self.through
            self._awaited = now
        else:
            return {}
        return self.told() | {PROPERTY_ASKED: _encode(self._awaited)}

    def told(self) -> dict[str, str]:
        """Return the moment as a property, or as a snapshot's summary says it; nothing if there is none."""
        return {} if self.through is None else {PROPERTY_COMPLETE: self.through.isoformat()}


def ask(topics: KafkaTopics, kafka: KafkaSettings) -> tuple[SourceEnds, Committed]:
    """Ask what the group has committed of its source, and for the ends of now; blocks for seconds.

    Raises:
        CouldNotTellError: no broker answers, or a topic is not there.
    """
    tps = topics.source_topic_partitions(kafka.sources)
    committed = topics.committed(tps)
    at = datetime.now(UTC).replace(microsecond=0)
    return SourceEnds(at, {tp: _end(topics, tp, topics.ends(tp), committed[tp]) for tp in tps}), committed


def _end(topics: KafkaTopics, tp: TopicPartition, ends: Ends, committed: int | None) -> int | None:
    """Return the end, or the committed offset if only markers stand behind it; None if there is no record."""
    first = max(ends.first, committed or 0)
    if 0 < ends.next - first <= _MARKERS_MAX and next(topics.read({tp: (first, ends.next)}), None) is None:
        return committed
    return ends.next if ends.first < ends.next else None


def _moment_of(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _encode(moment: SourceEnds | None) -> str:
    if moment is None:
        return ""
    return msgspec.json.encode(_Stored(moment.at, [(*tp, end) for tp, end in moment.ends.items()])).decode()


def _decode(text: str | None) -> SourceEnds | None:
    if not text:
        return None
    stored = msgspec.json.decode(text, type=_Stored)
    return SourceEnds(stored.at, {TopicPartition(topic, number): end for topic, number, end in stored.ends})
