"""Reads from flush records up to which offset each TopicPartition was flushed, and which other groups flush it.

Owns both answers; `adapters.kafka.flush_records` yields the records, newest first. One part of a flush record is enough
for the TopicPartitions that it names, since readers see all parts of a transaction or none. An adoption by the group
sets the next offset, as a flush record does.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from typing import Literal, NamedTuple

from log_partitioner.formats.flush_record import Adoption, FlushedTopicPartition, FlushRecord, Lineage
from log_partitioner.formats.model import TopicPartition
from log_partitioner.formats.offset_metadata import SourceTopics, Ways

SKEW_MS = 600_000
"""Clock difference that two workers may have: among flush records closer in time the furthest offset counts."""


class OurGroup(NamedTuple):
    """The group whose history is read; on topics in `alone_on`, any group but it and the `accepted` ones is foreign."""

    group_id: str
    alone_on: Container[str] = ()
    accepted: Collection[str] = ()


class Foreign(NamedTuple):
    """A group that publishes the same source topic, and is not part of our history.

    It is an `other` one; or one that we have adopted, and that has flushed `beyond` the adopted offset; or its adoption
    of our group makes it our `heir`. `place` is one of the TopicPartitions and the next offset there.
    """

    kind: Literal["other", "beyond", "heir"]
    group_id: str
    place: tuple[TopicPartition, int]


class _End(NamedTuple):
    at_ms: int
    next_offset: int
    ways: Ways | None


class FlushedOffsets(NamedTuple):
    """The next offset of each TopicPartition asked for, if known, foreign groups, and topics that ours has flushed.

    `ways` are the places of source topic chains that are recorded at these offsets.
    """

    next_offsets: dict[TopicPartition, int]
    foreign: list[Foreign]
    topics: frozenset[str] = frozenset()
    ways: Mapping[TopicPartition, Ways] = {}


class FlushHistory:
    """Collects the next offset of each TopicPartition wanted, from flush records of one group and these topics.

    Two topics of one name are the same if their ids are equal, or if one id is unknown. If a person has set the offset,
    flush records count only from SKEW_MS after that time on. For `newest_of`, only the newest flush records matter.
    """

    def __init__(
        self,
        wanted: Iterable[TopicPartition],
        *,
        newest_of: Iterable[TopicPartition] = (),
        group: OurGroup,
        topics: SourceTopics,
    ) -> None:
        self._wanted = frozenset(wanted)
        self._newest_of = frozenset(newest_of)
        self._group = group
        self._topics = topics
        self.flushed_topics: set[str] = set()
        self._newest: dict[TopicPartition, list[_End]] = {}
        self._adoptions: list[Adoption] = []
        self._others: dict[tuple[str, TopicPartition, str | None], list[tuple[int, int]]] = {}

    def add(self, record: FlushRecord | Adoption) -> None:
        """Add a record; the order does not matter."""
        if isinstance(record, Adoption):
            self._adoptions.append(record)
        is_ours = record.group_id == self._group.group_id
        for line in record.topic_partitions:
            tp, topic_id = TopicPartition(line.topic, line.partition), record.topic_ids.get(line.topic)
            if topic_id is not None and self._topics.ids.get(line.topic, topic_id) != topic_id:
                continue
            if is_ours:
                self.flushed_topics.add(line.topic)
            if not is_ours:
                self._take_other((record.group_id, tp, topic_id), (at_ms(record), line.next_offset))
            elif tp in self._wanted or tp in self._newest_of:
                ways = line.next_ways if isinstance(line, FlushedTopicPartition) else None
                self._take(tp, _End(at_ms(record), line.next_offset, ways))

    def _take(self, tp: TopicPartition, end: _End) -> None:
        set_ms = self._topics.set_ms.get(tp)
        if set_ms is not None and end.at_ms <= set_ms + SKEW_MS:
            return
        known = [*self._newest.get(tp, ()), end]
        newest_ms = max(one.at_ms for one in known)
        self._newest[tp] = [one for one in known if one.at_ms >= newest_ms - SKEW_MS]

    def _take_other(self, place: tuple[str, TopicPartition, str | None], one: tuple[int, int]) -> None:
        """Keep a flush that is later, or further, than each of the others."""
        some = self._others.setdefault(place, [])
        if not any(ms >= one[0] and end >= one[1] for ms, end in some):
            some[:] = [one, *(other for other in some if other[0] > one[0] or other[1] > one[1])]

    def is_enough(self, oldest_ms: int, *, is_long: bool = False) -> bool:
        """Return whether the next offset of all wanted is known, and nothing older than `oldest_ms` can change it.

        `newest_of` may stay unknown if the part of the topic that was read `is_long`. Times are by the workers' clocks.
        """
        needed = self._wanted if is_long else self._wanted | self._newest_of
        newest = self._newest
        return all(tp in newest and max(one.at_ms for one in newest[tp]) - SKEW_MS > oldest_ms for tp in needed)

    @property
    def foreign(self) -> list[Foreign]:
        """The groups that publish the topics on which ours must be alone; decided as soon as a record of one is read.

        Adoptions stand in each partition of the topic, behind all that they make part of our history. Flushes of an
        adopted group beyond the adopted offset, from before the adoption, are part of it, too: a person had set that
        group back.
        """
        lineage = Lineage(self._group.group_id, self._adoptions)
        heirs = {one.group_id for one in self._adoptions if one.from_group in lineage.groups}
        adopted_ms = self._adopted_ms(lineage.groups)
        found: dict[str, Foreign] = {}
        for (group_id, tp, topic_id), some in sorted(self._others.items(), key=lambda item: item[0][:2]):
            if group_id in self._group.accepted or tp.topic not in self._group.alone_on:
                continue
            since_ms = adopted_ms.get((group_id, tp))
            late = [end for ms, end in some if since_ms is None or ms > since_ms - SKEW_MS]
            ends = [end for end in late if not lineage.has(group_id, *tp, end, topic_id)]
            if not ends:
                continue
            kind: Literal["other", "beyond", "heir"] = "other"
            if since_ms is not None:
                kind = "beyond"
            elif group_id in heirs and group_id not in lineage.groups:
                kind = "heir"
            found.setdefault(group_id, Foreign(kind, group_id, (tp, max(ends))))
        return list(found.values())

    def _adopted_ms(self, heirs: Collection[str]) -> dict[tuple[str, TopicPartition], int]:
        """Return when each of these groups last adopted a TopicPartition, by adopted group and TopicPartition."""
        found: dict[tuple[str, TopicPartition], int] = {}
        for one in self._adoptions:
            for line in one.topic_partitions if one.group_id in heirs else ():
                topic_id = one.topic_ids.get(line.topic)
                if topic_id is None or self._topics.ids.get(line.topic, topic_id) == topic_id:
                    place = one.from_group, TopicPartition(line.topic, line.partition)
                    found[place] = max(one.adopted_at_ms, found.get(place, 0))
        return found

    @property
    def next_offsets(self) -> dict[TopicPartition, int]:
        """The next offset of each TopicPartition that a flush record names."""
        return {tp: max(one.next_offset for one in some) for tp, some in sorted(self._newest.items())}

    @property
    def flushed(self) -> FlushedOffsets:
        """All that was asked for."""
        last = {tp: max(some, key=lambda one: one.next_offset) for tp, some in self._newest.items()}
        ways = {tp: one.ways for tp, one in last.items() if one.ways}
        return FlushedOffsets(self.next_offsets, self.foreign, frozenset(self.flushed_topics), ways)


def at_ms(record: FlushRecord | Adoption) -> int:
    """Return when the transaction of a record began, by its writer's clock."""
    return record.adopted_at_ms if isinstance(record, Adoption) else record.ended_at_ms
