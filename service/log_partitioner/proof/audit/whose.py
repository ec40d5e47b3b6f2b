"""Chooses whose messages a reader takes: those of one group and its adopted groups (docs/FORMATS.md, Adoptions).

Owns the choice of the group: the one named by `kafka.group_id`, or the one that has adopted it; if none is named, the
only history of the source topics. Several unrelated groups are refused by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from log_partitioner.errors import CouldNotTellError
from log_partitioner.formats.flush_record import Adoption, Lineage, decode_adoption, heads

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

    from log_partitioner.config.settings import KafkaSettings, Settings
    from log_partitioner.formats.flush_record import BackfillRecord
    from log_partitioner.formats.model import SourceRecord, TopicPartition
    from log_partitioner.formats.reference import Reference


class _Line(msgspec.Struct):
    topic: str


class _Flush(msgspec.Struct):
    """The fields of a flush record, or of an adoption, that are needed to know its group."""

    group_id: str
    topic_partitions: tuple[_Line, ...]
    from_group: str | None = None


_decode = msgspec.json.Decoder(_Flush).decode


class FlushTopics(Protocol):
    """Kafka, as far as the choice needs it; see `KafkaTopics`."""

    def topic_partitions(self, topic: str, *, may_be_absent: bool = False) -> list[TopicPartition]:
        """List the TopicPartitions of a topic; none if it is absent and may be."""

    def settled(self, tps: Iterable[TopicPartition]) -> tuple[Mapping[TopicPartition, tuple[int, int]], list[str]]:
        """Wait until no transaction is open; return first offsets and ends, and why some are still open."""

    def read(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> Iterator[SourceRecord]:
        """Yield the messages of [first, next) ranges, each TopicPartition in offset order."""


class Groups:
    """The groups of a flushes topic with the source topics that they have flushed, and who has adopted whom."""

    def __init__(self) -> None:
        self.topics: dict[str, set[str]] = {}
        self.adoptions: list[Adoption] = []
        self._reached: dict[TopicPartition, int] = {}

    def begin_at(self, places: Mapping[TopicPartition, int]) -> None:
        """Begin with these offsets: who asks about a window needs no group that had ended before."""
        self._reached = dict(places)

    def read_on(self, topics: FlushTopics, flushes_topic: str) -> None:
        """Read the messages committed since the last call; blocks until they are read.

        Raises:
            CouldNotTellError: brokers do not answer, or an adoption is of a version that is not known here.
        """
        ends, _ = topics.settled(topics.topic_partitions(flushes_topic, may_be_absent=True))
        for message in topics.read({tp: (self._reached.get(tp, first), end) for tp, (first, end) in ends.items()}):
            self.add(message)
        self._reached = {tp: end for tp, (_, end) in ends.items()}

    def add(self, message: SourceRecord) -> None:
        """Take a message; an audit reports one that is neither flush record nor adoption."""
        value = message.value or b""
        try:
            told = _decode(value)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return
        self.topics.setdefault(told.group_id, set()).update(line.topic for line in told.topic_partitions)
        if told.from_group is not None:
            try:
                self.adoptions.append(decode_adoption(value))
            except msgspec.DecodeError as error:
                text = f"{message.tp} offset {message.offset} is an adoption that this version does not read: {error}"
                raise CouldNotTellError(text) from error

    def lineage(self, kafka: KafkaSettings, *, also: Iterable[str] = ()) -> Lineage:
        """Choose the history that these settings ask for; `also` are groups with other messages than flush records.

        Raises:
            CouldNotTellError: there are several; the message names them, and the setting to set.
        """
        is_named = "group_id" in kafka.model_fields_set
        sources = kafka.sources
        adoptions = [one for one in self.adoptions if any(line.topic in sources for line in one.topic_partitions)]
        found = _and_successors(kafka.group_id, adoptions) if is_named else {*self.of(sources), *also}
        newest = heads(found, adoptions)
        if found and not newest and not is_named:
            names = ", ".join(sorted(found))
            raise CouldNotTellError(
                f"groups {names} have adopted each other: say which is meant, by LOGP_KAFKA__GROUP_ID"
            )
        if len(newest) > 1:
            names = ", ".join(newest)
            what = (
                f"have all adopted {kafka.group_id}"
                if is_named
                else f"have flushed {', '.join(sorted(kafka.source_topics))}"
            )
            raise CouldNotTellError(f"groups {names} {what}: say which is meant, by LOGP_KAFKA__GROUP_ID")
        return Lineage(newest[0] if newest else kafka.group_id, self.adoptions)

    def of(self, sources: Container[str]) -> list[str]:
        """Return the groups that have flushed, or adopted, any of these source topics."""
        return sorted(group for group, topics in self.topics.items() if any(topic in sources for topic in topics))


def _and_successors(group_id: str, adoptions: list[Adoption]) -> list[str]:
    groups = [group_id]
    for group in groups:  # grows meanwhile
        groups += {one.group_id for one in adoptions if one.from_group == group} - set(groups)
    return groups


def has_reference(lineage: Lineage, reference: Reference) -> bool:
    """Return whether a reference belongs to a history."""
    return all(lineage.has(reference.group_id, one.topic, one.partition, one.next_offset) for one in reference.sources)


def has_run(lineage: Lineage, record: BackfillRecord) -> bool:
    """Return whether a backfill's record belongs to a history."""
    lines = record.topic_partitions
    return all(lineage.has(record.group_id, one.topic, one.partition, one.next_offset) for one in lines)


def of_group(settings: Settings, group_id: str) -> Settings:
    """Return the settings of a worker of this group."""
    kafka = settings.kafka.model_copy(update={"group_id": group_id})
    return settings.model_copy(update={"kafka": kafka})


def nothing_of(group_id: str, groups: Iterable[str]) -> str:
    """Say that a group has left nothing to audit, and name the groups that have."""
    others = ", ".join(sorted(groups))
    there = f"flush records are of {others}" if others else "there are no flush records at all"
    return f"nothing of the source is audited: group {group_id} has neither flush records nor work committed; {there}"
